"""Keras layers that compute in floating point what int8 arithmetic will compute.

Weights are rounded to 255 steps per output channel, symmetric around zero, so that a weight of zero
is zero; activations to 256 steps of a range that is observed while the model trains. Gradients
pass the rounding unchanged. Weights that are zero when a layer gets its values stay zero.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

_PACKAGE = "keras_sparse"
_SMALLEST_RANGE = 1e-4
_LEVELS = 127
_TIE = 1e-3  # float means of whole numbers are that exact
FIXED_RANGES = {
    "softmax": (0.0, 255 / 256),
    "sigmoid": (0.0, 255 / 256),
    "tanh": (-1.0, 127 / 128),
}
"""Ranges of outputs that TFLite Micro prescribes."""


@keras.saving.register_keras_serializable(_PACKAGE)
class ActivationRange(keras.layers.Layer):
    """Rounds its input to 256 steps between `low` and `high`.

    In training the range follows the smallest and largest value of each batch: their mean at
    first, later a moving average.

    Args:
        low: A fixed range's lower end, or None to observe it.
        high: Its upper end.
        momentum: Of the moving average.
        **kwargs: Of `keras.layers.Layer`.
    """

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        momentum: float = 0.99,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fixed = None if low is None or high is None else (low, high)
        self.momentum = momentum
        self.is_converting = False  # a converter rounds means itself

    def build(self, input_shape: Any) -> None:
        """Makes the variables of the range."""
        low, high = self.fixed or (0.0, 0.0)
        for name, value in (("low", low), ("high", high), ("batches", 0.0)):
            initializer = keras.initializers.Constant(value)
            variable = self.add_weight(
                name=name, shape=(), initializer=initializer, trainable=False, dtype="float32"
            )
            setattr(self, name, variable)

    def call(
        self, inputs: Any, training: bool = False, is_mean: bool = False, is_joined: bool = False
    ) -> Any:
        """Rounds; in training observes first.

        Args:
            inputs: Any shape.
            training: Whether to observe.
            is_mean: Whether it is the average of values that this layer has rounded, which int8
                arithmetic rounds again: halves away from the zero of int8, not up.
            is_joined: Whether it is an input of the tensor that is observed, so that there may be
                no range yet: in training it passes unchanged.
        """
        if is_joined and training:
            return inputs
        if is_mean:
            return inputs if self.is_converting else self._rounded_mean(inputs)
        if training and self.fixed is None:
            share = tf.minimum(self.batches / (self.batches + 1.0), self.momentum)
            for variable, seen in (
                (self.low, tf.reduce_min(inputs)),
                (self.high, tf.reduce_max(inputs)),
            ):
                variable.assign(share * variable + (1.0 - share) * seen)
            self.batches.assign(self.batches + 1.0)
        return tf.quantization.fake_quant_with_min_max_vars(inputs, *self.bounds())

    def bounds(self) -> tuple[Any, Any]:
        """Smallest and largest value, 0 always among them."""
        low = tf.minimum(tf.convert_to_tensor(self.low), 0.0)
        least = tf.maximum(low + _SMALLEST_RANGE, 0.0)
        return low, tf.maximum(tf.convert_to_tensor(self.high), least)

    def _rounded_mean(self, inputs: Any) -> Any:
        low, high = self.bounds()
        scale = (high - low) / 255.0
        zero_point = tf.clip_by_value(tf.round(-128.0 - low / scale), -128.0, 127.0)
        q = inputs / scale + zero_point
        q = tf.sign(q) * tf.floor(tf.abs(q) + 0.5 + _TIE)
        rounded = (tf.clip_by_value(q, -128.0, 127.0) - zero_point) * scale
        return inputs + tf.stop_gradient(rounded - inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        low, high = self.fixed or (None, None)
        return {**super().get_config(), "low": low, "high": high, "momentum": self.momentum}


class NoRange(keras.layers.Identity):
    """Stands where rounding was; does nothing."""

    def call(self, inputs: Any, is_mean: bool = False, is_joined: bool = False) -> Any:
        """The input."""
        return inputs

    def compute_output_spec(self, inputs: Any, **_: Any) -> Any:
        """Its shape; Keras's own knows no other arguments."""
        return super().compute_output_spec(inputs)


class QuantizedWeights:
    """What the layers with weights share; `kernel_axes` are all but those of the outputs."""

    kernel_axes: tuple[int, ...] = (0, 1, 2)
    plain_class: Any
    kernel: Any
    bias: Any
    kernel_mask: Any
    bias_mask: Any
    activation: Any

    def build(self, input_shape: Any) -> None:
        """Makes the masks."""
        super().build(input_shape)  # type: ignore[misc]
        for name, variable in (("kernel_mask", self.kernel), ("bias_mask", self.bias)):
            mask = None
            if variable is not None:
                mask = self.add_weight(  # type: ignore[attr-defined]
                    name=name, shape=variable.shape, initializer="ones", trainable=False
                )
            setattr(self, name, mask)

    def set_values(self, kernel: np.ndarray, bias: np.ndarray) -> None:
        """Gives the layer its weights. What is zero stays zero: weights, and whole dead units."""
        self.kernel.assign(kernel)
        self.bias.assign(bias)
        dead = np.all(kernel == 0, axis=self.kernel_axes).ravel() & (bias == 0)
        self.kernel_mask.assign((kernel != 0).astype(np.float32))
        self.bias_mask.assign((~dead).astype(np.float32))

    def quantized_kernel(self) -> Any:
        """The kernel as int8 arithmetic has it."""
        kernel = tf.convert_to_tensor(self.kernel) * self.kernel_mask
        scale = self._scale(kernel)
        return kernel + tf.stop_gradient(tf.round(kernel / scale) * scale - kernel)

    def _scale(self, kernel: Any) -> Any:
        largest = tf.reduce_max(tf.abs(kernel), axis=self.kernel_axes, keepdims=True)
        return tf.stop_gradient(tf.maximum(largest, 1e-12) / _LEVELS)

    def kernel_scale(self) -> np.ndarray:
        """A step of each output channel's weights, in a shape that broadcasts to the kernel."""
        return np.asarray(self._scale(tf.convert_to_tensor(self.kernel) * self.kernel_mask))

    # What Keras's own layers save is kernel and bias only.

    def save_own_variables(self, store: Any) -> None:
        """Saves the masks, too."""
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads what `save_own_variables` saved."""
        keras.layers.Layer.load_own_variables(self, store)

    def plain(self) -> keras.layers.Layer:
        """The Keras layer of the same arguments, without weights yet."""
        return self.plain_class.from_config(self.get_config())  # type: ignore[attr-defined]

    def plain_weights(self) -> list[np.ndarray]:
        """Weights for `plain`, rounded."""
        bias = tf.convert_to_tensor(self.bias) * self.bias_mask
        return [np.asarray(self.quantized_kernel()), np.asarray(bias)]

    def _finished(self, outputs: Any) -> Any:
        outputs = outputs + tf.convert_to_tensor(self.bias) * self.bias_mask
        return self.activation(outputs)


@keras.saving.register_keras_serializable(_PACKAGE)
class QuantizedConv2D(QuantizedWeights, keras.layers.Conv2D):
    """Conv2D with rounded weights."""

    plain_class = keras.layers.Conv2D

    def call(self, inputs: Any) -> Any:
        """The convolution."""
        outputs = keras.ops.conv(
            inputs, self.quantized_kernel(), self.strides, self.padding, None, self.dilation_rate
        )
        return self._finished(outputs)


@keras.saving.register_keras_serializable(_PACKAGE)
class QuantizedDepthwiseConv2D(QuantizedWeights, keras.layers.DepthwiseConv2D):
    """DepthwiseConv2D with rounded weights."""

    kernel_axes = (0, 1)
    plain_class = keras.layers.DepthwiseConv2D

    def call(self, inputs: Any) -> Any:
        """The convolution."""
        outputs = keras.ops.depthwise_conv(
            inputs, self.quantized_kernel(), self.strides, self.padding, None, self.dilation_rate
        )
        return self._finished(outputs)


@keras.saving.register_keras_serializable(_PACKAGE)
class QuantizedDense(QuantizedWeights, keras.layers.Dense):
    """Dense with rounded weights."""

    kernel_axes = (0,)
    plain_class = keras.layers.Dense

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The product."""
        return self._finished(keras.ops.matmul(inputs, self.quantized_kernel()))
