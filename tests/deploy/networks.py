"""Small networks and data for the tests of deployment."""

from typing import Any

import keras
import numpy as np
from keras_sparse.tuner import SparseCNN

from keras_sparse import strip
from keras_sparse.deploy.flatbuffer import kernels
from keras_sparse.deploy.node_reading import read_nodes

L = keras.layers


def every_layer(activation: Any = "relu") -> keras.Model:
    """A residual, a concatenation, all kinds of convolutions, pooling and normalization."""
    image = keras.Input((12, 12, 3))
    x = L.Conv2D(6, 3, padding="same", use_bias=False, name="first")(image)
    x = L.ReLU()(L.BatchNormalization()(x))
    y = L.SeparableConv2D(6, 3, padding="same", name="separable")(x)
    x = L.MaxPooling2D(2)(L.ReLU()(L.Add()([x, y])))
    x = L.DepthwiseConv2D(3, depth_multiplier=2, strides=2, name="depthwise")(x)
    x = activation(x) if isinstance(activation, L.Layer) else L.Activation(activation)(x)
    left = L.Dense(5, activation="relu", name="left")(L.Flatten()(x))
    right = L.GlobalAveragePooling2D()(x)
    outputs = L.Dense(4, name="last")(L.Concatenate()([left, right]))
    return keras.Model(image, outputs)


def randomised(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """Random zeros in the kernels, random statistics in the normalizations.

    The strongest weight of a kernel stays, as in `strip`.
    """
    for variable in model.weights:
        values = np.asarray(variable)
        if values.ndim > 1:
            is_zero = rng.random(values.shape) < rng.random()
            is_zero[np.unravel_index(np.abs(values).argmax(), values.shape)] = False
            variable.assign(np.where(is_zero, 0, values))
        elif "variance" not in variable.name:
            variable.assign(rng.normal(1.0 if "gamma" in variable.name else 0.0, 0.3, values.shape))
    return model


def sampled(seed: int) -> keras.Model:
    """A random network of the search space, stripped."""
    rng = np.random.default_rng(seed)
    pruning = (None, "unstructured", "structured")[seed % 3]
    height, width = (int(size) for size in rng.integers(8, 17, 2))
    cnn = SparseCNN(
        (height, width, int(rng.choice([1, 3]))),
        int(rng.integers(2, 11)),
        pruning=pruning,
        ranges={"num-filters": (1, 12), "total-fc-layer-weights": (10, 2000)},
    )
    return randomised(strip(cnn.network(cnn.sample(rng))), rng)


def lost_zeros(model: keras.Model, flatbuffer: bytes) -> int:
    """Kernel weights that are zero in a plain model and not in its flatbuffer."""
    stored = [kernel for _, kernel in kernels(flatbuffer)]
    lost = 0
    for node in read_nodes(model, "lost_zeros").nodes:
        if node.kernel is not None:
            kernel = np.moveaxis(node.kernel, -1, 0)
            if node.kind == "depthwise":
                kernel = node.kernel.reshape(1, *node.kernel.shape[:2], -1)
            same = [k for k in stored if k.shape == kernel.shape]
            lost += min(int(np.count_nonzero(k[kernel == 0])) for k in same)
    return lost
