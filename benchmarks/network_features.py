"""What tells how a network will do: a few dozen numbers of a configuration, for `own_space`."""

import math

import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Configuration
from keras_sparse.tuner.survivors import Survivors

from keras_sparse.footprint import Graph, Operator


def features(model: SparseCNN, configuration: Configuration) -> np.ndarray:
    """Numbers of all networks alike, however many layers they have; shape (features,)."""
    graph = model.graph(configuration)
    left = Survivors(graph, configuration)
    numbers = [*_pruning(left), *_shape(graph, left.layers), *_training(configuration)]
    return np.array(numbers, float)


def _pruning(left: Survivors) -> list[float]:
    """What the thresholds leave of each layer, and of the inputs of one of its neurons."""
    sizes, shares, inputs = left.sizes, left.shares, left.inputs
    return [
        math.log(sizes.sum()),
        left.total,
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
