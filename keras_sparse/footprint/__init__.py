"""What a network takes in flash and RAM: `measure`, the models of memory and the graph."""

from .graph import Graph, Operator, Weights
from .measuring import Footprint, NodeFootprint, measure
from .model_sizes import SizeModel
from .model_sizes import names as size_models
from .model_sizes import register as register_size_model
from .reading import read
from .working_memory import MemoryModel
from .working_memory import names as memory_models
from .working_memory import register as register_memory_model

__all__ = [
    "Footprint",
    "Graph",
    "MemoryModel",
    "NodeFootprint",
    "Operator",
    "SizeModel",
    "Weights",
    "measure",
    "memory_models",
    "read",
    "register_memory_model",
    "register_size_model",
    "size_models",
]
