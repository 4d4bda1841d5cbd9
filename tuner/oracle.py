"""SparseOracle: KerasTuner's side of the search. Trials in, (new, reference) out."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.src.distribute.utils import has_chief_oracle
from keras_tuner.src.engine.oracle import LOCKS, THREADS

from keras_sparse.files import write_json

from .budget import Budget
from .domain import Domain, SpaceDomain
from .goals import ERRORS, Goal, goals_of, limits_of, violation
from .keras_space import space_of
from .parameters import Configuration
from .project import Outcome, Project, TrialProposal, read_json
from .proposer import ExhaustedError, Proposer, Result, Stage, default_stages

PARENT = "tuner/parent_trial_id"
STAGE = "tuner/stage"
_ENDED = (TrialStatus.COMPLETED, TrialStatus.FAILED)


class SparseOracle(keras_tuner.Oracle):
    """Proposes configurations for several objectives by Bayesian optimization over morphs.

    Used by `SparseTuner`; it also works with KerasTuner's own `Tuner` and a user's `build(hp)`,
    with objectives that are metrics of the training history.

    Args:
        objectives: Names of metrics to minimise, or `keras_tuner.Objective`s.
        max_trials: How many configurations to try in all.
        budget: What the user can afford; the search looks there first and "best" means the first
            objective within it.
        stages: Parts of the search; None for `default_stages`.
        initial_points: Random configurations at the start; None for a tenth of the trials, 5 to 20.
        initial_configurations: Known good values to start from, tried first.
        pruning_parameters: Names of the parameters that a stage with `pruning_only` may change, in
            a user's own space.
        lease_seconds: A worker that was not heard of for so long has lost its trial to the next.
        seed: Of everything that is random in the proposals.
    """

    def __init__(
        self,
        objectives: Sequence[Any] = ("val_error", "model_size", "working_memory"),
        max_trials: int = 100,
        *,
        budget: Budget | None = None,
        stages: Sequence[Stage] | None = None,
        initial_points: int | None = None,
        initial_configurations: Sequence[Configuration] = (),
        pruning_parameters: Sequence[str] = (),
        lease_seconds: float = 600.0,
        seed: int = 0,
    ) -> None:
        self.goals: tuple[Goal, ...] = goals_of(objectives, known=None)
        self.budget = (budget or Budget()).checked()
        self.limits = limits_of(self.budget)
        if initial_points is None:
            initial_points = min(max(max_trials // 10, 5), 20, max_trials)
        if not 1 <= initial_points + len(initial_configurations) <= max_trials:
            raise ValueError(
                "max_trials must be at least the number of initial points "
                f"({initial_points} random, {len(initial_configurations)} given). "
                f"Received: max_trials={max_trials}"
            )
        super().__init__(
            objective=[_objective(goal) for goal in self.goals],
            max_trials=max_trials,
            seed=seed + 1,  # KerasTuner takes 0 as none
            max_consecutive_failed_trials=None,
        )
        self.search_seed = seed
        self.stages = None if stages is None else tuple(stages)
        self.initial_points = initial_points
        self.initial_configurations = [dict(values) for values in initial_configurations]
        self.pruning_parameters = tuple(pruning_parameters)
        self.lease_seconds = lease_seconds
        self.domain: Domain | None = None
        self.accept: Callable[[Configuration], bool] | None = None
        self._deadline = float("inf")
        self._proposer: Proposer | None = None
        self._proposer_state: dict[str, Any] | None = None
        self._heard_of: dict[str, float] = {}
        self._beating: set[str] = set()  # workers that give signs of life; KerasTuner's own do not
        self._display.verbose = 0

    # What the proposals need.

    @cached_property
    def project(self) -> Project:
        """The folder of the search."""
        return Project(self._project_dir)

    @property
    def proposer(self) -> Proposer:
        """Made when it is first needed: the space is known only then."""
        if self._proposer is None:
            if self.domain is None:
                self.domain = SpaceDomain(
                    space_of(self.hyperparameters), len(self.goals), self.pruning_parameters
                )
            stages = self.stages or default_stages(
                self.max_trials, has_pruning=self.domain.has_pruning
            )
            self._proposer = Proposer(
                self.domain,
                len(self.goals),
                stages,
                limits=np.array([self._limit(goal) for goal in self.goals]),
                initial=self.initial_points + len(self.initial_configurations),
                seed=self.search_seed,
                accept=self.accept,
            )
            if self._proposer_state is not None:
                self._proposer.set_state(self._proposer_state)
                self._proposer_state = None
        return self._proposer

    def set_accept(self, accept: Callable[[Configuration], bool] | None) -> None:
        """Sets which configurations may be proposed."""
        self.accept = accept
        if self._proposer is not None:
            self._proposer.accept = accept

    def stop_after(self, seconds: float | None) -> None:
        """From now on; None for never."""
        self._deadline = float("inf") if seconds is None else time.monotonic() + seconds

    def _limit(self, goal: Goal) -> float:
        metric = "flash" if goal.name == "model_size" else goal.name
        return next(
            (goal.scaled(limit.most) for limit in self.limits if limit.metric == metric), np.nan
        )

    def ended(self) -> list[Trial]:
        """All trials that have ended, in the order of their numbers."""
        ids = sorted(self.trials, key=int)
        return [self.trials[i] for i in ids if self.trials[i].status in _ENDED]

    def _grown(self) -> bool:
        """Whether a user's `build(hp)` has declared parameters that the domain does not know."""
        if not isinstance(self.domain, SpaceDomain):
            return False
        return {hp.name for hp in self.hyperparameters.space} != set(self.domain.space.parameters)

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

    def configuration(self, trial: Trial) -> Configuration:
        """What a trial tries."""
        proposal = self.project.read_proposal(trial.trial_id)
        outcome = self.project.read_outcome(trial.trial_id)
        more = {} if outcome is None else outcome.more
        return {} if proposal is None else {**proposal.configuration, **more}

    def _result(self, trial: Trial) -> Result:
        is_complete = trial.status == TrialStatus.COMPLETED
        metrics = self.outcome(trial).metrics if is_complete else {}
        values = tuple(goal.value(metrics) for goal in self.goals) if metrics else ()
        is_good = bool(values) and bool(np.isfinite(values).all())
        return Result(self.configuration(trial), values if is_good else None)

    # What KerasTuner calls.

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """The next configuration and the trial whose weights it inherits."""
        if time.monotonic() >= self._deadline:
            return self._no_more()
        number, ended = int(trial_id), self.ended()
        if self._grown():
            self.domain = self._proposer = self._proposer_state = None
        if number < len(self.initial_configurations):
            configuration, reference, stage = self.initial_configurations[number], None, 1
        else:
            running = [t for t in self.trials.values() if t.status not in _ENDED]
            try:
                proposal = self.proposer.propose(
                    [self._result(trial) for trial in ended],
                    [self.configuration(trial) for trial in running],
                )
            except ExhaustedError as error:
                if not ended:
                    raise ValueError(str(error)) from error
                warnings.warn(str(error), stacklevel=2)
                return self._no_more()
            configuration, stage = proposal.configuration, proposal.stage
            reference = None if proposal.reference is None else ended[proposal.reference].trial_id
        state = self.proposer.get_state()
        self.project.write_proposal(trial_id, TrialProposal(configuration, reference, stage, state))
        values = {**configuration, STAGE: stage}
        if reference is not None:
            values[PARENT] = reference
        return {"status": TrialStatus.RUNNING, "values": values}

    def _no_more(self) -> dict[str, Any]:
        """The end, once nothing is running whose worker may die."""
        return {"status": TrialStatus.IDLE if self.ongoing_trials else TrialStatus.STOPPED}

    def score_trial(self, trial: Trial) -> None:
        """The validation error if the network is within the budget, else how far it is beyond.

        Without a validation error the first objective. The score of a trial does not depend on
        other trials.
        """
        beyond, first = self._rank(trial)
        trial.score = first if beyond == 0 else _BEYOND + beyond
        trial.best_step = 0

    def _rank(self, trial: Trial) -> tuple[float, float]:
        """(how far beyond the budget, error or first objective), both to be minimised."""
        metrics = self.outcome(trial).metrics
        goal = next((g for g in self.goals if g.name in ERRORS), self.goals[0])
        first = float(metrics[goal.name])
        return violation(self.limits, metrics), -first if goal.maximize else first

    def create_trial(self, tuner_id: str) -> Trial:
        """As in KerasTuner; a trial whose worker is gone goes to the next one that asks."""
        with _releases_lock_on_error(self):
            self._heard_of[tuner_id] = time.monotonic()
            self._take_back_expired()
            is_full = self.max_trials is not None and len(self.trials) >= self.max_trials
            others = [i for i in self.ongoing_trials if i != tuner_id]
            if is_full and others and not self._retry_queue and tuner_id not in self.ongoing_trials:
                # Not yet the end: the trial of a worker that dies now must go to this one.
                self.tuner_ids.add(tuner_id)
                return Trial(self.get_space(), trial_id="", status=TrialStatus.IDLE)
            return super().create_trial(tuner_id)

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """As in KerasTuner; without metrics a sign of life of the trial's worker."""
        with _releases_lock_on_error(self):
            for tuner_id, trial in self.ongoing_trials.items():
                if trial.trial_id == trial_id:
                    self._heard_of[tuner_id] = time.monotonic()
                    self._beating.add(tuner_id)
            if not metrics or trial_id in self.end_order:
                return self.trials[trial_id]
            return super().update_trial(trial_id, metrics, step)

    def end_trial(self, trial: Trial) -> None:
        """As in KerasTuner; of a trial that two workers ran the first result counts."""
        with _releases_lock_on_error(self):
            if trial.trial_id not in self.trials or trial.trial_id in self.end_order:
                for tuner_id, ongoing in list(self.ongoing_trials.items()):
                    if ongoing.trial_id == trial.trial_id:
                        self.ongoing_trials.pop(tuner_id)
                return
            if trial.trial_id in self._retry_queue:
                self._retry_queue.remove(trial.trial_id)
            outcome = self.project.read_outcome(trial.trial_id)
            if outcome is not None and outcome.reason:
                trial.message = outcome.reason  # gRPC does not carry it
            super().end_trial(trial)

    def get_best_trials(self, num_trials: int = 1) -> list[Trial]:
        """The most accurate trials within the budget, then those that are closest to it."""
        complete = [t for t in self.ended() if t.status == TrialStatus.COMPLETED]
        return sorted(complete, key=self._rank)[:num_trials]

    def _record_values(self, trial: Trial) -> None:
        # KerasTuner would draw what is missing at random, without a seed.
        hyperparameters = trial.hyperparameters
        for declared in hyperparameters.space:
            if hyperparameters.is_active(declared):
                hyperparameters.values.setdefault(declared.name, declared.default)
        super()._record_values(trial)

    # Workers that are gone.

    @property
    def tuner_ids(self) -> set[str]:
        """The workers of which was heard lately; the chief ends when there is none left."""
        limit = time.monotonic() - self.lease_seconds
        gone = {i for i in self._tuner_ids if self._heard_of.get(i, np.inf) < limit}
        self._tuner_ids -= gone
        return self._tuner_ids

    @tuner_ids.setter
    def tuner_ids(self, ids: set[str]) -> None:
        self._tuner_ids = set(ids)

    def _take_back_expired(self) -> None:
        limit = time.monotonic() - self.lease_seconds
        for tuner_id in list(self.ongoing_trials):
            if tuner_id in self._beating and self._heard_of.get(tuner_id, 0.0) < limit:
                self._retry_queue.append(self.ongoing_trials.pop(tuner_id).trial_id)

    # Files.

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
            if trial.status in _ENDED:
                self.end_order.append(trial_id)
                self._run_times[trial_id] = 1
            elif trial_id in ongoing:
                self.ongoing_trials[ongoing[trial_id]] = trial
                self._heard_of[ongoing[trial_id]] = time.monotonic()
                self._beating.add(ongoing[trial_id])
            else:
                self._retry_queue.insert(0, trial_id)  # taken from the end: the first comes first
            if proposal is not None:
                self._proposer_state, self._proposer = proposal.state, None

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
            if saved is not None and saved.status in _ENDED:  # of KerasTuner's own tuner
                trial.status, trial.score, trial.message = saved.status, saved.score, saved.message
            return trial
        trial.message = outcome.reason or None
        trial.status = TrialStatus.COMPLETED if outcome.is_complete else TrialStatus.FAILED
        if outcome.is_complete:
            self.score_trial(trial)
        return trial


_BEYOND = 1e6
"""Added to the score of networks that exceed the budget."""


def _objective(goal: Goal) -> keras_tuner.Objective:
    return keras_tuner.Objective(goal.name, "max" if goal.maximize else "min")


def _load(path: Any) -> Trial | None:
    state = read_json(Path(path))
    try:
        return None if state is None else Trial.from_state(state)
    except (ValueError, KeyError, TypeError):
        return None


@contextmanager
def _releases_lock_on_error(oracle: SparseOracle) -> Iterator[None]:
    """KerasTuner's lock stays held after an exception; other threads would wait for ever."""
    try:
        yield
    except BaseException:
        if LOCKS[oracle].locked():
            THREADS[oracle] = None
            LOCKS[oracle].release()
        raise
