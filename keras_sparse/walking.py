"""Reading and rebuilding the graph of a Sequential or functional Keras model.

The only file that touches what Keras keeps private about a model's graph.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras.src.models.functional import Functional

LayerFunction = Callable[[keras.layers.Layer], keras.layers.Layer]
Pairs = list[tuple[Any, Any]]


class Call(NamedTuple):
    """One use of a layer: the numbers of the tensors that it reads and writes.

    `is_plain` is False if it was called with anything but tensors of the graph, such as constant
    arrays or `training=True`.
    """

    layer: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_plain: bool


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
    """Whether `layer` is a Sequential or functional model that does just what its graph says."""
    return isinstance(layer, keras.Model) and type(layer).call in (
        Functional.call,
        keras.Sequential.call,
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
                given = keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
                is_plain = all(
                    isinstance(value, keras.KerasTensor) or value is None or value is False
                    for value in given
                )
                calls.append(Call(node.operation, reads, writes, is_plain))
    outputs = tuple(number(tensor) for tensor in graph.outputs)
    return Walk(tuple(calls), tuple(shapes), inputs, outputs)


def rebuild(
    model: keras.Model,
    replace: LayerFunction,
    replace_model: Callable[[keras.Model], keras.Model | None] = lambda model: None,
) -> tuple[keras.Model, Pairs]:
    """The same graph with each layer replaced by `replace(layer)`, once per layer; not compiled.

    Goes into nested models. Operations that are not layers (such as `x + y`) stay as they are.

    Args:
        model: A built Sequential or functional model.
        replace: Makes the new layer, without weights: it is built only after this returns.
        replace_model: A finished substitute for a nested model, or None to go into it.

    Returns:
        The new model, and all pairs of an old and a new layer, for the weights.
    """
    pairs: Pairs = []
    done: dict[int, Any] = {}

    def visit(layer: Any) -> Any:
        if not isinstance(layer, keras.layers.Layer):
            return layer
        if id(layer) not in done:
            if is_graph(layer):
                new = replace_model(layer) or _same_graph(layer, visit)
            else:
                new = replace(layer)
                pairs.append((layer, new))
            done[id(layer)] = new
        return done[id(layer)]

    return _same_graph(model, visit), pairs


def _same_graph(model: keras.Model, visit: LayerFunction) -> keras.Model:
    if isinstance(model, keras.Sequential):
        layers = [visit(layer) for layer in model.layers]
        return keras.Sequential([_same_input(model.inputs[0]), *layers], name=model.name)
    # A view without the optimizer and loss, which clone_model would carry over.
    view = keras.Model(model.input, model.output, name=model.name)
    inputs = keras.tree.map_structure(_same_input, model.input)
    return keras.models.clone_model(view, input_tensors=inputs, clone_function=visit)


def _same_input(tensor: Any) -> Any:
    return copy_of(tensor._keras_history.operation).output


_STATEFUL = (keras.layers.IntegerLookup, keras.layers.StringLookup, keras.layers.TextVectorization)


def copy_of(layer: keras.layers.Layer) -> keras.layers.Layer:
    """A new layer of the same configuration, without weights yet.

    Lambda layers, which for safety cannot be made from their configuration, and lookup tables are
    used themselves: neither has weights.
    """
    if isinstance(layer, (keras.layers.Lambda, *_STATEFUL)):
        return layer
    return type(layer).from_config(layer.get_config())


def copy_weights(old: keras.layers.Layer, new: keras.layers.Layer) -> None:
    """Gives `new`, a copy of `old`, its weights."""
    new.set_weights(old.get_weights())
    if isinstance(new, keras.layers.Normalization):
        new.finalize_state()  # what it computes with is derived from the weights


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
