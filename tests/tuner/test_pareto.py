import numpy as np
import pytest
from keras_sparse.tuner.pareto import hypervolume, non_dominated


def test_dominated_points_are_left_out():
    points = [[1, 5], [2, 2], [5, 1], [3, 3], [2, 2], [1, 6], [np.nan, 0]]
    assert non_dominated(points).tolist() == [True, True, True, False, True, False, False]
    assert non_dominated(np.empty((0, 2))).tolist() == []


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_hypervolume_agrees_with_monte_carlo(objectives):
    rng = np.random.default_rng(objectives)
    points = rng.random((12, objectives)) ** 0.5
    reference = np.full(objectives, 0.9)
    samples = rng.random((200_000, objectives)) * reference
    dominated = np.zeros(len(samples), bool)
    for point in points:
        dominated |= (samples >= point).all(axis=1)
    expected = dominated.mean() * np.prod(reference)
    assert hypervolume(points, reference) == pytest.approx(expected, abs=0.005)


def test_known_volumes():
    assert hypervolume([[1, 2], [2, 1]], [3, 3]) == 3
    assert hypervolume([[0, 0, 0]], [2, 3, 4]) == 24
    assert hypervolume([[0, 0, 1], [0, 1, 0], [1, 0, 0]], [2, 2, 2]) == 7
    # DTLZ2, two objectives: the front is a quarter of a circle.
    angles = np.linspace(0, np.pi / 2, 4000)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert hypervolume(circle, [1.1, 1.1]) == pytest.approx(0.42460, abs=1e-3)


def test_points_beyond_the_reference_add_nothing():
    assert hypervolume([[1, 1], [0, 5], [5, 0]], [2, 2]) == 1
    assert hypervolume([[3, 3]], [2, 2]) == 0
    assert hypervolume(np.empty((0, 2)), [2, 2]) == 0
