"""What the searches took, beside what the paper's took."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_sparse.tuner.project import read_json
from keras_sparse.tuner.references import published

from benchmarks.tables_front import heats_of, members_of
from benchmarks.tables_places import Places
from benchmarks.tables_settings import MEMORY, Settings
from benchmarks.tables_targets import tables_of

_HOUR = 3600.0
_COUNTED = """One search answers all rows of its tables. Counted is what it took on virtual
processor cores, one a process: its trials, then heats, teacher and long training; not what was
tried before it. The paper searched on an RTX 2080.
"""


class Cost(NamedTuple):
    """Of one search, whose networks answer all rows of its tables.

    Attributes:
        search: CPU-hours of its trials.
        training: CPU-hours of the long training, heats and teachers included.
        wall: Hours of wall-clock of both, as if one process had done it all.
        gpu_days: What the paper gives for each of its rows, from few to many.
    """

    search: float
    training: float
    wall: float
    gpu_days: tuple[float, ...]


def cost_of(settings: Settings, places: Places) -> Cost:
    """What a search and the training of its members took so far."""
    clock = read_json(places.state(settings) / "clock.json") or {}
    members, heats = members_of(settings, places), heats_of(settings, places)
    trained = [*members.values(), *heats.values()]
    rows = [row for table in tables_of(settings) for row in published(settings.data, MEMORY[table])]
    return Cost(
        float(clock.get("cpu", 0.0)) / _HOUR,
        _total(record.get("cpu_seconds", 0.0) for record in trained) / _HOUR,
        (float(clock.get("wall", 0.0)) + _total(r.get("seconds", 0.0) for r in trained)) / _HOUR,
        tuple(sorted(row.gpu_days for row in rows if row.gpu_days is not None)),
    )


def cost_table(rows: Sequence[tuple[str, Cost]]) -> str:
    """Names and costs as a table in Markdown, with a sentence that says what is counted."""
    lines = [
        "| search | CPU-hours of its trials | of the networks trained on | wall-clock, hours "
        "| the paper's, GPU-days for each row |",
        "| --- " * 5 + "|",
        *(
            f"| {name} | {cost.search:.1f} | {cost.training:.1f} | {cost.wall:.1f} "
            f"| {_span(cost.gpu_days)} |"
            for name, cost in rows
        ),
    ]
    return f"{_COUNTED}\n" + "\n".join(lines) + "\n" if rows else ""


def _span(days: tuple[float, ...]) -> str:
    if not days:
        return "not published"
    return f"{days[0]:g}" if days[0] == days[-1] else f"{days[0]:g} to {days[-1]:g}"


def _total(numbers: Iterable[float]) -> float:
    return float(sum(numbers))
