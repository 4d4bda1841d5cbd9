"""sparsify: a plain Keras model to the same model with sparse layers."""

import itertools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from .layers import (
    BCConv2D,
    BCDense,
    BCDepthwiseConv2D,
    BCMixin,
    BCSeparableConv2D,
    SpVDConv2D,
    SpVDDense,
    SpVDDepthwiseConv2D,
    SpVDSeparableConv2D,
)
from .walking import check_graph, copy_of, copy_weights, rebuild, refuse_lambda_between

_TWINS: dict[str, dict[type, Any]] = {
    "spvd": {
        keras.layers.Dense: SpVDDense,
        keras.layers.Conv2D: SpVDConv2D,
        keras.layers.DepthwiseConv2D: SpVDDepthwiseConv2D,
        keras.layers.SeparableConv2D: SpVDSeparableConv2D,
    },
    "bc": {
        keras.layers.Dense: BCDense,
        keras.layers.Conv2D: BCConv2D,
        keras.layers.DepthwiseConv2D: BCDepthwiseConv2D,
        keras.layers.SeparableConv2D: BCSeparableConv2D,
    },
}


def sparsify(
    model: keras.Model, method: str = "spvd", *, skip: Iterable[str] = (), **layer_arguments: Any
) -> keras.Model:
    """Copies a Sequential or functional model, with sparse layers in place of plain ones.

    Dense, Conv2D, DepthwiseConv2D and SeparableConv2D get sparse twins with the same name,
    arguments and weights; all other layers, and subclasses of those four, are copied as they are.
    Nested models are converted too. The given model is not changed; the new one is not compiled
    and does not have a `train_step` of your own.

    Args:
        model: A built model, trained or fresh.
        method: "spvd" (single weights) or "bc" (whole feature maps and neurons).
        skip: Names of layers, or of nested models, to leave plain.
        **layer_arguments: Keyword arguments for every sparse layer, such as `threshold`. A `seed`
            is that of the first; the others count on from it.

    Returns:
        A model that predicts as the given one does, up to weights that are pruned from the start.

    Raises:
        ValueError: The method is unknown or the model cannot be converted.
    """
    if method not in _TWINS:
        raise ValueError(f"method must be one of {sorted(_TWINS)}. Received: method={method!r}")
    check_graph(model, "sparsify")
    twins, skipped = _TWINS[method], _skipped(model, skip)
    refuse_lambda_between(model, lambda layer: type(layer) in twins, "sparsify")
    first_seed = layer_arguments.pop("seed", None)
    seeds = itertools.count(first_seed) if first_seed is not None else itertools.repeat(None)

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        twin = twins.get(type(layer))
        if twin is None or layer.name in skipped:
            return copy_of(layer)
        _refuse_adapted(layer)
        # Layers with the same seed would draw the same noise.
        own = {**layer_arguments, "seed": next(seeds)}
        return twin(**{**layer.get_config(), **own})

    sparse, pairs = rebuild(model, replace)
    for old, new in pairs:
        if type(new) is type(old):
            copy_weights(old, new)
        else:
            _carry_over(old, new)
    return sparse


def _carry_over(plain: Any, sparse: Any) -> None:
    """Copies kernels and bias so that the sparse layer predicts what the plain one did."""
    # A BC layer's group scale multiplies the weights: divide it out, whatever its start is.
    has_groups = isinstance(sparse, BCMixin)
    scales: list[Any] = sparse.group_means() if has_groups else [None] * len(sparse.stages())
    for stage, scale in zip(sparse.stages(), scales, strict=True):
        kernel = keras.ops.convert_to_numpy(getattr(plain, stage.kernel_name))
        if scale is not None:
            kernel = kernel / np.reshape(scale, stage.group_shape(kernel.shape))
        getattr(sparse, stage.kernel_name).assign(kernel)
    if plain.bias is not None:
        bias = keras.ops.convert_to_numpy(plain.bias)
        scales_bias = has_groups and not sparse.stages()[-1].groups_are_inputs
        sparse.bias.assign(bias / np.ravel(scales[-1]) if scales_bias else bias)


def _refuse_adapted(layer: Any) -> None:
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        raise ValueError(
            "sparsify() takes layers without LoRA and quantization, which change the kernel. "
            f"Received: layer {layer.name!r}"
        )


def _skipped(model: keras.Model, skip: Iterable[str]) -> set[str]:
    """Names of the layers to leave plain; the name of a nested model stands for all in it."""
    layers = {x.name: x for x in model._flatten_layers(include_self=False, recursive=True)}
    names: set[str] = set()
    for name in [skip] if isinstance(skip, str) else skip:
        if name not in layers:
            raise ValueError(f"skip must name layers of the model. Received: {name!r}")
        names |= {x.name for x in layers[name]._flatten_layers(include_self=True, recursive=True)}
    return names
