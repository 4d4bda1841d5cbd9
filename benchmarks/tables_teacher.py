"""A larger network whose answers the networks of a front learn beside the labels."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from benchmarks.distillation import teacher_network
from benchmarks.tables_settings import Final
from benchmarks.tables_training import BATCH, train
from keras_sparse import datasets
from keras_sparse.files import read_arrays, write_arrays
from keras_sparse.scoring import accuracy

_FILTERS = (16, 32, 48, 64, 64)
"""Of the teacher: large enough to teach, small enough to train on one core in minutes."""

_SHIFT = 1
"""Pixels by which its training images move at most."""


def one_hot(y: np.ndarray, classes: int) -> np.ndarray:
    """Labels as rows of probabilities."""
    return np.eye(classes, dtype=np.float32)[y]


def targets_of(data: datasets.Dataset, final: Final, folder: Path, seed: int) -> np.ndarray:
    """What the networks of the front learn: labels, mixed with a teacher's answers.

    The teacher trains once a data set, on the training images alone, with the same movement of
    images whatever the networks of the front get; its answers to images that are not moved are kept
    in `folder`.

    Args:
        data: The data set.
        final: Share of the teacher's answers, and how long it trains.
        folder: Of teachers.
        seed: Of the teacher.
    """
    labels = one_hot(data.y_train, data.num_classes)
    if not final.distillation:
        return labels
    path = folder / f"{data.name}-seed{seed}.npz"
    if path.is_file():
        answers = read_arrays(path)["answers"]
    else:
        keras.utils.set_random_seed(seed)
        teacher = teacher_network(_FILTERS, data.input_shape, data.num_classes)
        steps = -(-len(data.x_train) // BATCH)
        train(
            teacher,
            data,
            labels,
            final._replace(shift=_SHIFT, inverted=False, bound=0.0),
            epochs=max(10, final.teacher_steps // steps),
            rate=3e-3,
            seed=seed,
        )
        logits = teacher.predict(data.x_train, batch_size=500, verbose=0)
        # Softened, so that it says which other classes are close. Rounded also the first time: a
        # run that goes on later must learn from the same.
        answers = tf.nn.softmax(logits / 2.0).numpy().astype(np.float16)
        right = accuracy(teacher, data.x_val, data.y_val)
        write_arrays(path, {"answers": answers, "val_accuracy": np.array(right)})
        print(f"teacher: {right:.2%} on validation", flush=True)
    share = final.distillation
    return (1.0 - share) * labels + share * answers.astype(np.float32)
