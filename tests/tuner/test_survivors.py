"""What thresholds leave of a network, guessed, against networks that were drawn and pruned."""

import math

import numpy as np
import pytest
from keras_sparse.tuner.cost import affordable
from keras_sparse.tuner.domain import CNNDomain
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.survivors import Survivors

from keras_sparse import sparsity

MODEL = SparseCNN((28, 28, 1), 10, "unstructured")


def drawn(threshold: float, seed: int) -> dict:
    (values,) = affordable(MODEL, np.random.default_rng(seed), 1, 300_000)
    names = [name for name in values if name.startswith("pruning-thresholds")]
    return {**values, **dict.fromkeys(names, threshold)}


@pytest.mark.parametrize(("threshold", "seed"), [(-6.0, 0), (-5.0, 1), (-4.0, 2), (-1.0, 3)])
def test_what_is_left_of_a_new_network_is_known(threshold, seed):
    configuration = drawn(threshold, seed)
    left = Survivors(MODEL.graph(configuration), configuration)
    counted = sparsity(MODEL.network(configuration, seed=1)).total.nonzeros
    kernels = np.array([layer.weights[0].size for layer in left.layers])
    assert kernels @ left.shares == pytest.approx(counted, rel=0.1)
    assert kernels @ left.shares <= math.exp(left.total) - 1.0 <= left.sizes.sum()


def test_each_layer_has_its_own_share():
    configuration = drawn(3.0, 4)
    name = next(name for name in configuration if name.startswith("pruning-thresholds-block"))
    configuration[name] = -6.0
    left = Survivors(MODEL.graph(configuration), configuration)
    narrow = left.shares < 0.9
    assert 1 <= narrow.sum() < len(left.layers)
    assert (left.inputs[narrow] < left.inputs.max()).all()


def test_the_model_sees_what_is_left_with_single_weights_only():
    configuration = drawn(-5.0, 5)
    domain = CNNDomain(MODEL, ("", "nonzeros"))
    more = {**configuration, **{n: -4.0 for n in configuration if n.startswith("pruning-t")}}
    few, many = domain.vectors([configuration, more])[:, -4:]
    assert (many > few).all()
    groups = CNNDomain(SparseCNN((28, 28, 1), 10, "structured"), ("", "nonzeros")).embedding.groups
    assert set(domain.embedding.groups) - set(groups) == set(CNNDomain._LEFT)
