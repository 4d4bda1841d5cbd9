"""The eight layers with the Keras layer each replaces, for parametrised tests."""

import keras
import numpy as np
import pytest

from keras_sparse import layers as sparse

L = keras.layers
TWINS = [
    (sparse.SpVDDense, L.Dense),
    (sparse.SpVDConv2D, L.Conv2D),
    (sparse.SpVDDepthwiseConv2D, L.DepthwiseConv2D),
    (sparse.SpVDSeparableConv2D, L.SeparableConv2D),
    (sparse.BCDense, L.Dense),
    (sparse.BCConv2D, L.Conv2D),
    (sparse.BCDepthwiseConv2D, L.DepthwiseConv2D),
    (sparse.BCSeparableConv2D, L.SeparableConv2D),
]
SPARSE = [twin for twin, _ in TWINS]
each_layer = pytest.mark.parametrize("layer_class", SPARSE, ids=lambda c: c.__name__)
each_twin = pytest.mark.parametrize(
    ("layer_class", "keras_class"), TWINS, ids=[c.__name__ for c in SPARSE]
)


def arguments(layer_class: type) -> tuple:
    """Positional arguments for a small layer."""
    if issubclass(layer_class, L.DepthwiseConv2D):
        return (3,)
    return (5,) if issubclass(layer_class, L.Dense) else (5, 3)


def images(count: int = 6, size: int = 6, channels: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size, size, channels)).astype("float32")


def small_model(layer_class: type, *, size: int = 6, **kwargs) -> keras.Model:
    """The layer, then a plain classifier of three classes."""
    return keras.Sequential(
        [
            keras.Input((size, size, 4)),
            layer_class(*arguments(layer_class), name="sparse", **kwargs),
            L.Flatten(),
            L.Dense(3),
        ]
    )


def labels(count: int = 6) -> np.ndarray:
    return (np.arange(count) % 3).astype("int32")


def loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)
