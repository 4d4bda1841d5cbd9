"""What a search has found: its trials as plain records, the front, tables, lineage.

Everything here is a pure function of records, so that it works on a search that runs, has ended, or
is somebody else's folder.
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .goals import Goal, Limit, precedence, violation
from .parameters import Configuration
from .pareto import hypervolume, non_dominated


class TrialRecord(NamedTuple):
    """One trial.

    Attributes:
        trial_id: KerasTuner's.
        number: Of the trial, from 0.
        status: "completed", "failed" or "running".
        stage: Number of the stage, from 1.
        reference: Id of the trial whose weights it inherited; None for none.
        configuration: Values of the active parameters.
        metrics: By name; empty unless completed.
        reason: Why it failed or was stopped early.
        epochs: Trained.
        seconds: In all.
    """

    trial_id: str
    number: int
    status: str
    stage: int
    reference: str | None
    configuration: Configuration
    metrics: dict[str, float]
    reason: str
    epochs: int
    seconds: float


def values_of(records: Sequence[TrialRecord], goals: Sequence[Goal]) -> np.ndarray:
    """What is minimised, shape (records, goals); NaN for trials without metrics."""
    rows = [
        [goal.value(record.metrics) if record.metrics else np.nan for goal in goals]
        for record in records
    ]
    return np.array(rows, float).reshape(len(records), len(goals))


def front_of(records: Sequence[TrialRecord], goals: Sequence[Goal]) -> list[TrialRecord]:
    """The trials that no other beats in everything, the best in the first objective first.

    Of trials with the same values the first one stays.
    """
    values = values_of(records, goals)
    members, seen = [], set()
    for index in np.flatnonzero(non_dominated(values)).tolist():
        key = tuple(values[index])
        if key not in seen:
            seen.add(key)
            members.append(records[index])
    return sorted(members, key=lambda record: goals[0].value(record.metrics))


def best_of(
    records: Sequence[TrialRecord], goals: Sequence[Goal], limits: Sequence[Limit]
) -> TrialRecord | None:
    """The most accurate within the limits, without accuracy the best in the first objective.

    Of equally accurate ones the smallest. None if none is within.
    """
    fitting = [r for r in records if r.metrics and violation(limits, r.metrics) == 0]
    return min(fitting, key=lambda r: precedence(goals, r.metrics), default=None)


def hypervolumes(
    records: Sequence[TrialRecord], goals: Sequence[Goal], *, only_last: bool = False
) -> list[float]:
    """The hypervolume after each trial, or the last only, from 0 to 1, one scale for all searches.

    It is a share of the box between the best and the worst values of `_BOX`, on the scale on which
    they are searched (sizes and errors by their logarithm). The box of an objective that is not
    there, a function of the user, is what the records span.
    """
    values = values_of(records, goals)
    known = ~np.isnan(values).any(axis=1)
    if not known.any():
        return [0.0] * (1 if only_last else len(records))
    low, high = values[known].min(axis=0), values[known].max(axis=0) + 1e-9
    for column, goal in enumerate(goals):
        if goal.name in _BOX:
            low[column], high[column] = map(goal.scaled, _BOX[goal.name])
    scaled = np.maximum((values - low) / np.maximum(high - low, 1e-12), 0.0)
    first = len(records) if only_last else 1
    volumes, best = [], 0.0
    for count in range(first, len(records) + 1):
        if known[count - 1] or only_last:
            best = hypervolume(scaled[:count][known[:count]], np.ones(len(goals)))
        volumes.append(best)
    return volumes


_BOX = {
    "val_error": (1e-3, 1.0),
    "quantized_error": (1e-3, 1.0),
    "model_size": (10.0, 1e6),
    "working_memory": (10.0, 1e6),
    "macs": (100.0, 1e9),
}
"""Best and worst values of the box in which hypervolumes are measured."""


def lineage_of(records: Sequence[TrialRecord], trial_id: str) -> list[TrialRecord]:
    """A trial, its reference, the reference of that, and so on."""
    by_id = {record.trial_id: record for record in records}
    if trial_id not in by_id:
        raise ValueError(f"trial must be one of the search. Received: {trial_id!r}")
    line = [by_id[trial_id]]
    while line[-1].reference in by_id:
        line.append(by_id[str(line[-1].reference)])
    return line


def dominating(
    records: Sequence[TrialRecord], points: Sequence[tuple[float, float]], size: str = "nonzeros"
) -> list[TrialRecord | None]:
    """For each published (accuracy, size) the best trial that is at least as good in both.

    Args:
        records: Of the search.
        points: Accuracies from 0 to 1 and sizes in the metric's unit.
        size: Name of the metric.

    Returns:
        For each point the most accurate trial that is as accurate and as small; None if none is.
        Accuracies are those on the validation data.
    """
    answers = []
    for accuracy, most in points:
        good = [
            r
            for r in records
            if r.metrics
            and r.metrics["val_error"] <= 1 - accuracy + 1e-12
            and r.metrics[size] <= most
        ]
        answers.append(min(good, key=lambda r: r.metrics["val_error"], default=None))
    return answers


def table_of(records: Sequence[TrialRecord], goals: Sequence[Goal]) -> list[dict[str, Any]]:
    """One flat row per trial, all with the same columns: ready for a DataFrame or a CSV file."""
    front = {record.trial_id for record in front_of(records, goals)}
    metrics = sorted({name for record in records for name in record.metrics})
    parameters = list(dict.fromkeys(name for record in records for name in record.configuration))
    # A parameter of the user's own may have the name of a column.
    columns = {n: f"parameter/{n}" if n in (*metrics, *_COLUMNS) else n for n in parameters}
    return [
        {
            "trial": record.trial_id,
            "status": record.status,
            "stage": record.stage,
            "reference": record.reference,
            "on_front": record.trial_id in front,
            "epochs": record.epochs,
            "seconds": record.seconds,
            "reason": record.reason,
            **{name: record.metrics.get(name) for name in metrics},
            **{columns[name]: record.configuration.get(name) for name in parameters},
        }
        for record in records
    ]


_COLUMNS = (
    "trial", "status", "stage", "reference", "on_front", "epochs", "seconds", "reason"
)  # fmt: skip


def csv_of(table: Sequence[dict[str, Any]]) -> str:
    """The table as CSV."""
    buffer = io.StringIO()
    if table:
        writer = csv.DictWriter(buffer, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return buffer.getvalue()


def summary_of(
    records: Sequence[TrialRecord], goals: Sequence[Goal], limits: Sequence[Limit], count: int = 10
) -> str:
    """The front as a table, the best within the budget marked."""
    front, best = front_of(records, goals), best_of(records, goals, limits)
    reasons = Counter(record.reason for record in records if record.status == "failed")
    failed = sum(reasons.values())
    lines = [
        f"{len(records)} trials, {failed} failed; {len(front)} on the Pareto front",
        "  ".join(["  trial", *(f"{goal.name:>15}" for goal in goals), "epochs", "stage"]),
    ]
    for record in front[:count]:
        mark = "*" if best is not None and record.trial_id == best.trial_id else " "
        numbers = (f"{_shown(goal.name, record.metrics[goal.name]):>15}" for goal in goals)
        row = [
            f"{mark} {record.trial_id:>5}",
            *numbers,
            f"{record.epochs:>6}",
            f"{record.stage:>5}",
        ]
        lines.append("  ".join(row))
    if len(front) > count:
        lines.append(f"  ... and {len(front) - count} more")
    if reasons:
        reason, times = reasons.most_common(1)[0]
        lines.append(f"{times} of {failed} failures: {reason.splitlines()[-1]}")
    if limits and best is None:
        lines.append("no trial is within the budget")
    elif limits:
        lines.append("* the most accurate within the budget")
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    return f"{value:.4f}" if name.endswith("_error") else f"{value:,.6g}"
