"""Searches whose objectives are measured in int8 on TFLite Micro."""

import numpy as np
import pytest
import tensorflow as tf
from keras_sparse.tuner import SparseCNN, SparseTuner
from keras_sparse.tuner.quantized import _arrays, quantized_error
from keras_sparse.tuner.training import Training

from keras_sparse import datasets, measure
from keras_sparse.deploy import measured_arena

pytestmark = pytest.mark.xdist_group("tuner")

SMALL = {
    "num-conv-blocks": (1, 1),
    "num-conv-layers": (1, 1),
    "num-filters": (4, 8),
    "left-branch": [False],
    "right-branch": [False],
    "total-fc-layer-weights": (100, 500),
}


def test_a_search_minimises_the_error_and_the_arena_of_tflite_micro(tmp_path):
    digits = datasets.load("digits")
    x, y = digits.x_train[:300], digits.y_train[:300]
    validation = digits.x_val, digits.y_val
    tuner = SparseTuner(
        SparseCNN((8, 8, 1), 10, ranges=SMALL),
        objectives=("quantized_error", "working_memory", measured_arena),
        working_memory="tflm-arena",
        max_trials=1,
        directory=tmp_path,
        seed=1,
    )
    tuner.search(x, y, validation_data=validation, epochs=2, verbose=0)
    record = tuner.trials()[0]
    assert record.status == "completed", record.reason
    model = tuner.get_best_models()[0]
    error = quantized_error(model, Training(x, y, validation))
    assert record.metrics["quantized_error"] == pytest.approx(error)
    assert abs(record.metrics["val_error"] - error) < 0.1
    arena = measure(model, working_memory="tflm-arena").working_memory
    assert record.metrics["working_memory"] == arena
    assert record.metrics["measured_arena"] == pytest.approx(arena, rel=0.35)


def test_examples_are_taken_from_arrays_and_data_sets_alike():
    x, y = np.arange(10.0), np.arange(10)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(3)
    for given in ((x, y), (dataset, None)):
        images, classes = _arrays(*given)
        np.testing.assert_array_equal(images, x)
        np.testing.assert_array_equal(classes, y)
        assert len(_arrays(*given, 5)[0]) == 5
