"""The part of the tuner that runs one trial after the other and reports what came of each."""

import math
import threading
import traceback
from typing import Any

import grpc
import keras
import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.errors import FailedTrialError

from . import answers
from .posterior import Posterior
from .progress import EpochProgress, Progress
from .project import Outcome, TrialProposal
from .results import SearchResults
from .training import Training
from .trial import Reference, run


class TrialRunner(SearchResults):
    """Trains what the oracle proposes; a failure is recorded and the search goes on.

    Attributes:
        seed: Of everything that is random.
        lease_seconds: How long a worker may be silent.
    """

    seed: int
    lease_seconds: float
    _progress: Progress | None = None
    _is_idle: bool = False
    _heartbeat: threading.Event | None = None

    def run_trial(self, trial: Trial, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Trains, prunes and measures one configuration; writes its files."""
        training: Training = kwargs["training"]
        proposal = self._proposal(trial)
        records = self.trials()
        assert self._progress is not None  # noqa: S101  (search has set it)
        self._progress.started(trial.trial_id, proposal.stage, self._ended(records))
        try:
            front = [r.metrics for r in answers.front_of(records, self.blueprint.goals)]
            outcome, posteriors = self._train(trial, proposal, training, front)
            self._check_metrics(outcome.metrics)
        except keras_tuner.errors.FatalError:
            raise
        except Exception as error:
            raise FailedTrialError(
                "".join(traceback.format_exception_only(error)).strip()
            ) from error
        if self.project.read_outcome(trial.trial_id) is None:  # else another worker was faster
            for fold, posterior in enumerate(posteriors):
                self.project.write_posterior(trial.trial_id, posterior, fold)
            self.project.write_outcome(trial.trial_id, outcome)
        values = [goal.value(outcome.metrics) for goal in self.blueprint.goals]
        return {**outcome.metrics, "multi_objective": float(sum(values))}

    def _try_run_and_update_trial(self, trial: Trial, *args: Any, **kwargs: Any) -> None:
        # KerasTuner's own would print the traceback of every failure.
        try:
            self._run_and_update_trial(trial, *args, **kwargs)
            trial.status = TrialStatus.COMPLETED
        except FailedTrialError as error:
            trial.status, trial.message = TrialStatus.FAILED, str(error)
            if self.project.read_outcome(trial.trial_id) is None:
                self.project.write_outcome(trial.trial_id, Outcome({}, str(error)))
        finally:
            if self._heartbeat is not None:
                self._heartbeat.set()

    def _train(
        self,
        trial: Trial,
        proposal: TrialProposal,
        training: Training,
        front: list[dict[str, float]],
    ) -> tuple[Outcome, tuple[Posterior, ...]]:
        return run(
            self.blueprint,
            proposal.configuration,
            trial.hyperparameters,
            training,
            reference=self._reference(proposal, training.folds),
            front=front,
            seed=self._trial_seed(trial),
            callbacks=lambda fold: self._callbacks(trial, training, fold),
        )

    def _check_metrics(self, metrics: dict[str, float]) -> None:
        for goal in self.blueprint.goals:
            if goal.name not in metrics:
                raise keras_tuner.errors.FatalValueError(
                    f"The objective {goal.name!r} needs a model that is compiled with "
                    f"metrics=['accuracy']. Received: a model with {sorted(metrics)}"
                )
            if not math.isfinite(metrics[goal.name]):
                raise ValueError(f"{goal.name} is {metrics[goal.name]}")

    def _proposal(self, trial: Trial) -> TrialProposal:
        proposal = self.project.read_proposal(trial.trial_id)
        if proposal is None:
            raise keras_tuner.errors.FatalValueError(
                f"The folder {self.project.folder} must be the same for all workers: it has no "
                f"proposal of trial {trial.trial_id}."
            )
        return proposal

    def _reference(self, proposal: TrialProposal, folds: int = 0) -> Reference | None:
        if proposal.reference is None:
            return None
        parent = self.project.read_proposal(proposal.reference)
        read = [
            self.project.read_posterior(proposal.reference, fold) for fold in range(max(folds, 1))
        ]
        posteriors = tuple(posterior for posterior in read if posterior is not None)
        if parent is None or len(posteriors) < len(read):
            return None
        return Reference(parent.configuration, posteriors)

    def _trial_seed(self, trial: Trial) -> int:
        state = np.random.SeedSequence((self.seed, int(trial.trial_id))).generate_state(1)
        return int(state[0] % 2**31)

    def _callbacks(
        self, trial: Trial, training: Training, fold: int
    ) -> list[keras.callbacks.Callback]:
        assert self._progress is not None  # noqa: S101
        callbacks = self._deepcopy_callbacks(list(training.callbacks))
        self._configure_tensorboard_dir(callbacks, trial, fold)
        return [*callbacks, EpochProgress(self._progress)]

    # Before and after a trial.

    def on_trial_begin(self, trial: Trial) -> None:
        """Tells the chief from now on that this worker lives."""
        super().on_trial_begin(trial)
        self._is_idle = False
        if self._is_worker():
            self._heartbeat = threading.Event()
            threading.Thread(
                target=self._beat, args=(trial.trial_id, self._heartbeat), daemon=True
            ).start()

    def _beat(self, trial_id: str, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self.oracle.update_trial(trial_id, {})
            except grpc.RpcError:
                return  # the chief has ended the search
            ended.wait(min(self.lease_seconds / 4, 30.0))

    def on_trial_end(self, trial: Trial) -> None:
        """Reports and shows the result."""
        super().on_trial_end(trial)
        if self._progress is not None:
            self._progress.ended(trial.trial_id, self._ended(self.trials()))

    def pre_create_trial(self) -> None:
        """A worker for which there is nothing to do asks once a second."""
        if self._is_idle:
            threading.Event().wait(1.0)
        self._is_idle = True
