"""Knowledge distillation (Hinton et al., 2015): a small network learns a large one's answers.

The large network, the teacher, says of every augmented training image how likely each class is.
Its answers, softened by a temperature, are targets beside the labels. They cost more to compute
than the small network's own training, so that a fixed number of augmented copies of the training
set is made once, with the answers, and used in turn.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
TEMPERATURE = 4.0
WEIGHT = 0.9
"""Of the teacher's answers in the loss; the rest is the labels'."""


def teacher_network(
    filters: tuple[int, ...], input_shape: tuple[int, ...], classes: int
) -> keras.Model:
    """Five 3×3 convolutions with batch-norm, ReLU and dropout: too large for any board here."""
    x = image = keras.Input(input_shape)
    for number, count in enumerate(filters):
        valid = number >= 3 and min(x.shape[1:3]) >= 3
        x = L.Conv2D(
            count,
            3,
            strides=2 if number == 1 else 1,
            padding="valid" if valid else "same",
            use_bias=False,
        )(x)
        x = L.ReLU()(L.BatchNormalization(momentum=0.97)(x))
        if number == 2:
            x = L.Dropout(0.2)(L.MaxPooling2D(2)(x))
    return keras.Model(image, L.Dense(classes)(L.Dropout(0.4)(L.Flatten()(x))))


@keras.saving.register_keras_serializable("benchmarks")
def distillation_loss(targets: Any, logits: Any) -> Any:
    """Cross-entropy with the labels and, at the temperature, with the teacher's answers.

    Args:
        targets: Shape (examples, 2 × classes): one-hot labels, then the teacher's probabilities.
        logits: Shape (examples, classes).
    """
    labels, answers = tf.split(targets, 2, axis=-1)
    hard = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    soft = tf.nn.softmax_cross_entropy_with_logits(answers, logits / TEMPERATURE)
    # The gradient of the second falls with the square of the temperature.
    return (1.0 - WEIGHT) * hard + WEIGHT * TEMPERATURE**2 * soft


def targets(labels: np.ndarray, logits: np.ndarray | None, classes: int) -> np.ndarray:
    """What `distillation_loss` takes; without a teacher's logits its answers are the labels.

    The largest of a row is its label's, so that Keras's accuracy stays that of the labels.
    """
    hard = np.eye(classes, dtype=np.float32)[labels]
    if logits is None:
        return np.concatenate([hard, hard], axis=1)
    powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / TEMPERATURE)
    soft = powers / powers.sum(axis=1, keepdims=True)
    return np.concatenate([hard, soft.astype(np.float32)], axis=1)


def answers(teacher: Path, copy: int, x: np.ndarray) -> np.ndarray:
    """The teacher's logits for the images of a copy, from its folder if they are there.

    Args:
        teacher: Folder of the trained teacher.
        copy: Number of the augmented copy of the training set.
        x: Its images.
    """
    path = teacher / f"answers{copy}.npy"
    if not path.is_file():
        model = keras.models.load_model(teacher / "best.keras", compile=False)
        np.save(path, model.predict(x, batch_size=500, verbose=0))
    return np.load(path)
