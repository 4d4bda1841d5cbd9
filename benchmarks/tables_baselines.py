"""What the found networks are compared with on the same split: classic methods, LeNet, by hand.

Settings of every method are chosen on the validation images; the test images are used once, when it
is done. Each method is written when it is done, so that a run that was stopped goes on with the
next one. Results: benchmarks/results/tables/baselines/<data>.json.
"""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.project import read_json
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from benchmarks import lenet
from benchmarks.magnitude import MagnitudePruning
from benchmarks.record import RESULTS, commit, environment
from benchmarks.tables_front import record_of
from benchmarks.tables_rows import baselines_of
from benchmarks.tables_search import Places
from benchmarks.tables_settings import (
    SEED,
    Final,
    Network,
    Settings,
    configuration_of,
    settings_of,
    strided,
)
from benchmarks.tables_training import targets_of, train
from keras_sparse import KLAnnealing, datasets, sparsity
from keras_sparse.deploy import MicroModel
from keras_sparse.files import write_json
from keras_sparse.layers import SpVDConv2D, SpVDDense
from keras_sparse.scoring import accuracy

_SVM_EXAMPLES = {"mnist": 20_000, "cifar10-binary": 8_000}
"""A kernel machine's time grows with the square of the examples, so the large sets are cut."""

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

_LENET_EPOCHS = {"cifar10-binary": 40, "chars4k": 150, "chars4k-binary": 150, "kth-tips": 150}
_CHUNK = 5
"""Epochs between two looks at the time."""

Record = dict[str, Any]


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
    if data.name in _LENET_EPOCHS:
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
    best, best_score, best_rounds = None, -1.0, 0
    for rounds in (50, 100):
        model = HistGradientBoostingClassifier(
            max_iter=rounds, early_stopping=False, random_state=SEED
        ).fit(_flat(data.x_train), data.y_train)
        score = float(model.score(_flat(data.x_val), data.y_val))
        if score > best_score:
            best, best_score, best_rounds = model, score, rounds
    assert best is not None  # noqa: S101
    nodes = np.concatenate([tree.nodes["is_leaf"] for row in best._predictors for tree in row])
    return {
        "setting": f"{best_rounds} rounds",
        "val_accuracy": round(best_score, 5),
        "test_accuracy": round(float(best.score(_flat(data.x_test), data.y_test)), 5),
        "size": int(np.where(nodes, 1, 2).sum()),
    }


def hand_made(
    network: Network, settings: Settings, data: datasets.Dataset, places: Places, name: str
) -> Record:
    """A network made by hand, trained as members of the front are."""
    keras.utils.set_random_seed(SEED)
    hypermodel = SparseCNN(data.input_shape, data.num_classes, pruning=None, seed=SEED)
    model = hypermodel.network(configuration_of(network, settings, hypermodel))
    final: Final = settings.final
    targets = targets_of(data, final, places.runs / "teachers", SEED)
    epochs = final.sparse_epochs + final.epochs
    train(model, data, targets, final, epochs=epochs, rate=settings.rate, seed=SEED)
    path = places.results / "baselines" / f"{data.name}-by-hand-{name}"
    record = record_of(model, data, final, SEED, path)
    micro = MicroModel(path.with_name(f"{path.name}.tflite").read_bytes(), trusted=True)
    record["test_accuracy"] = round(float(micro.evaluate(data.x_test, data.y_test)), 5)
    record["size"] = record["sizes"]["nonzeros"]
    return {**record, "val_accuracy": record["val_accuracy_int8"], "setting": "in int8"}


def published_lenet(name: str) -> Record:
    """A run of `benchmarks.lenet`, which has its own record."""
    run = dict((read_json(RESULTS / "lenet.json") or {})[name])
    tried = [(row["nonzeros"], row["val_error_percent"]) for row in run["tried on validation"]]
    return {
        "setting": f"benchmarks.lenet, {run['epochs']} epochs",
        "seed": run["seed"],
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
) -> tuple[keras.Model, lenet.Run, int] | None:
    """A LeNet, from its last checkpoint; None if the time is over before it is done."""
    epochs = _LENET_EPOCHS[data.name]
    run = lenet.RUNS["lenet5-spvd"]._replace(
        method=method, epochs=epochs, at_least=0.0, within=0.5, shift=1, narrow=()
    )
    layers = (
        (SpVDConv2D, SpVDDense) if method == "spvd" else (keras.layers.Conv2D, keras.layers.Dense)
    )
    keras.utils.set_random_seed(SEED)
    model = lenet_for(data, *layers)
    weights = sparsity(model).total.weights
    lenet.compile_model(model, run.rate, epochs * max(1, lenet.steps_of(data)), run.power)
    folder = places.runs / "lenet" / f"{data.name}-{method}"
    for stop in range(_CHUNK, epochs + 1, _CHUNK):
        if is_over():
            return None
        part = run._replace(epochs=stop)
        model, _ = lenet.train(model, part, data, callbacks, folder, SEED, _CHUNK)
    return model, run, weights


def lenet_spvd(
    data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> Record | None:
    """LeNet-5 with SpVD layers; thresholds chosen on the validation images."""
    zero, rising = _LENET_EPOCHS[data.name] // 10, _LENET_EPOCHS[data.name] // 4
    annealing = KLAnnealing(len(data.x_train), zero, rising)
    trained = _trained_lenet("spvd", data, places, is_over, [annealing])
    if trained is None:
        return None
    model, run, weights = trained
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
    """LeNet-5 pruned by magnitude to the sparsity that SpVD reached."""
    share = baselines_of(data.name, places)["LeNet + SpVD"]["sparsity"]
    epochs = _LENET_EPOCHS[data.name]
    pruning = MagnitudePruning(share, begin=epochs // 5, end=epochs * 3 // 4)
    trained = _trained_lenet("magnitude", data, places, is_over, [pruning])
    if trained is None:
        return None
    model = trained[0]
    return {
        "setting": f"{epochs} epochs",
        "val_accuracy": round(float(accuracy(model, data.x_val, data.y_val)), 5),
        "test_accuracy": round(float(accuracy(model, data.x_test, data.y_test)), 5),
        "size": sparsity(model).total.nonzeros,
    }
