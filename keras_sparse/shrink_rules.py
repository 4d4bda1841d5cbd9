"""How each kind of Keras layer behaves when channels disappear; used by `shrinking`.

A rule answers four questions about one call of a layer. Channels are on the last axis; constants
are float arrays with NaN where a channel is not constant; masks are True where a channel goes.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import keras
import numpy as np

L = keras.layers
Arrays = list[np.ndarray]
Resized = tuple[keras.layers.Layer, Arrays]


class Rule(ABC):
    """How one kind of layer behaves."""

    @abstractmethod
    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        """The output's constant channels, from those of the inputs."""

    def droppable(self, layer: Any, inputs: Arrays) -> Arrays:
        """For each input which channels the layer itself can do without."""
        return [np.ones(len(constants), bool) for constants in inputs]

    def tie(self, inputs: Arrays, output: np.ndarray) -> None:  # noqa: B027
        """Takes back removals, in place, until inputs and output agree; here nothing is tied."""

    def resized(
        self, layer: Any, kept_in: Arrays, kept_out: np.ndarray, constants: Arrays
    ) -> Resized:
        """A new layer for the channels that are kept, and its weights."""
        return type(layer).from_config(layer.get_config()), layer.get_weights()


class ElementwiseRule(Rule):
    """One or several inputs; channel c of the output depends on channel c of each alone."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        # The layer itself computes it, on an input of one position.
        pixels = [
            value.astype(np.float32).reshape([1] * (rank - 1) + [-1])
            for value, rank in zip(inputs, self.ranks, strict=True)
        ]
        output = layer(pixels[0] if len(pixels) == 1 else pixels, training=False)
        return _exact(keras.ops.convert_to_numpy(output).reshape(-1), inputs)

    def tie(self, inputs: Arrays, output: np.ndarray) -> None:
        for mask in inputs:
            output &= mask
        for mask in inputs:
            mask &= output


class PoolingRule(ElementwiseRule):
    """Pooling, cropping, upsampling: a constant map stays the same constant."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        return inputs[0].copy()


class ZeroPaddingRule(ElementwiseRule):
    """Only a map of zeros stays constant when zeros are put around it."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        return np.where(inputs[0] == 0.0, 0.0, np.nan)


class BatchNormalizationRule(ElementwiseRule):
    """An affine map per channel."""

    def resized(
        self, layer: Any, kept_in: Arrays, kept_out: np.ndarray, constants: Arrays
    ) -> Resized:
        weights = [weight[kept_out] for weight in layer.get_weights()]
        return type(layer).from_config(layer.get_config()), weights


class ConcatenateRule(Rule):
    """The channels of the inputs one after the other."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        return np.concatenate(inputs)

    def tie(self, inputs: Arrays, output: np.ndarray) -> None:
        ends = np.cumsum([len(mask) for mask in inputs])
        for mask, end in zip(inputs, ends, strict=True):
            part = output[end - len(mask) : end]
            part &= mask
            mask &= part


class FlattenRule(Rule):
    """Every position of a channel becomes a channel of its own, positions outermost."""

    def __init__(self, positions: int) -> None:
        self.positions = positions

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        return np.tile(inputs[0], self.positions)

    def tie(self, inputs: Arrays, output: np.ndarray) -> None:
        by_position = output.reshape(self.positions, -1)
        inputs[0] &= by_position.all(axis=0)
        by_position &= inputs[0]


class LinearRule(Rule):
    """Dense and Conv2D: all outputs read all inputs, and outputs are free to go."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        kernel, bias = _kernel(layer), _bias(layer)
        return _activated(layer, _linear_constants(kernel, inputs[0], _is_uniform(layer)) + bias)

    def droppable(self, layer: Any, inputs: Arrays) -> Arrays:
        unused = ~np.any(_kernel(layer), axis=(0, 2))
        return [unused | _foldable(inputs[0], _is_uniform(layer))]

    def resized(
        self, layer: Any, kept_in: Arrays, kept_out: np.ndarray, constants: Arrays
    ) -> Resized:
        kernel = keras.ops.convert_to_numpy(layer.kernel)
        folded = _folded(_kernel(layer), kept_in[0], constants[0])
        small = kernel[..., kept_in[0], :][..., kept_out]
        width = "units" if isinstance(layer, L.Dense) else "filters"
        return _with_bias(layer, {width: int(kept_out.sum())}, [small], folded, kept_out)


class DepthwiseRule(Rule):
    """DepthwiseConv2D: input channel c makes the output maps c·m … c·m + m − 1."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        return _activated(
            layer, _depthwise_constants(layer, layer.kernel, inputs[0]) + _bias(layer)
        )

    def tie(self, inputs: Arrays, output: np.ndarray) -> None:
        by_input = output.reshape(len(inputs[0]), -1)
        inputs[0] &= by_input.all(axis=1)
        by_input &= inputs[0][:, np.newaxis]

    def resized(
        self, layer: Any, kept_in: Arrays, kept_out: np.ndarray, constants: Arrays
    ) -> Resized:
        kernel = keras.ops.convert_to_numpy(layer.kernel)[:, :, kept_in[0], :]
        return _with_bias(layer, {}, [kernel], np.zeros(len(kept_out)), kept_out)


class SeparableRule(Rule):
    """SeparableConv2D: a depthwise map, then a 1×1 convolution that reads its maps freely."""

    def constants(self, layer: Any, inputs: Arrays) -> np.ndarray:
        middle = _depthwise_constants(layer, layer.depthwise_kernel, inputs[0])
        return _activated(layer, _linear_constants(_pointwise(layer), middle, True) + _bias(layer))

    def droppable(self, layer: Any, inputs: Arrays) -> Arrays:
        middle = _depthwise_constants(layer, layer.depthwise_kernel, inputs[0])
        unused = ~np.any(_pointwise(layer), axis=(0, 2))
        may_go = unused | _foldable(middle, True)
        return [may_go.reshape(len(inputs[0]), -1).all(axis=1)]

    def resized(
        self, layer: Any, kept_in: Arrays, kept_out: np.ndarray, constants: Arrays
    ) -> Resized:
        middle = _depthwise_constants(layer, layer.depthwise_kernel, constants[0])
        kept_middle = np.repeat(kept_in[0], layer.depth_multiplier)
        folded = _folded(_pointwise(layer), kept_middle, middle)
        depthwise = keras.ops.convert_to_numpy(layer.depthwise_kernel)[:, :, kept_in[0], :]
        pointwise = keras.ops.convert_to_numpy(layer.pointwise_kernel)
        pointwise = pointwise[:, :, kept_middle, :][..., kept_out]
        kernels = [depthwise, pointwise]
        return _with_bias(layer, {"filters": int(kept_out.sum())}, kernels, folded, kept_out)


_ELEMENTWISE = [L.ReLU, L.LeakyReLU, L.ELU, L.Dropout, L.SpatialDropout2D, L.GaussianNoise]
_ELEMENTWISE += [L.GaussianDropout, L.ActivityRegularization]
_POOLING = [L.MaxPooling2D, L.AveragePooling2D, L.GlobalMaxPooling2D, L.GlobalAveragePooling2D]
_POOLING += [L.UpSampling2D, L.Cropping2D]
_MERGES = [L.Add, L.Average, L.Maximum, L.Minimum, L.Multiply, L.Subtract]
_CHANNELWISE = ["linear", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu"]
_CHANNELWISE += ["hard_silu", "softplus", "softsign", "tanh", "hard_tanh", "sigmoid"]
_CHANNELWISE += ["hard_sigmoid", "exponential", "mish"]
_CHANNELWISE_ACTIVATIONS = {
    getattr(keras.activations, name) for name in _CHANNELWISE if hasattr(keras.activations, name)
}


def rule_for(layer: Any, input_shapes: list[tuple[int | None, ...]]) -> Rule | None:
    """The rule for one call of a layer, or None if its channels must stay as they are."""
    kind, ranks = type(layer), [len(shape) for shape in input_shapes]
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        return None
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        return None
    if getattr(layer, "activation", None) not in (None, *_CHANNELWISE_ACTIVATIONS):
        return None
    if kind is L.Dense or (kind is L.Conv2D and layer.groups == 1):
        return LinearRule()
    if kind is L.DepthwiseConv2D:
        return DepthwiseRule()
    if kind is L.SeparableConv2D:
        return SeparableRule()
    if kind is L.BatchNormalization:
        is_last = layer.axis in (-1, ranks[0] - 1)
        return BatchNormalizationRule(ranks) if is_last else None
    if kind is L.Activation or kind in _ELEMENTWISE:
        return ElementwiseRule(ranks)
    if kind in _POOLING:
        return PoolingRule(ranks)
    if kind is L.ZeroPadding2D:
        return ZeroPaddingRule(ranks)
    if kind in _MERGES:
        widths = {shape[-1] for shape in input_shapes}
        return ElementwiseRule(ranks) if len(ranks) > 1 and len(widths) == 1 else None
    if kind is L.Concatenate:
        return ConcatenateRule() if layer.axis in (-1, ranks[0] - 1) else None
    if kind is L.Flatten and None not in input_shapes[0][1:]:
        return FlattenRule(math.prod(size or 0 for size in input_shapes[0][1:-1]))
    return None


def _kernel(layer: Any) -> np.ndarray:
    """A Dense or Conv2D kernel as (positions, inputs, outputs)."""
    kernel = keras.ops.convert_to_numpy(layer.kernel)
    return kernel.reshape(-1, *kernel.shape[-2:])


def _pointwise(layer: Any) -> np.ndarray:
    kernel = keras.ops.convert_to_numpy(layer.pointwise_kernel)
    return kernel.reshape(1, *kernel.shape[-2:])


def _bias(layer: Any) -> np.ndarray | float:
    return 0.0 if layer.bias is None else keras.ops.convert_to_numpy(layer.bias)


def _is_uniform(layer: Any) -> bool:
    """Whether a constant input adds the same at every output position: nothing is padded."""
    return isinstance(layer, L.Dense) or layer.padding == "valid" or layer.kernel_size == (1, 1)


def _foldable(constants: np.ndarray, uniform: bool) -> np.ndarray:
    return ~np.isnan(constants) if uniform else constants == 0.0


def _linear_constants(kernel: np.ndarray, inputs: np.ndarray, uniform: bool) -> np.ndarray:
    """Constant outputs, before the bias, of a kernel (positions, inputs, outputs)."""
    known = _foldable(inputs, uniform)
    varies = np.any(kernel[:, ~known, :], axis=(0, 1))
    total = np.einsum("pio,i->o", kernel[:, known, :], inputs[known])
    return np.where(varies, np.nan, total)


def _depthwise_constants(layer: Any, kernel_variable: Any, inputs: np.ndarray) -> np.ndarray:
    """Constant output maps, before the bias, of a depthwise kernel (h, w, inputs, multiplier)."""
    kernel = keras.ops.convert_to_numpy(kernel_variable)
    known = _foldable(inputs, _is_uniform(layer))
    sums = kernel.sum(axis=(0, 1)) * np.where(known, inputs, 0.0)[:, np.newaxis]
    is_constant = known[:, np.newaxis] | ~np.any(kernel, axis=(0, 1))
    return np.where(is_constant, sums, np.nan).reshape(-1)


def _activated(layer: Any, values: np.ndarray) -> np.ndarray:
    if layer.activation is None:
        return values
    activated = keras.ops.convert_to_numpy(layer.activation(values.astype(np.float32)))
    return _exact(activated, [values])


def _exact(values: np.ndarray, sources: Arrays) -> np.ndarray:
    """`values`, NaN again where a source was: relu and maximum may turn NaN into a number."""
    unknown = np.any([np.isnan(source) for source in sources], axis=0)
    return np.where(unknown, np.nan, values)


def _folded(kernel: np.ndarray, kept: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """What the constant inputs that go add to each output."""
    gone = ~kept & ~np.isnan(constants)
    return np.einsum("pio,i->o", kernel[:, gone, :], constants[gone])


def _with_bias(
    layer: Any,
    changes: dict[str, Any],
    kernels: Arrays,
    folded: np.ndarray,
    kept_out: np.ndarray,
) -> Resized:
    bias = (_bias(layer) + folded)[kept_out]
    config = {**layer.get_config(), **changes}
    for key in [key for key in config if key.endswith("_initializer")]:
        if isinstance(getattr(layer, key), keras.initializers.Constant):
            config[key] = "zeros"  # a constant may be an array of the old shape
    config["use_bias"] = layer.use_bias or bool(np.any(bias))
    weights = [*kernels, bias] if config["use_bias"] else kernels
    return type(layer).from_config(config), weights
