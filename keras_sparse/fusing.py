"""Compiling the arithmetic of large tensors with XLA inside an ordinary graph."""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")

_LARGE = 2**13
"""Elements from which one fused pass over memory saves more than starting it costs (0.1 ms)."""

_TYPICAL_BATCH = 64


def fused(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates an elementwise function of tensors so that XLA compiles it for large ones.

    Inside a function that is compiled as a whole this changes nothing: all of it is fused anyway.

    Args:
        function: Takes tensors only; the first one's size decides.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    def call(*tensors: tf.Tensor) -> Result:
        return compiled(*tensors) if is_large(tensors[0].shape) else function(*tensors)

    call.__doc__ = function.__doc__
    return call


def is_large(shape: Iterable[int | None]) -> bool:
    """Whether a tensor has so many elements that `fused` compiles; None is the axis of a batch."""
    return math.prod(_TYPICAL_BATCH if size is None else size for size in shape) >= _LARGE
