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


@tf.custom_gradient
def standard_normal_kl(
    mean: tf.Tensor, log_variance: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """KL(N(mean, e^log_variance) ‖ N(0, 1)) summed over all elements, in nats; a scalar.

    The gradient is written out: it needs half the operations of the derived one, which is what a
    step of a small network spends its time on.
    """
    variance = tf.exp(log_variance)
    total = tf.nn.l2_loss(mean) + 0.5 * tf.reduce_sum(variance - log_variance - 1.0)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return upstream * mean, 0.5 * upstream * (variance - 1.0)

    return total, gradient


def clip_log_alpha(log_alpha: tf.Tensor) -> tf.Tensor:
    """Log α within ±`LOG_ALPHA_LIMIT`; the gradient is 1 inside and 0 outside."""
    return tf.clip_by_value(log_alpha, -LOG_ALPHA_LIMIT, LOG_ALPHA_LIMIT)
