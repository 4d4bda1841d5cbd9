"""strip: a model with sparse layers back to plain Keras layers."""

import warnings
from typing import Any

import keras
import numpy as np

from .counting import sparse_layers
from .folding import fold_scales
from .layers import BCMixin, SparseLayer
from .layers.base import keras_class, own_parameters
from .shrinking import shrink
from .walking import check_graph, copy_of, copy_weights, rebuild, refuse_lambda_between


def strip(model: keras.Model, *, remove_dead: bool | None = None) -> keras.Model:
    """Copies a model with every sparse layer replaced by its plain Keras layer, pruned.

    SpVD leaves zeros in place. After BC, feature maps and neurons that are pruned are removed from
    the layer that makes them and from those that read them, through batch normalization,
    activations, pooling, flatten, depthwise and separable convolutions, concatenation and
    additions, wherever the output stays the same; see `keras_sparse.shrinking`. A sparse 1×1
    depthwise convolution that only scales the channels of a batch normalization is folded into it.

    Args:
        model: A built Sequential or functional model; it is not changed.
        remove_dead: Whether to remove dead maps and neurons; by default if there are BC layers.

    Returns:
        An ordinary Keras model, not compiled, that predicts what `model` predicts.

    Raises:
        ValueError: The model cannot be read; the message says why.
    """
    check_graph(model, "strip")
    refuse_lambda_between(model, lambda layer: isinstance(layer, SparseLayer), "strip")
    layers = sparse_layers(model)
    for layer in layers:
        if layer.prunes_everything():
            warnings.warn(
                f"Everything in layer {layer.name!r} is at or above its threshold "
                f"{float(layer.threshold):g}: only the strongest weight or group stays.",
                stacklevel=2,
            )
    if remove_dead is None:
        remove_dead = any(isinstance(layer, BCMixin) for layer in layers)

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        return _plain(layer) if isinstance(layer, SparseLayer) else copy_of(layer)

    plain, pairs = rebuild(model, replace)
    _refuse_hidden(plain)
    for old, new in pairs:
        if isinstance(old, SparseLayer):
            for stage, kernel in zip(old.stages(), old.pruned_kernels(), strict=True):
                getattr(new, stage.kernel_name).assign(np.asarray(kernel))
            if new.bias is not None:
                new.bias.assign(np.asarray(old.pruned_bias()))
        else:
            copy_weights(old, new)
    small = shrink(plain) if remove_dead else plain
    return fold_scales(small, {layer.name for layer in layers})


def _refuse_hidden(plain: keras.Model) -> None:
    names = [layer.name for layer in sparse_layers(plain)]
    if names:
        raise ValueError(
            "strip() cannot replace sparse layers inside wrappers, custom layers or subclassed "
            f"models. Received: {', '.join(map(repr, names))} there"
        )


def _plain(layer: Any) -> keras.layers.Layer:
    """The Keras layer that a sparse layer replaces, with the same name and arguments."""
    own = {parameter.name for parameter in own_parameters(type(layer))}
    config = {key: value for key, value in layer.get_config().items() if key not in own}
    return keras_class(type(layer)).from_config(config)
