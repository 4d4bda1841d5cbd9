"""What pruning thresholds will leave of a network, guessed before it is trained.

Sparse layers start with log σ² = −10, which Adam moves slowly, and weights drawn by Glorot's rule.
A threshold τ on log α then cuts at about |w| = exp((−10 − τ) / 2): how much that leaves depends on
how wide a layer is, which the threshold alone does not say. Training moves both, so that this ranks
networks rather than counts their weights.
"""

import math

import numpy as np

from keras_sparse.footprint import Graph, Operator

from .parameters import Configuration

_START = -10.0
_LEAST = 0.1
"""Inputs of a neuron of which nothing is left: their logarithm must be finite."""


class Survivors:
    """What is left of each layer with weights.

    Args:
        graph: The network.
        configuration: With its thresholds.

    Attributes:
        layers: The layers with weights, in order.
        sizes: Their parameters before pruning, shape (layers,).
        shares: Share of the weights of each that is left, shape (layers,).
        inputs: Logarithm of how many inputs a neuron of each layer keeps, shape (layers,).
    """

    def __init__(self, graph: Graph, configuration: Configuration) -> None:
        self.layers = [operator for operator in graph.operators if operator.weights]
        self.sizes = np.array([layer.parameters for layer in self.layers], float)
        self.shares = np.array([_left(configuration, layer) for layer in self.layers])
        fans = np.array([_fan(layer)[0] for layer in self.layers])
        self.inputs = np.log(_LEAST + self.shares * fans)

    @property
    def total(self) -> float:
        """Logarithm of the parameters that are left in all."""
        return math.log(1.0 + float(self.sizes @ self.shares))


def _left(configuration: Configuration, layer: Operator) -> float:
    """Share of the weights of a layer that its threshold leaves."""
    inputs, outputs = _fan(layer, as_drawn=True)
    cut = math.exp((_START - _threshold(configuration, layer)) / 2)
    return max(0.0, 1.0 - cut / math.sqrt(6.0 / (inputs + outputs)))


def _fan(layer: Operator, as_drawn: bool = False) -> tuple[int, int]:
    """Weights into and out of a neuron; Keras draws depthwise kernels as if they read all maps."""
    *window, inputs, outputs = layer.weights[0].shape
    area = math.prod(window)
    if layer.kind == "DepthwiseConv2D" and not as_drawn:
        return area, area
    return area * inputs, area * outputs


def _threshold(configuration: Configuration, layer: Operator) -> float:
    name = layer.name.split("/")[0]
    for suffix in ("-reduce", "-match"):
        name = name.removesuffix(suffix)
    return float(configuration[f"pruning-thresholds-{name}"])
