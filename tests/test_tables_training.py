"""The long training: trimming, teachers, moved images."""

import keras
import numpy as np
from keras_sparse.tuner.training import Training

from benchmarks.tables_search import RandomShift
from benchmarks.tables_settings import (
    Final,
)
from benchmarks.tables_teacher import targets_of
from benchmarks.tables_training import in_int8, train
from benchmarks.tables_trimming import hold, parameters_left, trim, trim_layers
from keras_sparse import datasets, measure
from tests.tables_parts import small_network


def test_trimming_reaches_the_limit_and_training_keeps_the_zeros():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network()
    start = parameters_left(model)
    trim(model, start - 300)
    zeros = [np.asarray(w) == 0 for w in model.trainable_variables if len(w.shape) > 1]
    assert parameters_left(model) == start - 300
    hold(model)
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(shift=1), epochs=2, rate=1e-2, seed=0, limit=300)
    kernels = [np.asarray(w) for w in model.trainable_variables if len(w.shape) > 1]
    for before, after in zip(zeros, kernels, strict=True):
        assert not after[before].any()
    # Biases that were 0 have been trained; they count.
    assert 250 < measure(model).nonzeros <= 300 + 14


def test_trimming_leaves_something_of_every_layer():
    keras.utils.set_random_seed(0)
    model = small_network()
    dense = model.get_layer("dense")
    dense.kernel.assign(0.001 * dense.kernel)  # small weights are not unimportant for that
    biases = parameters_left(model) - sum(k.numpy().size for k in kernels_in(model))
    trim(model, biases + 40)
    left = [int(np.count_nonzero(kernel)) for kernel in kernels_in(model)]
    assert sum(left) == 40
    assert min(left) >= 3


def test_layers_are_trimmed_to_a_working_memory():
    keras.utils.set_random_seed(0)
    model = small_network()

    def memory():
        rows = measure(model, working_memory="inputs+weights").nodes
        return {row.name: row.working_memory for row in rows}

    # An image of 64 values and 9 weights, 36 values and 4, 144 and 1 440; the biases are 0 yet.
    assert memory() == {"conv/depthwise": 73, "conv": 40, "dense": 1584}
    trim_layers(model, 400, share=0.5)
    assert 400 < memory()["dense"] <= 1000
    trim_layers(model, 400)  # with room for 10 biases
    assert memory() == {"conv/depthwise": 73, "conv": 40, "dense": 390}
    trim_layers(model, 68)  # the first kernel; the dense layer's inputs alone are too many
    assert memory() == {"conv/depthwise": 67, "conv": 40, "dense": 390}


def test_the_limit_holds_in_int8_with_the_biases_that_it_adds():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network(8)
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(), epochs=4, rate=1e-2, seed=0, limit=300)
    measured = in_int8(model, data, 1, 0)
    assert measure(model).nonzeros < measured.sizes["nonzeros"] <= 300


def kernels_in(model: keras.Model) -> list:
    return [w for w in model.trainable_variables if len(w.shape) > 1]


def test_a_teacher_is_trained_once_and_mixed_in(tmp_path):
    data = datasets.load("digits")
    data = data._replace(x_train=data.x_train[:256], y_train=data.y_train[:256])
    final = Final(distillation=0.25, teacher_steps=0)
    first = targets_of(data, final, tmp_path, seed=1)
    path = next(tmp_path.iterdir())
    stamp = path.read_bytes()
    again = targets_of(data, final, tmp_path, seed=1)
    assert path.read_bytes() == stamp
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first.sum(axis=-1), 1.0, atol=1e-3)
    assert (first[np.arange(256), data.y_train] >= 0.75).all()


def test_a_batch_is_moved_by_whole_pixels():
    x = np.zeros((4, 5, 5, 1), "float32")
    x[:, 2, 2] = 1.0
    layer = RandomShift(1, seed=3)
    places = {tuple(np.argwhere(layer(x, training=True)[0, ..., 0])[0]) for _ in range(60)}
    assert places == {(i, j) for i in (1, 2, 3) for j in (1, 2, 3)}
    np.testing.assert_array_equal(layer(x, training=False), x)


def test_the_same_seed_moves_the_same_batches():
    x = np.zeros((32, 5, 5, 1), "float32")
    x[:, 2, 2] = 1.0

    def batches(seed):
        keras.utils.set_random_seed(7)
        training = Training(x, np.zeros(32, int), None, batch_size=4, augment=RandomShift(1))
        moved = training.fit_arguments(seed)["x"]
        return [np.asarray(batch[0]) for _ in range(2) for batch in moved]

    first = batches(1)
    np.testing.assert_array_equal(first, batches(1))
    assert not np.array_equal(first, batches(2))
