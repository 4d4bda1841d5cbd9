"""The benchmarks' own machinery, on data small enough for a test."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.parameters import Parameter, Space

from benchmarks import ablations, hypervolume, lenet, trained_networks
from benchmarks.distillation import TEMPERATURE, distillation_loss, targets
from benchmarks.lenet import shifted
from benchmarks.magnitude import MagnitudePruning
from benchmarks.narrowing import narrowed
from benchmarks.problems import Evaluations, Problem
from benchmarks.record import environment
from keras_sparse import KLAnnealing, datasets, sparsity
from keras_sparse.files import write_json
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
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


@pytest.mark.parametrize("method", ["spvd", "bc"])
def test_dropping_dead_units_leaves_the_predictions(method):
    layers = {"spvd": (SpVDConv2D, SpVDDense), "bc": (BCConv2D, BCDense)}[method]
    rng = np.random.default_rng(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers[0](6, 3, activation="relu", name="conv1"),
            keras.layers.MaxPooling2D(2),
            layers[0](5, 2, activation="relu", name="conv2"),
            keras.layers.Flatten(),
            layers[1](7, activation="relu", name="fc"),
            layers[1](3, name="logits"),
        ]
    )
    for layer in model.layers:
        for variable in layer.named_variables().values() if hasattr(layer, "stages") else ():
            if variable.name.endswith("log_variance") and variable.name != "bias_log_variance":
                noise = np.array(variable)
                # Whole outputs of convolutions and inputs of dense layers are noise.
                axis = 0 if "Dense" in type(layer).__name__ and noise.ndim < 4 else -1
                noise = np.moveaxis(noise, axis, 0)
                noise[:2] = 9.0
                variable.assign(np.moveaxis(noise, 0, axis))
    small = narrowed(model)
    widths = [layer.kernel.shape[-1] for layer in small.layers if hasattr(layer, "kernel")]
    assert widths[0] < 6
    assert widths[1] < 5
    assert widths[2] < 7
    assert widths[3] == 3
    x = rng.normal(size=(16, 8, 8, 1)).astype("float32")
    np.testing.assert_allclose(
        small.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-5, atol=1e-5
    )


def test_the_volume_of_an_ablation_is_a_share_and_only_grows():
    def record(error: float | None, nonzeros: float = 0.0) -> TrialRecord:
        metrics = {} if error is None else {"val_error": error, "nonzeros": nonzeros}
        return TrialRecord("0", 0, "completed", 1, None, {}, metrics, "", 1, 1.0)

    records = [record(None), record(0.1, 1000), record(0.2, 2000), record(0.005, 50)]
    volumes = ablations.history(records)
    assert volumes[0] == 0 < volumes[1] == volumes[2] < volumes[3] == 1
    assert {v.stages is None for v in ablations.variants(10).values()} == {True, False}


def test_networks_trained_with_other_settings_are_not_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(trained_networks, "FILE", tmp_path / "networks.json")
    network = trained_networks.Network("random 0", {"a": 1, "b": "x"}, {"val_error": 0.5})
    trained_networks.save([network])
    assert trained_networks.load() == [network]
    monkeypatch.setattr(trained_networks, "SETTINGS", {"epochs": 1})
    assert trained_networks.load() == []


def test_what_a_problem_refuses_is_told_as_poor_and_not_counted():
    space = Space([Parameter("x", low=0.0, high=1.0)])
    problem = Problem(
        "halves",
        space,
        lambda c: (float(c["x"]), 1.0),
        np.array([2.0, 2.0]),
        1.0,
        accept=lambda c: float(c["x"]) < 0.5,
    )
    evaluate = Evaluations(problem, 2)
    told = [evaluate({"x": x}) for x in (0.1, 0.7)]
    assert told == [(0.1, 1.0), (2.0, 2.0)]
    assert not evaluate.is_over
    evaluate({"x": 0.2})
    assert evaluate.is_over
    values = hypervolume.random_search(problem, 20, seed=0)
    assert len(values) == 20
    assert max(values)[0] < 0.5


def test_images_are_shifted_by_whole_pixels():
    x = np.zeros((50, 5, 5, 1), "float32")
    x[:, 2, 2] = 1.0
    moved = shifted(x, 1, np.random.default_rng(0))
    places = {tuple(np.argwhere(image[..., 0])[0]) for image in moved}
    assert places == {(i, j) for i in (1, 2, 3) for j in (1, 2, 3)}
    assert shifted(x, 0, np.random.default_rng(0)) is x


def test_labels_stay_the_largest_target_where_the_teacher_errs():
    logits = np.array([[9.0, 0.0, 0.0], [50.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    labels = np.array([1, 2, 2])
    rows = targets(labels, logits, 3)
    np.testing.assert_array_equal(rows.argmax(axis=1), labels)
    np.testing.assert_array_equal(rows[:, 3:].argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(rows[:, 3:].sum(axis=1), 1.0, rtol=1e-6)


def test_distillation_pulls_to_the_teacher_and_to_the_label():
    answer = np.array([[2.0, 1.0, -1.0]], np.float32)
    soft = tf.nn.softmax(answer / TEMPERATURE)

    def slope(labels: tf.Tensor, logits: np.ndarray) -> np.ndarray:
        variable = tf.Variable(logits)
        with tf.GradientTape() as tape:
            loss = distillation_loss(tf.concat([labels, soft], axis=1), variable)
        return tape.gradient(loss, variable).numpy()[0]

    np.testing.assert_allclose(slope(tf.nn.softmax(answer), answer), 0.0, atol=1e-5)
    label = tf.one_hot([1], 3)
    assert slope(label, answer)[1] < 0 < slope(label, answer)[0]
    moved = answer + np.array([[1.0, 0.0, 0.0]], np.float32)
    assert slope(tf.nn.softmax(moved), moved)[0] > 0
