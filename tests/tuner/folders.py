"""Writes the folder of a search that was never run: configurations of the space, computed results.

Run as a program it writes one to look at:

    python -m tests.tuner.folders FOLDER TRIALS
"""

import sys
from pathlib import Path

import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.project import Outcome, Project, TrialProposal

from keras_sparse import measure
from keras_sparse.files import write_json
from keras_sparse.network_facts import facts_of, to_json

OBJECTIVES = ["val_error", "model_size", "working_memory"]


def pruned(graph, share, rng):
    """The graph with a share of each array's weights zero."""
    operators = []
    for operator in graph.operators:
        weights = []
        for w in operator.weights:
            values = (rng.random(w.shape) > share).astype(np.float32)
            weights.append(w._replace(nonzeros=int(values.sum()), values=values))
        operators.append(operator._replace(weights=tuple(weights)))
    return graph._replace(operators=tuple(operators))


def write_folder(folder, trials=12, *, seed=0, data="mnist", budget=None):
    """Writes the folder; trial 7 of ten has failed, the last one is still running."""
    folder, rng = Path(folder), np.random.default_rng(seed)
    small = {"num-filters": (1, 12), "total-fc-layer-weights": (50, 2000)}
    model = SparseCNN((28, 28, 1), 10, ranges=small)
    project = Project(folder)
    hypermodel = {"input_shape": [28, 28, 1], "num_classes": 10, "pruning": "unstructured"}
    about = {"format": 1, "objectives": OBJECTIVES, "working_memory": "inputs+weights", "seed": 0}
    write_json(folder / "project.json", {**about, "hypermodel": hypermodel})
    budget = {"ram": 2048, "flash": 2048, "accuracy": None} if budget is None else budget
    write_json(folder / "settings.json", {"budget": budget, "max_trials": trials})
    write_json(folder / "command.json", {"data": data})
    for number in range(trials):
        trial_id, stage = f"{number:02d}", 1 + 3 * number // trials
        earlier = [i for i in range(number) if i % 10 != 7]
        reference = f"{rng.choice(earlier):02d}" if stage > 1 and earlier else None
        configuration = model.sample(rng)
        project.write_proposal(trial_id, TrialProposal(configuration, reference, stage, {}))
        if number == trials - 1:
            continue
        if number % 10 == 7:
            project.write_outcome(trial_id, Outcome({}, "ValueError: made to fail", 1, 2.0))
            continue
        project.write_outcome(trial_id, _outcome(model.graph(configuration), number, rng))
    return folder


def _outcome(graph, number, rng):
    small = pruned(graph, rng.uniform(0.5, 0.98), rng)
    chosen = measure(small, before=graph)
    error = 0.4 / np.log(4 + chosen.nonzeros / 20) + 0.1 * rng.random()
    metrics = {
        "val_error": error,
        "nonzeros": chosen.nonzeros,
        "parameters": (chosen.before or chosen).parameters,
        "model_size": chosen.model_size,
        "flash": chosen.sparse_bytes,
        "macs": chosen.sparse_macs,
        "working_memory": chosen.working_memory,
    }
    metrics = {name: float(value) for name, value in metrics.items()}
    network = to_json(facts_of(small, chosen))
    return Outcome(metrics, "", 20, 30.0 + number, {}, network)


if __name__ == "__main__":
    write_folder(sys.argv[1], int(sys.argv[2]))
