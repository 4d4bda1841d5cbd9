"""Hand-made networks as configurations of the search space: where a search may begin."""

from typing import NamedTuple

import numpy as np
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Configuration
from keras_sparse.tuner.space import block_key, layer_key


class Network(NamedTuple):
    """A hand-made network: up to three convolutions per block.

    Attributes:
        layers: For each block its convolutions: (filters, kernel, stride).
        pools: Pooling window after each block.
        down: Pooling of the image before; 1 for none. The mean where the space has a choice.
        averaged: Whether each map of the last block is averaged to one value.
    """

    layers: tuple[tuple[tuple[int, int, int], ...], ...]
    pools: tuple[int, ...]
    down: int = 1
    averaged: bool = False


def strided(first: int, second: int, third: int, down: int = 1) -> Network:
    """Strided 3×3, 3×3, max-pooling, 3×3: what was best by hand."""
    return Network((((first, 3, 2), (second, 3, 1)), ((third, 3, 1),)), (2, 1), down)


def pooled(first: int, second: int, third: int) -> Network:
    """3×3 and max-pooling, twice, 3×3: large maps, for sizes that count weights alone."""
    return Network((((first, 3, 1),), ((second, 3, 1),), ((third, 3, 1),)), (2, 2, 1))


def averaged(first: int, second: int, third: int, *last: int, kernel: int = 5) -> Network:
    """Pooling twice on the way to maps that are averaged: hardly any weight is not shared."""
    end = tuple((filters, 3, 1) for filters in last)
    layers = (((first, kernel, 1),), ((second, 3, 1), (third, 3, 1)), end)
    return Network(layers, (2, 2, 1), averaged=True)


def paired(
    first: int, second: int, third: int, fourth: int, stride: int = 1, down: int = 1
) -> Network:
    """Two 3×3, pooling or a stride before, two 3×3, maps averaged: for images of up to 20×20."""
    layers = (((first, 3, stride), (second, 3, 1)), ((third, 3, 1), (fourth, 3, 1)))
    return Network(layers, (2 if stride == 1 else 1, 1), down, averaged=True)


def coarse(first: int, second: int, third: int, down: int, pool: int = 3) -> Network:
    """Two 3×3, pooling to few values, 3×3, maps averaged: on an image made small."""
    layers = (((first, 3, 1), (second, 3, 1)), ((third, 3, 1),))
    return Network(layers, (pool, 1), down, averaged=True)


def lenet_like(first: int, second: int) -> Network:
    """5×5 and max-pooling, twice: few layers for so few weights that each must see much."""
    return Network((((first, 5, 1),), ((second, 5, 1),)), (2, 2))


def strided_pairs(first: int, second: int, third: int, fourth: int) -> Network:
    """As `strided`, with one more 3×3 in the end, and maps averaged: for larger sizes."""
    layers = (((first, 3, 2), (second, 3, 1)), ((third, 3, 1), (fourth, 3, 1)))
    return Network(layers, (2, 1), averaged=True)


def strided_triple(first: int, second: int, third: int, fourth: int, fifth: int) -> Network:
    """As `strided_pairs`, with one more 3×3 before the pooling, and 2×2 in the end."""
    layers = (((first, 3, 2), (second, 3, 1), (third, 3, 1)), ((fourth, 3, 1), (fifth, 2, 1)))
    return Network(layers, (2, 1), averaged=True)


def unpooled(first: int, second: int, third: int, fourth: int, down: int) -> Network:
    """Three 3×3 and one 2×2 on an image made small, maps averaged: inputs and outputs are few."""
    layers = (((first, 3, 1), (second, 3, 1)), ((third, 3, 1), (fourth, 2, 1)))
    return Network(layers, (1, 1), down, averaged=True)


def twice_strided(first: int, second: int, third: int, down: int = 1) -> Network:
    """No large map is ever written: for working memory that counts inputs and outputs."""
    start = 2 if down == 1 else 1
    return Network((((first, 3, start), (second, 3, 2)), ((third, 3, 1),)), (1, 1), down)


def configuration_of(
    network: Network, model: SparseCNN, *, alpha: float = 0.05, threshold: float = 0.0
) -> Configuration:
    """A hand-made network as a configuration of the space, repaired where the image is small.

    Args:
        network: The network.
        model: The space.
        alpha: Weight of the KL term.
        threshold: Of all layers, on log α.
    """
    values: Configuration = {
        "downsample-input": network.down > 1,
        "downsample-input-in-depth": False,
        "input-downsampling-rate": max(network.down, 2),
        "input-pooling-type": "average",
        "pretraining": False,
        "zero-regularization-epochs": 5,
        "annealing-epochs": 20,
        "alpha": alpha,
        "batch-norm": True,
        "residual-connections": False,
        "num-conv-blocks": len(network.layers),
        "pooling-type": "max",
        "global-pooling": "average" if network.averaged else "none",
        "num-fc-layers": 0,
        "left-branch": False,
        "right-branch": False,
    }
    for block, (convolutions, pool) in enumerate(
        zip(network.layers, network.pools, strict=True), start=1
    ):
        values[block_key("num-conv-layers", block)] = len(convolutions)
        values[block_key("pooling-window", block)] = pool
        for layer, (filters, kernel, stride) in enumerate(convolutions, start=1):
            for stem, value in (
                ("layer-type", "Conv2D"),
                ("kernel-size", kernel),
                ("num-filters", filters),
                ("padding", "valid"),
                ("stride", stride),
            ):
                values[layer_key(stem, block, layer)] = value
    for name in model.space.parameters:
        if name.startswith("pruning-thresholds"):
            values[name] = threshold
    known = {name: value for name, value in values.items() if name in model.space.parameters}
    complete = model.space.complete(known, np.random.default_rng(0))
    model.space.check(complete)  # a network outside of the ranges cannot be repaired
    return model.repaired(complete)
