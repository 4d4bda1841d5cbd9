"""Places the nodes of a directed acyclic graph in rows and columns, for drawing."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

Edge = tuple[str, str]


class Point(NamedTuple):
    """A place; one unit is the distance of two columns or rows."""

    x: float
    row: int


class Layout(NamedTuple):
    """Where to draw.

    Attributes:
        nodes: Place of each node by name.
        edges: For each edge (from, to) the places it goes through, ends included.
    """

    nodes: dict[str, Point]
    edges: dict[Edge, tuple[Point, ...]]


def layered(nodes: Sequence[str], edges: Sequence[Edge]) -> Layout:
    """Rows by the longest way from an input; the longest chain straight down, others beside it.

    Args:
        nodes: Names, each after those that lead to it.
        edges: (from, to) pairs.
    """
    rows: dict[str, int] = {}
    for name in nodes:
        rows[name] = max((rows[start] + 1 for start, end in edges if end == name), default=0)
    columns = _Columns()
    x: dict[str, float] = {}
    lanes: dict[Edge, float] = {}
    for chain in _chains(nodes, edges):
        last = max(rows[name] for name in chain)
        ends = [end for start, end in edges if start == chain[-1]]
        # The column is kept free down to where the chain joins another one.
        until = max([last, *(rows[end] - 1 for end in ends if end in x)])
        column = columns.take(rows[chain[0]], until)
        x.update(dict.fromkeys(chain, column))
        lanes.update({(chain[-1], end): column for end in ends})
    gutters = _Columns(_gutters)
    paths = {}
    for start, end in edges:
        first, last = rows[start] + 1, rows[end] - 1
        lane = lanes.get((start, end))
        if lane is None and first <= last:
            lane = gutters.take(first, last)
        passed = [Point(float(lane or 0.0), row) for row in range(first, last + 1)]
        paths[start, end] = (
            Point(x[start], rows[start]),
            *passed,
            Point(x[end], rows[end]),
        )
    return Layout({name: Point(x[name], rows[name]) for name in nodes}, paths)


def _chains(nodes: Sequence[str], edges: Sequence[Edge]) -> Iterator[list[str]]:
    """All nodes in chains of neighbours, the longest chain first."""
    left = set(nodes)
    while left:
        length: dict[str, list[str]] = {}
        for name in nodes:
            if name in left:
                before = [length[start] for start, end in edges if end == name and start in left]
                length[name] = [*max(before, key=len, default=[]), name]
        chain = max(length.values(), key=len)
        left -= set(chain)
        yield chain


def _sides() -> Iterator[float]:
    """0, then right and left of it in turn."""
    yield 0.0
    for distance in count(1):
        yield float(distance)
        yield float(-distance)


def _gutters() -> Iterator[float]:
    """Between the columns, nearest to the middle first."""
    for distance in count():
        for offset in (0.5, 0.46, 0.54):
            yield distance + offset
            yield -distance - offset


class _Columns:
    """Which column is taken in which rows."""

    def __init__(self, candidates: Callable[[], Iterator[float]] = _sides) -> None:
        self.candidates = candidates
        self.taken: dict[float, set[int]] = {}

    def take(self, first: int, last: int) -> float:
        """The first column that is free in all these rows; now it is not."""
        wanted = set(range(first, last + 1))
        column = next(c for c in self.candidates() if not wanted & self.taken.get(c, set()))
        self.taken.setdefault(column, set()).update(wanted)
        return column
