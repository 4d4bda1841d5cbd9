import numpy as np
from keras_sparse.tuner.embedding import Embedding, group_of
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Parameter, Space


def test_inactive_parameters_do_not_matter():
    space = Space(
        [
            Parameter("on", (False, True)),
            Parameter("a", low=0, high=10, step=1, conditions=({"on": (True,)},)),
            Parameter("b", ("x", "y", "z"), conditions=({"on": (True,)},)),
        ]
    )
    embed = Embedding(space)
    off, low, high, other = embed(
        [
            {"on": False},
            {"on": True, "a": 0, "b": "x"},
            {"on": True, "a": 10, "b": "x"},
            {"on": True, "a": 0, "b": "y"},
        ]
    )
    columns = slice(2, 4)  # of a
    assert not off[2:].any()
    np.testing.assert_allclose(np.linalg.norm(off[columns] - low[columns]), 1)
    np.testing.assert_allclose(np.linalg.norm(off[columns] - high[columns]), 1)
    np.testing.assert_allclose(np.linalg.norm(low[columns] - high[columns]), np.sqrt(2))
    np.testing.assert_allclose(np.linalg.norm(low - other), 1)


def test_values_between_steps_are_the_same_point():
    space = Space([Parameter("n", low=1, high=9, step=2)])
    embed = Embedding(space)
    np.testing.assert_array_equal(*embed([{"n": 3}, {"n": 3.4}]))


def test_logarithmic_ranges_are_placed_by_their_logarithm():
    embed = Embedding(Space([Parameter("n", low=1, high=100, step=1, log=True)]))
    one, ten, hundred = embed([{"n": 1}, {"n": 10}, {"n": 100}])
    np.testing.assert_allclose(np.linalg.norm(one - ten), np.linalg.norm(ten - hundred))


def test_layers_share_their_groups():
    assert group_of("kernel-size-block-2-layer-1") == group_of("kernel-size-block-1-layer-3")
    assert group_of("pruning-thresholds-output") == group_of("pruning-thresholds-block-1-layer-1")
    model = SparseCNN((28, 28, 1), 10)
    embed = Embedding(model.space, extra_groups=["size"])
    vectors = embed([model.sample(np.random.default_rng(i)) for i in range(20)])
    assert vectors.shape == (20, embed.width)
    assert len(embed.column_groups) == embed.width + 1
    assert len(embed.groups) < 32
    assert np.isfinite(vectors).all()
