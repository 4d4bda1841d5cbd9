"""to_c: an int8 flatbuffer as C for microcontrollers."""

import json
import os
import shutil
import tempfile
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from .emitting import header, source
from .encoding import FORMATS
from .integer_graph import read_graph
from .layout import layout
from .planning import plan

RUNTIME = ("ks_runtime.h", "ks_kernels.h", "ks_rescale.h")
_CORTEX_M = ("main_cortex_m.c", "startup_cortex_m.c", "microbit.ld", "stm32vldiscovery.ld")
FILES = ("main_host.c", "main_uno.c", *_CORTEX_M, "netduinoplus2.ld", "Makefile")


class Firmware(NamedTuple):
    """What `to_c` wrote.

    Attributes:
        directory: Where.
        ram: Bytes of static RAM on an AVR; on a board that aligns, up to 3 more.
        flash: Bytes of weights, indices and tables on an AVR; on a board that aligns, up to 3 more.
        weights: Bytes of the weights and indices alone.
        encodings: Format of every array of weights.
    """

    directory: Path
    ram: int
    flash: int
    weights: int
    encodings: dict[str, str]


def to_c(
    flatbuffer: bytes, directory: str | os.PathLike[str], *, encoding: str | None = None
) -> Firmware:
    """Writes C99 that runs a network in little RAM: streamed row by row, weights stored sparse.

    Args:
        flatbuffer: An int8 network with batch 1, such as `to_tflite` gives.
        directory: A folder that does not exist or is empty.
        encoding: "dense", "bitmap", "runs" or "bytes" for all weights; None chooses the smallest
            for each layer.

    Returns:
        What it takes, to the byte.
    """
    if encoding is not None and encoding not in FORMATS:
        raise ValueError(f"encoding must be None or one of {FORMATS}. Received: {encoding!r}")
    folder = Path(directory)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"directory must be a folder that is empty or does not exist. Received: {folder}"
        )
    drafted = plan(read_graph(flatbuffer))
    memory = layout(drafted, encoding)
    facts = {
        "ram": [memory.ram_bytes(word) for word in (1, 4)],
        "flash": [memory.flash_bytes(word) for word in (1, 4)],
        "input": drafted.graph.shapes[drafted.graph.input],
    }
    files = {
        "model.c": source(drafted, memory),
        "model.h": header(drafted, memory),
        "model.json": json.dumps(facts) + "\n",
    }
    for name in (*RUNTIME, *FILES):
        files[name] = resources.files(f"{__package__}.runtime").joinpath(name).read_text()
    _write(folder, files)
    return Firmware(
        folder,
        memory.ram_bytes(),
        memory.flash_bytes(),
        sum(len(stream.content) for stream in memory.streams.values()),
        {name: stream.name for name, stream in memory.streams.items()},
    )


def _write(folder: Path, files: dict[str, str]) -> None:
    """All files or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    written = Path(tempfile.mkdtemp(dir=folder.parent, suffix=".part"))
    try:
        for name, text in files.items():
            (written / name).write_text(text)
        written.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        os.replace(written, folder)
    except BaseException:
        shutil.rmtree(written, ignore_errors=True)
        raise
