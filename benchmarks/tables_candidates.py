"""Which trials of a search are trained on, and to how few weights: chosen on validation data.

For each published row several trials compete. Single weights: all of a trial's weights train on and
are trimmed to the row's size. Short trials favour small networks, which learn faster, so that those
around and those far above the row's size compete. Feature maps: what pruning left trains on,
trimmed only where it is larger than the row. In a *heat* each candidate trains for a few epochs;
the winner of each row gets the long training, and so does the second if the heat cannot tell them
apart. What is left of the places goes to a spread over the front.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.references import Published, published

from benchmarks.tables_settings import MEMORY, PRUNING, Settings
from benchmarks.tables_state import fronts_of

_BANDS = ((2.0, 4.0), (1.2, 2.0), (0.0, 1.2))
"""A row's candidates: the most accurate trials with more than the first and up to the second times
its parameters."""

_MEMORY_SLACK = 1.5
"""The same of working memory where it counts weights, most of which trimming takes away."""

_HEAT_EXAMPLES = 5000
"""Validation images of the data sets that have heats, for the standard error of an accuracy."""

_SMALL = 50_000
"""Published networks above this size are beaten by any; no member is chosen for them."""


class Candidate(NamedTuple):
    """A trial to finish.

    Attributes:
        trial: Id of the trial.
        limit: Parameters to which it is trimmed; None for as many as its pruning leaves.
    """

    trial: str
    limit: int | None = None

    @property
    def name(self) -> str:
        """Of its files."""
        return self.trial if self.limit is None else f"{self.trial}-{self.limit}"


def tables_of(settings: Settings) -> list[int]:
    """The paper's tables that come from a search."""
    return [table for table, pruning in PRUNING.items() if pruning == settings.pruning]


def rows_of(settings: Settings) -> list[Published]:
    """The paper's rows that a search is for."""
    return [
        row
        for table in tables_of(settings)
        for row in published(settings.data, MEMORY[table])
        if row.method == "SpArSe" and row.model_size < _SMALL
    ]


def competitors(
    settings: Settings, records: Sequence[TrialRecord]
) -> list[tuple[Published, list[Candidate]]]:
    """For each row its candidates, one of each band."""
    known = [r for r in records if "val_error" in r.metrics and "nonzeros" in r.metrics]
    known.sort(key=lambda r: r.metrics["val_error"])
    size = "parameters" if settings.pruning == "unstructured" else "nonzeros"
    pairs = []
    for row in rows_of(settings):
        fitting = [record for band in _BANDS for record in _in_band(known, row, *band)]
        fitting = fitting or sorted(known, key=lambda r: excess(r.metrics, row))[:1]
        found = [
            Candidate(r.trial_id, int(row.model_size) if r.metrics[size] > row.model_size else None)
            for r in fitting
        ]
        pairs.append((row, list(dict.fromkeys(found))))
    return pairs


def _in_band(
    records: list[TrialRecord], row: Published, low: float, high: float
) -> list[TrialRecord]:
    inside = [
        record
        for record in records
        if record.metrics["nonzeros"] > low * row.model_size
        and excess(record.metrics, row, high) == 0.0
    ]
    return inside[:1]


def excess(sizes: Mapping[str, float], row: Published, slack: float = 1.0) -> float:
    """By how much a network is larger than a row: the sum of log ratios; 0 if it is not."""
    pairs = [(sizes["nonzeros"], slack * row.model_size)]
    if row.working_memory is not None:
        more = min(slack, _MEMORY_SLACK) if row.memory_model == MEMORY[2] else 1.0
        pairs.append((sizes[f"working_memory/{row.memory_model}"], more * row.working_memory))
    return float(sum(max(0.0, np.log(size / most)) for size, most in pairs))


def finalists(
    settings: Settings, records: Sequence[TrialRecord], heats: Mapping[str, dict[str, Any]]
) -> list[Candidate]:
    """The first of each row's heat, or all candidates without heats; then a spread over the front.

    Args:
        settings: Of the search.
        records: Its trials.
        heats: For the names of candidates "val_accuracy" and "sizes" after their heat; a row none
            of whose candidates ran is won by the first of them.
    """
    pairs = [(row, found) for row, found in competitors(settings, records) if found]
    if settings.final.heat_epochs:
        chosen = [winner for row, found in pairs for winner in _winners(row, found, heats)]
    else:  # the rows by turns, as far as the places reach
        turns = zip_longest(*(found for _, found in pairs))
        chosen = [candidate for turn in turns for candidate in turn if candidate is not None]
        chosen = list(dict.fromkeys(chosen))[: settings.final.members]
    chosen = list(dict.fromkeys(chosen))
    front = sorted(fronts_of(list(records)), key=lambda r: r.metrics["val_error"])
    left = min(max(0, settings.final.members - len(chosen)), len(front))
    places = np.linspace(0, len(front) - 1, left).round().astype(int)
    spread = [Candidate(front[i].trial_id) for i in places.tolist()]
    return list(dict.fromkeys([*chosen, *spread]))


def _winners(
    row: Published, found: list[Candidate], heats: Mapping[str, dict[str, Any]]
) -> list[Candidate]:
    """The first of a heat, and the second if it is less than a standard error behind."""
    ran = [candidate for candidate in found if candidate.name in heats]

    def rank(candidate: Candidate) -> tuple[float, float]:
        heat = heats[candidate.name]
        return -excess(heat["sizes"], row), heat["val_accuracy"]

    ran.sort(key=rank, reverse=True)
    if len(ran) < 2:
        return ran or found[:1]
    (fit, best), (next_fit, next_best) = rank(ran[0]), rank(ran[1])
    error = np.sqrt(best * (1.0 - best) / _HEAT_EXAMPLES)
    return ran[:2] if next_fit == fit and best - next_best < error else ran[:1]


def needed_trials(settings: Settings, records: Sequence[TrialRecord]) -> set[str]:
    """The trials whose weights the end of a search needs."""
    competing = {c.trial for _, found in competitors(settings, records) for c in found}
    return competing | {c.trial for c in finalists(settings, records, {})}
