"""The model with fake quantization of any network: what the native engine trains and converts."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .device_rounding import DeviceRounding, rounding_name
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
    tensors, ranges = {network.input: first(image)}, {INPUT_RANGE: first}
    joined, names = _joined_by_concatenation(network), range_names(network)
    for node in network.nodes:
        output = _operation(node, [tensors[tensor] for tensor in node.inputs])
        name = names[node.output]
        if name not in ranges:
            fixed = FIXED_RANGES.get(node.activation, (None, None))
            ranges[name] = ActivationRange(*fixed, name=name)
        if node.kind in (*LINEAR, "mean", "add"):
            output = DeviceRounding(name=rounding_name(node))(output)
        if node.kind == "average_pool":  # the mean is rounded to the steps of its input
            output = ranges[name](output, is_mean=True, is_joined=node.output in joined)
        elif node.kind not in SAME_SCALE and node.output not in joined:
            output = ranges[name](output)
        tensors[node.output] = output
    model = keras.Model(image, tensors[network.output], name="quantized")
    for node in network.nodes:
        if node.kind in LINEAR:
            model.get_layer(node.name).set_values(node.kernel, node.bias)
    return model


def range_names(network: Network) -> dict[int, str]:
    """The name of the layer with the range of each tensor."""
    joined, names = _joined_by_concatenation(network), {network.input: INPUT_RANGE}
    own = {node.output: f"{node.name}_range" for node in network.nodes}
    for node in network.nodes:
        if node.output in joined:
            names[node.output] = own[joined[node.output]]
        elif node.kind in SAME_SCALE:
            names[node.output] = names[node.inputs[0]]
        else:
            names[node.output] = own[node.output]
    return names


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


def _joined_by_concatenation(network: Network) -> dict[int, int]:
    """Tensors that only a concatenation reads, maybe after pooling or reshaping, and its output.

    All inputs of a concatenation share the scale of its output, so that their range is observed
    there, and there only: no operator is then needed to change scales.
    """
    readers: dict[int, list[Node]] = {}
    for node in network.nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(node)
    result: dict[int, int] = {}
    for node in reversed(network.nodes):
        read_by = readers.get(node.output, [])
        if node.output == network.output or not read_by or node.activation in FIXED_RANGES:
            continue
        ends = {
            result.get(reader.output, reader.output if reader.kind == "concatenate" else None)
            for reader in read_by
            if reader.kind == "concatenate" or reader.kind in SAME_SCALE
        }
        end = ends.pop() if len(ends) == 1 else None
        is_only = all(reader.kind in ("concatenate", *SAME_SCALE) for reader in read_by)
        if is_only and end is not None:
            result[node.output] = end
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
