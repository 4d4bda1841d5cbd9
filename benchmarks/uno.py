"""CNNs on an emulated Arduino Uno: 2 KB of RAM, 32 KB of flash.

    python -m benchmarks.uno_training --run mnist
    python -m benchmarks.uno_training --run mnist-sparse
    python -m benchmarks.uno --run mnist

Takes the trained network, makes it int8, compares TFLite Micro, the NumPy twin and the C on this
computer on the whole test set, and runs images of the test set on the Uno itself. The network was
chosen on validation data; the test set is used once, here. The firmware goes to
benchmarks/results/uno/<run>/, the numbers to benchmarks/results/uno/<run>.json.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.record import RESULTS, environment
from benchmarks.uno_training import RUNS
from keras_sparse import datasets
from keras_sparse.deploy import MicroModel, run_on_board, to_c, to_tflite
from keras_sparse.deploy.c import twin
from keras_sparse.deploy.c.integer_graph import read_graph
from keras_sparse.files import write_bytes, write_json
from keras_sparse.footprint import measure

CLOCK = 16_000_000
LIMITS = {"ram": 2048, "flash": 32768, "seconds": 1.0}
NAMES = ("mnist", "cifar10-binary")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=NAMES, required=True)
    parser.add_argument("--images", type=int, default=200, help="on the Uno itself")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/uno"))
    arguments = parser.parse_args()
    name = arguments.run
    run = RUNS[f"{name}-sparse"]
    data = datasets.load(run.dataset)
    model = keras.models.load_model(arguments.checkpoints / f"{name}-sparse" / "best.keras")
    flatbuffer = to_tflite(model, data.x_train[:500])
    folder = RESULTS / "uno" / name
    shutil.rmtree(folder, ignore_errors=True)
    firmware = to_c(flatbuffer, folder)
    write_bytes(folder / "model.tflite", flatbuffer)

    micro = MicroModel(flatbuffer, trusted=True)
    validation = micro.evaluate(data.x_val, data.y_val)
    images = micro.input.quantized(data.x_test)
    expected = micro.predict_int8(images)
    ours = run_on_board(folder, "host", images).outputs
    reference = twin.run(read_graph(flatbuffer), images)
    board = run_on_board(folder, "uno", images[: arguments.images])
    footprint = measure(model)
    result: dict[str, Any] = {
        "dataset": run.dataset,
        "training": {"first": RUNS[name]._asdict(), "sparse": run._asdict(), "seed": 1},
        "validation accuracy of the int8 network": validation,
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
        "macs": footprint.macs,
        "sparse macs": footprint.sparse_macs,
        "cycles per sparse mac": round(board.cycles / footprint.sparse_macs, 1),
        "limits": LIMITS,
        "arena of TFLite Micro": micro.arena._asdict(),
        "flatbuffer": len(flatbuffer),
        "environment": environment(),
    }
    write_json(RESULTS / "uno" / f"{name}.json", result)
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
