import numpy as np
import pytest
from keras_sparse.tuner.budget import Budget, to_bytes
from keras_sparse.tuner.scalarize import draw_weights, scalarize, scale_of


@pytest.mark.parametrize(
    "size, expected",
    [(2048, 2048), ("2KB", 2048), ("2 kB", 2048), ("1.5KB", 1536), ("512", 512), ("1MB", 1 << 20)],
)
def test_sizes_are_understood(size, expected):
    assert to_bytes("ram", size) == expected


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
        chosen = [int(np.argmin(scalarize(points, draw_weights(2, rng)))) for _ in range(300)]
        assert len(set(chosen)) > 60
        assert min(chosen) < 40 and max(chosen) > 160


def test_dominated_points_are_never_chosen():
    rng = np.random.default_rng(0)
    points = rng.random((50, 3))
    worse = points + rng.uniform(0.01, 0.1, points.shape)
    for _ in range(100):
        best = np.argmin(scalarize(np.vstack([points, worse]), draw_weights(3, rng)))
        assert best < 50


def test_a_budget_draws_the_choice_into_its_region():
    # A trade-off between error and bytes, logarithmic; the budget is 2 000 bytes.
    sizes = np.log(np.geomspace(100, 100_000, 400))
    errors = 0.5 - 0.04 * sizes
    values = np.stack([errors, sizes], axis=1)
    rng = np.random.default_rng(1)

    def chosen(limits):
        scale = scale_of(values, np.array(limits))
        normalised = scale.normalised(values)
        picks = [np.argmin(scalarize(normalised, draw_weights(2, rng))) for _ in range(400)]
        return np.exp(sizes[picks])

    within = np.mean(chosen([np.nan, np.log(2000)]) <= 2000)
    assert within > np.mean(chosen([np.nan, np.nan]) <= 2000)


def test_scales_are_finite_for_equal_results():
    scale = scale_of(np.ones((3, 2)), np.full(2, np.nan))
    assert np.isfinite(scale.normalised(np.ones((1, 2)))).all()
