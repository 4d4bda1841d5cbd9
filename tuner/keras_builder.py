"""Configurations to Keras models with SpVD, BC or plain layers."""

import zlib
from typing import Any

import keras

from keras_sparse import layers as sparse
from keras_sparse.footprint.graph import Shape

from .network import Assembly, Convolution, Kernel, Node, assemble
from .parameters import Configuration

L = keras.layers
_KERNELS = {
    "Conv2D": ("kernel",),
    "Dense": ("kernel",),
    "DepthwiseConv2D": ("depthwise",),
    "SeparableConv2D": ("depthwise", "pointwise"),
}
_PREFIXES = {"unstructured": "SpVD", "structured": "BC"}


def build_network(
    configuration: Configuration,
    input_shape: Shape,
    num_classes: int,
    pruning: str | None,
    *,
    seed: int = 0,
    estimator: str = "auto",
) -> tuple[keras.Model, Assembly]:
    """The Keras model of a configuration, not compiled, and what was found on the way.

    Args:
        configuration: Values of all active parameters.
        input_shape: (height, width, channels) of an image.
        num_classes: Number of logits.
        pruning: "unstructured" (SpVD), "structured" (BC) or None (plain Keras layers).
        seed: Of the initial weights and of the layers' noise.
        estimator: How sparse layers draw their noise.
    """
    builder = KerasBuilder(configuration, pruning, seed, estimator)
    assembly = assemble(configuration, input_shape, num_classes, builder)
    return keras.Model(builder.image, assembly.output.tensor, name="sparse_cnn"), assembly


class KerasBuilder:
    """Makes Keras layers; see `network.Builder`."""

    def __init__(
        self, configuration: Configuration, pruning: str | None, seed: int, estimator: str
    ) -> None:
        self.configuration = configuration
        self.pruning = pruning
        self.seed = seed
        self.estimator = estimator

    def input(self, shape: Shape) -> Node:
        self.image = keras.Input(shape, name="input")
        return Node(self.image, shape)

    def _layer(
        self, kind: str, threshold: str, *args: Any, plain: bool = False, **kwargs: Any
    ) -> Any:
        # From the layer's name, so that they do not depend on what else is in the network.
        seed = (zlib.crc32(kwargs["name"].encode()) + self.seed) % 2**31
        for number, name in enumerate(_KERNELS[kind]):
            initializer = keras.initializers.GlorotUniform(seed + number)
            kwargs.setdefault(f"{name}_initializer", initializer)
        if self.pruning is None or plain:
            return getattr(L, kind)(*args, **kwargs)
        cls = getattr(sparse, _PREFIXES[self.pruning] + kind)
        value = self.configuration[threshold]
        return cls(*args, threshold=value, estimator=self.estimator, seed=seed, **kwargs)

    def _finish(self, x: Any, name: str, norm: bool, relu: bool, scale: Any = None) -> Node:
        if norm:
            x = L.BatchNormalization(name=f"{name}-norm")(x)
            x = x if scale is None else scale(x)
            if relu:
                x = L.ReLU(name=f"{name}-relu")(x)
        return _node(x)

    def depth_maximum(self, x: Node, name: str) -> Node:
        height, width, depth = x.shape
        y = L.Reshape((height * width, depth, 1), name=f"{name}-columns")(x.tensor)
        y = L.MaxPooling2D((1, depth), name=name)(y)
        return _node(L.Reshape((height, width, 1), name=f"{name}-image")(y))

    def pool(self, x: Node, name: str, kind: str, window: Kernel) -> Node:
        layer = L.MaxPooling2D if kind == "max" else L.AveragePooling2D
        return _node(layer(window, name=name)(x.tensor))

    def global_average(self, x: Node, name: str) -> Node:
        return _node(L.GlobalAveragePooling2D(name=name)(x.tensor))

    def convolution(self, x: Node, spec: Convolution) -> Node:
        # Batch normalization would blow up again what a group's scale makes small. With it the
        # scales of the groups therefore stand behind it, as a sparse 1×1 depthwise convolution.
        scaled = spec.norm and self.pruning == "structured"
        layer = self._layer(
            "SeparableConv2D" if spec.separable else "Conv2D",
            spec.threshold,
            spec.filters,
            spec.kernel,
            plain=scaled,
            strides=spec.stride,
            padding=spec.padding,
            use_bias=not spec.norm,
            activation="relu" if spec.relu and not spec.norm else None,
            name=spec.name,
        )
        scale = self._scale(f"{spec.name}-scale", spec.threshold) if scaled else None
        return self._finish(layer(x.tensor), spec.name, spec.norm, spec.relu, scale)

    def _scale(self, name: str, threshold: str) -> Any:
        return self._layer(
            "DepthwiseConv2D",
            threshold,
            1,
            use_bias=False,
            depthwise_initializer="ones",
            name=name,
        )

    def dense(
        self, x: Node, name: str, units: int, *, norm: bool, relu: bool, threshold: str
    ) -> Node:
        layer = self._layer(
            "Dense",
            threshold,
            units,
            use_bias=not norm,
            activation="relu" if relu and not norm else None,
            name=name,
        )
        return self._finish(layer(x.tensor), name, norm, relu)

    def flatten(self, x: Node, name: str) -> Node:
        return x if len(x.shape) == 1 else _node(L.Flatten(name=name)(x.tensor))

    def add(self, nodes: list[Node], name: str, *, relu: bool) -> Node:
        y = L.Add(name=name)([node.tensor for node in nodes])
        return _node(L.ReLU(name=f"{name}-relu")(y) if relu else y)

    def concatenate(self, nodes: list[Node], name: str) -> Node:
        return _node(L.Concatenate(name=name)([node.tensor for node in nodes]))


def _node(tensor: Any) -> Node:
    return Node(tensor, tuple(tensor.shape[1:]))
