"""Parameters of a search space, when they are active, and configurations: values by name."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = int | float | str | bool
Configuration = dict[str, Value]
"""The value of every active parameter by its name; nothing else. JSON types only."""

Condition = Mapping[str, tuple[Value, ...]]
"""Which values each of some earlier parameters must have; all of them."""


@dataclass(frozen=True)
class Parameter:
    """One dimension of a search space: a range of numbers or a choice.

    Attributes:
        name: Unique in its space.
        values: The choices, or () for a range.
        low: Smallest number of a range.
        high: Largest number of a range.
        step: Distance between neighbours of a range, counted from `low`; 0 for a continuous one.
        log: Whether samples are uniform in the logarithm.
        conditions: Active if any of these holds; () means always.
    """

    name: str
    values: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0
    step: float = 0
    log: bool = False
    conditions: tuple[Condition, ...] = ()

    @property
    def is_integer(self) -> bool:
        """Whether the values are whole numbers."""
        return not self.values and float(self.step).is_integer() and self.step > 0

    @property
    def is_fixed(self) -> bool:
        """Whether there is only one value."""
        return len(self.values) == 1 or (not self.values and self.low == self.high)

    @property
    def default(self) -> Value:
        """The first choice or the smallest number."""
        return self.values[0] if self.values else self.nearest(self.low)

    def is_active(self, configuration: Mapping[str, Value]) -> bool:
        """Whether the parameter matters, given those that come before it in the space."""
        if not self.conditions:
            return True
        for condition in self.conditions:
            for parent, allowed in condition.items():
                if configuration.get(parent) not in allowed:
                    break
            else:
                return True
        return False

    def sample(self, rng: np.random.Generator) -> Value:
        """A random value, uniform over the choices, the range or its logarithm."""
        if self.values:
            return self.values[int(rng.integers(len(self.values)))]
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return self.nearest(drawn)
        if self.step:
            steps = int(rng.integers(self._steps() + 1))
            return self.nearest(self.low + steps * self.step)
        return float(rng.uniform(self.low, self.high))

    def nearest(self, number: float) -> Value:
        """The value of the range that is closest to `number`."""
        number = min(max(number, self.low), self.high)
        if not self.step:
            return float(number)
        number = self.low + min(round((number - self.low) / self.step), self._steps()) * self.step
        return round(number) if self.is_integer else round(number, 10)

    def _steps(self) -> int:
        return int((self.high - self.low) / self.step + 1e-9)

    def contains(self, value: Any) -> bool:
        """Whether `value` is one that the parameter can take."""
        if self.values:
            return any(value == v and type(value) is type(v) for v in self.values)
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
            return False
        return math.isclose(float(self.nearest(value)), value, rel_tol=1e-9, abs_tol=1e-9)


class Space:
    """An ordered set of parameters; each comes after those that its conditions name."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.parameters: dict[str, Parameter] = {}
        for parameter in parameters:
            for condition in parameter.conditions:
                unknown = set(condition) - set(self.parameters)
                if unknown:
                    raise ValueError(
                        f"Conditions must name parameters that come before. "
                        f"Received: {parameter.name!r} with {sorted(unknown)}"
                    )
            self.parameters[parameter.name] = parameter

    def __getitem__(self, name: str) -> Parameter:
        return self.parameters[name]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def __len__(self) -> int:
        return len(self.parameters)

    def sample(self, rng: np.random.Generator) -> Configuration:
        """A configuration with every active parameter drawn at random."""
        return self.complete({}, rng)

    def complete(self, values: Mapping[str, Value], rng: np.random.Generator) -> Configuration:
        """`values` without what is inactive, and with what is missing drawn at random."""
        configuration: Configuration = {}
        for name, parameter in self.parameters.items():
            if parameter.is_active(configuration):
                configuration[name] = values[name] if name in values else parameter.sample(rng)
        return configuration

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Raises unless all active parameters, and only they, have a valid value."""
        known: Configuration = {}
        for name, parameter in self.parameters.items():
            if parameter.is_active(known):
                if name not in configuration:
                    raise ValueError(f"The configuration needs a value for {name!r}.")
                value = configuration[name]
                if not parameter.contains(value):
                    raise ValueError(f"{name} must be {describe(parameter)}. Received: {value!r}")
                known[name] = value
        extra = set(configuration) - set(known)
        if extra:
            raise ValueError(
                "The configuration has values that are unknown or inactive. "
                f"Received: {sorted(extra)}"
            )


def describe(parameter: Parameter) -> str:
    """The values of a parameter, for messages."""
    if parameter.values:
        return f"one of {list(parameter.values)}"
    step = f" in steps of {parameter.step:g}" if parameter.step else ""
    return f"from {parameter.low:g} to {parameter.high:g}{step}"
