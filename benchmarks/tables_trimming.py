"""Weights that are set to zero and stay zero: to a number of parameters, to a working memory."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.magnitude import Mask
from keras_sparse import measure

_SEPARABLE = (keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)
_DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)


def kernels_of(layer: Any) -> list[Any]:
    """Variables of a layer that can be sparse; a separable convolution has two."""
    return [variable for variable in layer.trainable_variables if len(variable.shape) >= 2]


def hold(model: keras.Model) -> None:
    """Makes every weight that is zero now stay zero in training."""
    for layer in model.layers:
        for kernel in kernels_of(layer):
            # `fit` goes on with the graph of its first call, which knows the first mask.
            mask = kernel.constraint if isinstance(kernel.constraint, Mask) else Mask(kernel.shape)
            mask.mask.assign(tf.cast(tf.not_equal(kernel.value, 0.0), tf.float32))
            kernel.constraint = mask


def parameters_left(model: keras.Model) -> int:
    """Parameters that are not zero, with those that int8 adds.

    In int8 a separable convolution is two, and the first of them has biases, too, which the
    training with fake quantization moves away from zero.
    """
    separable = [layer for layer in model.layers if isinstance(layer, _SEPARABLE)]
    return measure(model).nonzeros + sum(
        int(np.prod(layer.depthwise_kernel.shape[-2:])) for layer in separable
    )


def trim(model: keras.Model, limit: int) -> None:
    """Sets the least important weights to zero until at most `limit` parameters are left.

    By LAMP (Lee et al., 2021): the square of a weight over the sum of squares of those of its array
    that are not smaller. It spares layers of which little is left. Weights are compared as they
    will be stored, batch normalization folded in.
    """
    excess = parameters_left(model) - limit
    pairs = [(layer, kernel) for layer in model.layers for kernel in kernels_of(layer)]
    scores = [_lamp(kernel.numpy() * _norm_scale(model, layer, kernel)) for layer, kernel in pairs]
    alive = np.concatenate([score[score > 0] for score in scores])
    if excess <= 0 or excess >= len(alive):
        return
    cut = np.partition(alive, excess - 1)[excess - 1]
    for (_, kernel), score in zip(pairs, scores, strict=True):
        kernel.assign(np.where(score > cut, kernel.numpy(), 0.0))
    hold(model)


def trim_layers(model: keras.Model, memory: int, share: float = 1.0) -> None:
    """Sets each layer's smallest weights to zero until its inputs and parameters fit.

    A layer whose inputs alone are too many is left as it is.

    Args:
        model: A plain model.
        memory: Values that a layer may take, in inputs and parameters.
        share: Of what is too much, so much goes.
    """
    nodes = {row.name: row for row in measure(model, working_memory="inputs+weights").nodes}
    for layer in model.layers:
        for kernel in kernels_of(layer):
            is_first = isinstance(layer, _SEPARABLE) and kernel is layer.depthwise_kernel
            node = nodes[f"{layer.name}/depthwise" if is_first else layer.name]
            is_depthwise = is_first or isinstance(layer, _DEPTHWISE)
            biases = int(np.prod(kernel.shape[-2:] if is_depthwise else kernel.shape[-1:]))
            room = memory - (node.working_memory - node.nonzeros) - biases
            most = math.ceil(room + (1.0 - share) * max(0, kernel.numpy().size - room))
            weights = np.abs(kernel.numpy() * _norm_scale(model, layer, kernel)).ravel()
            if room < 1 or np.count_nonzero(weights) <= most:
                continue
            keep = np.zeros(weights.size, bool)
            keep[np.argsort(-weights, kind="stable")[:most]] = True
            kernel.assign(kernel.numpy() * keep.reshape(kernel.shape))
    hold(model)


def _lamp(weights: np.ndarray) -> np.ndarray:
    """Scores of the weights of an array, of its shape; 0 for what is zero, 1 for the largest."""
    squares = np.square(weights, dtype=np.float64).ravel()
    order = np.argsort(-squares, kind="stable")
    scores = np.zeros_like(squares)
    scores[order] = squares[order] / np.maximum(np.cumsum(squares[order]), 1e-300)
    return scores.reshape(weights.shape)


def _norm_scale(model: keras.Model, layer: Any, kernel: Any) -> np.ndarray:
    """By what a batch normalization behind a layer multiplies its outputs."""
    norm = next((n for n in model.layers if n.name == f"{layer.name}-norm"), None)
    if norm is None or norm.moving_variance.shape[0] != kernel.shape[-1]:
        return np.ones(1, np.float32)
    gamma = 1.0 if norm.gamma is None else norm.gamma.numpy()
    return np.asarray(gamma / np.sqrt(norm.moving_variance.numpy() + norm.epsilon))
