"""Emulated boards on which generated C runs."""

from .known import BOARDS, Board
from .running import BoardRun, run_on_board
from .tools import BoardError

__all__ = ["BOARDS", "Board", "BoardError", "BoardRun", "run_on_board"]
