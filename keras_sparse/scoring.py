"""How often a classifier is right."""

import keras
import numpy as np


def accuracy(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    """Share of right classes, 0 to 1.

    Args:
        model: Its outputs are scores, shape (examples, classes).
        x: Examples.
        y: Class numbers, shape (examples,).
    """
    scores = model.predict(x, batch_size=1000, verbose=0)
    return float(np.mean(np.argmax(scores, axis=-1) == y))
