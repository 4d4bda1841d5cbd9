"""How many epochs a trial trains and when the KL term comes in."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from .parameters import Value

LONGEST = 70
"""Epochs of the longest schedule: 30 without KL term, 25 of annealing, 15 at full weight."""

INHERITED_SHARE = 0.4
"""Share of the epochs that a trial with inherited weights trains; the paper says a half to an
eighth are enough."""


class Schedule(NamedTuple):
    """Epochs of a trial.

    Attributes:
        epochs: In all.
        zero: Of them at the start, without KL term.
        annealing: Then, over which the KL term rises.
        weight: Of the KL term in the end.
        recovery: Of the epochs the last ones, in which what is left trains without noise.
    """

    epochs: int
    zero: int
    annealing: int
    weight: float
    recovery: int = 0


def schedule_of(
    configuration: Mapping[str, Value],
    epochs: int | None,
    *,
    inherits: bool,
    recovery: float = 0.0,
) -> Schedule:
    """The schedule of a configuration.

    From scratch: the paper's parameters, in proportion if there are fewer than `LONGEST` epochs, so
    that even the longest schedule keeps a fifth of its epochs for the full KL term. With inherited
    weights, which have been through that: `INHERITED_SHARE` of the epochs, all at full weight.

    Args:
        configuration: With the paper's names; others get a tenth and a quarter of the epochs.
        epochs: Of a trial from scratch; None for what the configuration's own schedule takes.
        inherits: Whether the trial has a reference.
        recovery: Share of the epochs in which what is left trains without noise.
    """
    weight = float(configuration.get("alpha", 1.0))
    zero = configuration.get("zero-regularization-epochs")
    if zero is None:
        # A parameter "alpha" in a space of the user's own may mean anything.
        weight = 1.0
        total = LONGEST if epochs is None else epochs
        plan = Schedule(total, total // 10, total // 4, weight)
    else:
        zero, annealing = int(zero), int(configuration.get("annealing-epochs", 0))
        total = zero + annealing + 15 if epochs is None else epochs
        share = 1.0 if epochs is None else min(1.0, epochs / LONGEST)
        plan = Schedule(total, math.floor(zero * share), math.floor(annealing * share), weight)
    if inherits:
        plan = Schedule(max(1, math.ceil(INHERITED_SHARE * plan.epochs)), 0, 0, weight)
    return plan._replace(recovery=round(recovery * plan.epochs))
