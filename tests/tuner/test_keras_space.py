import keras_tuner
import numpy as np
import pytest
from keras_sparse.tuner import SparseCNN
from keras_sparse.tuner.keras_space import space_of


def declared():
    hp = keras_tuner.HyperParameters()
    hp.Int("units", 4, 64, sampling="log")
    hp.Float("rate", 0.0, 0.5, step=0.1)
    hp.Fixed("kind", "relu")
    hp.Boolean("deep")
    with hp.conditional_scope("deep", [True]):
        hp.Int("layers", 2, 6, step=2)
    with hp.conditional_scope("units", [4, 5]):
        hp.Choice("pool", ["max", "average"])
    return hp


def test_values_of_the_space_are_values_for_kerastuner():
    hp = declared()
    space, rng = space_of(hp), np.random.default_rng(0)
    for _ in range(50):
        configuration = space.sample(rng)
        assert configuration["units"] in range(4, 65)
        assert round(configuration["rate"] * 10, 6).is_integer()
        assert ("layers" in configuration) == configuration["deep"]
        assert configuration.get("layers", 2) in (2, 4, 6)
        assert ("pool" in configuration) == (configuration["units"] in (4, 5))


def test_the_same_name_under_two_conditions():
    hp = keras_tuner.HyperParameters()
    hp.Choice("kind", ["a", "b", "c"])
    for kind in ("a", "b"):
        with hp.conditional_scope("kind", [kind]):
            hp.Int("size", 1, 3)
    parameter = space_of(hp)["size"]
    assert [parameter.is_active({"kind": kind}) for kind in "abc"] == [True, True, False]
    with hp.conditional_scope("kind", ["c"]):
        hp.Int("size", 1, 9)
    with pytest.raises(ValueError, match="same values each time"):
        space_of(hp)


def test_our_own_space_survives_kerastuner():
    model = SparseCNN((28, 28, 3), 10)
    hp = keras_tuner.HyperParameters()
    model.declare_hyperparameters(hp)
    space = space_of(hp)
    assert {p.name for p in space} == {p.name for p in model.space}
    for parameter in model.space:
        assert (space[parameter.name].low, space[parameter.name].high) == (
            parameter.low,
            parameter.high,
        )
