"""Which trials compete for the rows of the tables, and which of them win."""

from pathlib import Path

import numpy as np
from keras_sparse.tuner.references import Published

from benchmarks.tables_candidates import Candidate, competitors, finalists, needed_trials
from benchmarks.tables_folds import folds_of, merged
from benchmarks.tables_places import Places
from benchmarks.tables_rows import row_of
from benchmarks.tables_settings import Final, settings_of
from benchmarks.tables_targets import rows_of
from keras_sparse import datasets, measure
from keras_sparse.files import write_json
from tests.tables_parts import WM, record, small_network

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


def test_entrants_compete_for_every_row_that_is_smaller():
    settings = settings_of("mnist", 1)
    settings = settings._replace(entrants=(settings.networks[3],))
    pairs = competitors(settings, RECORDS, rows_of(settings, NOWHERE))
    found = {row.model_size: [c.name for c in some] for row, some in pairs}
    assert found[476] == ["002-476", "001-476", "000-476", "003-476"]
    assert found[804] == ["004-804", "002-804", "001-804"]  # it has 790

    late = settings._replace(trials=3, entrants=settings.late)
    row = [row for row in PAPER if row.model_size == 476]
    assert competitors(late, RECORDS, row)[0][1][-1] == Candidate("003", 476)


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


def test_a_limit_that_is_kept_anyway_does_not_make_a_second_member():
    settings = settings_of("mnist", 2)._replace(final=Final(members=5))
    row = Published("x", 0.99, 476, 900.0, "inputs+weights")
    records = [record(5, 0.005, 900.0, 1000.0)]
    heat = {"val_accuracy": 0.98, "sizes": {"nonzeros": 476, WM: 850.0}}
    limited = {"005-476-wm900": heat}
    assert finalists(settings, records, limited, [row])[0] == Candidate("005", 476, 900)
    assert finalists(settings, records, limited | {"005-476": heat}, [row])[0].memory is None
    large = {**heat, "sizes": {"nonzeros": 476, WM: 950.0}}
    assert finalists(settings, records, limited | {"005-476": large}, [row])[0].memory == 900


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
