"""Standard normal noise from a counter, cheap enough for every activation of every step.

Drawing a normal for each activation with TensorFlow's generators costs more than the convolutions
of a small network, and thirty times more under XLA. Here a noise value of a large tensor is a pure
function of its position, the layer's seed and the step: an integer hash, then the inverse error
function. XLA fuses it with the arithmetic around it, also inside an ordinary graph (`fused`), so no
noise tensor is ever stored; the backward pass computes the same values again. Small tensors take
TensorFlow's stateless generator: there the number of operations counts, and it is one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..fusing import fused, is_large
from ..kl import EPSILON

_SQRT2 = 1.4142135623730951


def _uint32(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)


def _mix(h: tf.Tensor) -> tf.Tensor:
    """A bijection of 32-bit integers in which every input bit moves every output bit."""
    h = (h ^ tf.bitwise.right_shift(h, _uint32(16))) * _uint32(0x7FEB352D)
    h = (h ^ tf.bitwise.right_shift(h, _uint32(15))) * _uint32(0x846CA68B)
    return h ^ tf.bitwise.right_shift(h, _uint32(16))


def _uniform(bits: tf.Tensor) -> tf.Tensor:
    """The upper 23 bits of each integer as a float in the open interval (-1, 1), symmetric."""
    mantissa = tf.bitwise.right_shift(bits, _uint32(9)) | _uint32(0x3F800000)
    # In this order every step is exact in float32, so that neither end is ever reached.
    return (tf.bitcast(mantissa, tf.float32) - 1.0) * 2.0 - (1.0 - 2.0**-23)


def _normal(like: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Standard normals from `seed` (of the layer, of the step) in the shape and type of `like`."""
    shape = tf.shape(like)
    # The key of layer and step is mixed first and joined to the position by an exclusive or: the
    # noise of two steps or layers must not be the same sequence, shifted.
    layer, step = tf.unstack(tf.cast(seed, tf.uint32))
    key = _mix(layer + step * _uint32(0x9E3779B9))
    position = tf.cast(tf.range(tf.reduce_prod(shape)), tf.uint32)
    bits = _mix((position * _uint32(0x9E3779B1)) ^ key)
    return tf.cast(tf.reshape(_SQRT2 * tf.math.erfinv(_uniform(bits)), shape), like.dtype)


@fused
def _perturb(mean: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return mean + tf.sqrt(variance + EPSILON) * _normal(mean, seed)


@fused
def _perturb_variance_gradient(
    gradient: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    noise = _normal(gradient, seed)
    return 0.5 * gradient * noise * tf.math.rsqrt(variance + EPSILON)


@tf.custom_gradient
def _perturb_large(
    mean: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, None]]]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        return upstream, _perturb_variance_gradient(upstream, variance, seed), None

    return _perturb(mean, variance, seed), gradient


def perturb(mean: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """A sample of N(mean, variance) for each element, differentiable in both.

    Args:
        mean: Any shape, float32 or float64.
        variance: Not negative, same shape as `mean`.
        seed: Two integers, shape (2,): of the layer and of the step.

    Returns:
        A tensor of the shape of `mean`.
    """
    if is_large(mean.shape):
        return _perturb_large(mean, variance, seed)
    return mean + tf.sqrt(variance + EPSILON) * _drawn(tf.shape(mean), seed, mean.dtype)


@fused
def _normal_like(like: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return _normal(like, seed)


def normal(shape: Sequence[int | tf.Tensor], seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Standard normals; `seed` as in `perturb`.

    Args:
        shape: Sizes of the axes; one that is not known before the step is a scalar tensor.
        seed: Two integers, shape (2,): of the layer and of the step.
        dtype: float32 or float64.
    """
    if is_large([None if isinstance(size, tf.Tensor) else size for size in shape]):
        return tf.stop_gradient(_normal_like(tf.zeros(shape, dtype), seed))
    return _drawn(shape, seed, dtype)


def _drawn(shape: Any, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.random.stateless_normal(shape, tf.cast(seed, tf.int32), dtype=dtype)
