import json

import pytest
from keras_sparse.tuner import facts, plots
from keras_sparse.tuner.reading import read_search
from keras_sparse.tuner.references import published

from .folders import write_folder


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return read_search(write_folder(tmp_path_factory.mktemp("runs") / "fake", 12))


def test_a_folder_is_read_without_data_or_model(search):
    assert [record.status for record in search.records] == [
        *["completed"] * 7, "failed", *["completed"] * 3, "running",
    ]  # fmt: skip
    assert [record.stage for record in search.records] == [1] * 4 + [2] * 4 + [3] * 4
    assert search.budget.flash == 2048
    assert search.data == "mnist"
    assert set(search.networks) == {r.trial_id for r in search.records if r.metrics}
    assert search.problems == []


def test_the_front_has_every_measured_trial_the_best_and_the_published_points(search):
    shown = facts.front_facts(search)
    assert [point.trial_id for point in shown.points] == list(search.networks)
    fits = [
        r for r in search.records
        if r.metrics and r.metrics["flash"] <= 2048 and r.metrics["working_memory"] <= 2048
    ]  # fmt: skip
    assert shown.best == max(fits, key=lambda r: -r.metrics["val_error"]).trial_id
    assert {p.trial_id for p in shown.points if p.within} == {r.trial_id for r in fits}
    assert [row.method for row in shown.references] == ["SpArSe", "SpArSe", "Bonsai"]
    assert facts.front_facts(search, "digits").references == ()
    sizes, accuracies = zip(*shown.staircase, strict=True)
    assert list(sizes) == sorted(sizes) and list(accuracies) == sorted(accuracies)
    assert max(accuracies) == max(point.accuracy for point in shown.points)


def test_published_points_are_those_of_the_papers_tables():
    mnist = {(row.method, row.accuracy): row.model_size for row in published("mnist")}
    assert mnist["SpArSe", 0.9916] == 1000
    assert mnist["Bonsai", 0.9701] == 21500
    assert mnist["ProtoNN", 0.9588] == 16000
    first = published("mnist", "inputs+weights")[0]
    assert (first.model_size, first.working_memory) == (2.77 * 1024, 1.96 * 1024)
    assert published("chars4k-binary", "inputs+outputs")[-1].accuracy == pytest.approx(0.7471)


def test_the_hypervolume_never_falls_and_hours_add_up(search):
    shown = facts.hypervolume_facts(search)
    assert len(shown.volumes) == 11
    assert list(shown.volumes) == sorted(shown.volumes)
    assert shown.hours[-1] == pytest.approx(sum(r.seconds for r in search.records) / 3600)


def test_a_lineage_goes_from_the_oldest_to_the_trial_and_says_what_changed(search):
    child = next(r for r in search.records if r.reference is not None and r.metrics)
    steps = facts.lineage_facts(search, child.trial_id)
    assert steps[-1].trial_id == child.trial_id
    assert steps[-2].trial_id == child.reference
    assert steps[0].changes == ()
    parent = next(r for r in search.records if r.trial_id == child.reference)
    for name, old, new in steps[-1].changes:
        assert parent.configuration.get(name) == old != new == child.configuration.get(name)
    with pytest.raises(ValueError, match="must be one of the search. Received: '99'"):
        facts.lineage_facts(search, "99")


def test_the_scatter_compares_before_with_after_above_an_accuracy(search):
    everything = facts.scatter_facts(search)
    assert len(everything.trial_ids) == 10
    assert all(e >= n for e, n in zip(everything.edges, everything.nonzeros, strict=True))
    middle = sorted(everything.accuracies)[5]
    assert min(facts.scatter_facts(search, middle).accuracies) == middle
    assert facts.scatter_facts(search, 1.0).trial_ids == ()


def test_sparsity_counts_each_layer_with_parameters(search):
    trial = facts.front_facts(search).best
    layers = facts.sparsity_facts(search.networks[trial])
    record = next(r for r in search.records if r.trial_id == trial)
    assert sum(layer.before for layer in layers) == record.metrics["parameters"]
    assert sum(layer.after for layer in layers) == record.metrics["nonzeros"]


@pytest.mark.parametrize(
    "plot", ["front", "hypervolume", "lineage", "scatter", "sparsity", "trial"]
)
def test_every_picture_is_written(search, tmp_path, plot):
    path = tmp_path / f"{plot}.svg"
    figure = getattr(plots, f"plot_{plot}")(search, path)
    assert path.read_text().startswith("<?xml")
    assert figure.axes[0].get_children()
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows


def test_the_colour_can_be_working_memory(search):
    figure = plots.plot_front(search, colour="working_memory")
    assert "working memory" in figure.axes[1].get_ylabel()
    with pytest.raises(ValueError, match="colour must be"):
        plots.plot_front(search, colour="blue")


def test_a_search_without_trials_has_no_best(tmp_path):
    empty = read_search(write_folder(tmp_path / "empty", 1))
    assert facts.front_facts(empty).points == ()
    with pytest.raises(ValueError, match="a trial that has completed"):
        plots.plot_lineage(empty)
    plots.plot_front(empty)
    plots.plot_scatter(empty)


def strange_files():
    """What a stranger may put in place of a file, and what must then still hold."""
    return {
        "project.json": [b"[]", b"{", b'{"objectives": [1, null]}'],
        "settings.json": [b"3", b'{"budget": {"ram": "much"}}', b'{"budget": {"ram": 1e400}}'],
        "command.json": [b'{"data": ["a"]}'],
        "trial_02/proposal.json": [b"[]", b'{"stage": "x", "reference": "02"}', b"\xff\xfe"],
        "trial_02/result.json": [
            b'{"metrics": {"val_error": NaN}}',
            b'{"metrics": [], "network": {"nodes": [1]}}',
            b'{"network": {"nodes": [{"inputs": 3}]}}',
        ],
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [(name, content) for name, contents in strange_files().items() for content in contents],
)
def test_strange_files_are_left_out_or_refused_never_obeyed(tmp_path, name, content):
    folder = write_folder(tmp_path / "strange", 8)
    (folder / name).write_bytes(content)
    if name == "project.json":
        with pytest.raises(ValueError, match="must be the folder of a search"):
            read_search(folder)
        return
    search = read_search(folder)
    assert len(search.records) >= 7
    facts.front_facts(search)
    facts.hypervolume_facts(search)


def test_a_line_of_references_ends_even_if_files_say_otherwise(tmp_path):
    folder = write_folder(tmp_path / "circle", 6)
    for trial, reference in (("02", "03"), ("03", "02")):
        path = folder / f"trial_{trial}" / "proposal.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "reference": reference}))
    search = read_search(folder)
    assert [step.trial_id for step in facts.lineage_facts(search, "03")] == ["02", "03"]
