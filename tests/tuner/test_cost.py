import numpy as np
import pytest
from keras_sparse.tuner.cost import (
    FEATURES,
    CostModel,
    Observation,
    affordable,
    calibrate,
    features,
    fit,
    observe,
)
from keras_sparse.tuner.hypermodel import SparseCNN


@pytest.fixture
def model():
    return SparseCNN((28, 28, 1), 10, ranges={"num-filters": (1, 8), "num-conv-layers": (1, 2)})


def test_coefficients_are_recovered_from_what_they_made(model):
    truth = CostModel((4e-3, 1e-3, 2e-8, 3e-10, 2e-9, 1e-10, 5e-10, 2e-3, 5e-9))
    rng = np.random.default_rng(0)
    graphs = [model.graph(model.sample(rng)) for _ in range(80)]
    observed = []
    for number, graph in enumerate(graphs):
        seconds = truth.step_seconds(graph, 128, batch_norm=number % 2 == 0)
        observed.append(Observation(graph, 128, seconds * rng.uniform(0.9, 1.1), number % 2 == 0))
    cost = fit(observed[:50])
    assert len(cost.coefficients) == len(FEATURES)
    assert min(cost.coefficients) >= 0
    for observation in observed[50:]:
        graph, batch, seconds, batch_norm = observation
        ratio = cost.step_seconds(graph, batch, batch_norm=batch_norm) / seconds
        assert 1 / 1.3 < ratio < 1.3


def test_epochs_count_the_last_partial_batch(model):
    cost = CostModel((1.0, *[0.0] * (len(FEATURES) - 1)))
    graph = model.graph(model.sample(np.random.default_rng(0)))
    assert cost.epoch_seconds(graph, 128, 129) == 2.0


def test_features_count_the_graph(model):
    graph = model.graph(model.sample(np.random.default_rng(3)))
    values = dict(zip(FEATURES, features(graph, 10), strict=True))
    assert values["parameter"] == sum(op.parameters for op in graph.operators)
    macs = sum(values[name] for name in FEATURES if name.endswith("MAC"))
    assert macs == 10 * sum(op.macs for op in graph.operators)
    assert values["normalization"] == values["normalized activation"] == 0
    normalized = dict(zip(FEATURES, features(graph, 10, batch_norm=True), strict=True))
    convolutions = [op for op in graph.operators if op.kind == "Conv2D"]
    assert normalized["normalization"] == len(convolutions)
    assert normalized["normalized activation"] == 10 * sum(
        graph.size(op.name) for op in convolutions
    )


def test_networks_can_be_timed(model):
    configuration = affordable(model, np.random.default_rng(0), 1, 200_000)[0]
    observation = observe(model, configuration, batch_size=16, steps=(1, 3), rounds=1)
    assert observation.seconds > 0
    assert observation.graph == model.graph(configuration)


def test_calibration_gives_positive_estimates(model):
    cost = calibrate(model, count=3, batch_size=16, max_macs=200_000)
    assert cost.epoch_seconds(model.graph(model.sample(np.random.default_rng(9))), 16, 100) > 0


def test_bad_input(model):
    with pytest.raises(ValueError, match="at least 3 observations. Received: 0"):
        fit([])
    with pytest.raises(ValueError, match="max_macs must allow .* Received: max_macs=1"):
        affordable(model, np.random.default_rng(0), 1, 1)
