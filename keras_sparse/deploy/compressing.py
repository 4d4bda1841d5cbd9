"""Kernels stored without their zeros, for TFLite Micro's DECODE operator.

DECODE runs just before the operator that reads a kernel and expands it into the arena: flash is
saved, RAM is paid. A kernel is stored as a bitmap of its non-zeros and, behind a header of 16
bytes, their values; see decode_state_prune.cc in TFLite Micro, which has no encoder.
"""

import copy
from typing import Any

import numpy as np

from .flatbuffer import WEIGHTED, operator_name, parse, schema, tensor_values, without_unused

DECODE = "TFLM_DECODE"
_HEADER = bytes([2, 1, 0, 0, 1]) + bytes(11)  # kind "prune", version 1, version 1 of that kind


def compressed(flatbuffer: bytes) -> bytes:
    """The same network with every kernel stored without zeros where that makes it smaller."""
    best = flatbuffer
    for tensor in sorted({int(operator.inputs[1]) for operator in _weighted(parse(flatbuffer))}):
        model = parse(best)
        if _encode(model, tensor):
            candidate = without_unused(model)
            if len(candidate) < len(best):
                best = candidate
    return best


def _weighted(model: Any) -> list[Any]:
    graph = model.subgraphs[0]
    return [op for op in graph.operators if operator_name(model, op) in WEIGHTED]


def _encode(model: Any, number: int) -> bool:
    """Puts a DECODE before the reader of a kernel; False if it has several or is no constant."""
    graph = model.subgraphs[0]
    tensor = graph.tensors[number]
    values = tensor_values(model, tensor)
    readers = [op for op in _weighted(model) if int(op.inputs[1]) == number]
    users = [other for other in graph.tensors if other.buffer == tensor.buffer]
    if values is None or values.dtype != np.int8 or len(readers) != 1 or len(users) != 1:
        return False
    model.buffers[tensor.buffer].data = None
    decoded = copy.copy(tensor)
    decoded.buffer = 0
    nonzero = values.ravel() != 0
    table = _HEADER + values.ravel()[nonzero].tobytes()
    graph.tensors[number] = _bytes_tensor(model, np.packbits(nonzero).tobytes())
    graph.tensors += [_bytes_tensor(model, table), decoded]
    count = len(graph.tensors)
    operator = schema.OperatorT()
    operator.opcodeIndex = _decode_code(model)
    operator.inputs, operator.outputs = [number, count - 2], [count - 1]
    inputs = [int(index) for index in readers[0].inputs]
    readers[0].inputs = [inputs[0], count - 1, *inputs[2:]]
    graph.operators.insert(graph.operators.index(readers[0]), operator)
    return True


def _bytes_tensor(model: Any, content: bytes) -> Any:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(content, np.uint8)
    model.buffers.append(buffer)
    tensor = schema.TensorT()
    tensor.shape, tensor.type = [len(content)], schema.TensorType.UINT8
    tensor.buffer = len(model.buffers) - 1
    return tensor


def _decode_code(model: Any) -> int:
    """Number of the operator code of DECODE, made if there is none."""
    for number, code in enumerate(model.operatorCodes):
        if code.customCode is not None:
            return number
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode, code.version = DECODE, 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1
