"""Drop-in sparse twins of Dense, Conv2D, DepthwiseConv2D and SeparableConv2D."""

from .base import SparseLayer
from .bc import BCConv2D, BCDense, BCDepthwiseConv2D, BCMixin, BCSeparableConv2D
from .spvd import SpVDConv2D, SpVDDense, SpVDDepthwiseConv2D, SpVDMixin, SpVDSeparableConv2D

__all__ = [
    "BCConv2D",
    "BCDense",
    "BCDepthwiseConv2D",
    "BCMixin",
    "BCSeparableConv2D",
    "SpVDConv2D",
    "SpVDDense",
    "SpVDDepthwiseConv2D",
    "SpVDMixin",
    "SpVDSeparableConv2D",
    "SparseLayer",
]
