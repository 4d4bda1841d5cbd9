"""A child process: runs a flatbuffer with TFLite Micro, or measures the arena that it needs.

`micro` starts it by its path, so that it imports neither Keras nor TensorFlow. Whatever a broken
file does to TFLite Micro, which has no verifier, it does here.

Standard input: a line of JSON {"flatbuffer": bytes, "arena": bytes or null, "seconds": of processor
time}, the flatbuffer, and int8 examples if there is an arena. Standard output: the int8 outputs;
without an arena, or if something fails, a JSON object.
"""

import json
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable

import numpy as np
from tflite_micro import runtime

_ARENAS = (1 << 16, 1 << 20, 1 << 24, 1 << 28)


def main() -> None:
    """Answers one request."""
    header = json.loads(sys.stdin.buffer.readline())
    # A broken file may run for ever, also in a child of this process that outlives it.
    resource.setrlimit(resource.RLIMIT_CPU, (header["seconds"], header["seconds"]))
    flatbuffer = sys.stdin.buffer.read(header["flatbuffer"])
    try:
        if header["arena"] is None:
            answer = json.dumps(measured(flatbuffer)).encode()
        else:
            answer = outputs(flatbuffer, header["arena"], sys.stdin.buffer.read())
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.stdout.buffer.write(answer)


def outputs(flatbuffer: bytes, arena: int, examples: bytes) -> bytes:
    """The int8 outputs of int8 examples, one after the other."""
    interpreter = runtime.Interpreter.from_bytes(flatbuffer, arena_size=arena)
    shape = interpreter.get_input_details(0)["shape"]
    results = []
    for example in np.frombuffer(examples, np.int8).reshape(-1, *shape):
        interpreter.set_input(example, 0)
        interpreter.invoke()
        results.append(interpreter.get_output(0).tobytes())
    return b"".join(results)


def measured(flatbuffer: bytes) -> dict[str, int]:
    """Bytes of the arena: "total", and as TFLite Micro reports them "head" and "tail"."""
    size = next((arena for arena in _ARENAS if runs(flatbuffer, arena)), _ARENAS[-2])
    interpreter = run_once(flatbuffer, size)
    text = captured(interpreter.print_allocations)
    found = {name: int(number) for name, number in re.findall(r"allocation (\w+) (\d+) b", text)}
    found["total"] = smallest(flatbuffer, found["tail"], size)
    return {name: found[name] for name in ("total", "head", "tail")}


def run_once(flatbuffer: bytes, arena: int) -> runtime.Interpreter:
    """An interpreter that has run once on zeros; RuntimeError if the arena is too small."""
    interpreter = runtime.Interpreter.from_bytes(flatbuffer, arena_size=arena)
    details = interpreter.get_input_details(0)
    interpreter.set_input(np.zeros(details["shape"], details["dtype"]), 0)
    interpreter.invoke()
    interpreter.get_output(0)
    return interpreter


def smallest(flatbuffer: bytes, low: int, high: int) -> int:
    """The smallest arena in bytes, above `low` and at most `high`, with which it runs."""
    while high - low > 1:
        middle = (low + high) // 2
        if runs(flatbuffer, middle):
            high = middle
        else:
            low = middle
    return high


def runs(flatbuffer: bytes, arena: int) -> bool:
    """Whether an arena is large enough; in a process of its own: one too small may crash."""
    child = os.fork()
    if child == 0:
        try:
            run_once(flatbuffer, arena)
            os._exit(0)
        except RuntimeError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def captured(function: Callable[[], None]) -> str:
    """What a C++ function writes to file descriptor 2."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            function()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        return file.read().decode(errors="replace")


if __name__ == "__main__":
    main()
