import keras
import numpy as np
import pytest
from keras_sparse.tuner.graph_builder import GraphBuilder
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.inherit import _overlapped, inherit
from keras_sparse.tuner.network import assemble
from keras_sparse.tuner.posterior import posterior_of

from keras_sparse import datasets, measure, strip
from keras_sparse.callbacks import KLAnnealing

# One process runs them all: they share what is trained or searched first.
pytestmark = pytest.mark.xdist_group("inherit")

SHAPE, CLASSES = (8, 8, 1), 10
BASE = {
    "downsample-input": False,
    "pretraining": False,
    "zero-regularization-epochs": 5,
    "annealing-epochs": 15,
    "alpha": 0.5,
    "batch-norm": False,
    "residual-connections": False,
    "num-conv-blocks": 2,
    "pooling-type": "max",
    "global-pooling": "none",
    "num-conv-layers-block-1": 2,
    "pooling-window-block-1": 2,
    "num-conv-layers-block-2": 1,
    "pooling-window-block-2": 1,
    "num-fc-layers": 1,
    "left-branch": True,
    "right-branch": False,
    "total-fc-layer-weights": 6000,
    "weight-fraction-main-branch": 0.6,
    "weight-fraction-left-branch": 0.3,
    "merge-type": "Concatenate",
    "pruning-thresholds-main-branch": 3.0,
    "pruning-thresholds-left-branch": 3.0,
    "pruning-thresholds-output": 3.0,
}
for block, layer, kind, filters in (
    (1, 1, "Conv2D", 12),
    (1, 2, "SeparableConv2D", 16),
    (2, 1, "DownsampledConv2D", 16),
):
    BASE |= {
        f"layer-type-block-{block}-layer-{layer}": kind,
        f"kernel-size-block-{block}-layer-{layer}": 3,
        f"num-filters-block-{block}-layer-{layer}": filters,
        f"padding-block-{block}-layer-{layer}": "same",
        f"stride-block-{block}-layer-{layer}": 1,
        f"pruning-thresholds-block-{block}-layer-{layer}": 3.0,
    }
BASE["downsample-block-2-layer-1"] = 0.5


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def sources(configuration):
    return assemble(configuration, SHAPE, CLASSES, GraphBuilder()).sources


def trained(digits, pruning, configuration=BASE):
    model = SparseCNN(SHAPE, CLASSES, pruning)
    model.space.check(configuration)
    network = model.network(configuration)
    model.compile(network)
    annealing = KLAnnealing(len(digits.x_train), 8, 4, weight=0.2)
    network.fit(digits.x_train, digits.y_train, 64, 14, callbacks=[annealing], verbose=0)
    return model, network


@pytest.fixture(scope="module", params=["unstructured", "structured"])
def reference(request, digits):
    return trained(digits, request.param)


@pytest.fixture(scope="module", params=["unstructured", "structured"])
def normed(request, digits):
    return trained(digits, request.param, {**BASE, "batch-norm": True})


def child_of(reference, configuration, base=BASE):
    model, network = reference
    child = model.network(model.repaired(configuration), seed=99)
    names = inherit(child, posterior_of(network), sources(configuration), sources(base))
    return child, names


def agreement(a, b, x):
    classes = [np.argmax(network.predict(x, verbose=0), axis=1) for network in (a, b)]
    return float(np.mean(classes[0] == classes[1]))


def test_unchanged_configuration_predicts_exactly_as_its_reference(reference, digits):
    child, names = child_of(reference, BASE)
    assert not names.part and not names.fresh
    np.testing.assert_array_equal(
        child.predict(digits.x_val, verbose=0), reference[1].predict(digits.x_val, verbose=0)
    )
    assert measure(strip(child)).nonzeros == measure(strip(reference[1])).nonzeros


# More filters before an FC layer of the same total of weights would make that layer narrower.
MORE_FC = {"total-fc-layer-weights": 7500}
WIDER = [
    {"num-filters-block-1-layer-1": 15},
    {"num-filters-block-1-layer-2": 20, **MORE_FC},
    {"num-filters-block-2-layer-1": 20, **MORE_FC},
    MORE_FC,
    {"num-filters-block-1-layer-1": 15, "num-filters-block-2-layer-1": 20, **MORE_FC},
]


@pytest.mark.parametrize("change", WIDER)
def test_widened_by_a_quarter_agrees_on_nine_of_ten_classes(reference, digits, change):
    child, names = child_of(reference, {**BASE, **change})
    assert names.part and not names.fresh
    old, new = sources(BASE), sources({**BASE, **change})
    widths = [[source.shape[-1] for source in of["output"]] for of in (old, new)]
    assert all(a <= b for a, b in zip(*widths, strict=True))
    assert agreement(child, reference[1], digits.x_test) >= 0.9
    # It would not without inheritance.
    alone = reference[0].network({**BASE, **change}, seed=99)
    assert agreement(alone, reference[1], digits.x_test) < 0.5


def test_posteriors_are_inherited_in_full(reference):
    configuration = {**BASE, "num-filters-block-1-layer-1": 15}
    child, _ = child_of(reference, configuration)
    old, new = posterior_of(reference[1]), posterior_of(child)
    name = "block-1-layer-1"
    checked = 0
    for variable, values in old[name].variables.items():
        got = new[name].variables[variable]
        np.testing.assert_array_equal(got[..., : values.shape[-1]], values)
        checked += "log_variance" in variable or "group" in variable
    assert checked >= 1
    # What reads the new maps is small, not zero.
    kernel = new["block-1-layer-2"].variables["pointwise_kernel"][:, :, 12:]
    assert 0 < np.abs(kernel).max() < 0.1


def test_new_inputs_are_inserted_where_they_belong(reference, digits):
    """A wider main branch stands before the left branch in the concatenation."""
    wider = {**BASE, "weight-fraction-main-branch": 0.69}
    child, _ = child_of(reference, wider)
    old, new = (posterior_of(m)["output"].variables["kernel"] for m in (reference[1], child))
    main, left = (s.shape[0] for s in sources(BASE)["output"])
    new_main = sources(wider)["output"][0].shape[0]
    assert new_main > main
    np.testing.assert_array_equal(new[:main], old[:main])
    np.testing.assert_array_equal(new[new_main : new_main + left], old[main:])


def test_other_kind_of_layer_starts_fresh_and_the_rest_is_copied(reference):
    _, names = child_of(reference, {**BASE, "layer-type-block-1-layer-2": "Conv2D"})
    assert names.fresh == ("block-1-layer-2",)
    assert "block-1-layer-1" in names.whole


def test_batch_normalization_can_be_switched_on(reference, digits):
    child, names = child_of(reference, {**BASE, "batch-norm": True})
    assert not names.fresh
    assert agreement(child, reference[1], digits.x_test) >= 0.97


def test_batch_normalization_can_be_switched_off(normed, digits):
    with_norm = {**BASE, "batch-norm": True}
    child, names = child_of(normed, BASE, with_norm)
    assert not names.fresh
    assert agreement(child, normed[1], digits.x_test) >= 0.97
    unchanged, names = child_of(normed, with_norm, with_norm)
    assert not names.part and not names.fresh
    assert agreement(unchanged, normed[1], digits.x_test) == 1.0


def test_normalizations_are_inherited_with_their_layer_only(normed):
    with_norm = {**BASE, "batch-norm": True}
    other = {**with_norm, "layer-type-block-1-layer-2": "Conv2D"}
    _, names = child_of(normed, other, with_norm)
    assert {"block-1-layer-2", "block-1-layer-2-norm"} <= set(names.fresh)
    wider, _ = child_of(normed, {**with_norm, "num-filters-block-1-layer-1": 15}, with_norm)
    if normed[0].pruning == "structured":
        scale = posterior_of(wider)["block-1-layer-1-scale"].variables["kernel"].ravel()
        np.testing.assert_array_equal(scale[12:], 1.0)


def test_a_sum_becomes_a_concatenation_that_computes_the_same(digits):
    summed = {**BASE, "merge-type": "Sum"}
    model = SparseCNN(SHAPE, CLASSES)
    network = model.network(summed)
    width = sources(summed)["output"][0].shape[0]
    # The fractions that give both branches the width of the sum.
    inputs = [np.prod(sources(summed)[f"{side}-branch"][0].shape) for side in ("main", "left")]
    fractions = [(width + 0.5) * n / BASE["total-fc-layer-weights"] for n in inputs]
    joined = {
        **BASE,
        "weight-fraction-main-branch": float(fractions[0]),
        "weight-fraction-left-branch": float(fractions[1]),
    }
    assert [s.shape for s in sources(joined)["output"]] == [(width,), (width,)]
    child, _ = child_of((model, network), joined, summed)
    outputs = [net.predict(digits.x_val, verbose=0) for net in (network, child)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


def test_kernels_of_another_size_are_centred():
    small, large = np.arange(9.0).reshape(3, 3, 1, 1), np.full((5, 5, 1, 1), -1.0)
    grown = _overlapped(large, small)
    np.testing.assert_array_equal(grown[1:4, 1:4], small)
    np.testing.assert_array_equal(_overlapped(small, grown), small)
    # The tap at the centre of a "same" convolution stays there also for even sizes.
    x = np.random.default_rng(0).normal(size=(1, 7, 7, 1)).astype("float32")
    two = np.random.default_rng(1).normal(size=(2, 2, 1, 1)).astype("float32")
    outputs = [
        keras.ops.conv(x, kernel, padding="same")
        for kernel in (two, _overlapped(np.zeros((3, 3, 1, 1), "float32"), two))
    ]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)
