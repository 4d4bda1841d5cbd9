"""The parts of a search: how many trials, how often morphs, of what and from where."""

from typing import NamedTuple


class Stage(NamedTuple):
    """A part of the search.

    Attributes:
        trials: How many configurations it tries.
        morphing: ρ, the probability that a proposal is a morph; otherwise it is random.
        pruning_only: Whether morphs change pruning parameters only.
        pareto_only: Whether references are members of the Pareto set only.
    """

    trials: int
    morphing: float
    pruning_only: bool = False
    pareto_only: bool = False


def default_stages(max_trials: int, *, has_pruning: bool = True) -> tuple[Stage, ...]:
    """Half of the trials anywhere, a tenth on pruning, the rest from the Pareto set."""
    second = max_trials // 10 if has_pruning else 0
    first = max(1, max_trials // 2)
    return (
        Stage(first, 0.9),
        Stage(second, 1.0, pruning_only=True),
        Stage(max_trials - first - second, 0.95, pareto_only=True),
    )
