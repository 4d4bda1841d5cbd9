"""read_nodes: the operations of a Keras model, as they are quantized and converted.

Normalizations are folded into the layer before them, activations joined to theirs, and what does
nothing at inference is left out. A shared layer is stored once per use.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from ..footprint.reading import affine_of
from ..walking import Call, Walk, is_graph, walk
from .nodes import (
    ACTIVATIONS,
    Network,
    Node,
    as_depthwise,
    fold_affine,
    fold_affine_forward,
    fuse_activations,
    needed,
)

L = keras.layers
_IDENTITIES = (
    L.Dropout,
    L.SpatialDropout2D,
    L.GaussianDropout,
    L.GaussianNoise,
    L.AlphaDropout,
    L.ActivityRegularization,
    L.Identity,
)
SUPPORTED = (
    "Conv2D",
    "DepthwiseConv2D",
    "SeparableConv2D",
    "Dense",
    "BatchNormalization",
    "Normalization",
    "Rescaling",
    "Activation",
    "ReLU",
    "LeakyReLU",
    "Softmax",
    "MaxPooling2D",
    "AveragePooling2D",
    "GlobalMaxPooling2D",
    "GlobalAveragePooling2D",
    "Flatten",
    "Reshape",
    "ZeroPadding2D",
    "Add",
    "Concatenate",
    *(layer.__name__ for layer in _IDENTITIES),
)


def read_nodes(model: keras.Model, function: str) -> Network:
    """The operations of a built Sequential or functional model.

    Args:
        model: Of the layers in `SUPPORTED`, with one input and one output of fixed shapes.
        function: Name of the public function, for messages.

    Raises:
        ValueError: The model has something that cannot be converted; the message names it.
    """
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError(
            f"{function}() takes a model with one input and one output. "
            f"Received: {len(model.inputs)} and {len(model.outputs)}"
        )
    input_shape = tuple(model.inputs[0].shape[1:])
    if None in input_shape:
        raise ValueError(
            f"{function}() takes a model with an input of fixed shape. Received: {input_shape}"
        )
    reader = _Reader(function)
    image = reader.new_tensor()
    (output,) = reader.read(walk(model), [image])
    network = Network(reader.nodes, image, input_shape, output)
    network.nodes = needed(network)
    fold_affine(network)
    fold_affine_forward(network)
    fuse_activations(network)
    network.nodes = [
        step for node in network.nodes for step in as_depthwise(node, reader.new_tensor)
    ]
    return network


class _Reader:
    def __init__(self, function: str) -> None:
        self.function = function
        self.nodes: list[Node] = []
        self.names: Counter[str] = Counter()
        self.tensors = 0

    def new_tensor(self) -> int:
        self.tensors += 1
        return self.tensors - 1

    def read(self, graph: Walk, inputs: list[int]) -> list[int]:
        """Appends the nodes of a graph and of the models in it; returns its output tensors."""
        tensors = dict(zip(graph.inputs, inputs, strict=True))
        for call in graph.calls:
            reads = [tensors[tensor] for tensor in call.inputs]
            if is_graph(call.layer):
                writes = self.read(walk(call.layer), reads)
            else:
                shapes = [graph.shapes[tensor] for tensor in (*call.inputs, *call.outputs)]
                if any(None in shape[1:] for shape in shapes):
                    raise ValueError(
                        f"{self.function}() takes tensors of fixed shapes. "
                        f"Received: layer {call.layer.name!r} with {shapes}"
                    )
                writes = [self._layer(call, reads, [tuple(s[1:]) for s in shapes])]
            tensors.update(zip(call.outputs, writes, strict=True))
        return [tensors[tensor] for tensor in graph.outputs]

    def add(
        self, kind: str, name: str, inputs: list[int], shape: tuple[int, ...], **more: Any
    ) -> int:
        self.names[name] += 1
        if self.names[name] > 1:
            name = f"{name}_{self.names[name]}"
        self.nodes.append(Node(kind, name, inputs, self.new_tensor(), shape, **more))
        return self.nodes[-1].output

    def _layer(self, call: Call, reads: list[int], shapes: list[Any]) -> int:
        layer, name, shape = call.layer, call.layer.name, shapes[-1]
        if isinstance(layer, _IDENTITIES):
            return reads[0]
        if getattr(layer, "data_format", "channels_last") != "channels_last":
            self._refuse(layer, "has channels first")
        if isinstance(layer, (L.Conv2D, L.DepthwiseConv2D, L.SeparableConv2D, L.Dense)):
            return self._weighted(layer, reads, shape)
        if isinstance(layer, (L.BatchNormalization, L.Normalization, L.Rescaling)):
            return self._affine(layer, reads, shape)
        if isinstance(layer, (L.Activation, L.ReLU, L.LeakyReLU, L.Softmax)):
            return self._activation(layer, reads[0], shape, name)
        if isinstance(layer, (L.MaxPooling2D, L.AveragePooling2D)):
            kind = "max_pool" if isinstance(layer, L.MaxPooling2D) else "average_pool"
            names = ("pool_size", "strides", "padding")
            return self.add(kind, name, reads, shape, options=_options(layer, names))
        if isinstance(layer, (L.GlobalMaxPooling2D, L.GlobalAveragePooling2D)):
            kind = "maximum" if isinstance(layer, L.GlobalMaxPooling2D) else "mean"
            return self.add(kind, name, reads, shape, options=_options(layer, ("keepdims",)))
        if isinstance(layer, (L.Flatten, L.Reshape)):
            return self.add("reshape", name, reads, shape)
        if isinstance(layer, L.ZeroPadding2D):
            return self.add("pad", name, reads, shape, options=_options(layer, ("padding",)))
        if isinstance(layer, L.Concatenate):
            return self.add("concatenate", name, reads, shape, options=_options(layer, ("axis",)))
        is_sum = isinstance(layer, L.Add) or type(layer).__name__ == "Add"
        if is_sum and call.is_plain and all(s == shape for s in shapes) and len(reads) > 1:
            total = reads[0]
            for tensor in reads[1:]:  # TFLite Micro adds two at a time
                total = self.add("add", name, [total, tensor], shape)
            return total
        return self._refuse(layer, "is not supported")

    def _refuse(self, layer: Any, why: str) -> int:
        raise ValueError(
            f"{self.function}() takes models of {', '.join(SUPPORTED)}. "
            f"Received: layer {layer.name!r} of class {type(layer).__name__}, which {why}"
        )

    def _weighted(self, layer: Any, reads: list[int], shape: tuple[int, ...]) -> int:
        bias = np.zeros(shape[-1], np.float32) if layer.bias is None else np.asarray(layer.bias)
        if isinstance(layer, L.Dense):
            output = self.add(
                "dense", layer.name, reads, shape, kernel=np.asarray(layer.kernel), bias=bias
            )
            return self._activation(layer, output, shape, f"{layer.name}_activation")
        if getattr(layer, "groups", 1) != 1:
            self._refuse(layer, "has groups")
        names = ("strides", "padding", "dilation_rate")
        options = _options(layer, names)
        if isinstance(layer, L.SeparableConv2D):
            kernel = np.asarray(layer.depthwise_kernel)
            maps = (*shape[:-1], kernel.shape[-2] * kernel.shape[-1])
            first = f"{layer.name}_depthwise"
            more = {"kernel": kernel, "bias": np.zeros(maps[-1], np.float32)}
            reads = [self.add("depthwise", first, reads, maps, options=options, **more)]
            options = {"strides": (1, 1), "padding": "valid", "dilation_rate": (1, 1)}
            kind, kernel = "conv", np.asarray(layer.pointwise_kernel)
        else:
            kind = "depthwise" if isinstance(layer, L.DepthwiseConv2D) else "conv"
            kernel = np.asarray(layer.kernel)
        output = self.add(kind, layer.name, reads, shape, options=options, kernel=kernel, bias=bias)
        return self._activation(layer, output, shape, f"{layer.name}_activation")

    def _affine(self, layer: Any, reads: list[int], shape: tuple[int, ...]) -> int:
        channels = shape[-1]
        if isinstance(layer, L.Rescaling):
            scale, shift = np.asarray(layer.scale), np.asarray(layer.offset)
        else:
            axis = layer.axis if isinstance(layer.axis, int) else (*layer.axis,)[-1]
            if axis % (len(shape) + 1) != len(shape):
                self._refuse(layer, "does not normalize the last axis")
            scale, shift = (values.reshape(-1) for values in affine_of(layer))
        kernel, bias = (np.broadcast_to(v, channels).astype(np.float32) for v in (scale, shift))
        return self.add("affine", layer.name, reads, shape, kernel=kernel, bias=bias)

    def _activation(self, layer: Any, tensor: int, shape: tuple[int, ...], name: str) -> int:
        activation, options = _activation_of(layer)
        if activation == "linear":
            return tensor
        if activation not in ACTIVATIONS:
            self._refuse(layer, f"has the activation {activation}, not one of {ACTIVATIONS}")
        return self.add("activation", name, [tensor], shape, activation=activation, options=options)


def _activation_of(layer: Any) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the activation of any layer."""
    if isinstance(layer, L.LeakyReLU):
        return "leaky_relu", {"negative_slope": float(layer.negative_slope)}
    if isinstance(layer, L.Softmax):
        return ("softmax" if layer.axis == -1 else "softmax over another axis"), {}
    if isinstance(layer, L.ReLU):
        if layer.threshold == 0 and layer.negative_slope == 0:
            name = {None: "relu", 6.0: "relu6"}.get(layer.max_value)
            return name or f"ReLU up to {layer.max_value}", {}
        return "ReLU with a threshold or slope", {}
    activation = getattr(layer, "activation", None)
    if activation in (None, keras.activations.linear):
        return "linear", {}
    if isinstance(activation, keras.layers.Layer):
        return _activation_of(activation)
    name = getattr(activation, "__name__", type(activation).__name__)
    return name, {"negative_slope": 0.2} if name == "leaky_relu" else {}


def _options(layer: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in names}
