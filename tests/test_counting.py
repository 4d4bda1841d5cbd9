import keras
import numpy as np

from keras_sparse import sparsity
from keras_sparse.layers import SpVDSeparableConv2D

L = keras.layers


def test_counts_pruned_and_plain_kernels_without_biases():
    model = keras.Sequential(
        [
            keras.Input((5, 5, 2)),
            SpVDSeparableConv2D(4, 3, threshold=-1e9, name="pruned"),
            L.BatchNormalization(),
            L.Flatten(),
            L.Dense(2, name="plain"),
        ]
    )
    kernel = np.ones((36, 2))
    kernel[:10] = 0
    model.get_layer("plain").kernel.assign(kernel)
    counted = sparsity(model)
    assert [tuple(row) for row in counted.layers] == [("pruned", 26, 2), ("plain", 72, 52)]
    assert counted.total.nonzeros == 54
    assert counted.total.sparsity == 1 - 54 / 98
    lines = str(counted).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "92.3%" in lines[1]


def test_a_shared_layer_is_counted_once():
    inputs = keras.Input((3,))
    shared = L.Dense(3)
    assert sparsity(keras.Model(inputs, shared(shared(inputs)))).total.weights == 9
