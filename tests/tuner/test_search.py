import json
import os
import shutil

import keras_tuner
import numpy as np
import pytest
from keras_sparse.tuner import Budget, CostModel, SparseCNN, SparseTuner, Stage
from keras_sparse.tuner.answers import TrialRecord, best_of
from keras_sparse.tuner.goals import goals_of, limits_of
from keras_sparse.tuner.pareto import non_dominated
from keras_sparse.tuner.restoring import PARENT

from .searches import MODEL, computed, data, search

# One process runs them all: they share what is trained or searched first.
pytestmark = pytest.mark.xdist_group("search")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    tuner = computed(tmp_path_factory.mktemp("search"))
    search(tuner)
    return tuner


def proposals(folder):
    files = sorted(folder.glob("search/trial_*/proposal.json"))
    return [json.loads(file.read_text()) for file in files]


def interrupt(tuner, trial_id):
    """Searches until Ctrl-C comes in the middle of a trial."""
    original = tuner._train

    def interrupted(trial, *args):
        if trial.trial_id == trial_id:
            raise KeyboardInterrupt
        return original(trial, *args)

    tuner._train = interrupted
    with pytest.raises(KeyboardInterrupt):
        search(tuner)
    tuner._train = original


def test_every_trial_is_recorded_also_those_that_fail(finished):
    records = finished.trials()
    assert [r.number for r in records] == list(range(20))
    failed = [r.number for r in records if r.status == "failed"]
    assert failed == [6, 13]
    assert "made to fail" in records[6].reason
    assert all(r.metrics for r in records if r.status == "completed")


def test_no_configuration_is_tried_twice(finished):
    configurations = [tuple(sorted(r.configuration.items())) for r in finished.trials()]
    assert len(set(configurations)) == len(configurations)


def test_references_of_stage_3_were_on_the_front_at_that_time(finished):
    records = finished.trials()
    checked = 0
    for record in records:
        if record.stage == 3 and record.reference is not None:
            before = [r for r in records[: record.number] if r.metrics]
            values = np.array([[r.metrics["val_error"], r.metrics["model_size"]] for r in before])
            front = {before[i].trial_id for i in np.flatnonzero(non_dominated(values))}
            assert record.reference in front
            checked += 1
    assert checked >= 3


def test_stage_2_changes_pruning_parameters_only(finished):
    records = {r.trial_id: r for r in finished.trials()}
    morphs = [r for r in records.values() if r.stage == 2 and r.reference is not None]
    assert morphs
    for record in morphs:
        old = records[record.reference].configuration
        changed = {name for name, value in record.configuration.items() if old.get(name) != value}
        assert changed
        assert all(name.startswith("pruning-thresholds") or name == "alpha" for name in changed)


def test_trials_show_the_papers_names_and_their_parent(finished):
    trial = finished.oracle.get_trial("19")
    record = finished.trials()[19]
    assert trial.hyperparameters.values["batch-norm"] == record.configuration["batch-norm"]
    assert trial.hyperparameters.values.get(PARENT) == record.reference


def test_answers_agree_with_each_other(finished, tmp_path):
    front = finished.pareto_front()
    errors = [r.metrics["val_error"] for r in front]
    sizes = [r.metrics["model_size"] for r in front]
    assert errors == sorted(errors)
    assert sizes == sorted(sizes, reverse=True)
    best = finished.oracle.get_best_trials(1)[0]
    assert best.trial_id == front[0].trial_id
    assert finished.get_best_hyperparameters()[0].values == best.hyperparameters.values
    volumes = finished.hypervolumes()
    assert len(volumes) == 20
    assert volumes == sorted(volumes)
    assert 0 < volumes[-1] < 1
    line = finished.lineage(front[0])
    assert line[0] == front[0]
    assert line[-1].reference is None
    table = finished.table()
    assert [row["trial"] for row in table if row["on_front"]] == sorted(r.trial_id for r in front)
    finished.save_table(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text().count("\n") == 21
    accuracy, size = 1 - errors[-1], sizes[-1]
    assert finished.dominating([(accuracy, size), (1.0, 0.5)], "model_size") == [front[-1], None]


def test_the_summary_names_the_front(finished, capsys):
    finished.results_summary()
    printed = capsys.readouterr().out
    assert "20 trials, 2 failed" in printed
    assert all(record.trial_id in printed for record in finished.pareto_front()[:10])


def test_best_means_the_most_accurate_within_the_budget(tmp_path):
    tuner = computed(tmp_path, 12, budget=Budget(flash=100))
    search(tuner)
    complete = [r for r in tuner.trials() if r.metrics]
    within = [r for r in complete if r.metrics["flash"] <= 100]
    best = tuner.oracle.get_best_trials(12)
    assert best[0].trial_id == min(within, key=lambda r: r.metrics["val_error"]).trial_id
    assert {t.trial_id for t in best[: len(within)]} == {r.trial_id for r in within}


def test_of_equally_accurate_networks_the_smallest_is_best():
    goals, limits = goals_of(["val_error", "model_size"]), limits_of(Budget(flash=100))
    sizes = [("00", 0.1, 90.0), ("01", 0.1, 80.0), ("02", 0.2, 10.0), ("03", 0.0, 200.0)]
    records = [
        TrialRecord(
            name, int(name), "completed", 1, None, {},
            {"val_error": error, "model_size": size, "flash": size}, "", 1, 1.0,
        )
        for name, error, size in sizes
    ]  # fmt: skip
    best = best_of(records, goals, limits)
    assert best is not None and best.trial_id == "01"


def test_a_stopped_search_goes_on_as_if_it_had_not_been(finished, tmp_path):
    interrupt(computed(tmp_path), "09")
    os.remove(tmp_path / "search" / "oracle.json")  # all it says is in the trials' files
    resumed = computed(tmp_path)
    assert resumed.remaining_trials == 10
    search(resumed)
    assert resumed.trials() == finished.trials()


def test_an_interrupted_trial_runs_again(tmp_path):
    tuner = computed(tmp_path, 6)
    interrupt(tuner, "3")
    tried = proposals(tmp_path)
    assert [r.status for r in tuner.trials()] == ["completed"] * 3 + ["running"]
    search(tuner)
    assert proposals(tmp_path)[:4] == tried
    assert [r.status for r in tuner.trials()] == ["completed"] * 6


def test_a_broken_last_file_costs_one_trial_at_most(tmp_path):
    search(computed(tmp_path, 6))
    before = proposals(tmp_path)
    folder = tmp_path / "search" / "trial_5"
    (folder / "proposal.json").write_text('{"configuration": {"downsa')
    with pytest.warns(UserWarning, match="cannot be read"):
        tuner = computed(tmp_path, 6)
    assert len(tuner.oracle.trials) == 5
    search(tuner)
    assert proposals(tmp_path) == before


def test_a_full_disk_stops_the_search_and_loses_nothing(tmp_path, monkeypatch):
    tuner = computed(tmp_path, 6)
    real = os.replace

    def full(source, target):
        if "trial_4" in str(target):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        search(tuner)
    monkeypatch.undo()
    assert not list((tmp_path / "search").rglob("*.part"))
    again = computed(tmp_path, 6)
    search(again)
    assert [r.status for r in again.trials()] == ["completed"] * 6


def test_a_disk_that_is_full_at_the_end_of_a_trial(tmp_path, monkeypatch):
    tuner = computed(tmp_path, 6)
    real = os.replace

    def full(source, target):
        if "trial_4" in str(target) and "trial.json" in str(target) and runs(tuner).count("4"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        search(tuner)
    monkeypatch.undo()
    search(tuner)  # the same object, in a notebook
    assert [r.status for r in tuner.trials()] == ["completed"] * 6
    assert runs(tuner).count("4") <= 2


def runs(tuner):
    lines = (tuner.project.folder / "runs.txt").read_text().splitlines()
    return [line.split()[0] for line in lines]


def test_metrics_that_are_no_numbers_do_not_stop_the_search(tmp_path):
    tuner = computed(tmp_path, 5)
    original = tuner._train

    def strange(*args):
        outcome, posteriors = original(*args)
        return outcome._replace(metrics={**outcome.metrics, "model_size": np.nan}), posteriors

    tuner._train = strange
    search(tuner)
    assert {r.status for r in tuner.trials()} == {"failed"}
    assert "model_size is nan" in tuner.trials()[0].reason


def test_an_interrupted_object_proposes_on_as_if_it_had_not_been(finished, tmp_path):
    tuner = computed(tmp_path)
    interrupt(tuner, "15")
    search(tuner)
    assert tuner.trials() == finished.trials()


def test_an_unreadable_trial_in_the_middle_counts_as_failed(tmp_path):
    search(computed(tmp_path, 8))
    (tmp_path / "search" / "trial_3" / "proposal.json").write_text("{")
    shutil.rmtree(tmp_path / "search" / "trial_2")
    with pytest.warns(UserWarning, match="cannot be read"):
        tuner = computed(tmp_path, 9)
    search(tuner)
    assert len(tuner.oracle.trials) == 9
    assert [t.status for t in tuner.oracle.ended()][2:4] == ["FAILED"] * 2
    assert tuner.trials()[-1].status == "completed"


def test_two_processes_cannot_search_in_one_folder(tmp_path):
    tuner = computed(tmp_path, 4)
    with tuner.project.lock(), pytest.raises(RuntimeError, match="Another process"):
        search(computed(tmp_path, 4))
    search(tuner)


def test_a_folder_of_another_program_is_refused(tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "oracle.json").write_text("{}")
    with pytest.raises(ValueError, match="another program"):
        computed(tmp_path)


def test_the_search_goes_on_however_many_fail_in_a_row(tmp_path):
    tuner = computed(tmp_path, 8)

    def fail(*args):
        raise MemoryError("too large")

    tuner._train = fail
    search(tuner)
    assert [r.status for r in tuner.trials()] == ["failed"] * 8
    assert "too large" in tuner.trials()[7].reason
    assert tuner.pareto_front() == []
    assert tuner.get_best_models() == []


def test_known_good_values_are_tried_first(tmp_path):
    model = SparseCNN(**MODEL, ranges={"num-filters": (1, 8)})
    good = model.sample(np.random.default_rng(5))
    tuner = computed(tmp_path, 6, initial_configurations=[good])
    search(tuner)
    assert tuner.trials()[0].configuration == good


def test_values_given_to_a_search_that_goes_on_come_next(tmp_path):
    model = SparseCNN(**MODEL, ranges={"num-filters": (1, 8)})
    first, second = (model.sample(np.random.default_rng(n)) for n in (5, 6))
    search(computed(tmp_path, 6, initial_configurations=[first]))
    longer = computed(tmp_path, 8, initial_configurations=[first, second])
    search(longer)
    configurations = [record.configuration for record in longer.trials()]
    assert len(configurations) == 8
    assert (configurations[0], configurations[6]) == (first, second)
    assert configurations.count(first) == configurations.count(second) == 1


def test_what_takes_too_long_is_not_proposed(tmp_path):
    cost, model = CostModel.common(), SparseCNN(**MODEL, ranges={"num-filters": (1, 8)})
    rng = np.random.default_rng(0)
    seconds = [cost.epoch_seconds(model.graph(model.sample(rng)), 128, 8) for _ in range(50)]
    tuner = computed(tmp_path, 10, max_trial_seconds=float(np.median(seconds)))
    search(tuner)
    assert 0 < tuner.rejected_share < 1
    accept = tuner.oracle.accept
    assert all(accept(r.configuration) for r in tuner.trials())
    impossible = computed(tmp_path, 10, max_trial_seconds=1e-9, project_name="none")
    with pytest.raises(ValueError, match="max_trial_seconds is too low"):
        search(impossible)
    assert impossible.trials() == []


def test_stages_can_be_chosen(tmp_path):
    tuner = computed(tmp_path, 8, stages=[Stage(3, 0.0), Stage(5, 1.0)])
    search(tuner)
    assert [r.stage for r in tuner.trials()] == [1] * 3 + [2] * 5


def test_silence_and_progress(tmp_path, capsys):
    tuner = computed(tmp_path, 5)
    search(tuner)
    assert capsys.readouterr().out == ""
    more = computed(tmp_path, 7, budget=Budget(flash=500))
    search(more, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("trial 7/7")
    assert "made to fail" in lines[-1]
    assert "hypervolume" in lines[-1]


def flash(model):
    return 1.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"objectives": ["speed"]}, "objectives must be among"),
        ({"objectives": []}, "at least one"),
        ({"max_trials": 3, "initial_points": 5}, "max_trials must be at least"),
        ({"budget": Budget(ram="lots")}, "ram must be a positive number"),
        ({"budget": Budget(accuracy=97)}, "accuracy must be a number between"),
        ({"budget": Budget(ram=3)}, "ram must be at least 4 bytes"),
        ({"budget": Budget(ram=63), "working_memory": "live"}, "ram must be at least 64 bytes"),
        ({"budget": Budget(flash=5)}, "flash must be at least 6 bytes"),
        ({"objectives": [flash]}, "must not have the name"),
        ({"initial_configurations": [{"batch-norm": True}]}, "needs a value for"),
        ({"working_memory": "guess"}, "working_memory"),
    ],
)
def test_bad_arguments_are_answered_in_a_sentence(tmp_path, kwargs, message):
    model = SparseCNN(**MODEL)
    with pytest.raises(ValueError, match=message):
        SparseTuner(model, directory=tmp_path, **kwargs)
    assert not (tmp_path / "search" / "project.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation_data": None}, "validation_data"),
        ({"epochs": 0}, "epochs must be"),
        ({"folds": 1}, "folds must be"),
        ({"recovery": 1.0}, "recovery must be .* Received: recovery=1.0"),
        ({"y": np.arange(8)}, "labels of x and y must be 0 to 3"),
        ({"y": None}, "y must be given"),
        ({"x": np.zeros((8, 9, 8, 1), "float32")}, "input_shape"),
        ({"sample_weight": np.ones(3)}, "one number per example"),
        ({"sample_weight": np.ones(8), "class_weight": {0: 1.0}}, "exclude each other"),
        ({"folds": 3}, "rarest class, 2"),
    ],
)
def test_bad_data_is_answered_before_the_first_trial(tmp_path, change, message):
    x, y = data()
    arguments = {"x": x, "y": y, "validation_data": (x, y), "verbose": 0, **change}
    tuner = computed(tmp_path)
    with pytest.raises(ValueError, match=message):
        tuner.search(**arguments)
    assert tuner.trials() == []


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    search(computed(tmp_path, 4))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="another hypermodel"):
        SparseTuner(SparseCNN((8, 8, 1), 5), directory=tmp_path, seed=3)
    with pytest.raises(ValueError, match="another seed"):
        computed(tmp_path, 4, seed=4)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(computed(tmp_path, 4, seed=4, overwrite=True).trials()) == 0


def test_files_of_somebody_else_run_no_code(tmp_path):
    search(computed(tmp_path, 5))
    folder = tmp_path / "search" / "trial_0"
    np.savez(folder / "posterior.npz", index=np.array([{"a": print}], dtype=object))
    with pytest.warns(UserWarning, match="cannot be read"):
        assert computed(tmp_path, 5).project.read_posterior("0") is None
    shutil.rmtree(folder)


def test_the_oracle_works_with_kerastuners_own_tuner(tmp_path):
    from keras_sparse.tuner import SparseOracle

    class Quadratic(keras_tuner.Tuner):
        def run_trial(self, trial, *args, **kwargs):
            hp = trial.hyperparameters
            a, kind = hp.Float("a", -1.0, 1.0), hp.Choice("kind", ["low", "high"])
            with hp.conditional_scope("kind", ["high"]):
                b = hp.Int("b", 1, 9) if kind == "high" else 0
            return {"first": a**2 + b, "second": (a - 0.5) ** 2, "multi_objective": 0.0}

    def make():
        goals = [keras_tuner.Objective(name, "min") for name in ("first", "second")]
        hp = keras_tuner.HyperParameters()
        hp.Float("a", -1.0, 1.0)
        hp.Choice("kind", ["low", "high"])
        with hp.conditional_scope("kind", ["high"]):
            hp.Int("b", 1, 9)
        oracle = SparseOracle(goals, 15, seed=1)
        oracle.hyperparameters = hp
        return Quadratic(oracle, directory=tmp_path, project_name="quadratic")

    tuner = make()
    tuner.oracle.max_trials = 8
    tuner.search()
    tuner = make()  # goes on
    assert len(tuner.oracle.trials) == 8
    tuner.search()
    best = tuner.oracle.get_best_trials(1)[0]
    assert best.score < 0.1
    assert best.hyperparameters.values["kind"] == "low"
    assert len(tuner.oracle.trials) == 15


def test_a_search_stops_by_the_clock_and_goes_on_later(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDS_PER_TRIAL", "0.1")
    tuner = computed(tmp_path, 12)
    search(tuner, seconds=0.3)
    assert 1 <= len(tuner.trials()) < 12
    monkeypatch.setenv("SECONDS_PER_TRIAL", "0")
    tuner = computed(tmp_path, 12)
    search(tuner)
    assert len(tuner.trials()) == 12
    whole = computed(tmp_path, 12, project_name="whole")
    search(whole)
    assert [r.configuration for r in tuner.trials()] == [r.configuration for r in whole.trials()]
