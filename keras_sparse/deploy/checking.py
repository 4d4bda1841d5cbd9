"""Checks of what a user passes, before any work."""

from typing import Any

import numpy as np


def checked_examples(x: Any, shape: tuple[int, ...], function: str) -> np.ndarray:
    """`x` as float32 of shape (examples, *shape); raises in one sentence if it is not."""
    expected = f"(examples, {', '.join(map(str, shape))})"
    if x is None:
        raise ValueError(
            f"{function}() needs x, examples of shape {expected}, to measure the ranges of a model "
            "that was not quantized. Received: x=None"
        )
    try:
        array = np.asarray(x, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"x must be an array of shape {expected}. Received: {type(x).__name__}"
        ) from error
    if array.shape[1:] != shape or len(array) == 0:
        raise ValueError(f"x must have the shape {expected}. Received: {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("x must be finite numbers. Received: x with NaN or infinity")
    return array


def checked_classes(y: Any, examples: int) -> np.ndarray:
    """`y` as an array with one entry per example."""
    array = np.asarray(y)
    if array.ndim == 0 or len(array) != examples:
        raise ValueError(
            f"y must have an entry for each of the {examples} examples. Received: {array.shape}"
        )
    return array
