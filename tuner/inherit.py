"""A reference trial's posterior to a new network: what both have in common is carried over.

Layers are matched by name and kind. Where shapes differ, the overlapping part is copied: the first
feature maps and neurons, kernels of another size centred. Means, log-variances and group scales are
all inherited; thresholds are not, they belong to the configuration. The rest stays as the new
network starts, but weights that would let new inputs disturb an inherited neuron are made small:
the network begins close to its reference, and what is new can still learn.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from .network import Source

NEW_INPUT_SCALE = 0.1
"""Factor of the initial weights from new inputs to inherited outputs."""

_NOT_INHERITED = ("threshold", "kl_weight")
_READS_INPUTS = ("kernel", "pointwise_kernel")
Sources = Mapping[str, tuple[Source, ...]]


class LayerState(NamedTuple):
    """The kind of a layer and its variables by name."""

    kind: str
    variables: dict[str, np.ndarray]


Posterior = dict[str, LayerState]
"""The state of every layer with variables, by the layer's name."""


class Inherited(NamedTuple):
    """Names of the layers that were copied whole, in part, and not at all."""

    whole: tuple[str, ...]
    part: tuple[str, ...]
    fresh: tuple[str, ...]


def posterior_of(model: keras.Model) -> Posterior:
    """Copies all that a network has learnt."""
    return {
        layer.name: LayerState(
            type(layer).__name__,
            {name: np.array(variable) for name, variable in _variables(layer).items()},
        )
        for layer in model.layers
        if _variables(layer)
    }


def inherit(
    model: keras.Model,
    reference: Posterior,
    sources: Sources | None = None,
    reference_sources: Sources | None = None,
) -> Inherited:
    """Gives `model` what it has in common with a reference.

    Args:
        model: A built model with its initial weights.
        reference: From `posterior_of`.
        sources: What the inputs of the model's FC layers are (`Assembly.sources`). Without it the
            first inputs are taken to be the same.
        reference_sources: The same for the reference.
    """
    names: dict[str, list[str]] = {"whole": [], "part": [], "fresh": []}
    for layer in model.layers:
        variables = _variables(layer)
        if not variables:
            continue
        state = reference.get(layer.name)
        if state is None or state.kind != type(layer).__name__:
            names["fresh"].append(layer.name)
            continue
        new = (sources or {}).get(layer.name)
        old = (reference_sources or {}).get(layer.name)
        is_whole = True
        for name, variable in variables.items():
            if name in state.variables:
                fresh, known = np.array(variable), state.variables[name]
                is_whole &= fresh.shape == known.shape and new == old
                variable.assign(_joined(name, fresh, known, new, old))
            else:
                is_whole = False
        names["whole" if is_whole else "part"].append(layer.name)
    return Inherited(*(tuple(names[key]) for key in Inherited._fields))


def _variables(layer: Any) -> dict[str, Any]:
    return {v.name: v for v in layer.weights if v.name not in _NOT_INHERITED}


def _joined(
    name: str,
    fresh: np.ndarray,
    known: np.ndarray,
    sources: tuple[Source, ...] | None,
    known_sources: tuple[Source, ...] | None,
) -> np.ndarray:
    """`fresh` with all that `known` has in its place."""
    if name in _READS_INPUTS:
        outputs = min(fresh.shape[-1], known.shape[-1])
        fresh[..., :outputs] *= NEW_INPUT_SCALE
    if sources is None or known_sources is None or not name.startswith("kernel"):
        return _overlapped(fresh, known)
    old = dict(zip((s.branch for s in known_sources), _split(known, known_sources), strict=True))
    parts = [
        _overlapped(part, old[source.branch]) if source.branch in old else part
        for source, part in zip(sources, _split(fresh, sources), strict=True)
    ]
    return np.concatenate([part.reshape(-1, *fresh.shape[1:]) for part in parts])


def _split(array: np.ndarray, sources: tuple[Source, ...]) -> list[np.ndarray]:
    """The rows of each source, shape (*source, …): neighbours in a feature map stay neighbours."""
    ends = np.cumsum([np.prod(source.shape, dtype=int) for source in sources])
    return [
        rows.reshape(*source.shape, *array.shape[1:])
        for source, rows in zip(sources, np.split(array, ends[:-1]), strict=True)
    ]


def _overlapped(fresh: np.ndarray, known: np.ndarray) -> np.ndarray:
    """`fresh` with the overlapping part of `known`; the first two of more than two axes centred."""
    if fresh.ndim != known.ndim:
        return fresh
    result = fresh.copy()
    target, source = [], []
    for axis, (new, old) in enumerate(zip(fresh.shape, known.shape, strict=True)):
        size = min(new, old)
        # The tap that meets the centre of a "same" convolution is number (size - 1) // 2.
        shift = (max(new, old) - 1) // 2 - (size - 1) // 2 if fresh.ndim > 2 and axis < 2 else 0
        target.append(slice(shift, shift + size) if new > old else slice(0, size))
        source.append(slice(shift, shift + size) if old > new else slice(0, size))
    result[tuple(target)] = known[tuple(source)]
    return result
