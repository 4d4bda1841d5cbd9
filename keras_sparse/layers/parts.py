"""Several named arrays in one variable.

An optimizer spends dozens of operations on every variable, whatever its size: in a network for a
microcontroller that is a good part of a training step. So what a layer learns beside its kernels
and bias is one flat variable, and these parts of it have the names and shapes.
"""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf


class VariablePart(NamedTuple):
    """A part of a flat variable that reads and assigns like a variable of its own.

    Attributes:
        name: Of the part.
        shape: Of the part.
        start: Its first element in the variable.
        variable: Shape (elements,).
    """

    name: str
    shape: tuple[int, ...]
    start: int
    variable: keras.Variable

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def value(self) -> tf.Tensor:
        """The part as a tensor of its shape."""
        flat = tf.convert_to_tensor(self.variable)[self.start : self.start + self.size]
        return tf.reshape(flat, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value(), dtype)

    def assign(self, value: Any) -> None:
        """Sets the part; `value` must have its shape."""
        value = np.asarray(value)
        if value.shape != self.shape:
            raise ValueError(
                f"value must have the shape {self.shape} of {self.name}. "
                f"Received: value of shape {value.shape}"
            )
        whole = np.array(self.variable)
        whole[self.start : self.start + self.size] = value.ravel()
        self.variable.assign(whole)


def parts_of(
    variable: keras.Variable, shapes: dict[str, tuple[int, ...]]
) -> dict[str, VariablePart]:
    """The parts of a flat variable, one after the other in the order of `shapes`."""
    parts, start = {}, 0
    for name, shape in shapes.items():
        parts[name] = VariablePart(name, shape, start, variable)
        start += parts[name].size
    return parts
