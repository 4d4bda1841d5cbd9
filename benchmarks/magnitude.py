"""Gradual magnitude pruning (Zhu and Gupta, 2017) in Keras 3: the baseline of every comparison."""

from typing import Any

import keras
import numpy as np

from keras_sparse.trimming import hold_zeros


class MagnitudePruning(keras.callbacks.Callback):
    """Prunes the smallest kernel weights of the whole model, more and more of them.

    The share of zeros follows s(t) = s_final·(1 − (1 − t)³), t running from 0 to 1 between the
    epochs `begin` and `end`. Weights of all layers are ranked together, which is the stronger form:
    the share of each layer follows from the data.

    Args:
        sparsity: Final share of zero kernel weights, 0 to 1.
        begin: Epoch of the first pruning.
        end: Epoch from which the masks are fixed.
        every: Steps between two prunings.
    """

    def __init__(self, sparsity: float, begin: int, end: int, every: int = 100) -> None:
        super().__init__()
        self.sparsity, self.begin, self.end, self.every = sparsity, begin, end, every
        self._epoch = 0

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._kernels = hold_zeros(model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if batch % self.every == 0 and self.begin <= self._epoch <= self.end:
            progress = (self._epoch - self.begin) / max(self.end - self.begin, 1)
            self._prune(self.sparsity * (1.0 - (1.0 - min(progress, 1.0)) ** 3))

    def _prune(self, sparsity: float) -> None:
        magnitudes = np.concatenate([np.abs(kernel.numpy()).ravel() for kernel in self._kernels])
        count = round(sparsity * magnitudes.size)
        if count == 0:
            return
        limit = np.partition(magnitudes, count - 1)[count - 1]
        for kernel in self._kernels:
            kept = np.abs(kernel.numpy()) > limit
            kernel.constraint.mask.assign(kept.astype(np.float32))
            kernel.assign(kernel.numpy() * kept)
