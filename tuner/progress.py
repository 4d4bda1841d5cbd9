"""The line that tells how a search stands, in a terminal, a notebook or a log file."""

import sys
import time
from typing import Any, TextIO

import keras

from .answers import TrialRecord, best_of, front_of, hypervolumes
from .goals import Goal, Limit


class Progress:
    """Prints one line per trial, and in a terminal or notebook a line that changes while it runs.

    Args:
        max_trials: Of the search.
        goals: Its objectives.
        limits: Its budget.
        verbose: Whether to print at all.
        stream: Where to; standard output by default.
    """

    def __init__(
        self,
        max_trials: int,
        goals: tuple[Goal, ...],
        limits: tuple[Limit, ...],
        *,
        verbose: bool,
        stream: TextIO | None = None,
    ) -> None:
        self.max_trials = max_trials
        self.goals, self.limits = goals, limits
        self.verbose = verbose
        self.stream = stream or sys.stdout
        self.is_live = self.stream.isatty() or "ipykernel" in sys.modules
        self._times: list[float] = []
        self._done = 0
        self._width = 0

    def started(self, trial_id: str, stage: int, records: list[TrialRecord]) -> None:
        """A trial begins."""
        self._start = time.monotonic()
        self._head = f"trial {len(records) + 1}/{self.max_trials}  stage {stage}"
        self._live(self._head)

    def epoch(self, number: int, epochs: int, logs: dict[str, Any]) -> None:
        """An epoch has ended."""
        accuracy = next((logs[n] for n in logs if n.startswith("val_") and "acc" in n), None)
        shown = "" if accuracy is None else f"  val_accuracy {float(accuracy):.4f}"
        self._live(f"{self._head}  epoch {number}/{epochs}{shown}{self._left()}")

    def ended(self, trial_id: str, records: list[TrialRecord]) -> None:
        """A trial has ended; the records are all that have."""
        if not self.verbose or not records:
            return
        self._times.append(time.monotonic() - self._start)
        self._done = len(records)
        last = next((r for r in records if r.trial_id == trial_id), records[-1])
        parts = [self._head]
        if last.metrics:
            parts.append(_described(last, self.goals))
        if last.reason:
            parts.append(f"({last.reason.splitlines()[-1]})")
        best, front = best_of(records, self.goals, self.limits), front_of(records, self.goals)
        within = " within budget" if self.limits else ""
        if best is not None:
            parts.append(f"| best{within}: {_described(best, self.goals[:1])}")
        elif self.limits:
            parts.append("| none within budget yet")
        volume = hypervolumes(records, self.goals, only_last=True)[-1]
        parts.append(f"| front {len(front)}, hypervolume {volume:.3f}{self._left()}")
        self._clear()
        print("  ".join(parts), file=self.stream, flush=True)

    def _left(self) -> str:
        if not self._times:
            return ""
        seconds = sum(self._times) / len(self._times) * (self.max_trials - self._done)
        hours, rest = divmod(int(seconds), 3600)
        return f", {hours}:{rest // 60:02d} h left" if hours else f", {rest // 60} min left"

    def _live(self, text: str) -> None:
        if self.verbose and self.is_live:
            self._clear()
            print(text, end="", file=self.stream, flush=True)
            self._width = len(text)

    def _clear(self) -> None:
        if self._width:
            print("\r" + " " * self._width, end="\r", file=self.stream)
            self._width = 0


def _described(record: TrialRecord, goals: tuple[Goal, ...]) -> str:
    parts = []
    for goal in goals:
        value = record.metrics[goal.name]
        if goal.name == "val_error":
            parts.append(f"val_accuracy {1 - value:.4f}")
        else:
            parts.append(f"{goal.name} {value:,.6g}")
    return ", ".join(parts)


class EpochProgress(keras.callbacks.Callback):
    """Tells `Progress` of every epoch."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Shows the epoch."""
        self.progress.epoch(epoch + 1, int(self.params["epochs"]), logs or {})
