import json

import numpy as np
import pytest
from keras_sparse.tuner.deployment import deploy_trial
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.loading import chosen_trial, load_network
from keras_sparse.tuner.posterior import posterior_of
from keras_sparse.tuner.project import Outcome, Project, TrialProposal
from keras_sparse.tuner.reading import read_search

from keras_sparse import datasets, sparsity, strip
from keras_sparse.files import write_json

from ..needs import require_board

CNN = SparseCNN(
    (8, 8, 1),
    10,
    "structured",
    ranges={"num-filters": (4, 6), "total-fc-layer-weights": (50, 200), "num-conv-blocks": (1, 1)},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A search with one trial whose network was built and not trained."""
    project = Project(tmp_path_factory.mktemp("runs") / "one")
    hypermodel = {"input_shape": [8, 8, 1], "num_classes": 10, "pruning": "structured"}
    about = {"objectives": ["val_error", "model_size"], "hypermodel": hypermodel}
    write_json(project.folder / "project.json", about)
    write_json(project.folder / "settings.json", {"budget": {"ram": 4096, "flash": 8192}})
    write_json(project.folder / "command.json", {"data": "digits"})
    configuration = CNN.sample(np.random.default_rng(3))
    project.write_proposal("00", TrialProposal(configuration, None, 1, {}))
    model = CNN.network(configuration, seed=5)
    project.write_posterior("00", posterior_of(model))
    metrics = {"val_error": 0.5, "model_size": 300.0, "flash": 300.0, "working_memory": 200.0}
    project.write_outcome("00", Outcome(metrics))
    return project.folder


def test_a_network_is_loaded_as_it_was(folder):
    x = datasets.load("digits").x_test[:20]
    configuration = read_search(folder).records[0].configuration
    expected = strip(CNN.network(configuration, seed=5)).predict(x, verbose=0)
    loaded = load_network(folder, "00")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)
    assert all(type(layer).__module__.startswith("keras.") for layer in loaded.layers)


def test_a_network_is_loaded_with_the_weights_that_were_pruned(tmp_path):
    cnn = SparseCNN((8, 8, 1), 10, "unstructured", ranges={"num-conv-blocks": (1, 1)})
    configuration = cnn.sample(np.random.default_rng(3))
    configuration |= {k: -5.0 for k in configuration if k.startswith("pruning-thresholds")}
    project = Project(tmp_path)
    hypermodel = {"input_shape": [8, 8, 1], "num_classes": 10, "pruning": "unstructured"}
    write_json(tmp_path / "project.json", {"hypermodel": hypermodel})
    project.write_proposal("00", TrialProposal(configuration, None, 1, {}))
    model = cnn.network(configuration, seed=5)
    project.write_posterior("00", posterior_of(model))
    total = sparsity(model).total
    pruned, whole = (load_network(tmp_path, "00", pruned=pruned) for pruned in (True, False))
    zeros = [sum(np.sum(w.numpy() == 0) for w in weights_of(m)) for m in (pruned, whole)]
    assert zeros == [total.weights - total.nonzeros, 0]
    assert zeros[0] > 0


def weights_of(model):
    return [w for w in model.trainable_variables if len(w.shape) > 1]


def test_trials_are_chosen_by_their_number_or_as_the_best(folder):
    search = read_search(folder)
    assert chosen_trial(search, "best") == chosen_trial(search, "0") == "00"


def test_a_trial_is_deployed_and_what_was_measured_is_kept(folder, tmp_path):
    require_board("uno")
    deployed = deploy_trial(folder, out=tmp_path / "firmware", epochs=0, images=3)
    assert deployed.problem == ""
    facts = deployed.facts
    assert (facts["trial"], facts["data"]) == ("00", "digits")
    assert 0 <= facts["test_accuracy_int8"] <= 1
    assert (facts["board_images"], facts["board_mismatches"]) == (3, 0)
    assert 0 < facts["board_ram_bytes"] <= 2048
    assert (tmp_path / "firmware" / "c" / "model.c").is_file()
    path = tmp_path / "firmware" / "tflite" / "model.tflite"
    assert path.stat().st_size == facts["tflite_bytes"]
    assert read_search(folder).deployments == [json.loads(json.dumps(facts))]
    assert f"{facts['tflite_bytes']:,}" in str(deployed)
    with pytest.raises(ValueError, match="--out must be a folder that is empty or new"):
        deploy_trial(folder, out=tmp_path / "firmware")


def test_a_board_without_its_tools_is_said_and_the_files_are_there(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    deployed = deploy_trial(folder, out=tmp_path / "firmware", epochs=0, board="uno")
    assert "apt install" in deployed.problem
    assert deployed.problem in str(deployed)
    assert (tmp_path / "firmware" / "c" / "model.c").is_file()
    with pytest.raises(ValueError, match="board must be one of .*uno.*Received: 'due'"):
        deploy_trial(folder, board="due")


def test_data_of_another_shape_are_refused(folder, tmp_path):
    np.savez(
        tmp_path / "mine.npz",
        x_train=np.zeros((40, 6, 6)), y_train=np.arange(40) % 2,
        x_test=np.zeros((4, 6, 6)), y_test=np.arange(4) % 2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"must be those of the search, images of \(8, 8, 1\)"):
        deploy_trial(folder, out=tmp_path / "firmware", data=str(tmp_path / "mine.npz"))


def test_folders_whose_network_cannot_be_built_say_so(tmp_path):
    write_json(tmp_path / "project.json", {"objectives": ["val_error"], "hypermodel": "abc"})
    with pytest.raises(ValueError, match="SparseTuner.get_best_models"):
        load_network(tmp_path, "0")
