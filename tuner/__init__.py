"""Sparse architecture search, imported as `keras_sparse.tuner`."""

from .hypermodel import SparseCNN
from .inherit import inherit
from .morphs import Morph, morph
from .parameters import Configuration, Parameter, Space
from .posterior import posterior_of

__all__ = [
    "Configuration",
    "Morph",
    "Parameter",
    "Space",
    "SparseCNN",
    "inherit",
    "morph",
    "posterior_of",
]
