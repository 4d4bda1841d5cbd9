"""A reference trial's posterior to a new network: what both have in common is carried over.

Layers are matched by name and kind. Where shapes differ, the overlapping part is copied: the first
feature maps and neurons, kernels of another size centred. Means, log-variances and group scales are
all inherited; thresholds are not, they belong to the configuration. The rest stays as the new
network starts, but weights that would let new inputs disturb an inherited neuron are made small:
the network begins close to its reference, and what is new can still learn. Where batch
normalization was switched on or off, its factors move into or out of the layer.
"""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from .network import Source
from .norms import with_norms_of
from .posterior import Posterior, kind_of, variables_of

NEW_INPUT_SCALE = 0.1
"""Factor of the initial weights from new inputs to inherited outputs."""

_FOLLOWERS = ("-norm", "-scale")
"""Endings of layers that belong to the convolution or FC layer of the name before."""
Sources = Mapping[str, tuple[Source, ...]]


class Inherited(NamedTuple):
    """Names of the layers that were copied whole, in part, and not at all."""

    whole: tuple[str, ...]
    part: tuple[str, ...]
    fresh: tuple[str, ...]


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
    reference = with_norms_of(model, reference)
    names: dict[str, list[str]] = {"whole": [], "part": [], "fresh": []}
    for layer in model.layers:
        variables = variables_of(layer)
        if not variables:
            continue
        state = reference.get(layer.name)
        base = _base(layer.name)
        if state is None or state.kind != kind_of(layer) or base in names["fresh"]:
            names["fresh"].append(layer.name)
            continue
        new = (sources or {}).get(layer.name)
        old = (reference_sources or {}).get(layer.name)
        is_whole = new == old
        for name, variable in variables.items():
            known = state.variables.get(name)
            if known is None:
                is_whole = False
                continue
            fresh = np.array(variable)
            is_whole &= fresh.shape == known.shape
            if name in ("kernel", "pointwise_kernel") and not state.kind.startswith("Depthwise"):
                fresh[..., : known.shape[-1]] *= NEW_INPUT_SCALE
            variable.assign(_joined(name, fresh, known, new, old))
        names["whole" if is_whole else "part"].append(layer.name)
    return Inherited(*(tuple(names[key]) for key in Inherited._fields))


def _base(name: str) -> str:
    """The layer to which a normalization or scale belongs."""
    for ending in _FOLLOWERS:
        name = name.removesuffix(ending)
    return name


def _joined(
    name: str,
    fresh: np.ndarray,
    known: np.ndarray,
    sources: tuple[Source, ...] | None,
    known_sources: tuple[Source, ...] | None,
) -> np.ndarray:
    """`fresh` with all that `known` has in its place."""
    if sources is None or known_sources is None or not name.startswith("kernel"):
        return _overlapped(fresh, known)
    old = dict(zip((s.name for s in known_sources), _split(known, known_sources), strict=True))
    parts = []
    for source, part in zip(sources, _split(fresh, sources), strict=True):
        # A sum reads every branch with the same weights.
        other = old.get("main-branch" if source.name == "sum" else "sum")
        rows = old.get(source.name, other)
        parts.append(part if rows is None else _overlapped(part, rows))
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
