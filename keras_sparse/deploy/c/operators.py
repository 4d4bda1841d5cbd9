"""The integer operators that C generation knows, and the graph that they make.

Every tensor has a shape (height, width, channels) of int8; a vector is (1, 1, channels). A reshape
that keeps the order of the values makes no tensor of its own.
"""

from typing import NamedTuple

import numpy as np

Shape = tuple[int, int, int]


class Rescale(NamedTuple):
    """How 32-bit sums become int8, per channel: multiply, round, shift, round, clamp.

    Attributes:
        multiplier: Q31 factors, shape (channels,) or (1,).
        shift: Powers of two, negative for a shift to the right; same shape.
        zero_point: Of the output.
        low: Least value of the output; where a ReLU is fused, the zero point.
        high: Greatest value of the output.
    """

    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: int
    low: int = -128
    high: int = 127


class Window(NamedTuple):
    """What a convolution or pooling sees.

    Attributes:
        kernel: (height, width).
        stride: (vertical, horizontal).
        padding: Rows above, rows below, columns to the left, columns to the right.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]


class Convolution(NamedTuple):
    """A convolution; the input's zero point is folded into the bias.

    Attributes:
        input: Tensor.
        output: Tensor.
        weights: int8, shape (outputs, height, width, inputs); depthwise with one input.
        bias: int32, shape (outputs,).
        window: Kernel, strides and padding.
        rescale: To the output.
        pad_value: What stands for zero in the input.
        multiplier: Outputs per input channel of a depthwise convolution, else 0.
    """

    input: int
    output: int
    weights: np.ndarray
    bias: np.ndarray
    window: Window
    rescale: Rescale
    pad_value: int
    multiplier: int


class Dense(NamedTuple):
    """A fully connected layer; the input's zero point is folded into the bias.

    Attributes:
        input: Tensor, of any shape with as many values as the layer has inputs.
        output: Tensor.
        weights: int8, shape (outputs, inputs).
        bias: int32, shape (outputs,).
        rescale: To the output.
    """

    input: int
    output: int
    weights: np.ndarray
    bias: np.ndarray
    rescale: Rescale


class Pooling(NamedTuple):
    """Maximum or average over windows; `kind` is "max" or "average"."""

    input: int
    output: int
    kind: str
    window: Window
    low: int
    high: int


class Mean(NamedTuple):
    """The mean of every feature map; the sum of `zero_sum` stands for a mean of zero."""

    input: int
    output: int
    rescale: Rescale
    zero_sum: int


class DepthMaximum(NamedTuple):
    """The largest channel of every pixel."""

    input: int
    output: int


class Rescaling(NamedTuple):
    """The same values at another scale (QUANTIZE), or a ReLU of its own."""

    input: int
    output: int
    rescale: Rescale
    input_zero_point: int


class Add(NamedTuple):
    """The sum of two tensors: both shifted left by 20, rescaled, added, rescaled.

    Attributes:
        input: First tensor.
        other: Second tensor.
        output: Tensor.
        offsets: Zero points of the two.
        multipliers: Of the two and of the sum.
        shifts: Of the two and of the sum.
        zero_point: Of the output.
        low: Least value of the output.
        high: Greatest value of the output.
    """

    input: int
    other: int
    output: int
    offsets: tuple[int, int]
    multipliers: tuple[int, int, int]
    shifts: tuple[int, int, int]
    zero_point: int
    low: int
    high: int


class Concatenation(NamedTuple):
    """Vectors one after the other, unchanged."""

    inputs: tuple[int, ...]
    output: int


Operator = Convolution | Dense | Pooling | Mean | DepthMaximum | Rescaling | Add | Concatenation


class IntegerGraph(NamedTuple):
    """A network of integer operators.

    Attributes:
        shapes: Shape of every tensor.
        operators: In order of execution.
        input: Tensor of the image.
        output: Tensor of the result.
        input_scale: Real value of one step of the input.
        input_zero_point: Value of the input that stands for zero.
        output_scale: Real value of one step of the output.
        output_zero_point: Value of the output that stands for zero.
    """

    shapes: dict[int, Shape]
    operators: tuple[Operator, ...]
    input: int
    output: int
    input_scale: float
    input_zero_point: int
    output_scale: float
    output_zero_point: int


def inputs_of(operator: Operator) -> tuple[int, ...]:
    """The tensors that an operator reads."""
    if isinstance(operator, Concatenation):
        return operator.inputs
    if isinstance(operator, Add):
        return (operator.input, operator.other)
    return (operator.input,)
