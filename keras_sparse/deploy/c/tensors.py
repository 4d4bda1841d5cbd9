"""Tensors of a flatbuffer: shapes, scales, weights with folded zero points, windows."""

import math
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from ..flatbuffer import TYPE_NAMES, operator_name, tensor_values
from .operators import Operator, Rescale, Shape, Window
from .quantizing_numbers import fixed_point

_ACTIVATIONS = schema.ActivationFunctionType


class UnsupportedError(ValueError):
    """A network that C cannot be generated for."""


class TensorReader:
    """What the readers of all operators need to know of a flatbuffer's tensors."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.subgraph = model.subgraphs[0]
        self.tensors = self.subgraph.tensors
        self.shapes: dict[int, Shape] = {}
        self.source: dict[int, int] = {}  # reshaped tensors: where their values are
        self.operators: list[Operator] = []

    def _add_tensor(self, index: int) -> Shape:
        tensor = self.tensors[index]
        if tensor.type != schema.TensorType.INT8:
            raise UnsupportedError(
                "C is generated for int8 networks. Received: a tensor of type "
                f"{TYPE_NAMES[tensor.type]}"
            )
        shape = self._full_shape(index)
        self.shapes[index] = shape
        return shape

    def _full_shape(self, index: int) -> Shape:
        sizes = [int(size) for size in self.tensors[index].shape]
        if len(sizes) > 1 and sizes[0] != 1:
            raise UnsupportedError(
                f"C is generated for a batch of 1. Received: a tensor of shape {sizes}"
            )
        sizes = sizes[1:] if len(sizes) > 1 else sizes
        if len(sizes) > 3:
            raise UnsupportedError(
                f"C is generated for tensors of up to 4 dimensions. Received: {sizes}"
            )
        height, width, channels = [1] * (3 - len(sizes)) + sizes
        return height, width, channels

    def _input(self, operator: Any, position: int = 0) -> int:
        index = int(operator.inputs[position])
        index = self.source.get(index, index)
        if index not in self.shapes:
            raise UnsupportedError(
                f"C is generated for operators on computed tensors. Received: "
                f"{operator_name(self.model, operator)} of a constant"
            )
        return index

    def _quantization(self, index: int) -> tuple[np.ndarray, int]:
        parameters = self.tensors[index].quantization
        if parameters is None or parameters.scale is None or len(parameters.scale) == 0:
            raise UnsupportedError(
                f"C is generated for quantized tensors. Received: tensor {index} without a scale"
            )
        zero_points = np.atleast_1d(
            np.asarray(0 if parameters.zeroPoint is None else parameters.zeroPoint)
        )
        return np.asarray(parameters.scale, np.float32), int(zero_points[0])

    def _range(self, index: int, activation: int) -> tuple[int, int]:
        """Least and greatest int8 of a tensor after a fused activation."""
        scale, zero = self._quantization(index)
        if activation == _ACTIVATIONS.NONE:
            return -128, 127
        if activation == _ACTIVATIONS.RELU:
            return max(-128, zero), 127
        if activation == _ACTIVATIONS.RELU6:
            return max(-128, zero), min(127, zero + math.floor(6.0 / float(scale[0]) + 0.5))
        raise UnsupportedError(
            f"C is generated for the activations NONE, RELU and RELU6. Received: {activation}"
        )

    def _rescale(self, factors: np.ndarray, output: int, activation: int) -> Rescale:
        numbers = [fixed_point(float(factor)) for factor in np.atleast_1d(factors)]
        if any(shift > 30 for _, shift in numbers):
            raise UnsupportedError(
                "C is generated for rescaling by shifts from -31 to 30. "
                f"Received: {max(shift for _, shift in numbers)}"
            )
        multiplier = np.array([number for number, _ in numbers], np.int32)
        shift = np.array([shift for _, shift in numbers], np.int8)
        low, high = self._range(output, activation)
        return Rescale(multiplier, shift, self._quantization(output)[1], low, high)

    def _weighted(self, operator: Any, depthwise: bool) -> tuple[np.ndarray, np.ndarray, Rescale]:
        """Weights with outputs first, bias with the zero point folded in, rescaling."""
        options = operator.builtinOptions
        image, filters, output = (
            int(operator.inputs[0]),
            int(operator.inputs[1]),
            int(operator.outputs[0]),
        )
        weights = tensor_values(self.model, self.tensors[filters])
        if weights is None or weights.dtype != np.int8:
            raise UnsupportedError(
                f"C is generated for constant int8 weights. Received: tensor {filters}"
            )
        if depthwise:
            weights = weights.transpose(3, 1, 2, 0)
        outputs = weights.shape[0]
        bias = np.zeros(outputs, np.int64)
        if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
            values = tensor_values(self.model, self.tensors[int(operator.inputs[2])])
            if values is None or values.dtype != np.int32:
                raise UnsupportedError("C is generated for constant int32 biases. Received: other")
            bias = values.astype(np.int64)
        scale_in, zero_in = self._quantization(image)
        scale_out, _ = self._quantization(output)
        scales, _ = self._quantization(filters)
        product = scale_in.astype(np.float64) * scales.astype(np.float64)
        if operator_name(self.model, operator) == "FULLY_CONNECTED" and len(scales) == 1:
            product = (scale_in * scales).astype(np.float64)  # TFLite Micro's own float product
        rescale = self._rescale(
            product / scale_out.astype(np.float64), output, options.fusedActivationFunction
        )
        taps = weights.reshape(outputs, -1).astype(np.int64)
        folded = bias - zero_in * taps.sum(axis=1)
        if np.any(np.abs(folded) + 128 * np.abs(taps).sum(axis=1) >= 2**31):
            raise UnsupportedError("C is generated for sums within 32 bits. Received: larger ones")
        return weights, folded.astype(np.int32), rescale

    def _window(self, operator: Any, kernel: tuple[int, int]) -> Window:
        options = operator.builtinOptions
        if (
            getattr(options, "dilationHFactor", 1) != 1
            or getattr(options, "dilationWFactor", 1) != 1
        ):
            raise UnsupportedError(
                "C is generated for convolutions without dilation. Received: one"
            )
        image, output = self.shapes[self._input(operator)], self._full_shape(operator.outputs[0])
        stride = (int(options.strideH), int(options.strideW))
        padding: list[int] = []
        for size, result, step, taps in zip(image, output, stride, kernel, strict=False):
            total = 0
            if options.padding == schema.Padding.SAME:
                total = max((result - 1) * step + taps - size, 0)
            padding += [total // 2, total - total // 2]
        return Window(kernel, stride, (padding[0], padding[1], padding[2], padding[3]))
