"""Which weights of a network go first: pure functions of its graph, for `Trimming`.

Kernels are compared as they will be stored, batch normalization folded in. A mask has the shape of
its kernel and is True where a weight stays.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from .footprint import Graph, Operator, Weights, working_memory
from .footprint.encodings import smallest

Masks = dict[str, np.ndarray]
"""By the names of the kernels in the graph."""

_BITS = 8


class Sizes(NamedTuple):
    """What a network takes in int8.

    Attributes:
        parameters: Number of those that are not zero, and all biases.
        flash: Bytes with each array in its smallest encoding, indices included.
        working_memory: Bytes of the inputs and parameters of the largest layer.
    """

    parameters: int
    flash: int
    working_memory: int


def sizes_of(graph: Graph, masks: Mapping[str, np.ndarray] | None = None) -> Sizes:
    """Counts a network of which only what the masks keep is left; a bias is never zero for long."""
    masks = masks or {}
    operators = [
        op._replace(weights=(*(_left(weights, masks) for weights in op.weights), *_added(op)))
        for op in graph.operators
    ]
    whole = graph._replace(operators=tuple(operators))
    memory = _memory(whole)[whole.first_weighted() :]
    return Sizes(
        parameters=sum(weights.nonzeros for weights in whole.weights()),
        flash=sum(smallest(_values(weights), _BITS).bytes for weights in whole.weights()),
        working_memory=max(memory, default=0),
    )


def least_of(graph: Graph, names: Collection[str]) -> Sizes:
    """What is left if each of the named kernels keeps its largest weight only."""
    return sizes_of(graph, trimmed(graph, names, 0))


def trimmed(graph: Graph, names: Collection[str], parameters: int) -> Masks:
    """Keeps the most important weights of the named kernels, such that `parameters` are left.

    By LAMP (Lee et al., 2021): the square of a weight over the sum of squares of those of its
    kernel that are not smaller. It spares kernels of which little is left; the largest weight of
    each always stays.
    """
    scores = {w.name: _lamp(_values(w)) for w in graph.weights() if w.name in names}
    can_go = np.concatenate([np.zeros(0), *(s[(s > 0) & (s < 1)] for s in scores.values())])
    excess = min(sizes_of(graph).parameters - parameters, len(can_go))
    cut = np.partition(can_go, excess - 1)[excess - 1] if excess > 0 else 0.0
    # What is zero because of a normalization alone stays: that may change while it trains.
    return {name: (score > cut) | (score == 0) for name, score in scores.items()}


def parameters_within(graph: Graph, names: Collection[str], flash: int) -> int:
    """As many parameters as the most important ones fit into `flash` bytes, indices included."""
    least, most = least_of(graph, names).parameters, sizes_of(graph).parameters

    def bytes_of(parameters: int) -> int:
        return sizes_of(graph, trimmed(graph, names, parameters)).flash

    found = least + bisect_right(range(least, most + 1), flash, key=bytes_of) - 1
    while found > least and bytes_of(found) > flash:  # bytes rise almost, not quite, steadily
        found -= 1
    return max(found, least)


def trimmed_layers(graph: Graph, names: Collection[str], memory: int, share: float = 1.0) -> Masks:
    """Keeps the largest weights of each kernel, such that inputs and parameters of a layer fit.

    Args:
        graph: The network.
        names: Of the kernels that may be trimmed.
        memory: Bytes that a layer may take.
        share: Of what is too much, so much goes.
    """
    masks: Masks = {}
    for operator, taken in zip(graph.operators, _memory(graph), strict=True):
        kernel = next((w for w in operator.weights if w.name in names), None)
        if kernel is None:
            continue
        sizes = np.abs(_values(kernel)).ravel()
        biases = sum(w.size for w in (*operator.weights, *_added(operator)) if w.is_bias)
        room = memory - (taken - operator.nonzeros) - biases
        most = max(1, math.ceil(room + (1.0 - share) * max(0, sizes.size - room)))
        keep = sizes == 0
        keep[np.argsort(-sizes, kind="stable")[:most]] = True
        mask = keep.reshape(kernel.shape)
        masks[kernel.name] = mask & masks.get(kernel.name, True)  # a layer may be used twice
    return masks


def _memory(graph: Graph) -> list[int]:
    return working_memory.get("inputs+weights")(graph, _BITS)


def _added(operator: Operator) -> tuple[Weights, ...]:
    """The biases that an operator has in int8 only, where training moves them away from zero."""
    if not operator.weights or any(weights.is_bias for weights in operator.weights):
        return ()
    kernel = operator.weights[0]
    shape = kernel.shape[-1:]
    if operator.kind.startswith("Depthwise"):  # (…, inputs, multiplier)
        shape = (math.prod(kernel.shape[-2:]),)
    elif operator.kind.endswith("Transpose"):  # (…, outputs, inputs)
        shape = kernel.shape[-2:-1]
    name = f"{kernel.name}/bias"
    return (_whole(Weights(name, shape, 0, is_bias=True)),)


def _whole(weights: Weights) -> Weights:
    return weights._replace(values=np.ones(weights.shape), nonzeros=weights.size)


def _left(weights: Weights, masks: Mapping[str, np.ndarray]) -> Weights:
    if weights.is_bias:
        return _whole(weights)
    if weights.name not in masks:
        return weights
    values = _values(weights) * masks[weights.name]
    return weights._replace(values=values, nonzeros=int(np.count_nonzero(values)))


def _values(weights: Weights) -> np.ndarray:
    if weights.values is None:
        raise ValueError(f"graph must have the values of its weights. Received: {weights.name!r}")
    return weights.values


def _lamp(values: np.ndarray) -> np.ndarray:
    """Scores of the weights of a kernel, of its shape; 0 for what is zero, 1 for the largest."""
    squares = np.square(values, dtype=np.float64).ravel()
    order = np.argsort(-squares, kind="stable")
    scores = np.zeros_like(squares)
    scores[order] = squares[order] / np.maximum(np.cumsum(squares[order]), 1e-300)
    return scores.reshape(values.shape)
