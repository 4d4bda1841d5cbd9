"""The layers in every way that Keras can use them."""

import inspect
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_sparse import KLAnnealing, sparsity
from keras_sparse.layers import SpVDConv2D, SpVDDense
from keras_sparse.layers.base import NO_KL_WARNING

from .cases import TWINS, each_layer, images, labels, loss, small_model

L = keras.layers


def fit(model, *, compile_arguments=None, data=None, epochs=2):
    model.compile("adam", loss(), **(compile_arguments or {}))
    x, y = (images(), labels()) if data is None else (data, None)
    callbacks = [KLAnnealing(6, zero_epochs=0, annealing_epochs=1)]
    return model.fit(
        x, y, batch_size=None if y is None else 3, epochs=epochs, verbose=0, callbacks=callbacks
    )


@each_layer
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_fit_changes_the_whole_posterior(layer_class, jit_compile):
    model = small_model(layer_class)
    before = [np.array(v) for v in model.get_layer("sparse").trainable_variables]
    history = fit(model, compile_arguments={"jit_compile": jit_compile, "steps_per_execution": 2})
    assert np.isfinite(history.history["loss"]).all()
    for old, new in zip(before, model.get_layer("sparse").trainable_variables, strict=True):
        assert not np.array_equal(old, new), new.path


@each_layer
def test_fit_from_tf_data_and_eagerly(layer_class):
    data = tf.data.Dataset.from_tensor_slices((images(), labels())).batch(4)
    assert np.isfinite(fit(small_model(layer_class), data=data).history["loss"]).all()
    eager = {"run_eagerly": True}
    assert np.isfinite(fit(small_model(layer_class), compile_arguments=eager).history["loss"]).all()


@each_layer
def test_custom_training_loop(layer_class):
    model, optimizer = small_model(layer_class), keras.optimizers.Adam(0.01)
    annealing = KLAnnealing(6, zero_epochs=0, annealing_epochs=0)
    annealing.set_model(model)
    annealing.on_epoch_begin(0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            total = loss()(y, model(x, training=True)) + sum(model.losses)
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return total

    values = [float(step(images(), labels())) for _ in range(40)]
    assert values[-1] < values[0]


@each_layer
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtype_policies(layer_class, policy):
    model = small_model(layer_class, dtype=policy)
    layer = model.get_layer("sparse")
    assert layer.compute_dtype == {"float64": "float64"}.get(policy, policy[6:])
    assert layer(images() * 300).dtype == layer.compute_dtype
    assert np.isfinite(fit(model).history["loss"]).all()
    layer._kl_is_scheduled = True
    # 300² does not fit into float16: the variances must be computed in float32.
    assert np.isfinite(np.asarray(tf.cast(layer(images() * 300, training=True), tf.float32))).all()


def test_subclassed_model():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.conv, self.flat, self.dense = SpVDConv2D(4, 3), L.Flatten(), SpVDDense(3)

        def call(self, x):
            return self.dense(self.flat(self.conv(x)))

    history = fit(Net())
    assert history.history["nonzeros"][-1] > 0


EXTRAS = [
    {"strides": 2},
    {"padding": "same", "dilation_rate": 2},
    {"use_bias": False, "activation": "tanh"},
    {"strides": 2, "padding": "same", "data_format": "channels_last"},
    {"groups": 2, "filters": 6},
    {"depth_multiplier": 2},
]


def parameters(keras_class):
    return set(inspect.signature(keras_class).parameters)


@pytest.mark.parametrize(
    ("layer_class", "keras_class", "extra"),
    [(ours, k, extra) for ours, k in TWINS for extra in EXTRAS if set(extra) <= parameters(k)],
)
def test_predicts_as_the_keras_layer_with_the_same_weights(layer_class, keras_class, extra):
    arguments = {"filters": 4, "units": 4, "kernel_size": 3, **extra}
    arguments = {key: value for key, value in arguments.items() if key in parameters(keras_class)}
    # A threshold that prunes nothing makes the sparse layer the plain one.
    sparse, plain = layer_class(**arguments, threshold=1e9), keras_class(**arguments)
    x = images(size=8)
    plain.build(x.shape)
    sparse.build(x.shape)
    for stage in sparse.stages():
        kernel = getattr(plain, stage.kernel_name)
        kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
        getattr(sparse, stage.kernel_name).assign(kernel)
    np.testing.assert_allclose(sparse(x), plain(x), rtol=1e-4, atol=1e-4)
    sparse._kl_is_scheduled = True
    assert sparse(x, training=True).shape == plain(x).shape


@pytest.mark.parametrize(
    ("layer_class", "keras_class"),
    [twin for twin in TWINS if not issubclass(twin[1], keras.layers.Dense)],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_a_single_weight_trains_and_predicts_as_the_keras_layer(layer_class, keras_class, padding):
    x = images(size=7, channels=1)
    size = (1,) if issubclass(keras_class, keras.layers.DepthwiseConv2D) else (1, 1)
    plain = keras_class(*size, strides=2, padding=padding)
    sparse = layer_class(*size, strides=2, padding=padding, threshold=1e9)
    expected = plain(x)
    sparse.build(x.shape)
    for theirs, ours in zip(plain.weights, (*_kernels(sparse), sparse.bias), strict=True):
        ours.assign(theirs)
    np.testing.assert_allclose(sparse(x), expected, atol=1e-5)
    # In a compiled step TensorFlow's own convolution fails.
    model = keras.Sequential([keras.Input(x.shape[1:]), sparse, keras.layers.Flatten()])
    model.compile("sgd", "mse")
    model.fit(x, np.zeros(expected.shape).reshape(len(x), -1), verbose=0)


def _kernels(layer):
    return [getattr(layer, stage.kernel_name) for stage in layer.stages()]


def test_dense_on_sequences():
    layer = SpVDDense(3)
    assert layer(np.ones((2, 7, 4))).shape == (2, 7, 3)


def test_regularizers_and_constraints_are_applied():
    model = small_model(SpVDConv2D, kernel_regularizer="l2", kernel_constraint="non_neg")
    model(images())
    assert len(model.losses) == 2  # the user's and the KL term
    fit(model)
    assert np.min(model.get_layer("sparse").kernel) >= 0


@each_layer
def test_saves_and_loads(layer_class, tmp_path):
    model = small_model(layer_class, threshold=-2.5, log_variance_initializer=-4.0)
    fit(model)
    model.get_layer("sparse").threshold = 0.25
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for old, new in zip(model.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    assert float(loaded.get_layer("sparse").threshold) == 0.25
    np.testing.assert_array_equal(model(images()), loaded(images()))
    # Noise goes on where it was: training continues as if nothing had happened.
    again = [m.fit(images(), labels(), epochs=1, shuffle=False, verbose=0) for m in (model, loaded)]
    assert again[0].history["loss"] == again[1].history["loss"]


def test_loads_in_a_new_process_without_custom_objects(tmp_path):
    path = tmp_path / "model.keras"
    small_model(SpVDConv2D).save(path)
    code = (
        "import sys, keras, keras_sparse;"
        "print(type(keras.models.load_model(sys.argv[1]).get_layer('sparse')).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "SpVDConv2D"


@each_layer
def test_a_new_threshold_holds_in_a_compiled_predict(layer_class):
    model = small_model(layer_class, threshold=1e9)
    layer = model.get_layer("sparse")
    full = model.predict(images(), verbose=0)
    traced = model.predict_function
    layer.threshold = -1e9
    pruned = model.predict(images(), verbose=0)
    assert model.predict_function is traced
    assert not np.allclose(full, pruned)
    layer.threshold.assign(1e9)
    np.testing.assert_array_equal(model.predict(images(), verbose=0), full)


def test_same_seed_same_training():
    def trained(seed):
        keras.utils.set_random_seed(seed)
        model = small_model(SpVDConv2D)
        return fit(model).history["loss"]

    assert trained(3) == trained(3)
    assert trained(3) != trained(4)


def test_training_without_kl_says_so_once():
    model = small_model(SpVDConv2D)
    model.compile("adam", loss())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        model.fit(images(), labels(), epochs=3, verbose=0)
        model.fit(images(), labels(), epochs=3, verbose=0)
    assert [str(w.message) for w in caught].count(NO_KL_WARNING) == 1


def test_training_with_kl_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(small_model(SpVDConv2D))
        model = small_model(SpVDConv2D)
        model.get_layer("sparse").kl_weight = 0.1
        model.compile("adam", loss())
        model.fit(images(), labels(), verbose=0)


def test_training_prunes():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 20)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    start = {"log_variance_initializer": -6.0}
    model = keras.Sequential(
        [keras.Input((20,)), SpVDDense(16, activation="relu", **start), SpVDDense(2, **start)]
    )
    model.compile(keras.optimizers.Adam(0.02), loss(), metrics=["accuracy"])
    model.fit(x, y, epochs=120, verbose=0, callbacks=[KLAnnealing(256, 5, 15)])
    assert model.evaluate(x, y, verbose=0)[1] > 0.95
    assert sparsity(model).total.sparsity > 0.6
    # Only the first input matters, and the layer has found that out.
    kernel = np.abs(model.layers[0].pruned_kernels()[0])
    assert np.argmax(kernel.sum(axis=1)) == 0
    alive = np.count_nonzero(kernel, axis=1)
    assert np.mean(alive[1:]) < 0.5 * alive[0]
