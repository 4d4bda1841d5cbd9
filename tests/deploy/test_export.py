"""An exported folder has all that a TFLite Micro project needs, and says what is true."""

import json
import re

import keras
import numpy as np
import pytest

from keras_sparse.deploy import MicroModel, export, exporting, quantize

from .networks import every_layer

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (60, 12, 12, 3))
CLASSES = RNG.integers(0, 4, 60)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("export")
    model = every_layer()
    x = ((PIXELS - 100.0) / 50.0).astype(np.float32)
    quantized = quantize(model, x, epochs=0, input_range=(-2.0, 3.1))
    card = export(
        quantized,
        folder / "new",
        test_data=(x, CLASSES),
        original=model,
        class_names=["cat", "dog", "cow", "hen"],
        mean=100.0,
        deviation=50.0,
    )
    return folder / "new", card, x


def test_the_source_has_the_bytes_of_the_flatbuffer(exported):
    folder, card, _ = exported
    flatbuffer = (folder / "model.tflite").read_bytes()
    source = (folder / "model_data.cc").read_text()
    body = source[source.index("{") : source.index("}")]
    assert bytes(int(byte, 16) for byte in re.findall(r"0x[0-9a-f]{2}", body)) == flatbuffer
    assert "alignas(16) const unsigned char g_model_data[]" in source
    assert f"g_model_data_size = {len(flatbuffer)};" in source
    assert "g_model_data" in (folder / "model_data.h").read_text()
    assert card["flatbuffer bytes"] == len(flatbuffer) < card["flatbuffer bytes before stripping"]


def test_the_resolver_has_exactly_the_operators_used(exported):
    folder, _, _ = exported
    micro = MicroModel((folder / "model.tflite").read_bytes())
    header = (folder / "model_ops.h").read_text()
    added = re.findall(r"resolver\.Add(\w+)\(\)", header)
    assert f"MicroMutableOpResolver<{len(added)}>" in header
    names = {name.replace("_", "").lower() for name in micro.operators}
    assert {name.lower() for name in added} == names and len(added) == len(names)
    assert f"kModelArenaSize = {-(-micro.arena_bytes // 16) * 16};" in header


def test_the_card_says_what_was_measured(exported):
    folder, card, x = exported
    assert json.loads((folder / "model_card.json").read_text()) == card
    micro = MicroModel((folder / "model.tflite").read_bytes())
    assert card["accuracy"]["tflite-micro"] == micro.evaluate(x, CLASSES)
    assert set(card["accuracy"]) == {"float", "fake-quant", "tflite-micro"}
    confusion = np.array(card["confusion matrix"])
    assert confusion.sum() == 60
    assert np.trace(confusion) == round(60 * card["accuracy"]["tflite-micro"])
    assert confusion.sum(axis=1).tolist() == np.bincount(CLASSES, minlength=4).tolist()
    assert {"inputs+weights", "inputs+outputs", "live"} <= set(card["sizes"]["working memory"])
    text = (folder / "model_card.md").read_text()
    assert "q = pixel - 128" in text and "| cat |" in text
    assert f"{micro.arena_bytes:,} B" in text


def test_the_input_is_the_pixel_minus_128_where_that_is_true(exported):
    folder, card, x = exported
    micro = MicroModel((folder / "model.tflite").read_bytes())
    assert card["input"]["prepared by"] == "q = pixel - 128"
    np.testing.assert_array_equal(micro.input.quantized(x), PIXELS - 128)


def test_elsewhere_the_card_has_a_table_of_pixels(tmp_path):
    mean, deviation = np.array([100.0, 90.0, 80.0]), np.array([50.0, 60.0, 70.0])
    x = ((PIXELS - mean) / deviation).astype(np.float32)
    card = export(every_layer(), tmp_path, x, mean=mean, deviation=deviation)
    table = np.array(card["input"]["table"])
    micro = MicroModel((tmp_path / "model.tflite").read_bytes())
    for channel in range(3):
        q = micro.input.quantized(x)[..., channel]
        np.testing.assert_array_equal(table[channel][PIXELS[..., channel]], q)
    assert card["accuracy"] == {"float": None, "fake-quant": None, "tflite-micro": None}


def test_without_tflite_micro_all_but_its_numbers_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "has_wheel", lambda: False)
    card = export(every_layer(), tmp_path, RNG.random((9, 12, 12, 3)))
    assert card["arena"] is None
    assert "not measured" in (tmp_path / "model_card.md").read_text()
    assert "not measured" in (tmp_path / "model_ops.h").read_text()


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path):
    x = RNG.random((9, 12, 12, 3))
    with pytest.raises(ValueError, match="class_names.*4 classes.*Received: 2"):
        export(every_layer(), tmp_path / "a", x, class_names=["a", "b"])
    with pytest.raises(ValueError, match="mean and deviation"):
        export(every_layer(), tmp_path / "a", x, mean=1.0)
    with pytest.raises(ValueError, match="x must have the shape"):
        export(every_layer(), tmp_path / "a", x, test_data=(x[:, :5], CLASSES[:9]))
    assert not (tmp_path / "a").exists()


def test_a_network_that_takes_averages_is_exported(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(4),
        ]
    )
    x = ((PIXELS - 100.0) / 50.0).astype(np.float32)
    card = export(quantize(model, x, epochs=0), tmp_path, test_data=(x, CLASSES), original=model)
    assert card["operators"]["AVERAGE_POOL_2D"] == 1
    assert card["sizes"]["parameters"] == model.count_params()
