import itertools
import json

import keras
import numpy as np
import pytest
from keras_sparse.tuner.hypermodel import SparseCNN

from keras_sparse import measure, plot_network, sparsify
from keras_sparse.drawing import drawing_of
from keras_sparse.footprint import read
from keras_sparse.layout import layered
from keras_sparse.network_facts import facts_of, from_json, to_json

L = keras.layers


@pytest.fixture
def model():
    inputs = keras.Input((8, 8, 1), name="image")
    a = L.Conv2D(4, 3, padding="same", name="a")(inputs)
    b = L.Conv2D(4, 3, padding="same", name="b")(a)
    c = L.Add(name="c")([a, b])
    network = keras.Model(inputs, L.Dense(2, name="d")(L.Flatten()(c)))
    for layer in network.layers:
        for variable in layer.weights:
            variable.assign(np.ones(variable.shape))
    kernel = np.ones((3, 3, 4, 4))
    kernel[:, :, :2] = 0
    network.get_layer("b").kernel.assign(kernel)
    return network


def test_boxes_say_operation_shape_and_bytes_before_and_after(model):
    drawing = drawing_of(facts_of(read(model), measure(model)))
    assert drawing.boxes["image"] == ("image", "image", "8 × 8 × 1")
    assert drawing.boxes["b"] == ("b", "Conv2D 3×3    8 × 8 × 4", "MS 148 → 76    WM 404 → 332")
    assert drawing.boxes["c"].cost == "WM 512"
    assert drawing.caption.startswith("MS 702 → 630 B (648 B with indices)")
    assert set(drawing.layout.edges) == {
        ("image", "a"),
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("c", "d"),
    }


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_are_written_whole(model, tmp_path, suffix):
    path = tmp_path / f"network{suffix}"
    figure = plot_network(model, path)
    assert path.stat().st_size > 5000
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert {"a", "b", "c", "d"} <= {text.get_text() for text in figure.axes[0].texts}


def test_sparse_models_are_drawn_before_and_after(model, tmp_path):
    sparse = sparsify(model, "spvd")
    figure = plot_network(sparse)
    assert any("→" in text.get_text() for text in figure.axes[0].texts)


def test_chains_are_straight_and_nothing_overlaps():
    search = SparseCNN((28, 28, 3), 10)
    rng = np.random.default_rng(0)
    for _ in range(100):
        graph = search.graph(search.sample(rng))
        names = [*graph.inputs, *(op.name for op in graph.operators)]
        edges = [(tensor, op.name) for op in graph.operators for tensor in op.inputs]
        layout = layered(names, edges)
        places = list(layout.nodes.values())
        assert len(set(places)) == len(places)
        for (_, end), path in layout.edges.items():
            assert [point.row for point in path] == list(range(path[0].row, path[-1].row + 1))
            assert path[-1] == layout.nodes[end]
            # An edge that passes a row does not run through a box there (half a box is 0.43 wide).
            for point, other in itertools.product(path[1:-1], places):
                assert point.row != other.row or abs(point.x - other.x) > 0.45


def test_long_names_and_texts_fit_in_their_boxes():
    search = SparseCNN((96, 96, 3), 10, space="paper")
    rng = np.random.default_rng(4)
    for _ in range(3):
        figure = plot_network(search.graph(search.sample(rng)))
        figure.canvas.draw()
        axes = figure.axes[0]
        boxes = [patch.get_window_extent() for patch in axes.patches]
        texts = [text.get_window_extent() for text in axes.texts if text.get_text()]
        inside = [
            any(b.x0 <= t.x0 and t.x1 <= b.x1 and b.y0 <= t.y0 and t.y1 <= b.y1 for b in boxes)
            for t in texts
        ]
        assert sum(inside) == len(texts) - 1  # all but the caption
        width = figure.get_window_extent().width
        assert all(t.x0 >= 0 and t.x1 <= width for t in texts)


def test_facts_survive_json_and_strange_ones_are_refused(model):
    facts = facts_of(read(model), measure(model))
    content = json.loads(json.dumps(to_json(facts)))
    assert from_json(content) == facts
    assert facts.nodes[1].parameters == (148, 76)
    for change in (
        {"nodes": 3},
        {"images": {}},
        {"nodes": [content["nodes"][0]] * 2},
        {"model_size": [1, "big"]},
        {"sparse_bytes": float("inf")},
    ):
        with pytest.raises(ValueError, match="network"):
            from_json({**content, **change})
