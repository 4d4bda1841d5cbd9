import keras_tuner
import numpy as np
import pytest
from keras_sparse.tuner.hypermodel import SparseCNN, count_examples
from keras_sparse.tuner.parameters import Parameter, Space

from keras_sparse import datasets
from keras_sparse.layers import SparseLayer

# The paper's table: name, low, high, step or choices. α is "alpha".
TABLE = {
    "downsample-input-in-depth": (False, True),
    "downsample-input": (False, True),
    "input-downsampling-rate": (2, 4, 1),
    "zero-regularization-epochs": (5, 30, 1),
    "annealing-epochs": (15, 25, 1),
    "alpha": (0.01, 1.0, 0.01),
    "pretraining": (False, True),
    "batch-norm": (False, True),
    "num-conv-blocks": (1, 2, 1),
    "num-fc-layers": (0, 1, 1),
    "pruning-thresholds-block-2-layer-3": (-6.0, 3.0, 0.1),
    "total-fc-layer-weights": (1000, 800_000, 1000),
    "weight-fraction-main-branch": (0.0, 1.0, 0),
    "num-conv-layers-block-1": (1, 3, 1),
    "num-conv-layers-block-2": (1, 3, 1),
    "layer-type-block-1-layer-2": ("Conv2D", "DownsampledConv2D", "SeparableConv2D"),
    "kernel-size-block-1-layer-3": (2, 5, 1),
    "num-filters-block-2-layer-1": (1, 100, 1),
    "downsample-block-1-layer-1": (0.0, 0.5, 0),
    "left-branch": (False, True),
    "right-branch": (False, True),
    "weight-fraction-left-branch": (0.01, 1.0, 0),
    "weight-fraction-right-branch": (0.01, 1.0, 0),
    "merge-type": ("Sum", "Concatenate"),
}
TEXT_ONLY = {
    "residual-connections",
    "padding-block-1-layer-1",
    "pooling-window-block-1",
    "pruning-thresholds-main-branch",
    "pruning-thresholds-left-branch",
    "pruning-thresholds-right-branch",
    "pruning-thresholds-output",
}


def paper():
    return SparseCNN((32, 32, 3), 10, space="paper")


def test_papers_space_has_every_row_of_the_table():
    space = paper().space
    for name, expected in TABLE.items():
        parameter = space[name]
        got = parameter.values or (parameter.low, parameter.high, parameter.step)
        assert got == expected, name
        assert not parameter.log
    assert set(space.parameters) >= TEXT_ONLY
    stems = {name.split("-block-")[0] for name in (*TABLE, *TEXT_ONLY)}
    assert {name.split("-block-")[0] for name in space.parameters} == stems


def test_parameters_are_active_when_the_table_says():
    space = paper().space
    rng = np.random.default_rng(0)
    seen: dict[str, set[bool]] = {}
    for _ in range(400):
        c = space.sample(rng)
        rules = {
            "input-downsampling-rate": c["downsample-input"],
            "annealing-epochs": not c["pretraining"],
            "num-filters-block-2-layer-1": c["num-conv-blocks"] == 2,
            "kernel-size-block-1-layer-3": c["num-conv-layers-block-1"] == 3,
            "downsample-block-1-layer-1": c["layer-type-block-1-layer-1"] == "DownsampledConv2D",
            "weight-fraction-main-branch": c["num-fc-layers"] == 1,
            "weight-fraction-left-branch": c["left-branch"],
            "weight-fraction-right-branch": c["right-branch"],
            "merge-type": c["left-branch"] or c["right-branch"],
            "total-fc-layer-weights": c["num-fc-layers"] or c["left-branch"] or c["right-branch"],
        }
        for name, expected in rules.items():
            assert (name in c) == bool(expected), name
            seen.setdefault(name, set()).add(bool(expected))
        space.check(c)
    assert all(values == {False, True} for values in seen.values())


def test_extended_space_adds_parameters():
    added = set(SparseCNN((32, 32, 3), 10).space.parameters) - set(paper().space.parameters)
    stems = {name.split("-block-")[0] for name in added}
    assert stems == {"stride", "pooling-type", "global-pooling"}


def test_how_an_input_is_downsampled_is_a_parameter_only_where_ranges_name_it():
    choices = ["max", "average"]
    model = SparseCNN((32, 32, 3), 10, ranges={"input-pooling-type": choices})
    assert "input-pooling-type" not in SparseCNN((32, 32, 3), 10).space.parameters
    rng = np.random.default_rng(0)
    for _ in range(50):
        c = model.sample(rng)
        assert ("input-pooling-type" in c) == c["downsample-input"]
        kinds = {op.kind for op in model.graph(c).operators if op.name == "input-pool"}
        kind = {"max": "MaxPooling2D", "average": "AveragePooling2D"}
        assert kinds == ({kind[c["input-pooling-type"]]} if c["downsample-input"] else set())


def test_without_pruning_there_are_no_pruning_parameters():
    names = SparseCNN((8, 8, 1), 10, None).space.parameters
    assert not any("threshold" in n or n in ("alpha", "annealing-epochs") for n in names)
    assert "downsample-input-in-depth" not in names  # one channel


def test_ranges_narrow_and_widen():
    model = SparseCNN(
        (28, 28, 1),
        10,
        ranges={
            "num-filters": (1, 8),
            "num-filters-block-1-layer-1": (150, 200),
            "batch-norm": [True],
            "num-conv-blocks": (1, 3),
            "num-conv-layers": (1, 4),
        },
    )
    rng = np.random.default_rng(0)
    samples = [model.sample(rng) for _ in range(200)]
    assert all(c["batch-norm"] is True for c in samples)
    assert all(150 <= c["num-filters-block-1-layer-1"] <= 200 for c in samples)
    assert {c["num-conv-blocks"] for c in samples} == {1, 2, 3}
    assert max(c.get("num-filters-block-3-layer-4", 0) for c in samples) <= 8
    assert any("num-filters-block-3-layer-4" in c for c in samples)


def test_a_range_for_one_block_leaves_the_others():
    model = SparseCNN((28, 28, 1), 10, ranges={"num-conv-layers-block-1": (1, 5)})
    assert model.space["num-conv-layers-block-1"].high == 5
    assert model.space["num-conv-layers-block-2"].high == 3
    assert "num-filters-block-1-layer-5" in model.space.parameters
    assert "num-filters-block-2-layer-4" not in model.space.parameters


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"input_shape": (28, 28)}, r"input_shape must be .* Received: \(28, 28\)"),
        ({"num_classes": 1}, "num_classes must be at least 2. Received: 1"),
        ({"pruning": "spvd"}, "pruning must be one of .* Received: 'spvd'"),
        ({"space": "mine"}, "space must be one of .* Received: 'mine'"),
        ({"ranges": {"filters": (1, 2)}}, r"ranges must name .* Received: \['filters'\]"),
        ({"ranges": {"num-filters": (0, 2)}}, r"must lie within 1 .* Received: \(0, 2\)"),
        ({"ranges": {"num-filters": (5, 2)}}, r"must be \(low, high\), finite. Received: \(5, 2\)"),
        ({"ranges": {"batch-norm": [3]}}, r"list of some of .* Received: \[3\]"),
        ({"ranges": {"merge-type": "Sum"}}, r"list of some of .* Received: 'Sum'"),
        ({"ranges": {"num-conv-blocks": (1, 9)}}, r"must lie within 1 and 6. Received: \(1, 9\)"),
        ({"ranges": {"num-conv-blocks": (1, 3.0)}}, r"two whole numbers.*Received: \(1, 3.0\)"),
        ({"ranges": {"num-filters": 8}}, r"must be \(low, high\).* Received: 8"),
        ({"ranges": {"num-filters": (1, float("inf"))}}, r"must be \(low, high\)"),
        ({"ranges": {"num-filters": (1.5, 4)}}, r"two whole numbers.*Received: \(1.5, 4\)"),
        (
            {"space": "paper", "ranges": {"total-fc-layer-weights": (100, 900)}},
            r"at least one step of 1000 .*Received: \(100, 900\)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        SparseCNN(**{"input_shape": (28, 28, 1), "num_classes": 10, **arguments})


def test_check_names_what_is_wrong():
    model = paper()
    good = model.sample(np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs a value for 'alpha'"):
        model.space.check({k: v for k, v in good.items() if k != "alpha"})
    with pytest.raises(ValueError, match="alpha must be from 0.01 to 1 in steps.*Received: 1.005"):
        model.space.check({**good, "alpha": 1.005})
    with pytest.raises(ValueError, match=r"unknown or inactive. Received: \['colour'\]"):
        model.space.check({**good, "colour": 1})


def test_conditions_must_name_earlier_parameters():
    with pytest.raises(ValueError, match="come before.*'a'"):
        Space([Parameter("a", (1, 2), conditions=({"b": (1,)},))])


def test_log_ranges_reach_both_ends():
    parameter = Parameter("n", low=1, high=100, step=1, log=True)
    rng = np.random.default_rng(0)
    drawn = [parameter.sample(rng) for _ in range(3000)]
    assert min(drawn) == 1 and max(drawn) == 100 and all(isinstance(n, int) for n in drawn)
    assert np.mean(np.array(drawn) <= 10) == pytest.approx(0.5, abs=0.05)


def test_keras_tuners_random_search_runs_on_it(tmp_path):
    data = datasets.load("digits")
    model = SparseCNN(
        (8, 8, 1),
        10,
        ranges={
            "num-filters": (1, 6),
            "total-fc-layer-weights": (50, 500),
            "num-conv-layers": (1, 2),
            "zero-regularization-epochs": (0, 1),
            "annealing-epochs": (1, 2),
        },
    )
    tuner = keras_tuner.RandomSearch(
        model, "val_accuracy", max_trials=3, seed=1, directory=tmp_path, project_name="random"
    )
    tuner.search(
        data.x_train, data.y_train, epochs=2, validation_data=(data.x_val, data.y_val), verbose=0
    )
    trials = tuner.oracle.get_best_trials(3)
    assert len(trials) == 3
    for trial in trials:
        values = trial.hyperparameters.values
        # Active values only, by the paper's names, and the model is the one that they describe.
        configuration = model.declare(trial.hyperparameters)
        model.space.check(configuration)
        assert set(configuration) <= set(values)
        assert set(values) - set(configuration) <= {"total-fc-layer-weights", "merge-type"}
    network = tuner.get_best_models(1)[0]
    layers = [layer for layer in network.layers if isinstance(layer, SparseLayer)]
    assert layers and float(layers[0].kl_weight) > 0


def test_examples_are_counted_in_arrays_and_datasets():
    import tensorflow as tf

    x = np.zeros((10, 2))
    assert count_examples(x) == count_examples([x, x]) == 10
    dataset = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
    assert count_examples(dataset) == 10
    with pytest.raises(ValueError, match="x must be a data set that ends"):
        count_examples(dataset.repeat())
    with pytest.raises(ValueError, match="x must be arrays .* Received: generator"):
        count_examples(batch for batch in dataset)
