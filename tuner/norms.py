"""Moving batch normalization into and out of the layers of a posterior.

When a morph switches batch normalization, the network should still compute what its reference
computed: switched off, the factors and offsets go into kernel and bias; switched on, the bias
becomes the offset. The scales of BC's groups stand in the layer without normalization, behind the
normalization with it.
"""

import keras
import numpy as np

from .posterior import LayerState, Posterior

_EPSILON = 1e-3  # of keras.layers.BatchNormalization


def with_norms_of(model: keras.Model, reference: Posterior) -> Posterior:
    """The reference with batch normalization where `model` has it, and nowhere else."""
    wanted = {layer.name for layer in model.layers if layer.weights}
    result = dict(reference)
    for name, state in reference.items():
        if name not in wanted:
            continue
        norm = f"{name}-norm"
        if norm in reference and norm not in wanted:
            result[name] = _folded(state, reference[norm], reference.get(f"{name}-scale"))
        elif norm in wanted and norm not in reference and "bias" in state.variables:
            result[norm] = _offset(state.variables["bias"])
            result |= _scales(name, state) if f"{name}-scale" in wanted else {}
    return result


def _folded(state: LayerState, norm: LayerState, scale: LayerState | None) -> LayerState:
    """The layer's state with the normalization, and the scale behind it, inside."""
    n = norm.variables
    factor = n["gamma"] / np.sqrt(n["moving_variance"] + _EPSILON)
    offset = n["beta"] - n["moving_mean"] * factor
    variables = dict(state.variables)
    if scale is not None:
        taps = scale.variables["kernel"].ravel()
        factor, offset = factor * taps, offset * taps
        kernel_name = "pointwise_kernel" if "pointwise_kernel" in variables else "kernel"
        for part in ("group_mean", "group_log_variance"):
            variables[f"{kernel_name}_{part}"] = scale.variables[f"kernel_{part}"].ravel()
    for kernel_name in ("pointwise_kernel", "kernel"):
        if kernel_name in variables:
            variables[kernel_name] = variables[kernel_name] * factor
            log_variance = f"{kernel_name}_log_variance"
            if log_variance in variables:
                grown = 2.0 * np.log(np.abs(factor) + 1e-12)
                variables[log_variance] = variables[log_variance] + grown
            break
    variables["bias"] = offset.astype(np.float32)
    return LayerState(state.kind, variables)


def _offset(bias: np.ndarray) -> LayerState:
    """A normalization that only adds `bias`."""
    ones, zeros = np.ones_like(bias), np.zeros_like(bias)
    return LayerState(
        "BatchNormalization",
        {
            "gamma": ones * np.sqrt(np.float32(1.0 + _EPSILON)),
            "beta": bias,
            "moving_mean": zeros,
            "moving_variance": ones,
        },
    )


def _scales(name: str, state: LayerState) -> Posterior:
    """BC's scales of a layer's groups as the layer behind the normalization."""
    kernel_name = "pointwise_kernel" if "pointwise_kernel" in state.variables else "kernel"
    groups = {
        f"kernel_{part}": state.variables[f"{kernel_name}_{part}"][:, None]
        for part in ("group_mean", "group_log_variance")
        if f"{kernel_name}_{part}" in state.variables
    }
    if not groups:
        return {}
    ones = np.ones((1, 1, len(groups["kernel_group_mean"]), 1), np.float32)
    return {f"{name}-scale": LayerState("DepthwiseConv2D", {"kernel": ones, **groups})}
