"""Trains one network several times from the same start: tracing it anew would take longer."""

from typing import Any

import keras


class Start:
    """What a compiled model was before its training.

    Args:
        model: Built; its weights, noise and optimizer are remembered.
    """

    def __init__(self, model: keras.Model) -> None:
        model.optimizer.build(model.trainable_variables)
        variables: list[Any] = [*model.variables, *model.optimizer.variables]
        self._values = [(variable, variable.numpy()) for variable in variables]

    def restore(self) -> None:
        """Makes the model what it was; its traced functions stay."""
        for variable, value in self._values:
            variable.assign(value)
