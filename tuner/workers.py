"""Several processes on one search: a client that outlives its chief, and the start of them all."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from keras_tuner.src.distribute.oracle_client import OracleClient
from keras_tuner.src.engine.conditions import Parent

_PATIENCE = 3600.0
"""Seconds for which a worker waits for a chief that is gone."""


class PatientClient(OracleClient):
    """KerasTuner's client of the chief, for which a chief that is restarted is no error.

    All calls can be repeated: a worker that asks again gets the same trial, and the second report
    of a result is ignored.
    """

    def __init__(self, oracle: Any) -> None:
        super().__init__(oracle)
        self.stub: Any = _PatientStub(self.stub)


def silence_conditions() -> None:
    """KerasTuner prints the first value of every condition that it sends."""
    original = Parent.to_proto

    def to_proto(self: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return original(self)

    if not hasattr(original, "is_silent"):
        to_proto.is_silent = True  # type: ignore[attr-defined]
        Parent.to_proto = to_proto


class _PatientStub:
    """A gRPC stub whose calls are repeated while nobody answers."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._stub, name)

        def patient(*args: Any, **kwargs: Any) -> Any:
            end = time.monotonic() + _PATIENCE
            while True:
                try:
                    return call(*args, **kwargs)
                except grpc.RpcError as error:
                    is_gone = error.code() == grpc.StatusCode.UNAVAILABLE
                    if not is_gone or time.monotonic() > end:
                        raise
                    time.sleep(1.0)

        return patient


def launch(command: Sequence[str], workers: int) -> int:
    """Runs the same command as a chief and some workers on this machine, until all have ended.

    Args:
        command: Arguments of Python, such as ["search.py"]; what it runs must call
            `SparseTuner.search`.
        workers: How many train. The cores are divided among them.

    Returns:
        The exit code: 0 if the chief ended well.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1. Received: workers={workers}")
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    common = {
        **os.environ,
        "KERASTUNER_ORACLE_IP": "127.0.0.1",
        "KERASTUNER_ORACLE_PORT": str(_free_port()),
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
    }
    names = ["chief", *(f"worker{number}" for number in range(1, workers + 1))]
    processes = []
    # The processes end with this one, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for name in names:
            environment = {**common, "KERASTUNER_TUNER_ID": name}
            # The caller's own command, without a shell.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *command], env=environment, stderr=_standard_error()
            )
            processes.append(process)
        while processes[0].poll() is None:
            if all(process.poll() is not None for process in processes[1:]):
                # None is left to finish what has been begun, so the chief would wait for ever.
                _wait(processes[0], 60.0)
                break
            time.sleep(0.5)
        return processes[0].poll() or 0
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            _wait(process, 30.0)


def _standard_error() -> int | None:
    """Where Python writes errors, which is not always file descriptor 2; None for that one."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook, a test
        return None


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
