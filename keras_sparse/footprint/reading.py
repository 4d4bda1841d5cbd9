"""read: the graph of any Sequential or functional Keras model of plain layers."""

import math
from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np

from ..folding import is_scale
from ..walking import Walk, is_graph, walk
from .graph import Graph, Operator, Shape, Weights, ordered

L = keras.layers

_VIEWS = (
    L.Flatten,
    L.Reshape,
    L.Dropout,
    L.SpatialDropout1D,
    L.SpatialDropout2D,
    L.SpatialDropout3D,
    L.AlphaDropout,
    L.GaussianDropout,
    L.GaussianNoise,
    L.ActivityRegularization,
    L.Identity,
    L.Rescaling,
    L.RandomFlip,
    L.RandomTranslation,
    L.RandomRotation,
    L.RandomZoom,
    L.RandomContrast,
    L.RandomBrightness,
)
"""Layers that at inference only look at the same memory in another shape.

Rescaling is among them because the quantization of the input does its work.
"""

_ACTIVATIONS = (L.Activation, L.ReLU, L.LeakyReLU, L.ELU, L.Softmax)
_CONVOLUTIONS = (L.Conv1D, L.Conv2D, L.Conv3D)
_DEPTHWISE = (L.DepthwiseConv1D, L.DepthwiseConv2D)
_SEPARABLE = (L.SeparableConv1D, L.SeparableConv2D)
_TRANSPOSED = (L.Conv1DTranspose, L.Conv2DTranspose, L.Conv3DTranspose)


class _Step(NamedTuple):
    """A call of a layer in a graph without nested models; tensors have any hashable name."""

    layer: Any
    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def read(model: keras.Model) -> Graph:
    """The graph of a built Sequential or functional model, nested models included.

    Raises:
        ValueError: A layer with parameters is of a kind that cannot be counted, or a tensor has no
            fixed size.
    """
    steps: list[_Step] = []
    shapes: dict[Any, Shape] = {}
    outer = walk(model)
    tensors = _flatten(outer, "", [("", i) for i in outer.inputs], steps, shapes)
    return _Reader(steps, shapes).graph(
        [("", i) for i in outer.inputs],
        [tensor._keras_history.operation.name for tensor in model.inputs],
        tensors,
    )


def _flatten(
    graph: Walk, prefix: str, inputs: list[Any], steps: list[_Step], shapes: dict[Any, Shape]
) -> list[Any]:
    """Appends the calls of `graph` and of the models in it; returns its output tensors."""
    names = dict(zip(graph.inputs, inputs, strict=True))
    seen: Counter[str] = Counter()
    for call in graph.calls:
        reads = [names[tensor] for tensor in call.inputs]
        name = prefix + call.layer.name
        seen[name] += 1
        if seen[name] > 1:
            name += f"#{seen[name]}"
        if is_graph(call.layer):
            writes = _flatten(walk(call.layer), f"{name}/", reads, steps, shapes)
            names.update(zip(call.outputs, writes, strict=True))
        else:
            names.update((tensor, (prefix, name, tensor)) for tensor in call.outputs)
            writes = [names[tensor] for tensor in call.outputs]
            steps.append(_Step(call.layer, name, tuple(reads), tuple(writes)))
    shapes.update((names[i], _fixed(shape)) for i, shape in enumerate(graph.shapes) if i in names)
    return [names[tensor] for tensor in graph.outputs]


def _fixed(shape: tuple[int | None, ...]) -> Shape:
    if None in shape[1:]:
        raise ValueError(
            "The memory of a model can only be counted if its input, and that of every model in "
            f"it, has a fixed size. Received: a tensor of shape {shape}"
        )
    return tuple(int(size) for size in shape[1:] if size is not None)


class _Reader:
    """Makes operators from steps, folding what needs no memory of its own."""

    def __init__(self, steps: list[_Step], shapes: dict[Any, Shape]) -> None:
        self.steps = steps
        self.shapes = shapes
        self.names: dict[Any, str] = {}
        self.operators: dict[str, Operator] = {}
        self.sizes: dict[str, Shape] = {}
        # Operators into which a batch normalization that follows can be folded, with the axis of
        # their channels (the batch is axis 0), and those where one was.
        self.linear: dict[str, int] = {}
        self.normalized: set[str] = set()
        # A layer that is used twice has its arrays once, under the name of its first use.
        self.uses = Counter(id(step.layer) for step in steps)
        self.owners: dict[int, str] = {}
        self.roots: dict[Any, Any] = {}

    def graph(self, inputs: list[Any], input_names: list[str], outputs: list[Any]) -> Graph:
        self.readers: Counter[Any] = Counter()
        for step in self.steps:
            if isinstance(step.layer, _VIEWS):
                self.roots[step.outputs[0]] = self._root(step.inputs[0])
            else:
                self.readers.update({self._root(tensor) for tensor in step.inputs})
        self.readers.update(self._root(tensor) for tensor in outputs)
        for tensor, name in zip(inputs, input_names, strict=True):
            self.names[tensor] = name
            self.sizes[name] = self.shapes[tensor]
        for step in self.steps:
            self._read(step)
        names = [self.names[tensor] for tensor in outputs]
        operators = ordered(self.operators.values(), names)
        shapes = {name: self.sizes[name] for name in input_names}
        shapes.update((op.name, self.sizes[op.name]) for op in operators)
        return Graph(shapes, operators, tuple(input_names), tuple(names))

    def _read(self, step: _Step) -> None:
        layer = step.layer
        if isinstance(layer, _VIEWS):
            self.names[step.outputs[0]] = self.names[step.inputs[0]]
        elif isinstance(layer, _ACTIVATIONS):
            self._activate(step)
        elif isinstance(layer, (L.BatchNormalization, L.Normalization)):
            self._normalize(step)
        elif isinstance(layer, L.Dense):
            self._weighted(step, "Dense", layer.kernel, math.prod(self._output(step)[:-1]))
        elif isinstance(layer, _TRANSPOSED):
            self._weighted(step, _kind(layer), layer.kernel, self._positions(step.inputs[0], layer))
        elif self._is_foldable_scale(step):
            self.names[step.outputs[0]] = self.names[step.inputs[0]]
        elif isinstance(layer, (*_CONVOLUTIONS, *_DEPTHWISE)):
            uses = self._positions(step.outputs[0], layer)
            self._weighted(step, _kind(layer), layer.kernel, uses)
        elif isinstance(layer, _SEPARABLE):
            self._separable(step)
        elif getattr(layer, "weights", None):
            raise ValueError(
                f"The memory of a {type(layer).__name__} layer cannot be counted. "
                f"Received: layer {layer.name!r}"
            )
        else:
            self._add(step, Operator(step.name, _kind(layer), self._inputs(step)))

    def _is_foldable_scale(self, step: _Step) -> bool:
        """Whether it is a sparse layer that `strip` folds into the layer before."""
        is_sparse = hasattr(step.layer, "pruned_kernels")
        return is_sparse and is_scale(step.layer) and self.names[step.inputs[0]] in self.normalized

    def _root(self, tensor: Any) -> Any:
        """The tensor whose memory a view looks at."""
        return self.roots.get(tensor, tensor)

    def _is_only_reader(self, step: _Step) -> bool:
        return self.readers[self._root(step.inputs[0])] == 1

    def _owner(self, step: _Step) -> str:
        return self.owners.setdefault(id(step.layer), step.name)

    def _inputs(self, step: _Step) -> tuple[str, ...]:
        return tuple(self.names[tensor] for tensor in step.inputs)

    def _output(self, step: _Step) -> Shape:
        return self.shapes[step.outputs[0]]

    def _positions(self, tensor: Any, layer: Any) -> int:
        shape = self.shapes[tensor]
        last = layer.data_format == "channels_last"
        return math.prod(shape[:-1] if last else shape[1:])

    def _add(self, step: _Step, operator: Operator) -> None:
        self.operators[operator.name] = operator
        # An operator with several outputs counts as one tensor with all of their elements.
        shapes = [self.shapes[tensor] for tensor in step.outputs]
        self.sizes[operator.name] = (
            shapes[0] if len(shapes) == 1 else (sum(map(math.prod, shapes)),)
        )
        self.names.update(dict.fromkeys(step.outputs, operator.name))

    def _weighted(self, step: _Step, kind: str, kernel: Any, uses: int) -> None:
        layer = step.layer
        owner = self._owner(step)
        weights = [_counted(f"{owner}/kernel", kernel)]
        if layer.bias is not None:
            weights.append(_counted(f"{owner}/bias", layer.bias, is_bias=True))
        self._add(step, Operator(step.name, kind, self._inputs(step), tuple(weights), uses))
        self._mark_linear(step, layer)

    def _mark_linear(self, step: _Step, layer: Any) -> None:
        if layer.activation in (None, keras.activations.linear) and self.uses[id(layer)] == 1:
            is_first = getattr(layer, "data_format", None) == "channels_first"
            self.linear[step.name] = 1 if is_first else len(self._output(step))

    def _separable(self, step: _Step) -> None:
        layer, uses = step.layer, self._positions(step.outputs[0], step.layer)
        first, owner = f"{step.name}/depthwise", self._owner(step)
        depthwise = _counted(f"{owner}/depthwise_kernel", layer.depthwise_kernel)
        maps = math.prod(depthwise.shape[-2:])
        shape = self._output(step)
        self.sizes[first] = (
            (*shape[:-1], maps) if layer.data_format == "channels_last" else (maps, *shape[1:])
        )
        self.operators[first] = Operator(
            first, _kind(layer, "Depthwise"), self._inputs(step), (depthwise,), uses
        )
        weights = [_counted(f"{owner}/pointwise_kernel", layer.pointwise_kernel)]
        if layer.bias is not None:
            weights.append(_counted(f"{owner}/bias", layer.bias, is_bias=True))
        kind = _kind(layer, "")
        self._add(step, Operator(step.name, kind, (first,), tuple(weights), uses))
        self._mark_linear(step, layer)

    def _normalize(self, step: _Step) -> None:
        layer = step.layer
        producer = self.names[step.inputs[0]]
        scale, shift = affine_of(layer)
        if self._folds_into(step, producer):
            operator = self.operators[producer]
            self.operators[producer] = operator._replace(
                weights=_folded(operator, scale.ravel(), shift.ravel())
            )
            self.names[step.outputs[0]] = producer
            self.normalized.add(producer)
            return
        weights = tuple(
            _counted(f"{self._owner(step)}/{name}", values, is_bias=name == "shift")
            for name, values in (("scale", scale), ("shift", shift))
        )
        uses = math.prod(self._output(step)) // scale.size
        self._add(step, Operator(step.name, _kind(layer), self._inputs(step), weights, uses))

    def _folds_into(self, step: _Step, producer: str) -> bool:
        """Whether a normalization is a factor and an offset of the producer's output channels."""
        shape = self.shapes[step.inputs[0]]
        axis = getattr(step.layer, "axis", None)
        return (
            isinstance(step.layer, L.BatchNormalization)
            and isinstance(axis, int)
            and self.linear.get(producer) == axis % (len(shape) + 1)
            and shape == self.sizes[producer]
            and self._is_only_reader(step)
        )

    def _activate(self, step: _Step) -> None:
        """An activation works in place unless somebody else needs what it overwrites."""
        producer = self.names[step.inputs[0]]
        if self._is_only_reader(step) and producer in self.operators:
            self.linear.pop(producer, None)
            self.normalized.discard(producer)
            self.names[step.outputs[0]] = producer
        else:
            self._add(step, Operator(step.name, _kind(step.layer), self._inputs(step)))


def _kind(layer: Any, prefix: str | None = None) -> str:
    """The name of the layer's class; for a part of a separable convolution that of the part."""
    classes = type(layer).__mro__  # a sparse layer is of the kind of the layer that it replaces
    kind = next((c.__name__ for c in classes if c.__module__.startswith("keras.")), "Operation")
    return kind if prefix is None else kind.replace("Separable", prefix)


def _counted(name: str, variable: Any, is_bias: bool = False) -> Weights:
    values = np.asarray(keras.ops.convert_to_numpy(variable))
    return Weights(name, values.shape, int(np.count_nonzero(values)), values, is_bias)


def affine_of(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift) such that the layer computes x·scale + shift."""
    if isinstance(layer, L.Normalization):
        mean, deviation = np.asarray(layer.mean), np.sqrt(np.asarray(layer.variance))
        scale = 1.0 / np.maximum(deviation, keras.backend.epsilon())
        return scale, -mean * scale
    variance = np.asarray(layer.moving_variance, np.float64)
    scale = 1.0 / np.sqrt(variance + layer.epsilon)
    if layer.gamma is not None:
        scale = scale * np.asarray(layer.gamma)
    shift = -np.asarray(layer.moving_mean) * scale
    return scale, shift if layer.beta is None else shift + np.asarray(layer.beta)


def _folded(operator: Operator, scale: np.ndarray, shift: np.ndarray) -> tuple[Weights, ...]:
    """The operator's weights with an affine map of its output channels multiplied in."""
    kernel = operator.weights[0]
    values = np.asarray(kernel.values)
    factor = scale
    if operator.kind.startswith("Depthwise"):  # (…, inputs, multiplier)
        factor = scale.reshape(kernel.shape[-2:])
    elif operator.kind.endswith("Transpose"):  # (…, outputs, inputs)
        factor = scale[:, None]
    new_kernel = _counted(kernel.name, values * factor)
    bias = operator.weights[1].values if len(operator.weights) > 1 else 0.0
    name = kernel.name.rpartition("/")[0] + "/bias"
    return new_kernel, _counted(name, bias * scale + shift, is_bias=True)
