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
        parameters: Number of those that are not zero, biases included.
        flash: Bytes with each array in its smallest encoding, indices included.
        working_memory: Bytes of the inputs and parameters of the largest layer.
    """

    parameters: int
    flash: int
    working_memory: int


def sizes_of(graph: Graph, masks: Mapping[str, np.ndarray] | None = None) -> Sizes:
    """Counts a network of which only what the masks keep is left."""
    masks = masks or {}
    kept = [_masked(weights, masks) for weights in graph.weights()]
    nodes = [
        op._replace(weights=tuple(_masked(weights, masks) for weights in op.weights))
        for op in graph.operators
    ]
    memory = working_memory.get("inputs+weights")(graph._replace(operators=tuple(nodes)), _BITS)
    first = graph.first_weighted()
    extra = [_added_biases(op) for op in graph.operators]
    return Sizes(
        parameters=sum(weights.nonzeros for weights in kept) + sum(extra),
        flash=sum(smallest(_values(weights), _BITS).bytes for weights in kept) + sum(extra),
        working_memory=max(
            (b + more for b, more in zip(memory[first:], extra[first:], strict=True)), default=0
        ),
    )


def least_of(graph: Graph, names: Collection[str]) -> Sizes:
    """What is left if each of the named kernels keeps its largest weight only, and every bias."""
    masks = trimmed(graph, names, 0)
    whole = [
        op._replace(weights=tuple(_whole(w) if w.is_bias else w for w in op.weights))
        for op in graph.operators
    ]
    return sizes_of(graph._replace(operators=tuple(whole)), masks)


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
    return {name: score > cut for name, score in scores.items()}


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
    used = working_memory.get("inputs+weights")(graph, _BITS)
    for operator, taken in zip(graph.operators, used, strict=True):
        kernel = next((w for w in operator.weights if w.name in names), None)
        if kernel is None:
            continue
        sizes = np.abs(_values(kernel)).ravel()
        room = memory - (taken - operator.nonzeros) - _biases(operator)
        most = max(1, math.ceil(room + (1.0 - share) * max(0, sizes.size - room)))
        keep = np.zeros(sizes.size, bool)
        keep[np.argsort(-sizes, kind="stable")[:most]] = True
        mask = (keep & (sizes > 0)).reshape(kernel.shape)
        masks[kernel.name] = mask & masks.get(kernel.name, True)  # a layer may be used twice
    return masks


def _biases(operator: Operator) -> int:
    return sum(w.size for w in operator.weights if w.is_bias) + _added_biases(operator)


def _added_biases(operator: Operator) -> int:
    """Biases that an operator gets in int8 only.

    A separable convolution is two there, and training with fake quantization moves the biases of
    the first away from zero.
    """
    first = operator.weights[0] if operator.weights else None
    is_half = first is not None and first.name.endswith("/depthwise_kernel")
    return math.prod(first.shape[-2:]) if first is not None and is_half else 0


def _whole(weights: Weights) -> Weights:
    return weights._replace(values=np.ones(weights.shape), nonzeros=weights.size)


def _values(weights: Weights) -> np.ndarray:
    if weights.values is None:
        raise ValueError(f"graph must have the values of its weights. Received: {weights.name!r}")
    return weights.values


def _masked(weights: Weights, masks: Mapping[str, np.ndarray]) -> Weights:
    if weights.name not in masks:
        return weights
    values = _values(weights) * masks[weights.name]
    return weights._replace(values=values, nonzeros=int(np.count_nonzero(values)))


def _lamp(values: np.ndarray) -> np.ndarray:
    """Scores of the weights of a kernel, of its shape; 0 for what is zero, 1 for the largest."""
    squares = np.square(values, dtype=np.float64).ravel()
    order = np.argsort(-squares, kind="stable")
    scores = np.zeros_like(squares)
    scores[order] = squares[order] / np.maximum(np.cumsum(squares[order]), 1e-300)
    return scores.reshape(values.shape)
