"""Which network the options of the long training are measured on."""

import pytest

from benchmarks.tables_effects import hardest_member
from benchmarks.tables_places import Places
from benchmarks.tables_settings import settings_of
from keras_sparse.files import write_json

SETTINGS = settings_of("chars4k-binary", 2)


def _members(places, sizes):
    folder = places.state(SETTINGS) / "members"
    folder.mkdir(parents=True)
    for name, size in sizes.items():
        memory = {"working_memory/inputs+weights": 500.0, "working_memory/inputs+outputs": 500.0}
        # The larger one is the more accurate: it stands against every row that it fits.
        record = {"val_accuracy_folds": 0.7 + size / 10_000, "trimmed to": size}
        write_json(folder / f"{name}.json", {**record, "sizes": {"nonzeros": size, **memory}})


def test_before_the_test_set_was_asked_it_is_that_of_the_largest_row(tmp_path):
    places = Places(tmp_path / "runs", tmp_path / "results")
    with pytest.raises(ValueError, match="run the parts search and final"):
        hardest_member(SETTINGS, places)
    _members(places, {"small": 163, "large": 471})
    assert hardest_member(SETTINGS, places)[0] == "large"


@pytest.mark.parametrize(
    ("small", "large", "closest"),
    [(0.80, 0.78, "large"), (0.75, 0.80, "small"), (0.70, 0.80, "small")],
)
def test_then_it_is_the_one_with_the_least_lead(tmp_path, small, large, closest):
    places = Places(tmp_path / "runs", tmp_path / "results")
    _members(places, {"small": 163, "large": 471})
    accuracy = {"small": {"int8": small}, "large": {"int8": large}}
    write_json(places.state(SETTINGS) / "test.json", {"looks": 1, "accuracy": accuracy})
    assert hardest_member(SETTINGS, places)[0] == closest
