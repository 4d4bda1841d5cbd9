import copy

import numpy as np
import pytest
from keras_sparse.tuner import morphs
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.morphs import EXTENDED_ROWS, PAPER_ROWS, STAGE_2, apply, morph

SHAPE = (28, 28, 3)


def paper():
    return SparseCNN(SHAPE, 10, space="paper")


def references(model, count, seed=0):
    rng = np.random.default_rng(seed)
    return [model.sample(rng) for _ in range(count)]


def test_the_table_has_sixteen_rows():
    assert len(PAPER_ROWS) == 16
    assert set(PAPER_ROWS) < set(EXTENDED_ROWS)


# For each row of the paper: the beginning of what it may change, and what it may set.
ROWS = {
    "num-fc-layers": ("num-fc-layers", ()),
    "num-conv-blocks": ("num-conv-blocks", ("num-conv-layers-block-",)),
    "layer-type": ("layer-type-", ()),
    "num-conv-filters": ("num-filters-", ()),
    "kernel-size": ("kernel-size-", ()),
    "downsampling-rate": ("downsample-block-", ()),
    "batch-norm": ("batch-norm", ()),
    "residual-connections": ("residual-connections", ()),
    "left-branch": ("left-branch", ("weight-fraction-left-branch",)),
    "right-branch": ("right-branch", ("weight-fraction-right-branch",)),
    "total-fc-layer-weights": ("total-fc-layer-weights", ()),
    "merge-type": ("merge-type", ()),
    "threshold": ("pruning-thresholds-", ()),
    "weight-fraction": ("weight-fraction-", ()),
    "alpha": ("alpha", ()),
    "num-conv-layers": ("num-conv-layers-", ()),
}
STEPS = {
    "num-fc-layers": 1,
    "num-conv-blocks": 1,
    "total-fc-layer-weights": 5000,
    "threshold": 0.5,
    "weight-fraction": 0.05,
    "alpha": 0.1,
    "num-conv-layers": 1,
}


@pytest.mark.parametrize("row", PAPER_ROWS)
def test_each_row_changes_what_the_table_says(row):
    model = paper()
    rng = np.random.default_rng(3)
    stem, may_set = ROWS[row]
    applied = 0
    for reference in references(model, 80, seed=len(row)):
        before = copy.deepcopy(reference)
        result = apply(model, reference, row, rng)
        assert reference == before
        if result is None:
            continue
        applied += 1
        model.space.check(result.configuration)
        assert all(name.startswith(stem) for name in result.changes)
        if row != "weight-fraction":
            assert len(result.changes) == 1
        for name, (old, new) in result.changes.items():
            assert reference[name] == old != new
            if row in STEPS:
                parameter = model.space[name]
                at_end = new in (
                    parameter.nearest(parameter.low),
                    parameter.nearest(parameter.high),
                )
                assert abs(new - old) == pytest.approx(STEPS[row]) or at_end
        for name, (old, _) in result.sets.items():
            assert old is None or name.startswith(may_set)
        # Nothing but what the record lists is different.
        listed = {*result.changes, *result.sets, *result.repairs}
        both = set(reference) & set(result.configuration)
        different = {name for name in both if reference[name] != result.configuration[name]}
        assert different <= listed
        assert set(result.configuration) - set(reference) <= listed
    assert applied >= 5


def test_new_blocks_and_branches_start_small():
    model = paper()
    rng = np.random.default_rng(0)
    blocks = branches = 0
    for reference in references(model, 60):
        grown = apply(model, reference, "num-conv-blocks", rng)
        if grown.configuration["num-conv-blocks"] > reference["num-conv-blocks"]:
            assert grown.configuration["num-conv-layers-block-2"] == 1
            blocks += 1
        left = apply(model, reference, "left-branch", rng)
        if left.configuration["left-branch"]:
            assert left.configuration["weight-fraction-left-branch"] == 0.05
            branches += 1
    assert blocks and branches


def test_stage_2_changes_pruning_parameters_only():
    model = paper()
    rng = np.random.default_rng(0)
    for reference in references(model, 40):
        result = morph(model, reference, rng, rows=STAGE_2, count=2)
        changed = {k for k in reference if reference[k] != result.configuration[k]}
        assert changed and all(k == "alpha" or k.startswith("pruning-thresholds") for k in changed)
        assert model.graph(reference) == model.graph(result.configuration)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (49, 10, 3)])
@pytest.mark.parametrize("space", ["paper", "extended"])
def test_long_chains_of_morphs_stay_valid_and_buildable(space, shape):
    model = SparseCNN(shape, 10, space=space)
    rng = np.random.default_rng(7)
    used = set()
    for number in range(1500):
        if number % 300 == 0:
            configuration = model.sample(rng)
        result = morph(model, configuration, rng, count=int(rng.integers(1, 4)))
        assert result is not None and result.configuration != configuration
        configuration = result.configuration
        used.update(result.rows)
        model.space.check(configuration)
        assert model.repaired(configuration) == configuration
        assert model.graph(configuration).shapes["output"] == (10,)
    assert used == set(morphs.rows_of(model))


def test_a_morphed_network_can_be_built_in_keras():
    model = SparseCNN((12, 12, 1), 3, ranges={"num-filters": (1, 6)})
    rng = np.random.default_rng(2)
    configuration = model.sample(rng)
    for _ in range(12):
        for _ in range(10):
            configuration = morph(model, configuration, rng).configuration
        assert model.network(configuration).output_shape == (None, 3)


@pytest.mark.parametrize("space", ["paper", "extended"])
def test_a_row_for_the_pooling_of_the_input_where_the_space_has_it(space):
    ranges = {"input-pooling-type": ["max", "average"], "downsample-input": [True]}
    model = SparseCNN((12, 12, 1), 3, space=space, ranges=ranges)
    rng = np.random.default_rng(0)
    start = model.sample(rng)
    result = morph(model, start, rng, rows=["input-pooling-type"])
    old, new = result.changes["input-pooling-type"]
    assert {old, new} == {"max", "average"} and len(result.changes) == 1
    without = SparseCNN((12, 12, 1), 3, space=space)
    with pytest.raises(ValueError, match="rows must be some of"):
        morph(without, without.sample(rng), rng, rows=["input-pooling-type"])


def test_papers_morphs_do_not_reach_what_no_row_names():
    model = paper()
    rng = np.random.default_rng(1)
    start = model.sample(rng)
    stems = ("downsample-input", "zero-", "annealing-", "pretraining", "pooling-window", "padding")
    configuration = start
    for _ in range(500):
        configuration = morph(model, configuration, rng).configuration
        kept = {k: v for k, v in start.items() if k.startswith(stems) and "block" not in k}
        assert kept.items() <= configuration.items()


def test_every_parameter_of_the_extended_space_moves_over_its_range():
    model = SparseCNN((96, 96, 3), 10)
    rng = np.random.default_rng(11)
    seen: dict[str, set] = {name: set() for name in model.space.parameters}
    configuration = model.sample(rng)
    small_steps = ("threshold", "alpha", "zero-regularization-epochs", "annealing-epochs")
    for number in range(40_000):
        rows = small_steps if number % 2 else None
        configuration = morph(model, configuration, rng, rows=rows).configuration
        for name, value in configuration.items():
            seen[name].add(value)
    for parameter in model.space:
        values = seen[parameter.name]
        if parameter.values:
            assert values == set(parameter.values), parameter.name
            continue
        low, high = parameter.low, parameter.high
        if parameter.log:
            low, high, values = np.log(low), np.log(high), np.log(list(values))
        tenth = (high - low) / 10
        assert min(values) <= low + tenth and max(values) >= high - tenth, parameter.name
        if parameter.step and not parameter.log and not parameter.conditions:
            # Those that are always active were seen often: not only every second value.
            gaps = np.diff(np.sort(np.array(list(values), float)))
            assert gaps.max() <= 2 * parameter.step + 1e-9, parameter.name


def test_records_of_several_steps_are_from_the_reference_to_the_result():
    model = paper()
    rng = np.random.default_rng(0)
    for reference in references(model, 60):
        result = morph(model, reference, rng, count=4)
        records = {**result.repairs, **result.sets, **result.changes}
        for record in (result.changes, result.sets, result.repairs):
            for name, (old, new) in record.items():
                assert old == reference.get(name) or name in result.repairs or name in result.sets
                assert new == result.configuration[name]
        both = set(reference) & set(result.configuration)
        different = {name for name in both if reference[name] != result.configuration[name]}
        assert different <= set(records)


def test_incomplete_configurations_are_refused():
    model = paper()
    for use in (model.network, lambda c: morph(model, c, np.random.default_rng(0))):
        with pytest.raises(ValueError, match="The configuration needs a value for"):
            use({"num-conv-blocks": 1})


def test_unknown_rows_are_refused():
    model = paper()
    reference = references(model, 1)[0]
    with pytest.raises(ValueError, match=r"rows must be some of .* Received: \['thresholds'\]"):
        morph(model, reference, np.random.default_rng(0), rows=["thresholds"])


def test_fixed_parameters_are_left_alone():
    model = SparseCNN((28, 28, 1), 10, ranges={"alpha": (0.5, 0.5), "batch-norm": [False]})
    rng = np.random.default_rng(0)
    reference = model.sample(rng)
    assert apply(model, reference, "alpha", rng) is None
    assert apply(model, reference, "batch-norm", rng) is None
    assert morph(model, reference, rng, rows=["alpha", "batch-norm"]) is None


def test_same_seed_same_morph():
    model = paper()
    reference = model.sample(np.random.default_rng(0))
    results = [morph(model, reference, np.random.default_rng(5), count=3) for _ in range(2)]
    assert results[0] == results[1]
