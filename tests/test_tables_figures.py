"""Facts and pictures of the tables."""

import numpy as np
from keras_sparse.tuner.reading import read_search
from PIL import Image

from benchmarks.tables_comparisons import (
    MemoryFacts,
    ablation_facts,
    beside,
    draw_memory,
    memory_facts,
    memory_of,
    random_facts,
)
from benchmarks.tables_cost import Cost, cost_of, cost_table
from benchmarks.tables_figures import draw_front, shrink
from benchmarks.tables_places import Places
from benchmarks.tables_settings import settings_of
from keras_sparse.files import write_json
from tests.tables_parts import record
from tests.tuner.searches import computed, search


def test_what_size_alone_costs_in_working_memory():
    both = [record(0, 0.01, 90.0, 40.0), record(1, 0.02, 80.0, 20.0), record(2, 0.5, 9.0, 1.0)]
    alone = [record(0, 0.01, 85.0, 100.0), record(1, 0.03, 70.0, 300.0)]
    facts = memory_facts([both, alone], 0.95, 3)
    assert (facts.least, facts.median) == ((20.0, 100.0), (30.0, 200.0))


def test_searches_are_compared_after_the_same_number_of_trials(tmp_path):
    places = Places(tmp_path / "runs", tmp_path / "tables")
    assert beside("mnist", 2, "random", places) == ()
    for variant, trials in (("main", 12), ("random", 5)):
        settings = settings_of("mnist", 2, variant)
        search(computed(places.runs, trials, project_name=settings.name))
    ended = beside("mnist", 2, "random", places)
    assert [[record.number for record in group.records] for group in ended] == [[*range(5)]] * 2
    ours, drawn, trials = random_facts("mnist", 2, places)
    assert (trials, ours) == (5, drawn)  # the first five are the same ones
    assert memory_of("mnist", places) is None  # no search for size alone


def test_a_picture_of_a_front_shows_all_members(tmp_path):
    tuner = computed(tmp_path, 8)
    search(tuner)
    found = read_search(tuner.project.folder)
    best = max(1 - record.metrics["val_error"] for record in found.front)
    members = [(100.0, best), (200.0, (1 + best) / 2)]
    figure = draw_front(found, [(300, 1.0)], members, tmp_path / "front.png")
    assert figure.axes[0].get_ylim()[1] > 100 * members[1][1]


def test_a_shrunk_picture_is_smaller_and_looks_the_same(tmp_path):
    picture = tmp_path / "memory.png"
    points = tuple((float(n), float(n), 0.9) for n in range(1, 20))
    draw_memory(MemoryFacts(("a", "b"), (points, points[::2]), 0.9, 5, (1, 1), (10, 10)), picture)
    with Image.open(picture) as image:
        before = np.asarray(image.convert("RGB")).astype(int)
    size = picture.stat().st_size
    shrink(picture)
    with Image.open(picture) as image:
        assert np.abs(before - np.asarray(image.convert("RGB"))).max() <= 16
    assert picture.stat().st_size < 0.8 * size


def test_the_ablation_takes_the_median_of_the_seeds():
    pruned = [[record(0, 0.04, s), record(1, 0.2, 1.0)] for s in (100.0, 300.0, 200.0)]
    plain = [[record(0, 0.04, 5000.0)], [record(0, 0.3, 50.0)], [record(0, 0.2, 4000.0)]]
    facts = ablation_facts(pruned, plain, accuracies=(0.95, 0.8))
    assert facts.smallest == ((200.0, 1.0), (None, 5000.0))


def test_the_cost_of_a_search_has_all_that_trained(tmp_path):
    places, settings = Places(tmp_path / "runs", tmp_path / "tables"), settings_of("mnist", 2)
    state = places.state(settings)
    write_json(state / "clock.json", {"wall": 7200.0, "cpu": 3600.0, "starts": 2})
    write_json(state / "heats.json", {"001": {"seconds": 1800.0, "cpu_seconds": 900.0}})
    write_json(state / "members" / "001.json", {"seconds": 1800.0, "cpu_seconds": 900.0})
    cost = cost_of(settings, places)
    assert cost == Cost(search=1.0, training=0.5, wall=3.0, gpu_days=(1, 1, 1, 2))
    table = cost_table([("MNIST", cost), ("other", cost._replace(gpu_days=()))])
    assert "| MNIST | 1.0 | 0.5 | 3.0 | 1 to 2 |" in table
    assert "| other | 1.0 | 0.5 | 3.0 | not published |" in table
    assert cost_table([]) == ""
