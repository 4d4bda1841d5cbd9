"""Searches that really train, on a part of scikit-learn's digits."""

import json

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from keras_sparse.tuner import Budget, SparseCNN, SparseTuner, trial
from keras_sparse.tuner.project import TrialProposal
from keras_sparse.tuner.training import Training

from keras_sparse import Trimming, datasets, measure
from keras_sparse.layers import SpVDDense

# One process runs them all: they share what is trained or searched first.
pytestmark = pytest.mark.xdist_group("tuner")

SMALL = {
    "num-conv-blocks": (1, 1),
    "num-conv-layers": (1, 1),
    "num-filters": (4, 8),
    "downsample-input": [False],
    "left-branch": [False],
    "right-branch": [False],
    "total-fc-layer-weights": (500, 2000),
    "zero-regularization-epochs": (5, 10),
    "pruning-thresholds": (0.0, 3.0),
}


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def arguments(digits, count=400):
    return {
        "x": digits.x_train[:count],
        "y": digits.y_train[:count],
        "validation_data": (digits.x_val, digits.y_val),
        "verbose": 0,
    }


def space(pruning="unstructured"):
    return SparseCNN((8, 8, 1), 10, pruning, ranges=SMALL)


@pytest.fixture(scope="module")
def searched(digits, tmp_path_factory):
    tuner = SparseTuner(
        space(),
        max_trials=5,
        initial_points=3,
        budget=Budget(flash="4KB"),
        directory=tmp_path_factory.mktemp("search"),
        seed=2,
    )
    tuner.search(**arguments(digits), epochs=4)
    return tuner


def test_trials_train_inherit_and_measure(searched):
    records = searched.trials()
    assert [r.status for r in records] == ["completed"] * 5
    heirs = [r for r in records if r.reference is not None]
    assert heirs
    assert all(r.epochs == (2 if r.reference else 4) or r.reason for r in records)
    for record in records:
        names = {"inputs+weights", "inputs+outputs", "live"}
        assert {f"working_memory/{name}" for name in names} <= set(record.metrics)
        assert record.metrics["nonzeros"] <= record.metrics["parameters"]


def test_the_best_model_is_what_was_measured(searched, digits):
    best = searched.oracle.get_best_trials(1)[0]
    record = next(r for r in searched.trials() if r.trial_id == best.trial_id)
    model = searched.get_best_models()[0]
    assert all(not hasattr(layer, "kl_weight") for layer in model.layers)
    predicted = model.predict(digits.x_val, verbose=0).argmax(axis=-1)
    assert np.mean(predicted != digits.y_val) == pytest.approx(
        record.metrics["val_error"], abs=1e-6
    )
    footprint = measure(model)
    assert footprint.nonzeros == record.metrics["nonzeros"]
    assert footprint.sparse_bytes == record.metrics["flash"]


def test_the_same_seed_gives_the_same_results(searched, digits, tmp_path):
    again = SparseTuner(
        space(),
        max_trials=5,
        initial_points=3,
        budget=Budget(flash="4KB"),
        directory=tmp_path,
        seed=2,
    )
    again.search(**arguments(digits), epochs=4)
    for ours, theirs in zip(again.trials(), searched.trials(), strict=True):
        assert ours.configuration == theirs.configuration
        assert ours.metrics == theirs.metrics


def test_a_member_of_the_front_can_be_trained_on(searched, digits):
    member = searched.pareto_front()[0]
    model, metrics = searched.finetune(
        member,
        digits.x_train,
        digits.y_train,
        validation_data=(digits.x_val, digits.y_val),
        epochs=3,
    )
    assert metrics["val_accuracy"] > 1 - member.metrics["val_error"] - 0.02
    assert measure(model).nonzeros == metrics["nonzeros"]


def test_a_member_of_the_front_can_be_trimmed_to_a_size(searched, digits):
    member = max(searched.pareto_front(), key=lambda record: record.metrics["flash"])
    given = {
        "x": digits.x_train,
        "y": digits.y_train,
        "validation_data": (digits.x_val, digits.y_val),
        "epochs": 3,
    }
    _, metrics = searched.finetune(member, **given, trimming=Trimming())
    # What its thresholds had pruned trains again.
    assert metrics["nonzeros"] > member.metrics["nonzeros"]
    assert metrics["nonzeros"] > 0.98 * metrics["parameters"]
    limit = int(member.metrics["flash"] / 2)
    small, metrics = searched.finetune(member, **given, trimming=Trimming(flash=limit))
    assert measure(small).sparse_bytes == metrics["flash"] <= limit
    predicted = small.predict(digits.x_val, verbose=0).argmax(axis=-1)
    assert np.mean(predicted == digits.y_val) == pytest.approx(metrics["val_accuracy"], abs=1e-6)


def test_a_model_of_ones_own_is_trimmed_with_its_own_loss(digits, tmp_path):
    def own_loss(y, outputs):
        return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)

    def build(hp):
        units = hp.Int("units", 8, 16)
        layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), SpVDDense(units), SpVDDense(10)]
        model = keras.Sequential(layers)
        model.compile("adam", own_loss, metrics=["accuracy"])
        return model

    tuner = SparseTuner(build, max_trials=1, directory=tmp_path, seed=1)
    given = arguments(digits)
    tuner.search(**given, epochs=1)
    train = tf.data.Dataset.from_tensor_slices((given["x"], given["y"])).batch(64)
    val = tf.data.Dataset.from_tensor_slices(given["validation_data"]).batch(64)
    model, metrics = tuner.finetune(
        "0", train, validation_data=val, epochs=9, learning_rate=1e-2, trimming=Trimming(200)
    )
    assert measure(model).nonzeros == metrics["nonzeros"] <= 200
    assert metrics["val_accuracy"] > 0.3


def test_data_sets_augmentation_callbacks_and_weights(digits, tmp_path):
    given = arguments(digits, 256)
    train = tf.data.Dataset.from_tensor_slices((given["x"], given["y"])).batch(64)
    val = tf.data.Dataset.from_tensor_slices(given["validation_data"]).batch(64)
    seen = []

    def augment(images):
        seen.append(True)
        return images + 0.01

    logs = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    tuner = SparseTuner(space("structured"), max_trials=1, directory=tmp_path, seed=1)
    tuner.search(
        train, validation_data=val, epochs=1, augment=augment, callbacks=[logs], verbose=0,
        class_weight={c: 1.0 + (c == 0) for c in range(10)},
    )  # fmt: skip
    assert tuner.trials()[0].status == "completed"
    assert seen
    assert "val_accuracy" in (tmp_path / "log.csv").read_text()
    board = keras.callbacks.TensorBoard(str(tmp_path / "board"))
    arrays = SparseTuner(space(), max_trials=1, directory=tmp_path, project_name="arrays", seed=1)
    arrays.search(
        **given,
        epochs=1,
        sample_weight=np.ones(256, "float32"),
        augment=keras.layers.RandomTranslation(0.1, 0.1),
        callbacks=[board],
    )
    assert arrays.trials()[0].status == "completed"
    assert list((tmp_path / "board").glob("0/execution*/train/events*"))


def test_cross_validation_takes_the_mean(digits, tmp_path):
    tuner = SparseTuner(space(), max_trials=1, directory=tmp_path, seed=1)
    given = arguments(digits, 200)
    tuner.search(given["x"], given["y"], folds=2, epochs=2, verbose=0)
    record = tuner.trials()[0]
    assert record.epochs == 4
    assert 0 < record.metrics["val_error"] < 1


@pytest.mark.parametrize(
    "pruning", ["structured", pytest.param("unstructured", marks=pytest.mark.slow)]
)
def test_every_fold_starts_from_the_same_network(digits, tmp_path, monkeypatch, pruning):
    given = arguments(digits, 200)

    def metrics(name):
        model = SparseCNN((8, 8, 1), 10, pruning, ranges=SMALL)
        tuner = SparseTuner(model, max_trials=1, directory=tmp_path, project_name=name, seed=1)
        tuner.search(given["x"], given["y"], folds=3, epochs=3, recovery=0.4, verbose=0)
        return tuner.trials()[0].metrics

    again = metrics("again")
    monkeypatch.setattr(trial, "_models", lambda *args: iter_anew(trial_models, args))
    anew = metrics("anew")
    assert again == pytest.approx(anew, rel=1e-5)


trial_models = trial._models


def iter_anew(models, args):
    """A network that is built and traced for each fold."""
    while True:
        yield next(models(*args))


def test_no_fold_inherits_from_a_network_that_has_seen_its_validation_images(digits, tmp_path):
    given = arguments(digits, 120)
    noise = np.random.default_rng(0).integers(0, 2, 120)  # can only be learnt by heart
    fixed = {
        "num-filters": (32, 32),
        "kernel-size": (3, 3),
        "layer-type": ["Conv2D"],
        "global-pooling": ["none"],
        "pooling-window": (1, 1),
        "stride": (1, 1),
    }
    shapes = {k: v for k, v in SMALL.items() if not k.startswith(("pruning", "zero"))} | fixed
    model = SparseCNN((8, 8, 1), 2, None, ranges=shapes, learning_rate=1e-2)
    configuration = model.repaired(model.space.sample(np.random.default_rng(0)))
    tuner = SparseTuner(model, max_trials=2, directory=tmp_path, seed=1)
    given["x"] = given["x"] + np.random.default_rng(1).normal(size=given["x"].shape)
    training = Training(given["x"].astype("float32"), noise, None, epochs=60, folds=2, total=120)
    first, posteriors = _run(tuner, configuration, training, None)
    assert len(posteriors) == 2
    assert first.metrics["accuracy"] > 0.9
    reference = trial.Reference(configuration, posteriors)
    heir, _ = _run(tuner, configuration, training, reference)
    assert heir.metrics["accuracy"] > 0.9
    assert heir.metrics["val_accuracy"] < 0.65
    # Had both folds the network of the first fold, the second would know its answers.
    swapped = trial.Reference(configuration, (posteriors[0], posteriors[0]))
    known, _ = _run(tuner, configuration, training, swapped)
    assert known.metrics["val_accuracy"] > heir.metrics["val_accuracy"] + 0.1


def _run(tuner, configuration, training, reference):
    return trial.run(
        tuner.blueprint,
        configuration,
        keras_tuner.HyperParameters(),
        training,
        reference=reference,
        front=[],
        seed=1,
        callbacks=lambda fold: [],
    )


def test_the_weights_of_all_folds_are_kept_and_inherited(digits, tmp_path):
    given = arguments(digits, 200)
    tuner = SparseTuner(space(), max_trials=1, directory=tmp_path, seed=1)
    tuner.search(given["x"], given["y"], folds=2, epochs=1, verbose=0)
    record = tuner.trials()[0]
    heir = TrialProposal(record.configuration, record.trial_id, 1, {})
    assert len(tuner._reference(heir, 2).posteriors) == 2
    assert len(tuner._reference(heir).posteriors) == 1
    # A trial whose folds are not all known trains from scratch.
    assert tuner._reference(heir, 3) is None


def test_a_diverging_trial_is_recorded(digits, tmp_path):
    model = SparseCNN((8, 8, 1), 10, ranges=SMALL, learning_rate=1e30)
    tuner = SparseTuner(model, max_trials=1, directory=tmp_path)
    tuner.search(**arguments(digits), epochs=2)
    assert tuner.trials()[0].status == "failed"
    assert "loss is" in tuner.trials()[0].reason


def test_any_hypermodel_and_any_objective(digits, tmp_path):
    def build(hp):
        units = hp.Int("units", 4, 32)
        model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
        if hp.Boolean("wide"):  # what is declared here is not known at the start
            model.add(SpVDDense(hp.Int("more", 8, 16), activation="relu"))
        threshold = hp.Float("threshold", 0.0, 3.0)
        model.add(SpVDDense(units, activation="relu", threshold=threshold))
        model.add(SpVDDense(10, threshold=threshold))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
        return model

    def layers(model):
        return len(model.layers)

    def make():
        return SparseTuner(
            build,
            ["val_error", "model_size", layers],
            max_trials=6,
            initial_points=3,
            pruning_parameters=["threshold"],
            directory=tmp_path,
            seed=1,
        )

    make().search(**arguments(digits, 200), epochs=2)
    tuner = make()
    records = tuner.trials()
    wide = [r for r in records if r.configuration["wide"]]
    assert wide
    assert all("more" in r.configuration for r in wide)
    assert [r.status for r in records] == ["completed"] * 6
    assert {r.metrics["layers"] for r in records} <= {3.0, 4.0}
    assert any(r.reference for r in records)
    best = tuner.get_best_models()[0]
    predicted = best.predict(digits.x_val, verbose=0).argmax(axis=-1)
    error = min(r.metrics["val_error"] for r in records)
    assert np.mean(predicted != digits.y_val) == pytest.approx(error, abs=1e-6)


def test_a_trial_far_behind_is_stopped_half_way(digits, tmp_path):
    tuner = SparseTuner(space(), max_trials=2, initial_points=1, directory=tmp_path, seed=1)
    tuner.search(**arguments(digits, 128), epochs=1)
    folder = tmp_path / "search"
    result = json.loads((folder / "trial_0" / "result.json").read_text())
    result["metrics"] |= {"val_error": 1e-3, "model_size": 1.0}
    (folder / "trial_0" / "result.json").write_text(json.dumps(result))
    (folder / "trial_1").rename(tmp_path / "gone")
    again = SparseTuner(space(), max_trials=2, initial_points=1, directory=tmp_path, seed=1)
    again.search(**arguments(digits, 128), epochs=8)
    record = again.trials()[1]
    assert "far behind" in record.reason
    assert record.metrics
    assert record.epochs < 8
