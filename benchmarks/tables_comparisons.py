"""Searches beside each other, after the same number of trials. Facts first, drawing second."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from keras_sparse.tuner.answers import TrialRecord, front_of, hypervolumes
from keras_sparse.tuner.goals import Goal
from keras_sparse.tuner.reading import Search, read_search

from benchmarks.tables_places import Places
from benchmarks.tables_settings import (
    ABLATION_SEEDS,
    MEMORY,
    Settings,
    ablation_settings,
    settings_of,
)
from benchmarks.tables_state import restore
from keras_sparse.drawing import Picture, save

LEAST_ACCURACY = {"mnist": 0.95, "cifar10-binary": 0.7, "chars4k": 0.4, "chars4k-binary": 0.65}
"""Of the networks in the scatters, the paper's for MNIST and CIFAR10, and in its first figure."""

_ABLATION_ACCURACIES = (0.7, 0.8, 0.85, 0.9, 0.95)
"""Of the networks whose sizes with and without pruning are compared; trials are short there."""

_COLOURS = ("#4c72b0", "#dd8452")


class MemoryFacts(NamedTuple):
    """What it costs in working memory to optimise the size alone.

    Attributes:
        labels: Of the two searches.
        points: For each of them (model size, working memory, validation accuracy) of the networks
            on its front that are accurate enough.
        least_accuracy: How accurate that is.
        trials: Of each of the searches.
        least: For each of them the least working memory of these networks, bytes.
        median: And the median.
    """

    labels: tuple[str, str]
    points: tuple[tuple[tuple[float, float, float], ...], ...]
    least_accuracy: float
    trials: int
    least: tuple[float, ...]
    median: tuple[float, ...]


class AblationFacts(NamedTuple):
    """Fronts with and without pruning after the same number of configurations.

    Attributes:
        fronts: For with and without, of each seed: (non-zeros, validation accuracy), from small to
            large.
        accuracies: At which sizes are compared.
        smallest: For with and without, for each of them the median over the seeds of the smallest
            network that is at least so accurate; None if most seeds have none.
    """

    fronts: tuple[tuple[tuple[tuple[float, float], ...], ...], ...]
    accuracies: tuple[float, ...]
    smallest: tuple[tuple[float | None, ...], ...]


def opened(settings: Settings, places: Places) -> Search | None:
    """A search, restored if need be; None if it was never started."""
    restore(places.state(settings), places.folder(settings))
    folder = places.folder(settings)
    return read_search(folder) if (folder / "project.json").is_file() else None


class Ended(NamedTuple):
    """Trials of one of two searches.

    Attributes:
        goals: Of the search.
        records: As many ended trials as the other search has, the first ones.
    """

    goals: tuple[Goal, ...]
    records: list[TrialRecord]


def beside(data: str, table: int, variant: str, places: Places) -> tuple[Ended, ...]:
    """A search and one of its variants after the same number of trials; () before there are both.

    A variant need not be as long as the search, which takes hours.
    """
    found = []
    for name in ("main", variant):
        search = opened(settings_of(data, table, name), places)
        if search is None:
            return ()
        records = [record for record in search.records if record.status != "running"]
        found.append(Ended(search.goals, records))
    count = min(len(ended.records) for ended in found)
    return tuple(ended._replace(records=ended.records[:count]) for ended in found)


def memory_facts(
    fronts: Sequence[Sequence[TrialRecord]], least_accuracy: float, trials: int
) -> MemoryFacts:
    """Of a search for size and memory, and one for size alone, each with a network so accurate."""
    memory = f"working_memory/{MEMORY[2]}"
    points = tuple(
        tuple(
            (r.metrics["nonzeros"], r.metrics[memory], 1.0 - r.metrics["val_error"])
            for r in front
            if 1.0 - r.metrics["val_error"] >= least_accuracy
        )
        for front in fronts
    )
    return MemoryFacts(
        ("size and working memory", "size alone"),
        points,
        least_accuracy,
        trials,
        tuple(min(p[1] for p in group) for group in points),
        tuple(float(np.median([p[1] for p in group])) for group in points),
    )


def memory_of(data: str, places: Places) -> MemoryFacts | None:
    """What the searches with and without working memory say; None before both have a network."""
    least, pair = LEAST_ACCURACY.get(data, 0.0), beside(data, 2, "size", places)
    fronts = [front_of(records, goals) for goals, records in pair]
    found = [front for front in fronts if any(1.0 - r.metrics["val_error"] >= least for r in front)]
    return memory_facts(found, least, len(pair[0].records)) if len(found) == 2 else None


def ablation_facts(
    with_pruning: Sequence[Sequence[TrialRecord]],
    without: Sequence[Sequence[TrialRecord]],
    accuracies: Sequence[float],
) -> AblationFacts:
    """Of the trials of several seeds."""
    groups = (with_pruning, without)
    fronts = tuple(tuple(_front(records) for records in group) for group in groups)
    smallest = tuple(tuple(_median_size(group, a) for a in accuracies) for group in fronts)
    return AblationFacts(fronts, tuple(accuracies), smallest)


def _median_size(fronts: Sequence[Sequence[tuple[float, float]]], accuracy: float) -> float | None:
    sizes = [min((s for s, a in front if a >= accuracy), default=np.inf) for front in fronts]
    median = float(np.median(sizes))
    return median if np.isfinite(median) else None


def _front(records: Sequence[TrialRecord]) -> tuple[tuple[float, float], ...]:
    goals = [Goal("val_error"), Goal("nonzeros")]
    front = front_of([r for r in records if "nonzeros" in r.metrics], goals)
    return tuple(sorted((r.metrics["nonzeros"], 1.0 - r.metrics["val_error"]) for r in front))


def random_facts(data: str, table: int, places: Places) -> tuple[float, float, int] | None:
    """Hypervolumes of a search and of random trials after as many, and how many; None without."""
    pair = beside(data, table, "random", places)
    if not pair or not pair[0].records:
        return None
    goals = pair[0].goals
    ours, drawn = (hypervolumes(ended.records, goals, only_last=True)[-1] for ended in pair)
    return ours, drawn, len(pair[0].records)


def ablation_of(places: Places) -> AblationFacts | None:
    """What the searches with and without pruning say; None before there are ended ones of both."""
    groups = []
    for pruned in (True, False):
        ended = []
        for seed in ABLATION_SEEDS:
            settings = ablation_settings(pruned, seed)
            search = opened(settings, places)
            records = search.records if search is not None else ()
            if sum(record.status != "running" for record in records) >= settings.trials:
                ended.append(records)
        groups.append(ended)
    return ablation_facts(groups[0], groups[1], _ABLATION_ACCURACIES) if all(groups) else None


def draw_memory(facts: MemoryFacts, path: Path) -> None:
    """The paper's first figure."""
    figure = Picture(figsize=(5.6, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for label, points, colour in zip(facts.labels, facts.points, _COLOURS, strict=True):
        sizes, memories = [p[0] for p in points], [p[1] for p in points]
        axes.scatter(sizes, memories, color=colour, label=label, s=26, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("model size, non-zero parameters")
    axes.set_ylabel("working memory, bytes (inputs and weights)")
    axes.set_title(
        f"fronts of {facts.trials} trials, at least {facts.least_accuracy:.0%} accurate", fontsize=9
    )
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def draw_ablation(facts: AblationFacts, path: Path) -> None:
    """Fronts with and without pruning, a line for each seed."""
    figure = Picture(figsize=(5.6, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    labels = ("with pruning", "without pruning")
    for label, group, colour in zip(labels, facts.fronts, _COLOURS, strict=True):
        for number, front in enumerate(group):
            sizes, accuracies = [p[0] for p in front], [100 * p[1] for p in front]
            shown = label if number == 0 else None
            axes.step(sizes, accuracies, where="post", color=colour, label=shown, linewidth=1.1)
    axes.set_xscale("log")
    axes.set_xlabel("non-zero parameters")
    axes.set_ylabel("validation accuracy, %")
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
