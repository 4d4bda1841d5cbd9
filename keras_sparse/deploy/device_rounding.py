"""Rounding as TFLite Micro does it, in the model with fake quantization.

Integer arithmetic multiplies a sum by a fixed-point factor and shifts it to the right, and rounds
both times. Where the two disagree with rounding once, one of some hundred values is a step off, and
what follows makes more of it. So a trained model rounds twice as well when it predicts.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .c.quantizing_numbers import fixed_point, mean_factor
from .fake_quant import ActivationRange, QuantizedWeights
from .nodes import LINEAR, Network, Node


@keras.saving.register_keras_serializable("keras_sparse")
class DeviceRounding(keras.layers.Layer):
    """Rounds an operator's output as the device does; does nothing in training, or until `settle`.

    Training changes weights and ranges and so undoes `settle`.
    """

    def build(self, input_shape: Any) -> None:
        """Makes the variables, all of float64: float32 has too few bits for the first rounding."""
        channels = (int(input_shape[-1]),)
        shapes: dict[str, tuple[int, ...]] = {"unit": channels, "shift": channels}
        shapes |= {"scale": (), "zero_point": (), "is_settled": ()}
        for name, shape in shapes.items():
            variable = self.add_weight(
                name=name,
                shape=shape,
                initializer="zeros",
                trainable=False,
                dtype="float64",
                autocast=False,
            )
            setattr(self, name, variable)

    def settle(self, unit: np.ndarray, shift: np.ndarray, scale: float, zero_point: float) -> None:
        """Says how the device computes the output.

        Args:
            unit: What 1 of the integer sum stands for, shape (channels,).
            shift: Binary exponent of the factor from sums to steps, shape (channels,).
            scale: A step of the output.
            zero_point: The step of 0, counted from the lowest one.
        """
        self.unit.assign(np.broadcast_to(unit, self.unit.shape))
        self.shift.assign(np.broadcast_to(shift, self.shift.shape))
        self.scale.assign(scale)
        self.zero_point.assign(zero_point)
        self.is_settled.assign(1.0)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Rounds if it is settled and this is not training."""
        if training:
            self.is_settled.assign(0.0)
            return inputs
        return tf.cond(self.is_settled > 0.0, lambda: self._rounded(inputs), lambda: inputs)

    def _rounded(self, inputs: Any) -> Any:
        sums = tf.round(tf.cast(inputs, tf.float64) / self.unit)
        shift = tf.convert_to_tensor(self.shift)
        factor = self.unit / self.scale
        high = tf.floor(sums * factor * 2.0 ** -tf.minimum(shift, 0.0) + 0.5)
        divisor = 2.0 ** tf.maximum(-shift, 0.0)
        below = tf.cast((high < 0.0) & (shift < 0.0), tf.float64)
        half = tf.where(shift < 0.0, 0.5 * divisor, tf.zeros_like(divisor))
        steps = tf.floor((high + half - below) / divisor)
        steps = tf.clip_by_value(steps, -self.zero_point, 255.0 - self.zero_point)
        return tf.cast(steps * self.scale, inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the input."""
        return input_shape


def settle(model: keras.Model, network: Network, range_names: dict[int, str]) -> None:
    """Lets a model with fake quantization predict with the device's rounding.

    Args:
        model: Trained, its ranges observed.
        network: From which it was built.
        range_names: The layer with the range of each tensor.
    """
    for node in network.nodes:
        if node.kind not in (*LINEAR, "mean", "add"):
            continue
        inputs = [_steps(model, range_names[tensor])[0] for tensor in node.inputs]
        scale, zero_point = _steps(model, range_names[node.output])
        unit, shift = _unit_and_shift(model, node, inputs, scale)
        model.get_layer(rounding_name(node)).settle(unit, shift, scale, zero_point)


def rounding_name(node: Node) -> str:
    """Of the layer that rounds a node's output."""
    return f"{node.name}_rounding"


def _steps(model: keras.Model, range_name: str) -> tuple[float, float]:
    """A step of a range and the step of 0, as `fake_quant_with_min_max_vars` has them."""
    layer = model.get_layer(range_name)
    assert isinstance(layer, ActivationRange)  # noqa: S101
    low, high = (np.float32(bound) for bound in layer.bounds())
    scale = (high - low) / np.float32(255.0)
    return float(scale), float(np.clip(np.floor(-low / scale + np.float32(0.5)), 0, 255))


def _unit_and_shift(
    model: keras.Model, node: Node, inputs: list[float], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    if node.kind in LINEAR:
        layer = model.get_layer(node.name)
        assert isinstance(layer, QuantizedWeights)  # noqa: S101
        unit = inputs[0] * layer.kernel_scale().ravel().astype(np.float64)
        return unit, np.array([fixed_point(u / scale)[1] for u in unit], np.float64)
    if node.kind == "mean":
        count = int(np.prod(model.get_layer(node.name).input.shape[1:3]))
        return np.array([inputs[0] / count]), np.array([mean_factor(inputs[0] / scale, count)[1]])
    unit = np.array([2.0 * max(inputs) / 2.0**20])
    return unit, np.array([fixed_point(float(unit[0]) / scale)[1]])
