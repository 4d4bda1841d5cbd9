"""Trimming: limits that hold, zeros that stay, what goes first, mistakes."""

import keras
import numpy as np
import pytest

from keras_sparse import Trimming, datasets, measure, sparsify, strip
from keras_sparse.deploy import quantize
from keras_sparse.deploy.converting import with_rounded_weights
from keras_sparse.footprint import read
from keras_sparse.trim_rules import least_of, parameters_within, sizes_of, trimmed, trimmed_layers
from keras_sparse.trimming import kernels_of, sizes_left, trim, trim_layers
from tests.random_models import RandomModel
from tests.tables_parts import small_network

L = keras.layers


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def network() -> keras.Model:
    """A plain network with every kind of kernel, a model in a model, a layer that is used twice."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1))
    layers = [keras.Input((6, 6, 8)), L.Conv2D(8, 3, padding="same"), L.BatchNormalization()]
    inner = keras.Sequential(layers, name="inner")
    x = L.Conv2D(8, 3, name="first")(image)
    x = L.ReLU()(inner(x))
    x = L.DepthwiseConv2D(3, name="depthwise")(x)
    x = L.BatchNormalization()(x)
    x = L.SeparableConv2D(12, 3, activation="relu", name="separable")(x)
    twice = L.Dense(12, activation="relu", name="twice")
    x = L.Flatten()(twice(twice(x)))
    model = keras.Model(image, L.Dense(10, name="last")(x))
    for layer in model._flatten_layers():
        if isinstance(layer, L.BatchNormalization):
            layer.gamma.assign(np.linspace(0.5, 2.0, layer.gamma.shape[0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def zeros_of(model: keras.Model) -> list[np.ndarray]:
    return [kernel.numpy() == 0 for kernel in kernels_of(model).values()]


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"parameters": 400}, "nonzeros"),
        ({"flash": 600}, "sparse_bytes"),
        ({"working_memory": 450}, "working_memory"),
    ],
)
def test_a_limit_holds_after_training(digits, limits, field):
    model, limit = network(), next(iter(limits.values()))
    before = getattr(measure(model), field)
    history = model.fit(
        digits.x_train, digits.y_train, epochs=6, verbose=0, callbacks=[Trimming(**limits)]
    )
    left = getattr(measure(model), field)
    assert limit < before
    assert 0.8 * limit < left <= limit
    assert history.history["accuracy"][-1] > 0.5


def test_several_limits_hold_together(digits):
    model = network()
    trimming = Trimming(800, flash="0.9KB", working_memory=450)
    model.fit(digits.x_train, digits.y_train, epochs=2, verbose=0, callbacks=[trimming])
    footprint = measure(model)
    assert footprint.nonzeros <= 800
    assert footprint.sparse_bytes <= 0.9 * 1024
    assert footprint.working_memory <= 450


def without_biases() -> keras.Model:
    """Quantized, every operator has biases."""
    layers = [L.Conv2D(6, 3, use_bias=False), L.ReLU(), L.Flatten(), L.Dense(10, use_bias=False)]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers])


@pytest.mark.parametrize("make", [lambda: small_network(8), without_biases])
def test_limits_hold_in_int8(digits, make):
    model = make()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    trimming = Trimming(250, flash=420, working_memory=400)
    model.fit(digits.x_train, digits.y_train, epochs=3, verbose=0, callbacks=[trimming])
    quantized = quantize(model, digits.x_train, digits.y_train, epochs=1, seed=0)
    footprint = measure(with_rounded_weights(quantized, ranges=False))
    assert footprint.nonzeros <= 250
    assert footprint.sparse_bytes <= 420
    assert footprint.working_memory <= 400


def test_zeros_stay_in_this_and_in_later_trainings(digits):
    model = network()
    trim(model, 600)
    before = zeros_of(model)
    model.fit(digits.x_train, digits.y_train, epochs=1, verbose=0, callbacks=[Trimming()])
    model.fit(digits.x_train, digits.y_train, epochs=1, verbose=0)
    for old, new in zip(before, zeros_of(model), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_model_that_was_trained_before_is_trimmed_while_it_trains(digits):
    model, seen = network(), []
    data = (digits.x_train[:128], digits.y_train[:128])
    model.fit(*data, epochs=1, verbose=0)

    class Counted(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(sizes_left(model).parameters)

    model.fit(*data, epochs=2, verbose=0, callbacks=[Trimming(500), Counted()])
    assert seen == [500, 500]
    model.fit(*data, epochs=2, verbose=0, callbacks=[Trimming(300), Counted()])
    assert seen == [500, 500, 300, 300]


def test_averaged_weights_are_held_and_a_constraint_is_kept(digits):
    model = network()
    first = model.get_layer("first").kernel
    first.constraint = keras.constraints.NonNeg()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2, use_ema=True), loss)
    model.fit(
        digits.x_train[:128], digits.y_train[:128], epochs=2, verbose=0, callbacks=[Trimming(500)]
    )
    assert measure(model).nonzeros <= 500
    assert (first.numpy() >= 0).all()


def test_maps_that_a_normalization_silences_are_left_alone():
    model = network()
    norm = next(n for n in model._flatten_layers() if isinstance(n, L.BatchNormalization))
    norm.gamma.assign(0.0 * norm.gamma)
    trim(model, sizes_left(model).parameters - 20)
    inner = model.get_layer("inner").layers[0].kernel.numpy()
    assert inner.all()


@pytest.mark.parametrize("epochs", [1, 2, 3, 5])
@pytest.mark.parametrize(("begin", "end"), [(0.0, 0.5), (0.4, 0.5), (0.9, 1.0)])
def test_everything_is_gone_in_the_end(epochs, begin, end):
    trimming = Trimming(100, begin=begin, end=end)
    trimming.set_params({"epochs": epochs})
    shares = [trimming.share(epoch) for epoch in range(epochs)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_weights_go_bit_by_bit_between_begin_and_end(digits):
    model, counts = network(), []
    start = sizes_left(model).parameters

    class Counted(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            counts.append(sizes_left(model).parameters)

    callbacks = [Trimming(500, begin=0.25, end=0.75), Counted()]
    model.fit(digits.x_train[:64], digits.y_train[:64], epochs=8, verbose=0, callbacks=callbacks)
    assert counts[0] == counts[1] == start
    assert start > counts[2] > counts[3] > counts[4] > counts[5] == counts[7] == 500
    assert counts[2] - counts[3] > counts[4] - counts[5]


def test_weights_are_compared_as_they_are_stored():
    keras.utils.set_random_seed(0)
    image = keras.Input((4, 4, 1))
    x = L.Conv2D(2, 2, use_bias=False, name="conv")(image)
    norm = L.BatchNormalization(name="norm")
    model = keras.Model(image, L.Flatten()(L.ReLU()(norm(x))))
    model.get_layer("conv").kernel.assign(np.ones((2, 2, 1, 2)) * [[[[1.0, 0.9]]]])
    norm.gamma.assign([1.0, 2.0])  # the second map is larger in the end
    trim(model, sizes_left(model).parameters - 4)
    kernel = model.get_layer("conv").kernel.numpy()
    assert not kernel[..., 0].any()
    assert kernel[..., 1].all()


@pytest.mark.parametrize("seed", range(8))
def test_the_rules_keep_what_they_promise(seed):
    model = strip(RandomModel(seed, "spvd").build())
    graph, names = read(model), list(kernels_of(model))
    whole, least = sizes_of(graph), least_of(graph, names)
    found = measure(model)
    biases = [[w for w in op.weights if w.is_bias] for op in graph.operators if op.weights]
    if all(some and some[0].nonzeros == some[0].size for some in biases):
        assert whole == (found.nonzeros, found.sparse_bytes, found.working_memory)
    assert whole.parameters >= found.nonzeros
    for share in (0.1, 0.5, 0.9):
        wanted = int(least.parameters + share * (whole.parameters - least.parameters))
        assert sizes_of(graph, trimmed(graph, names, wanted)).parameters == wanted
        flash = int(least.flash + share * (whole.flash - least.flash))
        count = parameters_within(graph, names, flash)
        assert sizes_of(graph, trimmed(graph, names, count)).flash <= flash
        memory = int(least.working_memory + share * (whole.working_memory - least.working_memory))
        masks = trimmed_layers(graph, names, memory)
        assert sizes_of(graph, masks).working_memory <= memory


def test_a_layer_keeps_its_largest_weight():
    model = network()
    trim(model, 0)
    assert all(np.count_nonzero(~zeros) == 1 for zeros in zeros_of(model))
    trim_layers(model, 1)
    assert all(np.count_nonzero(~zeros) == 1 for zeros in zeros_of(model))


def test_a_frozen_layer_is_left_alone(digits):
    model = network()
    model.get_layer("last").trainable = False
    trim(model, 1400)
    assert model.get_layer("last").kernel.numpy().all()


def test_a_trimmed_model_can_be_saved(digits, tmp_path):
    model = network()
    model.fit(digits.x_train[:64], digits.y_train[:64], verbose=0, callbacks=[Trimming(500)])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(digits.x_val, verbose=0), model.predict(digits.x_val, verbose=0), rtol=1e-5
    )


def test_a_training_that_ends_too_early_warns(digits):
    model = network()

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    with pytest.warns(UserWarning, match="parameters is .* above its limit: train on to 50%"):
        model.fit(
            digits.x_train[:64], digits.y_train[:64], epochs=9, verbose=0,
            callbacks=[Trimming(400), Stop()],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parameters": 0}, "parameters must be a whole number of at least 1. Received"),
        ({"flash": "2 pages"}, "flash must be a positive number of bytes or a text .*'2 pages'"),
        ({"begin": 0.5}, "begin must be below end, and end at most 1"),
        ({"end": 1.5}, "begin must be below end, and end at most 1"),
        ({"begin": "now"}, "begin must be a number of at least 0. Received: begin='now'"),
    ],
)
def test_mistakes_in_the_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Trimming(**arguments)


@pytest.mark.parametrize("name", ["parameters", "flash", "working_memory"])
def test_a_limit_that_cannot_be_met_is_refused_before_training(name):
    trimming = Trimming(**{name: 5})
    trimming.set_params({"epochs": 3})
    with pytest.raises(ValueError, match=rf"{name} must be at least \d+, what model .* takes with"):
        trimming.set_model(network())


def test_a_sparse_model_is_refused():
    model = sparsify(network(), method="spvd")
    with pytest.raises(ValueError, match="strip.model. makes one of a model with sparse layers"):
        Trimming(400).set_model(model)
    Trimming(400).set_model(strip(model))


def test_a_custom_loop_must_say_how_many_epochs():
    trimming = Trimming(400)
    trimming.set_model(network())
    with pytest.raises(ValueError, match="Trimming needs the number of epochs"):
        trimming.on_epoch_begin(0)
