"""The folder of a search: what each trial was to try, what it learnt and what came of it.

    project.json                  what the search is about, so that no other is continued by mistake
    settings.json                 budget and number of trials, which may change when it is continued
    command.json                  data and options of the command that started it, if one did
    deployments/*.json            what came of trials that were brought to a board
    trial_<id>/proposal.json      configuration, reference, stage; written before the trial starts
    trial_<id>/posterior.npz      all that the network has learnt; in a cross-validation that of the
                                  first fold, posterior-fold<n>.npz that of the others
    trial_<id>/result.json        metrics or the reason of a failure; written when the trial ends
    trial_<id>/trial.json, oracle.json, tuner*.json    KerasTuner's own

All files are JSON or plain arrays: opening somebody else's folder runs no code. All are written
whole or not at all. A trial is what its files say, whatever the process did afterwards.
"""

import contextlib
import json
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_sparse.files import read_arrays, write_arrays, write_json

from .parameters import Configuration
from .posterior import LayerState, Posterior

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class TrialProposal(NamedTuple):
    """What a trial is to try.

    Attributes:
        configuration: Values of the active parameters.
        reference: Id of the trial whose weights it inherits; None for none.
        stage: Number of the stage, from 1.
        state: Of the proposer after the proposal; a resumed search goes on from there.
    """

    configuration: Configuration
    reference: str | None
    stage: int
    state: dict[str, Any]


class Outcome(NamedTuple):
    """What came of a trial.

    Attributes:
        metrics: By name; empty for a failed trial.
        reason: Why it failed or was stopped early; "" if neither.
        epochs: Trained.
        seconds: In all.
        more: Values of parameters that a user's `build(hp)` declared only in this trial.
        network: The network before and after pruning, as `network_facts.to_json` makes it; empty
            if it is not known.
    """

    metrics: dict[str, float]
    reason: str = ""
    epochs: int = 0
    seconds: float = 0.0
    more: Configuration = {}  # noqa: RUF012  (a NamedTuple's default, never changed)
    network: dict[str, Any] = {}  # noqa: RUF012

    @property
    def is_complete(self) -> bool:
        """Whether there are metrics."""
        return bool(self.metrics)


class Project:
    """Reads and writes the folder of a search.

    Args:
        folder: Path of the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        # Neither changes once it is written.
        self._proposals: dict[str, TrialProposal] = {}
        self._outcomes: dict[str, Outcome] = {}

    def create(self) -> None:
        """Makes the folder; raises in one sentence if it cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(self.folder, os.W_OK) else "Permission denied"
        except OSError as error:
            reason = str(error.strerror)
        if reason:
            raise ValueError(
                f"The folder of a search must be one that can be written: choose another. "
                f"Received: {str(self.folder)!r} ({reason})"
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second process from searching in the same folder."""
        if fcntl is None:  # not on this system
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RuntimeError(
                    f"Another process is searching in {self.folder}: stop it, or choose another "
                    "project_name."
                ) from error
            yield

    def trial_folder(self, trial_id: str) -> Path:
        """The folder of a trial."""
        return self.folder / f"trial_{trial_id}"

    def trial_ids(self) -> list[str]:
        """Ids of all trials that were proposed, in the order of their numbers."""
        files = self.folder.glob("trial_*/proposal.json")
        ids = [file.parent.name.removeprefix("trial_") for file in files]
        return sorted((trial_id for trial_id in ids if trial_id.isdigit()), key=int)

    def write_proposal(self, trial_id: str, proposal: TrialProposal) -> None:
        """Before the trial starts."""
        self._proposals.pop(trial_id, None)
        write_json(self.trial_folder(trial_id) / "proposal.json", proposal._asdict())

    def read_proposal(self, trial_id: str) -> TrialProposal | None:
        """None if there is none."""
        if trial_id not in self._proposals:
            content = read_json(self.trial_folder(trial_id) / "proposal.json")
            if content is None:
                return None
            self._proposals[trial_id] = TrialProposal(**content)
        return self._proposals[trial_id]

    def write_outcome(self, trial_id: str, outcome: Outcome) -> None:
        """When the trial has ended."""
        write_json(self.trial_folder(trial_id) / "result.json", outcome._asdict())

    def read_outcome(self, trial_id: str) -> Outcome | None:
        """None if the trial has not ended."""
        if trial_id not in self._outcomes:
            content = read_json(self.trial_folder(trial_id) / "result.json")
            if content is None:
                return None
            self._outcomes[trial_id] = Outcome(**content)
        return self._outcomes[trial_id]

    def posterior_path(self, trial_id: str, fold: int = 0) -> Path:
        """Of what the network of a fold has learnt."""
        name = f"posterior-fold{fold}.npz" if fold else "posterior.npz"
        return self.trial_folder(trial_id) / name

    def write_posterior(self, trial_id: str, posterior: Posterior, fold: int = 0) -> None:
        """What a network has learnt."""
        arrays: dict[str, np.ndarray] = {}
        index: dict[str, dict[str, Any]] = {}
        for layer, (kind, variables) in posterior.items():
            names = {name: f"array{len(arrays) + i}" for i, name in enumerate(variables)}
            arrays.update((names[name], value) for name, value in variables.items())
            index[layer] = {"kind": kind, "variables": names}
        arrays["index"] = np.array(json.dumps(index))
        write_arrays(self.posterior_path(trial_id, fold), arrays)

    def read_posterior(self, trial_id: str, fold: int = 0) -> Posterior | None:
        """None if there is none that can be read."""
        path = self.posterior_path(trial_id, fold)
        if not path.is_file():
            return None
        try:
            arrays = read_arrays(path)
            index = json.loads(str(arrays["index"]))
            return {
                layer: LayerState(
                    state["kind"], {name: arrays[key] for name, key in state["variables"].items()}
                )
                for layer, state in index.items()
            }
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            warnings.warn(f"{path} cannot be read and counts as absent: {error}", stacklevel=2)
            return None


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if there is none or it is broken, with a warning."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        warnings.warn(f"{path} cannot be read and counts as absent: {error}", stacklevel=2)
        return None
