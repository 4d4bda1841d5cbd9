"""Ways to draw the output of a linear map whose weights are normal, while training.

Both are unbiased: the gradient's expectation is that of sampling the weights anew for every example.

* `local` (the local reparametrisation of Kingma et al., 2015) draws every output value from its own
  normal distribution. It needs a second linear map, for the variances.
* `mirrored` draws the weights themselves once a step, W₊ = θ + σε for the first half of the
  batch and W₋ = θ − σε for the second. It needs no second map, and the mirroring cancels the
  first-order error that all examples of a batch would share.
"""

from collections.abc import Callable

import tensorflow as tf

from .noise import normal_like, perturb

LinearMap = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def local(
    linear: LinearMap, x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """A sample of the output, each value drawn from N(linear(x, mean), linear(x², variance)).

    Args:
        linear: Linear in both arguments: (input, kernel) -> output.
        x: The input, of the policy's compute type, shape (batch, …).
        mean: The kernel's means, float32 (float64 with a float64 policy).
        variance: The kernel's variances, shape and type of `mean`.
        seed: Two integers, shape (2,).

    Returns:
        The output in the type of `x`.
    """
    # In half precision a square overflows above 255 and a variance of e⁻¹⁰ vanishes.
    x_wide = tf.cast(x, mean.dtype)
    output_mean = tf.cast(linear(x, tf.cast(mean, x.dtype)), mean.dtype)
    output_variance = linear(tf.square(x_wide), variance)
    return tf.cast(perturb(output_mean, output_variance, seed), x.dtype)


def mirrored(
    linear: LinearMap, x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """A sample of the output with the kernel drawn once and mirrored for half of the batch.

    Arguments and result as in `local`.
    """
    deviation = tf.sqrt(variance) * normal_like(variance, seed)
    count = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
    # A single example stands in both halves and the second is dropped again: TensorFlow's
    # convolutions do not take empty batches.
    halves = x[: (count + 1) // 2], x[-tf.maximum(count // 2, 1) :]
    kernels = mean + deviation, mean - deviation
    outputs = [linear(x, tf.cast(w, x.dtype)) for x, w in zip(halves, kernels, strict=True)]
    return tf.concat(outputs, axis=0)[:count]


ESTIMATORS = {"local": local, "mirrored": mirrored}
