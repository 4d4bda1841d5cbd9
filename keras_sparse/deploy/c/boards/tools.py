"""Compilers and emulators: Debian's where they are installed, else those of PyPI.

Programs for Cortex-M can be built by `ziglang`, a clang, and run by `unicorn`: both come with
`pip install "keras-sparse[boards]"`, without the rights of an administrator.
"""

import importlib.util
import shutil
import sys
from importlib import resources

from .known import CORTEX_M_C, SECTIONS, Board

_ZIG = ("-target", "thumb-freestanding-eabi", "-Wl,--entry=reset_handler", "-fno-sanitize=all")


class BoardError(RuntimeError):
    """A network that does not fit on a board, or a tool that is missing or fails."""


def require_tools(board: Board) -> None:
    """Raises a BoardError, which says what to install, if something is missing."""
    missing = [tool for tool in board.tools if not _is_there(tool)]
    if board.cpu:
        replaced = {"arm-none-eabi-gcc": "ziglang", "qemu-system-arm": "unicorn"}
        missing = [tool for tool in missing if not _has_module(replaced[tool])]
    if missing:
        pip = ', or without root: pip install "keras-sparse[boards]"' if board.cpu else ""
        raise BoardError(
            f"board={board.name!r} needs the programs {', '.join(board.tools)} "
            f"(Debian: apt install {board.packages}{pip}). Received: no {', '.join(missing)}"
        )


def compiler(board: Board) -> tuple[str, ...]:
    """The compiler of a board with its flags."""
    gcc = f"{board.prefix}gcc"
    if not board.cpu or _is_there(gcc):
        return gcc, *board.flags
    cpu = f"-mcpu={board.cpu.replace('-', '_')}"
    zig = (sys.executable, "-m", "ziglang", "cc", *_ZIG, cpu)
    return *zig, *CORTEX_M_C, *SECTIONS, "-T", f"{board.name}.ld"


def libraries(board: Board) -> tuple[str, ...]:
    """What the linker needs; zig brings its own."""
    return board.libraries if not board.cpu or _is_there(f"{board.prefix}gcc") else ()


def emulator(board: Board, program: str) -> tuple[str, ...]:
    """The command that runs a Cortex-M program."""
    if not _is_there("qemu-system-arm"):
        script = str(resources.files(__package__).joinpath("unicorn_emulator.py"))
        return sys.executable, script, program, board.cpu, str(board.origin), str(board.ram)
    return (
        *("qemu-system-arm", "-M", board.name, "-kernel", program),
        *("-display", "none", "-monitor", "none", "-serial", "none"),
        *("-semihosting-config", "enable=on,target=native"),
        *("-icount", f"shift={board.shift},sleep=off"),
    )


def _is_there(tool: str) -> bool:
    return shutil.which(tool) is not None


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
