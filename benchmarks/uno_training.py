"""Trains the sparse networks that `benchmarks.uno` puts on an Arduino Uno.

    python -m benchmarks.uno_training --run mnist
    python -m benchmarks.uno_training --run mnist-sparse

or, with a teacher's help (`benchmarks.distillation`), --run mnist-teacher, then mnist-distilled,
mnist-distilled-sparse and mnist-distilled-int8, each with --seed 2.

A chain of three convolutions whose line buffers fit into 2 KB. Every epoch sees the training images
moved, turned and stretched anew. The smallest weights of each layer are set to zero while it
trains: in the first run at the start of every epoch, after which they may come back; in the second,
which begins with the first's weights, for good. It checkpoints every epoch and goes on from there
when started again. Of the epochs behind the pruning the one with the best validation accuracy is
kept. The test set is not used here.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.augmentation import Augmentation, augmented, augmented_copy
from benchmarks.distillation import answers, distillation_loss, targets, teacher_network
from keras_sparse import datasets
from keras_sparse.deploy import quantize
from keras_sparse.files import write_json
from keras_sparse.trimming import hold_zeros

L = keras.layers
BATCH = 128


class Run(NamedTuple):
    """One training run.

    Attributes:
        dataset: Name of the data set.
        filters: Of the three convolutions; of five in a teacher.
        shares: Final share of zero weights in the three convolutions and the dense layer; none
            in a teacher.
        epochs: In all.
        pruning: First and last epoch of pruning.
        rate: Adam's highest learning rate, falling to 0 as a cosine.
        shift: See `benchmarks.augmentation`, as for the next two.
        affine: See there.
        flip: See there.
        parent: The run whose weights it begins with; what is pruned then stays zero.
        teacher: The run whose answers it learns beside the labels.
        copies: So many augmented copies of the training set are used in turn, or 0 for a new one
            in each epoch.
        quantized: Whether it trains for int8 arithmetic, on `QUANTIZED_COPIES` copies an epoch.
    """

    dataset: str
    filters: tuple[int, ...]
    shares: tuple[float, ...]
    epochs: int
    pruning: tuple[int, int]
    rate: float = 3e-3
    shift: int = 2
    affine: bool = False
    flip: bool = False
    parent: str | None = None
    teacher: str | None = None
    copies: int = 0
    quantized: bool = False


COPIES = 10
QUANTIZED_COPIES = 3
RUNS = {
    "mnist-teacher": Run(
        "mnist", (32, 32, 64, 128, 128), (), 10, (0, 0), affine=True, copies=COPIES
    ),
    "mnist-distilled": Run(
        "mnist",
        (16, 40, 64),
        (0.0, 0.6, 0.55, 0.55),
        36,
        (8, 22),
        affine=True,
        teacher="mnist-teacher",
        copies=COPIES,
    ),
    "mnist": Run("mnist", (16, 40, 56), (0.0, 0.6, 0.65, 0.5), 60, (12, 36), affine=True),
    "cifar10-binary": Run(
        "cifar10-binary", (12, 24, 32), (0.0, 0.4, 0.5, 0.3), 40, (8, 24), flip=True
    ),
    "chars4k": Run("chars4k", (16, 32, 48), (0.0, 0.5, 0.6, 0.6), 80, (16, 48), affine=True),
}
RUNS |= {
    "mnist-distilled-sparse": RUNS["mnist-distilled"]._replace(
        epochs=14, pruning=(0, 5), rate=1e-3, parent="mnist-distilled"
    ),
    "mnist-distilled-int8": RUNS["mnist-distilled"]._replace(
        epochs=2, pruning=(0, 0), rate=2e-4, parent="mnist-distilled-sparse", quantized=True
    ),
    "chars4k-sparse": RUNS["chars4k"]._replace(
        epochs=30, pruning=(0, 12), rate=1e-3, parent="chars4k"
    ),
    "mnist-sparse": RUNS["mnist"]._replace(epochs=14, pruning=(0, 6), rate=1e-3, parent="mnist"),
    "cifar10-binary-sparse": RUNS["cifar10-binary"]._replace(
        epochs=6, pruning=(0, 2), rate=1e-3, parent="cifar10-binary"
    ),
}


def network(run: Run, input_shape: tuple[int, ...], classes: int) -> keras.Model:
    """Strided 3×3, 3×3, max-pooling, 3×3, dense: each convolution with batch-norm and ReLU."""
    if not run.shares:
        return teacher_network(run.filters, input_shape, classes)
    first, second, third = run.filters
    x = image = keras.Input(input_shape, batch_size=None)
    x = _block(x, first, "conv1", strides=2, padding="same")
    x = L.MaxPooling2D(2, name="pool")(_block(x, second, "conv2"))
    x = L.Flatten(name="flatten")(_block(x, third, "conv3"))
    return keras.Model(image, L.Dense(classes, name="dense")(x))


def _block(x: Any, filters: int, name: str, **kwargs: Any) -> Any:
    x = L.Conv2D(filters, 3, use_bias=False, name=name, **kwargs)(x)
    x = L.BatchNormalization(name=f"{name}-norm", momentum=0.97)(x)
    return L.ReLU(name=f"{name}-relu")(x)


def prune(model: keras.Model, run: Run, epoch: int) -> None:
    """Sets the smallest weights of each layer to zero, as many as are due at this epoch."""
    begin, end = run.pruning
    if not run.shares:
        return
    progress = min(max((epoch - begin) / (end - begin), 0.0), 1.0)
    layers = [layer for layer in model.layers if hasattr(layer, "kernel")]
    for layer, final in zip(layers, run.shares, strict=True):
        values = layer.kernel.numpy()
        count = round(final * (1.0 - (1.0 - progress) ** 3) * values.size)
        if count:
            limit = np.partition(np.abs(values).ravel(), count - 1)[count - 1]
            layer.kernel.assign(np.where(np.abs(values) > limit, values, 0.0))
    if run.parent:
        hold_zeros(model)


def train(run: Run, folder: Path, seed: int) -> keras.Model:
    """Trains a run, from its last checkpoint if there is one; returns the best of its end."""
    data = datasets.load(run.dataset)
    steps = -(-len(data.x_train) // BATCH)
    keras.utils.set_random_seed(seed)
    state: dict[str, Any] = {"seed": seed, "epoch": 0, "best": 0.0, "log": [], "seconds": 0.0}
    if (folder / "state.json").is_file():
        state = json.loads((folder / "state.json").read_text())
        model = keras.models.load_model(folder / state["model"])
    else:
        model = network(run, data.input_shape, data.num_classes)
        if run.parent:
            model.load_weights(folder.with_name(run.parent) / "best.keras")
        model.compile(
            keras.optimizers.Adam(
                keras.optimizers.schedules.CosineDecay(run.rate, run.epochs * steps)
            ),
            distillation_loss
            if run.teacher
            else keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    folder.mkdir(parents=True, exist_ok=True)
    if run.parent:
        hold_zeros(model)  # before `fit` makes its graph
    held_out = targets(data.y_val, None, data.num_classes) if run.teacher else data.y_val
    for epoch in range(state["epoch"], run.epochs):
        start = time.monotonic()
        prune(model, run, epoch)
        x, y = _examples(data, run, folder, seed, epoch)
        history = model.fit(
            x,
            y,
            batch_size=BATCH,
            shuffle=False,
            validation_data=(data.x_val, held_out),
            validation_batch_size=1000,
            verbose=0,
        ).history
        row = {key: round(float(values[-1]), 5) for key, values in history.items()}
        state["log"].append(row)
        state["seconds"] += time.monotonic() - start
        state["epoch"] = epoch + 1
        print(f"epoch {epoch + 1}/{run.epochs} {row} {state['seconds']:.0f} s", flush=True)
        if epoch >= run.pruning[1] and row["val_accuracy"] > state["best"]:
            state["best"] = row["val_accuracy"]
            model.save(folder / "best.keras")
        _checkpoint(model, folder, state)
    return keras.models.load_model(folder / "best.keras")


def _examples(
    data: datasets.Dataset, run: Run, folder: Path, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Images and targets of an epoch, in the order of their use."""
    how = Augmentation(run.shift, run.affine, run.flip)
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(data.x_train))
    if not run.copies:
        return augmented(data.x_train, how, rng)[order], data.y_train[order]
    copy = epoch % run.copies
    x = augmented_copy(data.x_train, how, seed, copy, folder.with_name(f"{run.dataset}-copies"))
    y = data.y_train
    if run.teacher:
        logits = answers(folder.with_name(run.teacher), copy, x)
        y = targets(y, logits, data.num_classes)
    return x[order], y[order]


def train_quantized(run: Run, folder: Path, seed: int) -> keras.Model:
    """Trains the parent for int8 arithmetic; what it was before is a candidate, too."""
    data = datasets.load(run.dataset)
    parts = [_examples(data, run, folder, seed, epoch) for epoch in range(QUANTIZED_COPIES)]
    parent = keras.models.load_model(folder.with_name(str(run.parent)) / "best.keras")
    held_out = targets(data.y_val, None, data.num_classes)
    model = quantize(
        parent,
        np.concatenate([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        epochs=run.epochs,
        validation_data=(data.x_val, held_out),
        batch_size=BATCH,
        learning_rate=run.rate,
        loss=distillation_loss,
        seed=seed,
        verbose=2,
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "best.keras")
    write_json(folder / "state.json", {"seed": seed})
    return model


def _checkpoint(model: keras.Model, folder: Path, state: dict[str, Any]) -> None:
    old = state.get("model")
    state["model"] = f"epoch{state['epoch']}.keras"
    model.save(folder / state["model"])
    write_json(folder / "state.json", state)
    if old:
        (folder / old).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=RUNS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoints", type=Path, default=Path("runs/uno"))
    arguments = parser.parse_args()
    run = RUNS[arguments.run]
    function = train_quantized if run.quantized else train
    function(run, arguments.checkpoints / arguments.run, arguments.seed)


if __name__ == "__main__":
    main()
