"""Sparse C for microcontrollers: generated, and run on emulated boards."""

from ...footprint import register_memory_model, register_size_model
from .boards import BOARDS, BoardError, BoardRun, run_on_board
from .estimating import streamed_ram, table_bytes
from .generating import Firmware, to_c

__all__ = ["BOARDS", "BoardError", "BoardRun", "Firmware", "run_on_board", "to_c"]

register_memory_model("streamed-c", streamed_ram)
register_size_model("c-flash", table_bytes)
