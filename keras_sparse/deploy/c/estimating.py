"""RAM and flash of generated C from a measured graph, before anything is quantized.

`streamed_ram` is the memory model "streamed-c" and `table_bytes` the size model "c-flash" of
`keras_sparse.footprint`. The graph becomes a graph of integer operators with the right shapes,
which is planned like a real one. The RAM is that of `to_c` but for a few bytes of counters, where a
shape does not tell the stride. The flash is that of the weights rounded to int8 per channel, with
biases of 32 bits: what `to_c` needs at most, but for rounding.
"""

import math

import numpy as np

from ...footprint.graph import Graph
from ...footprint.graph import Operator as MeasuredOperator
from .integer_graph import UnsupportedError
from .layout import layout
from .operators import (
    Add,
    Concatenation,
    Convolution,
    Dense,
    DepthMaximum,
    IntegerGraph,
    Mean,
    Operator,
    Pooling,
    Rescale,
    Shape,
    Window,
)
from .planning import plan

_WIDE_BIAS = 2**20
_LARGEST_STRIDE = 8


def streamed_ram(graph: Graph, bits: int) -> list[int]:
    """Static RAM of the generated C in bytes, which is one sum: the same for every operator.

    Args:
        graph: The network.
        bits: Of a value; the C has 8.
    """
    del bits
    return [layout(plan(integer_graph(graph))).ram_bytes()] * len(graph.operators)


def table_bytes(graph: Graph, bits: int) -> int:
    """Flash of weights, indices and tables of the generated C in bytes; arguments as above."""
    del bits
    return layout(plan(integer_graph(graph))).flash_bytes()


def integer_graph(graph: Graph) -> IntegerGraph:
    """A graph of integer operators with the shapes and zeros of a measured one.

    Raises:
        UnsupportedError: It has a layer that C is not generated for.
    """
    return _Converter(graph).converted()


class _Converter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.shapes: dict[int, Shape] = {}
        self.tensors: dict[str, int] = {}
        self.operators: list[Operator] = []

    def converted(self) -> IntegerGraph:
        if len(self.graph.inputs) != 1 or len(self.graph.outputs) != 1:
            raise UnsupportedError("C is generated for one input and one output. Received: more")
        image = self._tensor(self.graph.inputs[0], self.graph.shapes[self.graph.inputs[0]])
        for operator in self.graph.operators:
            self._convert(operator)
        output = self.tensors[self.graph.outputs[0]]
        return IntegerGraph(self.shapes, tuple(self.operators), image, output, 1.0, 0, 1.0, 0)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> int:
        number = len(self.shapes)
        if len(shape) > 3:
            raise UnsupportedError(f"C is generated for images and vectors. Received: {shape}")
        height, width, channels = [1] * (3 - len(shape)) + [int(size) for size in shape]
        self.shapes[number] = (height, width, channels)
        self.tensors[name] = number
        return number

    def _convert(self, operator: MeasuredOperator) -> None:
        inputs = [self.tensors[name] for name in operator.inputs]
        source = self.shapes[inputs[0]]
        shape = self.graph.shapes[operator.name]
        pixels = source[0] * source[1]
        if operator.kind == "MaxPooling2D" and pixels > 1 and shape == (pixels, 1, 1):
            output = self._tensor(operator.name, (source[0], source[1], 1))
            self.operators.append(DepthMaximum(inputs[0], output))
            return
        if operator.kind == "Add":
            self._add(operator.name, inputs, shape)
            return
        output = self._tensor(operator.name, shape)
        if operator.kind == "Concatenate":
            self.operators.append(Concatenation(tuple(inputs), output))
        elif operator.kind in ("Conv2D", "DepthwiseConv2D"):
            self.operators.append(self._convolution(operator, inputs[0], output))
        elif operator.kind == "Dense":
            weights = _rounded(operator, 0).T
            bias = np.full(len(weights), _WIDE_BIAS, np.int32)
            self.operators.append(Dense(inputs[0], output, weights, bias, _rescale(len(weights))))
        elif operator.kind in ("MaxPooling2D", "AveragePooling2D"):
            size = (source[0] // self.shapes[output][0], source[1] // self.shapes[output][1])
            kind = "max" if operator.kind == "MaxPooling2D" else "average"
            window = Window(size, size, (0, 0, 0, 0))
            self.operators.append(Pooling(inputs[0], output, kind, window, -128, 127))
        elif operator.kind == "GlobalAveragePooling2D":
            self.operators.append(Mean(inputs[0], output, _rescale(1), 0))
        else:
            raise UnsupportedError(
                "C is generated for convolutions, dense layers, poolings, sums and concatenations. "
                f"Received: {operator.kind}"
            )

    def _add(self, name: str, inputs: list[int], shape: tuple[int, ...]) -> None:
        total = inputs[0]
        for position, other in enumerate(inputs[1:], 1):
            last = position == len(inputs) - 1
            output = self._tensor(name if last else f"{name}/{position}", shape)
            numbers = (2**30, 2**30, 2**30)
            self.operators.append(
                Add(total, other, output, (0, 0), numbers, (0, 0, -19), 0, -128, 127)
            )
            total = output

    def _convolution(self, operator: MeasuredOperator, source: int, output: int) -> Convolution:
        kernel = _rounded(operator, 0)
        height, width, depth, filters = kernel.shape
        image, result = self.shapes[source], self.shapes[output]
        vertical, top, bottom = _window(image[0], result[0], height)
        horizontal, left, right = _window(image[1], result[1], width)
        window = Window((height, width), (vertical, horizontal), (top, bottom, left, right))
        multiplier = 0
        if operator.kind == "DepthwiseConv2D":
            multiplier = filters
            weights = kernel.reshape(height, width, depth * filters, 1).transpose(2, 0, 1, 3)
        else:
            weights = kernel.transpose(3, 0, 1, 2)
        bias = np.full(len(weights), _WIDE_BIAS, np.int32)
        return Convolution(
            source, output, weights, bias, window, _rescale(len(weights)), 0, multiplier
        )


def _window(size: int, result: int, kernel: int) -> tuple[int, int, int]:
    """Stride and padding before and after that make `result` values of `size`."""
    for stride in range(1, _LARGEST_STRIDE + 1):
        if size >= kernel and (size - kernel) // stride + 1 == result:
            return stride, 0, 0
        if math.ceil(size / stride) == result:
            total = max((result - 1) * stride + kernel - size, 0)
            return stride, total // 2, total - total // 2
    raise UnsupportedError(
        f"C is generated for strides up to {_LARGEST_STRIDE}. Received: {size} to {result} values "
        f"with a kernel of {kernel}"
    )


def _rounded(operator: MeasuredOperator, position: int) -> np.ndarray:
    """The kernel as int8, each output channel scaled to the whole range."""
    weights = operator.weights[position]
    if weights.values is None:
        return np.ones(weights.shape, np.int8)
    values = np.asarray(weights.values, np.float64)
    axes = (0, 1) if operator.kind == "DepthwiseConv2D" else tuple(range(values.ndim - 1))
    largest = np.abs(values).max(axis=axes, keepdims=True)
    return np.round(values / np.where(largest > 0, largest, 1.0) * 127).astype(np.int8)


def _rescale(channels: int) -> Rescale:
    return Rescale(np.full(channels, 2**30, np.int32), np.full(channels, -8, np.int8), 0)
