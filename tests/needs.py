"""Programs that are not Python's: a test without them is skipped, but never where all must run."""

import os
import shutil

import pytest

UNO = ("avr-gcc", "simavr")


def require(*programs: str) -> None:
    """Skips the test if a program is missing; in continuous integration it fails instead."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}: .ci/run says which packages have them"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def require_board(board: str) -> None:
    """The same for a board; the others have compilers and emulators from Python packages."""
    require(*(UNO if board == "uno" else ()))
