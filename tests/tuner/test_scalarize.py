import numpy as np
import pytest
from keras_sparse.tuner.budget import Budget
from keras_sparse.tuner.pareto import hypervolume
from keras_sparse.tuner.scalarize import draw_directions, gains, scalarize, scale_of


@pytest.mark.parametrize("size", [0, -1, "2GB", "KB", "", True, float("nan"), "two"])
def test_sizes_that_make_no_sense_are_refused(size):
    with pytest.raises(ValueError, match="flash must be a positive number of bytes.*Received: fl"):
        Budget(flash=size).checked()


@pytest.mark.parametrize("accuracy", [0, 1, 98.5, "high", True])
def test_accuracy_is_a_share(accuracy):
    with pytest.raises(ValueError, match="accuracy must be .* Received: accuracy="):
        Budget(accuracy=accuracy).checked()
    assert Budget("2KB", None, 0.9).checked() == (2048, None, 0.9)


def test_each_scalarization_finds_another_point_of_the_front():
    angles = np.linspace(0, np.pi / 2, 200)
    front = 1 - np.stack([np.cos(angles), np.sin(angles)], axis=1)  # convex, and ...
    concave = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # ... not
    rng = np.random.default_rng(0)
    for points in (front, concave):
        chosen = scalarize(points, draw_directions(300, 2, rng)).argmin(axis=0)
        assert len(set(chosen.tolist())) > 60
        assert min(chosen) < 40 and max(chosen) > 160


def test_dominated_points_are_never_chosen():
    rng = np.random.default_rng(0)
    points = rng.random((50, 3))
    worse = points + rng.uniform(0.01, 0.1, points.shape)
    chosen = scalarize(np.vstack([points, worse]), draw_directions(100, 3, rng)).argmin(axis=0)
    assert (chosen < 50).all()


def test_a_budget_draws_the_choice_into_its_region():
    # A trade-off between error and bytes, logarithmic; the budget is 2 000 bytes.
    sizes = np.log(np.geomspace(100, 100_000, 400))
    errors = 0.5 - 0.04 * sizes
    values = np.stack([errors, sizes], axis=1)
    rng = np.random.default_rng(1)

    def chosen(limits):
        scale = scale_of(values, np.array(limits))
        normalised = scale.normalised(values)
        picks = scalarize(normalised, draw_directions(400, 2, rng)).argmin(axis=0)
        return np.exp(sizes[picks])

    within = np.mean(chosen([np.nan, np.log(2000)]) <= 2000)
    assert within > np.mean(chosen([np.nan, np.nan]) <= 2000)


def test_scales_are_finite_for_equal_results():
    scale = scale_of(np.ones((3, 2)), np.full(2, np.nan))
    assert np.isfinite(scale.normalised(np.ones((1, 2)))).all()


@pytest.mark.parametrize("objectives", [2, 3])
def test_gains_are_those_of_the_hypervolume(objectives):
    rng = np.random.default_rng(2)
    directions = np.abs(rng.normal(size=(4000, objectives)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # Of a known front that no direction passes by, so that all that is gained lies before it.
    known = directions[:200] * 0.9 + 0.02
    candidates = directions[200:240] * rng.uniform(0.4, 1.1, (40, 1))
    corner = np.full(objectives, 2.0)
    before = hypervolume(known, corner)
    gained = np.array([hypervolume(np.vstack([known, c]), corner) - before for c in candidates])
    told = gains(known, candidates, directions, np.full(objectives, False))
    middle = candidates.min(axis=1) > 0.2  # at the ends the corner cuts something off
    assert ((told > 0) == (gained > 1e-12))[middle].mean() > 0.9
    assert np.corrcoef(told[middle].clip(0), gained[middle])[0, 1] > 0.95


def test_what_is_dominated_gains_nothing_and_the_closer_is_the_better():
    known, candidates = np.array([[0.3, 0.3]]), np.array([[0.4, 0.4], [0.5, 0.5], [0.2, 0.2]])
    directions = draw_directions(9, 2, np.random.default_rng(0))
    told = gains(known, candidates, directions, np.array([False, False]))
    assert told[1] < told[0] < 0 < told[2]


def test_what_lies_beyond_a_budget_gains_nothing():
    # Error and size; a budget of error 0.1 and size 2000. Tiny networks of no use are known.
    limits = np.log([0.1, 2000.0])
    known = np.log([[0.7, 40.0], [0.05, 1500.0]])
    candidates = np.log([[0.5, 50.0], [0.04, 1400.0], [0.2, 1900.0]])
    rng = np.random.default_rng(3)
    scale = scale_of(known, limits)
    told = gains(
        scale.normalised(known),
        scale.normalised(candidates),
        draw_directions(100, 2, rng),
        scale.is_wall,
    )
    assert told[1] > 0 > told[2] > told[0]
    # Without the budget the tiny network is as good as any.
    scale = scale_of(known, np.full(2, np.nan))
    directions = draw_directions(100, 2, rng)
    told = gains(scale.normalised(known), scale.normalised(candidates), directions, scale.is_wall)
    assert told[0] > 0


def test_the_scale_begins_at_the_best_that_keeps_the_budget():
    values = np.log([[0.7, 40.0], [0.05, 1500.0], [0.08, 900.0], [0.01, 5000.0]])
    scale = scale_of(values, np.log([0.1, 2000.0]))
    assert np.log(800.0) < scale.best[1] < np.log(900.0)
    assert np.log(0.045) < scale.best[0] < np.log(0.05)
    np.testing.assert_allclose(scale.limit, np.log([0.1, 2000.0]))
