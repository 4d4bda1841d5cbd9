"""What a search optimises: names of a trial's metrics, each with a direction and a scale."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras_tuner
from keras_tuner.engine.metrics_tracking import infer_metric_direction

from .budget import Budget

_SMALLEST_ERROR = 1e-4
"""Errors below this are all the same: no validation set tells them apart."""


class Goal(NamedTuple):
    """One objective.

    Attributes:
        name: Of the metric.
        maximize: Whether more is better.
        logarithmic: Whether ratios matter, not differences: of sizes and of errors.
        function: The user's own function of the stripped model, or None.
    """

    name: str
    maximize: bool = False
    logarithmic: bool = False
    function: Callable[[Any], float] | None = None

    def value(self, metrics: Mapping[str, float]) -> float:
        """What the search minimises."""
        return self.scaled(float(metrics[self.name]))

    def scaled(self, number: float) -> float:
        """A number of the metric on the scale of `value`."""
        if self.logarithmic:
            number = math.log(max(number, _SMALLEST_ERROR))
        return -number if self.maximize else number


_RESERVED = ("flash", "nonzeros", "parameters", "dense_macs", "loss", "accuracy")

ERRORS = ("val_error", "quantized_error")
"""Objectives that say how accurate a network is."""

MEASURED = ("val_error", "model_size", "working_memory", "macs", "quantized_error")
"""Objectives that a trial of a `SparseTuner` measures; the last one only if it is asked for."""


def goals_of(objectives: Sequence[Any], known: Sequence[str] | None = MEASURED) -> tuple[Goal, ...]:
    """Goals from names, `keras_tuner.Objective`s and functions.

    Args:
        objectives: What the user gave.
        known: Names that are allowed; None for any.
    """
    if isinstance(objectives, (str, keras_tuner.Objective)) or callable(objectives):
        objectives = [objectives]
    goals = tuple(_goal(objective, known) for objective in objectives)
    names = [goal.name for goal in goals]
    if not goals or len(set(names)) < len(names):
        raise ValueError(f"objectives must be different, at least one. Received: {names}")
    return goals


def _goal(objective: Any, known: Sequence[str] | None) -> Goal:
    if isinstance(objective, Goal):
        return objective
    if isinstance(objective, str):
        if known is not None and objective not in known:
            raise ValueError(
                f"objectives must be among {list(known)} or functions of the stripped model. "
                f"Received: {objective!r}"
            )
        is_max = infer_metric_direction(objective) == "max"
        return Goal(objective, is_max, logarithmic=objective in MEASURED)
    if isinstance(objective, keras_tuner.Objective) and known is None:
        return Goal(objective.name, objective.direction == "max")
    if callable(objective):
        name = str(getattr(objective, "__name__", type(objective).__name__))
        if name in (*MEASURED, *_RESERVED) or name.startswith(("val_", "working_memory")):
            raise ValueError(
                "objectives that are functions must not have the name of a metric that every trial "
                f"records. Received: {name!r}"
            )
        return Goal(name, function=objective)
    raise ValueError(
        f"objectives must be names or functions of the stripped model. Received: {objective!r}"
    )


class Limit(NamedTuple):
    """The most that a metric may be, from the user's budget."""

    metric: str
    most: float


def limits_of(budget: Budget) -> tuple[Limit, ...]:
    """The budget's limits on metrics.

    Flash is judged by the bytes with indices, which is what a device stores; the objective
    `model_size` is the paper's, without them, and so a lower limit of it.
    """
    limits = []
    if budget.ram is not None:
        limits.append(Limit("working_memory", float(budget.ram)))
    if budget.flash is not None:
        limits.append(Limit("flash", float(budget.flash)))
    if budget.accuracy is not None:
        limits.append(Limit("val_error", 1.0 - budget.accuracy))
    return tuple(limits)


def violation(limits: Sequence[Limit], metrics: Mapping[str, float]) -> float:
    """By how much a network exceeds the budget: the sum of log ratios; 0 if it fits."""
    total = 0.0
    for limit in limits:
        if limit.metric not in metrics:
            raise ValueError(
                f"A budget needs trials that report {limit.metric!r}. Received: {sorted(metrics)}"
            )
        value = float(metrics[limit.metric])
        if value > limit.most:
            total += math.log(value / max(limit.most, _SMALLEST_ERROR))
    return total


def precedence(goals: Sequence[Goal], metrics: Mapping[str, float]) -> tuple[float, ...]:
    """What to sort results by: accuracy first, among equals the other goals; smaller is better.

    Without a goal of accuracy the first one comes first.
    """
    first = leading(goals)
    return tuple(g.value(metrics) for g in (first, *(g for g in goals if g is not first)))


def leading(goals: Sequence[Goal]) -> Goal:
    """The goal of accuracy, else the first one."""
    return next((goal for goal in goals if goal.name in ERRORS), goals[0])
