"""MicroModel: an int8 flatbuffer in TFLite Micro, on this machine."""

import functools
import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .flatbuffer import FlatbufferError, io_tensor, operators, parse

_PROBE = Path(__file__).with_name("probe.py")
_CHILD_SECONDS = 60


class Arena(NamedTuple):
    """RAM of TFLite Micro in bytes, on a 64-bit machine.

    Attributes:
        total: The smallest arena with which the network runs, found by bisection.
        head: Activations and scratch buffers; the same on every machine.
        tail: What stays allocated: tensors and operators. With 32-bit pointers it is smaller.
    """

    total: int
    head: int
    tail: int


class MicroModel:
    """A network in TFLite Micro.

    Args:
        flatbuffer: Content of a .tflite file with one int8 input and one int8 output.
        trusted: Whether it was made here, by `to_tflite`: then it runs in this process. Others run
            in a process of their own, because TFLite Micro has no verifier: a broken file may
            crash it, or make it write where it must not.

    Attributes:
        flatbuffer: The bytes.
        operators: Names of the operators, in order of execution.
        input_shape: Shape of one example.
        input: Scale and zero point of the input.
        output: Scale and zero point of the output.
    """

    def __init__(self, flatbuffer: bytes, *, trusted: bool = False) -> None:
        model = parse(flatbuffer)
        self.flatbuffer = bytes(flatbuffer)
        self.operators = tuple(operators(model))
        self.input_shape, self.input = io_tensor(model, "input")
        self.output_shape, self.output = io_tensor(model, "output")
        self.trusted = trusted
        self._interpreter: Any = None
        require_wheel()
        if not trusted:
            self.arena  # noqa: B018 - it runs once, or this raises

    @functools.cached_property
    def arena(self) -> Arena:
        """RAM that it needs."""
        return Arena(**json.loads(_in_child(self.flatbuffer)))

    @property
    def arena_bytes(self) -> int:
        """The smallest arena with which it runs."""
        return self.arena.total

    def predict_int8(self, q: np.ndarray) -> np.ndarray:
        """Outputs for quantized examples.

        Args:
            q: int8, shape (examples, *input_shape).

        Returns:
            int8, shape (examples, *output_shape).
        """
        q = np.asarray(q)
        if q.dtype != np.int8 or q.shape[1:] != self.input_shape:
            raise ValueError(
                f"q must be int8 of shape (examples, {', '.join(map(str, self.input_shape))}). "
                f"Received: {q.dtype} of shape {q.shape}"
            )
        if not self.trusted:
            answer = _in_child(self.flatbuffer, self.arena.total, q)
            return np.frombuffer(answer, np.int8).reshape(len(q), *self.output_shape)
        interpreter = self._loaded()
        result = np.empty((len(q), *self.output_shape), np.int8)
        for number, example in enumerate(q):
            interpreter.set_input(example[None], 0)
            interpreter.invoke()
            result[number] = interpreter.get_output(0)[0]
        return result

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Real outputs for real examples, shape (examples, *input_shape)."""
        return self.output.real(self.predict_int8(self.input.quantized(x)))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> float:
        """Accuracy, 0 to 1.

        Args:
            x: Real examples, shape (examples, *input_shape).
            y: Class numbers, shape (examples,).
        """
        classes = self.predict_int8(self.input.quantized(x)).argmax(axis=-1)
        y = np.asarray(y).reshape(-1)
        if len(y) != len(classes):
            raise ValueError(
                f"x and y must have the same length. Received: {len(classes)} and {len(y)}"
            )
        return float(np.mean(classes == y))

    def _loaded(self) -> Any:
        if self._interpreter is None:
            from tflite_micro import runtime

            self._interpreter = runtime.Interpreter.from_bytes(
                self.flatbuffer, arena_size=self.arena.total
            )
        return self._interpreter


def has_wheel() -> bool:
    """Whether TFLite Micro is installed."""
    return importlib.util.find_spec("tflite_micro") is not None


def require_wheel() -> None:
    """Raises if TFLite Micro is not installed, and says why it may not be."""
    if not has_wheel():
        raise ModuleNotFoundError(
            "MicroModel needs the package tflite-micro, which exists for Linux on x86-64 only "
            "(pip install --pre tflite-micro); everything else in keras_sparse.deploy works "
            f"without it. Received: {sys.platform} without tflite_micro"
        )


def _in_child(
    flatbuffer: bytes, arena: int | None = None, examples: np.ndarray | None = None
) -> bytes:
    """What `probe.py` answers.

    Raises:
        FlatbufferError: TFLite Micro refuses the flatbuffer, or does not survive it.
    """
    seconds = _CHILD_SECONDS + (0 if examples is None else len(examples))
    request = {"flatbuffer": len(flatbuffer), "arena": arena, "seconds": seconds}
    header = json.dumps(request).encode() + b"\n"
    body = b"" if examples is None else np.ascontiguousarray(examples).tobytes()
    try:
        done = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-P", str(_PROBE)],
            input=header + flatbuffer + body,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise _refused(flatbuffer, f"did not end within {seconds} s") from None
    if done.returncode < 0:
        raise _refused(flatbuffer, f"crashed with {signal.Signals(-done.returncode).name}")
    if done.returncode > 0:
        reason = " ".join(done.stderr.decode(errors="replace").split())
        raise _refused(flatbuffer, f"refused it: {reason[-300:]}")
    return done.stdout


def _refused(flatbuffer: bytes, what: str) -> FlatbufferError:
    return FlatbufferError(
        "flatbuffer must run in TFLite Micro. "
        f"Received: {len(flatbuffer):,} bytes with which TFLite Micro {what}"
    )
