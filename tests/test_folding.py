import keras
import numpy as np
import pytest

from keras_sparse import measure, strip
from keras_sparse.layers import BCDense, BCDepthwiseConv2D

L = keras.layers


def network(**scale_arguments):
    inputs = keras.Input((6, 6, 2))
    x = L.Conv2D(8, 3, padding="same", use_bias=False, name="conv")(inputs)
    x = L.BatchNormalization(name="norm")(x)
    x = BCDepthwiseConv2D(
        **{"kernel_size": 1, "use_bias": False, "name": "scale", **scale_arguments}
    )(x)
    x = L.Conv2D(3, 3, padding="same", name="next")(L.ReLU()(x))
    model = keras.Model(inputs, BCDense(2, threshold=100.0, name="logits")(L.Flatten()(x)))
    rng = np.random.default_rng(0)
    for layer in model.layers:
        for variable in layer.weights:
            if variable.name not in ("threshold", "kl_weight"):
                variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    means = model.get_layer("scale").group_means()[0]
    means.assign(np.where(np.arange(means.shape[0])[:, None] < 3, 1e-5, 1.0) * np.ones(means.shape))
    model.get_layer("scale").threshold = 3.0
    return model


def same_predictions(a, b):
    x = np.random.default_rng(1).normal(size=(5, 6, 6, 2)).astype("float32")
    np.testing.assert_allclose(a.predict(x, verbose=0), b.predict(x, verbose=0), rtol=1e-4)


def test_maps_that_die_behind_batch_normalization_are_removed_despite_padding():
    model = network()
    small = strip(model)
    same_predictions(model, small)
    assert small.get_layer("conv").filters == 5
    assert isinstance(small.get_layer("scale"), L.Identity)
    footprint = measure(small, before=model)
    # conv 5·18 + 5, next 3·45 + 3, logits 108·2 + 2; before: 8 maps
    assert footprint.parameters == 95 + 138 + 218
    assert footprint.before.parameters == (8 * 18 + 8) + (3 * 72 + 3) + 218


@pytest.mark.parametrize(
    "arguments",
    [{"kernel_size": 3, "padding": "same"}, {"use_bias": True}, {"depth_multiplier": 2}],
)
def test_other_depthwise_convolutions_stay(arguments):
    model = network(**arguments)
    small = strip(model)
    same_predictions(model, small)
    assert isinstance(small.get_layer("scale"), L.DepthwiseConv2D)


def test_a_normalization_that_others_read_stays_as_it_is():
    inputs = keras.Input((6, 6, 2))
    x = L.BatchNormalization(name="norm")(L.Conv2D(2, 3, padding="same")(inputs))
    y = BCDepthwiseConv2D(1, use_bias=False, threshold=100.0, name="scale")(x)
    model = keras.Model(inputs, L.Add()([x, y]))
    small = strip(model)
    x = np.random.default_rng(1).normal(size=(5, 6, 6, 2)).astype("float32")
    np.testing.assert_allclose(model(x), small(x), rtol=1e-5, atol=1e-6)
    assert isinstance(small.get_layer("scale"), L.DepthwiseConv2D)
