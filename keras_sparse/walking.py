"""Reading and rebuilding the graph of a Sequential or functional Keras model.

The only file that touches what Keras keeps private about a model's graph.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras

LayerFunction = Callable[[keras.layers.Layer], keras.layers.Layer]


class Call(NamedTuple):
    """One use of a layer: the numbers of the tensors that it reads and writes."""

    layer: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Walk(NamedTuple):
    """A model's graph in order of execution.

    Attributes:
        calls: Every use of a layer or operation; inputs come before their readers.
        shapes: Shape of each tensor, batch first; tensors are numbered from 0.
        inputs: Numbers of the model's inputs.
        outputs: Numbers of the model's outputs.
    """

    calls: tuple[Call, ...]
    shapes: tuple[tuple[int | None, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def is_graph(layer: Any) -> bool:
    """Whether `layer` is a Sequential or functional model, whose graph can be read."""
    return isinstance(layer, keras.Sequential) or (
        isinstance(layer, keras.Model) and hasattr(layer, "_nodes_by_depth")
    )


def check_graph(model: Any, function: str) -> None:
    """Raises in one sentence unless `model` is a built Sequential or functional model.

    Args:
        model: What a user passed.
        function: Name of the public function, for the message.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"{function}() takes a Keras model. Received: {type(model).__name__}")
    if not is_graph(model):
        raise ValueError(
            f"{function}() takes a Sequential or functional model: the graph of a subclassed model "
            f"cannot be read. Received: model={model.name!r} of class {type(model).__name__}"
        )
    if not model.built or (isinstance(model, keras.Sequential) and not model.inputs):
        raise ValueError(
            f"{function}() takes a built model: give it a keras.Input or call it once. "
            f"Received: model={model.name!r}, not built"
        )


def walk(model: keras.Model) -> Walk:
    """Reads the graph of a built Sequential or functional model."""
    graph = model._functional if isinstance(model, keras.Sequential) else model
    numbers: dict[int, int] = {}
    shapes: list[tuple[int | None, ...]] = []

    def number(tensor: Any) -> int:
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(shapes)
            shapes.append(tuple(tensor.shape))
        return numbers[id(tensor)]

    inputs = tuple(number(tensor) for tensor in graph.inputs)
    calls = []
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        for node in graph._nodes_by_depth[depth]:
            if not node.is_input:
                reads = tuple(number(tensor) for tensor in node.input_tensors)
                writes = tuple(number(tensor) for tensor in node.outputs)
                calls.append(Call(node.operation, reads, writes))
    outputs = tuple(number(tensor) for tensor in graph.outputs)
    return Walk(tuple(calls), tuple(shapes), inputs, outputs)


def rebuild(model: keras.Model, replace: LayerFunction) -> keras.Model:
    """The same graph with each layer replaced by `replace(layer)`, once per layer; not compiled.

    Weights are not carried over: a layer is built only after `replace` has returned it. Operations
    that are not layers (such as `x + y`) stay as they are.
    """

    def replaced(layer: Any) -> Any:
        return replace(layer) if isinstance(layer, keras.layers.Layer) else layer

    if isinstance(model, keras.Sequential):
        layers = [replaced(layer) for layer in model.layers]
        return keras.Sequential([_same_input(model.inputs[0]), *layers], name=model.name)
    # A view without the optimizer and loss, which clone_model would carry over.
    view = keras.Model(model.input, model.output, name=model.name)
    inputs = keras.tree.map_structure(_same_input, model.input)
    return keras.models.clone_model(view, input_tensors=inputs, clone_function=replaced)


def _same_input(tensor: Any) -> Any:
    name = tensor._keras_history.operation.name
    return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)


def copy_of(layer: keras.layers.Layer) -> keras.layers.Layer:
    """A new layer of the same configuration, without weights yet.

    A Lambda layer has no weights and, for safety, cannot be made from its configuration: it is
    used itself.
    """
    if isinstance(layer, keras.layers.Lambda):
        return layer
    return type(layer).from_config(layer.get_config())


def refuse_lambda_between(
    model: keras.Model, is_prunable: Callable[[Any], bool], function: str
) -> None:
    """Raises if a Lambda layer stands between two prunable layers: what it does is unknown."""
    graph = walk(model)
    after_prunable: dict[int, str | None] = {}
    for call in graph.calls:
        names = [after_prunable[t] for t in call.inputs if t in after_prunable]
        blocked = next((name for name in names if name is not None), None)
        if is_prunable(call.layer) and blocked is not None:
            raise ValueError(
                f"{function}() cannot look into a Lambda layer between prunable layers: use a "
                f"Keras layer or move it to the start of the model. Received: Lambda {blocked!r}"
            )
        if isinstance(call.layer, keras.layers.Lambda) and names:
            blocked = call.layer.name
        if names or is_prunable(call.layer):
            after_prunable.update(dict.fromkeys(call.outputs, blocked))
