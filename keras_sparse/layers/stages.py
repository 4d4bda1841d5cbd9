"""The linear operations inside the four Keras layers that have a sparse twin.

A `Stage` is one kernel and what is done with it. Dense and the convolutions have one stage,
a separable convolution has two; the mathematics of SpVD and BC is written per stage and so
serves all layers.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops


class Stage(NamedTuple):
    """One kernel of a layer and the linear map that it defines.

    Attributes:
        kernel_name: The attribute of the layer that holds the kernel variable; the names of
            the posterior's other variables start with it.
        linear: (input, kernel) -> output without bias; linear in both arguments.
        group_axes: The axes of the kernel that number the groups of structured pruning.
        groups_are_inputs: The groups are input neurons, not output feature maps.
    """

    kernel_name: str
    linear: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    group_axes: tuple[int, ...]
    groups_are_inputs: bool = False

    def group_shape(self, kernel_shape: Iterable[int]) -> list[int]:
        """The shape in which a value per group broadcasts to the kernel."""
        return [size if axis in self.group_axes else 1 for axis, size in enumerate(kernel_shape)]


class DenseStages:
    """Stages of `keras.layers.Dense`: kernel (inputs, units)."""

    channel_axis = -1

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("kernel", ops.matmul, group_axes=(0,), groups_are_inputs=True),)


class _ConvStages:
    @property
    def channel_axis(self: Any) -> int:
        return -1 if self.data_format == "channels_last" else 1

    def _product(self: Any, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """What a convolution by a single weight is, whatever the padding.

        TensorFlow's own fails for some of them when the weight is computed, not a variable.
        """
        steps = [slice(None, None, stride) for stride in self.strides]
        every = [slice(None)]
        picked = x[tuple(every + steps + every if self.channel_axis == -1 else every * 2 + steps)]
        return picked * tf.reshape(kernel, [])

    def _depthwise(self: Any, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if kernel.shape.num_elements() == 1:
            return self._product(x, kernel)
        return ops.depthwise_conv(
            x,
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )


class Conv2DStages(_ConvStages):
    """Stages of `keras.layers.Conv2D`: kernel (height, width, inputs, filters)."""

    def _convolution(self: Any, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        is_single = kernel.shape.num_elements() == 1
        return self._product(x, kernel) if is_single else self.convolution_op(x, kernel)

    def stages(self: Any) -> tuple[Stage, ...]:
        return (Stage("kernel", self._convolution, group_axes=(3,)),)


class DepthwiseConv2DStages(_ConvStages):
    """Stages of `keras.layers.DepthwiseConv2D`: kernel (height, width, inputs, multiplier)."""

    def stages(self: Any) -> tuple[Stage, ...]:
        return (Stage("kernel", self._depthwise, group_axes=(2, 3)),)


class SeparableConv2DStages(_ConvStages):
    """Stages of `keras.layers.SeparableConv2D`: a depthwise kernel, then a 1×1 kernel."""

    def _pointwise(self: Any, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return ops.conv(x, kernel, padding="valid", data_format=self.data_format)

    def stages(self: Any) -> tuple[Stage, ...]:
        return (
            Stage("depthwise_kernel", self._depthwise, group_axes=(2, 3)),
            Stage("pointwise_kernel", self._pointwise, group_axes=(3,)),
        )
