"""The paper's figures from the searches of the tables. Facts first, drawing second."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from keras_sparse.tuner.answers import TrialRecord, front_of, hypervolumes
from keras_sparse.tuner.goals import Goal
from keras_sparse.tuner.plots import (
    legend_below,
    plot_front,
    plot_lineage,
    plot_scatter,
    plot_trial,
)
from keras_sparse.tuner.reading import Search, read_search
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.tables_front import members_of, validation_of
from benchmarks.tables_places import Places
from benchmarks.tables_rows import answers_of
from benchmarks.tables_settings import (
    ABLATION_SEEDS,
    MEMORY,
    PRUNING,
    Settings,
    ablation_settings,
    settings_of,
)
from benchmarks.tables_state import restore
from benchmarks.tables_targets import baselines_of
from keras_sparse.drawing import Picture, save
from keras_sparse.files import write_bytes

LEAST_ACCURACY = {"mnist": 0.95, "cifar10-binary": 0.7}
"""Of the networks in the paper's scatters and in its first figure."""

_WIDEST = 30_000
"""Parameters at the right end of a front's picture."""

_ABOVE = 1.0
"""Percentage points of a front's picture above the best member."""

_ABLATION_ACCURACY = 0.9
"""Of the networks whose sizes with and without pruning are compared; trials are short there."""

_COLOURS = ("#4c72b0", "#dd8452")
_DATA = ("mnist", "cifar10-binary", "chars4k", "chars4k-binary", "kth-tips")


class MemoryFacts(NamedTuple):
    """What it costs in working memory to optimise the size alone.

    Attributes:
        labels: Of the two searches.
        points: For each of them (model size, working memory, validation accuracy) of the networks
            on its front that are accurate enough.
        least_accuracy: How accurate that is.
        least: For each of them the least working memory of these networks, bytes.
        median: And the median.
    """

    labels: tuple[str, str]
    points: tuple[tuple[tuple[float, float, float], ...], ...]
    least_accuracy: float
    least: tuple[float, ...]
    median: tuple[float, ...]


class AblationFacts(NamedTuple):
    """Fronts with and without pruning after the same number of configurations.

    Attributes:
        fronts: For with and without, of each seed: (non-zeros, validation accuracy), from small to
            large.
        smallest: For with and without, the median over the seeds of the smallest network that is at
            least `accuracy` accurate; None if a seed has none.
        accuracy: See there.
    """

    fronts: tuple[tuple[tuple[tuple[float, float], ...], ...], ...]
    smallest: tuple[float | None, ...]
    accuracy: float


def opened(settings: Settings, places: Places) -> Search | None:
    """A search, restored if need be; None if it was never started."""
    restore(places.state(settings), places.folder(settings))
    folder = places.folder(settings)
    return read_search(folder) if (folder / "project.json").is_file() else None


def memory_facts(fronts: Sequence[Sequence[TrialRecord]], least_accuracy: float) -> MemoryFacts:
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
        tuple(min(p[1] for p in group) for group in points),
        tuple(float(np.median([p[1] for p in group])) for group in points),
    )


def memory_of(data: str, places: Places) -> MemoryFacts | None:
    """What the searches with and without working memory say; None before there are both."""
    least = LEAST_ACCURACY.get(data, 0.0)
    searches = [opened(settings_of(data, 2, variant), places) for variant in ("main", "size")]
    found = [
        search.front
        for search in searches
        if search and any(1.0 - r.metrics["val_error"] >= least for r in search.front)
    ]
    return memory_facts(found, least) if len(found) == len(searches) else None


def ablation_facts(
    with_pruning: Sequence[Sequence[TrialRecord]],
    without: Sequence[Sequence[TrialRecord]],
    accuracy: float,
) -> AblationFacts:
    """Of the trials of several seeds."""
    groups = (with_pruning, without)
    fronts = tuple(tuple(_front(records) for records in group) for group in groups)
    smallest = []
    for group in fronts:
        sizes = [min((s for s, a in front if a >= accuracy), default=None) for front in group]
        known = sorted(size for size in sizes if size is not None)
        is_complete = bool(known) and len(known) == len(sizes)
        smallest.append(known[len(known) // 2] if is_complete else None)
    return AblationFacts(fronts, tuple(smallest), accuracy)


def _front(records: Sequence[TrialRecord]) -> tuple[tuple[float, float], ...]:
    goals = [Goal("val_error"), Goal("nonzeros")]
    front = front_of([r for r in records if "nonzeros" in r.metrics], goals)
    return tuple(sorted((r.metrics["nonzeros"], 1.0 - r.metrics["val_error"]) for r in front))


def random_facts(data: str, table: int, places: Places) -> tuple[float, float, int] | None:
    """Hypervolumes of a search and of random trials after as many, and how many; None without."""
    ended = []
    for variant in ("main", "random"):
        search = opened(settings_of(data, table, variant), places)
        if search is None:
            return None
        ended.append([r for r in search.records if r.status != "running"])
        goals = search.goals
    count = min(map(len, ended))
    if not count:
        return None
    volumes = [hypervolumes(records[:count], goals, only_last=True)[-1] for records in ended]
    return volumes[0], volumes[1], count


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
    axes.set_title(f"fronts, at least {facts.least_accuracy:.0%} accurate", fontsize=9)
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


def draw_front(
    search: Search,
    curve: Sequence[Sequence[float]],
    members: Sequence[tuple[float, float]],
    path: Path,
) -> Figure:
    """The paper's second figure: all trials, the front, published rows, the curve of LeNet + SpVD.

    Args:
        search: Of single weights.
        curve: (non-zeros, validation error in percent) of LeNet + SpVD.
        members: (non-zeros, validation accuracy) of the networks that were trained on.
        path: Of the picture.

    Returns:
        What was drawn.
    """
    figure: Figure = plot_front(search, references=search.data)
    # What is worth looking at; the others, kNN with its millions of values too, are in the tables.
    front = figure.axes[0]
    least = 100 * LEAST_ACCURACY.get(search.data or "", 0.0)
    best = max((100 * accuracy for _, accuracy in members), default=0.0)
    front.set_ylim(least, min(100.0, max(front.get_ylim()[1], best + _ABOVE)))
    front.set_xlim(right=_WIDEST)
    if curve:
        points, name = sorted((size, 100.0 - error) for size, error in curve), "LeNet + SpVD, here"
        sizes, accuracies = zip(*points, strict=True)
        front.plot(sizes, accuracies, color="#8172b3", marker=".", linewidth=1, label=name)
        front.annotate(name, points[-1], fontsize=7.5, color="#8172b3")
    if members:
        sizes, accuracies = zip(*members, strict=True)
        front.scatter(
            sizes,
            [100 * accuracy for accuracy in accuracies],
            marker="*",
            s=70,
            color="#000000",
            label="ours, trained on",
            zorder=5,
        )
    legend_below(front)
    save(figure, path)
    return figure


def shrink(path: Path) -> None:
    """A picture with a palette: a third of the bytes, and no difference that an eye sees."""
    content = io.BytesIO()
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(
            method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    few.save(content, format="png", optimize=True)
    write_bytes(path, content.getvalue())


def write_figures(places: Places) -> list[Path]:
    """Draws what there are searches for, removes what is no longer drawn; returns the files."""
    folder, written = places.results / "figures", []

    def target(name: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"{name}.png")
        return written[-1]

    for data in _DATA:
        for pruning in ("unstructured", "structured"):
            tables = [table for table, kind in PRUNING.items() if kind == pruning]
            settings = settings_of(data, tables[0])
            search = opened(settings, places)
            if search is None or not search.front:
                continue
            curve: Any = baselines_of(data, places).get("LeNet + SpVD", {})
            curve = curve.get("curve (nonzeros, val error %)", [])
            curve = curve if pruning == "unstructured" else []
            members = [
                (record["sizes"]["nonzeros"], validation_of(record))
                for record in members_of(settings, places).values()
            ]
            draw_front(search, curve, members, target(f"{settings.name}-front"))
            least = LEAST_ACCURACY.get(data, 0.0)
            plot_scatter(search, target(f"{settings.name}-edges"), least_accuracy=least)
            for trial in _winners(settings, search, places):
                plot_lineage(search, target(f"{settings.name}-lineage-{trial}"), trial=trial)
                if trial in search.networks:
                    plot_trial(search, target(f"{settings.name}-network-{trial}"), trial=trial)
        memory = memory_of(data, places)
        if memory is not None:
            draw_memory(memory, target(f"{data}-memory"))
    ablation = ablation_of(places)
    if ablation is not None:
        draw_ablation(ablation, target("mnist-ablation"))
    for path in written:
        shrink(path)
    for path in set(folder.glob("*.png")) - set(written):
        path.unlink()
    return written


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
    return ablation_facts(groups[0], groups[1], _ABLATION_ACCURACY) if all(groups) else None


def _winners(settings: Settings, search: Search, places: Places) -> list[str]:
    """Trials that answer the paper's rows; before there are answers the best within the budget."""
    trials = [answer.member.split("-")[0] for answer in answers_of(settings, places)]
    best = search.best or search.front[0]
    known = {record.trial_id for record in search.records}
    return [t for t in dict.fromkeys(trials or [best.trial_id]) if t in known]
