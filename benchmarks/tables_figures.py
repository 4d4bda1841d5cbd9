"""The paper's figures from the searches of the tables. Facts first, drawing second."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_sparse.tuner.plots import (
    legend_below,
    plot_front,
    plot_lineage,
    plot_scatter,
    plot_trial,
)
from keras_sparse.tuner.reading import Search
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.tables_comparisons import (
    LEAST_ACCURACY,
    ablation_of,
    draw_ablation,
    draw_memory,
    memory_of,
    opened,
)
from benchmarks.tables_front import members_of, validation_of
from benchmarks.tables_places import Places
from benchmarks.tables_rows import answers_of
from benchmarks.tables_settings import PRUNING, Settings, settings_of
from benchmarks.tables_targets import baselines_of
from keras_sparse.drawing import save
from keras_sparse.files import write_bytes

_WIDEST = 30_000
"""Parameters at the right end of a front's picture."""

_ABOVE = 1.0
"""Percentage points of a front's picture above the best member."""

_DATA = ("mnist", "cifar10-binary", "chars4k", "chars4k-binary", "kth-tips")


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


def _winners(settings: Settings, search: Search, places: Places) -> list[str]:
    """Trials that answer the paper's rows; before there are answers the best within the budget."""
    trials = [answer.member.split("-")[0] for answer in answers_of(settings, places)]
    best = search.best or search.front[0]
    known = {record.trial_id for record in search.records}
    return [t for t in dict.fromkeys(trials or [best.trial_id]) if t in known]
