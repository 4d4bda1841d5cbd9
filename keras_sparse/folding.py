"""Folding a scale per channel into the batch normalization before it."""

from collections import Counter
from typing import Any

import keras
import numpy as np

from .walking import copy_of, copy_weights, rebuild, walk

L = keras.layers


def is_scale(layer: Any) -> bool:
    """Whether a layer only multiplies every channel by a number: a 1×1 depthwise convolution."""
    return (
        isinstance(layer, L.DepthwiseConv2D)
        and layer.built
        and tuple(layer.kernel.shape[:2]) == (1, 1)
        and layer.kernel.shape[-1] == 1
        and tuple(layer.strides) == (1, 1)
        and layer.data_format == "channels_last"
        and layer.bias is None
        and layer.activation in (None, keras.activations.linear)
    )


def fold_scales(model: keras.Model, names: set[str]) -> keras.Model:
    """Copies a model of plain layers with scales multiplied into the normalization before them.

    Args:
        model: A built Sequential or functional model.
        names: Names of the layers that may be folded. A folded one becomes an `Identity`, which
            costs nothing anywhere.

    Returns:
        A model that predicts the same to float tolerance; `model` itself if nothing can be folded.
    """
    graph = walk(model)
    uses = Counter(id(call.layer) for call in graph.calls)
    readers = Counter(tensor for call in graph.calls for tensor in call.inputs)
    readers.update(graph.outputs)
    made_by = {tensor: call.layer for call in graph.calls for tensor in call.outputs}
    scales: dict[int, np.ndarray] = {}
    folded: set[int] = set()
    for call in graph.calls:
        before = made_by.get(call.inputs[0]) if call.inputs else None
        if (
            is_scale(call.layer)
            and call.layer.name in names
            and isinstance(before, L.BatchNormalization)
            and before.scale
            and before.center
            and uses[id(before)] == uses[id(call.layer)] == 1
            and readers[call.inputs[0]] == 1
        ):
            scales[id(before)] = np.asarray(call.layer.kernel).ravel()
            folded.add(id(call.layer))
    if not folded:
        return model

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        return L.Identity(name=layer.name) if id(layer) in folded else copy_of(layer)

    result, pairs = rebuild(model, replace)
    for old, new in pairs:
        if id(old) in scales:
            gamma, beta, *statistics = old.get_weights()
            new.set_weights([gamma * scales[id(old)], beta * scales[id(old)], *statistics])
        elif id(old) not in folded:
            copy_weights(old, new)
    return result
