"""Quantization-aware training keeps zeros and accuracy, with either engine."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_sparse import datasets, sparsify
from keras_sparse.deploy import MicroModel, quantize, to_tflite
from keras_sparse.deploy.device_rounding import DeviceRounding

from .networks import every_layer, lost_zeros, randomised

L = keras.layers
# One process trains the float model for all.
pytestmark = pytest.mark.xdist_group("quantize")


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def trained(digits):
    """A float model with half of its weights pruned, batch normalization and all convolutions."""
    keras.utils.set_random_seed(3)
    image = keras.Input(digits.input_shape)
    x = L.Conv2D(8, 3, padding="same", use_bias=False)(image)
    x = L.ReLU()(L.BatchNormalization()(x))
    y = L.SeparableConv2D(8, 3, padding="same", activation="relu")(x)
    x = L.DepthwiseConv2D(3, activation="relu")(L.Add()([x, y]))
    outputs = L.Dense(10)(L.Dense(16, activation="relu")(L.Flatten()(L.AveragePooling2D(2)(x))))
    model = keras.Model(image, outputs)
    model.compile(
        keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(digits.x_train, digits.y_train, 32, epochs=8, verbose=0)
    for variable in model.trainable_variables:
        values = np.asarray(variable)
        if values.ndim > 1:
            variable.assign(np.where(np.abs(values) < np.median(np.abs(values)), 0, values))
    return model


def accuracy(model, digits):
    predicted = model.predict(digits.x_test, verbose=0).argmax(-1)
    return float(np.mean(predicted == digits.y_test))


@pytest.fixture(scope="module", params=["native", "tfmot"])
def quantized(request, trained, digits):
    train = digits.x_train, digits.y_train
    return quantize(trained, *train, epochs=4, engine=request.param, batch_size=32, seed=1)


def test_every_zero_stays_zero(quantized, trained):
    assert lost_zeros(trained, to_tflite(quantized)) == 0


def test_the_accuracy_on_tflite_micro_recovers_what_pruning_cost(quantized, trained, digits):
    micro = MicroModel(to_tflite(quantized), trusted=True)
    on_device = micro.evaluate(digits.x_test, digits.y_test)
    assert on_device > accuracy(trained, digits)
    assert on_device > 0.9
    assert abs(on_device - accuracy(quantized, digits)) < 0.01


def test_the_model_predicts_what_tflite_micro_computes(quantized, digits):
    micro = MicroModel(to_tflite(quantized), trusted=True)
    steps = (micro.predict(digits.x_test) - quantized.predict(digits.x_test, verbose=0)) / (
        micro.output.scale
    )
    assert np.abs(steps).max() < 1.5
    # Rounding once, as floats do, it is equal in about 90 %.
    assert np.mean(np.abs(steps) < 0.5) > 0.99


def test_more_training_undoes_the_rounding_of_the_device(trained, digits):
    quantized = quantize(trained, digits.x_train[:100], epochs=0)
    layers = [layer for layer in quantized.layers if isinstance(layer, DeviceRounding)]
    assert len(layers) == 7
    assert all(float(layer.is_settled) == 1.0 for layer in layers)
    quantized(digits.x_train[:10], training=True)
    assert all(float(layer.is_settled) == 0.0 for layer in layers)


def test_no_normalization_is_left(quantized):
    assert not any(isinstance(layer, L.BatchNormalization) for layer in quantized.layers)


def test_the_process_is_as_before_tfmot(trained, digits):
    quantize(trained, digits.x_train, digits.y_train, epochs=1, engine="tfmot")
    assert "TF_USE_LEGACY_KERAS" not in os.environ
    assert tf.keras.Model is keras.Model
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones(8), verbose=0)


def test_the_same_seed_gives_the_same_flatbuffer(trained, digits):
    train = digits.x_train[:300], digits.y_train[:300]
    first, second = (to_tflite(quantize(trained, *train, epochs=1, seed=5)) for _ in range(2))
    assert first == second


def test_with_validation_data_the_best_epoch_is_kept(trained, digits):
    validation = digits.x_val, digits.y_val
    before = quantize(trained, digits.x_train, epochs=0)
    start = float(np.mean(before.predict(digits.x_val, verbose=0).argmax(-1) == digits.y_val))
    ruined = quantize(
        trained,
        digits.x_train[:64],
        digits.y_train[:64] * 0,  # all of one class: every epoch makes it worse
        epochs=3,
        learning_rate=0.05,
        validation_data=validation,
    )
    measured = ruined.evaluate(*validation, verbose=0, return_dict=True)
    assert measured["accuracy"] >= start - 0.02


def test_the_model_given_is_not_changed(trained, digits):
    before = trained.get_weights()
    quantize(trained, digits.x_train[:100], digits.y_train[:100], epochs=1)
    for old, new in zip(before, trained.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_quantized_model_can_be_saved_and_loaded(trained, digits, tmp_path):
    quantized = quantize(trained, digits.x_train, epochs=0)
    quantized.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert to_tflite(loaded) == to_tflite(quantized)
    x = digits.x_test[:50]
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), quantized.predict(x, verbose=0))


def test_dead_units_stay_dead():
    model = randomised(every_layer(), np.random.default_rng(0))
    kernel, bias = model.get_layer("left").get_weights()
    kernel[:, 2], bias[2] = 0.0, 0.0
    model.get_layer("left").set_weights([kernel, bias])
    x = np.random.default_rng(1).random((64, 12, 12, 3)).astype(np.float32)
    quantized = quantize(model, x, np.arange(64) % 4, epochs=2, learning_rate=0.01)
    assert np.all(np.asarray(quantized.get_layer("left").bias)[2] == 0.0)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"engine": "torch"}, "engine must be one of .*'torch'"),
        ({"epochs": -1}, "epochs must be.*epochs=-1"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"y": None}, "y must be the classes.*epochs=1"),
        ({"y": np.zeros(3, int)}, "entry for each of the 8 examples"),
        ({"y": np.zeros((8, 7))}, "loss must be given for a model that is not compiled"),
        ({"x": np.zeros((8, 12, 12, 1))}, r"x must have the shape .*Received: \(8, 12, 12, 1\)"),
        ({"input_range": (0.5, 1.0)}, "input_range must be"),
        ({"validation_data": (np.zeros((2, 3)), [0, 1])}, "x must have the shape"),
    ],
)
def test_wrong_arguments_are_refused(changed, message):
    given = {"x": np.zeros((8, 12, 12, 3)), "y": np.zeros(8, int), "epochs": 1, **changed}
    with pytest.raises(ValueError, match=message):
        quantize(every_layer(), given.pop("x"), given.pop("y"), **given)


def test_models_that_are_not_plain_are_refused():
    x, y = np.zeros((8, 12, 12, 3)), np.zeros(8, int)
    with pytest.raises(ValueError, match=r"strip\(\) the model first"):
        quantize(sparsify(every_layer()), x, y)
    with pytest.raises(ValueError, match="not quantized yet"):
        quantize(quantize(every_layer(), x, epochs=0), x, y)
    with pytest.raises(ValueError, match="built"):
        quantize(keras.Sequential([L.Dense(2)]), x, y)
