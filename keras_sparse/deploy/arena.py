"""The RAM of TFLite Micro from a network's graph, without making a flatbuffer.

For a search, which looks at thousands of networks; `MicroModel(…).arena` measures it exactly. What
the activations take is planned as TFLite Micro's greedy planner does it. What stays allocated
beside them, and what is needed while it plans, is a sum over operators and channels, with numbers
that were fitted to measured arenas on a 64-bit machine; `benchmarks/arena.py` says how well.
"""

import keras
import numpy as np

from ..footprint import Graph, register_memory_model
from ..footprint.graph import Operator
from .converting import to_tflite
from .micro import MicroModel

NAME = "tflm-arena"
_ALIGNMENT = 16
_FIXED, _PER_OPERATOR, _PER_KERNEL, _PER_CHANNEL = 740, 159, 97, 8
_PLANNING_PER_OPERATOR = 136


def tflm_arena(graph: Graph, bits: int) -> list[int]:
    """Bytes of TFLite Micro's arena on a 64-bit machine; the same number for every operator."""
    operators = sum(_runtime_operators(graph, operator) for operator in graph.operators)
    weighted = [operator for operator in graph.operators if operator.weights]
    channels = sum(graph.shapes[operator.name][-1] for operator in weighted)
    persistent = _PER_OPERATOR * operators + _PER_KERNEL * len(weighted) + _PER_CHANNEL * channels
    planned = max(activation_bytes(graph, bits), _PLANNING_PER_OPERATOR * operators)
    return [_FIXED + persistent + planned] * len(graph.operators)


def measured_arena(model: keras.Model) -> float:
    """Bytes of the arena of a plain model, measured in TFLite Micro; an objective for a search."""
    shape = model.inputs[0].shape[1:]
    examples = np.random.default_rng(0).random((8, *shape))  # sizes do not depend on values
    return float(MicroModel(to_tflite(model, examples), trusted=True).arena_bytes)


def activation_bytes(graph: Graph, bits: int) -> int:
    """Bytes of all activations, placed by size into the first gap that is free while they live."""
    lives = dict.fromkeys(graph.inputs, (0, 0))
    sizes = {tensor: graph.size(tensor) for tensor in graph.inputs}
    for position, operator in enumerate(graph.operators):
        time = 2 * position + 1
        reads = operator.inputs
        if _is_depth_maximum(graph, operator):  # it reads a copy of another shape
            copy = f"{operator.name}/copy"
            lives[copy], sizes[copy] = (time - 1, time), graph.size(reads[0])
            lives[reads[0]] = (lives[reads[0]][0], max(lives[reads[0]][1], time - 1))
            reads = ()
        lives[operator.name], sizes[operator.name] = (time, time), graph.size(operator.name)
        for tensor in reads:
            lives[tensor] = (lives[tensor][0], time)
    for tensor in graph.outputs:
        lives[tensor] = (lives[tensor][0], 2 * len(graph.operators))
    placed: list[tuple[int, int, tuple[int, int]]] = []
    for tensor in sorted(lives, key=lambda name: -sizes[name]):
        size = -(-sizes[tensor] * bits // (8 * _ALIGNMENT)) * _ALIGNMENT
        first, last = lives[tensor]
        offset = 0
        for start, end, (other_first, other_last) in sorted(placed):
            if other_first <= last and first <= other_last:
                if start - offset >= size:
                    break
                offset = max(offset, end)
        placed.append((offset, offset + size, (first, last)))
    return max((end for _, end, _ in placed), default=0)


def _runtime_operators(graph: Graph, operator: Operator) -> int:
    """How many operators of TFLite Micro an operator of the graph becomes."""
    if operator.kind == "Add":
        return len(operator.inputs) - 1
    if operator.kind == "Dense":
        return 1 + (len(graph.shapes[operator.inputs[0]]) > 1)  # with a flatten before it
    return 3 if _is_depth_maximum(graph, operator) else 1


def _is_depth_maximum(graph: Graph, operator: Operator) -> bool:
    """Whether it is the maximum over the channels, which stands between two changes of shape."""
    before, after = graph.shapes[operator.inputs[0]], graph.shapes[operator.name]
    return (
        operator.kind == "MaxPooling2D"
        and len(before) == 3
        and after == (before[0] * before[1], 1, 1)
        and before[2] > 1
    )


register_memory_model(NAME, tflm_arena)
