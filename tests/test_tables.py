"""The tables, the whole way on digits."""

import json
import shutil

import pytest
from keras_sparse.tuner.project import Project
from keras_sparse.tuner.reading import records_of
from keras_sparse.tuner.references import Published

from benchmarks import (
    tables_baselines,
    tables_figures,
    tables_page,
    tables_targets,
)
from benchmarks.tables import Deadline, run_table
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
from benchmarks.tables_search import is_searched
from benchmarks.tables_settings import (
    settings_of,
)
from keras_sparse import datasets


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
    said, test = test, json.loads((state / "test.json").read_text())
    assert test["looks"] == 2 and set(test["accuracy"]) == set(members)
    assert said["accuracy"].items() < test["accuracy"].items()

    assert run_table(settings, data, places, Deadline(None), parts=("effects",)) == ""

    readme = tmp_path / "README.md"
    readme.write_text(f"before {tables_page.BEGIN} old {tables_page.END} after")
    monkeypatch.setattr(tables_page, "settings_of", lambda data, table: settings)
    stale = places.results / "figures" / "digits-structured-lineage-999.png"
    stale.parent.mkdir()
    stale.touch()
    tables_page.write_page(places, tmp_path / "RESULTS.md", readme)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "looked at 2 times" in page
    assert "by hand 4" in page
    assert page.count("no distillation") == 2  # of tables 1 and 2; the third has the second's
    assert page.count("weights drawn anew") == 2
    assert page.count("-front.png") == 1
    assert "old" not in readme.read_text()
    assert not stale.exists()

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
    assert run_table(folds, data, places, Deadline(None), parts=("effects",)) == ""
    effects = json.loads((state / "effects.json").read_text())
    assert "weights drawn anew" not in next(iter(effects.values()))
    tables_page.write_page(places, tmp_path / "RESULTS.md", readme)
    assert "in heats, that is in a cross-validation" in (tmp_path / "RESULTS.md").read_text()
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
