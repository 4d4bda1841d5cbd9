"""Ways to draw the output of a linear map whose weights are normal, while training.

All give every single output value the distribution that drawn weights would give it. They differ
in what output values share: with `local` nothing, not even the positions of one feature map, which
use the same weights; with `mirrored` one draw of the weights, by all examples of half a batch; with
`shared` one draw by the whole batch.

* `local` (the local reparametrisation of Kingma et al., 2015) draws every output value from its own
  normal distribution. It needs a second linear map, for the variances.
* `mirrored` draws the weights themselves once a step, W₊ = θ + σε for the first half of the
  batch and W₋ = θ − σε for the second. It needs no second map, and the mirroring cancels the
  first-order error that all examples of a batch would share.
* `shared` draws the weights once a step, W = θ + σε, and is as cheap as a layer without noise.

`auto`, the default of the layers, is `local` for dense layers, where the second map costs little.
For convolutions it is `mirrored` with SpVD, whose noise is all in the weights, and `shared` with
BC, where the noise that prunes is that of the groups' scales, drawn for every example in any case.
`benchmarks/estimators.py` compares what they train to.
"""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from .noise import normal, perturb

LinearMap = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
Finish = Callable[[tf.Tensor], tf.Tensor]


def local(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    deviation: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """A sample of the output, each value drawn from N(linear(x, mean), linear(x², deviation²)).

    Args:
        linear: Linear in both arguments: (input, kernel) -> output.
        x: The input, of the policy's compute type, shape (batch, …).
        mean: The kernel's means, float32 (float64 with a float64 policy).
        deviation: The kernel's standard deviations, shape and type of `mean`.
        seed: Two integers, shape (2,).
        finish: What follows on the output, example by example: bias, activation.

    Returns:
        The finished output in the type of `x`.
    """
    # In half precision a square overflows above 255 and a variance of e⁻¹⁰ vanishes.
    x_wide = tf.cast(x, mean.dtype)
    output_mean = tf.cast(linear(x, tf.cast(mean, x.dtype)), mean.dtype)
    output_variance = linear(tf.square(x_wide), tf.square(deviation))
    return finish(tf.cast(perturb(output_mean, output_variance, seed), x.dtype))


def mirrored(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    deviation: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """A sample of the output with the kernel drawn once and mirrored for half of the batch.

    Arguments and result as in `local`.
    """
    drawn = deviation * normal(deviation.shape, seed, deviation.dtype)
    kernels = mean + drawn, mean - drawn
    halves = _split_batch(x)
    # Finished before they are joined, TensorFlow fuses convolution, bias and activation into one.
    outputs = [
        finish(linear(half, tf.cast(kernel, x.dtype)))
        for half, kernel in zip(halves, kernels, strict=True)
    ]
    output = _join_batch(*outputs, tf.shape(x)[0])
    output.set_shape([x.shape[0], *outputs[0].shape[1:]])
    return output


def shared(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    deviation: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """A sample of the output with the kernel drawn once for the whole batch.

    Arguments and result as in `local`.
    """
    kernel = mean + deviation * normal(deviation.shape, seed, deviation.dtype)
    return finish(linear(x, tf.cast(kernel, x.dtype)))


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


Estimator = Callable[..., tf.Tensor]

ESTIMATORS: dict[str, Estimator] = {"local": local, "mirrored": mirrored, "shared": shared}

AUTOMATIC = "auto"


def estimator_of(name: str, linear: LinearMap, cheap: Estimator) -> Estimator:
    """The estimator of a name; "auto" is `local` for a matrix product and else `cheap`."""
    if name == AUTOMATIC:
        return local if linear is ops.matmul else cheap
    return ESTIMATORS[name]
