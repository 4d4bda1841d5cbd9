"""Problems with a known front: what a search can reach there is known exactly."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from keras_sparse.tuner.domain import Domain
from keras_sparse.tuner.parameters import Configuration, Parameter, Space


class Problem(NamedTuple):
    """A space and several objectives on it, all to be minimised.

    Attributes:
        name: Of the problem.
        space: What may vary.
        objectives: The objectives of a configuration.
        reference: The corner from which the hypervolume is measured.
        best: The hypervolume of the whole front.
        domain: How our search sees the space; None for generic steps of its parameters.
        accept: What is known to fail before it is tried, as the time that a network will train is
            in our search; None for nothing.
    """

    name: str
    space: Space
    objectives: Callable[[Configuration], tuple[float, ...]]
    reference: np.ndarray
    best: float
    domain: Domain | None = None
    accept: Callable[[Configuration], bool] | None = None


def dtlz2(objectives: int, dimensions: int = 6) -> Problem:
    """DTLZ2 (Deb et al., 2002): a smooth problem whose front is a part of a sphere."""
    names = [f"x{i}" for i in range(dimensions)]
    space = Space([Parameter(name, low=0.0, high=1.0) for name in names])
    last = objectives - 1

    def values(configuration: Configuration) -> tuple[float, ...]:
        x = np.array([float(configuration[name]) for name in names])
        radius = 1.0 + float(np.sum((x[last:] - 0.5) ** 2))
        angles = x[:last] * math.pi / 2
        result = []
        for k in range(objectives):
            value = radius * float(np.prod(np.cos(angles[: last - k])))
            result.append(value if k == 0 else value * math.sin(angles[last - k]))
        return tuple(result)

    best = {2: 0.42460, 3: 0.80740}[objectives]
    return Problem(f"DTLZ2 m={objectives}", space, values, np.full(objectives, 1.1), best)


def conditional_zdt1(dimensions: int = 8) -> Problem:
    """ZDT1 (Zitzler et al., 2000) whose variables are gated by an integer, as layers by a depth.

    What is inactive counts as 0, so that the front is that of ZDT1.
    """
    count = dimensions - 1
    gated = [
        Parameter(f"x{i}", low=0.0, high=1.0, conditions=({"n": tuple(range(i, count + 1))},))
        for i in range(1, dimensions)
    ]
    first = [Parameter("x0", low=0.0, high=1.0), Parameter("n", low=1, high=count, step=1)]

    def values(configuration: Configuration) -> tuple[float, float]:
        rest = sum(float(configuration.get(f"x{i}", 0.0)) for i in range(1, dimensions))
        g = 1.0 + 9.0 * rest / count
        x0 = float(configuration["x0"])
        return x0, g * (1.0 - math.sqrt(x0 / g))

    return Problem("conditional ZDT1", Space(first + gated), values, np.full(2, 11.0), 120.6667)


class Evaluations:
    """What a method has tried of a problem.

    What a problem does not accept is told to be as poor as the reference and does not count, for
    every method: our search knows beforehand what is too large to be trained and does not propose
    it, users of the others refuse it.

    Args:
        problem: What is tried.
        count: How many evaluations there are.
    """

    def __init__(self, problem: Problem, count: int) -> None:
        self.problem, self.count = problem, count
        self.values: list[tuple[float, ...]] = []

    def __call__(self, configuration: Configuration) -> tuple[float, ...]:
        """Objectives of a configuration."""
        if self.problem.accept is not None and not self.problem.accept(configuration):
            return tuple(self.problem.reference.tolist())
        self.values.append(self.problem.objectives(configuration))
        return self.values[-1]

    @property
    def is_over(self) -> bool:
        """Whether there is none left."""
        return len(self.values) >= self.count


PROBLEMS = {p.name: p for p in (dtlz2(2), dtlz2(3), conditional_zdt1())}
"""Those with a known front; `benchmarks.own_space` has one of our own domain."""
