"""Reading, checking and shrinking int8 flatbuffers, with TensorFlow's own schema.

TFLite Micro has no verifier: a wrong index or size in a file makes it read where it must not. So
`parse` checks what it relies on.
"""

import math
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

IDENTIFIER = b"TFL3"
_ALIGNMENT = 16
_MOST_ELEMENTS = 2**28
"""Of one tensor: far above any microcontroller, far below what overflows 32 bits."""

ITEM_BYTES = {
    schema.TensorType.FLOAT32: 4,
    schema.TensorType.INT32: 4,
    schema.TensorType.UINT8: 1,
    schema.TensorType.INT64: 8,
    schema.TensorType.BOOL: 1,
    schema.TensorType.INT16: 2,
    schema.TensorType.INT8: 1,
}


def _constants(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


OPERATOR_NAMES = _constants(schema.BuiltinOperator)
TYPE_NAMES = _constants(schema.TensorType)


TFLM_OPERATORS = {
    "ADD": "AddAdd",
    "AVERAGE_POOL_2D": "AddAveragePool2D",
    "CONCATENATION": "AddConcatenation",
    "CONV_2D": "AddConv2D",
    "DEPTHWISE_CONV_2D": "AddDepthwiseConv2D",
    "FULLY_CONNECTED": "AddFullyConnected",
    "LEAKY_RELU": "AddLeakyRelu",
    "LOGISTIC": "AddLogistic",
    "MAX_POOL_2D": "AddMaxPool2D",
    "MEAN": "AddMean",
    "PAD": "AddPad",
    "PADV2": "AddPadV2",
    "QUANTIZE": "AddQuantize",
    "REDUCE_MAX": "AddReduceMax",
    "RELU": "AddRelu",
    "RELU6": "AddRelu6",
    "RESHAPE": "AddReshape",
    "SOFTMAX": "AddSoftmax",
    "TANH": "AddTanh",
    "TFLM_DECODE": "AddDecode",
}
"""The operators that are converted to, with the function that registers each in TFLite Micro."""


class FlatbufferError(ValueError):
    """A file that is no flatbuffer of a network, or not one that can be run safely."""


class Quantization(NamedTuple):
    """real = scale · (q − zero_point), q from −128 to 127."""

    scale: float
    zero_point: int

    def quantized(self, values: np.ndarray) -> np.ndarray:
        """The nearest int8 of each real value."""
        rounded = np.round(np.asarray(values, np.float32) / np.float32(self.scale))
        return np.clip(rounded + self.zero_point, -128, 127).astype(np.int8)

    def real(self, q: np.ndarray) -> np.ndarray:
        """The real value of each int8."""
        return (np.asarray(q, np.float32) - self.zero_point) * np.float32(self.scale)


def parse(flatbuffer: bytes) -> Any:
    """The `ModelT` of a flatbuffer, its structure checked.

    Raises:
        FlatbufferError: It is truncated, not a flatbuffer, or contradicts itself.
    """
    if not isinstance(flatbuffer, (bytes, bytearray)):
        raise TypeError(f"flatbuffer must be bytes. Received: {type(flatbuffer).__name__}")
    flatbuffer = bytes(flatbuffer)
    if len(flatbuffer) < 16 or flatbuffer[4:8] != IDENTIFIER:
        raise FlatbufferError(
            "flatbuffer must be the content of a .tflite file, which has 'TFL3' at byte 4. "
            f"Received: {len(flatbuffer)} bytes that begin with {flatbuffer[:8]!r}"
        )
    try:
        model = schema.ModelT.InitFromPackedBuf(flatbuffer, 0)
    except Exception as error:  # whatever a wrong offset leads to
        raise FlatbufferError(
            f"flatbuffer must be a whole .tflite file. Received: {len(flatbuffer)} bytes that "
            f"cannot be read ({type(error).__name__}: {error})"
        ) from error
    _check(model)
    return model


def operator_name(model: Any, operator: Any) -> str:
    """Name of an operator as in the schema, such as "CONV_2D", or its own name."""
    code = model.operatorCodes[operator.opcodeIndex]
    if code.customCode is not None:
        return str(code.customCode, "ascii", "replace")
    return OPERATOR_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]


def operators(model: Any) -> list[str]:
    """Names of all operators in order of execution."""
    return [operator_name(model, operator) for operator in model.subgraphs[0].operators]


def tensor_values(model: Any, tensor: Any) -> np.ndarray | None:
    """The constant elements of a tensor, or None if it is computed."""
    data = model.buffers[tensor.buffer].data
    if data is None or len(data) == 0:
        return None
    dtype = np.dtype(TYPE_NAMES[tensor.type].lower())
    return np.asarray(data, np.uint8).view(dtype).reshape(tensor.shape)


WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def kernels(flatbuffer: bytes) -> list[tuple[str, np.ndarray]]:
    """Operator and int8 kernel of every layer with weights, outputs first, as they are stored."""
    model = parse(flatbuffer)
    tensors = model.subgraphs[0].tensors
    found = []
    for operator in model.subgraphs[0].operators:
        name = operator_name(model, operator)
        if name in WEIGHTED:
            values = tensor_values(model, tensors[operator.inputs[1]])
            if values is not None:
                found.append((name, values))
    return found


def io_tensor(model: Any, kind: str) -> tuple[tuple[int, ...], Quantization]:
    """Shape without the batch and quantization of the one "input" or "output" of a network.

    Raises:
        ValueError: There are several, or it is not int8 for batch 1.
    """
    graph = model.subgraphs[0]
    indices = graph.inputs if kind == "input" else graph.outputs
    if len(indices) != 1:
        raise ValueError(f"flatbuffer must have one {kind}. Received: {len(indices)}")
    tensor = graph.tensors[int(indices[0])]
    quantization = tensor.quantization
    name = TYPE_NAMES[tensor.type]
    scales = None if quantization is None else quantization.scale
    if name != "INT8" or scales is None or len(scales) != 1:
        raise ValueError(
            f"flatbuffer must have an int8 {kind} with one scale, as to_tflite() makes it. "
            f"Received: {kind} of type {name}"
        )
    shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
    if len(shape) < 2 or shape[0] != 1:
        raise ValueError(f"flatbuffer must have an {kind} of batch 1. Received: {shape}")
    zero_points = [0] if quantization.zeroPoint is None else quantization.zeroPoint
    if len(zero_points) != 1 or not -128 <= zero_points[0] <= 127 or not scales[0] > 0:
        raise FlatbufferError(
            f"flatbuffer must have an {kind} with one scale above 0 and one zero point from -128 "
            f"to 127. Received: {scales[0]} and {list(zero_points)}"
        )
    return shape[1:], Quantization(float(scales[0]), int(zero_points[0]))


def shrunk(flatbuffer: bytes) -> bytes:
    """The same network without names, signatures, metadata and buffers that nobody reads."""
    model = parse(flatbuffer)
    model.description = model.metadata = model.metadataBuffer = model.signatureDefs = None
    for subgraph in model.subgraphs:
        subgraph.name = None
        for tensor in subgraph.tensors:
            tensor.name = None
            if tensor.quantization is not None:
                tensor.quantization.min = tensor.quantization.max = None
                if tensor.quantization.scale is None:
                    tensor.quantization = None
    return without_unused(model)


def without_unused(model: Any) -> bytes:
    """A `ModelT` as a flatbuffer, without buffers that are empty or that nobody reads."""
    used: dict[int, int] = {0: 0}  # buffer 0 is empty, by the format's rule
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if model.buffers[tensor.buffer].data is None:
                tensor.buffer = 0
            else:
                tensor.buffer = used.setdefault(tensor.buffer, len(used))
    model.buffers = [model.buffers[old] for old in used]
    return packed(model)


def packed(model: Any) -> bytes:
    """A `ModelT` as a flatbuffer, the data of every buffer on a multiple of 16 bytes."""
    model.buffers = [_aligned(buffer) for buffer in model.buffers]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


class _AlignedBuffer(schema.BufferT):
    """TensorFlow's own packing forgets the alignment that the format asks for."""

    def Pack(self, builder: Any) -> int:  # noqa: N802
        data = None
        if self.data is not None and len(self.data):
            content = np.asarray(self.data, np.uint8).tobytes()
            builder.StartVector(1, len(content), _ALIGNMENT)
            builder.head -= len(content)
            builder.Bytes[builder.Head() : builder.Head() + len(content)] = content
            data = builder.EndVector()
        schema.BufferStart(builder)
        if data is not None:
            schema.BufferAddData(builder, data)
        return schema.BufferEnd(builder)


def _aligned(buffer: Any) -> Any:
    result = _AlignedBuffer()
    result.data = buffer.data
    return result


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise FlatbufferError(f"flatbuffer must be a sound network: {rule}")


def _check(model: Any) -> None:
    subgraphs, buffers = model.subgraphs or [], model.buffers or []
    _require(len(subgraphs) == 1, f"one subgraph. Received: {len(subgraphs)}")
    graph = subgraphs[0]
    tensors, codes = graph.tensors or [], model.operatorCodes or []
    _require(bool(tensors) and bool(graph.operators), "tensors and operators. Received: none")
    for number, tensor in enumerate(tensors):
        _check_tensor(number, tensor, buffers)
    for name, indices in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        _check_indices(f"its {name}", indices, len(tensors), optional=False)
        _require(indices is not None and len(indices) > 0, f"{name}. Received: none")
    for number, operator in enumerate(graph.operators):
        what = f"operator {number}"
        _require(
            0 <= operator.opcodeIndex < len(codes),
            f"{what} of a known kind. Received: {operator.opcodeIndex} of {len(codes)}",
        )
        code = codes[operator.opcodeIndex]
        kind = max(code.builtinCode, code.deprecatedBuiltinCode)
        _require(kind in OPERATOR_NAMES, f"{what} of a known kind. Received: {kind}")
        _check_indices(f"{what}'s inputs", operator.inputs, len(tensors), optional=True)
        _check_indices(f"{what}'s outputs", operator.outputs, len(tensors), optional=False)


def _check_indices(what: str, indices: Any, count: int, *, optional: bool) -> None:
    lowest = -1 if optional else 0
    for index in [] if indices is None else indices:
        _require(lowest <= index < count, f"{what} among {count} tensors. Received: {index}")


def _check_tensor(number: int, tensor: Any, buffers: list[Any]) -> None:
    what = f"tensor {number}"
    shape = [] if tensor.shape is None else [int(size) for size in tensor.shape]
    _require(tensor.type in ITEM_BYTES, f"{what} of a known type. Received: {tensor.type}")
    _require(all(size > 0 for size in shape), f"{what} of positive size. Received: {shape}")
    size = math.prod(shape)
    _require(size <= _MOST_ELEMENTS, f"{what} that fits into memory. Received: {shape}")
    _require(
        0 <= tensor.buffer < len(buffers),
        f"{what} with one of {len(buffers)} buffers. Received: {tensor.buffer}",
    )
    data = buffers[tensor.buffer].data
    if data is not None and len(data):
        expected = size * ITEM_BYTES[tensor.type]
        _require(
            len(data) == expected, f"{what} with {expected} bytes of values. Received: {len(data)}"
        )
