"""What the long training makes small."""

import keras
import tensorflow as tf

from benchmarks.tables_settings import Final


class BoundedCrossentropy(keras.losses.Loss):
    """The generalized cross-entropy (Zhang and Sabuncu, 2018) of logits.

    An image costs at most 1 / `exponent`, however wrong its answer is. The cross-entropy has no
    bound: a network too small to learn a quarter of the images spends its few weights on being less
    wrong about them, instead of on those that it could get right. What it brings: `--effects` of
    `benchmarks.tables`.

    Keras has it for class numbers and probabilities alone, not for a teacher's answers.

    Args:
        exponent: Towards 0 it becomes the cross-entropy; at 1 it is the share of wrong answers that
            is to be expected.
    """

    def __init__(self, exponent: float) -> None:
        super().__init__(name="bounded_crossentropy")
        self.exponent = exponent

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Of targets (batch, classes) or class numbers (batch,) and logits (batch, classes)."""
        if len(y_true.shape) < len(y_pred.shape):
            y_true = tf.one_hot(tf.cast(y_true, tf.int32), y_pred.shape[-1])
        # Not of 0, where the slope of a power has no bound.
        powers = tf.pow(tf.nn.softmax(y_pred) + 1e-7, self.exponent)
        return tf.reduce_sum(y_true * (1.0 - powers), axis=-1) / self.exponent


def loss_of(final: Final, *, classes: bool) -> keras.losses.Loss:
    """The loss of the long training, of class numbers or of their probabilities."""
    if final.bound:
        return BoundedCrossentropy(final.bound)
    if classes:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.CategoricalCrossentropy(from_logits=True)
