"""LeNet-5 with SpVD and with magnitude pruning, on any of the tables' data sets."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner.project import read_json

from benchmarks import lenet
from benchmarks.magnitude import MagnitudePruning
from benchmarks.record import RESULTS
from benchmarks.tables_places import Places
from benchmarks.tables_settings import SEED
from benchmarks.tables_targets import baselines_of
from keras_sparse import KLAnnealing, datasets, sparsity
from keras_sparse.layers import SpVDConv2D, SpVDDense
from keras_sparse.scoring import accuracy

Record = dict[str, Any]

LENET_EPOCHS = {"cifar10-binary": 30, "chars4k": 150, "chars4k-binary": 150, "kth-tips": 150}
LENET_RATES = {"cifar10-binary": 1e-3}
"""Adam's learning rate at the start where that of MNIST, 3e-3, leaves a network that guesses."""

_CHUNK = 5
"""Epochs between two looks at the time."""

_MORE_WEIGHTS = (1, 4, 16)
"""Times the weights that SpVD leaves, for magnitude pruning."""

_LEARNT = 0.01
"""Above the accuracy of guessing."""


def published_lenet(name: str) -> Record:
    """A run of `benchmarks.lenet`, which has its own record."""
    run = dict((read_json(RESULTS / "lenet.json") or {})[name])
    tried = [
        (row["nonzeros"], row["val_error_percent"]) for row in run.get("tried on validation", ())
    ]
    return {
        "setting": f"benchmarks.lenet, {run['epochs']} epochs",
        "seed": run["seed"],
        "command": run["environment"]["command"],
        "commit": run.get("commit", "before commits were recorded"),
        "val_accuracy": round(1.0 - run["val_error_percent"] / 100, 5),
        "test_accuracy": round(1.0 - run["test_error_percent"] / 100, 5),
        "size": run["nonzeros"],
        "curve (nonzeros, val error %)": tried,
    }


def lenet_for(data: datasets.Dataset, conv: Any, dense: Any) -> keras.Model:
    """LeNet-5 for images of any size."""
    return keras.Sequential(
        [
            keras.Input(data.input_shape),
            conv(20, 5, activation="relu", name="conv1"),
            keras.layers.MaxPooling2D(2),
            conv(50, 5, activation="relu", name="conv2"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            dense(500, activation="relu", name="fc1"),
            dense(data.num_classes, name="logits"),
        ]
    )


def _trained_lenet(
    method: str,
    data: datasets.Dataset,
    places: Places,
    is_over: Callable[[], bool],
    callbacks: list[Any],
    suffix: str = "",
) -> tuple[keras.Model, lenet.Run, int] | None:
    """A LeNet, from its last checkpoint; None if the time is over before it is done."""
    epochs = LENET_EPOCHS[data.name]
    run = lenet.RUNS["lenet5-spvd"]._replace(
        method=method, epochs=epochs, at_least=0.0, within=0.5, shift=1, narrow=()
    )
    run = run._replace(rate=LENET_RATES.get(data.name, run.rate))
    layers = (
        (SpVDConv2D, SpVDDense) if method == "spvd" else (keras.layers.Conv2D, keras.layers.Dense)
    )
    keras.utils.set_random_seed(SEED)
    model = lenet_for(data, *layers)
    weights = sparsity(model).total.weights
    lenet.compile_model(model, run.rate, epochs * max(1, lenet.steps_of(data)), run.power)
    folder = places.runs / "lenet" / f"{data.name}-{method}{suffix}"
    for stop in range(_CHUNK, epochs + 1, _CHUNK):
        if is_over():
            return None
        part = run._replace(epochs=stop)
        model, _ = lenet.train(model, part, data, callbacks, folder, SEED, _CHUNK)
    return model, run, weights


def has_learnt(model: keras.Model, data: datasets.Dataset) -> bool:
    """Whether a network is better than naming the most frequent class."""
    guess = float(np.bincount(data.y_val).max() / len(data.y_val))
    return float(accuracy(model, data.x_val, data.y_val)) > guess + _LEARNT


def lenet_spvd(
    data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> Record | None:
    """LeNet-5 with SpVD layers; thresholds chosen on the validation images."""
    zero, rising = LENET_EPOCHS[data.name] // 10, LENET_EPOCHS[data.name] // 4
    annealing = KLAnnealing(len(data.x_train), zero, rising)
    trained = _trained_lenet("spvd", data, places, is_over, [annealing])
    if trained is None:
        return None
    model, run, weights = trained
    if not has_learnt(model, data):
        raise ValueError(
            f"A network that guesses is no baseline: lower the rate of {data.name} in LENET_RATES. "
            f"Received: {run.rate}"
        )
    small, row, rows = lenet.choose(model, run, data, SEED, weights)
    return {
        "setting": f"{run.epochs} epochs",
        "val_accuracy": round(1.0 - row["val_error_percent"] / 100, 5),
        "test_accuracy": round(float(accuracy(small, data.x_test, data.y_test)), 5),
        "size": row["nonzeros"],
        "sparsity": 1.0 - row["nonzeros"] / weights,
        "curve (nonzeros, val error %)": [(r["nonzeros"], r["val_error_percent"]) for r in rows],
    }


def lenet_magnitude(
    data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> Record | None:
    """LeNet-5 pruned by magnitude to the sparsity that SpVD reached.

    So few weights can be spread such that nothing of the image reaches the output, and what is left
    guesses. Then it may keep more of them: the fewest of `_MORE_WEIGHTS` times that learn.
    """
    left = 1.0 - baselines_of(data.name, places)["LeNet + SpVD"]["sparsity"]
    epochs = LENET_EPOCHS[data.name]
    for more in _MORE_WEIGHTS:
        share = max(0.0, 1.0 - left * more)
        pruning = MagnitudePruning(share, begin=epochs // 5, end=epochs * 3 // 4)
        suffix = f"-{more}" if more > 1 else ""
        trained = _trained_lenet("magnitude", data, places, is_over, [pruning], suffix)
        if trained is None:
            return None
        model = trained[0]
        if has_learnt(model, data):
            break
    fewer = f", {more} times SpVD's weights: with fewer it guesses" if more > 1 else ""
    return {
        "setting": f"{epochs} epochs{fewer}",
        "val_accuracy": round(float(accuracy(model, data.x_val, data.y_val)), 5),
        "test_accuracy": round(float(accuracy(model, data.x_test, data.y_test)), 5),
        "size": sparsity(model).total.nonzeros,
    }
