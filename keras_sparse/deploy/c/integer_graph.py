"""Reads an int8 flatbuffer as a graph of integer operators, with the constants of TFLite Micro."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from ..flatbuffer import operator_name, parse, tensor_values
from .operators import (
    Add,
    Concatenation,
    Convolution,
    Dense,
    DepthMaximum,
    IntegerGraph,
    Mean,
    Pooling,
    Rescale,
    Rescaling,
)
from .quantizing_numbers import fixed_point, mean_factor
from .tensors import TensorReader, UnsupportedError

_ACTIVATIONS = schema.ActivationFunctionType


def read_graph(flatbuffer: bytes) -> IntegerGraph:
    """The integer graph of a flatbuffer with one int8 input and one int8 output."""
    return _Reader(parse(flatbuffer)).graph()


class _Reader(TensorReader):
    def graph(self) -> IntegerGraph:
        inputs, outputs = self.subgraph.inputs, self.subgraph.outputs
        if len(inputs) != 1 or len(outputs) != 1:
            raise UnsupportedError(
                "flatbuffer must have one input and one output. "
                f"Received: {len(inputs)} inputs, {len(outputs)} outputs"
            )
        image, result = int(inputs[0]), int(outputs[0])
        self._add_tensor(image)
        known: dict[str, Callable[[Any], None]] = {
            "CONV_2D": self._convolution,
            "DEPTHWISE_CONV_2D": self._convolution,
            "FULLY_CONNECTED": self._dense,
            "MAX_POOL_2D": self._pooling,
            "AVERAGE_POOL_2D": self._pooling,
            "MEAN": self._mean,
            "REDUCE_MAX": self._reduce_maximum,
            "RESHAPE": self._reshape,
            "QUANTIZE": self._rescaling,
            "RELU": self._rescaling,
            "ADD": self._add,
            "CONCATENATION": self._concatenation,
        }
        for operator in self.subgraph.operators:
            name = operator_name(self.model, operator)
            if name not in known:
                raise UnsupportedError(
                    f"C is generated for the operators {', '.join(sorted(known))}. Received: {name}"
                )
            known[name](operator)
        scale, zero = self._quantization(image)
        output_scale, output_zero = self._quantization(result)
        return IntegerGraph(
            self.shapes,
            tuple(self.operators),
            image,
            self.source.get(result, result),
            float(scale[0]),
            zero,
            float(output_scale[0]),
            output_zero,
        )

    def _convolution(self, operator: Any) -> None:
        depthwise = operator_name(self.model, operator) == "DEPTHWISE_CONV_2D"
        source, output = self._input(operator), int(operator.outputs[0])
        weights, bias, rescale = self._weighted(operator, depthwise)
        self._add_tensor(output)
        window = self._window(operator, (weights.shape[1], weights.shape[2]))
        channels = self.shapes[source][2]
        if not depthwise and weights.shape[3] != channels:
            raise UnsupportedError("C is generated for convolutions without groups. Received: some")
        multiplier = weights.shape[0] // channels if depthwise else 0
        pad_value = self._quantization(int(operator.inputs[0]))[1]
        self.operators.append(
            Convolution(source, output, weights, bias, window, rescale, pad_value, multiplier)
        )

    def _dense(self, operator: Any) -> None:
        source, output = self._input(operator), int(operator.outputs[0])
        weights, bias, rescale = self._weighted(operator, depthwise=False)
        shape = self._add_tensor(output)
        if weights.shape[1] != math.prod(self.shapes[source]) or shape[:2] != (1, 1):
            raise UnsupportedError(
                "C is generated for fully connected layers of a whole tensor. Received: one of "
                f"{weights.shape[1]} inputs on a tensor of shape {self.shapes[source]}"
            )
        self.operators.append(Dense(source, output, weights, bias, rescale))

    def _pooling(self, operator: Any) -> None:
        source, output = self._input(operator), int(operator.outputs[0])
        if self._full_shape(int(operator.inputs[0])) != self.shapes[source]:
            self._depth_pooling(operator, source, output)
            return
        options = operator.builtinOptions
        kind = "max" if operator_name(self.model, operator) == "MAX_POOL_2D" else "average"
        window = self._window(operator, (int(options.filterHeight), int(options.filterWidth)))
        low, high = self._range(output, options.fusedActivationFunction)
        self._add_tensor(output)
        self.operators.append(Pooling(source, output, kind, window, low, high))

    def _depth_pooling(self, operator: Any, source: int, output: int) -> None:
        """An image seen as columns of its channels, whose maximum is taken."""
        height, width, channels = self.shapes[source]
        options = operator.builtinOptions
        view = self._full_shape(int(operator.inputs[0]))
        window = (int(options.filterHeight), int(options.filterWidth))
        if view != (height * width, channels, 1) or window != (1, channels):
            raise UnsupportedError(
                f"C is generated for pooling of images and of their depth. Received: {view}"
            )
        self.shapes[output] = (height, width, 1)
        self.operators.append(DepthMaximum(source, output))

    def _mean(self, operator: Any) -> None:
        source, output = self._input(operator), int(operator.outputs[0])
        self._require_axes(operator, (1, 2), (-3, -2))
        height, width, _ = self.shapes[source]
        self._add_tensor(output)
        scale, zero = self._quantization(int(operator.inputs[0]))
        factor = float(scale[0]) / float(self._quantization(output)[0][0])
        multiplier, shift = mean_factor(factor, height * width)
        low, high = -128, 127
        rescale = Rescale(
            np.array([multiplier], np.int32),
            np.array([shift], np.int8),
            self._quantization(output)[1],
            low,
            high,
        )
        self.operators.append(Mean(source, output, rescale, zero * height * width))

    def _reduce_maximum(self, operator: Any) -> None:
        source, output = self._input(operator), int(operator.outputs[0])
        self._require_axes(operator, (3,), (-1,))
        height, width, _ = self.shapes[source]
        self.shapes[output] = (height, width, 1)
        self.operators.append(DepthMaximum(source, output))

    def _require_axes(self, operator: Any, *allowed: tuple[int, ...]) -> None:
        axes = tensor_values(self.model, self.tensors[int(operator.inputs[1])])
        given = () if axes is None else tuple(sorted(int(axis) for axis in np.atleast_1d(axes)))
        if given not in allowed:
            raise UnsupportedError(
                f"C is generated for {operator_name(self.model, operator)} over the axes "
                f"{list(allowed[0])}. Received: {list(given)}"
            )

    def _reshape(self, operator: Any) -> None:
        # The next operator decides whether it can read the values in this order.
        self.source[int(operator.outputs[0])] = self._input(operator)

    def _rescaling(self, operator: Any) -> None:
        source, output = self._input(operator), int(operator.outputs[0])
        self._add_tensor(output)
        self.shapes[output] = self.shapes[source]
        scale, zero = self._quantization(int(operator.inputs[0]))
        factor = float(scale[0]) / float(self._quantization(output)[0][0])
        is_relu = operator_name(self.model, operator) == "RELU"
        activation = _ACTIVATIONS.RELU if is_relu else _ACTIVATIONS.NONE
        rescale = self._rescale(np.array(factor), output, activation)
        self.operators.append(Rescaling(source, output, rescale, zero))

    def _add(self, operator: Any) -> None:
        first, second, output = self._input(operator), self._input(operator, 1), operator.outputs[0]
        if self.shapes[first] != self.shapes[second]:
            raise UnsupportedError(
                "C is generated for the ADD of equal shapes. Received: "
                f"{self.shapes[first]} and {self.shapes[second]}"
            )
        self._add_tensor(int(output))
        self.shapes[int(output)] = self.shapes[first]
        scale1, zero1 = self._quantization(int(operator.inputs[0]))
        scale2, zero2 = self._quantization(int(operator.inputs[1]))
        scale_out, zero_out = self._quantization(int(output))
        twice = 2.0 * max(float(scale1[0]), float(scale2[0]))
        numbers = [
            fixed_point(float(scale1[0]) / twice),
            fixed_point(float(scale2[0]) / twice),
            fixed_point(twice / (2.0**20 * float(scale_out[0]))),
        ]
        if any(not -31 <= shift <= 0 for _, shift in numbers):
            raise UnsupportedError(
                "C is generated for ADD shifts from -31 to 0. Received: "
                f"{[shift for _, shift in numbers]}"
            )
        low, high = self._range(int(output), operator.builtinOptions.fusedActivationFunction)
        self.operators.append(
            Add(
                first,
                second,
                int(output),
                (zero1, zero2),
                (numbers[0][0], numbers[1][0], numbers[2][0]),
                (numbers[0][1], numbers[1][1], numbers[2][1]),
                zero_out,
                low,
                high,
            )
        )

    def _concatenation(self, operator: Any) -> None:
        inputs = tuple(self._input(operator, i) for i in range(len(operator.inputs)))
        output = int(operator.outputs[0])
        shape = self._add_tensor(output)
        if shape[:2] != (1, 1):
            raise UnsupportedError(
                f"C is generated for the CONCATENATION of vectors. Received: shape {shape}"
            )
        if operator.builtinOptions.fusedActivationFunction != _ACTIVATIONS.NONE:
            raise UnsupportedError(
                "C is generated for a CONCATENATION without activation. Received: one with"
            )
        self.operators.append(Concatenation(inputs, output))


__all__ = ["UnsupportedError", "read_graph"]
