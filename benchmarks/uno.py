"""CNNs on an emulated Arduino Uno: 2 KB of RAM, 32 KB of flash.

    python -m benchmarks.uno_training --run mnist
    python -m benchmarks.uno_training --run mnist-sparse
    python -m benchmarks.uno --run mnist

With --again the C is written anew for the network that is in the results: the same outputs, other
cycles. The names of the trainings before --run mnist-distilled, cifar10-binary and chars4k are in
`benchmarks.uno_training`.

Takes the trained network, makes it int8, compares TFLite Micro, the NumPy twin and the C on this
computer on the whole test set, and runs images of the test set on the Uno itself. The network was
chosen on validation data; the test set is used once, here. The firmware goes to
benchmarks/results/uno/<run>/, the numbers to benchmarks/results/uno/<run>.json.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.board_speed import macs
from benchmarks.distillation import TEMPERATURE, WEIGHT
from benchmarks.record import RESULTS, environment
from benchmarks.uno_training import RUNS
from keras_sparse import datasets
from keras_sparse.deploy import MicroModel, run_on_board, to_c, to_tflite
from keras_sparse.deploy.c import twin
from keras_sparse.deploy.c.integer_graph import read_graph
from keras_sparse.files import write_bytes, write_json

CLOCK = 16_000_000
LIMITS = {"ram": 2048, "flash": 32768, "seconds": 1.0}
LAST = {
    "mnist": ("mnist-sparse",),
    "mnist-distilled": ("mnist-distilled-sparse", "mnist-distilled-int8"),
    "cifar10-binary": ("cifar10-binary-sparse",),
    "chars4k": ("chars4k-sparse",),
}
"""The last training of each run; of two, the better one on validation data is taken."""


VALIDATION = "validation accuracy of the int8 network"


def chosen(
    names: tuple[str, ...], data: datasets.Dataset, checkpoints: Path
) -> tuple[str, bytes, dict[str, float]]:
    """The training whose int8 network is best on validation data, that network, and all of them."""
    flatbuffers, accuracies = {}, {}
    for name in names:
        model = keras.models.load_model(checkpoints / name / "best.keras")
        x = None if RUNS[name].quantized else data.x_train[:500]
        flatbuffers[name] = to_tflite(model, x)
        micro = MicroModel(flatbuffers[name], trusted=True)
        accuracies[name] = micro.evaluate(data.x_val, data.y_val)
    best = max(names, key=accuracies.__getitem__)
    return best, flatbuffers[best], accuracies


def trainings(name: str, checkpoints: Path) -> dict[str, Any]:
    """The settings of all trainings that lead to a network, the last one first."""
    result: dict[str, Any] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        run = RUNS[name]
        state = json.loads((checkpoints / name / "state.json").read_text())
        result[name] = {**run._asdict(), "seed": state.get("seed", 1)}
        waiting += [other for other in (run.parent, run.teacher) if other and other not in result]
    if any(run.get("teacher") for run in result.values()):
        result["distillation"] = {"temperature": TEMPERATURE, "weight of the teacher": WEIGHT}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=LAST, required=True)
    parser.add_argument("--images", type=int, default=200, help="on the Uno itself")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/uno"))
    parser.add_argument(
        "--again", action="store_true", help="today's C of the network in the results"
    )
    arguments = parser.parse_args()
    name = arguments.run
    data = datasets.load(RUNS[LAST[name][0]].dataset)
    folder = RESULTS / "uno" / name
    if arguments.again:
        flatbuffer = (folder / "model.tflite").read_bytes()
        old = json.loads(folder.with_suffix(".json").read_text())
        training, validation = old["training"], old.get(VALIDATION)
    else:
        last, flatbuffer, validation = chosen(LAST[name], data, arguments.checkpoints)
        training = trainings(last, arguments.checkpoints)
    shutil.rmtree(folder, ignore_errors=True)
    firmware = to_c(flatbuffer, folder)
    write_bytes(folder / "model.tflite", flatbuffer)

    micro = MicroModel(flatbuffer, trusted=True)
    images = micro.input.quantized(data.x_test)
    expected = micro.predict_int8(images)
    ours = run_on_board(folder, "host", images).outputs
    reference = twin.run(read_graph(flatbuffer), images)
    board = run_on_board(folder, "uno", images[: arguments.images])
    dense, sparse = macs(flatbuffer)
    result: dict[str, Any] = {
        "dataset": data.name,
        "training": training,
        VALIDATION: validation,
        "test accuracy of the int8 network": float(np.mean(ours.argmax(1) == data.y_test)),
        "test images": len(images),
        "bytes that differ from TFLite Micro": {
            "C on this computer": int(np.count_nonzero(ours != expected)),
            "NumPy twin": int(np.count_nonzero(reference != expected)),
            "C on the Uno": int(np.count_nonzero(board.outputs != expected[: len(board.outputs)])),
        },
        "images on the Uno": len(board.outputs),
        "static RAM": board.ram,
        "deepest stack": board.stack,
        "RAM in all": board.memory,
        "flash in all": board.flash,
        "flash of weights, indices and tables": board.tables,
        "flash of code": board.flash - board.tables,
        "encodings": firmware.encodings,
        "cycles an image": board.cycles,
        "seconds an image at 16 MHz": round(board.cycles / CLOCK, 3),
        "macs": dense,
        "sparse macs": sparse,
        "cycles per sparse mac": round(board.cycles / sparse, 1),
        "limits": LIMITS,
        "arena of TFLite Micro": micro.arena._asdict(),
        "flatbuffer": len(flatbuffer),
        "environment": environment(),
    }
    write_json(folder.with_suffix(".json"), result)
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
