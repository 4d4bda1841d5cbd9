"""SparseOracle: KerasTuner's side of the search. Trials in, (new, reference) out."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus

from .budget import Budget
from .domain import Domain, SpaceDomain
from .goals import Goal, goals_of, leading, limits_of, precedence, violation
from .keras_space import space_of
from .parameters import Configuration
from .project import TrialProposal
from .proposer import ExhaustedError, Proposer, Result
from .restoring import ENDED, PARENT, STAGE, RestoringOracle
from .stages import Stage, default_stages


class SparseOracle(RestoringOracle):
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
        initial_configurations: Known good values to start from, tried first; in a search that goes
            on, those that it has not tried yet come next.
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
            lease_seconds=lease_seconds,
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
        self.domain: Domain | None = None
        self.accept: Callable[[Configuration], bool] | None = None
        self._deadline = float("inf")
        self._proposer: Proposer | None = None
        self._proposer_state: dict[str, Any] | None = None
        self._display.verbose = 0

    # What the proposals need.

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

    def restore_proposer(self, state: dict[str, Any]) -> None:
        """Proposals go on from this state of the last one that was made."""
        self._proposer_state, self._proposer = state, None

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

    def _grown(self) -> bool:
        """Whether a user's `build(hp)` has declared parameters that the domain does not know."""
        if not isinstance(self.domain, SpaceDomain):
            return False
        return {hp.name for hp in self.hyperparameters.space} != set(self.domain.space.parameters)

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
        ended, known_good = self.ended(), self._untried()
        if self._grown():
            self.domain = self._proposer = self._proposer_state = None
        if known_good is not None:
            configuration, reference, stage = known_good, None, 1
        else:
            running = [t for t in self.trials.values() if t.status not in ENDED]
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

    def _untried(self) -> Configuration | None:
        """The first of the given configurations that no trial has."""
        tried = [trial.hyperparameters.values for trial in self.trials.values()]
        for configuration in self.initial_configurations:
            if not any(configuration.items() <= values.items() for values in tried):
                return configuration
        return None

    def _no_more(self) -> dict[str, Any]:
        """The end, once nothing is running whose worker may die."""
        return {"status": TrialStatus.IDLE if self.ongoing_trials else TrialStatus.STOPPED}

    def score_trial(self, trial: Trial) -> None:
        """The validation error if the network is within the budget, else how far it is beyond.

        Without a validation error the first objective. The score of a trial does not depend on
        other trials.
        """
        metrics, goal = self.outcome(trial).metrics, leading(self.goals)
        beyond, first = violation(self.limits, metrics), float(metrics[goal.name])
        trial.score = (-first if goal.maximize else first) if beyond == 0 else _BEYOND + beyond
        trial.best_step = 0

    def _rank(self, trial: Trial) -> tuple[float, ...]:
        metrics = self.outcome(trial).metrics
        return violation(self.limits, metrics), *precedence(self.goals, metrics)

    def get_best_trials(self, num_trials: int = 1) -> list[Trial]:
        """The most accurate trials within the budget, then those that are closest to it."""
        complete = [t for t in self.ended() if t.status == TrialStatus.COMPLETED]
        return sorted(complete, key=self._rank)[:num_trials]


_BEYOND = 1e6
"""Added to the score of networks that exceed the budget."""


def _objective(goal: Goal) -> keras_tuner.Objective:
    return keras_tuner.Objective(goal.name, "max" if goal.maximize else "min")
