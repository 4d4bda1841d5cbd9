"""Which trials of a search are trained on, and to how few weights: chosen on validation data.

For each row several trials compete. Single weights: all of a trial's weights train on and are
trimmed to the row's size. Short trials favour small networks, which learn faster, so that those
around and those far above the row's size compete. Feature maps: what pruning left trains on,
trimmed only where it is larger than the row, also layer by layer to the row's working memory where
that counts weights. In a *heat* each candidate trains for a few epochs;
the winner of each row gets the long training, and so does the second if the heat cannot tell them
apart. What is left of the places goes to a spread over the front.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.references import Published

from benchmarks.tables_settings import MEMORY, Settings
from benchmarks.tables_state import fronts_of
from keras_sparse.footprint import Graph, register_memory_model
from keras_sparse.footprint.encodings import dense_bytes

_BANDS = ((4.0, 16.0), (2.0, 4.0), (1.2, 2.0), (0.0, 1.2))
"""A row's candidates: the most accurate trials with more than the first and up to the second times
its parameters. Of a wide network little is left, but in the right places."""

_MEMORY_SLACK = 1.5
"""The same of working memory where it counts weights, most of which trimming takes away; of trials
that do not say what the inputs alone take."""

_HEAT_EXAMPLES = 5000
"""Validation images of the data sets that have heats, for the standard error of an accuracy."""

INPUTS = "inputs"
"""A model of working memory: what trimming weights cannot take away."""

_TRIMMED = MEMORY[2]
"""The one of the tables' models that trimming weights makes smaller."""


class Candidate(NamedTuple):
    """A trial to finish.

    Attributes:
        trial: Id of the trial.
        limit: Parameters to which it is trimmed; None for as many as its pruning leaves.
        memory: Inputs and parameters to which each layer is trimmed; None for no limit.
    """

    trial: str
    limit: int | None = None
    memory: int | None = None

    @property
    def name(self) -> str:
        """Of its files."""
        limit = "" if self.limit is None else f"-{self.limit}"
        return f"{self.trial}{limit}" + ("" if self.memory is None else f"-wm{self.memory}")


def inputs_alone(graph: Graph, bits: int) -> list[int]:
    """Bytes of the inputs of each operator."""
    return [dense_bytes(sum(map(graph.size, set(op.inputs))), bits) for op in graph.operators]


register_memory_model(INPUTS, inputs_alone)


def competitors(
    settings: Settings, records: Sequence[TrialRecord], rows: Sequence[Published]
) -> list[tuple[Published, list[Candidate]]]:
    """For each of the rows its candidates: one of each band, and the entrants."""
    known = [r for r in records if "val_error" in r.metrics and "nonzeros" in r.metrics]
    known.sort(key=lambda r: r.metrics["val_error"])
    # The search began with its networks, and ended with the late ones, in their order.
    numbered = [*enumerate(settings.networks), *enumerate(settings.late, settings.trials)]
    numbers = {number for number, network in numbered if network in settings.entrants}
    entrants = [record for record in known if record.number in numbers]
    pairs = []
    for row in rows:
        fitting = [record for band in _BANDS for record in _in_band(known, row, *band)]
        fitting += [r for r in entrants if _in_band([r], row, 1.0, np.inf)]
        fitting = fitting or sorted(known, key=lambda r: excess(r.metrics, row))[:1]
        found = [_candidate(settings, record, row) for record in fitting]
        pairs.append((row, list(dict.fromkeys(found))))
    return pairs


def _candidate(settings: Settings, record: TrialRecord, row: Published) -> Candidate:
    """A trial, trimmed to a row where it is larger."""
    limit = int(row.model_size) if record.metrics["nonzeros"] > row.model_size else None
    if settings.pruning == "unstructured":  # all of its weights train on, those pruned, too
        limit = int(min(record.metrics["parameters"], row.model_size))
    memory = None
    if row.memory_model == _TRIMMED and row.working_memory is not None:
        is_larger = record.metrics[f"working_memory/{_TRIMMED}"] > row.working_memory
        memory = int(row.working_memory) if is_larger else None
    return Candidate(record.trial_id, limit, memory)


def _in_band(
    records: list[TrialRecord], row: Published, low: float, high: float
) -> list[TrialRecord]:
    inside = [
        record
        for record in records
        if low * row.model_size < record.metrics["nonzeros"] <= high * row.model_size
        and _can_be_trimmed(record.metrics, row)
    ]
    return inside[:1]


def _can_be_trimmed(sizes: Mapping[str, float], row: Published) -> bool:
    """Whether the working memory of a network, weights trimmed, can be that of a row."""
    if row.working_memory is None:
        return True
    memory = sizes[f"working_memory/{row.memory_model}"]
    if row.memory_model == _TRIMMED:
        memory = sizes.get(f"working_memory/{INPUTS}", memory / _MEMORY_SLACK)
    return memory <= row.working_memory


def excess(sizes: Mapping[str, float], row: Published) -> float:
    """By how much a network is larger than a row: the sum of log ratios; 0 if it is not."""
    pairs = [(sizes["nonzeros"], row.model_size)]
    if row.working_memory is not None:
        pairs.append((sizes[f"working_memory/{row.memory_model}"], row.working_memory))
    return float(sum(max(0.0, np.log(size / most)) for size, most in pairs))


def finalists(
    settings: Settings,
    records: Sequence[TrialRecord],
    heats: Mapping[str, dict[str, Any]],
    rows: Sequence[Published],
) -> list[Candidate]:
    """The first of each row's heat, or all candidates without heats; then a spread over the front.

    Args:
        settings: Of the search.
        records: Its trials.
        heats: For the names of candidates "val_accuracy" and "sizes" after their heat; a row none
            of whose candidates ran is won by the first of them.
        rows: What the search stands against.
    """
    pairs = [(row, found) for row, found in competitors(settings, records, rows) if found]
    if settings.final.heat_epochs:
        chosen = [
            winner for row, found in pairs for winner in _winners(settings, row, found, heats)
        ]
    else:  # the rows by turns, as far as the places reach
        turns = zip_longest(*(found for _, found in pairs))
        chosen = [candidate for turn in turns for candidate in turn if candidate is not None]
        chosen = list(dict.fromkeys(chosen))[: settings.final.members]
    chosen = list(dict.fromkeys(_simplest(candidate, heats) for candidate in chosen))
    front = sorted(fronts_of(list(records)), key=lambda r: r.metrics["val_error"])
    places_left = 0 if settings.final.folds else settings.final.members - len(chosen)
    left = min(max(0, places_left), len(front))
    places = np.linspace(0, len(front) - 1, left).round().astype(int)
    spread = [Candidate(front[i].trial_id) for i in places.tolist()]
    return list(dict.fromkeys([*chosen, *spread]))


def _simplest(candidate: Candidate, heats: Mapping[str, dict[str, Any]]) -> Candidate:
    """The same without a limit that its heat keeps anyway: no network is trained twice."""
    free = candidate._replace(memory=None)
    if candidate.memory is None or free.name not in heats:
        return candidate
    needs = heats[free.name]["sizes"][f"working_memory/{_TRIMMED}"]
    return free if needs <= candidate.memory else candidate


def _winners(
    settings: Settings, row: Published, found: list[Candidate], heats: Mapping[str, dict[str, Any]]
) -> list[Candidate]:
    """The first of a heat, and the second if it is less than a standard error behind.

    With folds the heat itself says which of them answers the row, so that the first is enough.
    """
    ran = [candidate for candidate in found if candidate.name in heats]

    def rank(candidate: Candidate) -> tuple[float, float]:
        heat = heats[candidate.name]
        return -excess(heat["sizes"], row), heat["val_accuracy"]

    ran.sort(key=rank, reverse=True)
    if len(ran) < 2 or settings.final.folds:
        return ran[:1] or found[:1]
    (fit, best), (next_fit, next_best) = rank(ran[0]), rank(ran[1])
    error = np.sqrt(best * (1.0 - best) / _HEAT_EXAMPLES)
    return ran[:2] if next_fit == fit and best - next_best < error else ran[:1]


def needed_trials(
    settings: Settings, records: Sequence[TrialRecord], rows: Sequence[Published]
) -> set[str]:
    """The trials whose weights the end of a search needs."""
    competing = {c.trial for _, found in competitors(settings, records, rows) for c in found}
    return competing | {c.trial for c in finalists(settings, records, {}, rows)}
