"""What to try next: random scalarization, Thompson sampling over morphs, three stages.

Pure of KerasTuner, files and training, so that the same code runs in the search and on problems
with a known front.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from .domain import Domain
from .parameters import Configuration
from .pareto import non_dominated
from .scalarize import beyond, draw_directions, gains, scalarize, scale_of
from .stages import Stage
from .surrogate import Surrogate

_CANDIDATES = 500
_AROUND_BEST = 0.5
"""Share of the references that are drawn among the best under the drawn scalarizations."""

_NEAR = 0.5
"""How far beyond the budget, in widths of it, a reference may lie."""

_SPREAD = 0.5
"""Share of the models' deviation with which functions are drawn: of hundreds of candidates the best
would else be the luckiest."""

_DIRECTIONS = 4
"""Scalarizations of a proposal, which goes where the most is gained over them. With a single one
the ends of the front are hardly ever looked at; with many the search runs after ends that only the
models believe in."""

_FEWEST = 3
"""References that there are at least, near the budget or not."""

_REFINED, _NEIGHBOURS = 10, 20
"""Candidates around which a refinement looks, and how many neighbours of each."""

_MOST_DRAWS = 2000


class ExhaustedError(RuntimeError):
    """There is nothing left to propose."""


class Result(NamedTuple):
    """A configuration that was tried and its objectives, to be minimised; None if it failed."""

    configuration: Configuration
    objectives: tuple[float, ...] | None


class Proposal(NamedTuple):
    """A configuration to try.

    Attributes:
        configuration: The configuration.
        reference: Position in the results of the one whose weights it inherits; None for none.
        stage: Number of the stage, from 1.
    """

    configuration: Configuration
    reference: int | None
    stage: int


class Proposer:
    """Proposes configurations for several objectives at once.

    Args:
        domain: The space.
        objectives: Number of objectives.
        stages: The parts of the search, in order; the last one goes on if there is more to try.
        limits: For each objective the value up to which a result is of interest (a budget), on the
            scale of the results; NaN for none. None for none at all.
        initial: Number of random configurations at the start.
        seed: Of all that is random here: what is proposed depends on it, on the number of the
            proposal and on the results.
        accept: Configurations for which it returns False are not proposed (they would take too long
            to train).

    Attributes:
        considered: Configurations that `accept` was asked about, since the start.
        rejected: How many of them it refused.
    """

    def __init__(
        self,
        domain: Domain,
        objectives: int,
        stages: Sequence[Stage],
        *,
        limits: np.ndarray | None = None,
        initial: int = 10,
        seed: int = 0,
        accept: Callable[[Configuration], bool] | None = None,
    ) -> None:
        if not stages:
            raise ValueError("stages must have at least one stage. Received: none")
        self.domain = domain
        self.objectives = objectives
        self.stages = tuple(stages)
        self.limits = np.full(objectives, np.nan) if limits is None else np.asarray(limits, float)
        self.initial = initial
        self.seed = seed
        self.accept = accept
        self.considered = self.rejected = 0
        self.rng = np.random.default_rng(seed)
        self.surrogates = [Surrogate(domain.column_groups) for _ in range(objectives)]

    def get_state(self) -> dict[str, Any]:
        """What a resumed search needs to propose the same; JSON types."""
        return {
            "considered": self.considered,
            "rejected": self.rejected,
            "surrogates": [surrogate.get_state() for surrogate in self.surrogates],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.considered, self.rejected = int(state["considered"]), int(state["rejected"])
        for surrogate, saved in zip(self.surrogates, state["surrogates"], strict=True):
            if len(saved["theta"]) == len(surrogate.theta):  # else the space has grown since
                surrogate.set_state(saved)

    def propose(self, results: Sequence[Result], pending: Sequence[Configuration] = ()) -> Proposal:
        """The next configuration to try.

        Args:
            results: All that was tried, in order.
            pending: Configurations that are being tried elsewhere.
        """
        number = len(results) + len(pending)
        self.rng = np.random.default_rng((self.seed, number))
        stage, stage_number = self._stage(number)
        tried = {_key(c) for c in (*(r.configuration for r in results), *pending)}
        good = [i for i, result in enumerate(results) if result.objectives is not None]
        is_random = self.rng.random() >= stage.morphing
        if number < self.initial or len(good) < 2 or is_random:
            return Proposal(self._random(tried), None, stage_number)
        with _blas().limit(limits=1, user_api="blas"):
            return self._best_morph(results, good, pending, tried, stage, stage_number)

    def _stage(self, number: int) -> tuple[Stage, int]:
        for position, stage in enumerate(self.stages[:-1], start=1):
            if number < stage.trials:
                return stage, position
            number -= stage.trials
        return self.stages[-1], len(self.stages)

    def _random(self, tried: set[Any]) -> Configuration:
        for _ in range(_MOST_DRAWS):
            configuration = self.domain.sample(self.rng)
            if _key(configuration) not in tried and self._is_accepted(configuration):
                return configuration
        raise ExhaustedError(
            f"None of {_MOST_DRAWS} random configurations is new and affordable: the space has "
            "been tried in full, or max_trial_seconds is too low."
        )

    def _is_accepted(self, configuration: Configuration) -> bool:
        if self.accept is None:
            return True
        self.considered += 1
        is_accepted = self.accept(configuration)
        self.rejected += not is_accepted
        return is_accepted

    def _best_morph(
        self,
        results: Sequence[Result],
        good: list[int],
        pending: Sequence[Configuration],
        tried: set[Any],
        stage: Stage,
        stage_number: int,
    ) -> Proposal:
        configurations = [results[i].configuration for i in good]
        values = np.array([results[i].objectives for i in good], float)
        scale = scale_of(values, self.limits)
        directions = draw_directions(_DIRECTIONS, self.objectives, self.rng)
        normalised = scale.normalised(values)
        ranks = scalarize(normalised, directions).argsort(axis=0).argsort(axis=0)
        ranking = np.argsort(ranks.min(axis=1), kind="stable")
        front = non_dominated(values)
        is_allowed = front if stage.pareto_only else np.full(len(values), True)
        is_allowed = _near(is_allowed, beyond(normalised, scale.is_wall))
        front_size = int((front & is_allowed).sum())
        candidates, references = self._candidates(
            configurations, ranking, is_allowed, front_size, tried, stage
        )
        if not candidates:
            return Proposal(self._random(tried), None, stage_number)
        self._fit(configurations, values, pending)
        drawn = self._drawn(candidates)
        for is_last in [False] * self.domain.refinements + [True]:
            # What is drawn says how far the front may reach beyond what is known: without it the
            # search would stay between the ends that it has found.
            scale = scale_of(np.vstack([values, drawn]), self.limits)
            gain = gains(
                scale.normalised(values), scale.normalised(drawn), directions, scale.is_wall
            )
            order = np.argsort(-gain, kind="stable")
            if is_last:
                break
            top = order[:_REFINED]
            best = [(candidates[i], references[i]) for i in top]
            candidates, references = self._around(best, tried, stage)
            drawn = self._drawn(candidates, drawn[top])
        return Proposal(candidates[order[0]], good[references[order[0]]], stage_number)

    def _drawn(
        self, candidates: list[Configuration], given: np.ndarray | None = None
    ) -> np.ndarray:
        """One function of each objective at the candidates, shape (candidates, objectives).

        Args:
            candidates: Where.
            given: What was drawn for the first of them, shape (…, objectives).
        """
        vectors = self.domain.vectors(candidates)
        known = np.array([self.domain.known(candidate) for candidate in candidates])
        columns = []
        for k, surrogate in enumerate(self.surrogates):
            fixed = None if given is None else given[:, k] - known[: len(given), k]
            columns.append(surrogate.sample(vectors, self.rng, fixed, _SPREAD))
        return np.stack(columns, axis=1) + known

    def _around(
        self, best: list[tuple[Configuration, int]], tried: set[Any], stage: Stage
    ) -> tuple[list[Configuration], list[int]]:
        """The best candidates and neighbours of them, with their references."""
        found = list(best)
        seen = tried | {_key(configuration) for configuration, _ in best}
        for configuration, reference in best:
            for _ in range(_NEIGHBOURS):
                morph = self.domain.neighbour(configuration, self.rng, stage.pruning_only)
                if morph is not None and _key(morph) not in seen:
                    seen.add(_key(morph))
                    if self._is_accepted(morph):
                        found.append((morph, reference))
        return [c for c, _ in found], [r for _, r in found]

    def _candidates(
        self,
        configurations: list[Configuration],
        ranking: np.ndarray,
        is_allowed: np.ndarray,
        front_size: int,
        tried: set[Any],
        stage: Stage,
    ) -> tuple[list[Configuration], list[int]]:
        """Morphs of randomly chosen references that were not tried, and their references."""
        allowed = np.flatnonzero(is_allowed)
        best = ranking[is_allowed[ranking]][: max(_FEWEST, front_size)]
        candidates: list[Configuration] = []
        references: list[int] = []
        seen = set(tried)
        for _ in range(2 * _CANDIDATES):
            pool = best if self.rng.random() < _AROUND_BEST else allowed
            reference = int(pool[int(self.rng.integers(len(pool)))])
            morph = self.domain.neighbour(configurations[reference], self.rng, stage.pruning_only)
            if morph is None or _key(morph) in seen:
                continue
            seen.add(_key(morph))
            if self._is_accepted(morph):
                candidates.append(morph)
                references.append(reference)
            if len(candidates) == _CANDIDATES:
                break
        return candidates, references

    def _fit(
        self,
        configurations: list[Configuration],
        values: np.ndarray,
        pending: Sequence[Configuration],
    ) -> None:
        """Fits the models; a configuration that is being tried counts as what is expected of it."""
        vectors = self.domain.vectors(configurations)
        known = np.array([self.domain.known(c) for c in configurations])
        for column, surrogate in enumerate(self.surrogates):
            targets = values[:, column] - known[:, column]
            surrogate.fit(vectors, targets)
            if pending:
                more = self.domain.vectors(list(pending))
                expected = surrogate.predict(more)[0]
                surrogate.fit(np.vstack([vectors, more]), np.append(targets, expected), tune=False)


def _near(is_allowed: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Which of the allowed references lie near the budget, at least the three nearest."""
    nearest = np.sort(distances[is_allowed])[:_FEWEST]
    return np.asarray(is_allowed & (distances <= max(_NEAR, nearest[-1])))


@functools.cache
def _blas() -> ThreadpoolController:
    """Keeps linear algebra to one thread.

    Of several, each waits for the slowest: beside a training that uses all cores a factorization
    of a tenth of a second took ten times as long. Sums also depend on their number in the last
    digit, and the same seed must propose the same on every machine.
    """
    return ThreadpoolController()


def _key(configuration: Configuration) -> tuple[Any, ...]:
    return tuple(sorted(configuration.items()))
