"""Trains the sparse networks that `benchmarks.uno` puts on an Arduino Uno.

    python -m benchmarks.uno_training --run mnist
    python -m benchmarks.uno_training --run mnist-sparse

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

from benchmarks.magnitude import hold_zeros
from keras_sparse import datasets
from keras_sparse.files import write_json

L = keras.layers
BATCH = 128


class Run(NamedTuple):
    """One training run.

    Attributes:
        dataset: Name of the data set.
        filters: Of the three convolutions.
        shares: Final share of zero weights in the three convolutions and the dense layer.
        epochs: In all.
        pruning: First and last epoch of pruning.
        rate: Adam's highest learning rate, falling to 0 as a cosine.
        shift: Images move by up to so many pixels both ways.
        affine: Whether they also turn (10 degrees), stretch (10 %) and shear (10 %).
        flip: Whether they are mirrored.
        parent: The run whose weights it begins with; what is pruned then stays zero.
    """

    dataset: str
    filters: tuple[int, int, int]
    shares: tuple[float, float, float, float]
    epochs: int
    pruning: tuple[int, int]
    rate: float = 3e-3
    shift: int = 2
    affine: bool = False
    flip: bool = False
    parent: str | None = None


RUNS = {
    "mnist": Run("mnist", (16, 40, 56), (0.0, 0.6, 0.65, 0.5), 60, (12, 36), affine=True),
    "cifar10-binary": Run(
        "cifar10-binary", (12, 24, 32), (0.0, 0.4, 0.5, 0.3), 40, (8, 24), flip=True
    ),
}
RUNS |= {
    "mnist-sparse": RUNS["mnist"]._replace(epochs=14, pruning=(0, 6), rate=1e-3, parent="mnist"),
    "cifar10-binary-sparse": RUNS["cifar10-binary"]._replace(
        epochs=6, pruning=(0, 2), rate=1e-3, parent="cifar10-binary"
    ),
}


def network(run: Run, input_shape: tuple[int, ...], classes: int) -> keras.Model:
    """Strided 3×3, 3×3, max-pooling, 3×3, dense: each convolution with batch-norm and ReLU."""
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


def augmented(x: np.ndarray, run: Run, rng: np.random.Generator) -> np.ndarray:
    """Each image through an affine map of its own, read bilinearly; edges repeat."""
    result = np.empty_like(x)
    for start in range(0, len(x), 2000):
        part = x[start : start + 2000]
        result[start : start + 2000] = _warped(part, run, rng)
    return result


def _warped(x: np.ndarray, run: Run, rng: np.random.Generator) -> np.ndarray:
    count, height, width, _ = x.shape
    if run.flip:
        x = np.where(rng.random((count, 1, 1, 1)) < 0.5, x[:, :, ::-1], x)
    identity = np.broadcast_to(np.eye(2), (count, 2, 2))
    move = rng.uniform(-run.shift, run.shift, (count, 2, 1))
    if not run.affine:
        move = np.round(move)
    matrix = _matrices(count, rng) if run.affine else identity
    center = np.array([[(height - 1) / 2], [(width - 1) / 2]])
    grid = np.stack([axis.ravel() for axis in np.mgrid[:height, :width]]) - center
    places = (matrix @ grid + center + move).astype(np.float32)
    row = np.clip(places[:, 0], 0, height - 1)
    column = np.clip(places[:, 1], 0, width - 1)
    top = np.minimum(row.astype(np.int32), height - 2)
    left = np.minimum(column.astype(np.int32), width - 2)
    down, right = (row - top)[..., None], (column - left)[..., None]
    flat = x.reshape(count, height * width, -1)
    images = np.arange(count)[:, None]
    corner = top * width + left
    upper = flat[images, corner] * (1 - right) + flat[images, corner + 1] * right
    lower = flat[images, corner + width] * (1 - right) + flat[images, corner + width + 1] * right
    return (upper * (1 - down) + lower * down).reshape(x.shape)


def _matrices(count: int, rng: np.random.Generator) -> np.ndarray:
    angle = np.deg2rad(rng.uniform(-10, 10, count))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    stretch = np.zeros((count, 2, 2))
    stretch[:, [0, 1], [0, 1]] = rng.uniform(0.9, 1.1, (count, 2))
    stretch[:, [0, 1], [1, 0]] = rng.uniform(-0.1, 0.1, (count, 2))
    return turn.transpose(2, 0, 1) @ stretch


def train(run: Run, folder: Path, seed: int) -> keras.Model:
    """Trains a run, from its last checkpoint if there is one; returns the best of its end."""
    data = datasets.load(run.dataset)
    steps = -(-len(data.x_train) // BATCH)
    keras.utils.set_random_seed(seed)
    state: dict[str, Any] = {"epoch": 0, "best": 0.0, "log": [], "seconds": 0.0}
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
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    folder.mkdir(parents=True, exist_ok=True)
    if run.parent:
        hold_zeros(model)  # before `fit` makes its graph
    for epoch in range(state["epoch"], run.epochs):
        start = time.monotonic()
        rng = np.random.default_rng((seed, epoch))
        prune(model, run, epoch)
        order = rng.permutation(len(data.x_train))
        history = model.fit(
            augmented(data.x_train, run, rng)[order],
            data.y_train[order],
            batch_size=BATCH,
            shuffle=False,
            validation_data=(data.x_val, data.y_val),
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
    train(RUNS[arguments.run], arguments.checkpoints / arguments.run, arguments.seed)


if __name__ == "__main__":
    main()
