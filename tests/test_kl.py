import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

from keras_sparse import kl


def exact_log_uniform_kl(log_alpha: float) -> float:
    """−½ log α + E log|1 + √α t|, t standard normal, plus the limit that makes it end at 0."""
    root = np.exp(log_alpha / 2)

    def integrand(t: float) -> float:
        return np.log(abs(1 + root * t) + 1e-300) * stats.norm.pdf(t)

    singular = max(-1 / root, -12.0)
    below, _ = integrate.quad(integrand, -12.0, singular, limit=500)
    above, _ = integrate.quad(integrand, singular, 12.0, limit=500)
    expectation = below + above
    return -0.5 * log_alpha + expectation + 0.5 * (np.euler_gamma + np.log(2))


@pytest.mark.parametrize("log_alpha", np.arange(-8.0, 8.01, 0.5))
def test_approximation_agrees_with_numerical_integration(log_alpha):
    approximation = float(kl.log_uniform_kl(tf.constant(log_alpha, tf.float64)))
    assert approximation == pytest.approx(exact_log_uniform_kl(log_alpha), abs=0.015)


def test_log_uniform_kl_falls_to_zero():
    values = kl.log_uniform_kl(tf.linspace(-8.0, 8.0, 200)).numpy()
    assert np.all(np.diff(values) < 0)
    assert 0 < values[-1] < 0.001


def test_standard_normal_kl_agrees_with_numerical_integration():
    mean, deviation = 0.7, 0.4
    posterior = stats.norm(mean, deviation)

    def integrand(w: float) -> float:
        return posterior.pdf(w) * (posterior.logpdf(w) - stats.norm.logpdf(w))

    expected, _ = integrate.quad(integrand, -5, 6)
    got = kl.standard_normal_kl(tf.constant([2 * np.log(deviation)], tf.float32), tf.constant(mean))
    assert float(got) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mean", [0.0, 1e-30, -1e-4, 1.0, 1e15])
@pytest.mark.parametrize("log_variance", [-80.0, -10.0, 0.0, 80.0])
def test_gradients_are_finite_everywhere(mean, log_variance):
    mean, log_variance = tf.Variable(mean), tf.Variable(log_variance)
    with tf.GradientTape() as tape:
        value = kl.log_uniform_kl(kl.clip_log_alpha(kl.log_alpha(mean, log_variance)))
    assert np.isfinite(value)
    assert np.isfinite(tape.gradient(value, [mean, log_variance])).all()


@pytest.mark.parametrize("edge", [-kl.LOG_ALPHA_LIMIT, kl.LOG_ALPHA_LIMIT])
def test_gradient_at_the_edge_of_the_clip_is_finite_and_zero_outside(edge):
    for offset, is_flat in ((0.0, False), (np.sign(edge) * 0.1, True)):
        log_alpha = tf.Variable(edge + offset, dtype=tf.float32)
        with tf.GradientTape() as tape:
            value = kl.log_uniform_kl(kl.clip_log_alpha(log_alpha))
        gradient = float(tape.gradient(value, log_alpha))
        assert np.isfinite(gradient)
        assert (gradient == 0.0) == is_flat


def test_gradient_of_the_standard_normal_kl_is_that_of_its_formula():
    mean, log_variance = tf.Variable([0.7, -2.0, 0.0]), tf.Variable([-3.0, 0.0, 1.5])
    with tf.GradientTape(persistent=True) as tape:
        total = 3.0 * kl.standard_normal_kl(log_variance, mean[:1], mean[1:])
        terms = 0.5 * (tf.exp(log_variance) + mean**2 - 1.0 - log_variance)
        expected = 3.0 * tf.reduce_sum(terms)
    assert float(total) == pytest.approx(float(expected), rel=1e-6)
    for variable in (mean, log_variance):
        np.testing.assert_allclose(
            tape.gradient(total, variable), tape.gradient(expected, variable), rtol=1e-6
        )


def test_gradient_of_the_groups_kl_is_that_of_its_formula():
    mean = tf.Variable([0.7, -2.0, 0.0, 1e-3, 1.0])
    log_variance = tf.Variable([-9.0, 0.0, 1.5, -2.0, 8.5])  # the third and last are past the limit
    with tf.GradientTape(persistent=True) as tape:
        total = 3.0 * kl.group_kl(mean, log_variance)
        limited = tf.minimum(kl.log_alpha(mean, log_variance), kl.LOG_ALPHA_LIMIT)
        expected = 3.0 * tf.reduce_sum(kl.log_uniform_kl(limited))
    assert float(total) == pytest.approx(float(expected), rel=1e-6)
    for variable in (mean, log_variance):
        gradient = tape.gradient(total, variable)
        np.testing.assert_allclose(gradient, tape.gradient(expected, variable), rtol=1e-5)
        assert gradient[2] == 0.0
        assert gradient[4] == 0.0
