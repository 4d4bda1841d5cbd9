"""plot_network: a picture of a network with what each node takes before and after pruning."""

import io
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import keras
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from .counting import sparse_layers
from .footprint import Graph, MemoryModel, measure, read
from .layout import Layout, layered
from .network_facts import Change, NetworkFacts, NodeFacts, Shape, facts_of
from .stripping import strip

_WIDTH, _HEIGHT = 3.1, 0.62  # inches of a node
_GAP, _ROW = 0.5, 1.0  # inches between nodes and from row to row
_COLOURS = {
    "Conv2D": "#dbe9f6",
    "DepthwiseConv2D": "#d5efe6",
    "Dense": "#fde5d2",
    "Add": "#eeeeee",
    "Concatenate": "#eeeeee",
}


class Picture(Figure):
    """A figure that notebooks show by themselves, also where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


class Box(NamedTuple):
    """What is written in the box of one node."""

    title: str
    operation: str
    cost: str


class Drawing(NamedTuple):
    """All that is drawn.

    Attributes:
        boxes: Text of each node by name.
        colours: Fill of each box by name.
        layout: Where the boxes and edges are.
        caption: Totals of the network.
    """

    boxes: dict[str, Box]
    colours: dict[str, str]
    layout: Layout
    caption: str


def plot_network(
    model: keras.Model | Graph,
    path: str | Path | None = None,
    *,
    before: keras.Model | Graph | None = None,
    working_memory: str | MemoryModel = "inputs+weights",
    bits: int = 8,
) -> Figure:
    """Draws a network; each node with its operation, its output and its bytes.

    MS is the model size, the bytes of the parameters that are not zero; WM the working memory.

    Args:
        model: A Sequential or functional Keras model, with plain or sparse layers, or a `Graph`.
        path: File to write, its ending says the format (.png, .svg, .pdf); None writes none.
        before: The network before pruning; by default `model` itself, unpruned.
        working_memory: Model of working memory, as in `measure`.
        bits: Bits of a weight and of an activation.

    Returns:
        The figure, which notebooks show.
    """
    if not isinstance(model, Graph) and isinstance(model, keras.Model) and sparse_layers(model):
        before, model = before or model, strip(model)
    footprint = measure(model, before=before, working_memory=working_memory, bits=bits)
    graph = model if isinstance(model, Graph) else read(model)
    return draw(facts_of(graph, footprint), path)


def draw(facts: NetworkFacts, path: str | Path | None = None) -> Figure:
    """Draws what is known of a network; writes it to `path` unless that is None."""
    figure = _draw(drawing_of(facts))
    if path is not None:
        save(figure, path)
    return figure


def drawing_of(facts: NetworkFacts) -> Drawing:
    """The texts and places of a network's picture."""
    boxes = {name: Box(name, "image", _times(shape)) for name, shape in facts.images.items()}
    boxes.update((node.name, _box(node)) for node in facts.nodes)
    edges = [(tensor, node.name) for node in facts.nodes for tensor in node.inputs]
    kinds = {node.name: node.kind for node in facts.nodes}
    caption = (
        f"MS {_arrow(facts.model_size)} B ({facts.sparse_bytes:,} B with indices)      "
        f"WM {_arrow(facts.working_memory)} B"
        f" ({facts.working_memory_with_image:,} B with the image, {facts.memory_model})"
    )
    return Drawing(
        boxes,
        {name: _COLOURS.get(kinds.get(name, ""), "#ffffff") for name in boxes},
        layered(list(boxes), edges),
        caption,
    )


def _box(node: NodeFacts) -> Box:
    size = " " + "×".join(map(str, node.kernel)) if node.kernel else ""
    shape = _times(node.shape)
    if node.shape_before != node.shape:
        shape = f"{_times(node.shape_before)} → {shape}"
    cost = f"WM {_arrow(node.working_memory)}"
    if node.parameters.before:
        cost = f"MS {_arrow(node.model_size)}    {cost}"
    return Box(node.name, f"{node.kind}{size}    {shape}", cost)


def _times(shape: Shape) -> str:
    return " × ".join(map(str, shape))


def _arrow(change: Change) -> str:
    before, after = change
    return f"{before:,} → {after:,}" if before != after else f"{after:,}"


def _draw(drawing: Drawing) -> Figure:
    nodes = drawing.layout.nodes
    points = [*nodes.values(), *(p for path in drawing.layout.edges.values() for p in path)]
    pitch = _WIDTH + _GAP
    xs = [point.x * pitch for point in points]
    rows = max(point.row for point in points) + 1
    width = max(xs) - min(xs) + _WIDTH + 0.4
    width = max(width, 0.075 * len(drawing.caption))
    height = rows * _ROW + 0.5
    figure = Picture(figsize=(width, height), dpi=120)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    centre = (max(xs) + min(xs)) / 2
    axes.set_xlim(centre - width / 2, centre + width / 2)
    axes.set_ylim(-(rows - 0.5) * _ROW - 0.1, 0.5 * _ROW + 0.4)

    def place(x: float, row: int) -> tuple[float, float]:
        return x * pitch, -row * _ROW

    for path in drawing.layout.edges.values():
        line = [place(*point) for point in path]
        (x0, y0), (x1, y1) = line[0], line[-1]
        inner = [(x, y + side) for x, y in line[1:-1] for side in (_HEIGHT / 2, -_HEIGHT / 2)]
        line = [(x0, y0 - _HEIGHT / 2), *inner, (x1, y1 + _HEIGHT / 2)]
        axes.plot(*zip(*line, strict=True), color="#777777", linewidth=1.1, zorder=1)
        axes.annotate(
            "",
            xy=line[-1],
            xytext=line[-2],
            arrowprops={"arrowstyle": "-|>", "color": "#777777", "shrinkA": 0, "shrinkB": 0},
            zorder=1,
        )
    for name, point in nodes.items():
        x, y = place(*point)
        axes.add_patch(
            FancyBboxPatch(
                (x - _WIDTH / 2, y - _HEIGHT / 2),
                _WIDTH,
                _HEIGHT,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=drawing.colours[name],
                edgecolor="#444444",
                linewidth=0.9,
                zorder=2,
            )
        )
        box = drawing.boxes[name]
        for offset, text, weight in (
            (0.185, box.title, "bold"),
            (0.0, box.operation, "normal"),
            (-0.185, box.cost, "normal"),
        ):
            axes.text(
                x, y + offset, text, ha="center", va="center", fontsize=7.5, weight=weight, zorder=3
            )
    axes.text(centre, 0.5 * _ROW + 0.15, drawing.caption, ha="center", va="center", fontsize=9)
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Writes to a temporary file first, so that a picture is whole or absent."""
    path = Path(path)
    handle, name = tempfile.mkstemp(suffix=path.suffix or ".png", dir=path.parent)
    os.close(handle)
    try:
        figure.savefig(name)
        Path(name).chmod(0o644)  # not only for the owner, as temporary files are
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
