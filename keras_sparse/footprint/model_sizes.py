"""Models of how many bytes of flash a network takes: functions of a graph and the bits of a value.

"values" counts the non-zero parameters (the paper's model size), "encoded" adds indices, each array
in its smallest format. `register` adds one under a name, which the search then takes.
"""

from collections.abc import Callable

from .encodings import dense_bytes, smallest
from .graph import Graph

SizeModel = Callable[[Graph, int], int]

_MODELS: dict[str, SizeModel] = {}


def register(name: str, model: SizeModel) -> None:
    """Makes `model` known under `name`; registering a name again replaces its model."""
    _MODELS[name] = model


def names() -> list[str]:
    """Names of all registered models."""
    return sorted(_MODELS)


def get(name: str) -> SizeModel:
    """A registered model by its name."""
    if name not in _MODELS:
        raise ValueError(f"model_size must be one of {names()}. Received: model_size={name!r}")
    return _MODELS[name]


def values(graph: Graph, bits: int) -> int:
    """Bytes of the parameters that are not zero."""
    return sum(dense_bytes(weights.nonzeros, bits) for weights in graph.weights())


def encoded(graph: Graph, bits: int) -> int:
    """Bytes of the parameters and of the indices that sparse ones need."""
    return sum(
        dense_bytes(weights.size, bits)
        if weights.values is None
        else smallest(weights.values, bits).bytes
        for weights in graph.weights()
    )


register("values", values)
register("encoded", encoded)
