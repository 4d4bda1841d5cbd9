"""Ways to draw the output of a linear map whose weights are normal, while training.

Both give every single output value the distribution that drawn weights would give it. They differ
in what output values share: with `local` nothing, not even the positions of one feature map, which
use the same weights; with `mirrored` one draw of the weights, by all examples of half a batch.

* `local` (the local reparametrisation of Kingma et al., 2015) draws every output value from its own
  normal distribution. It needs a second linear map, for the variances.
* `mirrored` draws the weights themselves once a step, W₊ = θ + σε for the first half of the
  batch and W₋ = θ − σε for the second. It needs no second map, and the mirroring cancels the
  first-order error that all examples of a batch would share.

`auto`, the default of the layers, is `local` for dense layers, where the second map costs little,
and `mirrored` for convolutions. `benchmarks/estimators.py` compares what they train to.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops

from ..kl import EPSILON
from .noise import normal_like, perturb

LinearMap = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
Finish = Callable[[tf.Tensor], tf.Tensor]


def local(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """A sample of the output, each value drawn from N(linear(x, mean), linear(x², variance)).

    Args:
        linear: Linear in both arguments: (input, kernel) -> output.
        x: The input, of the policy's compute type, shape (batch, …).
        mean: The kernel's means, float32 (float64 with a float64 policy).
        variance: The kernel's variances, shape and type of `mean`.
        seed: Two integers, shape (2,).
        finish: What follows on the output, example by example: bias, activation.

    Returns:
        The finished output in the type of `x`.
    """
    # In half precision a square overflows above 255 and a variance of e⁻¹⁰ vanishes.
    x_wide = tf.cast(x, mean.dtype)
    output_mean = tf.cast(linear(x, tf.cast(mean, x.dtype)), mean.dtype)
    output_variance = linear(tf.square(x_wide), variance)
    return finish(tf.cast(perturb(output_mean, output_variance, seed), x.dtype))


def mirrored(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """A sample of the output with the kernel drawn once and mirrored for half of the batch.

    Arguments and result as in `local`.
    """
    deviation = tf.sqrt(variance + EPSILON) * normal_like(variance, seed)
    kernels = mean + deviation, mean - deviation
    halves = _split_batch(x)
    # Finished before they are joined, TensorFlow fuses convolution, bias and activation into one.
    outputs = [
        finish(linear(half, tf.cast(kernel, x.dtype)))
        for half, kernel in zip(halves, kernels, strict=True)
    ]
    output = _join_batch(*outputs, tf.shape(x)[0])
    output.set_shape([x.shape[0], *outputs[0].shape[1:]])
    return output


# TensorFlow's convolutions do not take empty batches, so a single example stands in both halves and
# the second one's output is dropped. The gradients are written out because those of slices would
# fill whole tensors with zeros.


@tf.custom_gradient
def _split_batch(x: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
    count = tf.shape(x)[0]

    def gradient(upper: tf.Tensor, lower: tf.Tensor) -> tf.Tensor:
        return tf.concat([upper, lower], axis=0)[:count]

    return _halves(x, count), gradient


@tf.custom_gradient
def _join_batch(
    upper: tf.Tensor, lower: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor, None]]]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
        first, second = _halves(upstream, count)
        return first, second * tf.cast(count > 1, second.dtype), None

    return tf.concat([upper, lower], axis=0)[:count], gradient


def _halves(x: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return x[: (count + 1) // 2], x[count - tf.maximum(count // 2, 1) :]


def automatic(linear: LinearMap, *arguments: Any) -> tf.Tensor:
    """`local` for a matrix product, where the second map is cheap; else `mirrored`."""
    return (local if linear is ops.matmul else mirrored)(linear, *arguments)


ESTIMATORS = {"auto": automatic, "local": local, "mirrored": mirrored}
