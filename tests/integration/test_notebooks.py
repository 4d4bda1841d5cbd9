"""The notebooks: what is committed is whole, and they run."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = ["01_layers", "02_search", "03_deploy"]
_SLOW = pytest.mark.slow


def test_these_are_all():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_committed_whole_and_without_paths_of_a_machine(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs
    )
    assert not re.search(r"/(work|home|root|Users|tmp)/", text)


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(n, marks=_SLOW) for n in NAMES[1:])])
def test_it_runs_in_a_small_mode(name, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_SPARSE_SMALL", "1")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
