"""What the found networks are compared with on the same split: classic methods, LeNet, by hand.

Settings of every method are chosen on the validation images; the test images are used once, when it
is done. Each method is written when it is done, so that a run that was stopped goes on with the
next one. Results: benchmarks/results/tables/baselines/<data>.json.
"""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from benchmarks.record import commit, environment
from benchmarks.tables_front import record_of
from benchmarks.tables_lenet import (
    LENET_EPOCHS,
    Record,
    lenet_magnitude,
    lenet_spvd,
    published_lenet,
)
from benchmarks.tables_networks import Network, configuration_of, strided
from benchmarks.tables_places import Places
from benchmarks.tables_settings import SEED, Final, Settings, settings_of
from benchmarks.tables_targets import baselines_of
from benchmarks.tables_teacher import targets_of
from benchmarks.tables_training import train
from keras_sparse import datasets
from keras_sparse.deploy import MicroModel
from keras_sparse.files import write_json

_SVM_EXAMPLES = {"mnist": 20_000, "cifar10-binary": 8_000}
"""A kernel machine's time grows with the square of the examples, so the large sets are cut."""

_ROUNDS = 100
"""Of gradient boosting, at most."""

BY_HAND = {
    "mnist": {
        "4-8-12": strided(4, 8, 12),
        "4-6-8": strided(4, 6, 8),
        "8-24-40": strided(8, 24, 40),
    },
    "cifar10-binary": {"6-6-8": strided(6, 6, 8, down=2), "12-24-32": strided(12, 24, 32)},
    "chars4k": {"8-16-24": strided(8, 16, 24)},
    "chars4k-binary": {"4-4-4": strided(4, 4, 4)},
    "kth-tips": {"6-12-16": strided(6, 12, 16, down=2)},
    "digits": {"4": Network((((4, 3, 1),),), (2,))},
}
"""Strided 3×3, 3×3, pooling, 3×3, dense, trained as members of the front are."""


def run_baselines(data: datasets.Dataset, places: Places, is_over: Callable[[], bool]) -> bool:
    """Runs what has not been run; returns whether it came to the end."""
    methods: dict[str, Callable[[], Record | None]] = {
        "kNN": lambda: nearest(data),
        "RBF-SVM": lambda: kernel_machine(data),
        "gradient-boosted trees": lambda: boosted_trees(data),
    }
    settings = settings_of(data.name, 2)
    for name, network in BY_HAND.get(data.name, {}).items():
        methods[f"by hand {name}"] = _bound(hand_made, network, settings, data, places, name)
    if data.name in LENET_EPOCHS:
        methods["LeNet + SpVD"] = lambda: lenet_spvd(data, places, is_over)
        methods["LeNet + magnitude"] = lambda: lenet_magnitude(data, places, is_over)
    if data.name == "mnist":
        methods["LeNet + SpVD"] = lambda: published_lenet("lenet5-spvd-auto-shift1")
        methods["LeNet + magnitude"] = lambda: published_lenet("lenet5-magnitude-shift1")
    for name, method in methods.items():
        known = baselines_of(data.name, places)
        if name in known:
            continue
        if is_over():
            return False
        start = time.process_time()
        record = method()
        if record is None:  # stopped half-way
            return False
        record = {"seed": SEED, "command": environment()["command"], "commit": commit(), **record}
        record["cpu_seconds"] = round(time.process_time() - start, 1)
        write_json(places.results / "baselines" / f"{data.name}.json", {**known, name: record})
        print(f"{name}: {record['test_accuracy']:.2%}, {record['size']:,.0f} values", flush=True)
    return True


def _bound(function: Callable[..., Record], *arguments: Any) -> Callable[[], Record]:
    return lambda: function(*arguments)


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)


def nearest(data: datasets.Dataset) -> Record:
    """K nearest neighbours by Euclidean distance; it stores all training images."""
    x = _flat(data.x_train)
    scores = {}
    for k in (1, 3, 5):
        model = KNeighborsClassifier(k, algorithm="brute").fit(x, data.y_train)
        scores[k] = model.score(_flat(data.x_val), data.y_val)
    k = max(scores, key=lambda k: scores[k])
    model = KNeighborsClassifier(k, algorithm="brute").fit(x, data.y_train)
    return {
        "setting": f"k = {k}",
        "val_accuracy": round(scores[k], 5),
        "test_accuracy": round(model.score(_flat(data.x_test), data.y_test), 5),
        "size": x.size + len(x),
    }


def kernel_machine(data: datasets.Dataset) -> Record:
    """A support vector machine with a Gaussian kernel; it stores its support vectors."""
    count = _SVM_EXAMPLES.get(data.name, len(data.x_train))
    chosen = np.random.default_rng(SEED).permutation(len(data.x_train))[:count]
    x, y = _flat(data.x_train[chosen]), data.y_train[chosen]
    best, best_score, best_c = None, -1.0, 0.0
    for c in (1.0, 10.0):
        model = SVC(C=c, gamma="scale", cache_size=500).fit(x, y)
        score = float(model.score(_flat(data.x_val), data.y_val))
        if score > best_score:
            best, best_score, best_c = model, score, c
    assert best is not None  # noqa: S101  (scores are not negative)
    return {
        "setting": f"C = {best_c:g}, {len(x)} training images",
        "val_accuracy": round(best_score, 5),
        "test_accuracy": round(float(best.score(_flat(data.x_test), data.y_test)), 5),
        "size": int(best.support_vectors_.size + best.dual_coef_.size + best.intercept_.size),
    }


def boosted_trees(data: datasets.Dataset) -> Record:
    """Gradient-boosted trees; a split stores a feature and a threshold, a leaf a value."""
    model = HistGradientBoostingClassifier(
        max_iter=_ROUNDS, early_stopping=False, random_state=SEED
    ).fit(_flat(data.x_train), data.y_train)
    scores = [
        float(np.mean(answers == data.y_val)) for answers in model.staged_predict(_flat(data.x_val))
    ]
    rounds = int(np.argmax(scores)) + 1
    staged = islice(model.staged_predict(_flat(data.x_test)), rounds - 1, rounds)
    nodes = [tree.nodes["is_leaf"] for row in model._predictors[:rounds] for tree in row]
    return {
        "setting": f"{rounds} of {_ROUNDS} rounds",
        "val_accuracy": round(scores[rounds - 1], 5),
        "test_accuracy": round(float(np.mean(next(staged) == data.y_test)), 5),
        "size": int(np.where(np.concatenate(nodes), 1, 2).sum()),
    }


def hand_made(
    network: Network, settings: Settings, data: datasets.Dataset, places: Places, name: str
) -> Record:
    """A network made by hand, trained as members of the front are."""
    keras.utils.set_random_seed(SEED)
    hypermodel = SparseCNN(data.input_shape, data.num_classes, pruning=None, seed=SEED)
    model = hypermodel.network(configuration_of(network, hypermodel))
    final: Final = settings.final
    targets = targets_of(data, final, places.runs / "teachers", SEED)
    train(model, data, targets, final, epochs=final.epochs, rate=final.rate, seed=SEED)
    path = places.results / "baselines" / f"{data.name}-by-hand-{name}"
    record = record_of(model, data, final, SEED, path)
    micro = MicroModel(path.with_name(f"{path.name}.tflite").read_bytes(), trusted=True)
    record["test_accuracy"] = round(float(micro.evaluate(data.x_test, data.y_test)), 5)
    record["size"] = record["sizes"]["nonzeros"]
    return {**record, "val_accuracy": record["val_accuracy_int8"], "setting": "in int8"}
