"""Models of how many bytes of RAM each step of a network needs.

A model is a function of a graph and the bits of a value; it gives the bytes of every operator, in
order. `register` adds one under a name, which `measure` and the search then take.
"""

from collections.abc import Callable

from .encodings import dense_bytes
from .graph import Graph

MemoryModel = Callable[[Graph, int], list[int]]

_MODELS: dict[str, MemoryModel] = {}


def register(name: str, model: MemoryModel) -> None:
    """Makes `model` known under `name`; registering a name again replaces its model."""
    _MODELS[name] = model


def names() -> list[str]:
    """Names of all registered models."""
    return sorted(_MODELS)


def get(model: str | MemoryModel) -> MemoryModel:
    """A registered model by its name; a callable is returned as it is."""
    if callable(model):
        return model
    if model not in _MODELS:
        raise ValueError(
            f"working_memory must be one of {names()} or a function. "
            f"Received: working_memory={model!r}"
        )
    return _MODELS[model]


def name_of(model: MemoryModel) -> str:
    """The name under which a model is registered, else the function's own."""
    registered = (name for name, known in _MODELS.items() if known is model)
    return next(registered, getattr(model, "__name__", type(model).__name__))


def inputs_and_weights(graph: Graph, bits: int) -> list[int]:
    """Inputs and non-zero parameters of the operator (the paper's first model)."""
    return [
        dense_bytes(sum(map(graph.size, set(op.inputs))) + op.nonzeros, bits)
        for op in graph.operators
    ]


def inputs_and_outputs(graph: Graph, bits: int) -> list[int]:
    """Inputs and output of the operator (the paper's second model)."""
    return [
        dense_bytes(sum(map(graph.size, {*op.inputs, op.name})), bits) for op in graph.operators
    ]


def live_tensors(graph: Graph, bits: int) -> list[int]:
    """All tensors that are alive while the operator runs, in the graph's order of execution.

    A tensor lives from the operator that writes it to its last reader; inputs of the network live
    from the start and its outputs to the end. The maximum is what an allocator needs at least.
    """
    last = dict.fromkeys(graph.inputs, -1)
    for position, op in enumerate(graph.operators):
        last[op.name] = position
        last.update(dict.fromkeys(op.inputs, position))
    last.update(dict.fromkeys(graph.outputs, len(graph.operators)))
    sizes = {tensor: graph.size(tensor) for tensor in last}
    alive = set(graph.inputs)
    result = []
    for position, op in enumerate(graph.operators):
        alive.add(op.name)
        result.append(dense_bytes(sum(sizes[tensor] for tensor in alive), bits))
        alive = {tensor for tensor in alive if last[tensor] > position}
    return result


register("inputs+weights", inputs_and_weights)
register("inputs+outputs", inputs_and_outputs)
register("live", live_tensors)
