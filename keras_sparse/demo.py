"""The smallest complete use: train a sparse CNN on scikit-learn's digits and save it stripped.

python -m keras_sparse.demo [--out runs/demo]
"""

import argparse
from pathlib import Path

import keras
import numpy as np

from . import KLAnnealing, datasets, sparsify, sparsity, strip


def build(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """A plain CNN of 14 thousand weights."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(32, 3, activation="relu", name="conv2"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu", name="fc"),
            keras.layers.Dense(num_classes, name="logits"),
        ]
    )


def accuracy(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Share of right classes."""
    scores = model.predict(x, batch_size=1000, verbose=0)
    return float(np.mean(np.argmax(scores, axis=-1) == y))


def run(method: str, epochs: int, seed: int = 1) -> tuple[keras.Model, float, str]:
    """Trains with one method; returns the stripped model, its test accuracy and a table."""
    keras.utils.set_random_seed(seed)
    data = datasets.load("digits")
    plain = build(data.input_shape, data.num_classes)
    model = sparsify(plain, method, estimator="mirrored", log_variance_initializer=-6.0)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(5e-3, epochs * 40)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=32,
        epochs=epochs,
        verbose=0,
        callbacks=[KLAnnealing(len(data.x_train), epochs // 6, epochs // 3), _Progress(epochs)],
    )
    small = strip(model)
    table = f"{sparsity(model)}\nparameters {plain.count_params():,} -> {small.count_params():,}"
    return small, accuracy(small, data.x_test, data.y_test), table


class _Progress(keras.callbacks.Callback):
    """A line now and then: works in a terminal, a pipe and a notebook."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Prints every tenth of the epochs."""
        if logs and (epoch + 1) % max(self.epochs // 10, 1) == 0:
            print(
                f"  epoch {epoch + 1:>3}/{self.epochs}  loss {logs['loss']:.3f}  "
                f"sparsity {logs['sparsity']:.1%}  non-zero {logs['nonzeros']:,}",
                flush=True,
            )


def main() -> None:
    """Runs both methods and saves the stripped models."""
    parser = argparse.ArgumentParser(prog="keras_sparse.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for method, title in (
        ("spvd", "Sparse Variational Dropout: single weights"),
        ("bc", "Bayesian Compression: whole feature maps and neurons"),
    ):
        print(f"\n{title}")
        small, test_accuracy, table = run(method, arguments.epochs)
        path = arguments.out / f"digits-{method}.keras"
        small.save(path)
        print(f"{table}\ntest accuracy {test_accuracy:.1%}\nsaved {path}")


if __name__ == "__main__":
    main()
