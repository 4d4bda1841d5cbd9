"""What to_tflite makes is int8, small, complete, and computes what the model computes."""

import keras
import numpy as np
import pytest

from keras_sparse import measure
from keras_sparse.deploy import MicroModel, quantize, to_tflite
from keras_sparse.deploy.converting import converted, with_rounded_weights
from keras_sparse.deploy.flatbuffer import TFLM_OPERATORS, TYPE_NAMES, parse, schema

from .networks import every_layer, lost_zeros, randomised, sampled

L = keras.layers
RNG = np.random.default_rng(0)
EXAMPLES = RNG.random((64, 12, 12, 3)).astype(np.float32)


def steps_between(flatbuffer: bytes, model: keras.Model, x: np.ndarray) -> np.ndarray:
    """Differences of outputs on TFLite Micro from a model's, in steps of the output."""
    micro = MicroModel(flatbuffer, trusted=True)
    return np.abs(micro.predict(x) - model.predict(x, verbose=0)) / micro.output.scale


def check_sampled(seed: int) -> float:
    """A random network of the search space: runs, equals its simulation, keeps zeros.

    Most networks equal it in every output. Where a tensor has two readers of different scales, the
    converter may give both the coarser one, so that a part of the outputs is one step off.

    Returns:
        The estimated arena as a share of the measured one.
    """
    model = sampled(seed)
    x = np.random.default_rng(seed).random((32, *model.input_shape[1:])).astype(np.float32)
    quantized = quantize(model, x, epochs=0)
    flatbuffer = to_tflite(quantized)
    steps = steps_between(flatbuffer, quantized, x)
    assert steps.max() < 1.5 and np.mean(steps < 0.5) > 0.7, f"seed {seed}: {steps.max()}"
    assert lost_zeros(model, flatbuffer) == 0
    micro = MicroModel(flatbuffer, trusted=True)
    assert "SHAPE" not in micro.operators
    return measure(model, working_memory="tflm-arena").working_memory / micro.arena_bytes


@pytest.mark.parametrize("start", range(0, 8, 2))
def test_random_networks_of_the_search_space_convert(start):
    for seed in range(start, start + 2):
        assert 0.75 < check_sampled(seed) < 1.35


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 200, 10))
def test_many_random_networks_of_the_search_space_convert(start):
    shares = np.array([check_sampled(seed) for seed in range(start, start + 10)])
    # An estimate: now and then one is further off, 0.71 at the worst that was seen.
    assert np.mean((shares > 0.75) & (shares < 1.35)) >= 0.8
    assert shares.min() > 0.6 and shares.max() < 1.6


@pytest.mark.parametrize(
    "activation",
    ["relu", "relu6", "tanh", "sigmoid", "leaky_relu", L.ReLU(6.0, name="limited")],
    ids=str,
)
def test_every_layer_and_activation_converts(activation):
    model = randomised(every_layer(activation), np.random.default_rng(1))
    quantized = quantize(model, EXAMPLES, epochs=0)
    flatbuffer = to_tflite(quantized)
    assert steps_between(flatbuffer, quantized, EXAMPLES).max() < 1.5
    assert steps_between(flatbuffer, model, EXAMPLES).max() < 12.5
    assert lost_zeros(model, flatbuffer) == 0


def test_everything_is_int8_and_an_operator_of_tflite_micro():
    model = parse(to_tflite(every_layer(), EXAMPLES))
    types = {TYPE_NAMES[tensor.type] for tensor in model.subgraphs[0].tensors}
    assert types == {"INT8", "INT32"}
    micro = MicroModel(to_tflite(every_layer(), EXAMPLES), trusted=True)
    assert set(micro.operators) <= set(TFLM_OPERATORS)
    assert {"ADD", "CONCATENATION", "MEAN", "DEPTHWISE_CONV_2D"} <= set(micro.operators)
    assert not {"SHAPE", "PACK", "STRIDED_SLICE", "QUANTIZE"} & set(micro.operators)


def test_names_and_metadata_are_gone_and_data_is_aligned():
    flatbuffer, before = converted(every_layer(), EXAMPLES)
    assert len(flatbuffer) < 0.85 * before
    model = parse(flatbuffer)
    assert model.metadata is None and model.signatureDefs is None
    assert all(tensor.name is None for tensor in model.subgraphs[0].tensors)
    root = schema.Model.GetRootAsModel(flatbuffer, 0)
    buffers = [root.Buffers(number) for number in range(root.BuffersLength())]
    starts = [b._tab.Vector(b._tab.Offset(4)) for b in buffers if b.DataLength()]
    assert starts and all(start % 16 == 0 for start in starts)


def test_weights_are_quantized_per_channel():
    tensors = parse(to_tflite(every_layer(), EXAMPLES)).subgraphs[0].tensors
    kernels = [t for t in tensors if TYPE_NAMES[t.type] == "INT8" and len(t.quantization.scale) > 1]
    # First, depthwise and 1×1 part of the separable one, depthwise, left, last.
    assert sorted(len(t.quantization.scale) for t in kernels) == [4, 5, 6, 6, 6, 12]


def test_a_large_bias_on_a_pruned_channel_survives():
    model = keras.Sequential([keras.Input((4, 4, 1)), L.Conv2D(2, 3), L.Flatten()])
    kernel, _ = model.layers[0].get_weights()
    kernel[..., 0] = 0.0
    model.layers[0].set_weights([kernel, np.array([50.0, 0.0])])
    x = RNG.random((20, 4, 4, 1)).astype(np.float32)
    assert steps_between(to_tflite(model, x), model, x).max() < 1.5


def test_normalization_that_cannot_be_folded_is_kept():
    image = keras.Input((6, 6, 2))
    x = L.Conv2D(3, 3, activation="relu")(image)
    x = L.GlobalMaxPooling2D()(L.BatchNormalization()(x))
    model = keras.Model(image, L.Dense(2)(L.BatchNormalization()(x)))
    randomised(model, np.random.default_rng(3))
    examples = RNG.random((40, 6, 6, 2)).astype(np.float32)
    assert steps_between(to_tflite(model, examples), model, examples).max() < 4.5


@pytest.mark.parametrize("kind", [L.Conv2D, L.DepthwiseConv2D, L.Dense])
def test_the_scaling_of_pixels_costs_nothing(kind):
    weighted = kind(3, 3) if kind is L.Conv2D else kind(3)
    layers = [L.Rescaling(1 / 50, -0.5), weighted]
    shape = (4,) if kind is L.Dense else (6, 6, 2)
    model = randomised(keras.Sequential([keras.Input(shape), *layers]), np.random.default_rng(2))
    pixels = RNG.integers(0, 256, (40, *shape)).astype(np.float32)
    flatbuffer = to_tflite(model, pixels)
    assert len(MicroModel(flatbuffer, trusted=True).operators) == 1
    assert steps_between(flatbuffer, model, pixels).max() < 1.6


def test_a_shift_before_padding_is_kept():
    layers = [L.Rescaling(1 / 50, -0.5), L.Conv2D(3, 3, padding="same")]
    model = keras.Sequential([keras.Input((6, 6, 2)), *layers])
    pixels = RNG.integers(0, 256, (40, 6, 6, 2)).astype(np.float32)
    flatbuffer = to_tflite(model, pixels)
    assert MicroModel(flatbuffer, trusted=True).operators == ("DEPTHWISE_CONV_2D", "CONV_2D")
    assert steps_between(flatbuffer, model, pixels).max() < 2.6


def test_nested_models_and_sums_of_three_convert():
    inner = keras.Sequential([keras.Input((6, 6, 2)), L.Conv2D(2, 3, padding="same")])
    image = keras.Input((6, 6, 2))
    x = L.Add()([inner(image), image, L.Dropout(0.5)(image)])
    model = keras.Model(image, L.Dense(3)(L.Flatten()(x)))
    examples = RNG.random((40, 6, 6, 2)).astype(np.float32)
    flatbuffer = to_tflite(model, examples)
    assert MicroModel(flatbuffer, trusted=True).operators.count("ADD") == 2
    assert steps_between(flatbuffer, model, examples).max() < 4.5


def test_the_depthwise_maximum_of_an_image_converts():
    image = keras.Input((6, 5, 3))
    x = L.MaxPooling2D((1, 3))(L.Reshape((30, 3, 1))(image))
    model = keras.Model(image, L.Conv2D(2, 3)(L.Reshape((6, 5, 1))(x)))
    examples = RNG.random((40, 6, 5, 3)).astype(np.float32)
    assert steps_between(to_tflite(model, examples), model, examples).max() < 1.6


def test_compressed_kernels_save_flash_cost_ram_and_change_no_output():
    model = keras.Sequential(
        [keras.Input((12, 12, 3)), L.Conv2D(8, 3, activation="relu"), L.Flatten(), L.Dense(10)]
    )
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([np.where(RNG.random(kernel.shape) < 0.8, 0, kernel), bias])
    quantized = quantize(model, EXAMPLES, epochs=0)
    plain = MicroModel(to_tflite(quantized))
    small = MicroModel(to_tflite(quantized, compress=True))
    assert "TFLM_DECODE" in small.operators
    assert len(small.flatbuffer) < 0.5 * len(plain.flatbuffer)
    assert small.arena_bytes > plain.arena_bytes
    np.testing.assert_array_equal(small.predict(EXAMPLES), plain.predict(EXAMPLES))


def test_a_dense_network_is_not_compressed():
    flatbuffer = to_tflite(every_layer(), EXAMPLES)
    assert "TFLM_DECODE" not in MicroModel(flatbuffer, trusted=True).operators
    assert len(to_tflite(every_layer(), EXAMPLES, compress=True)) == len(flatbuffer)


def test_the_plain_model_with_rounded_weights_can_be_measured():
    quantized = quantize(every_layer(), EXAMPLES, epochs=0)
    assert measure(with_rounded_weights(quantized, ranges=False)).parameters > 0


def test_an_unsupported_layer_is_named_with_the_supported_ones():
    model = keras.Sequential([keras.Input((8, 8, 1)), L.Conv2DTranspose(2, 3, name="up")])
    with pytest.raises(ValueError, match="takes models of Conv2D, .*'up'.*Conv2DTranspose"):
        to_tflite(model, np.zeros((2, 8, 8, 1)))
    with pytest.raises(ValueError, match="activation elu"):
        to_tflite(every_layer("elu"), EXAMPLES)


@pytest.mark.parametrize(
    "x, message",
    [
        (None, "needs x.*x=None"),
        (
            np.zeros((5, 12, 12, 1)),
            r"must have the shape \(examples, 12, 12, 3\).*\(5, 12, 12, 1\)",
        ),
        (np.zeros((0, 12, 12, 3)), r"Received: \(0, 12, 12, 3\)"),
        (np.full((1, 12, 12, 3), np.nan), "finite"),
        ("images", "array of shape"),
    ],
)
def test_examples_that_do_not_fit_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        to_tflite(every_layer(), x)


def test_models_that_cannot_be_read_are_refused():
    with pytest.raises(ValueError, match="built"):
        to_tflite(keras.Sequential([L.Dense(2)]), np.zeros((1, 2)))
    with pytest.raises(TypeError, match="Keras model"):
        to_tflite("model.keras", EXAMPLES)
    image = keras.Input((None, None, 1))
    with pytest.raises(ValueError, match="fixed shape"):
        to_tflite(keras.Model(image, L.Conv2D(1, 3)(image)), EXAMPLES)
    with pytest.raises(ValueError, match="one input and one output"):
        to_tflite(
            keras.Model(a := keras.Input((2,)), [L.Dense(1)(a), L.Dense(1)(a)]), np.ones((1, 2))
        )
