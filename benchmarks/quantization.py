"""Native quantization-aware training, tfmot and post-training quantization on TFLite Micro.

    python -m benchmarks.quantization

Twenty random networks of the search space that have learned something with half of their weights
pruned by magnitude: ten of 500 to 5,000 parameters on MNIST with every method, five each on
CIFAR10-binary and Chars4k with the native engine and post-training quantization. Accuracy is that
of the test set, on TFLite Micro, int8 input to int8 output; epochs are chosen on validation data. A
run that was stopped goes on with the next network. Results: benchmarks/results/quantization.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras_sparse.tuner import SparseCNN
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from benchmarks.magnitude import MagnitudePruning
from benchmarks.record import RESULTS, environment
from keras_sparse import datasets, measure
from keras_sparse.deploy import MicroModel, quantize
from keras_sparse.deploy.compressing import compressed
from keras_sparse.deploy.converting import converted
from keras_sparse.deploy.flatbuffer import kernels, shrunk
from keras_sparse.deploy.node_reading import read_nodes
from keras_sparse.files import write_json

# Number of networks, parameters, most multiply-accumulates, epochs of the float training, least
# validation accuracy of a network that has learned something.
DATA: dict[str, tuple[int, tuple[int, int], int, int, float]] = {
    "mnist": (10, (500, 5000), 300_000, 8, 0.9),
    "cifar10-binary": (5, (1000, 20_000), 300_000, 6, 0.65),
    "chars4k": (5, (2000, 20_000), 400_000, 40, 0.3),
}
RANGES: dict[str, Any] = {"num-filters": (4, 24), "num-conv-layers": (1, 2)}
SPARSITY = 0.5
EXAMPLES = 12_000  # of the training set; more are left out
QAT_EPOCHS = {"mnist": 2, "cifar10-binary": 2, "chars4k": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    path = RESULTS / "quantization.json"
    rows = json.loads(path.read_text())["networks"] if path.exists() else []
    for name, (count, *_) in DATA.items():
        data = datasets.load(name)
        data = data._replace(x_train=data.x_train[:EXAMPLES], y_train=data.y_train[:EXAMPLES])
        for number in range(count):
            if not any(row["network"] == f"{name}-{number}" for row in rows):
                rows.append(one_network(name, data, number, arguments.seed))
                print(json.dumps(rows[-1]), flush=True)
                save(path, rows, arguments.seed)
    save(path, rows, arguments.seed)


def save(path: Path, rows: list[dict[str, Any]], seed: int) -> None:
    settings = {
        "seed": seed,
        "sparsity": SPARSITY,
        "most training examples": EXAMPLES,
        "quantization epochs": QAT_EPOCHS,
        "data": DATA,
        "ranges": RANGES,
    }
    content = {"settings": settings, "summary": summary(rows), "networks": rows}
    write_json(path, {**content, "environment": environment()})


def one_network(name: str, data: Any, number: int, seed: int) -> dict[str, Any]:
    keras.backend.clear_session()
    model, seconds = trained(name, data, number, seed)
    network = read_nodes(model, "benchmark")
    accuracy = accuracy_of(model, data.x_test, data.y_test)
    footprint = measure(model)
    row: dict[str, Any] = {
        "network": f"{name}-{number}",
        "operations": " ".join(node.kind for node in network.nodes),
        "parameters": footprint.parameters,
        "nonzeros": footprint.nonzeros,
        "float training seconds": round(seconds, 1),
        "float accuracy": round(accuracy, 4),
    }
    options = {
        "epochs": QAT_EPOCHS[name],
        "validation_data": (data.x_val, data.y_val),
        "seed": seed,
    }
    train = data.x_train, data.y_train
    methods: dict[str, Callable[[], Any]] = {
        "native": lambda: quantize(model, *train, **options),
        "post-training": lambda: quantize(model, data.x_train, epochs=0),
    }
    if name == "mnist":
        methods["tfmot"] = lambda: quantize(model, *train, engine="tfmot", **options)
    for method, run in methods.items():
        start = time.perf_counter()
        quantized = run()
        middle = time.perf_counter()
        flatbuffer, before = converted(quantized)
        end = time.perf_counter()
        row[method] = {
            **on_device(flatbuffer, network, data, quantized),
            "bytes before stripping": before,
            "seconds": round(middle - start, 1),
            "conversion seconds": round(end - middle, 1),
        }
        if method == "native":
            small = MicroModel(compressed(flatbuffer), trusted=True)
            row["native, compressed"] = {
                "bytes": len(small.flatbuffer),
                "arena": small.arena._asdict(),
            }
    if name == "mnist":
        start = time.perf_counter()
        flatbuffer = tensorflow_converted(model, data.x_train[:500])
        seconds = round(time.perf_counter() - start, 1)
        row["post-training (TensorFlow)"] = {
            **on_device(flatbuffer, network, data),
            "seconds": seconds,
        }
    return row


def trained(name: str, data: Any, number: int, seed: int) -> tuple[keras.Model, float]:
    """A random network after training with magnitude pruning, and the seconds that took.

    Half of all random networks of this size learn next to nothing when half of their weights are
    pruned; another one is drawn then, before anything is quantized.
    """
    _, (least, most), macs, _, needed = DATA[name]
    cnn = SparseCNN(data.input_shape, data.num_classes, pruning=None, ranges=RANGES)
    rng = np.random.default_rng((seed, number))
    while True:
        configuration = cnn.sample(rng)
        size = measure(cnn.graph(configuration))
        if least <= size.parameters <= most and macs / 20 <= size.macs <= macs:
            start = time.perf_counter()
            model = trained_network(name, cnn.network(configuration, seed=seed), data, seed)
            if accuracy_of(model, data.x_val, data.y_val) >= needed:
                return model, time.perf_counter() - start


def trained_network(name: str, model: keras.Model, data: Any, seed: int) -> keras.Model:
    epochs = DATA[name][3]
    keras.utils.set_random_seed(seed)
    steps = epochs * -(-len(data.x_train) // 128)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(5e-3, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    pruning = MagnitudePruning(SPARSITY, epochs // 3, epochs // 2, every=30)
    model.fit(data.x_train, data.y_train, 128, epochs=epochs, callbacks=[pruning], verbose=0)
    return model


def accuracy_of(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    outputs = model.predict(x, batch_size=500, verbose=0)
    return float(np.mean(outputs.argmax(-1) == y))


def on_device(
    flatbuffer: bytes, network: Any, data: Any, quantized: keras.Model | None = None
) -> dict[str, Any]:
    micro = MicroModel(flatbuffer, trusted=True)
    q = micro.predict_int8(micro.input.quantized(data.x_test))
    lost, zeros = lost_zeros(network, flatbuffer)
    result: dict[str, Any] = {
        "accuracy": round(float(np.mean(q.argmax(-1) == data.y_test)), 4),
        "zeros": zeros,
        "zeros lost": lost,
        "bytes": len(flatbuffer),
        "arena": micro.arena._asdict(),
    }
    if quantized is not None:
        outputs = quantized.predict(data.x_test, batch_size=500, verbose=0)
        steps = np.abs(np.round(outputs / micro.output.scale) + micro.output.zero_point - q)
        result["fake-quant accuracy"] = round(float(np.mean(outputs.argmax(-1) == data.y_test)), 4)
        result["largest difference in steps"] = int(steps.max())
        result["share of outputs equal"] = round(float(np.mean(steps == 0)), 4)
        result["share of outputs within one step"] = round(float(np.mean(steps <= 1)), 6)
    return result


def lost_zeros(network: Any, flatbuffer: bytes) -> tuple[int, int]:
    """Kernel weights that are zero in the float model but not in int8, and all that are zero."""
    stored = [kernel for _, kernel in kernels(flatbuffer)]
    lost = zeros = 0
    for node in network.nodes:
        if node.kernel is not None:
            is_zero = in_stored_order(node) == 0
            zeros += int(is_zero.sum())
            same = [k for k in stored if k.shape == is_zero.shape]
            lost += min(int(np.count_nonzero(kernel[is_zero])) for kernel in same)
    return lost, zeros


def in_stored_order(node: Any) -> np.ndarray:
    """A kernel of Keras as flatbuffers have it: outputs first."""
    if node.kind == "depthwise":
        return node.kernel.reshape(1, *node.kernel.shape[:2], -1)
    return np.moveaxis(node.kernel, -1, 0)


def tensorflow_converted(model: keras.Model, x: np.ndarray) -> bytes:
    """TensorFlow's own post-training quantization."""
    function = tf.function(lambda image: model(image, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec((1, *x.shape[1:]), tf.float32))
    frozen = convert_variables_to_constants_v2(concrete)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in x)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return shrunk(converter.convert())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each data set and method the points lost against float, zeros lost and seconds."""
    result: dict[str, Any] = {}
    for name in DATA:
        chosen = [row for row in rows if row["network"].rpartition("-")[0] == name]
        first = chosen[0] if chosen else {}
        methods = [m for m, v in first.items() if isinstance(v, dict) and "accuracy" in v]
        for method in methods:
            lost = [100 * (row["float accuracy"] - row[method]["accuracy"]) for row in chosen]
            result[f"{name}, {method}"] = {
                "networks": len(chosen),
                "mean points lost": round(float(np.mean(lost)), 3),
                "most points lost": round(float(np.max(lost)), 2),
                "zeros lost": sum(row[method]["zeros lost"] for row in chosen),
                "mean seconds": round(float(np.mean([r[method]["seconds"] for r in chosen])), 1),
            }
    return result


if __name__ == "__main__":
    main()
