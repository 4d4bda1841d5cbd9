"""Configurations as vectors in which distance means what it should in a conditional space.

The arc embedding (Swersky et al., 2014): an active number is a point on an arc, (sin, cos) of its
place in the range; an inactive parameter is the origin. So whatever an inactive parameter would be,
the vector is the same, and being active or not is a fixed distance. Numbers are rounded to the
values that exist before they are placed (Garrido-Merchán and Hernández-Lobato, 2018).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .parameters import Configuration, Parameter, Space, Value

_ARC = math.pi / 2


class Block(NamedTuple):
    """The columns of one parameter and the group whose length scale they share."""

    parameter: Parameter
    start: int
    width: int
    group: int


class Embedding:
    """Embeds the configurations of a space.

    Args:
        space: The space.
        extra_groups: Names of groups of columns that the caller appends to every vector, one
            column each.
    """

    def __init__(self, space: Space, extra_groups: Sequence[str] = ()) -> None:
        self.groups: list[str] = []
        self.blocks: list[Block] = []
        column = 0
        for parameter in space:
            if parameter.is_fixed:
                continue
            width = len(parameter.values) if parameter.values else 2
            name = group_of(parameter.name)
            if name not in self.groups:
                self.groups.append(name)
            self.blocks.append(Block(parameter, column, width, self.groups.index(name)))
            column += width
        self.groups.extend(extra_groups)
        self.width = column
        self._by_name = {block.parameter.name: block for block in self.blocks}
        self._places: dict[tuple[str, type, Value], np.ndarray] = {}
        self.column_groups = np.array(
            [block.group for block in self.blocks for _ in range(block.width)]
            + [self.groups.index(name) for name in extra_groups],
            int,
        )

    def __call__(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Vectors of shape (configurations, columns)."""
        result = np.zeros((len(configurations), self.width))
        for row, configuration in zip(result, configurations, strict=True):
            for name, value in configuration.items():
                block = self._by_name.get(name)
                # A value that an inactive parameter happens to have means nothing.
                if block is not None and block.parameter.is_active(configuration):
                    row[block.start : block.start + block.width] = self._placed(block, value)
        return result

    def _placed(self, block: Block, value: Value) -> np.ndarray:
        parameter = block.parameter
        if not parameter.values and not parameter.step:
            return _place(parameter, value)
        key = (parameter.name, type(value), value)  # True and 1 are equal, but not the same choice
        if key not in self._places:
            self._places[key] = _place(parameter, value)
        return self._places[key]


def group_of(name: str) -> str:
    """Parameters of all blocks and layers with the same meaning share a length scale."""
    for stem in ("pruning-thresholds", "weight-fraction"):
        if name.startswith(stem):
            return stem
    return name.split("-block-")[0]


def _place(parameter: Parameter, value: object) -> np.ndarray:
    if parameter.values:
        hot = [v == value and type(v) is type(value) for v in parameter.values]
        # Two different choices are as far apart as active and inactive.
        return np.array(hot, float) / math.sqrt(2)
    number = float(parameter.nearest(float(value)))  # type: ignore[arg-type]
    low, high = parameter.low, parameter.high
    if parameter.log:
        number, low, high = math.log(number), math.log(low), math.log(high)
    angle = _ARC * (number - low) / (high - low)
    return np.array([math.sin(angle), math.cos(angle)])
