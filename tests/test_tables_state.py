"""A search that lost its folder."""

import shutil

from keras_sparse.tuner.project import Project

from benchmarks.tables_state import MOST_BYTES, forget, fronts_of, restore, save_state
from tests.tuner.searches import computed, search


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
