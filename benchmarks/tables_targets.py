"""The rows that the networks of a search stand against: the paper's, and networks trained here.

Hand-made networks and LeNet with SpVD, trained on the same images, are harder to beat than what was
published, so a search has members for them, too: their sizes, and which of them are worth it, are
all that is used of them before the test set.
"""

from typing import Any

import numpy as np
from keras_sparse.tuner.pareto import non_dominated
from keras_sparse.tuner.project import read_json
from keras_sparse.tuner.references import Published, published

from benchmarks.tables_places import Places
from benchmarks.tables_settings import MEMORY, PRUNING, Settings

_SMALL = 50_000
"""Published networks above this size are beaten by any; no member is chosen for them."""

_BY_HAND, _LENET = "by hand", "LeNet + SpVD"


def tables_of(settings: Settings) -> list[int]:
    """The paper's tables that come from a search."""
    return [table for table, pruning in PRUNING.items() if pruning == settings.pruning]


def rows_of(settings: Settings, places: Places) -> list[Published]:
    """The rows that a search has members for: the paper's own, and the best of the others.

    Another row counts if no row is as accurate and as small: what dominates that one answers it.
    """
    found: list[Published] = []
    for table in tables_of(settings):
        rows = competitors_of(settings.data, table, places)
        best = non_dominated(np.array([_losses(row) for row in rows]).reshape(len(rows), -1))
        found += [
            row
            for row, is_best in zip(rows, best, strict=True)
            if row.model_size < _SMALL and (is_best or row.method == "SpArSe")
        ]
    return found


def competitors_of(data: str, table: int, places: Places) -> list[Published]:
    """All rows of a table: what was published, and networks trained here."""
    return [*published(data, MEMORY[table]), *trained_here(data, table, places)]


def _losses(row: Published) -> tuple[float, float, float]:
    return 1.0 - row.accuracy, row.model_size, row.working_memory or 0.0


def trained_here(data: str, table: int, places: Places) -> list[Published]:
    """Hand-made networks, and LeNet where only parameters count, as rows of a table."""
    rows, memory = [], MEMORY[table]
    for name, record in baselines_of(data, places).items():
        needs = None
        if name.startswith(_BY_HAND):
            needs = record["sizes"][f"working_memory/{memory}"] if memory else None
        elif name != _LENET or memory:
            continue
        accuracy, size = record["test_accuracy"], float(record["size"])
        rows.append(Published(name, accuracy, size, needs, memory, "trained here"))
    return rows


def baselines_of(data: str, places: Places) -> dict[str, dict[str, Any]]:
    """The baselines of a data set that were run, by name."""
    return dict(read_json(places.results / "baselines" / f"{data}.json") or {})
