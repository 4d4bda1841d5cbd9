"""Kullback-Leibler divergences between the posteriors of the weights and their priors.

Pure functions of tensors. θ is a mean, σ² a variance and α = σ²/θ² the ratio of noise to signal
of one weight or one group: a weight with a large α carries noise only and can go.
"""

from collections.abc import Callable

import tensorflow as tf

LOG_ALPHA_LIMIT = 8.0
"""log α is clipped to ±this in training: outside, the approximation below is flat."""

EPSILON = 1e-8
"""Added to θ² before its logarithm and to variances before their root."""

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


def log_alpha(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
    """Log α = log σ² − log θ², not clipped; same shape as its arguments."""
    return log_variance - tf.math.log(tf.square(mean) + EPSILON)


def log_uniform_kl(log_alpha: tf.Tensor) -> tf.Tensor:
    """KL(N(θ, αθ²) ‖ log-uniform prior) of each element, in nats, up to a constant.

    The approximation of Molchanov et al. (2017), eq. 14, shifted so that it tends to 0 as
    α → ∞: a pruned weight costs nothing.

    Args:
        log_alpha: Any shape; clip it to ±`LOG_ALPHA_LIMIT` first when training.

    Returns:
        A tensor of the same shape, positive and falling in log α.
    """
    # 1 − sigmoid(x) = sigmoid(−x): accurate where the divergence is close to 0.
    return _K1 * tf.sigmoid(-_K2 - _K3 * log_alpha) + 0.5 * tf.math.softplus(-log_alpha)


# The gradients of the next two are written out: they need half the operations of derived ones,
# which is what a step of a small network spends its time on.


@tf.custom_gradient
def standard_normal_kl(
    log_variances: tf.Tensor, *means: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """KL(N(means, e^log_variances) ‖ N(0, 1)) summed over all elements, in nats; a scalar.

    Args:
        log_variances: Of all elements of `means` in their order, shape (elements,).
        *means: Any shapes.
    """
    squares = tf.add_n([tf.nn.l2_loss(mean) for mean in means])
    total = squares + 0.5 * tf.reduce_sum(tf.math.expm1(log_variances) - log_variances)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        by_log_variance = (0.5 * upstream) * tf.math.expm1(log_variances)
        return by_log_variance, *(upstream * mean for mean in means)

    return total, gradient


@tf.custom_gradient
def group_kl(
    mean: tf.Tensor, log_variance: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """`log_uniform_kl` summed over all groups; log α is limited from above only.

    Groups start at log α = −9, where a clip from below would stop the gradient.
    """
    square = tf.square(mean) + EPSILON
    log_alpha = log_variance - tf.math.log(square)
    limited = tf.minimum(log_alpha, LOG_ALPHA_LIMIT)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        step = tf.sigmoid(-_K2 - _K3 * limited)
        slope = (_K1 * _K3) * step * (1.0 - step) + 0.5 * tf.sigmoid(-limited)
        by_log_alpha = tf.where(log_alpha <= LOG_ALPHA_LIMIT, -upstream * slope, 0.0)
        return -2.0 * by_log_alpha * mean / square, by_log_alpha

    return tf.reduce_sum(log_uniform_kl(limited)), gradient


def clip_log_alpha(log_alpha: tf.Tensor) -> tf.Tensor:
    """Log α within ±`LOG_ALPHA_LIMIT`; the gradient is 1 inside and 0 outside."""
    return tf.clip_by_value(log_alpha, -LOG_ALPHA_LIMIT, LOG_ALPHA_LIMIT)
