"""What tells how a network will do: a few dozen numbers of a configuration, for `own_space`."""

import math

import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Configuration

from keras_sparse.footprint import Graph, Operator

_START = -10.0
"""Log variance of the sparse layers before training, which few steps hardly move."""


def features(model: SparseCNN, configuration: Configuration) -> np.ndarray:
    """Numbers of all networks alike, however many layers they have; shape (features,)."""
    graph = model.graph(configuration)
    layers = [operator for operator in graph.operators if operator.weights]
    numbers = [*_pruning(configuration, layers), *_shape(graph, layers), *_training(configuration)]
    return np.array(numbers, float)


def _pruning(configuration: Configuration, layers: list[Operator]) -> list[float]:
    """What the thresholds leave of each layer, and of the inputs of one of its neurons.

    A short training hardly moves variances, so that a threshold τ cuts at |w| = exp((−10 − τ) / 2),
    and what it leaves follows from how widely the weights were drawn.
    """
    sizes = np.array([layer.parameters for layer in layers], float)
    shares = np.array([_left(configuration, layer) for layer in layers])
    inputs = np.log(
        [0.1 + share * _fan(layer)[0] for share, layer in zip(shares, layers, strict=True)]
    )
    return [
        math.log(sizes.sum()),
        math.log(1.0 + sizes @ shares),
        float(sizes[-1] / sizes.sum()),
        float(shares.min()),
        float(shares.mean()),
        float(shares[0]),
        float(shares[-1]),
        float(np.log(0.01 + shares).sum()),
        float(inputs.min()),
        float(inputs.mean()),
        float(inputs[0]),
        float(inputs[-1]),
        float(inputs[:-1].min()),
    ]


def _left(configuration: Configuration, layer: Operator) -> float:
    """Share of the weights of a layer, drawn by Glorot's rule, that its threshold leaves."""
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


def _shape(graph: Graph, layers: list[Operator]) -> list[float]:
    """How wide, deep and narrow the network is."""
    convolutions = [layer for layer in layers if layer.kind != "Dense"]
    shapes = [graph.shapes[layer.name] for layer in convolutions]
    maps = [math.prod(shape[:2]) for shape in shapes]
    channels = [shape[-1] for shape in shapes]
    tensors = [graph.size(layer.name) for layer in layers[:-1]]
    logarithms = [
        sum(operator.macs for operator in graph.operators),
        min(tensors),
        max(tensors),
        min(channels),
        max(channels),
        channels[-1],
        maps[0],
        maps[-1],
        graph.size(layers[0].inputs[0]),
        layers[-1].weights[0].shape[0],
    ]
    return [
        *(math.log(max(number, 1)) for number in logarithms),
        len(convolutions),
        len(layers),
        sum(layer.kind == "DepthwiseConv2D" for layer in layers),
        max(layer.weights[0].shape[0] for layer in convolutions),
    ]


def _training(configuration: Configuration) -> list[float]:
    """Switches and schedule."""
    c = configuration
    switches = ("pretraining", "batch-norm", "residual-connections", "left-branch", "right-branch")
    return [
        *(float(c[name]) for name in switches),
        float(c["alpha"]),
        float(c["zero-regularization-epochs"]),
        float(c.get("annealing-epochs", 0)),
        float(c["num-conv-blocks"]),
        float(c["num-fc-layers"]),
        float(c.get("pooling-type") == "average"),
        float(c.get("global-pooling") == "average"),
        float(c.get("input-downsampling-rate", 1)),
        float(sum(int(v) for name, v in c.items() if name.startswith("stride"))),
    ]
