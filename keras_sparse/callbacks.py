"""KLAnnealing: brings the KL term into the loss bit by bit and logs how sparse the model is."""

from typing import Any

import keras

from .checking import check_number
from .counting import sparse_layers, sparsity

_OTHER_STEP = "_keras_sparse_other_step"
"""Attribute of a model: its training step when it was last switched, and the one before."""


class KLAnnealing(keras.callbacks.Callback):
    """Schedules the weight of the KL divergence of every sparse layer and logs their sparsity.

    In epoch e (from 0) the loss is loss + γ(e)·KL/N with γ(e) = 0 for e < `zero_epochs`, then
    rising linearly to `weight` over `annealing_epochs`, then constant. In the last
    `recovery_epochs` what is left after pruning trains without noise and KL term: short trainings
    prune weights that are not quite noise yet, and this makes up for them.

    Every epoch's logs (`History`, the progress bar, TensorBoard) get `sparsity` (share of the
    model's kernel weights that are zero in prediction), `nonzeros` (how many are not), `kl` (in
    nats) and `kl_weight` (γ). Put it before callbacks that read those.

    In a custom training loop call `set_model(model)` once and `on_epoch_begin(epoch)` every epoch,
    and add `sum(model.losses)` to the loss.

    Args:
        num_examples: N, the number of training examples.
        zero_epochs: Epochs without the KL term.
        annealing_epochs: Epochs over which γ rises; 0 for a step.
        weight: Final γ; 1 is the variational lower bound, more prunes more.
        recovery_epochs: Last epochs of `fit`, for what is left.
    """

    def __init__(
        self,
        num_examples: int,
        zero_epochs: int = 5,
        annealing_epochs: int = 15,
        weight: float = 1.0,
        recovery_epochs: int = 0,
    ) -> None:
        super().__init__()
        check_number("num_examples", num_examples, whole=True, minimum=1)
        check_number("zero_epochs", zero_epochs, whole=True, minimum=0)
        check_number("annealing_epochs", annealing_epochs, whole=True, minimum=0)
        check_number("weight", weight, whole=False, minimum=0)
        check_number("recovery_epochs", recovery_epochs, whole=True, minimum=0)
        self.num_examples = int(num_examples)
        self.zero_epochs = int(zero_epochs)
        self.annealing_epochs = int(annealing_epochs)
        self.weight = float(weight)
        self.recovery_epochs = int(recovery_epochs)

    def is_recovery(self, epoch: int) -> bool:
        """Whether `epoch`, counted from 0, is one of the last ones."""
        if self.recovery_epochs == 0:
            return False
        epochs = (self.params or {}).get("epochs")
        if epochs is None:
            raise ValueError(
                "recovery_epochs needs the number of epochs: in a custom training loop call "
                f'set_params({{"epochs": ...}}) first. Received: params={self.params!r}'
            )
        return bool(epoch >= epochs - self.recovery_epochs)

    def schedule(self, epoch: int) -> float:
        """γ in `epoch`, counted from 0."""
        if self.is_recovery(epoch):
            return 0.0
        epochs_in = epoch - self.zero_epochs
        if epochs_in < 0:
            return 0.0
        if epochs_in >= self.annealing_epochs:
            return self.weight
        return self.weight * epochs_in / self.annealing_epochs

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # A subclassed model may create its layers at the first call, so none is no error yet.
        for layer in sparse_layers(model):
            layer._kl_is_scheduled = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not sparse_layers(self.model):
            raise ValueError(
                "KLAnnealing needs a model with sparse layers: build it from "
                "keras_sparse.layers or convert it with keras_sparse.sparsify(). "
                f"Received: model={self.model.name!r} without any."
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for layer in sparse_layers(self.model):
            layer._kl_is_scheduled = True
            layer.kl_weight = self.schedule(epoch) / self.num_examples
        self._set_recovering(self.is_recovery(epoch))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._set_recovering(False)

    def _set_recovering(self, value: bool) -> None:
        changed = [layer for layer in sparse_layers(self.model) if layer.is_recovering != value]
        for layer in changed:
            layer.is_recovering = value
        step = self.model.train_function
        if not changed or step is None:
            return
        # A step is traced with noise or without; the other one is kept for the next training.
        attributes: dict[str, Any] = self.model.__dict__  # not what Keras tracks
        known, other = attributes.get(_OTHER_STEP, (None, None))
        if known is step:
            self.model.train_function = other
        else:
            self.model.make_train_function(force=True)
        attributes[_OTHER_STEP] = (self.model.train_function, step)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None:
            return
        built = [layer for layer in sparse_layers(self.model) if layer.built]
        total = sparsity(self.model).total
        logs["sparsity"] = total.sparsity
        logs["nonzeros"] = total.nonzeros
        logs["kl"] = float(sum(layer.kl_divergence() for layer in built))
        logs["kl_weight"] = self.schedule(epoch)
