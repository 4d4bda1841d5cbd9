"""sparsify: a plain Keras model to the same model with sparse layers."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from .layers import (
    BCConv2D,
    BCDense,
    BCDepthwiseConv2D,
    BCSeparableConv2D,
    SpVDConv2D,
    SpVDDense,
    SpVDDepthwiseConv2D,
    SpVDSeparableConv2D,
)
from .walking import check_graph, copy_of, is_graph, rebuild, refuse_lambda_between

_TWINS: dict[str, dict[type, type]] = {
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
    Nested models are converted too. The given model is not changed; the new one is not compiled.

    Args:
        model: A built model, trained or fresh.
        method: "spvd" (single weights) or "bc" (whole feature maps and neurons).
        skip: Names of layers to leave plain.
        **layer_arguments: Keyword arguments for every sparse layer, such as `threshold`.

    Returns:
        A model that predicts as the given one does, up to weights that are pruned from the start.

    Raises:
        ValueError: The method is unknown or the model cannot be converted.
    """
    if method not in _TWINS:
        raise ValueError(f"method must be one of {sorted(_TWINS)}. Received: method={method!r}")
    check_graph(model, "sparsify")
    twins, skipped = _TWINS[method], _checked_names(model, skip)
    refuse_lambda_between(model, lambda layer: type(layer) in twins, "sparsify")
    pairs: list[tuple[Any, Any]] = []

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        if is_graph(layer):
            inner = [name for name in skipped if name in _names(layer)]
            return sparsify(layer, method, skip=inner, **layer_arguments)
        twin = twins.get(type(layer))
        if twin is None or layer.name in skipped:
            new = copy_of(layer)
        else:
            _refuse_adapted(layer)
            new = twin(**_constructor_arguments(layer), **layer_arguments)
        pairs.append((layer, new))
        return new

    sparse = rebuild(model, replace)
    for old, new in pairs:
        if type(new) is type(old):
            new.set_weights(old.get_weights())
        else:
            _carry_over(old, new)
    return sparse


def _carry_over(plain: Any, sparse: Any) -> None:
    """Copies kernels and bias so that the sparse layer predicts what the plain one did."""
    names = [stage.kernel_name for stage in sparse.stages()]
    scales = [1.0] * len(names)
    if hasattr(sparse, "group_means"):
        # A group scale multiplies the weights: divide it out, whatever its initial value is.
        scales = [keras.ops.convert_to_numpy(scale) for scale in sparse.group_means()]
    for stage, name, scale in zip(sparse.stages(), names, scales, strict=True):
        kernel = keras.ops.convert_to_numpy(getattr(plain, name))
        shape = [n if a in stage.group_axes else 1 for a, n in enumerate(kernel.shape)]
        divisor = np.reshape(scale, shape) if np.ndim(scale) else scale
        getattr(sparse, name).assign(kernel / divisor)
    if plain.bias is not None:
        divisor = 1.0 if sparse.stages()[-1].groups_are_inputs else np.ravel(scales[-1])
        sparse.bias.assign(keras.ops.convert_to_numpy(plain.bias) / divisor)


def _constructor_arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    return {key: value for key, value in layer.get_config().items() if value is not None}


def _refuse_adapted(layer: Any) -> None:
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        raise ValueError(
            "sparsify() takes layers without LoRA and quantization, which change the kernel. "
            f"Received: layer {layer.name!r}"
        )


def _checked_names(model: keras.Model, skip: Iterable[str]) -> list[str]:
    names = [skip] if isinstance(skip, str) else list(skip)
    for name in names:
        if name not in _names(model):
            raise ValueError(f"skip must name layers of the model. Received: {name!r}")
    return names


def _names(model: keras.Model) -> set[str]:
    return {layer.name for layer in model._flatten_layers(include_self=False, recursive=True)}
