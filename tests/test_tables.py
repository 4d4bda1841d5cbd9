"""The tables' own machinery: states that survive, rules that choose, the whole way on digits."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.project import Project
from keras_sparse.tuner.reading import records_of
from keras_sparse.tuner.references import Published
from keras_sparse.tuner.training import Training

from benchmarks import (
    tables_baselines,
    tables_figures,
    tables_lenet,
    tables_page,
    tables_targets,
)
from benchmarks.tables import Deadline, run_table
from benchmarks.tables_candidates import Candidate, competitors, finalists, needed_trials
from benchmarks.tables_figures import ablation_facts, memory_facts
from benchmarks.tables_folds import folds_of, merged
from benchmarks.tables_front import (
    begin_anew,
    finish_front,
    heats_of,
    look_at_test,
    members_of,
    run_heats,
)
from benchmarks.tables_networks import Network
from benchmarks.tables_places import Places
from benchmarks.tables_rows import row_of
from benchmarks.tables_search import RandomShift, is_searched
from benchmarks.tables_settings import (
    PRUNING,
    VARIANTS,
    Final,
    ablation_settings,
    first_configurations,
    hypermodel_of,
    settings_of,
)
from benchmarks.tables_state import MOST_BYTES, forget, fronts_of, restore, save_state
from benchmarks.tables_targets import rows_of
from benchmarks.tables_teacher import targets_of
from benchmarks.tables_training import in_int8, train
from benchmarks.tables_trimming import hold, parameters_left, trim, trim_layers
from keras_sparse import datasets, measure
from keras_sparse.files import write_json
from tests.test_benchmarks import tiny_data
from tests.tuner.searches import computed, search

WM = "working_memory/inputs+weights"


def record(number, error, size, memory=100.0):
    metrics = {"val_error": error, "model_size": size, "nonzeros": size, WM: memory}
    metrics["parameters"] = 2 * size
    metrics["working_memory/inputs+outputs"] = memory
    return TrialRecord(f"{number:03d}", number, "completed", 1, None, {}, metrics, "", 1, 1.0)


# A search that lost its folder.


def test_a_search_restored_from_its_trimmed_state_proposes_the_same(tmp_path):
    whole = computed(tmp_path / "whole", 14)
    search(whole)
    folder, state = tmp_path / "lost" / "search", tmp_path / "state"
    shutil.copytree(whole.project.folder, folder)
    for number in range(9, 14):
        shutil.rmtree(folder / f"trial_{number:02d}")
    save_state(folder, state)
    shutil.rmtree(folder)

    assert restore(state, folder) == 9
    resumed = computed(tmp_path / "lost", 14)
    search(resumed)
    assert [r.configuration for r in resumed.trials()] == [r.configuration for r in whole.trials()]
    assert [r.status for r in resumed.trials()] == [r.status for r in whole.trials()]


def test_a_state_has_the_weights_of_the_front_and_no_others(tmp_path):
    tuner = computed(tmp_path / "runs", 12)
    search(tuner)
    size = save_state(tuner.project.folder, tmp_path / "state")
    front = {r.trial_id for r in fronts_of(tuner.trials())}
    kept = {path.stem for path in (tmp_path / "state" / "posteriors").iterdir()}
    assert 0 < len(front) < 12
    assert kept == front
    assert size == sum(p.stat().st_size for p in (tmp_path / "state").rglob("*") if p.is_file())
    assert size < MOST_BYTES
    restore(tmp_path / "state", tmp_path / "again")
    project = Project(tmp_path / "again")
    for trial_id in project.trial_ids():
        assert (project.read_posterior(trial_id) is not None) == (trial_id in front)


def test_a_folder_that_is_there_is_not_restored_over(tmp_path):
    tuner = computed(tmp_path / "runs", 6)
    search(tuner)
    save_state(tuner.project.folder, tmp_path / "state")
    (tmp_path / "mine").mkdir()
    assert restore(tmp_path / "state", tmp_path / "mine") == 0
    assert not list((tmp_path / "mine").iterdir())
    assert restore(tmp_path / "nothing", tmp_path / "new") == 0


def test_a_forgotten_search_begins_anew_and_its_looks_at_the_test_set_stay(tmp_path):
    tuner = computed(tmp_path / "runs", 6)
    search(tuner)
    state = tmp_path / "state"
    save_state(tuner.project.folder, state)
    (state / "earlier.json").write_text("{}")
    forget(tuner.project.folder, state)
    assert restore(state, tuner.project.folder) == 0
    assert not tuner.project.folder.exists()
    assert [path.name for path in state.iterdir()] == ["earlier.json"]


# Settings.


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


# Choosing.


RECORDS = [
    record(0, 0.03, 500.0),
    record(1, 0.02, 700.0),
    record(2, 0.011, 1500.0),
    record(3, 0.025, 790.0),  # dominated by the second
    record(4, 0.01, 9000.0),
]


NOWHERE = Places(Path("nowhere"), Path("nowhere"))  # no baselines
ROWS = rows_of(settings_of("mnist", 1), NOWHERE)
PAPER = [row for row in ROWS if row.method == "SpArSe"]


def competing(table, records):
    settings = settings_of("mnist", table)
    return competitors(settings, records, rows_of(settings, NOWHERE))


def test_the_best_of_each_band_compete_for_a_row():
    found = {row.model_size: c for row, c in competing(1, RECORDS)}
    # The paper's own, and of the others what no row is as accurate and as small as.
    assert list(found) == [476, 510, 569, 804, 1000, 11_000]
    # Up to 4 times the row, up to twice, up to 1.2 times; trimmed where there is more to trim.
    assert [c.name for c in found[476]] == ["002-476", "001-476", "000-476"]
    # The first has up to 16 times as many.
    assert [c.name for c in found[1000]] == ["004-1000", "002-1000", "001-1000"]


def test_networks_trained_here_are_rows_too(tmp_path):
    sizes = {f"working_memory/{name}": 900.0 for name in ("inputs+weights", "inputs+outputs")}
    hand = {"size": 1420, "test_accuracy": 0.992, "sizes": sizes}
    records = {"kNN": {"size": 300, "test_accuracy": 0.9}, "by hand 4": hand}
    records["by hand 6"] = {**hand, "test_accuracy": 0.98, "size": 1500}  # dominated
    records["LeNet + SpVD"] = {"size": 8000, "test_accuracy": 0.993}
    write_json(tmp_path / "baselines" / "mnist.json", records)
    single = settings_of("mnist", 1)
    more = rows_of(single, Places(tmp_path, tmp_path))[len(ROWS) :]
    assert [(row.method, row.model_size, row.working_memory) for row in more] == [
        ("by hand 4", 1420, None),
        ("LeNet + SpVD", 8000, None),
    ]
    # What has fewer weights than a row is not trimmed, but gets those back that were pruned.
    pairs = competitors(single, RECORDS, more)
    assert [[c.name for c in found] for _, found in pairs] == [
        ["004-1420", "002-1420"],
        ["004-8000"],
    ]
    maps = rows_of(settings_of("mnist", 2), Places(tmp_path, tmp_path))
    assert [(r.memory_model, r.working_memory) for r in maps if r.method == "by hand 4"] == [
        ("inputs+weights", 900),
        ("inputs+outputs", 900),
    ]


def test_feature_maps_are_trimmed_only_where_there_are_too_many():
    found = {round(r.model_size): c for r, c in competing(2, RECORDS)}
    assert found[2836] == [Candidate("004", 2836), Candidate("002")]
    assert found[1475] == [Candidate("004", 1474), Candidate("002", 1474)]


def test_only_memory_that_counts_weights_has_slack():
    records = [*RECORDS, record(5, 0.005, 900.0, 1450.0)]
    pairs = competing(2, records)
    found = {(row.memory_model, round(row.working_memory)): c for row, c in pairs}
    # Trimmed, it may come below 1,362 bytes of inputs and weights, but not of inputs and outputs.
    assert Candidate("005", None, 1361) in found["inputs+weights", 1362]
    assert "005" not in {c.trial for c in found["inputs+outputs", 1413]}
    assert Candidate("004") in found["inputs+outputs", 1413]


def test_what_counts_before_trimming_to_working_memory_is_the_inputs():
    wide = record(5, 0.005, 9000.0, 6000.0)
    wide = wide._replace(metrics={**wide.metrics, "working_memory/inputs": 1300.0})
    deep = wide._replace(trial_id="006", metrics={**wide.metrics, "val_error": 0.001})
    deep.metrics["working_memory/inputs"] = 2100.0
    found = {round(r.working_memory): c for r, c in competing(2, [wide])}
    assert found[2007] == [Candidate("005", 2836, 2007)]
    assert found[1362] == [Candidate("005", 1474, 1361)]
    assert found[2007][0].name == "005-2836-wm2007"
    both = {round(r.working_memory): c for r, c in competing(2, [deep, wide])}
    assert both[2007] == found[2007]


def test_a_network_measures_what_its_inputs_take():
    rows = measure(small_network(), working_memory="inputs").nodes
    assert [row.working_memory for row in rows] == [64, 36, 144]


def test_the_winner_of_a_heat_is_the_most_accurate_that_fits():
    settings = settings_of("mnist", 1)._replace(final=Final(members=5))

    def heat(accuracy, size):
        return {"val_accuracy": accuracy, "sizes": {"nonzeros": size}}

    heats = {"002-476": heat(0.99, 477.0), "001-476": heat(0.96, 476.0), "000-476": heat(0.95, 400)}
    chosen = finalists(settings, RECORDS, heats, PAPER)
    assert chosen[0] == Candidate("001", 476)
    assert chosen[1] == Candidate("002", 510)  # no heat of its row was run
    assert len(chosen) == 5
    close = heats | {"000-476": heat(0.9582, 400)}  # the standard error is 0.0028
    assert finalists(settings, RECORDS, close, PAPER)[:2] == [
        Candidate("001", 476),
        Candidate("000", 476),
    ]
    assert (
        {c.trial for c in chosen}
        <= needed_trials(settings, RECORDS, PAPER)
        <= {"000", "001", "002", "003", "004"}
    )


def test_with_folds_only_the_first_of_each_heat_is_trained():
    final = Final(folds=3, members=9)
    settings = settings_of("mnist", 1)._replace(final=final)
    heats = {
        name: {"val_accuracy": value, "sizes": {"nonzeros": 400.0}}
        for name, value in (("001-476", 0.9601), ("000-476", 0.96))
    }
    chosen = finalists(settings, RECORDS, heats, PAPER)
    assert chosen[0] == Candidate("001", 476)
    assert len(chosen) == 5  # one a row, no spread over the front


def test_each_image_of_a_cross_validation_is_once_for_validation():
    data = datasets.load("digits")
    parts = list(folds_of(data, 3))
    whole = merged(data)
    assert len(whole.x_train) == len(data.x_train) + len(data.x_val)
    assert sum(len(part.x_val) for part in parts) == len(whole.x_train)
    assert len({part.name for part in parts} | {data.name, whole.name}) == 5
    for part in parts:
        assert len(part.x_train) + len(part.x_val) == len(whole.x_train)
        shares = [np.bincount(y, minlength=10) / len(y) for y in (part.y_val, whole.y_train)]
        np.testing.assert_allclose(*shares, atol=0.01)
        assert part.x_test is data.x_test


def test_without_heats_all_candidates_are_trained_the_rows_by_turns():
    settings = settings_of("mnist", 1)._replace(final=Final(heat_epochs=0, members=7))
    names = [candidate.name for candidate in finalists(settings, RECORDS, {}, PAPER)]
    assert names[:5] == ["002-476", "002-510", "004-569", "004-804", "004-1000"]
    assert names[5:] == ["001-476", "001-510"]


def test_places_that_are_left_go_to_a_spread_over_the_front():
    settings = settings_of("mnist", 1)._replace(final=Final(members=8))
    chosen = finalists(settings, RECORDS, {}, PAPER)
    assert chosen[5:] == [Candidate("004"), Candidate("001"), Candidate("000")]


def test_a_row_is_answered_by_validation_and_by_test():
    def member(validation, size):
        return {"val_accuracy_int8": validation, "sizes": {"nonzeros": size, WM: 90.0}}

    members = {"a": member(0.99, 90), "b": member(0.98, 80), "large": member(1.0, 101)}
    accuracies = {"a": {"int8": 0.96}, "b": {"int8": 0.98, "float": 0.99}, "large": {"int8": 1.0}}
    row = row_of(Published("x", 0.97, 100, 100.0, "inputs+weights"), members, accuracies)
    assert (row.by_validation.member, row.by_validation.dominates) == ("a", False)
    assert (row.by_test.member, row.by_test.dominates) == ("b", True)
    tight = Published("x", 0.97, 100, 89.0, "inputs+weights")
    assert row_of(tight, members, accuracies).by_validation is None


def test_what_size_alone_costs_in_working_memory():
    both = [record(0, 0.01, 90.0, 40.0), record(1, 0.02, 80.0, 20.0), record(2, 0.5, 9.0, 1.0)]
    alone = [record(0, 0.01, 85.0, 100.0), record(1, 0.03, 70.0, 300.0)]
    facts = memory_facts([both, alone], 0.95)
    assert (facts.least, facts.median) == ((20.0, 100.0), (30.0, 200.0))


def test_the_ablation_takes_the_median_of_the_seeds():
    pruned = [[record(0, 0.04, s), record(1, 0.2, 1.0)] for s in (100.0, 300.0, 200.0)]
    plain = [[record(0, 0.04, 5000.0)], [record(0, 0.3, 50.0)], [record(0, 0.04, 4000.0)]]
    facts = ablation_facts(pruned, plain, accuracy=0.95)
    assert facts.smallest == (200.0, None)


# Training.


def small_network(first=1):
    x = image = keras.Input((8, 8, 1))
    x = keras.layers.SeparableConv2D(4, 3, depth_multiplier=first, use_bias=False, name="conv")(x)
    x = keras.layers.BatchNormalization(name="conv-norm")(x)
    x = keras.layers.Flatten()(keras.layers.ReLU()(x))
    return keras.Model(image, keras.layers.Dense(10, name="dense")(x))


def test_trimming_reaches_the_limit_and_training_keeps_the_zeros():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network()
    start = parameters_left(model)
    trim(model, start - 300)
    zeros = [np.asarray(w) == 0 for w in model.trainable_variables if len(w.shape) > 1]
    assert parameters_left(model) == start - 300
    hold(model)
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(shift=1), epochs=2, rate=1e-2, seed=0, limit=300)
    kernels = [np.asarray(w) for w in model.trainable_variables if len(w.shape) > 1]
    for before, after in zip(zeros, kernels, strict=True):
        assert not after[before].any()
    # Biases that were 0 have been trained; they count.
    assert 250 < measure(model).nonzeros <= 300 + 14


def test_trimming_leaves_something_of_every_layer():
    keras.utils.set_random_seed(0)
    model = small_network()
    dense = model.get_layer("dense")
    dense.kernel.assign(0.001 * dense.kernel)  # small weights are not unimportant for that
    biases = parameters_left(model) - sum(k.numpy().size for k in kernels_in(model))
    trim(model, biases + 40)
    left = [int(np.count_nonzero(kernel)) for kernel in kernels_in(model)]
    assert sum(left) == 40
    assert min(left) >= 3


def test_layers_are_trimmed_to_a_working_memory():
    keras.utils.set_random_seed(0)
    model = small_network()

    def memory():
        rows = measure(model, working_memory="inputs+weights").nodes
        return {row.name: row.working_memory for row in rows}

    # An image of 64 values and 9 weights, 36 values and 4, 144 and 1 440; the biases are 0 yet.
    assert memory() == {"conv/depthwise": 73, "conv": 40, "dense": 1584}
    trim_layers(model, 400, share=0.5)
    assert 400 < memory()["dense"] <= 1000
    trim_layers(model, 400)  # with room for 10 biases
    assert memory() == {"conv/depthwise": 73, "conv": 40, "dense": 390}
    trim_layers(model, 68)  # the first kernel; the dense layer's inputs alone are too many
    assert memory() == {"conv/depthwise": 67, "conv": 40, "dense": 390}


def test_the_limit_holds_in_int8_with_the_biases_that_it_adds():
    keras.utils.set_random_seed(0)
    data, model = datasets.load("digits"), small_network(8)
    targets = targets_of(data, Final(distillation=0.0), None, 0)
    train(model, data, targets, Final(), epochs=4, rate=1e-2, seed=0, limit=300)
    measured = in_int8(model, data, 1, 0)
    assert measure(model).nonzeros < measured.sizes["nonzeros"] <= 300


def kernels_in(model: keras.Model) -> list:
    return [w for w in model.trainable_variables if len(w.shape) > 1]


def test_a_teacher_is_trained_once_and_mixed_in(tmp_path):
    data = datasets.load("digits")
    data = data._replace(x_train=data.x_train[:256], y_train=data.y_train[:256])
    final = Final(distillation=0.25, teacher_steps=0)
    first = targets_of(data, final, tmp_path, seed=1)
    path = next(tmp_path.iterdir())
    stamp = path.read_bytes()
    again = targets_of(data, final, tmp_path, seed=1)
    assert path.read_bytes() == stamp
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first.sum(axis=-1), 1.0, atol=1e-3)
    assert (first[np.arange(256), data.y_train] >= 0.75).all()


def test_a_batch_is_moved_by_whole_pixels():
    x = np.zeros((4, 5, 5, 1), "float32")
    x[:, 2, 2] = 1.0
    layer = RandomShift(1, seed=3)
    places = {tuple(np.argwhere(layer(x, training=True)[0, ..., 0])[0]) for _ in range(60)}
    assert places == {(i, j) for i in (1, 2, 3) for j in (1, 2, 3)}
    np.testing.assert_array_equal(layer(x, training=False), x)


def test_the_same_seed_moves_the_same_batches():
    x = np.zeros((32, 5, 5, 1), "float32")
    x[:, 2, 2] = 1.0

    def batches(seed):
        keras.utils.set_random_seed(7)
        training = Training(x, np.zeros(32, int), None, batch_size=4, augment=RandomShift(1))
        moved = training.fit_arguments(seed)["x"]
        return [np.asarray(batch[0]) for _ in range(2) for batch in moved]

    first = batches(1)
    np.testing.assert_array_equal(first, batches(1))
    assert not np.array_equal(first, batches(2))


def test_a_network_that_guesses_is_no_baseline():
    data = datasets.load("digits")
    model = keras.Sequential(
        [
            keras.Input(data.input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )
    assert not tables_lenet.has_learnt(model, data)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data.x_train, data.y_train, epochs=2, verbose=0)
    assert tables_lenet.has_learnt(model, data)


@pytest.mark.slow
def test_lenet_goes_on_where_the_time_was_over(tmp_path, monkeypatch):
    monkeypatch.setitem(tables_lenet.LENET_EPOCHS, "tiny", 10)
    monkeypatch.setattr(tables_lenet.lenet, "FINETUNED", 1)
    monkeypatch.setattr(tables_lenet, "_LEARNT", -1.0)  # so few epochs of noise teach nothing
    data, places = tiny_data(), Places(tmp_path / "runs", tmp_path / "results")
    chances = iter([False, True])
    assert tables_lenet.lenet_spvd(data, places, lambda: next(chances)) is None
    state = tmp_path / "runs" / "lenet" / "tiny-spvd" / "state.json"
    assert json.loads(state.read_text())["epoch"] == 5
    found = tables_lenet.lenet_spvd(data, places, lambda: False)
    assert json.loads(state.read_text())["epoch"] == 10
    assert 0 < found["sparsity"] < 1
    write_json(tmp_path / "results" / "baselines" / "tiny.json", {"LeNet + SpVD": found})
    pruned = tables_lenet.lenet_magnitude(data, places, lambda: False)
    assert pruned["size"] == pytest.approx(found["size"], abs=2)
    # Where pruning leaves a network that guesses, it may keep more weights; SpVD may not.
    monkeypatch.setattr(tables_lenet, "_LEARNT", 1.0)
    monkeypatch.setattr(tables_lenet, "_MORE_WEIGHTS", (1, 2))
    more = tables_lenet.lenet_magnitude(data, places, lambda: False)
    assert more["size"] > pruned["size"]
    assert "2 times" in more["setting"]
    with pytest.raises(ValueError, match="A network that guesses is no baseline"):
        tables_lenet.lenet_spvd(data, places, lambda: False)


# All of it.


@pytest.mark.slow
def test_the_whole_way_on_digits(tmp_path, monkeypatch):
    places = Places(tmp_path / "runs", tmp_path / "results" / "tables")
    small = {"num-conv-blocks": (1, 1), "num-conv-layers": (1, 1), "num-filters": (2, 8)}
    small |= {"left-branch": [False], "right-branch": [False], "num-fc-layers": (0, 0)}
    settings = settings_of("digits", 2)._replace(trials=7, ranges=small)
    row = Published("SpArSe", 0.5, 150.0, 5000.0, "inputs+weights")
    monkeypatch.setattr(tables_targets, "published", lambda data, memory: [row])
    data = datasets.load("digits")
    monkeypatch.setattr(tables_page, "DATA", {"digits": "Digits"})
    monkeypatch.setattr(tables_figures, "_DATA", ("digits",))
    monkeypatch.setattr(tables_baselines, "boosted_trees", tables_baselines.nearest)  # slow

    assert run_table(settings, data, places, Deadline(0.0)) == "search"
    with pytest.raises(ValueError, match="not there yet"):
        look_at_test(settings, data, places)
    assert run_table(settings, data, places, Deadline(None), parts=("search",)) == ""
    shutil.rmtree(places.runs)  # another machine
    assert is_searched(settings, places)
    assert run_table(settings, data, places, Deadline(None)) == ""

    state = places.state(settings)
    members = members_of(settings, places)
    heats = heats_of(settings, places)
    assert heats and {record["trial"] for record in members.values()} <= {
        path.stem for path in (state / "posteriors").iterdir()
    }
    # What is trained after the test set was used could be chosen by it.
    changed = settings._replace(final=settings.final._replace(members=4))
    assert finish_front(changed, data, places, lambda: False)
    assert members_of(settings, places) == members
    test = json.loads((state / "test.json").read_text())
    assert members and set(test["accuracy"]) == set(members)
    assert test["looks"] == 1
    with pytest.raises(ValueError, match="used once"):
        look_at_test(settings, data, places)
    # Rows that come later have members of their own, beside those that were trained, and perhaps
    # networks, after all trials.
    smaller = row._replace(model_size=100.0)
    settings = settings._replace(late=(Network((((6, 3, 1),),), (2,)),))
    assert not is_searched(settings, places)
    monkeypatch.setattr(tables_targets, "published", lambda data, memory: [row, smaller])
    parts = ("search", "final", "test")
    assert run_table(settings, data, places, Deadline(None), parts=parts, again=True) == ""
    records = records_of(Project(places.folder(settings)))
    assert len(records) == 8 and records[7].configuration["num-filters-block-1-layer-1"] == 6
    before, members = members, members_of(settings, places)
    assert before.items() < members.items()
    test = json.loads((state / "test.json").read_text())
    assert test["looks"] == 2 and set(test["accuracy"]) == set(members)

    assert run_table(settings, data, places, Deadline(None), parts=("effects",)) == ""

    readme = tmp_path / "README.md"
    readme.write_text(f"before {tables_page.BEGIN} old {tables_page.END} after")
    monkeypatch.setattr(tables_page, "settings_of", lambda data, table: settings)
    tables_page.write_page(places, tmp_path / "RESULTS.md", readme)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "looked at 2 times" in page
    assert "by hand 4" in page
    assert page.count("no distillation") == 2  # of tables 1 and 2; the third has the second's
    assert page.count("weights drawn anew") == 2
    assert page.count("-front.png") == 1
    assert "old" not in readme.read_text()

    # A better training: the look at the test set stays known.
    begin_anew(settings, places)
    folds = settings._replace(final=settings.final._replace(folds=2))
    assert run_table(folds, data, places, Deadline(None)) == ""
    assert json.loads((state / "test.json").read_text())["looks"] == 3
    chosen = members_of(folds, places)
    assert all("val_accuracy_int8" not in record for record in chosen.values())
    heats = heats_of(folds, places)
    assert {r["val_accuracy_folds"] for r in chosen.values()} <= {
        heat["val_accuracy"] for heat in heats.values()
    }
    monkeypatch.setattr(tables_page, "settings_of", lambda data, table: folds)
    tables_page.write_page(places, tmp_path / "RESULTS.md", readme)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "looked at 3 times" in page
    assert f"`{next(iter(members))}` {test['accuracy'][next(iter(members))]['int8']:.2%}" in page
    assert "(cross-validation)" in page
    with pytest.raises(ValueError, match="final.folds=2"):
        run_table(folds, data, places, Deadline(None), parts=("effects",))
    begin_anew(folds, places)  # both earlier rounds stay known
    earlier = json.loads((state / "earlier.json").read_text())
    assert set(earlier["accuracy"]) == set(chosen)
    tables_page.write_page(places, tmp_path / "RESULTS.md", readme)
    assert "has not been asked of these networks yet" in (tmp_path / "RESULTS.md").read_text()
    assert "not asked yet (3 looks at the test set before)" in readme.read_text()
    # A second process begins at the other end and finds the same.
    assert run_heats(folds, data, places, lambda: False, backwards=True)
    found = heats_of(folds, places)
    assert list(found) == list(heats)[::-1]
    assert {name: heat["val_accuracy"] for name, heat in found.items()} == {
        name: heat["val_accuracy"] for name, heat in heats.items()
    }
    assert set(earlier["earlier"]["accuracy"]) == set(members)
    begin_anew(folds, places, search=True)
    assert not is_searched(folds, places)
    assert json.loads((state / "earlier.json").read_text()) == earlier
    assert readme.read_text().endswith("after")
