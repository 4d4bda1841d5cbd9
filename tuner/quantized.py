"""The objective "quantized_error": what a trial's network gets wrong on TFLite Micro, in int8."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_sparse.deploy import MicroModel, to_tflite

from .training import Training

NAME = "quantized_error"
_CALIBRATION = 512
"""Training examples on which the ranges of the activations are measured."""


def quantized_error(model: keras.Model, training: Training) -> float:
    """Share of wrong answers on validation data after post-training quantization, 0 to 1.

    Args:
        model: A stripped network.
        training: The data of its trial.
    """
    x, _ = _arrays(training.x, training.y, _CALIBRATION)
    flatbuffer = to_tflite(model, x)
    validation = training.validation
    pair = (validation, None) if isinstance(validation, tf.data.Dataset) else validation[:2]
    return 1.0 - MicroModel(flatbuffer, trusted=True).evaluate(*_arrays(*pair))


def _arrays(x: Any, y: Any, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Examples and classes of arrays or of a batched data set, at most so many of them."""
    if not isinstance(x, tf.data.Dataset):
        step = 1 if most is None else -(-len(x) // most)
        return np.asarray(x)[::step], np.asarray(y)[::step]
    images: list[np.ndarray] = []
    classes: list[np.ndarray] = []
    for batch in x:
        images.append(np.asarray(batch[0]))
        classes.append(np.asarray(batch[1]))
        if most is not None and sum(map(len, images)) >= most:
            break
    return np.concatenate(images)[:most], np.concatenate(classes)[:most]
