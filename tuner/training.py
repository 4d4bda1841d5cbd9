"""What `SparseTuner.search` was given to train with, checked before any work is done."""

import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from sklearn.model_selection import StratifiedKFold

from keras_sparse.datasets import check_data

from .hypermodel import count_examples


class Training(NamedTuple):
    """Data and arguments of every trial's `fit`.

    Attributes:
        x: Arrays, or a batched `tf.data.Dataset` of (x, y) or (x, y, weights).
        y: Labels; None with a data set.
        validation: (x, y) or a batched data set; None with folds.
        epochs: Of a trial from scratch; None for the configurations' own schedules.
        batch_size: Examples of a step, for arrays.
        callbacks: The user's; each trial gets copies.
        augment: A function or Keras layer that changes a batch of training images.
        class_weight: As in `fit`.
        sample_weight: As in `fit`, for arrays.
        folds: Number of folds of a cross-validation; 0 for none.
        recovery: Share of a trial's epochs in which what is left trains without noise.
        total: Number of examples in `x`.
    """

    x: Any
    y: Any
    validation: Any
    epochs: int | None = None
    batch_size: int = 128
    callbacks: Sequence[keras.callbacks.Callback] = ()
    augment: Callable[[Any], Any] | None = None
    class_weight: Mapping[int, float] | None = None
    sample_weight: Any = None
    folds: int = 0
    recovery: float = 0.0
    total: int = 0

    @property
    def examples(self) -> int:
        """Training examples of one epoch."""
        return self.total * (self.folds - 1) // self.folds if self.folds else self.total

    @property
    def steps(self) -> int:
        """Batches of one epoch."""
        if isinstance(self.x, tf.data.Dataset):
            return sum(1 for _ in self.x)
        return -(-self.examples // self.batch_size)

    def splits(self) -> "Iterator[Training]":
        """One training for each fold; without folds just this one."""
        if not self.folds:
            yield self
            return
        cutter = StratifiedKFold(self.folds, shuffle=True, random_state=0)
        for train, val in cutter.split(np.zeros(len(self.y)), self.y):
            weight = None if self.sample_weight is None else self.sample_weight[train]
            yield self._replace(
                x=self.x[train],
                y=self.y[train],
                validation=(self.x[val], self.y[val]),
                sample_weight=weight,
                folds=0,
                total=len(train),
            )

    def fit_arguments(self, seed: int) -> dict[str, Any]:
        """Arguments of `fit` for data, validation and weights."""
        common = {"validation_data": self.validation, "class_weight": _as_dict(self.class_weight)}
        if self.y is None:
            data = self.x if self.augment is None else self.x.map(self._augmentation(seed))
            return {"x": data, "shuffle": False, **common}
        if self.augment is None:
            arrays = {"x": self.x, "y": self.y, "sample_weight": self.sample_weight}
            return {**arrays, "batch_size": self.batch_size, **common}
        parts = [self.x, self.y] + ([] if self.sample_weight is None else [self.sample_weight])
        dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
        dataset = dataset.shuffle(len(self.x), seed=seed).batch(self.batch_size)
        dataset = dataset.map(self._augmentation(seed)).prefetch(2)
        return {"x": dataset, "shuffle": False, **common}

    def _augmentation(self, seed: int) -> Callable[..., tuple[Any, ...]]:
        # The trial's own layers: those of the user would go on where the last trial stopped.
        augment = seeded(self.augment, seed)
        kwargs = {"training": True} if isinstance(augment, keras.layers.Layer) else {}
        return lambda x, *rest: (augment(x, **kwargs), *rest)


def seeded(augment: Any, seed: int) -> Any:
    """A copy of a random Keras layer, or of a Sequential of them, that draws from `seed`."""
    if isinstance(augment, keras.Sequential):
        layers = [seeded(layer, seed + i) for i, layer in enumerate(augment.layers)]
        return keras.Sequential(layers)
    if isinstance(augment, keras.layers.Layer) and "seed" in augment.get_config():
        return type(augment).from_config({**augment.get_config(), "seed": seed})
    return augment


def checked(
    training: Training,
    num_classes: int | None = None,
    input_shape: tuple[int, int, int] | None = None,
) -> Training:
    """What the user gave, its examples counted; raises in one sentence where trials would fail.

    Args:
        training: What the user gave.
        num_classes: Of the networks; None if not known.
        input_shape: Of the networks; None if not known.
    """
    epochs, batch_size, folds = training.epochs, training.batch_size, training.folds
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value is not None and not (isinstance(value, numbers.Integral) and value >= 1):
            raise ValueError(f"{name} must be a whole number of at least 1. Received: {value!r}")
    if not isinstance(folds, numbers.Integral) or folds < 0 or folds == 1:
        raise ValueError(f"folds must be 0 or at least 2. Received: folds={folds!r}")
    recovery = training.recovery
    is_number = isinstance(recovery, numbers.Real) and not isinstance(recovery, bool)
    if not is_number or not 0 <= recovery < 1:
        raise ValueError(
            f"recovery must be at least 0 and below 1. Received: recovery={recovery!r}"
        )
    is_dataset = isinstance(training.x, tf.data.Dataset)
    if is_dataset and training.y is not None:
        raise ValueError("y must be None with a tf.data.Dataset, which holds the labels itself.")
    if is_dataset and folds:
        raise ValueError("folds need arrays x and y. Received: a tf.data.Dataset")
    if not is_dataset and training.y is None:
        raise ValueError("y must be given with arrays. Received: y=None")
    if training.validation is None and not folds:
        raise ValueError(
            "validation_data=(x, y) must be given, or folds=k for a cross-validation: "
            "what is selected must not be selected on the training data. Received: neither"
        )
    _check_shape("x", training.x, input_shape)
    _check_weights(training, is_dataset)
    if folds:
        y = np.asarray(training.y)
        training = training._replace(x=np.asarray(training.x), y=y)
        fewest = int(np.unique(y, return_counts=True)[1].min()) if len(y) else 0
        if fewest < folds:
            raise ValueError(
                f"folds must be at most the examples of the rarest class, {fewest}. "
                f"Received: folds={folds}"
            )
    if num_classes is not None and not is_dataset:
        check_data(np.asarray(training.x), np.asarray(training.y), num_classes)
        _warn_of_raw_pixels("x", training.x)
    if num_classes is not None and isinstance(training.validation, tuple):
        x, y = training.validation[:2]
        check_data(np.asarray(x), np.asarray(y), num_classes, name="validation_data")
        _check_shape("validation_data", x, input_shape)
    return _with_tensors(training._replace(total=count_examples(training.x)))


def _with_tensors(training: Training) -> Training:
    """Arrays as tensors, made once: `fit` copies NumPy arrays anew each time it is called."""
    if training.folds:  # each fold takes its own rows
        return training
    validation = training.validation
    return training._replace(
        x=_tensor(training.x),
        y=_tensor(training.y),
        sample_weight=_tensor(training.sample_weight),
        validation=tuple(map(_tensor, validation)) if isinstance(validation, tuple) else validation,
    )


def _tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        return array
    return tf.convert_to_tensor(
        array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
    )


def _check_shape(name: str, x: Any, expected: tuple[int, int, int] | None) -> None:
    if expected is None:
        return
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec
        shape = tuple(spec[0].shape) if isinstance(spec, tuple) and spec[0].shape.rank else ()
    else:
        shape = tuple(np.shape(x))
    if len(shape) != 4 or any(n not in (None, m) for n, m in zip(shape[1:], expected, strict=True)):
        raise ValueError(
            f"{name} must hold batches of images of the hypermodel's input_shape "
            f"{expected}{_shape_hint(shape, expected)}. Received: shape {shape}"
        )


def _shape_hint(shape: tuple[Any, ...], expected: tuple[int, int, int]) -> str:
    height, width, channels = expected
    if shape[1:] == (height, width) and channels == 1:
        return ": the channel is missing, take x[..., np.newaxis]"
    if shape[1:] == (channels, height, width):
        return ": channels come last, take np.moveaxis(x, 1, -1)"
    if shape == expected:
        return ": one image is not a batch, take x[np.newaxis]"
    return ""


def _warn_of_raw_pixels(name: str, x: Any) -> None:
    largest = float(np.max(np.abs(x), initial=0.0)) if np.asarray(x).dtype.kind in "iuf" else 0.0
    if largest > _LARGEST:
        warnings.warn(
            f"{name} has values up to {largest:.0f}, with which training is slow or fails: take "
            "(x - x_train.mean()) / x_train.std() for training, validation and test images.",
            stacklevel=4,
        )


_LARGEST = 30.0
"""Normalised images have smaller values; those of raw pixels go up to 255."""


def _check_weights(training: Training, is_dataset: bool) -> None:
    weights = training.sample_weight
    if weights is None:
        return
    if training.class_weight is not None:
        raise ValueError("sample_weight and class_weight exclude each other. Received: both")
    if is_dataset:
        raise ValueError(
            "sample_weight must be in the data set, as (x, y, weights). Received: sample_weight "
            "beside a tf.data.Dataset"
        )
    if len(weights) != len(training.x):
        raise ValueError(
            "sample_weight must have one number per example. "
            f"Received: {len(weights)} for {len(training.x)} examples"
        )


def _as_dict(weights: Mapping[int, float] | None) -> dict[int, float] | None:
    return None if weights is None else dict(weights)
