"""What the objectives of TFLite Micro cost a trial of a search, and how exact its RAM is estimated.

    python -m benchmarks.arena

Random networks of the search space for MNIST: seconds for `quantized_error` (quantization and 5,000
validation images on TFLite Micro), for `measured_arena`, and for the estimate "tflm-arena", beside
those of an epoch of training; the estimated arena against the measured one. Results:
benchmarks/results/arena.json.
"""

import argparse
import os
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner import SparseCNN
from keras_sparse.tuner.quantized import quantized_error
from keras_sparse.tuner.training import Training

from benchmarks.record import RESULTS, environment
from keras_sparse import datasets, measure, strip
from keras_sparse.deploy import measured_arena
from keras_sparse.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    data = datasets.load("mnist")
    rows: list[dict[str, Any]] = []
    for number in range(arguments.networks):
        rows.append(one_network(data, (arguments.seed, number)))
        print(rows[-1], flush=True)
        ratios = [row["estimated arena"] / row["arena"] for row in rows]
        seconds = [name for name in rows[0] if name.startswith("CPU seconds")]
        result = {
            "seed": arguments.seed,
            "median": {name: float(np.median([row[name] for row in rows])) for name in seconds},
            "estimated / measured arena": {
                "least": round(min(ratios), 3),
                "median": round(float(np.median(ratios)), 3),
                "most": round(max(ratios), 3),
            },
            "networks": rows,
            "environment": environment(),
        }
        write_json(RESULTS / "arena.json", result)


def one_network(data: Any, seed: tuple[int, int]) -> dict[str, Any]:
    keras.backend.clear_session()
    cnn = SparseCNN(data.input_shape, data.num_classes, pruning="unstructured")
    rng = np.random.default_rng(seed)
    while True:
        configuration = cnn.sample(rng)
        size = measure(cnn.graph(configuration))
        if size.parameters <= 20_000 and size.macs <= 1_000_000:
            break
    model = cnn.network(configuration)
    cnn.compile(model)
    train = data.x_train[:5120], data.y_train[:5120]
    model.fit(*train, batch_size=128, verbose=0)  # traces
    epoch, _ = timed(lambda: model.fit(*train, batch_size=128, verbose=0))
    small = strip(model)
    training = Training(*train, (data.x_val, data.y_val))
    estimating, footprint = timed(lambda: measure(small, working_memory="tflm-arena"))
    measuring, arena = timed(lambda: measured_arena(small))
    quantizing, error = timed(lambda: quantized_error(small, training))
    return {
        "parameters": footprint.parameters,
        "macs": footprint.macs,
        "CPU seconds of an epoch of 55,000 images": round(epoch * 55_000 / 5120, 2),
        "CPU seconds of quantized_error": round(quantizing, 2),
        "CPU seconds of measured_arena": round(measuring, 2),
        "CPU seconds of measure(working_memory='tflm-arena')": round(estimating, 3),
        "quantized error": round(error, 4),
        "arena": int(arena),
        "estimated arena": footprint.working_memory,
    }


def timed(function: Any) -> tuple[float, Any]:
    """Processor seconds of this process and its children, and the result."""
    start = sum(os.times()[:4])
    result = function()
    return sum(os.times()[:4]) - start, result


if __name__ == "__main__":
    main()
