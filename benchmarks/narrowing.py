"""Drops the dead units of a sparse network while it trains: what is left learns on, faster.

A unit (feature map or neuron) is dead when all weights into it or all weights out of it are
pruned. Most units of an over-sized network die in the first third of the training, and from then on
only cost time.
"""

import itertools
from typing import Any

import keras
import numpy as np

from keras_sparse.counting import sparse_layers


def narrowed(model: keras.Sequential) -> keras.Sequential:
    """A copy with the live units only: the posterior of their weights, not compiled.

    Args:
        model: A chain of sparse convolutions, sparse dense layers, and layers without weights.
    """
    layers = sparse_layers(model)
    kernels = [np.asarray(layer.pruned_kernels()[0]) for layer in layers]
    outputs = [
        np.flatnonzero(_live_outputs(kernel) & _live_inputs(following, kernel.shape[-1]))
        for kernel, following in itertools.pairwise(kernels)
    ] + [np.arange(kernels[-1].shape[-1])]
    inputs = [np.arange(kernels[0].shape[-2])]
    for kernel, following, live in zip(kernels[:-1], kernels[1:], outputs[:-1], strict=True):
        units = kernel.shape[-1]
        # Flatten puts the channels of a position side by side.
        positions = following.shape[-2] // units if following.ndim == 2 else 1
        inputs.append((np.arange(positions)[:, None] * units + live).ravel())
    width = {layer.name: len(live) for layer, live in zip(layers, outputs, strict=True)}

    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if layer.name in width:
            config["units" if "units" in config else "filters"] = width[layer.name]
        return type(layer).from_config(config)

    small = keras.models.clone_model(model, clone_function=clone)
    for layer, i, o in zip(layers, inputs, outputs, strict=True):
        new = small.get_layer(layer.name).named_variables()
        for name, old in layer.named_variables().items():
            of_inputs = "group" in name and isinstance(layer, keras.layers.Dense)
            new[name].assign(_part(np.asarray(old), i, i if of_inputs else o))
    return small


def _live_outputs(kernel: np.ndarray) -> np.ndarray:
    return np.any(kernel != 0, axis=tuple(range(kernel.ndim - 1)))


def _live_inputs(kernel: np.ndarray, units: int) -> np.ndarray:
    if kernel.ndim == 2:
        return np.any(kernel.reshape(-1, units, kernel.shape[-1]) != 0, axis=(0, 2))
    return np.any(kernel != 0, axis=(0, 1, 3))


def _part(value: np.ndarray, inputs: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The live part of a variable: a kernel, a vector over its `last` axis, or a number."""
    if value.ndim >= 2:
        value = value[..., inputs, :]
    return value[..., last] if value.ndim else value
