"""Folders of the tables' searches and results."""

from pathlib import Path
from typing import NamedTuple

from benchmarks.record import RESULTS
from benchmarks.tables_settings import Settings


class Places(NamedTuple):
    """Where things are.

    Attributes:
        runs: Folders of searches, teachers, checkpoints: large, not kept.
        results: Trimmed states and results: small, committed.
    """

    runs: Path = Path("runs/tables")
    results: Path = RESULTS / "tables"

    def folder(self, settings: Settings) -> Path:
        """Of a search."""
        return self.runs / settings.name

    def state(self, settings: Settings) -> Path:
        """Of its trimmed state and results."""
        return self.results / settings.name
