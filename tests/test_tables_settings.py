"""The searches of the tables: names, first networks."""

import pytest

from benchmarks.tables_networks import strided
from benchmarks.tables_settings import (
    PRUNING,
    VARIANTS,
    ablation_settings,
    first_configurations,
    hypermodel_of,
    settings_of,
)
from keras_sparse import measure


@pytest.mark.parametrize("data", ["mnist", "cifar10-binary", "chars4k", "chars4k-binary"])
@pytest.mark.parametrize("table", PRUNING)
def test_the_first_networks_are_in_the_space(data, table):
    shapes = {"mnist": (28, 28, 1), "cifar10-binary": (32, 32, 3)}
    settings = settings_of(data, table)
    model = hypermodel_of(settings, shapes.get(data, (20, 20, 1)), 10)
    whole = settings.parts[-1]
    first = first_configurations(whole, model)
    for network, configuration in zip(whole.networks, first, strict=True):
        model.space.check(configuration)
        filters = [v for k, v in configuration.items() if k.startswith("num-filters")]
        assert filters == [f for block in network.layers for f, _, _ in block]


def test_searches_have_names_of_their_own():
    names = [settings_of("mnist", t, v).name for t in (1, 2) for v in VARIANTS]
    names += [ablation_settings(p, seed).name for p in (True, False) for seed in (1, 2, 3)]
    assert len(set(names)) == len(names)
    assert settings_of("mnist", 2) == settings_of("mnist", 3)


def test_the_hand_made_network_has_the_size_that_is_known_of_it():
    settings = settings_of("mnist", 2)
    model = hypermodel_of(settings, (28, 28, 1), 10)
    graph = model.graph(first_configurations(settings, model)[0])
    footprint = measure(graph)
    assert (footprint.parameters, footprint.working_memory) == (2302, 1198)


def test_a_network_outside_of_the_ranges_is_refused_in_a_sentence():
    settings = settings_of("mnist", 2)
    model = hypermodel_of(settings, (28, 28, 1), 10)
    with pytest.raises(ValueError, match="num-filters-block-2-layer-1 must be .* Received: 64"):
        first_configurations(settings._replace(networks=(strided(4, 8, 64),)), model)
