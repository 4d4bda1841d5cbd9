"""Sparse architecture search, imported as `keras_sparse.tuner`."""

from .answers import TrialRecord
from .budget import Budget
from .cost import CostModel, calibrate
from .hypermodel import SparseCNN
from .inherit import inherit
from .morphs import Morph, morph
from .oracle import SparseOracle
from .parameters import Configuration, Parameter, Space
from .posterior import posterior_of
from .reading import read_search
from .report import write_report
from .stages import Stage
from .tuner import SparseTuner

__all__ = [
    "Budget",
    "Configuration",
    "CostModel",
    "Morph",
    "Parameter",
    "Space",
    "SparseCNN",
    "SparseOracle",
    "SparseTuner",
    "Stage",
    "TrialRecord",
    "calibrate",
    "inherit",
    "morph",
    "posterior_of",
    "read_search",
    "write_report",
]
