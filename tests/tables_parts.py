"""What the tests of the tables share."""

import keras
from keras_sparse.tuner.answers import TrialRecord

WM = "working_memory/inputs+weights"


def record(number, error, size, memory=100.0):
    metrics = {"val_error": error, "model_size": size, "nonzeros": size, WM: memory}
    metrics["parameters"] = 2 * size
    metrics["working_memory/inputs+outputs"] = memory
    return TrialRecord(f"{number:03d}", number, "completed", 1, None, {}, metrics, "", 1, 1.0)


def small_network(first=1):
    x = image = keras.Input((8, 8, 1))
    x = keras.layers.SeparableConv2D(4, 3, depth_multiplier=first, use_bias=False, name="conv")(x)
    x = keras.layers.BatchNormalization(name="conv-norm")(x)
    x = keras.layers.Flatten()(keras.layers.ReLU()(x))
    return keras.Model(image, keras.layers.Dense(10, name="dense")(x))
