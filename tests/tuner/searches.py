"""A search whose trials are computed instead of trained: what is tested is everything around them.

Run as a program it searches in a folder until it is done or killed:

    python -m tests.tuner.searches FOLDER MAX_TRIALS
"""

import os
import sys
import time

import numpy as np
from keras_sparse.tuner import SparseCNN, SparseTuner, proposer
from keras_sparse.tuner.posterior import LayerState
from keras_sparse.tuner.project import Outcome

import keras_sparse

proposer._CANDIDATES = 60  # what is tested is not how good the proposals are

MODEL = {"input_shape": (8, 8, 1), "num_classes": 4}


class ComputedTuner(SparseTuner):
    """Error and size are functions of the configuration; every seventh trial fails."""

    def _train(self, trial, proposal, training, front):
        number = int(trial.trial_id)
        with open(self.project.folder / "runs.txt", "a") as file:
            file.write(f"{number} {self.tuner_id}\n")
        time.sleep(float(os.environ.get("SECONDS_PER_TRIAL", "0")))
        if number % 7 == 6:
            raise ValueError(f"trial {number} was made to fail")
        footprint = keras_sparse.measure(self.hypermodel.graph(proposal.configuration))
        size = float(footprint.nonzeros) * 0.3
        error = 1.0 / (1.0 + np.log(1.0 + size)) + 0.1 * (number % 3)
        metrics = {"val_error": error, "model_size": size, "flash": size}
        metrics["working_memory"] = float(footprint.working_memory)
        reference = self._reference(proposal)
        if reference is not None:
            metrics["inherited_from"] = float(
                reference.posteriors[0]["layer"].variables["kernel"][0, 0]
            )
        posterior = {"layer": LayerState("Dense", {"kernel": np.full((2, 2), float(number))})}
        return Outcome(metrics, "", 1, 0.0), (posterior,)


def computed(folder, max_trials=20, **kwargs):
    """A tuner; `search(*data())` runs it."""
    kwargs = {"initial_points": 4, "seed": 3, **kwargs}
    model = SparseCNN(**MODEL, ranges={"num-filters": (1, 8)})
    return ComputedTuner(model, max_trials=max_trials, directory=folder, **kwargs)


def data():
    """Something to pass to `search`."""
    return np.zeros((8, 8, 8, 1), "float32"), np.arange(8) % 4


def search(tuner, **kwargs):
    """Runs a search to its end, silently."""
    x, y = data()
    tuner.search(x, y, validation_data=(x, y), **{"verbose": 0, "epochs": 1, **kwargs})


if __name__ == "__main__":
    lease = float(os.environ.get("LEASE_SECONDS", "600"))
    search(computed(sys.argv[1], int(sys.argv[2]), lease_seconds=lease))
