"""The benchmarks' own machinery, on data small enough for a test."""

import json

import keras
import numpy as np

from benchmarks import lenet
from benchmarks.magnitude import MagnitudePruning
from benchmarks.record import environment, write_json
from keras_sparse import KLAnnealing, datasets, sparsity
from tests.layers.cases import loss


def tiny_data() -> datasets.Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 28, 28, 1)).astype("float32")
    y = (x.mean(axis=(1, 2, 3)) > 0).astype("int32")
    parts = (x[:200], y[:200], x[200:300], y[200:300], x[300:], y[300:])
    return datasets.Dataset("tiny", *parts, ("low", "high"), np.zeros(1), np.ones(1))


def test_a_stopped_run_goes_on_to_the_same_result(tmp_path):
    data, run = tiny_data(), lenet.RUNS["lenet300-spvd"]._replace(epochs=4, annealing=(1, 2))

    def trained(folder, *epochs):
        for stop in epochs:
            keras.utils.set_random_seed(5)
            model = lenet.build(run, "auto", steps=8)
            part = run._replace(epochs=stop)
            callbacks = [KLAnnealing(200, *run.annealing)]
            model, state = lenet.train(model, part, data, callbacks, folder, seed=5, every=1)
        return model, state

    whole, state = trained(tmp_path / "whole", 4)
    parts, resumed = trained(tmp_path / "parts", 2, 4)
    assert state["log"] == resumed["log"]
    for a, b in zip(whole.weights, parts.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_magnitude_pruning_reaches_and_keeps_the_sparsity():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(30), keras.layers.Dense(2)])
    model.compile("adam", loss())
    x = np.random.default_rng(0).normal(size=(64, 20)).astype("float32")
    pruning = MagnitudePruning(0.9, 2, 6)
    for epoch in range(10):  # as the benchmark does, so that it can stop and go on
        model.fit(
            x,
            (x[:, 0] > 0).astype(int),
            initial_epoch=epoch,
            epochs=epoch + 1,
            verbose=0,
            callbacks=[pruning],
        )
    total = sparsity(model).total
    assert total.nonzeros == round(0.1 * total.weights)


def test_results_are_written_whole_with_the_environment(tmp_path):
    write_json(tmp_path / "new" / "result.json", {"a": 1, "environment": environment()})
    content = json.loads((tmp_path / "new" / "result.json").read_text())
    assert content["a"] == 1
    assert content["environment"]["versions"]["keras"] == keras.__version__
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result.json"]
