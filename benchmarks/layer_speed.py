"""What an epoch with sparse layers costs against the same network of plain Keras layers.

    python -m benchmarks.layer_speed

Ratios within one run: in every round each variant trains one epoch right after one of the plain
network and is compared with that; the median over the rounds is reported. `fresh` is
the straightforward implementation, a new normal for every activation. With one thread, the default,
the ratio of processor times is that of a quiet machine. Results:
benchmarks/results/layer_speed.json.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import benchmarks.fresh  # noqa: F401  (registers the estimator)
from benchmarks.lenet import lenet5
from benchmarks.record import RESULTS, environment, use_threads
from keras_sparse.files import write_json
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense

L = keras.layers
BATCH = 128


def small(conv: Callable[..., Any], dense: Callable[..., Any]) -> keras.Model:
    """A network of the size that fits microcontrollers, 5 thousand weights, on 28×28 images."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            L.MaxPooling2D(2),
            conv(16, 3, activation="relu"),
            conv(16, 3, activation="relu"),
            L.MaxPooling2D(2),
            L.Flatten(),
            dense(32, activation="relu"),
            dense(10),
        ]
    )


def _bound(layer: Callable[..., Any], estimator: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: layer(*args, estimator=estimator, **kwargs)


VARIANTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "plain": (L.Conv2D, L.Dense),
    **{
        f"{name} {estimator}": (_bound(conv, estimator), _bound(dense, estimator))
        for name, conv, dense in (("SpVD", SpVDConv2D, SpVDDense), ("BC", BCConv2D, BCDense))
        for estimator in ("auto", "local", "mirrored")
    },
    "SpVD fresh": (_bound(SpVDConv2D, "fresh"), _bound(SpVDDense, "fresh")),
}


def measure(
    network: Callable[..., keras.Model], jit_compile: bool, steps: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Seconds per step and ratio to plain of each variant, medians over the rounds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps * BATCH, 28, 28, 1)).astype("float32")
    y = rng.integers(0, 10, len(x)).astype("int32")
    models, first = {}, {}
    for name, layers in VARIANTS.items():
        keras.utils.set_random_seed(1)
        model = network(*layers)
        model.compile(
            "adam",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        for layer in model.layers:
            if hasattr(layer, "kl_weight"):
                layer.kl_weight = 1e-5
        start = time.perf_counter()
        model.fit(x[:BATCH], y[:BATCH], batch_size=BATCH, verbose=0)
        first[name] = time.perf_counter() - start
        models[name] = model

    def epoch(model: keras.Model) -> np.ndarray:
        start = np.array([time.perf_counter(), time.process_time()])
        model.fit(x, y, batch_size=BATCH, verbose=0)
        return (np.array([time.perf_counter(), time.process_time()]) - start) / steps

    # By the clock and of the processor, shape (rounds, 2); plain ones right before each variant.
    pairs = {
        name: [(epoch(models["plain"]), epoch(models[name])) for _ in range(rounds)]
        for name in models
    }
    result = {}
    for name, times in pairs.items():
        plain, variant = (np.array(part) for part in zip(*times, strict=True))
        ratio, ratio_of_cpu = np.median(variant / plain, axis=0)
        result[name] = {
            "ms_per_step": round(1e3 * float(np.median(variant[:, 0])), 2),
            "ratio": round(float(ratio), 2),
            "ratio_of_minima": round(float(variant[:, 0].min() / plain[:, 0].min()), 2),
            "ratio_of_cpu_time": round(float(ratio_of_cpu), 2),
            "first_step_seconds": round(first[name], 1),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150, help="steps of an epoch of `small`")
    arguments = parser.parse_args()
    use_threads(arguments.threads)
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {
        "rounds": arguments.rounds,
        "batch": BATCH,
        "threads": arguments.threads,
    }
    for network in (small, lenet5):
        steps = arguments.steps if network is small else arguments.steps // 4
        for jit_compile in (False, True):
            if jit_compile and network is lenet5:
                continue  # fresh noise alone would take minutes
            mode = f"{network.__name__} {'XLA' if jit_compile else 'graph'}"
            results[mode] = measure(network, jit_compile, steps, arguments.rounds)
            print(mode)
            for name, row in results[mode].items():
                print(f"  {name:<15}", "  ".join(f"{key} {value}" for key, value in row.items()))
            write_json(RESULTS / "layer_speed.json", {**results, "environment": environment()})


if __name__ == "__main__":
    main()
