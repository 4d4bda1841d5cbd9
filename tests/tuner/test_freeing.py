import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_sparse.tuner.freeing import freed
from tensorflow.python.framework.func_graph import FuncGraph

from keras_sparse import KLAnnealing
from keras_sparse.layers import BCConv2D, SpVDDense


def graphs():
    gc.collect()
    return sum(isinstance(item, FuncGraph) for item in gc.get_objects())


def train():
    layers = [keras.Input((6, 6, 1)), BCConv2D(3, 3), keras.layers.Flatten(), SpVDDense(2)]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.zeros((8, 6, 6, 1), "float32"), np.arange(8) % 2
    model.fit(x, y, callbacks=[KLAnnealing(8)], verbose=0)


def test_trained_networks_leave_no_graphs_behind():
    with freed():
        train()
    before = graphs()
    for _ in range(2):
        with freed():
            train()
    assert graphs() <= before
    train()
    assert graphs() > before  # TensorFlow still keeps them: else this file is no longer needed


def test_gradients_that_were_traced_before_still_work():
    @tf.custom_gradient
    def doubled(x):
        return 2.0 * x, lambda upstream: 5.0 * upstream

    function = tf.function(doubled)
    function(tf.constant(1.0))
    with freed():
        train()
    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    assert float(tape.gradient(y, x)) == 5.0


def test_what_fails_inside_is_freed_too():
    before = graphs()

    def fail():
        with freed():
            train()
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert graphs() <= before
