"""Emulated boards on which generated C runs."""

from .known import BOARDS, Board
from .running import BoardError, BoardRun, run_on_board

__all__ = ["BOARDS", "Board", "BoardError", "BoardRun", "run_on_board"]
