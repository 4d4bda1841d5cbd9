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

from benchmarks.magnitude import MagnitudePruning
from benchmarks.narrowing import narrowed
from benchmarks.record import RESULTS, environment
from keras_sparse import KLAnnealing, datasets, sparsity, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.files import write_json
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
from keras_sparse.layers.estimators import AUTOMATIC, ESTIMATORS
from keras_sparse.scoring import accuracy
from keras_sparse.trimming import hold_zeros

BATCH = 100
FINETUNED = 3
"""So many networks are fine-tuned, to choose among."""


class Run(NamedTuple):
    """One training run.

    Attributes:
        network: Key of `NETWORKS`.
        method: Key of `LAYERS`.
        epochs: The authors trained for 200; a higher learning rate makes fewer do.
        rate: Adam's learning rate at the start.
        power: It falls to 0 as (1 − share of the training)^power.
        annealing: Epochs without KL term, epochs over which it rises.
        thresholds: Those tried on the validation set, each a pair: of the convolutions and of the
            dense layers.
        at_least: Compression that a network must have to be chosen.
        within: Of those whose validation error is at most so many points above the best, the
            smallest is chosen.
        finetuning: Epochs of training of the weights that are left, of the three largest networks
            that have the compression; either version may be chosen.
        narrow: Epochs after which dead units are dropped, see `benchmarks.narrowing`.
        dead_above: Threshold for that.
        shift: Every epoch moves each training image by up to so many pixels both ways. The authors
            moved none.
        weight: Final weight γ of the KL term; more than 1 needs fewer epochs to prune.
        published: (test error in %, compression) of the method's paper.
        same_sparsity_as: The run whose sparsity a magnitude-pruned network gets.
    """

    network: str
    method: str
    epochs: int
    rate: float
    power: float = 1.0
    annealing: tuple[int, int] = (3, 10)
    weight: float = 1.0
    thresholds: tuple[tuple[float, float], ...] = ((2, 2), (1, 1), (0, 0), (-1, -1))
    at_least: float = 0.0
    within: float = 0.1
    finetuning: int = 10
    narrow: tuple[int, ...] = ()
    dead_above: float = 3.0
    shift: int = 0
    published: tuple[float, float] | None = None
    same_sparsity_as: str | None = None


RUNS = {
    "lenet300-spvd": Run("lenet300", "spvd", 150, 2e-3, annealing=(5, 15), published=(1.92, 68.0)),
    "lenet5-spvd": Run(
        "lenet5",
        "spvd",
        110,
        3e-3,
        power=2.0,
        thresholds=tuple((t / 4, t / 4) for t in range(12, -5, -1)),
        at_least=280.0,
        within=0.0,
        narrow=(10, 20, 30, 45, 60),
        shift=1,
        published=(0.75, 280.0),
    ),
    "lenet5-bc": Run(
        "lenet5",
        "bc",
        100,
        3e-3,
        thresholds=tuple((c / 4, d) for c in range(-12, -27, -1) for d in (-2, -3, -4)),
        at_least=108.0,
        within=0.0,
        narrow=(25, 40, 55, 70),
        dead_above=-2.0,
        shift=1,
        published=(1.0, 108.0),
    ),
    "lenet300-magnitude": Run(
        "lenet300", "magnitude", 60, 1e-3, same_sparsity_as="lenet300-spvd", finetuning=0
    ),
    "lenet5-magnitude": Run(
        "lenet5", "magnitude", 40, 1e-3, same_sparsity_as="lenet5-spvd", finetuning=0, shift=1
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
    # What "auto" was when these networks were measured; with BC it is no longer the default.
    estimators = ("mirrored", "local") if estimator == AUTOMATIC else (estimator, estimator)

    def bound(layer: Callable[..., Any], name: str) -> Callable[..., Any]:
        arguments = {} if run.method == "magnitude" else {"estimator": name}
        return lambda *a, **k: layer(*a, **arguments, **k)

    model = NETWORKS[run.network](*map(bound, LAYERS[run.method], estimators))
    compile_model(model, run.rate, steps, run.power)
    return model


def compile_model(model: keras.Model, rate: float, steps: int, power: float = 1.0) -> None:
    """Adam with a learning rate that falls from `rate` to 0 in `steps`."""
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0, power)
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
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(data.x_train))
        history = model.fit(
            shifted(data.x_train, run.shift, rng)[order],
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
        if epoch + 1 in run.narrow:
            keras.utils.set_random_seed(seed + epoch + 1)
            for layer in sparse_layers(model):
                layer.threshold = run.dead_above
            model = narrowed(model)
            left = run.epochs - epoch - 1
            rate = run.rate * (left / run.epochs) ** run.power
            compile_model(model, rate, left * steps_of(data), run.power)
            print("live units:", [layer.kernel.shape[-1] for layer in sparse_layers(model)])
        if (epoch + 1) % every == 0 or epoch + 1 == run.epochs:
            _checkpoint(model, folder, state)
    return model, state


def steps_of(data: datasets.Dataset) -> int:
    """Batches of an epoch."""
    return len(data.x_train) // BATCH


def shifted(x: np.ndarray, pixels: int, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by up to `pixels` in both directions, its edge repeated."""
    if not pixels:
        return x
    height, width = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)), mode="edge")
    moved = np.empty_like(x)
    top, left = rng.integers(0, 2 * pixels + 1, (2, len(x)))
    for i in range(2 * pixels + 1):
        for j in range(2 * pixels + 1):
            chosen = (top == i) & (left == j)
            moved[chosen] = padded[chosen, i : i + height, j : j + width]
    return moved


def _checkpoint(model: keras.Model, folder: Path, state: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    old = state.get("model")
    state["model"] = f"epoch{state['epoch']}.keras"
    model.save(folder / state["model"])
    write_json(folder / "state.json", state)
    if old and old != state["model"]:
        (folder / old).unlink(missing_ok=True)


def finetune(model: keras.Model, run: Run, data: datasets.Dataset, seed: int) -> None:
    """Trains the weights that are left, with Adam from 1e-3 down to 0; zeros stay zero."""
    hold_zeros(model)
    compile_model(model, 1e-3, run.finetuning * steps_of(data))
    keras.utils.set_random_seed(seed)
    for epoch in range(run.finetuning):
        x = shifted(data.x_train, run.shift, np.random.default_rng((seed, run.epochs + epoch)))
        model.fit(x, data.y_train, batch_size=BATCH, verbose=0)


def choose(
    model: keras.Model, run: Run, data: datasets.Dataset, seed: int, weights: int
) -> tuple[keras.Model, dict[str, Any], list[dict[str, Any]]]:
    """Strips at every threshold of the run, fine-tunes, picks on the validation set.

    Args:
        model: The trained network.
        run: Its settings.
        data: Of which the test set is used for the chosen network only.
        seed: Of the fine-tuning.
        weights: Of the network before anything was pruned.

    Returns:
        The smallest network within `run.within` points of the best validation error among those
        of enough compression, its row, all rows.
    """
    candidates = []
    for pair in run.thresholds:
        for layer in sparse_layers(model):
            layer.threshold = pair["Dense" in type(layer).__name__]
        small = strip(model)
        row: dict[str, Any] = {
            "thresholds (conv, dense)": pair,
            "nonzeros": sparsity(small).total.nonzeros,
            "finetuned": False,
            "val_error_percent": error(small, data.x_val, data.y_val),
        }
        print(row, flush=True)
        if all(row["nonzeros"] != other["nonzeros"] for _, other in candidates):
            candidates.append((small, row))  # not the same network again
    allowed = [c for c in candidates if weights / c[1]["nonzeros"] >= run.at_least]
    if run.finetuning:
        allowed = sorted(allowed, key=lambda c: -c[1]["nonzeros"])[:FINETUNED]
    for small, row in allowed.copy() if run.finetuning else ():
        tuned = keras.models.clone_model(small)
        tuned.set_weights(small.get_weights())
        finetune(tuned, run, data, seed)
        row = {**row, "finetuned": True, "val_error_percent": error(tuned, data.x_val, data.y_val)}
        print(row, flush=True)
        candidates.append((tuned, row))
        allowed.append((tuned, row))
    limit = min(row["val_error_percent"] for _, row in allowed) + run.within
    good = [c for c in allowed if c[1]["val_error_percent"] <= limit + 1e-9]
    small, row = min(good, key=lambda c: c[1]["nonzeros"])
    return small, row, [row for _, row in candidates]


def error(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Wrong classes in percent."""
    return round(100.0 - 100.0 * accuracy(model, x, y), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=RUNS, required=True)
    parser.add_argument("--epochs", type=int, help="instead of the run's own number")
    parser.add_argument("--estimator", choices=(AUTOMATIC, *ESTIMATORS), default=AUTOMATIC)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--shift", type=int, help="pixels, instead of the run's own number")
    parser.add_argument("--every", type=int, default=5, help="epochs between checkpoints")
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/lenet"))
    parser.add_argument("--restart", action="store_true", help="forget earlier checkpoints")
    arguments = parser.parse_args()
    run = RUNS[arguments.run]
    shift = run.shift if arguments.shift is None else arguments.shift
    run = run._replace(epochs=arguments.epochs or run.epochs, shift=shift)
    name = arguments.run if run.method == "magnitude" else f"{arguments.run}-{arguments.estimator}"
    name += f"-shift{run.shift}" if run.shift else ""
    folder = arguments.checkpoints / f"{name}-{run.epochs}-seed{arguments.seed}"
    if arguments.restart:
        shutil.rmtree(folder, ignore_errors=True)

    results_file = RESULTS / "lenet.json"
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    keras.utils.set_random_seed(arguments.seed)
    data = datasets.load("mnist")
    model = build(run, arguments.estimator, run.epochs * steps_of(data))
    weights = sparsity(model).total.weights
    if run.method == "magnitude":
        reference = f"{run.same_sparsity_as}-{arguments.estimator}"
        reference += f"-shift{run.shift}" if run.shift else ""
        if reference not in results:
            raise SystemExit(f"First run: python -m benchmarks.lenet --run {run.same_sparsity_as}")
        target = 1.0 - results[reference]["nonzeros"] / results[reference]["weights"]
        callbacks = [MagnitudePruning(target, begin=run.epochs // 5, end=run.epochs * 3 // 4)]
    else:
        callbacks = [KLAnnealing(len(data.x_train), *run.annealing, weight=run.weight)]
    model, state = train(model, run, data, callbacks, folder, arguments.seed, arguments.every)

    if run.method == "magnitude":
        small, row, rows = model, {"val_error_percent": error(model, data.x_val, data.y_val)}, []
    else:
        small, row, rows = choose(model, run, data, arguments.seed, weights)
    counted = sparsity(small)
    results = json.loads(results_file.read_text()) if results_file.is_file() else {}
    results[name] = {
        "network": run.network,
        "method": run.method,
        "estimator": None if run.method == "magnitude" else arguments.estimator,
        "epochs": run.epochs,
        "batch": BATCH,
        "seed": arguments.seed,
        "optimizer": f"Adam, {run.rate:g} falling to 0 with power {run.power:g}",
        "annealing (zero, rising) epochs": run.annealing,
        "kl_weight": run.weight,
        "examples (train, val, test)": [len(data.x_train), len(data.x_val), len(data.x_test)],
        "published (error %, compression)": run.published,
        "finetuning epochs": run.finetuning,
        "dead units dropped after epochs": run.narrow,
        "shift (pixels)": run.shift,
        **row,
        "test_error_percent": error(small, data.x_test, data.y_test),
        "weights": weights,
        "nonzeros": counted.total.nonzeros,
        "compression": round(weights / counted.total.nonzeros, 1),
        "layers left (weights, nonzeros)": {
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
