"""The one description of a network that everything here measures: tensors and operators.

The assembler of the search makes it from a configuration without building a model
(`keras_sparse.tuner.network`), `reading.read` from any Keras model; for the same network both give
the same graph. Activations and batch normalization are folded into the operator before them, and
views such as flatten make no operator, as in any runtime for microcontrollers.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Weights(NamedTuple):
    """One array of parameters.

    Attributes:
        name: Unique in the graph; operators that share the array share the name.
        shape: As in Keras: (height, width, inputs, outputs), (inputs, outputs) or (outputs,).
        nonzeros: Number of elements that are not zero.
        values: The elements, or None where only their number is known and none is zero.
        is_bias: Whether it is added to the output instead of multiplied with the input.
    """

    name: str
    shape: Shape
    nonzeros: int
    values: np.ndarray | None = None
    is_bias: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Operator(NamedTuple):
    """One step of a network's execution.

    Attributes:
        name: Name of the layer; also of the tensor that the operator writes.
        kind: Such as "Conv2D", "DepthwiseConv2D", "Dense", "MaxPooling2D", "Add".
        inputs: Names of the tensors that it reads.
        weights: Its arrays of parameters, batch normalization folded in.
        uses: How often each kernel weight is used for one example: multiply-accumulates per weight.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    weights: tuple[Weights, ...] = ()
    uses: int = 0

    @property
    def parameters(self) -> int:
        """Number of parameters, zeros included."""
        return sum(weights.size for weights in self.weights)

    @property
    def nonzeros(self) -> int:
        """Number of parameters that are not zero."""
        return sum(weights.nonzeros for weights in self.weights)

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one example with dense kernels."""
        return self.uses * sum(w.size for w in self.weights if not w.is_bias)

    @property
    def sparse_macs(self) -> int:
        """Multiply-accumulates for one example if zeros are skipped."""
        return self.uses * sum(w.nonzeros for w in self.weights if not w.is_bias)


class Graph(NamedTuple):
    """A network.

    Attributes:
        shapes: Shape of every tensor by name, without the batch.
        operators: In order of execution; see `ordered`.
        inputs: Names of the network's inputs.
        outputs: Names of the tensors that are the network's outputs.
    """

    shapes: dict[str, Shape]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def size(self, tensor: str) -> int:
        """Number of elements of a tensor, for one example."""
        return math.prod(self.shapes[tensor])

    def dense(self) -> "Graph":
        """The same network before pruning: no parameter is zero."""
        operators = [
            operator._replace(
                weights=tuple(w._replace(nonzeros=w.size, values=None) for w in operator.weights)
            )
            for operator in self.operators
        ]
        return self._replace(operators=tuple(operators))

    def weights(self) -> Iterable[Weights]:
        """Every array of parameters once."""
        return {w.name: w for operator in self.operators for w in operator.weights}.values()

    def first_weighted(self) -> int:
        """Position of the first operator with parameters; those before prepare the image."""
        positions = (i for i, operator in enumerate(self.operators) if operator.weights)
        return next(positions, 0)


def ordered(operators: Iterable[Operator], outputs: Iterable[str]) -> tuple[Operator, ...]:
    """The order of execution: before each operator those that it needs, first input first.

    It depends only on the connections, not on the order in which a network was put together.
    Operators that no output needs are left out.
    """
    by_name = {operator.name: operator for operator in operators}
    result: dict[str, Operator] = {}

    def visit(name: str) -> None:
        if name in by_name and name not in result:
            for tensor in by_name[name].inputs:
                visit(tensor)
            result[name] = by_name[name]

    for output in outputs:
        visit(output)
    return tuple(result.values())
