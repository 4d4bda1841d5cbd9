"""The straightforward estimator, to compare with: a normal of TensorFlow for every activation."""

import tensorflow as tf

from keras_sparse.layers.estimators import ESTIMATORS, Finish, LinearMap


def fresh(
    linear: LinearMap,
    x: tf.Tensor,
    mean: tf.Tensor,
    deviation: tf.Tensor,
    seed: tf.Tensor,
    finish: Finish,
) -> tf.Tensor:
    """The local reparametrisation with TensorFlow's own generator; arguments as in `local`."""
    spread = tf.sqrt(linear(tf.square(x), tf.square(deviation)) + 1e-8)
    noise = tf.random.stateless_normal(tf.shape(spread), tf.cast(seed, tf.int32))
    return finish(linear(x, mean) + spread * noise)


ESTIMATORS["fresh"] = fresh
