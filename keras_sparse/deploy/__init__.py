"""From a trained Keras model to TFLite Micro and to sparse C, run and measured.

Registers the models of working memory "tflm-arena" and "streamed-c" and the model of size "c-flash"
with `keras_sparse.footprint`.
"""

from .arena import measured_arena
from .c import BoardError, BoardRun, Firmware, run_on_board, to_c
from .converting import to_tflite
from .exporting import export
from .micro import MicroModel
from .quantizing import quantize

__all__ = [
    "BoardError",
    "BoardRun",
    "Firmware",
    "MicroModel",
    "export",
    "measured_arena",
    "quantize",
    "run_on_board",
    "to_c",
    "to_tflite",
]
