"""Configurations to the graph that `measure` takes, without building a Keras model."""

import math

from keras_sparse.footprint import Graph, Operator, Weights
from keras_sparse.footprint.graph import Shape, ordered

from .network import Convolution, Kernel, Node, assemble
from .parameters import Configuration, Space, Value


def graph_of(configuration: Configuration, input_shape: Shape, num_classes: int) -> Graph:
    """The graph of a configuration's network before pruning, without building a Keras model."""
    builder = GraphBuilder()
    return builder.graph(assemble(configuration, input_shape, num_classes, builder).output)


def repaired(
    configuration: Configuration, space: Space, input_shape: Shape
) -> tuple[Configuration, dict[str, tuple[Value, Value]]]:
    """The configuration whose values say what is built, and (old, new) of each that changed.

    Values stay within their ranges: on a map of one pixel a kernel of 2 stays 2 although only one
    tap of it is built. The number of classes changes nothing here.
    """
    wanted = assemble(configuration, input_shape, 2, GraphBuilder()).repairs
    repairs: dict[str, tuple[Value, Value]] = {}
    result = dict(configuration)
    for name, value in wanted.items():
        parameter = space[name]
        if parameter.values:
            new: Value = value if parameter.contains(value) else configuration[name]
        else:
            new = parameter.nearest(float(value))
        if new != configuration[name]:
            repairs[name] = (configuration[name], new)
            result[name] = new
    return result, repairs


class GraphBuilder:
    """Makes operators; see `network.Builder`. No array is ever allocated."""

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}
        self.operators: list[Operator] = []

    def graph(self, output: Node) -> Graph:
        """The finished graph."""
        operators = ordered(self.operators, [output.tensor])
        return Graph(self.shapes, operators, ("input",), (output.tensor,))

    def input(self, shape: Shape) -> Node:
        self.shapes["input"] = shape
        return Node("input", shape)

    def _add(
        self,
        name: str,
        kind: str,
        inputs: list[Node],
        shape: Shape,
        weights: tuple[Weights, ...] = (),
        uses: int = 0,
    ) -> Node:
        self.shapes[name] = shape
        tensors = tuple(node.tensor for node in inputs)
        self.operators.append(Operator(name, kind, tensors, weights, uses))
        return Node(name, shape)

    def depth_maximum(self, x: Node, name: str) -> Node:
        # As a pooling over a view of the image, whose output has this shape.
        node = self._add(name, "MaxPooling2D", [x], (math.prod(x.shape[:2]), 1, 1))
        return Node(node.tensor, (*x.shape[:2], 1))

    def pool(self, x: Node, name: str, kind: str, window: Kernel) -> Node:
        shape = (x.shape[0] // window[0], x.shape[1] // window[1], x.shape[2])
        return self._add(name, f"{kind.capitalize()}Pooling2D", [x], shape)

    def global_average(self, x: Node, name: str) -> Node:
        return self._add(name, "GlobalAveragePooling2D", [x], x.shape[-1:])

    def convolution(self, x: Node, spec: Convolution) -> Node:
        name, kernel, depth = spec.name, spec.kernel, x.shape[-1]
        height, width = (
            math.ceil(size / spec.stride)
            if spec.padding == "same"
            else (size - side) // spec.stride + 1
            for size, side in zip(x.shape[:2], kernel, strict=True)
        )
        uses = height * width
        kernel_name = f"{name}/kernel"
        if spec.separable:
            taps = _full(f"{name}/depthwise_kernel", (*kernel, depth, 1))
            size = (height, width, depth)
            x = self._add(f"{name}/depthwise", "DepthwiseConv2D", [x], size, (taps,), uses)
            kernel_name, kernel = f"{name}/pointwise_kernel", (1, 1)
        weights = (
            _full(kernel_name, (*kernel, depth, spec.filters)),
            _full(f"{name}/bias", (spec.filters,), is_bias=True),
        )
        return self._add(name, "Conv2D", [x], (height, width, spec.filters), weights, uses)

    def dense(
        self, x: Node, name: str, units: int, *, norm: bool, relu: bool, threshold: str
    ) -> Node:
        weights = (
            _full(f"{name}/kernel", (math.prod(x.shape), units)),
            _full(f"{name}/bias", (units,), is_bias=True),
        )
        return self._add(name, "Dense", [x], (units,), weights, 1)

    def flatten(self, x: Node, name: str) -> Node:
        return Node(x.tensor, (math.prod(x.shape),))

    def add(self, nodes: list[Node], name: str, *, relu: bool) -> Node:
        return self._add(name, "Add", nodes, nodes[0].shape)

    def concatenate(self, nodes: list[Node], name: str) -> Node:
        width = sum(node.shape[0] for node in nodes)
        return self._add(name, "Concatenate", nodes, (width,))


def _full(name: str, shape: Shape, is_bias: bool = False) -> Weights:
    return Weights(name, shape, math.prod(shape), None, is_bias)
