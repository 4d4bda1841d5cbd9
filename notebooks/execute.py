"""Executes the notebooks and writes their outputs into them: `make notebooks`.

python notebooks/execute.py [01_layers ...]
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(path: Path) -> None:
    """Runs a notebook in a folder of its own."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which change with every run
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if not _is_log(output)])
    nbformat.write(notebook, path)


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Printed text in one piece, of a line that changed only what it was in the end."""
    result: list[nbformat.NotebookNode] = []
    for output in outputs:
        is_more = result and output.output_type == "stream" == result[-1].output_type
        if is_more and output.name == result[-1].name:
            result[-1].text += output.text
        else:
            result.append(output)
    for output in result:
        if output.output_type == "stream":
            lines = output.text.split("\n")
            output.text = "\n".join(line.rsplit("\r", 1)[-1] for line in lines)
    return result


def _is_log(output: nbformat.NotebookNode) -> bool:
    """Whether it is what TensorFlow says of the machine when it is loaded."""
    return output.get("name") == "stderr" and "0000 00:00" in output.text


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        execute(FOLDER / f"{name}.ipynb")
        print(f"{name} executed", flush=True)
