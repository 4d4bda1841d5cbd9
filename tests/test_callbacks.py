import keras
import numpy as np
import pytest

from keras_sparse import KLAnnealing
from keras_sparse.layers import BCConv2D, SpVDConv2D
from tests.layers.cases import images, labels, loss, small_model


def test_schedule_is_zero_then_linear_then_constant():
    annealing = KLAnnealing(100, zero_epochs=2, annealing_epochs=4, weight=2.0)
    assert [annealing.schedule(e) for e in range(9)] == [0, 0, 0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    step = KLAnnealing(100, zero_epochs=2, annealing_epochs=0)
    assert [step.schedule(e) for e in range(4)] == [0, 0, 1, 1]


def test_layers_get_the_weight_over_the_number_of_examples():
    model = small_model(SpVDConv2D)
    model.compile("adam", loss())
    model.fit(
        images(), labels(), epochs=3, verbose=0, callbacks=[KLAnnealing(50, 1, 1, weight=0.5)]
    )
    assert float(model.get_layer("sparse").kl_weight) == pytest.approx(0.01)


def test_the_loss_contains_the_weighted_kl():
    model = small_model(SpVDConv2D)
    model.compile(keras.optimizers.SGD(0.0), loss())
    without = model.evaluate(images(), labels(), verbose=0)
    model.get_layer("sparse").kl_weight = 0.01
    with_kl = model.evaluate(images(), labels(), verbose=0)
    kl = float(model.get_layer("sparse").kl_divergence())
    assert with_kl - without == pytest.approx(0.01 * kl, rel=1e-4)


@pytest.mark.parametrize("cls", [SpVDConv2D, BCConv2D])
def test_the_last_epochs_train_what_is_left_without_noise(cls):
    model = small_model(cls)
    model.compile(keras.optimizers.SGD(0.1), loss())
    layer = model.get_layer("sparse")
    states, kernels, masks = [], [], []

    def remember(epoch, logs):
        masks.append(np.broadcast_to(layer.keep_mask(), layer.kernel.shape))
        states.append(np.array(layer.seed_generator.state))
        kernels.append(np.array(layer.kernel))

    spy = keras.callbacks.LambdaCallback(on_epoch_begin=remember, on_epoch_end=remember)
    annealing = KLAnnealing(6, 0, 0, recovery_epochs=2)
    log_alpha = np.array(layer.log_alpha())
    layer.threshold = float(np.median(log_alpha))
    history = model.fit(
        images(), labels(), epochs=3, verbose=0, callbacks=[annealing, spy], validation_split=0.5
    )
    assert history.history["kl_weight"] == [1.0, 0.0, 0.0]
    assert (states[0] != states[1]).any()
    np.testing.assert_array_equal(states[1], states[5])
    moved = kernels[3] != kernels[2]
    assert moved[masks[2]].all()
    assert not moved[~masks[2]].any()
    assert masks[2].any() and not masks[2].all()
    # And then it trains with noise again.
    model.fit(images(), labels(), epochs=1, verbose=0, callbacks=[KLAnnealing(6)])
    assert (states[5] != np.array(layer.seed_generator.state)).any()


def test_recovery_needs_to_know_the_end():
    annealing = KLAnnealing(6, 0, 0, recovery_epochs=2)
    with pytest.raises(ValueError, match="recovery_epochs needs the number of epochs.*Received"):
        annealing.schedule(0)
    annealing.set_params({"epochs": 5})
    assert [annealing.schedule(e) for e in range(5)] == [1, 1, 1, 0, 0]


def test_logs_reach_history_and_later_callbacks():
    seen = {}
    spy = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.update(logs))
    model = small_model(SpVDConv2D)
    model.compile("adam", loss())
    history = model.fit(
        images(), labels(), epochs=2, verbose=0, callbacks=[KLAnnealing(6, 0, 1), spy]
    ).history
    kernel = model.get_layer("sparse").pruned_kernels()[0]
    dense = model.layers[-1].kernel
    nonzeros = np.count_nonzero(kernel) + np.count_nonzero(dense)
    assert history["nonzeros"][-1] == seen["nonzeros"] == nonzeros
    total = np.size(kernel) + dense.shape[0] * dense.shape[1]
    assert history["sparsity"][-1] == pytest.approx(1 - nonzeros / total)
    kl = float(model.get_layer("sparse").kl_divergence())
    assert history["kl"][-1] == pytest.approx(kl, rel=1e-5)
    assert history["kl_weight"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_examples": 0}, "num_examples must be a whole number of at least 1.*=0"),
        ({"num_examples": -5}, "num_examples"),
        ({"num_examples": 5, "recovery_epochs": -1}, "recovery_epochs must be .*-1"),
        ({"num_examples": 10.5}, "num_examples"),
        ({"num_examples": "all"}, "num_examples.*'all'"),
        ({"num_examples": 10, "zero_epochs": -1}, "zero_epochs"),
        ({"num_examples": 10, "annealing_epochs": 1.5}, "annealing_epochs"),
        ({"num_examples": 10, "weight": -1.0}, "weight"),
        ({"num_examples": 10, "weight": float("nan")}, "weight"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        KLAnnealing(**arguments)


def test_a_model_without_sparse_layers_is_refused_before_training():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", loss())
    with pytest.raises(ValueError, match="needs a model with sparse layers"):
        model.fit(np.ones((2, 4)), labels(2), verbose=0, callbacks=[KLAnnealing(2)])
