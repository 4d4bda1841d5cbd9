"""quantize: quantization-aware training that keeps every zero."""

import numbers
from typing import Any, NamedTuple

import keras
import numpy as np

from ..counting import sparse_layers
from ..walking import check_graph
from . import tfmot_engine
from .checking import checked_classes, checked_examples
from .device_rounding import settle
from .native import fake_quantized, is_fake_quantized, observe, range_names
from .node_reading import read_nodes
from .nodes import Network

ENGINES = ("native", "tfmot")


class Training(NamedTuple):
    """How a model is trained for int8 arithmetic.

    Attributes:
        x: Examples, shape (examples, …).
        y: Their classes.
        loss: As in `compile`.
        epochs: To train.
        batch_size: Examples of a step.
        learning_rate: Of Adam at the start.
        validation: (x, y) or None.
        verbose: As in `fit`.
    """

    x: np.ndarray
    y: np.ndarray
    loss: Any
    epochs: int
    batch_size: int
    learning_rate: float
    validation: tuple[np.ndarray, np.ndarray] | None
    verbose: int | str


def quantize(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    epochs: int = 2,
    validation_data: tuple[Any, Any] | None = None,
    engine: str = "native",
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    loss: Any = None,
    input_range: tuple[float, float] | None = None,
    seed: int = 0,
    verbose: int | str = 0,
) -> keras.Model:
    """Trains a model for int8 arithmetic. Weights that are zero stay zero.

    Normalizations are folded first, so that what is trained is what will be stored.

    Args:
        model: A built Sequential or functional model of supported layers, such as `strip` gives;
            it is not changed.
        x: Training examples, shape (examples, …).
        y: Their classes, as numbers or one-hot; not needed if `epochs` is 0.
        epochs: To train; 0 only measures the ranges of the activations.
        validation_data: (x, y). If given, the best epoch is kept; the state before the first one is
            a candidate, too.
        engine: "native", fake quantization in Keras 3 layers; or "tfmot", TensorFlow Model
            Optimization's scheme on an equal tf_keras model, which needs the extra
            `keras-sparse[tfmot]`. Both return the same kind of model.
        batch_size: Examples of a step.
        learning_rate: Of Adam at the start; it falls to 0.
        loss: Of the training; by default that of a compiled `model`, else cross-entropy.
        input_range: Smallest and largest value of an input; by default those of `x`. (0, 1) for
            pixels over 255 makes the device's input pixel − 128.
        seed: Of the order of the examples.
        verbose: As in `fit`.

    Returns:
        A Keras model, compiled if it was trained, that computes in floating point what int8
        arithmetic will compute, for `to_tflite` and `export`.

    Raises:
        ValueError: An argument is not as it must be; the message says which.
    """
    check_graph(model, "quantize")
    _check_arguments(model, y, epochs, engine, batch_size)
    network = read_nodes(model, "quantize")
    x = checked_examples(x, network.input_shape, "quantize")
    bounds = _checked_range(input_range, x)
    result = fake_quantized(network, bounds)
    keras.utils.set_random_seed(seed)
    if epochs == 0:
        observe(result, x, batch_size)
        settle(result, network, range_names(network))
        return result
    y = checked_classes(y, len(x))
    validation = None
    if validation_data is not None:
        held_out = checked_examples(validation_data[0], network.input_shape, "quantize")
        validation = held_out, checked_classes(validation_data[1], len(held_out))
    loss = _loss_of(model, network, loss, y)
    training = Training(x, y, loss, epochs, batch_size, learning_rate, validation, verbose)
    if engine == "tfmot":
        tfmot_engine.train(network, result, training)
    else:
        _train(result, training)
    settle(result, network, range_names(network))
    return result


def _train(model: keras.Model, training: Training) -> None:
    """The native engine: `fit`, after the ranges have been measured."""
    observe(model, training.x, training.batch_size)
    steps = training.epochs * -(-len(training.x) // training.batch_size)
    schedule = keras.optimizers.schedules.CosineDecay(training.learning_rate, steps)
    model.compile(keras.optimizers.Adam(schedule), training.loss, metrics=["accuracy"])
    model.fit(
        training.x,
        training.y,
        training.batch_size,
        epochs=training.epochs,
        callbacks=[_KeepBest(training.validation)] if training.validation else [],
        verbose=training.verbose,
    )


class _KeepBest(keras.callbacks.Callback):
    """Ends with the weights of the epoch of the highest validation accuracy."""

    def __init__(self, validation: tuple[np.ndarray, np.ndarray]) -> None:
        super().__init__()
        self.validation = validation
        self.best = -1.0
        self.weights: list[np.ndarray] = []

    def _look(self) -> None:
        measured = self.model.evaluate(*self.validation, 512, verbose=0, return_dict=True)
        if measured["accuracy"] >= self.best:
            self.best, self.weights = measured["accuracy"], self.model.get_weights()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """The ranges are measured already."""
        self._look()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """After each epoch."""
        self._look()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Puts the best back."""
        self.model.set_weights(self.weights)


def _check_arguments(model: keras.Model, y: Any, epochs: int, engine: str, batch: int) -> None:
    if is_fake_quantized(model):
        raise ValueError(
            "quantize() takes a model that is not quantized yet. "
            f"Received: model={model.name!r}, which quantize() made"
        )
    sparse = [layer.name for layer in sparse_layers(model)]
    if sparse:
        raise ValueError(
            "quantize() takes plain layers: strip() the model first. "
            f"Received: a model with the sparse layers {', '.join(map(repr, sparse))}"
        )
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {list(ENGINES)}. Received: engine={engine!r}")
    for name, value, least in (("epochs", epochs, 0), ("batch_size", batch, 1)):
        if not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(
                f"{name} must be a whole number of at least {least}. Received: {name}={value!r}"
            )
    if epochs and y is None:
        raise ValueError(f"y must be the classes of x. Received: y=None with epochs={epochs}")


def _checked_range(bounds: tuple[float, float] | None, x: np.ndarray) -> tuple[float, float]:
    if bounds is None:
        return float(x.min()), float(x.max())
    low, high = map(float, bounds)
    if not low <= 0.0 <= high or low == high:
        raise ValueError(
            f"input_range must be (low, high) with 0 in it. Received: input_range={bounds!r}"
        )
    return low, high


def _loss_of(model: keras.Model, network: Network, loss: Any, y: np.ndarray) -> Any:
    """The user's loss, else the model's, else the cross-entropy that fits outputs and classes."""
    if loss is not None:
        return loss
    if getattr(model, "compiled", False) and model.loss is not None:
        return model.loss
    made = next(node for node in network.nodes if node.output == network.output)
    outputs, from_logits = made.shape, made.activation not in ("softmax", "sigmoid")
    has_classes = len(outputs) == 1 and outputs[0] > 1
    if has_classes and np.issubdtype(y.dtype, np.integer) and y.size == len(y):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    if has_classes and y.shape[1:] == outputs:
        return keras.losses.CategoricalCrossentropy(from_logits=from_logits)
    raise ValueError(
        "loss must be given for a model that is not compiled, unless it has two or more outputs "
        "and y are classes, as whole numbers or one-hot. "
        f"Received: outputs of shape {outputs} and y of {y.dtype} and shape {y.shape}"
    )
