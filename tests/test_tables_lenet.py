"""LeNet-5 as a baseline of the tables."""

import json

import keras
import pytest

from benchmarks import (
    tables_lenet,
)
from benchmarks.tables_places import Places
from keras_sparse import datasets
from keras_sparse.files import write_json
from tests.test_benchmarks import tiny_data


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
