"""Sparse Keras layers and what happens to a trained model on its way to a microcontroller."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_sparse needs Keras on TensorFlow: set the environment variable "
        f"KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}"
    )

from .callbacks import KLAnnealing
from .conversion import sparsify
from .counting import sparsity
from .drawing import plot_network
from .footprint import measure
from .stripping import strip
from .trimming import Trimming

__version__ = "0.1.0.dev0"
__all__ = [
    "KLAnnealing",
    "Trimming",
    "measure",
    "plot_network",
    "sparsify",
    "sparsity",
    "strip",
]
