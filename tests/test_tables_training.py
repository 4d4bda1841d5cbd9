"""The long training: trimming, teachers, moved images."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_sparse.tuner.training import Training

from benchmarks.tables_losses import BoundedCrossentropy
from benchmarks.tables_search import RandomShift
from benchmarks.tables_settings import (
    Final,
)
from benchmarks.tables_teacher import targets_of
from benchmarks.tables_training import in_int8, train
from keras_sparse import datasets
from keras_sparse.trimming import kernels_of, sizes_left, trim
from tests.tables_parts import small_network


def test_zeros_stay_and_the_limit_is_reached():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network()
    trim(model, sizes_left(model).parameters - 300)
    zeros = [kernel.numpy() == 0 for kernel in kernels_of(model).values()]
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(shift=1), epochs=2, rate=1e-2, seed=0, limit=300)
    for before, kernel in zip(zeros, kernels_of(model).values(), strict=True):
        assert not kernel.numpy()[before].any()
    assert 250 < sizes_left(model).parameters <= 300


def test_a_network_that_cannot_be_as_small_as_a_row_is_as_small_as_it_can():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network()
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(), epochs=2, rate=1e-2, seed=0, limit=1, memory=1)
    assert all(np.count_nonzero(kernel.numpy()) == 1 for kernel in kernels_of(model).values())


@pytest.mark.parametrize("bound", [0.0, 0.7])
def test_the_limit_holds_in_int8_with_the_biases_that_it_adds(bound):
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network(8)
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(bound=bound), epochs=4, rate=1e-2, seed=0, limit=300)
    measured = in_int8(model, data, Final(quantized_epochs=1, bound=bound), 0)
    assert 250 < measured.sizes["nonzeros"] <= 300


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


def test_the_bounded_loss_is_that_of_keras_and_takes_a_teacher_too():
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 3.0, (20, 4)).astype("float32")
    classes, loss = rng.integers(0, 4, 20), BoundedCrossentropy(0.7)
    expected = keras.losses.CategoricalGeneralizedCrossEntropy(0.7)
    right = float(expected(classes, keras.ops.softmax(logits)))
    assert float(loss(classes, logits)) == pytest.approx(right, abs=1e-5)
    one_hot = np.eye(4, dtype="float32")[classes]
    assert float(loss(one_hot, logits)) == pytest.approx(right, abs=1e-5)
    mixed = 0.5 * one_hot + 0.125
    each = [float(loss(np.full(20, number), logits)) for number in range(4)]
    assert float(loss(mixed, logits)) == pytest.approx(0.5 * right + 0.125 * sum(each), abs=1e-5)


def test_the_bounded_loss_has_a_bound_and_a_finite_slope():
    wrong = tf.Variable([[200.0, -200.0]])
    with tf.GradientTape() as tape:
        loss = BoundedCrossentropy(0.7)(np.array([1]), wrong)
    assert float(loss) == pytest.approx(1 / 0.7, abs=1e-3)
    assert np.isfinite(tape.gradient(loss, wrong)).all()
    answers = np.array([1]), np.array([[1.0, -1.0]], "float32")
    exact = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(*answers)
    assert float(BoundedCrossentropy(1e-3)(*answers)) == pytest.approx(float(exact), abs=0.01)
