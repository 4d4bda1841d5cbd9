"""Trimming: a plain model to a size while it trains; what is zero stays zero.

Thresholds of sparse layers say which weights are noise, not how many are left. A microcontroller
asks for a size: `Trimming` takes away the least important of what is left until it is met.
"""

import math
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from . import trim_rules
from .checking import check_number, to_bytes
from .counting import KERNEL_NAMES, sparse_layers
from .footprint import read
from .trim_rules import Sizes
from .walking import check_graph, is_graph


class Trimming(keras.callbacks.Callback):
    """Sets ever more of the least important weights of a plain model to zero while it trains.

    Which ones: by LAMP (Lee et al., 2021) over all kernels; for the working memory the smallest of
    each layer that is too large. How many: the first before the first step after `begin`, all that
    is too much before that after `end`, most of them early (a cubic curve). Biases stay. What is
    zero, also from before, stays zero in this and in later trainings of the model, not of a copy;
    without limits that is all that happens.

        small = strip(model)
        small.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        small.fit(x, y, epochs=30, callbacks=[Trimming(flash="2KB")])

    Weights of an epoch before `end` are too large: give `EarlyStopping(restore_best_weights=True)`
    a `start_from_epoch` behind it.

    In a custom training loop call `set_params({"epochs": ...})` and `set_model(model)` once,
    `on_epoch_begin(epoch)` every epoch and `on_train_end()` after the last.

    Args:
        parameters: So many are left at most, biases included; None for no limit.
        flash: Bytes in int8, indices included, or a text such as "2KB": what `measure` has as
            `sparse_bytes`; None for no limit.
        working_memory: Likewise of the inputs and parameters of each layer: what `measure` has as
            `working_memory` by its model "inputs+weights"; None for no limit.
        begin: Share of the epochs before the first weight goes.
        end: Share of the epochs after which the limits hold.
    """

    def __init__(
        self,
        parameters: int | None = None,
        *,
        flash: int | str | None = None,
        working_memory: int | str | None = None,
        begin: float = 0.0,
        end: float = 0.5,
    ) -> None:
        super().__init__()
        if parameters is not None:
            check_number("parameters", parameters, whole=True, minimum=1)
        limits = {
            "parameters": parameters,
            "flash": to_bytes("flash", flash),
            "working_memory": to_bytes("working_memory", working_memory),
        }
        check_number("begin", begin, whole=False, minimum=0)
        check_number("end", end, whole=False, minimum=0)
        if not begin < end <= 1:
            raise ValueError(
                "begin must be below end, and end at most 1: they are shares of the epochs. "
                f"Received: begin={begin!r}, end={end!r}"
            )
        self.limits = {name: int(value) for name, value in limits.items() if value is not None}
        self.begin, self.end = float(begin), float(end)

    def set_model(self, model: keras.Model) -> None:
        """Checks that the limits can be met, and holds what is zero now."""
        super().set_model(model)
        least = smallest_sizes(model)
        for name, limit in self.limits.items():
            if limit < getattr(least, name):
                raise ValueError(
                    f"{name} must be at least {getattr(least, name):,}, what model "
                    f"{model.name!r} takes with one weight in each kernel. Received: "
                    f"{name}={limit:,}"
                )
        self._start = sizes_left(model).parameters
        self._share = 0.0
        hold_zeros(model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes away what is due."""
        self._share = self.share(epoch)
        self._trim()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Cuts what averaging weights has brought back; warns if the limits do not hold."""
        if getattr(getattr(self.model, "optimizer", None), "use_ema", False):
            for kernel in kernels_of(self.model).values():
                kernel.assign(kernel.constraint(kernel))
        left = sizes_left(self.model)
        above = [name for name, most in self.limits.items() if getattr(left, name) > most]
        if above:
            warnings.warn(
                f"{above[0]} is {getattr(left, above[0]):,} after the training, above its limit: "
                f"train on to {self.end:.0%} of the epochs at least, and restore no weights from "
                f"before. Received: {above[0]}={self.limits[above[0]]:,}",
                stacklevel=2,
            )

    def share(self, epoch: int) -> float:
        """Of what is too much, so much is gone in `epoch`, counted from 0."""
        epochs = (self.params or {}).get("epochs")
        if epochs is None:
            raise ValueError(
                "Trimming needs the number of epochs: in a custom training loop call "
                f'set_params({{"epochs": ...}}) first. Received: params={self.params!r}'
            )
        progress = (epoch + 1 - self.begin * epochs) / ((self.end - self.begin) * epochs)
        return float(1.0 - (1.0 - np.clip(progress, 0.0, 1.0)) ** 3)

    def _trim(self) -> None:
        memory, flash = self.limits.get("working_memory"), self.limits.get("flash")
        limit = self.limits.get("parameters")
        if memory is not None:
            trim_layers(self.model, memory, self._share)
        if flash is not None:
            fitting = trim_rules.parameters_within(read(self.model), kernels_of(self.model), flash)
            limit = fitting if limit is None else min(limit, fitting)
        if limit is not None and limit < self._start:
            trim(self.model, math.floor(self._start + (limit - self._start) * self._share))


class Mask(keras.constraints.Constraint):
    """Holds weights at zero: the optimizer applies it after every update.

    Args:
        kernel: The weights; a constraint that they have is applied before.
    """

    def __init__(self, kernel: Any) -> None:
        self.first = kernel.constraint
        self.mask = tf.Variable(tf.ones(kernel.shape, kernel.dtype), trainable=False)

    def __call__(self, kernel: Any) -> tf.Tensor:
        """The weights of which only those stay that the mask keeps."""
        kernel = kernel if self.first is None else self.first(kernel)
        return tf.convert_to_tensor(kernel) * self.mask


def kernels_of(model: keras.Model, prefix: str = "") -> dict[str, Any]:
    """The trainable kernels of a plain model and of models in it, by their names in its graph."""
    found: dict[str, Any] = {}
    for layer in model.layers:
        if is_graph(layer):
            inner = kernels_of(layer, f"{prefix}{layer.name}/")
        else:
            inner = {
                f"{prefix}{layer.name}/{name}": getattr(layer, name, None) for name in KERNEL_NAMES
            }
        found.update((name, kernel) for name, kernel in inner.items() if kernel is not None)
    return {name: kernel for name, kernel in found.items() if kernel.trainable}


def hold_zeros(model: keras.Model) -> list[Any]:
    """Makes every kernel weight that is zero now stay zero in training; returns the kernels."""
    kernels = list(kernels_of(model).values())
    for kernel in kernels:
        if not isinstance(kernel.constraint, Mask):
            kernel.constraint = Mask(kernel)
            model.train_function = None  # one that was traced before knows nothing of the mask
        kernel.constraint.mask.assign(tf.cast(tf.not_equal(kernel.value, 0.0), kernel.dtype))
    return kernels


def sizes_left(model: keras.Model) -> Sizes:
    """What a plain model takes in int8."""
    return trim_rules.sizes_of(read(model))


def smallest_sizes(model: keras.Model) -> Sizes:
    """The least that trimming can make of a plain model; raises if it is none."""
    check_graph(model, "Trimming")
    sparse = [layer.name for layer in sparse_layers(model)]
    if sparse:
        raise ValueError(
            "Trimming takes a plain model: strip(model) makes one of a model with sparse layers. "
            f"Received: the sparse layers {', '.join(map(repr, sparse))}"
        )
    return trim_rules.least_of(read(model), kernels_of(model))


def trim(model: keras.Model, parameters: int) -> None:
    """Sets the least important weights to zero until at most so many parameters are left."""
    _apply(model, trim_rules.trimmed(read(model), kernels_of(model), parameters))


def trim_layers(model: keras.Model, memory: int, share: float = 1.0) -> None:
    """Sets each layer's smallest weights to zero until its inputs and parameters fit.

    Args:
        model: A plain model.
        memory: Bytes that a layer may take, in inputs and parameters.
        share: Of what is too much, so much goes.
    """
    _apply(model, trim_rules.trimmed_layers(read(model), kernels_of(model), memory, share))


def _apply(model: keras.Model, masks: trim_rules.Masks) -> None:
    kernels = kernels_of(model)
    for name, mask in masks.items():
        kernels[name].assign(kernels[name].numpy() * mask)
    hold_zeros(model)
