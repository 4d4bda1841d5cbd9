"""The integer twin: a graph of integer operators in NumPy, equal to TFLite Micro in every byte."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

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
    Rescaling,
    Window,
)
from .quantizing_numbers import multiplied, rescaled

_BATCH = 256
"""Examples at once, so that the windows of a convolution fit into memory."""


def run(graph: IntegerGraph, x: np.ndarray) -> np.ndarray:
    """Outputs for int8 images.

    Args:
        graph: The network.
        x: int8, shape (examples, height, width, channels).

    Returns:
        int8, shape (examples, values).
    """
    parts = [_run(graph, x[i : i + _BATCH]) for i in range(0, len(x), _BATCH)]
    return np.concatenate(parts)


def _run(graph: IntegerGraph, x: np.ndarray) -> np.ndarray:
    tensors = {graph.input: x.reshape(len(x), *graph.shapes[graph.input])}
    for operator in graph.operators:
        tensors[operator.output] = _value(operator, tensors).reshape(
            len(x), *graph.shapes[operator.output]
        )
    return tensors[graph.output].reshape(len(x), -1)


def _value(operator: Operator, tensors: dict[int, np.ndarray]) -> np.ndarray:
    if isinstance(operator, Concatenation):
        return np.concatenate([tensors[i].reshape(len(tensors[i]), -1) for i in operator.inputs], 1)
    x = tensors[operator.input]
    if isinstance(operator, Convolution):
        return rescaled(_convolved(x, operator) + operator.bias, operator.rescale)
    if isinstance(operator, Dense):
        # Doubles hold these sums exactly, and multiply matrices fast.
        sums = x.reshape(len(x), -1).astype(np.float64) @ operator.weights.T.astype(np.float64)
        return rescaled(sums.astype(np.int64) + operator.bias, operator.rescale)
    if isinstance(operator, Pooling):
        return _pooled(x, operator)
    if isinstance(operator, Mean):
        sums = x.sum(axis=(1, 2), dtype=np.int64) - operator.zero_sum
        return rescaled(sums, operator.rescale)
    if isinstance(operator, DepthMaximum):
        return x.max(axis=3)
    if isinstance(operator, Rescaling):
        return rescaled(x.astype(np.int64) - operator.input_zero_point, operator.rescale)
    return _sum(x, tensors[operator.other], operator)


def _windows(x: np.ndarray, window: Window, pad_value: int) -> np.ndarray:
    """Shape (examples, rows, columns, channels, kernel height, kernel width)."""
    top, bottom, left, right = window.padding
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=pad_value)
    views = sliding_window_view(padded, window.kernel, axis=(1, 2))
    return views[:, :: window.stride[0], :: window.stride[1]]


def _convolved(x: np.ndarray, operator: Convolution) -> np.ndarray:
    windows = _windows(x, operator.window, operator.pad_value).astype(np.float64)
    weights = operator.weights.astype(np.float64)
    if operator.multiplier:
        windows = np.repeat(windows, operator.multiplier, axis=3)
        sums = np.einsum("nyxckl,ckl->nyxc", windows, weights[..., 0])
    else:
        sums = np.tensordot(windows, weights, axes=((3, 4, 5), (3, 1, 2)))
    return sums.astype(np.int64)


def _pooled(x: np.ndarray, operator: Pooling) -> np.ndarray:
    if operator.kind == "max":
        values = _windows(x, operator.window, -128).max(axis=(4, 5)).astype(np.int64)
    else:
        sums = _windows(x, operator.window, 0).sum(axis=(4, 5), dtype=np.int64)
        count = _windows(np.ones_like(x), operator.window, 0).sum(axis=(4, 5), dtype=np.int64)
        values = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    return np.clip(values, operator.low, operator.high).astype(np.int8)


def _sum(first: np.ndarray, second: np.ndarray, operator: Add) -> np.ndarray:
    total = np.zeros(first.shape, np.int64)
    for i, x in enumerate((first, second)):
        shifted = (x.astype(np.int64) - operator.offsets[i]) << 20
        total += multiplied(
            shifted, np.array(operator.multipliers[i]), np.array(operator.shifts[i])
        )
    total = multiplied(total, np.array(operator.multipliers[2]), np.array(operator.shifts[2]))
    return np.clip(total + operator.zero_point, operator.low, operator.high).astype(np.int8)
