"""run_on_board: firmware that `to_c` wrote, built and run on an emulated board."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .elf import sizes
from .known import BOARDS, WARNINGS, Board
from .tools import BoardError, compiler, emulator, libraries, require_tools

_LOOP_INSTRUCTIONS = 30_000
"""Of the loop with which `main_cortex_m.c` finds out how long an instruction takes."""


class BoardRun(NamedTuple):
    """What a network did on a board.

    Attributes:
        outputs: int8, shape (examples, values).
        flash: Bytes of the whole program.
        tables: Bytes of weights, indices and tables in it, as the linker placed them.
        ram: Bytes of static RAM of the whole program.
        stack: Bytes of the deepest stack; 0 on the host.
        cycles: Clock cycles an image, while the network computes; on the Uno only, else 0.
        instructions: The same in instructions; on Cortex-M only, else 0.
        functions: The cycles of each function of the firmware; on the Uno only, else empty.
    """

    outputs: np.ndarray
    flash: int
    tables: int
    ram: int
    stack: int
    cycles: int
    instructions: int
    functions: dict[str, int]

    @property
    def memory(self) -> int:
        """RAM in all: static and stack, bytes."""
        return self.ram + self.stack


def run_on_board(
    directory: str | os.PathLike[str],
    board: str = "uno",
    x: np.ndarray | None = None,
    *,
    timeout: float = 3600.0,
) -> BoardRun:
    """Builds firmware and runs it on images.

    Args:
        directory: A folder that `to_c` wrote; nothing is written there.
        board: "uno", "microbit", "stm32vldiscovery", "netduinoplus2", or "host" for this computer.
        x: int8 images, shape (examples, height, width, channels).
        timeout: Seconds after which the emulator is stopped.

    Raises:
        BoardError: The network does not fit, a tool is missing, or the firmware fails.
    """
    if board not in BOARDS:
        raise ValueError(f"board must be one of {sorted(BOARDS)}. Received: board={board!r}")
    known = BOARDS[board]
    folder = Path(directory)
    if not (folder / "model.json").is_file():
        raise FileNotFoundError(f"directory must be a folder of to_c(). Received: {folder}")
    facts = json.loads((folder / "model.json").read_text())
    shape = tuple(facts["input"])
    images = np.zeros((1, *shape), np.int8) if x is None else np.asarray(x)
    if images.dtype != np.int8 or images.shape[1:] != shape or len(images) == 0:
        raise ValueError(
            f"x must be int8 images of shape (examples, {', '.join(map(str, shape))}), at least "
            f"one. Received: {images.dtype} of shape {images.shape}"
        )
    require_tools(known)
    _require_room(known, *(facts[kind][int(known.word > 1)] for kind in ("ram", "flash")))
    with tempfile.TemporaryDirectory() as name:
        return _built_and_run(folder, known, images, Path(name), timeout)


def _require_room(board: Board, ram: int, flash: int) -> None:
    for what, needed, limit in (("RAM", ram, board.ram), ("flash", flash, board.flash)):
        if limit and needed > limit:
            raise BoardError(
                f"The network must fit into the {limit} bytes of {what} of board="
                f"{board.name!r} ({board.chip}). Received: {needed} bytes, stack and code apart"
            )


def _built_and_run(
    folder: Path, board: Board, images: np.ndarray, work: Path, timeout: float
) -> BoardRun:
    program = work / "firmware.elf"
    sources = ("model.c", *board.main)
    build = (*compiler(board), *WARNINGS, "-o", str(program), *sources, *libraries(board))
    done = _run(build, folder, timeout)
    if "overflowed" in done.stderr or "will not fit" in done.stderr:
        reason = next(line for line in done.stderr.splitlines() if "region" in line)
        reason = reason.replace(f"{work}{os.sep}", "")
        raise BoardError(
            f"The network must fit on board={board.name!r} ({board.chip}: {board.ram} bytes of "
            f"RAM, {board.flash} of flash). Received: {reason.split(': ', 1)[-1]}"
        )
    if done.returncode:
        raise BoardError(f"The firmware must compile. Received: {done.stderr.strip()[-500:]}")
    text, data, bss, objects, functions = sizes(program)
    spent: dict[str, int] = {}
    _require_room(board, data + bss, text + data)
    (work / "images.bin").write_bytes(np.ascontiguousarray(images).tobytes())
    outputs = _define(folder, "MODEL_OUTPUTS")
    if board.name == "host":
        stack, cycles, instructions = _on_host(program, work, timeout), 0, 0
    elif board.name == "uno":
        cycles, stack = _on_uno(program, work, images, outputs, timeout)
        spent = _profile(work, functions, len(images))
        instructions = 0
    else:
        instructions, stack = _on_cortex_m(board, program, work, len(images), timeout)
        cycles = 0
    results = np.fromfile(work / "results.bin", np.int8)
    if results.size != len(images) * outputs:
        raise BoardError(
            f"The firmware must answer every image. Received: {results.size // outputs} answers "
            f"to {len(images)} images (a stack that overflows, perhaps: {data + bss} bytes of RAM "
            "are static)"
        )
    if board.ram and data + bss + stack > board.ram:
        raise BoardError(
            f"The network must fit into the {board.ram} bytes of RAM of board={board.name!r}. "
            f"Received: {data + bss} bytes static and {stack} of stack"
        )
    return BoardRun(
        results.reshape(len(images), outputs),
        text + data,
        objects.get("d", 0),
        data + bss,
        stack,
        cycles,
        instructions,
        spent,
    )


def _run(
    command: Sequence[str], folder: Path, timeout: float, files: dict[str, Path] | None = None
) -> subprocess.CompletedProcess[str]:
    handles = {
        key: path.open("rb" if key == "stdin" else "wb") for key, path in (files or {}).items()
    }
    try:
        return subprocess.run(  # noqa: S603 - a list of words, no shell
            command,
            cwd=folder,
            stdin=handles.get("stdin", subprocess.DEVNULL),
            stdout=handles.get("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise BoardError(
            f"The firmware must end. Received: {Path(command[0]).name} that ran for {timeout} s"
        ) from None
    finally:
        for handle in handles.values():
            handle.close()


def _define(folder: Path, name: str) -> int:
    found = re.search(rf"#define {name} (\d+)", (folder / "model.h").read_text())
    if found is None:
        raise FileNotFoundError(f"directory must have a model.h of to_c(). Received: {folder}")
    return int(found[1])


def _on_host(program: Path, work: Path, timeout: float) -> int:
    files = {"stdin": work / "images.bin", "stdout": work / "results.bin"}
    _run((str(program),), work, timeout, files)
    return 0


def _on_uno(
    program: Path, work: Path, images: np.ndarray, outputs: int, timeout: float
) -> tuple[int, int]:
    """Cycles an image, and bytes of stack."""
    with resources.as_file(resources.files(__package__).joinpath("uno_simulator.c")) as source:
        command = ("gcc", "-O2", "-o", "simulator", str(source), "-lsimavr", "-lelf")
        done = _run(command, work, timeout)
    if done.returncode:
        raise BoardError(
            "board='uno' needs simavr's library (Debian: apt install libsimavr-dev libelf-dev). "
            f"Received: {done.stderr.strip()[-300:]}"
        )
    sizes = (str(images.shape[-1]), str(outputs))
    done = _run(
        (str(work / "simulator"), str(program), "images.bin", "results.bin", *sizes), work, timeout
    )
    if done.returncode:
        raise BoardError(f"The firmware must run. Received: {done.stderr.strip()[-300:]}")
    computing, _, stack, _ = (int(word) for word in done.stdout.splitlines()[-1].split())
    return round(computing / len(images)), stack


def _profile(work: Path, functions: dict[str, tuple[int, int]], examples: int) -> dict[str, int]:
    """Cycles an image of each function; those that the compiler made of one are one."""
    words = np.fromfile(work / "profile.bin", np.uint64)
    result: dict[str, int] = {}
    for name, (address, size) in functions.items():
        cycles = int(words[address // 2 : (address + size) // 2].sum())
        if cycles:
            plain = name.split(".")[0]
            result[plain] = result.get(plain, 0) + cycles
    return {name: round(cycles / examples) for name, cycles in result.items()}


def _on_cortex_m(
    board: Board, program: Path, work: Path, examples: int, timeout: float
) -> tuple[int, int]:
    """Instructions an image, and bytes of stack."""
    done = _run(emulator(board, str(program)), work, timeout)
    if not (work / "report.bin").is_file():
        raise BoardError(
            f"The firmware must run to its end. Received: {done.stderr.strip()[-300:]}"
        )
    loop, low, high, stack = (int(n) for n in np.fromfile(work / "report.bin", np.uint32))
    ticks = low + (high << 32)
    return round(ticks * _LOOP_INSTRUCTIONS / loop / examples), stack
