import numpy as np
import pytest
from keras_sparse.tuner.embedding import Embedding
from keras_sparse.tuner.parameters import Parameter, Space
from keras_sparse.tuner.surrogate import Surrogate
from scipy.optimize import check_grad


def smooth(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    x = rng.random((60, 4))
    surrogate = Surrogate(np.array([0, 1, 2, 2]))
    surrogate.fit(x, smooth(x))
    return surrogate, x


def test_predicts_a_smooth_function(fitted):
    surrogate, _ = fitted
    x = np.random.default_rng(1).random((200, 4))
    mean, deviation = surrogate.predict(x)
    assert np.corrcoef(mean, smooth(x))[0, 1] > 0.99
    assert np.mean(np.abs(mean - smooth(x)) < 3 * deviation + 0.05) > 0.95


def test_finds_out_which_columns_matter(fitted):
    lengths = fitted[0].theta[2:]
    assert lengths[2] > lengths[0] + 1 and lengths[2] > lengths[1]


def test_gradient_of_the_likelihood(fitted):
    surrogate, x = fitted
    distances = np.stack(
        [
            ((x[:, None, columns] - x[None, :, columns]) ** 2).sum(-1)
            for columns in ([0], [1], [2, 3])
        ]
    )
    y = smooth(x) - smooth(x).mean()
    theta = np.array([0.1, -3.0, 0.2, 0.5, 1.0])
    error = check_grad(
        lambda t: surrogate._loss(t, distances, y)[0],
        lambda t: surrogate._loss(t, distances, y)[1],
        theta,
    )
    assert error < 1e-3 * np.linalg.norm(surrogate._loss(theta, distances, y)[1])


def test_samples_have_the_mean_and_spread_of_the_prediction(fitted):
    surrogate, _ = fitted
    x = np.random.default_rng(2).random((30, 4)) * 2
    rng = np.random.default_rng(3)
    samples = np.stack([surrogate.sample(x, rng) for _ in range(600)])
    mean, deviation = surrogate.predict(x)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=0.2 * deviation.max() + 1e-3)
    np.testing.assert_allclose(samples.std(axis=0), deviation, rtol=0.25, atol=1e-3)
    half = np.stack([surrogate.sample(x, rng, spread=0.5) for _ in range(600)])
    np.testing.assert_allclose(half.std(axis=0), deviation / 2, rtol=0.25, atol=1e-3)


def test_inactive_parameters_leave_the_covariance_unchanged():
    space = Space(
        [
            Parameter("on", (False, True)),
            Parameter("a", low=0.0, high=1.0, conditions=({"on": (True,)},)),
            Parameter("b", low=0.0, high=1.0),
        ]
    )
    embed = Embedding(space)
    rng = np.random.default_rng(0)
    configurations = [space.sample(rng) for _ in range(40)]
    y = np.array([c.get("a", 0.5) + c["b"] for c in configurations])
    surrogate = Surrogate(embed.column_groups)
    surrogate.fit(embed(configurations), y)
    known = embed(configurations)
    inactive = embed([{"on": False, "a": a, "b": 0.3} for a in (0.0, 1.0)])
    np.testing.assert_array_equal(*surrogate.covariance(inactive, known))
    active = embed([{"on": True, "a": a, "b": 0.3} for a in (0.0, 1.0)])
    assert np.ptp(surrogate.covariance(active, known), axis=0).max() > 1e-3
    # On or off is the same distance whatever the value is.
    assert np.ptp(surrogate.covariance(active, inactive)) < 1e-12


def test_state_is_restored_exactly(fitted):
    surrogate, x = fitted
    other = Surrogate(surrogate.column_groups)
    other.set_state(surrogate.get_state())
    more = np.vstack([x, x[:2] + 0.01])
    for model in (surrogate, other):
        model.fit(more, smooth(more))
    np.testing.assert_array_equal(surrogate.predict(x)[0], other.predict(x)[0])


def test_survives_constant_and_repeated_results():
    surrogate = Surrogate(np.array([0, 1]))
    x = np.ones((20, 2))
    surrogate.fit(x, np.ones(20))
    mean, deviation = surrogate.predict(x[:3])
    np.testing.assert_allclose(mean, 1)
    assert np.isfinite(deviation).all()
    assert np.isfinite(surrogate.sample(np.ones((50, 2)), np.random.default_rng(0))).all()
