"""The model with fake quantization of any network: what the native engine trains and converts."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .fake_quant import (
    FIXED_RANGES,
    ActivationRange,
    QuantizedConv2D,
    QuantizedDense,
    QuantizedDepthwiseConv2D,
)
from .nodes import LINEAR, SAME_SCALE, Network, Node

L = keras.layers
INPUT_RANGE = "input_range"
_OBSERVED = 2048


def fake_quantized(network: Network, input_range: tuple[float, float]) -> keras.Model:
    """A Keras model with fake quantization, its ranges not yet observed.

    Args:
        network: What to build.
        input_range: Smallest and largest value of an input.
    """
    image = keras.Input(network.input_shape, name="input")
    first = ActivationRange(*input_range, name=INPUT_RANGE)
    tensors, ranges = {network.input: first(image)}, {network.input: first}
    unranged = _joined_by_concatenation(network)
    for node in network.nodes:
        output = _operation(node, [tensors[tensor] for tensor in node.inputs])
        if node.kind in SAME_SCALE:
            if node.inputs[0] in ranges:
                ranges[node.output] = ranges[node.inputs[0]]
                if node.kind == "average_pool":  # the mean is rounded to the steps of its input
                    output = ranges[node.output](output, is_mean=True)
        elif node.output not in unranged:
            fixed = FIXED_RANGES.get(node.activation, (None, None))
            ranges[node.output] = ActivationRange(*fixed, name=f"{node.name}_range")
            output = ranges[node.output](output)
        tensors[node.output] = output
    model = keras.Model(image, tensors[network.output], name="quantized")
    for node in network.nodes:
        if node.kind in LINEAR:
            model.get_layer(node.name).set_values(node.kernel, node.bias)
    return model


def is_fake_quantized(model: keras.Model) -> bool:
    """Whether `quantize` made the model."""
    return any(isinstance(layer, ActivationRange) for layer in model.layers)


def observe(model: keras.Model, x: np.ndarray, batch_size: int) -> None:
    """Measures the ranges of all activations on examples of shape (examples, …).

    At most `_OBSERVED` of them, evenly taken.
    """
    x = x[:: -(-len(x) // _OBSERVED)]
    function = tf.function(lambda batch: model(batch, training=True), autograph=False)
    step = function.get_concrete_function(tf.TensorSpec((None, *x.shape[1:]), tf.float32))
    for start in range(0, len(x), batch_size):
        step(tf.constant(x[start : start + batch_size]))


def _joined_by_concatenation(network: Network) -> set[int]:
    """Tensors that only a concatenation reads, maybe after pooling or reshaping.

    All inputs of a concatenation share the scale of its output, so that their range is observed
    there, and there only: no operator is then needed to change scales.
    """
    readers: dict[int, list[Node]] = {}
    for node in network.nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(node)
    result: set[int] = set()
    for node in reversed(network.nodes):
        read_by = readers.get(node.output, [])
        if node.output == network.output or not read_by or node.activation in FIXED_RANGES:
            continue
        if all(
            reader.kind == "concatenate" or (reader.kind in SAME_SCALE and reader.output in result)
            for reader in read_by
        ):
            result.add(node.output)
    return result


def _operation(node: Node, inputs: list[Any]) -> Any:
    """The Keras tensor of a node's output, before its range."""
    name, kernel, options = node.name, node.kernel, node.options
    x = inputs[0]
    if node.kind in LINEAR:
        assert kernel is not None  # noqa: S101
        activation = None if node.activation == "linear" else node.activation
        if node.kind == "dense":
            return QuantizedDense(kernel.shape[-1], activation, name=name)(x)
        size = kernel.shape[:2]
        if node.kind == "depthwise":
            depth = {"depth_multiplier": kernel.shape[-1]}
            layer = QuantizedDepthwiseConv2D(
                size, activation=activation, name=name, **depth, **options
            )
        else:
            layer = QuantizedConv2D(
                kernel.shape[-1], size, activation=activation, name=name, **options
            )
        return layer(x)
    if node.kind == "add":
        total = L.Add(name=name)(inputs)
        return total if node.activation == "linear" else _activated(node, total, f"{name}_fused")
    if node.kind == "activation":
        return _activated(node, x, name)
    layers = {
        "concatenate": L.Concatenate,
        "max_pool": L.MaxPooling2D,
        "average_pool": L.AveragePooling2D,
        "mean": L.GlobalAveragePooling2D,
        "maximum": L.GlobalMaxPooling2D,
        "pad": L.ZeroPadding2D,
    }
    if node.kind == "reshape":
        return L.Reshape(node.shape, name=name)(x)
    return layers[node.kind](name=name, **options)(inputs if node.kind == "concatenate" else x)


def _activated(node: Node, x: Any, name: str) -> Any:
    if node.activation == "leaky_relu":
        return L.LeakyReLU(node.options["negative_slope"], name=name)(x)
    return L.Activation(node.activation, name=name)(x)
