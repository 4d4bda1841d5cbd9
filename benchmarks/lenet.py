"""The published LeNet results of SpVD and BC on MNIST, and magnitude pruning at the same sparsity.

    python -m benchmarks.lenet --run lenet5-spvd

Each run checkpoints every few epochs and goes on from there when started again, to the same result.
The thresholds are chosen on the validation set (5 000 of the 60 000 training images); the test set
is used once, for the final numbers. Results: benchmarks/results/lenet.json.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.magnitude import MagnitudePruning, hold_zeros
from benchmarks.record import RESULTS, environment, write_json
from keras_sparse import KLAnnealing, datasets, sparsity, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.demo import accuracy
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
from keras_sparse.layers.estimators import ESTIMATORS

BATCH = 100


class Run(NamedTuple):
    """One training run.

    Attributes:
        network: Key of `NETWORKS`.
        method: Key of `LAYERS`.
        epochs: The authors trained for 200; a higher learning rate makes fewer do.
        rate: Adam's learning rate at the start; it falls linearly to 0.
        annealing: Epochs without KL term, epochs over which it rises.
        thresholds: Those tried on the validation set, each a pair: of the convolutions and of the
            dense layers.
        within: Of the networks whose validation error is at most so many points above the best,
            the smallest is chosen.
        finetuning: Epochs of training of the weights that are left.
        weight: Final weight γ of the KL term; more than 1 needs fewer epochs to prune.
        published: (test error in %, compression) of the method's paper.
        same_sparsity_as: The run whose sparsity a magnitude-pruned network gets.
    """

    network: str
    method: str
    epochs: int
    rate: float
    annealing: tuple[int, int] = (3, 10)
    weight: float = 1.0
    thresholds: tuple[tuple[float, float], ...] = ((2, 2), (1, 1), (0, 0), (-1, -1))
    within: float = 0.1
    finetuning: int = 10
    published: tuple[float, float] | None = None
    same_sparsity_as: str | None = None


RUNS = {
    "lenet300-spvd": Run("lenet300", "spvd", 150, 2e-3, (5, 15), published=(1.92, 68.0)),
    "lenet5-spvd": Run(
        "lenet5",
        "spvd",
        100,
        3e-3,
        thresholds=((1.5, 1.5), (1, 1), (0.5, 0.5), (0, 0)),
        published=(0.75, 280.0),
    ),
    "lenet5-bc": Run(
        "lenet5",
        "bc",
        100,
        3e-3,
        # The published network gives up more of the accuracy for its size than the others.
        thresholds=((-3, -3), (-5, -3), (-5.5, -3), (-5.5, -4), (-5.75, -3), (-6, -3), (-6, -4)),
        within=0.3,
        published=(1.0, 108.0),
    ),
    "lenet300-magnitude": Run(
        "lenet300", "magnitude", 60, 1e-3, same_sparsity_as="lenet300-spvd", finetuning=0
    ),
    "lenet5-magnitude": Run(
        "lenet5", "magnitude", 40, 1e-3, same_sparsity_as="lenet5-spvd", finetuning=0
    ),
}


def lenet300(conv: Callable[..., Any], dense: Callable[..., Any]) -> keras.Model:
    """LeNet-300-100: 784-300-100-10, 266 200 weights."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            dense(300, activation="relu", name="fc1"),
            dense(100, activation="relu", name="fc2"),
            dense(10, name="logits"),
        ]
    )


def lenet5(conv: Callable[..., Any], dense: Callable[..., Any]) -> keras.Model:
    """LeNet-5-Caffe: 20 and 50 5×5 filters, 800-500-10, 430 500 weights."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            conv(20, 5, activation="relu", name="conv1"),
            keras.layers.MaxPooling2D(2),
            conv(50, 5, activation="relu", name="conv2"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            dense(500, activation="relu", name="fc1"),
            dense(10, name="logits"),
        ]
    )


NETWORKS = {"lenet300": lenet300, "lenet5": lenet5}
LAYERS = {
    "spvd": (SpVDConv2D, SpVDDense),
    "bc": (BCConv2D, BCDense),
    "magnitude": (keras.layers.Conv2D, keras.layers.Dense),
}


def build(run: Run, estimator: str, steps: int) -> keras.Model:
    """The run's network, compiled."""
    arguments = {} if run.method == "magnitude" else {"estimator": estimator}

    def bound(layer: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *a, **k: layer(*a, **arguments, **k)

    model = NETWORKS[run.network](*map(bound, LAYERS[run.method]))
    compile_model(model, run.rate, steps)
    return model


def compile_model(model: keras.Model, rate: float, steps: int) -> None:
    """Adam with a learning rate that falls linearly from `rate` to 0 in `steps`."""
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0)
    model.compile(
        keras.optimizers.Adam(schedule),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


def train(
    model: keras.Model,
    run: Run,
    data: datasets.Dataset,
    callbacks: list[keras.callbacks.Callback],
    folder: Path,
    seed: int,
    every: int,
) -> tuple[keras.Model, dict[str, Any]]:
    """Trains from the last checkpoint in `folder`, or from the start.

    Every epoch is a call of `fit` with its own shuffle, a function of seed and epoch: a run that
    was stopped continues with the same batches.
    """
    state_file = folder / "state.json"
    state: dict[str, Any] = {"epoch": 0, "seconds": 0.0, "log": []}
    if state_file.is_file():
        state = json.loads(state_file.read_text())
        model = keras.models.load_model(folder / state["model"])
    while state["epoch"] < run.epochs:
        epoch, start = state["epoch"], time.monotonic()
        order = np.random.default_rng((seed, epoch)).permutation(len(data.x_train))
        history = model.fit(
            data.x_train[order],
            data.y_train[order],
            batch_size=BATCH,
            epochs=epoch + 1,
            initial_epoch=epoch,
            shuffle=False,
            validation_data=(data.x_val, data.y_val),
            validation_batch_size=1000,
            callbacks=callbacks,
            verbose=0,
        )
        row = {key: round(float(values[-1]), 5) for key, values in history.history.items()}
        state["log"].append(row)
        state["seconds"] += time.monotonic() - start
        state["epoch"] = epoch + 1
        print(f"epoch {epoch + 1}/{run.epochs} {row}", flush=True)
        if (epoch + 1) % every == 0 or epoch + 1 == run.epochs:
            _checkpoint(model, folder, state)
    return model, state


def _checkpoint(model: keras.Model, folder: Path, state: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    old = state.get("model")
    state["model"] = f"epoch{state['epoch']}.keras"
    model.save(folder / state["model"])
    write_json(folder / "state.json", state)
    if old and old != state["model"]:
        (folder / old).unlink(missing_ok=True)


def finetune(model: keras.Model, data: datasets.Dataset, epochs: int, seed: int) -> None:
    """Trains the weights that are left, with Adam from 1e-3 down to 0; zeros stay zero."""
    hold_zeros(model)
    compile_model(model, 1e-3, epochs * (len(data.x_train) // BATCH))
    keras.utils.set_random_seed(seed)
    model.fit(data.x_train, data.y_train, batch_size=BATCH, epochs=epochs, verbose=0)


def choose(
    model: keras.Model, run: Run, data: datasets.Dataset, seed: int
) -> tuple[keras.Model, dict[str, Any], list[dict[str, Any]]]:
    """Strips and fine-tunes at every threshold of the run; picks on the validation set.

    Returns:
        The smallest network within `run.within` points of the best validation error, its row, all
        rows.
    """
    candidates = []
    for pair in run.thresholds:
        for layer in sparse_layers(model):
            layer.threshold = pair["Dense" in type(layer).__name__]
        small = strip(model)
        row: dict[str, Any] = {
            "thresholds (conv, dense)": pair,
            "nonzeros": sparsity(small).total.nonzeros,
        }
        row["val_error_percent"] = error(small, data.x_val, data.y_val)
        if run.finetuning:
            before = strip(model)
            finetune(small, data, run.finetuning, seed)
            row["finetuned_val_error_percent"] = error(small, data.x_val, data.y_val)
        else:
            before = small
        print(row, flush=True)
        candidates.append((before, small, row))
    key = "finetuned_val_error_percent" if run.finetuning else "val_error_percent"
    limit = min(row[key] for *_, row in candidates) + run.within
    good = [c for c in candidates if c[2][key] <= limit + 1e-9]
    before, small, row = min(good, key=lambda c: c[2]["nonzeros"])
    if run.finetuning:
        row["test_error_percent_before_finetuning"] = error(before, data.x_test, data.y_test)
    return small, row, [row for *_, row in candidates]


def error(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Wrong classes in percent."""
    return round(100.0 - 100.0 * accuracy(model, x, y), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=RUNS, required=True)
    parser.add_argument("--epochs", type=int, help="instead of the run's own number")
    parser.add_argument("--estimator", choices=ESTIMATORS, default="auto")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--every", type=int, default=5, help="epochs between checkpoints")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/lenet"))
    parser.add_argument("--restart", action="store_true", help="forget earlier checkpoints")
    arguments = parser.parse_args()
    run = RUNS[arguments.run]
    run = run._replace(epochs=arguments.epochs or run.epochs)
    name = arguments.run if run.method == "magnitude" else f"{arguments.run}-{arguments.estimator}"
    folder = arguments.checkpoints / f"{name}-{run.epochs}-seed{arguments.seed}"
    if arguments.restart:
        shutil.rmtree(folder, ignore_errors=True)

    results_file = RESULTS / "lenet.json"
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    keras.utils.set_random_seed(arguments.seed)
    data = datasets.load("mnist")
    model = build(run, arguments.estimator, run.epochs * (len(data.x_train) // BATCH))
    if run.method == "magnitude":
        reference = f"{run.same_sparsity_as}-{arguments.estimator}"
        if reference not in results:
            raise SystemExit(f"First run: python -m benchmarks.lenet --run {run.same_sparsity_as}")
        target = 1.0 - results[reference]["nonzeros"] / results[reference]["weights"]
        callbacks = [MagnitudePruning(target, begin=run.epochs // 5, end=run.epochs * 3 // 4)]
    else:
        callbacks = [KLAnnealing(len(data.x_train), *run.annealing, weight=run.weight)]
    model, state = train(model, run, data, callbacks, folder, arguments.seed, arguments.every)

    total = sparsity(model).total.weights
    if run.method == "magnitude":
        small, row, rows = model, {"val_error_percent": error(model, data.x_val, data.y_val)}, []
    else:
        small, row, rows = choose(model, run, data, arguments.seed)
    counted = sparsity(small)
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    results[name] = {
        "network": run.network,
        "method": run.method,
        "estimator": None if run.method == "magnitude" else arguments.estimator,
        "epochs": run.epochs,
        "batch": BATCH,
        "seed": arguments.seed,
        "optimizer": f"Adam, {run.rate:g} falling linearly to 0",
        "annealing (zero, rising) epochs": run.annealing,
        "kl_weight": run.weight,
        "examples (train, val, test)": [len(data.x_train), len(data.x_val), len(data.x_test)],
        "published (error %, compression)": run.published,
        "finetuning epochs": run.finetuning,
        **row,
        "test_error_percent": error(small, data.x_test, data.y_test),
        "weights": total,
        "nonzeros": counted.total.nonzeros,
        "compression": round(total / counted.total.nonzeros, 1),
        "layers (weights, nonzeros)": {
            row.name: [row.weights, row.nonzeros] for row in counted.layers
        },
        "architecture": architecture(small),
        "tried on validation": rows,
        "seconds": round(state["seconds"]),
        "environment": environment(),
    }
    write_json(results_file, results)
    print(json.dumps(results[name], indent=1))


def architecture(model: keras.Model) -> list[int]:
    """Widths that carry data: filters of the convolutions, live inputs of the dense layers."""
    widths = []
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            kernel = layer.kernel.numpy()
            is_dense = kernel.ndim == 2
            axes = (1,) if is_dense else (0, 1, 2)
            widths.append(int(np.count_nonzero(np.abs(kernel).sum(axis=axes))))
    return widths


if __name__ == "__main__":
    main()
