import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
from keras_sparse.layers.bc import BCMixin
from keras_sparse.layers.estimators import _join_batch, _split_batch, local, mirrored, shared

from .cases import arguments, as_tuple, each_layer, images


def randomise(layer, seed=0):
    """A posterior in which noise and signal are of the same size."""
    rng = np.random.default_rng(seed)
    for variable in layer.named_variables().values():
        if variable.name in ("threshold", "kl_weight"):
            continue
        is_log = "log_variance" in variable.name
        values = (
            rng.normal(-1.5, 0.7, variable.shape)
            if is_log
            else rng.normal(0.5, 0.5, variable.shape)
        )
        variable.assign(values)
    layer._kl_is_scheduled = True


@pytest.mark.parametrize(
    "estimator", [local, mirrored, shared], ids=["local", "mirrored", "shared"]
)
def test_sampled_outputs_have_the_moments_of_sampled_weights(estimator):
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(size=(7, 3)), rng.uniform(0.1, 2.0, size=(7, 3))
    x = rng.normal(size=(1, 7))
    weights = rng.normal(mean, np.sqrt(variance), size=(200_000, 7, 3))
    expected = np.einsum("i,nio->no", x[0], weights)
    many = tf.constant(np.repeat(x, 2, axis=0), tf.float32)
    draw = tf.function(
        lambda step: estimator(
            tf.matmul,
            many,
            tf.constant(mean, tf.float32),
            tf.constant(np.sqrt(variance), tf.float32),
            tf.stack([5, step]),
            tf.identity,
        )
    )
    samples = np.concatenate([draw(tf.constant(step, tf.int64)) for step in range(20_000)])
    np.testing.assert_allclose(samples.mean(axis=0), expected.mean(axis=0), atol=0.08)
    np.testing.assert_allclose(samples.var(axis=0), expected.var(axis=0), rtol=0.04)


def test_mirrored_halves_are_mirrored():
    x = tf.ones((2, 4))
    mean, deviation = tf.zeros((4, 3)), tf.ones((4, 3))
    output = mirrored(tf.matmul, x, mean, deviation, tf.constant([1, 1], tf.int64), tf.identity)
    np.testing.assert_allclose(output[0], -output[1], rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_gradients_of_the_halves_are_those_of_automatic_differentiation(count):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(count, 3)), tf.float32)
    kernels = [tf.constant(rng.normal(size=(3, 2)), tf.float32) for _ in range(2)]
    weights = tf.constant(rng.normal(size=(count, 2)), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, *kernels])
        upper, lower = (tf.matmul(h, k) for h, k in zip(_split_batch(x), kernels, strict=True))
        ours = tf.reduce_sum(weights * _join_batch(upper, lower, tf.shape(x)[0]) ** 2)
        half = (count + 1) // 2
        rows = [tf.matmul(x[:half], kernels[0]), tf.matmul(x[half:], kernels[1])]
        plain = tf.reduce_sum(weights * tf.concat(rows, axis=0) ** 2)
    assert float(ours) == pytest.approx(float(plain))
    for variable in (x, *kernels):
        got, expected = tape.gradient(ours, variable), tape.gradient(plain, variable)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@each_layer
@pytest.mark.parametrize("estimator", ["local", "mirrored", "shared"])
def test_gradients_are_finite_for_extreme_variances(layer_class, estimator):
    layer = layer_class(*arguments(layer_class), estimator=estimator)
    x = images()
    layer.build(x.shape)
    layer.kl_weight = 0.1
    for extreme in (-150.0, 30.0):
        for variable in layer.trainable_variables:
            if "log_variance" in variable.name:
                variable.assign(np.full(variable.shape, extreme))
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.tanh(layer(x, training=True))) + tf.add_n(layer.losses)
        gradients = tape.gradient(total, layer.trainable_variables)
        assert all(np.isfinite(gradient).all() for gradient in gradients), extreme


@pytest.mark.parametrize("count", [1, 5])
@each_layer
def test_mirrored_takes_any_batch(layer_class, count):
    layer = layer_class(*arguments(layer_class), estimator="mirrored")
    x = tf.constant(images(count))
    layer._kl_is_scheduled = True
    with tf.GradientTape() as tape:
        output = layer(x, training=True)
        total = tf.reduce_sum(output**2)
    assert output.shape == layer(x).shape
    assert all(
        np.isfinite(g).all()
        for g in tape.gradient(total, layer.trainable_variables)
        if g is not None
    )


@pytest.mark.parametrize("estimator", ["local", "mirrored", "shared"])
@pytest.mark.parametrize("layer_class", [SpVDDense, SpVDConv2D, BCDense, BCConv2D])
def test_a_layers_samples_have_the_moments_of_its_weights(layer_class, estimator):
    """Mean and variance of one output value, against drawing z, v and b themselves."""
    layer = layer_class(*((2, 3) if "Conv" in layer_class.__name__ else (3,)), estimator=estimator)
    conv = isinstance(layer, keras.layers.Conv2D)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1, 3, 3, 2) if conv else (1, 6)).astype("float32")
    layer.build(x.shape)
    randomise(layer)
    count = 100_000

    def draws(mean, log_variance):
        mean, log_variance = np.asarray(mean), np.asarray(log_variance)
        return rng.normal(mean, np.exp(log_variance / 2), size=(count, *mean.shape))

    stage = layer.stages()[0]
    if isinstance(layer, BCMixin):
        kernel, z = draws(*layer._weights(stage)), draws(*layer._groups(stage))
        bias = draws(layer.bias, layer.named_variables()["bias_log_variance"])
        kernel = kernel * (z[:, None, None, None, :] if conv else z[:, :, None])
        bias = bias * z if conv else bias
    else:
        kernel, bias = draws(*layer._posterior(stage)), np.asarray(layer.bias)
    expected = np.einsum("i,nio->no", x.ravel(), kernel.reshape(count, x.size, -1)) + bias

    batch, steps = tf.constant(np.repeat(x, 4, axis=0)), 6000
    draw = tf.function(lambda: tf.reshape(layer(batch, training=True), (4, -1)))
    samples = np.concatenate([draw() for _ in range(steps)])
    # The bias, and all weights if mirrored, are drawn once a step.
    error = expected.std(axis=0).max() / np.sqrt(steps)
    np.testing.assert_allclose(samples.mean(axis=0), expected.mean(axis=0), atol=5 * error)
    np.testing.assert_allclose(samples.var(axis=0), expected.var(axis=0), rtol=0.1)


@each_layer
def test_prediction_uses_the_pruned_means(layer_class):
    layer = layer_class(*arguments(layer_class))
    x = images()
    layer.build(x.shape)
    randomise(layer)
    flat = np.concatenate([np.ravel(value) for value in as_tuple(layer.log_alpha())])
    layer.threshold = float(np.median(flat))
    expected = x
    for stage, kernel, mask in zip(
        layer.stages(), layer.pruned_kernels(), as_tuple(layer.keep_mask()), strict=True
    ):
        assert 0 < np.mean(mask) < 1 or mask.shape.num_elements() == 1
        zeros = np.count_nonzero(np.asarray(kernel) == 0)
        per_group = kernel.shape.num_elements() // mask.shape.num_elements()
        assert zeros == np.count_nonzero(~np.asarray(mask)) * per_group
        expected = stage.linear(expected, kernel)
    np.testing.assert_allclose(layer(x), expected + layer.pruned_bias(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(layer(x), layer(x))


@each_layer
def test_the_strongest_stays_whatever_the_threshold(layer_class):
    layer = layer_class(*arguments(layer_class), threshold=-1000.0)
    layer.build(images().shape)
    randomise(layer)
    assert layer.prunes_everything()
    for mask, log_alpha in zip(
        as_tuple(layer.keep_mask()), as_tuple(layer.log_alpha()), strict=True
    ):
        assert np.count_nonzero(mask) == 1
        assert np.argmax(np.ravel(mask)) == np.argmin(np.ravel(log_alpha))


@each_layer
def test_every_part_of_the_posterior_gets_a_finite_gradient(layer_class):
    layer = layer_class(*arguments(layer_class))
    x = images()
    layer.build(x.shape)
    randomise(layer)
    layer.kl_weight = 0.1
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(x, training=True) ** 2) + tf.add_n(layer.losses)
    gradients = tape.gradient(total, layer.trainable_variables)
    assert all(g is not None and np.isfinite(g).all() and np.any(g) for g in gradients)


def test_a_bias_of_a_pruned_map_is_zero_and_a_dense_bias_stays():
    conv, dense = BCConv2D(4, 3, threshold=-1000.0), BCDense(4, threshold=-1000.0)
    conv.build((1, 5, 5, 2))
    dense.build((1, 6))
    randomise(conv)
    randomise(dense)
    assert np.count_nonzero(conv.pruned_bias()) == 1
    np.testing.assert_allclose(dense.pruned_bias(), dense.bias)


def test_a_layer_called_twice_counts_its_kl_once():
    layer = SpVDDense(4)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layer(layer(inputs)))
    layer.kl_weight = 1.0
    model(np.ones((2, 4)))
    assert float(sum(model.losses)) == pytest.approx(float(layer.kl_divergence()), rel=1e-5)


def test_a_frozen_layer_adds_no_kl():
    layer = SpVDDense(4)
    layer.build((None, 3))
    layer.kl_weight = 1.0
    layer.trainable = False
    assert layer.losses == []
