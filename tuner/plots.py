"""Pictures of a search for papers and notebooks, drawn with matplotlib.

    search = read_search("runs/digits")
    plot_front(search, "front.svg")

Every function returns the figure, which notebooks show, and writes it to `path` if there is one,
whose ending says the format. What is drawn comes from `facts`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keras_sparse.drawing import Picture, draw, save
from keras_sparse.network_facts import NetworkFacts

from . import facts
from .facts import FrontPoint
from .reading import Search

STAGE_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#8172b3", "#937860")
"""Of stages 1, 2, 3, …; told apart also by people who do not see red and green."""

_MARKERS = ("o", "s", "^", "D", "v")
_REFERENCE_MARKERS = {"SpArSe": "*", "Bonsai": "P", "ProtoNN": "X"}
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "keras-sparse",
}


def plot_front(
    search: Search,
    path: str | Path | None = None,
    *,
    references: str | None = None,
    colour: str = "stage",
) -> Figure:
    """All trials by size and accuracy, the front, the best within the budget, published results.

    Args:
        search: From `read_search`.
        path: File to write; None writes none.
        references: Name of the data set whose published results are shown; None for that of the
            search. Theirs are test accuracies, those of the trials are on the validation data.
        colour: "stage", or "working_memory" for the trials' working memory.
    """
    if colour not in ("stage", "working_memory"):
        raise ValueError(f'colour must be "stage" or "working_memory". Received: colour={colour!r}')
    shown = facts.front_facts(search, references)
    with _axes(6.4, 4.2) as (figure, axes):
        if shown.size_limit is not None:
            axes.axvline(shown.size_limit, color="#999999", linewidth=1, linestyle=":")
            axes.annotate(
                f" flash budget {shown.size_limit:,.0f} B",
                (shown.size_limit, 0.02),
                xycoords=("data", "axes fraction"),
                fontsize=7.5,
                color="#666666",
                rotation=90,
                ha="right",
            )
        if shown.staircase:
            sizes, accuracies = zip(*shown.staircase, strict=True)
            axes.step(sizes, _percent(accuracies), where="post", color="#444444", linewidth=1.1)
        if colour == "stage":
            _scatter_by_stage(axes, shown.points)
        else:
            _scatter_by_memory(figure, axes, shown.points)
        for method in dict.fromkeys(row.method for row in shown.references):
            rows = [row for row in shown.references if row.method == method]
            axes.scatter(
                [row.model_size for row in rows],
                _percent([row.accuracy for row in rows]),
                marker=_REFERENCE_MARKERS.get(method, "d"),
                s=70,
                facecolor="#c44e52" if method == "SpArSe" else "#ffffff",
                edgecolor="#c44e52",
                linewidth=1.1,
                label=f"{method} (published)",
                zorder=4,
            )
        best = next((point for point in shown.points if point.trial_id == shown.best), None)
        if best is not None:
            axes.scatter(
                [best.size], [100 * best.accuracy], s=150, facecolor="none", edgecolor="#000000",
                linewidth=1.4, label="best within the budget", zorder=5,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlabel("model size, bytes that are not zero")
        axes.set_ylabel("validation accuracy, %")
        legend_below(axes)
    return _saved(figure, path)


def _scatter_by_stage(axes: Axes, points: Sequence[FrontPoint]) -> None:
    for stage in sorted({point.stage for point in points}):
        for on_front in (False, True):
            some = [p for p in points if p.stage == stage and p.on_front == on_front]
            axes.scatter(
                [point.size for point in some],
                _percent([point.accuracy for point in some]),
                marker=_MARKERS[(stage - 1) % len(_MARKERS)],
                s=34 if on_front else 16,
                color=STAGE_COLOURS[(stage - 1) % len(STAGE_COLOURS)],
                alpha=1.0 if on_front else 0.4,
                linewidth=0,
                label=f"stage {stage}" if on_front else None,
                zorder=3,
            )


def _scatter_by_memory(figure: Figure, axes: Axes, points: Sequence[FrontPoint]) -> None:
    known = [point for point in points if point.working_memory]
    if not known:
        raise ValueError(
            'colour="working_memory" needs trials that measured it. Received: none that did'
        )
    drawn = axes.scatter(
        [point.size for point in known],
        _percent([point.accuracy for point in known]),
        c=[float(point.working_memory or 0) for point in known],
        s=[40 if point.on_front else 18 for point in known],
        cmap="viridis_r",
        norm=LogNorm(),
        edgecolor=["#000000" if point.on_front else "none" for point in known],
        linewidth=0.6,
        zorder=3,
    )
    figure.colorbar(drawn, ax=axes, label="working memory, bytes (on the front: outlined)")


def plot_hypervolume(search: Search, path: str | Path | None = None) -> Figure:
    """How the front got better, trial by trial, the stages in their colours."""
    shown = facts.hypervolume_facts(search)
    with _axes(6.4, 3.2) as (figure, axes):
        numbers = list(range(1, len(shown.volumes) + 1))
        axes.step(numbers, shown.volumes, where="post", color="#444444", linewidth=1.1, zorder=2)
        for stage in sorted(set(shown.stages)):
            some = [i for i, other in enumerate(shown.stages) if other == stage]
            axes.scatter(
                [numbers[i] for i in some],
                [shown.volumes[i] for i in some],
                marker=_MARKERS[(stage - 1) % len(_MARKERS)],
                s=16,
                color=STAGE_COLOURS[(stage - 1) % len(STAGE_COLOURS)],
                label=f"stage {stage}",
                zorder=3,
            )
        axes.set_ylim(bottom=0)
        axes.set_xlabel(_with_hours("trial", shown.hours))
        axes.set_ylabel("hypervolume of the front")
        legend_below(axes)
    return _saved(figure, path)


def _with_hours(label: str, hours: Sequence[float]) -> str:
    if not hours:
        return label
    return f"{label}   ({hours[-1]:.1f} h of training in all)"


def plot_lineage(
    search: Search, path: str | Path | None = None, *, trial: str | None = None
) -> Figure:
    """How a configuration came about: each ancestor, its numbers, and what the next one changed.

    Args:
        search: From `read_search`.
        path: File to write; None writes none.
        trial: Id of the trial; None for the best within the budget.
    """
    steps = facts.lineage_facts(search, trial)
    texts = [_step_text(step) for step in steps]
    heights = [0.34 + 0.147 * text.count("\n") for text in texts]
    height = sum(heights) + 0.2
    with _axes(7.4, height) as (figure, axes):
        axes.set_axis_off()
        axes.set_position((0, 0, 1, 1))
        axes.set_xlim(0, 7.4)
        axes.set_ylim(-height, 0)
        top = -0.1
        for number, (step, text, room) in enumerate(zip(steps, texts, heights, strict=True)):
            if number + 1 < len(steps):
                axes.plot([0.3, 0.3], [top - 0.13, top - room - 0.13], color="#999999", zorder=1)
            stage = (step.stage - 1) % len(STAGE_COLOURS)
            axes.scatter(
                [0.3], [top - 0.13], color=STAGE_COLOURS[stage], marker=_MARKERS[stage], s=60,
                zorder=2,
            )  # fmt: skip
            axes.text(0.55, top, text, va="top", fontsize=8, linespacing=1.35)
            top -= room
    return _saved(figure, path)


def _step_text(step: facts.Step) -> str:
    lines = [f"trial {step.trial_id}, stage {step.stage}:  {summary(step.metrics)}"]
    changes = [f"{name}: {shown(old)} → {shown(new)}" for name, old, new in step.changes]
    line = ""
    for change in changes:
        if line and len(line) + len(change) > 95:
            lines.append(f"    {line}")
            line = ""
        line = f"{line};  {change}" if line else change
    return "\n".join([*lines, *([f"    {line}"] if line else [])])


def summary(metrics: dict[str, float]) -> str:
    """The numbers of a trial that people look at first, in a line."""
    parts = []
    if "val_error" in metrics:
        parts.append(f"{1 - metrics['val_error']:.1%}")
    for name, label in (("model_size", "model"), ("working_memory", "RAM")):
        if name in metrics:
            parts.append(f"{label} {metrics[name]:,.0f} B")
    return ", ".join(parts) or "no metrics"


def shown(value: Any) -> str:
    """A value of a configuration, short."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def plot_scatter(
    search: Search, path: str | Path | None = None, *, least_accuracy: float = 0.0
) -> Figure:
    """The paper's scatter: edges before pruning against weights left after it.

    Args:
        search: From `read_search`.
        path: File to write; None writes none.
        least_accuracy: Trials with a lower validation accuracy are left out; the paper took 0.95
            for MNIST and 0.7 for CIFAR10-binary.
    """
    points = facts.scatter_facts(search, least_accuracy)
    with _axes(5.6, 4.2) as (figure, axes):
        if points.trial_ids:
            drawn = axes.scatter(
                points.nonzeros, points.edges, c=_percent(points.accuracies), cmap="viridis", s=28,
                linewidth=0, zorder=3,
            )  # fmt: skip
            figure.colorbar(drawn, ax=axes, label="validation accuracy, %")
            ends = (min(points.nonzeros), max(points.edges))
            axes.plot(ends, ends, color="#999999", linestyle=":", linewidth=1)
            axes.annotate("  nothing pruned", ends[:1] * 2, fontsize=7.5, color="#666666")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("non-zero parameters after pruning, ‖ω̄‖₀")
        axes.set_ylabel("edges: parameters before pruning, |E|")
        if least_accuracy:
            axes.set_title(f"trials with at least {least_accuracy:.0%}", fontsize=9)
    return _saved(figure, path)


def plot_sparsity(
    network: NetworkFacts | Search, path: str | Path | None = None, *, trial: str | None = None
) -> Figure:
    """Parameters of each layer before and after pruning.

    Args:
        network: Its facts, or a search of which `trial` says which one.
        path: File to write; None writes none.
        trial: Id of the trial; None for the best within the budget.
    """
    if isinstance(network, Search):
        network = facts.network_of(network, trial)
    layers = facts.sparsity_facts(network)
    with _axes(6.4, 0.9 + 0.32 * len(layers)) as (figure, axes):
        rows = range(len(layers))
        axes.barh(rows, [layer.before for layer in layers], color="#d9d9d9", height=0.7,
                  label="before pruning")  # fmt: skip
        axes.barh(rows, [max(layer.after, 1) for layer in layers], color="#4c72b0", height=0.4,
                  label="not zero after it")  # fmt: skip
        for row, layer in zip(rows, layers, strict=True):
            axes.annotate(
                f" {layer.before:,} → {layer.after:,}  (−{layer.sparsity:.0%})",
                (layer.before, row), va="center", fontsize=7.5,
            )  # fmt: skip
        axes.set_yticks(list(rows), [layer.name for layer in layers])
        axes.invert_yaxis()
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, 0.9), high**1.25)  # room for the numbers
        axes.set_xlabel("parameters")
        axes.grid(visible=False, axis="y")
        legend_below(axes)
    return _saved(figure, path)


def plot_trial(
    search: Search, path: str | Path | None = None, *, trial: str | None = None
) -> Figure:
    """Draws the network of a trial with its bytes before and after pruning.

    Args:
        search: From `read_search`.
        path: File to write; None writes none.
        trial: Id of the trial; None for the best within the budget.
    """
    return draw(facts.network_of(search, trial), path)


@contextmanager
def _axes(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    with mpl.rc_context(_STYLE):
        figure = Picture(figsize=(width, height), dpi=120, layout="constrained")
        yield figure, figure.subplots()


def legend_below(axes: Axes) -> None:
    """Explains what can be seen, under the axes; replaces an earlier legend there."""
    for legend in list(axes.figure.legends):
        legend.remove()
    pairs = zip(*axes.get_legend_handles_labels(), strict=True)
    shown = [(handle, label) for handle, label in pairs if _is_in_view(axes, handle)]
    if shown:
        colour = [handle for handle, _ in shown if not isinstance(handle, Line2D)]
        axes.figure.legend(
            *zip(*shown, strict=True),
            loc="outside lower center",
            ncols=min(len(colour) or 1, 4),
            fontsize=8,
            columnspacing=1.0,
            handletextpad=0.3,
            frameon=False,
        )


def _is_in_view(axes: Axes, handle: Any) -> bool:
    """Whether a point of a scatter is within the limits; lines, and names without points, are."""
    places = np.asarray(handle.get_offsets() if isinstance(handle, PathCollection) else [], float)
    if not len(places):
        return True
    low, high = np.transpose([axes.get_xlim(), axes.get_ylim()])
    return bool(((places >= low) & (places <= high)).all(axis=1).any())


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _saved(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        with mpl.rc_context(_STYLE):
            save(figure, path)
    return figure
