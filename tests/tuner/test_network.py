"""The Keras model and the measured graph of a configuration are the same network."""

from collections import Counter

import keras
import numpy as np
import pytest
from keras_sparse.tuner.graph_builder import GraphBuilder
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.keras_builder import build_network
from keras_sparse.tuner.network import assemble

from keras_sparse import measure, strip
from keras_sparse.footprint import read

SMALL = {"num-filters": (1, 12), "total-fc-layer-weights": (1000, 4000)}


def randomise(model: keras.Model, rng: np.random.Generator) -> None:
    """No weight is zero, as in a trained network; thresholds prune nothing."""
    for layer in model.layers:
        for variable in layer.trainable_variables:
            variable.assign(rng.normal(0.5, 0.1, variable.shape))
        if hasattr(layer, "threshold"):
            layer.threshold = 100.0


def as_dict(graph):
    return {
        op.name: (
            op.kind,
            op.inputs,
            op.uses,
            graph.shapes[op.name],
            [(w.name, w.shape, w.nonzeros, w.is_bias) for w in op.weights],
        )
        for op in graph.operators
    }


@pytest.mark.parametrize("pruning", ["unstructured", "structured", None])
@pytest.mark.parametrize("space", ["paper", "extended"])
def test_keras_model_and_graph_are_equal(space, pruning):
    seen = Counter()
    for shape in ((8, 8, 1), (28, 28, 1), (20, 12, 3)):
        model = SparseCNN(shape, 5, pruning, space=space, ranges=SMALL)
        rng = np.random.default_rng(len(space) + shape[0])
        for _ in range(4):
            configuration = model.sample(rng)
            network = model.network(configuration)
            randomise(network, rng)
            plain = strip(network, remove_dead=False) if pruning else network
            graph = model.graph(configuration)
            assert as_dict(read(plain)) == as_dict(graph)
            assert [o.name for o in read(plain).operators] == [o.name for o in graph.operators]
            for memory in ("inputs+weights", "inputs+outputs", "live"):
                ours, theirs = (measure(g, working_memory=memory) for g in (graph, plain))
                assert ours.working_memory == theirs.working_memory
                assert ours.model_size == theirs.model_size
                assert ours.macs == theirs.macs
            seen.update(op.kind for op in graph.operators)
    assert seen["Dense"] and seen["DepthwiseConv2D"] and seen["Conv2D"]


def test_every_kind_of_node_occurs_in_random_configurations():
    model = SparseCNN((20, 12, 3), 5, ranges=SMALL)
    rng = np.random.default_rng(0)
    kinds, names = set(), set()
    for _ in range(300):
        graph = model.graph(model.sample(rng))
        kinds.update(op.kind for op in graph.operators)
        names.update(op.name for op in graph.operators)
    assert kinds == {
        "Conv2D",
        "DepthwiseConv2D",
        "Dense",
        "MaxPooling2D",
        "AveragePooling2D",
        "GlobalAveragePooling2D",
        "Add",
        "Concatenate",
    }
    assert {
        "input-depth-pool",
        "input-pool",
        "block-2-layer-3",
        "block-1-layer-2-residual",
        "block-1-layer-2-match",
        "block-1-layer-1-reduce",
        "main-branch",
        "left-branch",
        "right-branch",
        "merge",
        "output",
    } <= names


CONFIGURATION = {
    "downsample-input": False,
    "pretraining": False,
    "zero-regularization-epochs": 5,
    "annealing-epochs": 15,
    "alpha": 0.5,
    "batch-norm": False,
    "residual-connections": False,
    "num-conv-blocks": 1,
    "num-conv-layers-block-1": 1,
    "pooling-window-block-1": 2,
    "layer-type-block-1-layer-1": "Conv2D",
    "kernel-size-block-1-layer-1": 3,
    "num-filters-block-1-layer-1": 4,
    "padding-block-1-layer-1": "valid",
    "pruning-thresholds-block-1-layer-1": 3.0,
    "num-fc-layers": 1,
    "left-branch": True,
    "right-branch": True,
    "total-fc-layer-weights": 2000,
    "weight-fraction-main-branch": 0.5,
    "weight-fraction-left-branch": 0.25,
    "weight-fraction-right-branch": 0.25,
    "merge-type": "Concatenate",
    "pruning-thresholds-main-branch": 3.0,
    "pruning-thresholds-left-branch": 3.0,
    "pruning-thresholds-right-branch": 3.0,
    "pruning-thresholds-output": 3.0,
}


@pytest.fixture
def paper():
    model = SparseCNN((12, 12, 1), 3, space="paper")
    model.space.check(CONFIGURATION)
    return model


def shapes(model, **changes):
    configuration = {**CONFIGURATION, **changes}
    return model.graph(configuration).shapes


def test_widths_follow_from_weights_and_fractions(paper):
    # 12×12 -> conv 3 -> 10×10×4 -> pool -> 5×5×4 = 100 inputs of main and left, 144 of right.
    widths = shapes(paper)
    assert widths["main-branch"] == (10,)
    assert widths["left-branch"] == (5,)
    assert widths["right-branch"] == (3,)
    assert widths["merge"] == (18,)
    # Fractions that add up to more than one are shares of their sum.
    widths = shapes(
        paper, **{"weight-fraction-main-branch": 1.0, "weight-fraction-left-branch": 1.0}
    )
    assert widths["main-branch"] == widths["left-branch"] == (int(2000 / 2.25 / 100),)
    assert shapes(paper, **{"weight-fraction-main-branch": 0.0})["main-branch"] == (1,)


def test_a_sum_has_the_smallest_width(paper):
    widths = shapes(paper, **{"merge-type": "Sum"})
    assert widths["main-branch"] == widths["merge"] == (3,)


def test_a_sum_without_main_fc_layer_becomes_a_concatenation(paper):
    configuration = {**CONFIGURATION, "num-fc-layers": 0, "merge-type": "Sum"}
    for name in ("weight-fraction-main-branch", "pruning-thresholds-main-branch"):
        del configuration[name]
    assert paper.repaired(configuration)["merge-type"] == "Concatenate"
    assert paper.graph(configuration).shapes["merge"] == (100 + 5 + 3,)


def test_kernels_larger_than_their_map_are_repaired():
    model = SparseCNN((3, 3, 1), 2, space="paper")
    configuration = {**CONFIGURATION, "kernel-size-block-1-layer-1": 5}
    repaired = model.repaired(configuration)
    assert repaired["kernel-size-block-1-layer-1"] == 3
    model.space.check(repaired)
    graph = model.graph(repaired)
    assert graph.shapes["block-1-layer-1"] == (1, 1, 4)
    assert "block-1-pool" not in graph.shapes


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (8, 8, 1), (49, 10, 1), (96, 96, 3)])
@pytest.mark.parametrize("space", ["paper", "extended"])
def test_any_image_and_any_sample_can_be_built(shape, space):
    model = SparseCNN(shape, 4, space=space)
    rng = np.random.default_rng(1)
    for _ in range(200):
        configuration = model.sample(rng)
        model.space.check(configuration)
        graph = model.graph(configuration)
        assert graph.shapes["output"] == (4,)
        assert all(min(size) >= 1 for size in graph.shapes.values())
        assert model.repaired(configuration) == configuration


def test_sources_describe_the_inputs_of_the_fc_layers(paper):
    sources = assemble(CONFIGURATION, (12, 12, 1), 3, GraphBuilder()).sources
    assert sources["main-branch"] == (("main", (5, 5, 4)),)
    assert sources["output"] == (
        ("main-branch", (10,)),
        ("left-branch", (5,)),
        ("right-branch", (3,)),
    )
    summed = assemble({**CONFIGURATION, "merge-type": "Sum"}, (12, 12, 1), 3, GraphBuilder())
    assert summed.sources["output"] == (("sum", (3,)),)


def test_thresholds_and_seeds_reach_the_layers():
    configuration = {**CONFIGURATION, "pruning-thresholds-block-1-layer-1": -1.5}
    first, _ = build_network(configuration, (12, 12, 1), 3, "unstructured", seed=1)
    again, _ = build_network(configuration, (12, 12, 1), 3, "unstructured", seed=1)
    other, _ = build_network(configuration, (12, 12, 1), 3, "unstructured", seed=2)
    assert float(first.get_layer("block-1-layer-1").threshold) == -1.5
    kernel = first.get_layer("block-1-layer-1").kernel.numpy()
    np.testing.assert_array_equal(kernel, again.get_layer("block-1-layer-1").kernel.numpy())
    assert not np.array_equal(kernel, other.get_layer("block-1-layer-1").kernel.numpy())
