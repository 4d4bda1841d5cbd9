"""All that a network has learnt, as arrays by the names of its layers."""

from typing import Any, NamedTuple

import keras
import numpy as np

from keras_sparse.layers.base import SparseLayer, keras_class

_CONFIGURED = ("threshold", "kl_weight")
"""Variables that the configuration sets, not the training."""


class LayerState(NamedTuple):
    """The Keras layer that a layer is or replaces, and its variables by name."""

    kind: str
    variables: dict[str, np.ndarray]


Posterior = dict[str, LayerState]
"""The state of every layer with variables, by the layer's name."""


def posterior_of(model: keras.Model) -> Posterior:
    """Copies all that a network has learnt."""
    return {
        layer.name: LayerState(
            kind_of(layer),
            {name: np.array(variable) for name, variable in variables_of(layer).items()},
        )
        for layer in model.layers
        if variables_of(layer)
    }


def kind_of(layer: Any) -> str:
    """Name of the Keras layer that a layer is or replaces."""
    return str(keras_class(type(layer)).__name__)


def variables_of(layer: Any) -> dict[str, Any]:
    """The variables that training changes, by name; those of nested layers by their path."""
    if isinstance(layer, SparseLayer):
        known = layer.named_variables()
        return {name: value for name, value in known.items() if name not in _CONFIGURED}
    variables = layer.weights
    names = [v.name for v in variables]
    if len(set(names)) < len(names):
        names = [v.path.split("/", 1)[-1] for v in variables]
    return dict(zip(names, variables, strict=True))
