"""The trained network of a trial from the folder of a search, without the search itself."""

import math
from pathlib import Path

import keras

from keras_sparse import strip
from keras_sparse.counting import sparse_layers

from .graph_builder import GraphBuilder
from .inherit import inherit
from .keras_builder import build_network
from .network import assemble
from .project import Project, read_json
from .reading import Search


def chosen_trial(search: Search, trial: str) -> str:
    """Id of a trial that has completed.

    Args:
        search: From `read_search`.
        trial: "best" for the most accurate within the budget, or an id, also without leading zeros.
    """
    complete = [record.trial_id for record in search.records if record.metrics]
    if trial == "best":
        if search.best is None:
            raise ValueError(
                f'trial "best" needs a trial within the budget: search on, or choose one of '
                f"{', '.join(r.trial_id for r in search.front) or 'none'} from the front. "
                f"Received: {len(complete)} trials, none within it"
            )
        return search.best.trial_id
    for trial_id in complete:
        if trial_id == trial or (trial.isdigit() and int(trial_id) == int(trial)):
            return trial_id
    raise ValueError(
        f'trial must be "best" or a trial that has completed, such as those of the front: '
        f"{', '.join(record.trial_id for record in search.front)}. Received: {trial!r}"
    )


def load_network(folder: str | Path, trial_id: str, *, pruned: bool = True) -> keras.Model:
    """The stripped network of a trial of a `SparseCNN`.

    Args:
        folder: Of the search.
        trial_id: Which one.
        pruned: False for all of its weights, also those above its thresholds.
    """
    project = Project(folder)
    about = (read_json(project.folder / "project.json") or {}).get("hypermodel")
    if not isinstance(about, dict):
        raise ValueError(
            "A network of your own model is loaded by SparseTuner.get_best_models(), which knows "
            f"how to build it. Received: the search {str(folder)!r} without a SparseCNN"
        )
    proposal, posterior = project.read_proposal(trial_id), project.read_posterior(trial_id)
    if proposal is None or posterior is None:
        raise ValueError(f"trial must be one whose weights are in the folder. Received: {trial_id}")
    shape, classes = tuple(about["input_shape"]), int(about["num_classes"])
    keras.backend.clear_session()  # layers without a name get the names that they had
    model, _ = build_network(proposal.configuration, shape, classes, about["pruning"])
    sources = assemble(proposal.configuration, shape, classes, GraphBuilder()).sources
    inherited = inherit(model, posterior, sources, sources)
    if inherited.part or inherited.fresh:
        raise ValueError(
            f"The folder must be of this version of keras-sparse: the layers "
            f"{', '.join([*inherited.part, *inherited.fresh])} of trial {trial_id} have changed. "
            f"Received: {str(folder)!r}"
        )
    if not pruned:
        for layer in sparse_layers(model):
            layer.threshold = math.inf
    return strip(model)
