"""What the search has to know about a space: random points, neighbours, and vectors for the model.

`SpaceDomain` serves any `Space` with generic steps of single parameters; `CNNDomain` serves
`SparseCNN` with the paper's morphs and knows every network's size before it is trained.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from keras_sparse.footprint import Graph
from keras_sparse.footprint import working_memory as memory

from .embedding import Embedding
from .hypermodel import SparseCNN
from .morphs import STAGE_2, morphed, rows_of
from .parameters import Configuration, Parameter, Space, Value
from .survivors import Survivors

_MOST_STEPS = 3
"""Morphs that one proposal applies to its reference, at most."""

_BITS = 8

_MOST_CACHED = 20_000
"""Configurations whose vectors are kept: those that were tried are needed every time."""


class Domain(Protocol):
    """A space as the search sees it.

    Attributes:
        column_groups: For each column of `vectors` the number of its group; see `Surrogate`.
        refinements: How often a proposal looks again around its best candidates.
        has_pruning: Whether there are parameters for a stage that changes pruning only.
    """

    column_groups: np.ndarray
    refinements: int
    has_pruning: bool

    def sample(self, rng: np.random.Generator) -> Configuration:
        """A random configuration."""
        ...

    def neighbour(
        self, reference: Configuration, rng: np.random.Generator, pruning_only: bool
    ) -> Configuration | None:
        """A morph of `reference`; None if there is none."""
        ...

    def vectors(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Embedded configurations, shape (configurations, columns)."""
        ...

    def known(self, configuration: Configuration) -> np.ndarray:
        """What is known of each objective beforehand, shape (objectives,); 0 where nothing is.

        The model learns the difference to it.
        """
        ...


class SpaceDomain:
    """Any space, with steps of one to three active parameters.

    Args:
        space: The space.
        objectives: Number of objectives.
        pruning: Names of the parameters that stage 2 may change.
    """

    refinements = 2

    def __init__(self, space: Space, objectives: int, pruning: Sequence[str] = ()) -> None:
        self.space = space
        self.objectives = objectives
        self.pruning = frozenset(pruning)
        self.has_pruning = any(parameter.name in self.pruning for parameter in space)
        self.embedding = Embedding(space)
        self.column_groups = self.embedding.column_groups

    def sample(self, rng: np.random.Generator) -> Configuration:
        """A random configuration."""
        return self.space.sample(rng)

    def neighbour(
        self, reference: Configuration, rng: np.random.Generator, pruning_only: bool
    ) -> Configuration | None:
        """Steps of one to three active parameters, most of them small."""
        names = [
            name
            for name in reference
            if not self.space[name].is_fixed and (not pruning_only or name in self.pruning)
        ]
        if not names:
            return None
        count = min(len(names), int(rng.integers(1, _MOST_STEPS + 1)))
        changed = dict(reference)
        for name in rng.choice(names, count, replace=False):
            changed[str(name)] = stepped(self.space[str(name)], reference[str(name)], rng)
        result = self.space.complete(changed, rng)
        return None if result == reference else result

    def vectors(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Embedded configurations."""
        return self.embedding(configurations)

    def known(self, configuration: Configuration) -> np.ndarray:
        """Nothing."""
        return np.zeros(self.objectives)


def stepped(parameter: Parameter, value: Value, rng: np.random.Generator) -> Value:
    """Another choice, or a number nearby: steps of a hundredth to half of the range."""
    if parameter.values:
        others = [v for v in parameter.values if v != value]
        return others[int(rng.integers(len(others)))]
    low, high, number = parameter.low, parameter.high, float(value)
    if parameter.log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    width = (high - low) * 0.5 * 0.02 ** rng.uniform()
    moved = number + rng.normal() * width
    moved = min(max(moved, low), high)
    new = parameter.nearest(math.exp(moved) if parameter.log else moved)
    if new == value and parameter.step:
        new = parameter.nearest(float(value) + parameter.step * rng.choice([-1, 1]))
    return new


class CNNDomain:
    """The networks of a `SparseCNN`; sizes relative to those before pruning.

    Args:
        model: The hypermodel.
        sizes: For each objective "nonzeros", "working_memory" or "macs" if it is the logarithm of
            that size, else "".
        working_memory: Model of working memory, as in `measure`.
    """

    # A network close to its reference inherits more than a chain of many morphs would.
    refinements = 0
    _FEATURES = ("nonzeros", "working_memory", "macs", "depth")
    _LEFT = ("left", "left-of-inputs", "left-of-narrowest", "left-of-output")

    def __init__(
        self, model: SparseCNN, sizes: Sequence[str], working_memory: str = "inputs+weights"
    ) -> None:
        self.model = model
        self.has_pruning = model.pruning is not None
        self.sizes = tuple(sizes)
        self._memory_model = memory.get(working_memory)
        # Sizes before pruning and depth say more about the error than any single parameter.
        # What single thresholds leave of layers of different width says most about pruning.
        self._sees_left = model.pruning == "unstructured"
        self._features = self._FEATURES + (self._LEFT if self._sees_left else ())
        self.embedding = Embedding(model.space, extra_groups=self._features)
        self.column_groups = self.embedding.column_groups
        self._sizes: dict[tuple[tuple[str, Value], ...], dict[str, float]] = {}
        self._rows: dict[tuple[tuple[str, Value], ...], np.ndarray] = {}

    def sample(self, rng: np.random.Generator) -> Configuration:
        """A random network."""
        return self.model.sample(rng)

    def neighbour(
        self, reference: Configuration, rng: np.random.Generator, pruning_only: bool
    ) -> Configuration | None:
        """One to three of the paper's morphs."""
        rows = STAGE_2 if pruning_only else rows_of(self.model)
        count = int(rng.integers(1, _MOST_STEPS + 1))
        result = morphed(self.model, reference, rng, rows, count)
        return None if result is None else result.configuration

    def vectors(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Embedded configurations, followed by logarithms of sizes, depth and what is left."""
        keys = [_key(configuration) for configuration in configurations]
        new = {k: c for k, c in zip(keys, configurations, strict=True) if k not in self._rows}
        if new:
            sizes = [self._logarithms(configuration) for configuration in new.values()]
            # About as wide as the other columns: a factor of e⁴ or 4 layers are a distance of 1.
            extra = [[row[name] / 4.0 for name in self._features] for row in sizes]
            rows = np.hstack([self.embedding(list(new.values())), np.array(extra)])
            self._rows.update(zip(new, rows, strict=True))
        result = np.stack([self._rows[key] for key in keys])
        if len(self._rows) > _MOST_CACHED:
            self._rows.clear()
            self._sizes.clear()
        return result

    def known(self, configuration: Configuration) -> np.ndarray:
        """Logarithm of the size before pruning for objectives that are sizes."""
        logarithms = self._logarithms(configuration)
        return np.array([logarithms.get(name, 0.0) for name in self.sizes])

    def _logarithms(self, configuration: Configuration) -> dict[str, float]:
        key = _key(configuration)
        if key not in self._sizes:
            graph = self.model.graph(configuration)
            numbers = _sizes(graph, self._memory_model)
            if self._sees_left:
                numbers += _left(Survivors(graph, configuration))
            self._sizes[key] = dict(zip(self._features, numbers, strict=True))
        return self._sizes[key]


def _sizes(graph: Graph, memory_model: memory.MemoryModel) -> list[float]:
    """Logarithms of what `measure` says of a network before pruning, and its number of layers.

    In the order of `CNNDomain._FEATURES`. Only these: a proposal asks for those of hundreds of
    networks.
    """
    nonzeros = sum(operator.parameters for operator in graph.operators)
    ram = memory_model(graph, _BITS)[graph.first_weighted() :]
    macs = sum(operator.macs for operator in graph.operators)
    depth = sum(bool(operator.weights) for operator in graph.operators)
    return [*(math.log(max(size, 1)) for size in (nonzeros, max(ram, default=0), macs)), depth]


def _left(survivors: Survivors) -> list[float]:
    """Logarithms of what thresholds leave, in the order of `CNNDomain._LEFT`."""
    inputs = survivors.inputs
    return [survivors.total, float(inputs.mean()), float(inputs.min()), float(inputs[-1])]


def _key(configuration: Configuration) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(configuration.items()))
