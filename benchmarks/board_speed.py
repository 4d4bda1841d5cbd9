"""Speed of generated C on every board: sparse against dense weights, cycles per multiplication.

    python -m benchmarks.board_speed

Takes the network of `benchmarks.uno` (benchmarks/results/uno/mnist/model.tflite), writes its C with
each encoding of the weights, and runs a few images of noise on each board: counts are exact, so
that a few are enough. The C that an older commit of this repository writes (--before) runs beside
it. On the Uno it shows what rescaling sums to int8 costs. Also compares with TFLite Micro for the
same network with 80 % of all weights zero. Results: benchmarks/results/board_speed.json.
"""

import argparse
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, environment
from keras_sparse.deploy import BoardError, BoardRun, MicroModel, run_on_board, to_c
from keras_sparse.deploy.c.boards import BOARDS
from keras_sparse.deploy.c.encoding import FORMATS
from keras_sparse.deploy.c.integer_graph import read_graph
from keras_sparse.deploy.c.operators import Convolution, Dense
from keras_sparse.deploy.flatbuffer import operator_name, packed, parse, shrunk
from keras_sparse.files import write_json

SPARSITY = 0.8
FIRST_VERSION = {
    "uno": 33_680_392,
    "microbit": 11_076_772,
    "stm32vldiscovery": 5_256_441,
    "netduinoplus2": 5_581_677,
}
FIRST_VERSION_NOTE = (
    "cycles or instructions an image, the same network, images and encoding; constants, measured "
    "when the first version worked; it is not in the history of this repository, so that this "
    "command cannot measure it again"
)
BEFORE = "bd55314"
RESCALING = ("ks_rescale", "ks_rescale_sums")
"""Functions of the runtime that make int8 of sums."""


def macs(flatbuffer: bytes) -> tuple[int, int]:
    """Multiplications of one image: all, and those by weights that are not zero."""
    graph = read_graph(flatbuffer)
    dense = sparse = 0
    for operator in graph.operators:
        if isinstance(operator, (Convolution, Dense)):
            height, width, _ = graph.shapes[operator.output]
            dense += height * width * operator.weights.size
            sparse += height * width * int(np.count_nonzero(operator.weights))
    return dense, sparse


def pruned(flatbuffer: bytes, share: float) -> bytes:
    """The same network whose smallest weights, `share` of each layer, are zero."""
    model = parse(flatbuffer)
    tensors = model.subgraphs[0].tensors
    for operator in model.subgraphs[0].operators:
        if operator_name(model, operator) in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            buffer = model.buffers[tensors[int(operator.inputs[1])].buffer]
            values = np.asarray(buffer.data, np.uint8).view(np.int8).copy()
            smallest = np.argsort(np.abs(values.astype(np.int16)), kind="stable")
            values[smallest[: round(share * values.size)]] = 0
            buffer.data = values.view(np.uint8)
    return shrunk(packed(model))


def speeds(flatbuffer: bytes, images: np.ndarray) -> list[dict[str, Any]]:
    """A row for each board and encoding."""
    rows = []
    for encoding in (None, *FORMATS):
        with tempfile.TemporaryDirectory() as name:
            firmware = to_c(flatbuffer, Path(name) / "firmware", encoding=encoding)
            rows += _on_boards(firmware.directory, encoding or "smallest", flatbuffer, images)
    return rows


def speeds_before(commit: str, flatbuffer: bytes, images: np.ndarray) -> list[dict[str, Any]]:
    """The same for the C of another commit, with the smallest encoding."""
    script = "import sys; from keras_sparse.deploy import to_c; "
    script += "to_c(open(sys.argv[1], 'rb').read(), sys.argv[2])"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(flatbuffer)
        archive = ("git", "archive", "-o", str(folder / "source.tar"), commit, "keras_sparse")
        subprocess.run(archive, cwd=RESULTS.parents[1], check=True)  # noqa: S603
        with tarfile.open(folder / "source.tar") as tar:
            tar.extractall(folder / "source", filter="data")
        command = (sys.executable, "-c", script, "model.tflite", "firmware")
        paths = os.environ | {"PYTHONPATH": str(folder / "source")}
        subprocess.run(command, cwd=folder, env=paths, check=True)  # noqa: S603
        return _on_boards(folder / "firmware", "smallest", flatbuffer, images)


def _on_boards(
    firmware: Path, encoding: str, flatbuffer: bytes, images: np.ndarray
) -> list[dict[str, Any]]:
    dense, sparse = macs(flatbuffer)
    rows = []
    for board in (board for board in BOARDS if board != "host"):
        row: dict[str, Any] = {"board": board, "encoding": encoding}
        try:
            run = run_on_board(firmware, board, images)
            count = run.cycles or run.instructions
            row |= {
                "unit": "cycles" if run.cycles else "instructions",
                "an image": count,
                "per dense mac": round(count / dense, 2),
                "per sparse mac": round(count / sparse, 2),
                "flash": run.flash,
                "tables": run.tables,
                "ram": run.ram,
                "stack": run.stack,
            }
            if run.functions:
                row["rescaling"] = _rescaling(run, rescaled(flatbuffer))
        except BoardError as error:
            row["refused"] = str(error)
        print(row, flush=True)
        rows.append(row)
    return rows


def rescaled(flatbuffer: bytes) -> int:
    """Sums of one image that become int8."""
    graph = read_graph(flatbuffer)
    return sum(
        math.prod(graph.shapes[operator.output])
        for operator in graph.operators
        if isinstance(operator, (Convolution, Dense))
    )


def _rescaling(run: BoardRun, values: int) -> dict[str, Any]:
    cycles = sum(run.functions.get(name, 0) for name in RESCALING)
    return {
        "values": values,
        "cycles": cycles,
        "cycles a value": round(cycles / values, 1),
        "share of all cycles": round(cycles / run.cycles, 4),
    }


def comparison(flatbuffer: bytes) -> dict[str, Any]:
    """Flash and RAM of our C and of TFLite Micro."""
    micro = MicroModel(flatbuffer)
    with tempfile.TemporaryDirectory() as name:
        firmware = to_c(flatbuffer, Path(name) / "firmware")
        board = run_on_board(firmware.directory, "stm32vldiscovery")
        rng = np.random.default_rng(0)
        images = rng.integers(-128, 128, (20, *micro.input_shape)).astype(np.int8)
        outputs = run_on_board(firmware.directory, "host", images).outputs
    different = int(np.count_nonzero(outputs != micro.predict_int8(images)))
    return {
        "sparsity": SPARSITY,
        "board": "stm32vldiscovery",
        "our weights and tables": board.tables,
        "our code": board.flash - board.tables,
        "stripped flatbuffer": len(flatbuffer),
        "ratio of flash without code": round(board.tables / len(flatbuffer), 3),
        "our static RAM and stack": board.memory,
        "arena of TFLite Micro (64-bit)": micro.arena._asdict(),
        "ratio of RAM to the arena": round(board.memory / micro.arena.total, 3),
        "ratio of RAM to its activations": round(board.memory / micro.arena.head, 3),
        "bytes that differ from TFLite Micro": different,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--before", default=BEFORE, help="a commit to compare with")
    arguments = parser.parse_args()
    flatbuffer = (RESULTS / "uno" / "mnist" / "model.tflite").read_bytes()
    shape = read_graph(flatbuffer).shapes[read_graph(flatbuffer).input]
    rng = np.random.default_rng(0)
    images = rng.integers(-128, 128, (arguments.images, *shape)).astype(np.int8)
    dense, sparse = macs(flatbuffer)
    result: dict[str, Any] = {
        "macs": dense,
        "sparse macs": sparse,
        "first version that worked, smallest encoding": FIRST_VERSION,
        "note on the first version": FIRST_VERSION_NOTE,
        "before": {
            "commit": arguments.before,
            "speed": speeds_before(arguments.before, flatbuffer, images),
        },
        "speed": speeds(flatbuffer, images),
        "against TFLite Micro": comparison(pruned(flatbuffer, SPARSITY)),
        "environment": environment(),
    }
    result["times the first version's speed"] = {
        row["board"]: round(FIRST_VERSION[row["board"]] / row["an image"], 2)
        for row in result["speed"]
        if row["encoding"] == "smallest"
    }
    print(result["times the first version's speed"])
    print(result["against TFLite Micro"])
    write_json(RESULTS / "board_speed.json", result)


if __name__ == "__main__":
    main()
