import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_sparse.layers import BCConv2D, bc, estimators
from keras_sparse.layers.noise import _uniform, normal, perturb


def draw(shape, layer, step):
    return normal(shape, tf.constant([layer, step], tf.int64), tf.float32).numpy()


@pytest.mark.parametrize(("count", "draws"), [(400_000, 1), (1000, 400)])  # hashed and generated
def test_is_standard_normal(count, draws):
    noise = np.concatenate([draw((count,), 12345, step) for step in range(draws)])
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-3
    assert abs(scipy.stats.kurtosis(noise)) < 0.05


@pytest.mark.parametrize("count", [20_000, 5000])
def test_steps_layers_and_positions_are_independent(count):
    # Neighbouring seeds and steps, as layers and training steps have them.
    draws = np.stack([draw((count,), layer, step) for layer in (1, 2) for step in (0, 1, 2)])
    shifted = np.roll(draws[0], 1)
    correlation = np.corrcoef(np.vstack([draws, shifted]))
    off_diagonal = correlation[~np.eye(len(correlation), dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(count)
    # Nor are two steps the same values at other positions.
    values = np.sort(draws, axis=1)
    assert np.mean(np.isin(values[0], values[1])) < 0.05


def test_same_seed_same_values():
    np.testing.assert_array_equal(draw((5, 7), 3, 4), draw((5, 7), 3, 4))
    assert not np.array_equal(draw((5, 7), 3, 4), draw((5, 7), 3, 5))


def test_extreme_bits_give_finite_symmetric_values():
    bits = tf.constant([0, 2**32 - 1, 1 << 9, 2**31], tf.uint32)
    uniform = _uniform(bits).numpy()
    assert np.all(np.abs(uniform) < 1)
    assert uniform[0] == -uniform[1]
    assert np.isfinite(tf.math.erfinv(uniform)).all()


@pytest.mark.parametrize("shape", [(3, 4), (300, 40)])  # generated and hashed
def test_gradient_is_that_of_the_sample_it_belongs_to(shape):
    mean = tf.Variable(np.random.default_rng(0).normal(size=shape), dtype=tf.float32)
    variance = tf.Variable(np.full(shape, 0.3), dtype=tf.float32)
    seed = tf.constant([1, 2], tf.int64)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(perturb(mean, variance, seed) ** 2)
    by_mean, by_variance = tape.gradient(total, [mean, variance])
    sample = perturb(mean, variance, seed)
    noise = (sample - mean) / tf.sqrt(variance)
    np.testing.assert_allclose(by_mean, 2 * sample, rtol=1e-4)
    expected = sample * noise / tf.sqrt(variance)
    np.testing.assert_allclose(by_variance, expected, rtol=1e-3, atol=1e-5)


def test_gradient_is_finite_without_variance():
    zero = tf.Variable(tf.zeros((2, 2)))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(perturb(zero, zero, tf.constant([1, 2], tf.int64)))
    assert np.isfinite(tape.gradient(total, zero)).all()


def test_layers_with_neighbouring_seeds_share_no_noise(monkeypatch):
    seeds = []

    def recorded(shape, seed, dtype):
        seeds.append(tuple(np.array(seed)))
        return normal(shape, seed, dtype)

    monkeypatch.setattr(bc, "normal", recorded)
    monkeypatch.setattr(estimators, "normal", recorded)
    for seed in range(4):
        layer = BCConv2D(2, 3, seed=seed)
        layer._kl_is_scheduled = True
        layer(np.ones((2, 5, 5, 1), np.float32), training=True)
    assert len(seeds) == 12  # of groups, bias and kernel
    assert len(set(seeds)) == 12
