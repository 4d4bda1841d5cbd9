"""What newcomers get wrong first, and the sentence that each of them reads.

Every row is a mistake as it is made, and words of the answer that say what to do. An answer
is one sentence, names the thing and the value, and comes before any work is done.
"""

import subprocess
import sys

import keras
import numpy as np
import pytest
from keras_sparse.tuner import Budget, SparseCNN, SparseTuner, cli
from keras_sparse.tuner.deployment import deploy_trial
from keras_sparse.tuner.loading import chosen_trial
from keras_sparse.tuner.reading import read_search
from keras_sparse.tuner.report import write_report

import keras_sparse_command
from keras_sparse import datasets, measure, sparsify
from tests.tuner.folders import write_folder

X = np.random.default_rng(0).normal(size=(40, 8, 8, 1)).astype("float32")
Y = np.arange(40) % 4


def tuner(folder, **kwargs):
    model = SparseCNN((8, 8, 1), 4, pruning="structured")
    return SparseTuner(model, directory=folder, **{"max_trials": 5, **kwargs})


def search(folder, x=X, y=Y, **kwargs):
    tuner(folder).search(x, y, **{"validation_data": (X, Y), "epochs": 1, "seconds": 0, **kwargs})


def saved(folder, **changes):
    arrays = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y, **changes}
    np.savez(folder / "mine.npz", **{k: v for k, v in arrays.items() if v is not None})
    return datasets.load(folder / "mine.npz")


def folder_of_few_images(folder):
    for name in ("cat", "dog"):
        (folder / "few" / name).mkdir(parents=True)
    return datasets.load(folder / "few")


def search_twice_at_once(folder):
    code = (
        "import sys, time; from keras_sparse.tuner.project import Project\n"
        "with Project(sys.argv[1]).lock():\n    print('locked', flush=True); time.sleep(60)"
    )
    program = [sys.executable, "-c", code, str(folder / "search")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            search(folder)
        finally:
            other.kill()


def continue_another(folder):
    tuner(folder, seed=1)
    tuner(folder, seed=2)


def old_folder(folder):
    tuner(folder)
    path = folder / "search" / "project.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 0'))
    tuner(folder)


def unstripped(folder):
    layers = [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    measure(sparsify(keras.Sequential(layers), "bc"))


def command(*words):
    """What the command does, with its own sentence raised."""
    options = keras_sparse_command.parser().parse_args(list(map(str, [*words, "--verbose"])))
    cli.run(options, list(map(str, words)))


MISTAKES = {
    "labels are one-hot": (
        lambda f: search(f, y=np.eye(4)[Y]),
        r"labels of x and y must be whole class numbers.*y\.argmax\(axis=-1\).*\(40, 4\)",
    ),
    "labels are floats": (
        lambda f: search(f, y=Y.astype("float32")),
        r'labels .* use y\.astype\("int32"\).*Received: dtype=float32',
    ),
    "labels are names": (
        lambda f: saved(f, y_train=np.array(["cat", "dog"] * 20)),
        r"y_train .* np\.unique\(y, return_inverse=True\)\[1\]",
    ),
    "labels start at 1": (
        lambda f: search(f, y=Y + 1),
        "must be 0 to 3: subtract 1. Received: labels from 1 to 4",
    ),
    "the channel is missing": (
        lambda f: search(f, x=X[..., 0]),
        r"x must hold .* \(8, 8, 1\): the channel is missing, take x\[\.\.\., np\.newaxis\]",
    ),
    "channels come first": (
        lambda f: search(f, x=np.moveaxis(X, -1, 1)),
        r"channels come last, take np\.moveaxis\(x, 1, -1\)",
    ),
    "validation data are forgotten": (
        lambda f: search(f, validation_data=None),
        r"validation_data=\(x, y\) must be given, or folds=k",
    ),
    "images without labels": (
        lambda f: search(f, y=None),
        "y must be given with arrays. Received: y=None",
    ),
    "one label is missing": (
        lambda f: search(f, y=Y[1:]),
        "one label per image. Received: 40 images and 39 labels",
    ),
    "pixels are missing": (
        lambda f: search(f, x=np.full_like(X, np.nan)),
        "must be finite. Received: 2560 NaN",
    ),
    "the budget is impossible": (
        lambda f: tuner(f, budget=Budget(ram=2, flash="2KB")),
        "budget.ram must be at least .* bytes.*Received: ram=2",
    ),
    "the budget is not a size": (
        lambda f: tuner(f, budget=Budget(ram="2 kilos")),
        'ram must be a positive number of bytes or a text such as "2KB"',
    ),
    "accuracy in percent": (
        lambda f: tuner(f, budget=Budget(accuracy=95)),
        "accuracy must be a number between 0 and 1. Received: accuracy=95",
    ),
    "a data set that does not exist": (
        lambda f: datasets.load("minst"),
        "name must be one of digits, mnist.*folder of images per class.*'minst'",
    ),
    "a file that does not exist": (
        lambda f: datasets.load(f / "mine.npz"),
        "no data file '.*mine.npz'",
    ),
    "a file of something else": (
        lambda f: ((f / "mine.npz").write_text("a,b"), datasets.load(f / "mine.npz")),
        "not a readable .npz of plain arrays",
    ),
    "a file without test images": (
        lambda f: saved(f, x_test=None),
        "must hold the arrays x_train, y_train, x_test, y_test. Missing: x_test",
    ),
    "too few images per class in a folder": (
        folder_of_few_images,
        "cat' must hold at least 10 images .*: add some, or remove the class. Received: 0",
    ),
    "one image of a class in a file": (
        lambda f: saved(f, y_train=np.array([0, *[1] * 39]), y_test=Y % 2),
        "No stratified validation set can be cut from",
    ),
    "a folder that cannot be written": (
        lambda f: ((f / "file").write_text(""), tuner(f / "file")),
        "must be one that can be written: choose another. Received: .*Not a directory",
    ),
    "a folder with another search": (
        continue_another,
        "has a search with another seed: choose another project_name, or overwrite=True",
    ),
    "a folder of an older version": (
        old_folder,
        "has a search with another format: choose another project_name, or overwrite=True",
    ),
    "two searches in one folder": (
        search_twice_at_once,
        "Another process is searching in .*: stop it, or choose another",
    ),
    "fewer trials than none": (
        lambda f: tuner(f, max_trials=0),
        "max_trials must be at least",
    ),
    "a report of a folder above": (
        lambda f: write_report(write_folder(f / "runs" / "mine", 1).parent),
        "must be the folder of a search.*there are searches in it: mine",
    ),
    "a trial that does not exist": (
        lambda f: chosen_trial(read_search(write_folder(f / "x", 4)), "77"),
        'trial must be "best" or a trial that has completed, such as .*Received: .77.',
    ),
    "nothing is within the budget": (
        lambda f: deploy_trial(write_folder(f / "x", 4, budget={"ram": 1})),
        '"best" needs a trial within the budget: search on, or choose one of 0',
    ),
    "the command without data": (
        lambda f: command("search", "--trials", "3"),
        "--data must be given: a name such as digits, an .npz file or a folder of images",
    ),
    "measuring before stripping": (unstripped, r"strip\(\) the model first"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_is_answered_by_a_sentence_that_says_what_to_do(mistake, tmp_path):
    make, words = MISTAKES[mistake]
    with pytest.raises((ValueError, FileNotFoundError, RuntimeError), match=words) as caught:
        make(tmp_path)
    answer = str(caught.value)
    assert "\n" not in answer
    assert len(answer) < 450


def test_raw_pixels_train_but_are_warned_of(tmp_path):
    with pytest.warns(UserWarning, match=r"values up to 255.*\(x - x_train.mean\(\)\)"):
        search(tmp_path, x=np.full((40, 8, 8, 1), 255.0))
