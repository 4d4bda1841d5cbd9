"""MicroModel runs TFLite Micro and measures its RAM exactly."""

import importlib.util

import keras
import numpy as np
import pytest

from keras_sparse.deploy import MicroModel, micro, to_tflite
from keras_sparse.deploy.flatbuffer import Quantization
from keras_sparse.deploy.probe import runs

from .networks import every_layer

EXAMPLES = np.random.default_rng(0).random((40, 12, 12, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def flatbuffer() -> bytes:
    keras.utils.set_random_seed(1)
    return to_tflite(every_layer(), EXAMPLES)


def test_the_arena_is_the_smallest_that_works(flatbuffer):
    arena = MicroModel(flatbuffer).arena
    assert runs(flatbuffer, arena.total)
    assert not runs(flatbuffer, arena.total - 1)
    assert 0 < arena.head < arena.total and 0 < arena.tail < arena.total
    assert arena.head >= 12 * 12 * 6  # the largest tensor


def test_another_process_computes_the_same(flatbuffer):
    here, there = MicroModel(flatbuffer, trusted=True), MicroModel(flatbuffer)
    np.testing.assert_array_equal(here.predict(EXAMPLES), there.predict(EXAMPLES))
    assert there.predict_int8(np.empty((0, 12, 12, 3), np.int8)).shape == (0, 4)


def test_evaluate_is_the_share_of_right_answers(flatbuffer):
    model = MicroModel(flatbuffer, trusted=True)
    classes = model.predict(EXAMPLES).argmax(-1)
    assert model.evaluate(EXAMPLES, classes) == 1.0
    wrong = np.where(np.arange(40) < 10, classes + 1, classes)
    assert model.evaluate(EXAMPLES, wrong) == 0.75


def test_quantization_rounds_and_saturates():
    quantization = Quantization(0.5, -3)
    q = quantization.quantized(np.array([0.0, 0.6, -100.0, 100.0]))
    assert q.dtype == np.int8 and q.tolist() == [-3, -2, -128, 127]
    assert quantization.real(np.array([-3, -2], np.int8)).tolist() == [0.0, 0.5]


def test_inputs_of_another_shape_or_type_are_refused(flatbuffer):
    model = MicroModel(flatbuffer, trusted=True)
    with pytest.raises(ValueError, match=r"\(examples, 12, 12, 3\).*\(2, 12, 12\)"):
        model.predict(np.zeros((2, 12, 12)))
    with pytest.raises(ValueError, match="int8.*float32"):
        model.predict_int8(EXAMPLES)
    with pytest.raises(ValueError, match="same length.*40 and 2"):
        model.evaluate(EXAMPLES, [1, 2])


def test_without_the_package_it_says_why_and_the_rest_works(flatbuffer, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        micro.importlib.util,
        "find_spec",
        lambda name, *more: None if name == "tflite_micro" else find(name, *more),
    )
    with pytest.raises(ModuleNotFoundError, match="Linux on x86-64 only"):
        MicroModel(flatbuffer)
    assert to_tflite(every_layer(), EXAMPLES)
