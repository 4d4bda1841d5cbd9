"""An oracle that goes on from the files of its trials, whatever became of its own."""

from functools import cached_property
from pathlib import Path
from typing import Any

from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.src.distribute.utils import has_chief_oracle

from keras_sparse.files import write_json

from .leases import LeasingOracle
from .project import Outcome, Project, TrialProposal, read_json

PARENT = "tuner/parent_trial_id"
STAGE = "tuner/stage"
ENDED = (TrialStatus.COMPLETED, TrialStatus.FAILED)


class RestoringOracle(LeasingOracle):
    """Writes its files whole or not at all, and needs none but those of the trials to go on."""

    def restore_proposer(self, state: dict[str, Any]) -> None:
        """Proposals go on from this state of the last one that was made."""
        raise NotImplementedError

    @cached_property
    def project(self) -> Project:
        """The folder of the search."""
        return Project(self._project_dir)

    def ended(self) -> list[Trial]:
        """All trials that have ended, in the order of their numbers."""
        ids = sorted(self.trials, key=int)
        return [self.trials[i] for i in ids if self.trials[i].status in ENDED]

    def outcome(self, trial: Trial) -> Outcome:
        """What came of a trial: from its file, or from KerasTuner's metrics if there is none."""
        outcome = self.project.read_outcome(trial.trial_id)
        if outcome is not None:
            return outcome
        names = trial.metrics.metrics
        metrics = {name: trial.metrics.get_last_value(name) for name in names}
        return Outcome(
            metrics if trial.status == TrialStatus.COMPLETED else {}, trial.message or ""
        )

    def end_trial(self, trial: Trial) -> None:
        """As in KerasTuner, with the reason of a failure, which gRPC does not carry."""
        outcome = self.project.read_outcome(trial.trial_id)
        if outcome is not None and outcome.reason:
            trial.message = outcome.reason
        super().end_trial(trial)

    def _record_values(self, trial: Trial) -> None:
        # KerasTuner would draw what is missing at random, without a seed.
        hyperparameters = trial.hyperparameters
        for declared in hyperparameters.space:
            if hyperparameters.is_active(declared):
                hyperparameters.values.setdefault(declared.name, declared.default)
        super()._record_values(trial)

    def save(self) -> None:
        """Writes oracle.json whole or not at all."""
        write_json(self._get_oracle_fname(), self.get_state(), allow_nan=True)

    def _save_trial(self, trial: Trial) -> None:
        path = self.project.trial_folder(trial.trial_id) / "trial.json"
        write_json(path, trial.get_state(), allow_nan=True)

    def reload(self) -> None:
        """Goes on from the files of the trials; oracle.json may be old, broken or absent."""
        proposals = self._known_proposals()
        for trial_id in proposals:
            saved = _load(self.project.trial_folder(trial_id) / "trial.json")
            if saved is not None:
                self.update_space(saved.hyperparameters)  # what was declared in earlier trials
        ongoing = self._ongoing_of_workers()
        self.trials: dict[str, Trial] = {}
        self.ongoing_trials: dict[str, Trial] = {}
        self.start_order = list(proposals)
        self.end_order: list[str] = []
        self._retry_queue: list[str] = []
        for trial_id, proposal in proposals.items():
            trial = self._restored(trial_id, proposal)
            self.trials[trial_id] = trial
            self._record_values(trial)
            if trial.status in ENDED:
                self.end_order.append(trial_id)
                self._run_times[trial_id] = 1
            elif trial_id in ongoing:
                self.ongoing_trials[ongoing[trial_id]] = trial
                self.lease(ongoing[trial_id])
            else:
                self._retry_queue.insert(0, trial_id)  # taken from the end: the first comes first
            if proposal is not None:
                self.restore_proposer(proposal.state)

    def _known_proposals(self) -> dict[str, TrialProposal | None]:
        """By trial, in the order of the numbers; None for one that cannot be read."""
        ids = {int(trial_id): trial_id for trial_id in self.project.trial_ids()}
        read = {number: self.project.read_proposal(i) for number, i in ids.items()}
        # Those at the end that cannot be read are proposed again; in the middle they count as
        # failed, also those whose folder is gone: the numbers of the others stay.
        count = max((number for number, proposal in read.items() if proposal), default=-1) + 1
        return {ids.get(number, str(number)): read.get(number) for number in range(count)}

    def _ongoing_of_workers(self) -> dict[str, str]:
        """Trials that workers are running while their chief was restarted, with the workers."""
        if not has_chief_oracle():
            return {}
        state = read_json(Path(self._get_oracle_fname())) or {}
        return {trial_id: tuner for tuner, trial_id in state.get("ongoing_trials", {}).items()}

    def _restored(self, trial_id: str, proposal: TrialProposal | None) -> Trial:
        hyperparameters = self.hyperparameters.copy()
        trial = Trial(hyperparameters, trial_id, TrialStatus.RUNNING)
        if proposal is None:
            trial.status, trial.message = TrialStatus.FAILED, "its proposal cannot be read"
            return trial
        values = {**proposal.configuration, STAGE: proposal.stage}
        hyperparameters.values = (
            values if proposal.reference is None else {**values, PARENT: proposal.reference}
        )
        saved = _load(self.project.trial_folder(trial_id) / "trial.json")
        if saved is not None:
            trial.metrics = saved.metrics
        outcome = self.project.read_outcome(trial_id)
        if outcome is None:
            if saved is not None and saved.status in ENDED:  # of KerasTuner's own tuner
                trial.status, trial.score, trial.message = saved.status, saved.score, saved.message
            return trial
        trial.message = outcome.reason or None
        trial.status = TrialStatus.COMPLETED if outcome.is_complete else TrialStatus.FAILED
        if outcome.is_complete:
            self.score_trial(trial)
        return trial


def _load(path: Any) -> Trial | None:
    state = read_json(Path(path))
    try:
        return None if state is None else Trial.from_state(state)
    except (ValueError, KeyError, TypeError):
        return None
