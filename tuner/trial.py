"""One trial: build, inherit, train, prune, measure."""

import math
import time
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any, NamedTuple

import keras
import keras_tuner
import numpy as np

from keras_sparse import KLAnnealing, measure, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.footprint import Footprint, model_sizes, read
from keras_sparse.footprint import working_memory as memory
from keras_sparse.network_facts import facts_of, to_json

from .freeing import freed
from .goals import Goal
from .graph_builder import GraphBuilder
from .hypermodel import SparseCNN
from .inherit import Sources, inherit
from .network import assemble
from .parameters import Configuration
from .posterior import Posterior, posterior_of
from .project import Outcome
from .quantized import NAME as QUANTIZED_ERROR
from .quantized import quantized_error
from .restarting import Start
from .schedule import Schedule, schedule_of
from .training import Training

_MARGIN = {"val_error": math.log(2.0), QUANTIZED_ERROR: math.log(2.0)}
_SIZE_MARGIN = math.log(4.0)
"""By how much a network must be dominated half-way to be given up. Sizes still fall then."""


class Reference(NamedTuple):
    """The trial whose weights are inherited.

    Attributes:
        configuration: What it tried.
        posteriors: What its network has learnt, of each fold: a network must not inherit from one
            that has seen its validation images.
    """

    configuration: Configuration
    posteriors: tuple[Posterior, ...]


class Blueprint(NamedTuple):
    """Makes and measures the networks of a search.

    Attributes:
        hypermodel: A `SparseCNN` or the user's own.
        goals: The objectives.
        working_memory: Model of working memory, as in `measure`.
        model_size: Name of the model of the objective "model_size".
    """

    hypermodel: keras_tuner.HyperModel
    goals: tuple[Goal, ...]
    working_memory: Any
    model_size: str = "values"

    def build(
        self, configuration: Configuration, hp: keras_tuner.HyperParameters, seed: int
    ) -> keras.Model:
        """The compiled network, its initial weights a function of the seed."""
        keras.utils.set_random_seed(seed)
        if isinstance(self.hypermodel, SparseCNN):
            model = self.hypermodel.network(configuration, seed=seed)
            self.hypermodel.compile(model)
            return model
        hp.values.update(configuration)  # over gRPC numbers lose digits
        model = self.hypermodel.build(hp)
        if not isinstance(model, keras.Model):
            raise keras_tuner.errors.FatalTypeError(
                f"build(hp) must return a Keras model. Received: {type(model).__name__}"
            )
        return model

    def sources(self, configuration: Configuration) -> Sources | None:
        """What the inputs of the FC layers are; known for our own networks only."""
        if not isinstance(self.hypermodel, SparseCNN):
            return None
        shape, classes = self.hypermodel.input_shape, self.hypermodel.num_classes
        return assemble(configuration, shape, classes, GraphBuilder()).sources

    def measured(self, model: keras.Model) -> dict[str, float]:
        """Sizes of a network after pruning by all models of memory, and the user's objectives."""
        return self.metrics(*self.stripped(model))

    def stripped(self, model: keras.Model) -> tuple[keras.Model, Footprint]:
        """The network after pruning, and what it takes."""
        small = strip(model)
        return small, measure(small, before=model, working_memory=self.working_memory)

    def metrics(self, small: keras.Model, chosen: Footprint) -> dict[str, float]:
        """The same as `measured` of a network that has been stripped."""
        before = chosen.before or chosen
        metrics: dict[str, float] = {
            "nonzeros": chosen.nonzeros,
            "parameters": before.parameters,
            "model_size": model_sizes.get(self.model_size)(read(small), chosen.bits),
            "flash": chosen.sparse_bytes,
            "macs": chosen.sparse_macs,
            "dense_macs": chosen.macs,
            "working_memory": chosen.working_memory,
            "working_memory_with_image": chosen.working_memory_with_image,
            "unpruned_working_memory": before.working_memory,
        }
        for name in memory.names():
            try:
                footprint = measure(small, working_memory=name)
            except ValueError:  # a model that does not know a layer of the user's own network
                continue
            metrics[f"working_memory/{name}"] = footprint.working_memory
            metrics[f"working_memory_with_image/{name}"] = footprint.working_memory_with_image
        for goal in self.goals:
            if goal.function is not None:
                metrics[goal.name] = float(goal.function(small))
        return {name: float(value) for name, value in metrics.items()}


def run(
    blueprint: Blueprint,
    configuration: Configuration,
    hp: keras_tuner.HyperParameters,
    training: Training,
    *,
    reference: Reference | None,
    front: Sequence[dict[str, float]],
    seed: int,
    callbacks: Callable[[int], list[keras.callbacks.Callback]],
) -> tuple[Outcome, tuple[Posterior, ...]]:
    """Trains a configuration, once for every fold, and measures what is left after pruning.

    Args:
        blueprint: Of the networks.
        configuration: What to try.
        hp: The same for a user's own `build(hp)`.
        training: Data and arguments.
        reference: Whose weights are inherited; None for none.
        front: Metrics of the best trials so far; half-way a trial far behind them is given up.
        seed: Of weights, noise and the order of the examples.
        callbacks: Gives the callbacks of the training of a fold.

    Returns:
        The outcome, over the folds the mean of every metric, and what each network has learnt.
    """
    start = time.perf_counter()
    schedule = schedule_of(
        configuration,
        training.epochs,
        inherits=reference is not None,
        recovery=training.recovery,
    )
    measured: list[dict[str, float]] = []
    posteriors: list[Posterior] = []
    reason, epochs = "", 0
    network: dict[str, Any] = {}
    with freed():
        models = _models(blueprint, configuration, hp, reference, seed)
        for fold, part in enumerate(training.splits()):
            model = next(models)
            watch = Watch(blueprint, schedule.epochs, front)
            history = fit(model, schedule, part, seed, [*callbacks(fold), watch])
            small, footprint = blueprint.stripped(model)
            measured.append({**_validation(history), **blueprint.metrics(small, footprint)})
            if any(goal.name == QUANTIZED_ERROR for goal in blueprint.goals):
                measured[-1][QUANTIZED_ERROR] = quantized_error(small, part)
            posteriors.append(posterior_of(model))
            network = network or to_json(facts_of(read(small), footprint))
            reason = reason or watch.reason
            epochs += len(history["loss"])
        models.close()
        del model, models, small, watch
    metrics = {name: float(np.mean([m[name] for m in measured])) for name in measured[0]}
    declared = {n: v for n, v in hp.values.items() if not n.startswith("tuner/")}
    more = {} if isinstance(blueprint.hypermodel, SparseCNN) else declared
    more = {name: value for name, value in more.items() if name not in configuration}
    seconds = time.perf_counter() - start
    return Outcome(checked(metrics), reason, epochs, seconds, more, network), tuple(posteriors)


def _models(
    blueprint: Blueprint,
    configuration: Configuration,
    hp: keras_tuner.HyperParameters,
    reference: Reference | None,
    seed: int,
) -> Generator[keras.Model, None, None]:
    """The network before its training, one after the other for the folds.

    Our own is the same object every time. A user's is built anew: it may have a state that only
    its author knows.
    """
    theirs = reference and blueprint.sources(reference.configuration)
    sources = reference and blueprint.sources(configuration)
    start: Start | None = None
    for fold in count():
        if start is None:
            keras.backend.clear_session()  # layers without a name get the same names every time
            model = blueprint.build(configuration, hp, seed)
            start = Start(model) if isinstance(blueprint.hypermodel, SparseCNN) else None
        else:
            start.restore()
        if reference is not None:
            inherit(model, reference.posteriors[fold], sources, theirs)
        yield model


def checked(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics that are numbers; raises if the loss is not."""
    for name in ("loss", "val_loss"):
        if not math.isfinite(metrics.get(name, 0.0)):
            raise DivergedError(f"{name} is {metrics[name]} in the end")
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def fit(
    model: keras.Model,
    schedule: Schedule,
    training: Training,
    seed: int,
    callbacks: Sequence[keras.callbacks.Callback],
) -> dict[str, list[float]]:
    """Trains with the schedule's KL term, unless one of the callbacks brings its own."""
    callbacks = list(callbacks)
    has_kl = any(isinstance(callback, KLAnnealing) for callback in callbacks)
    if sparse_layers(model) and not has_kl:
        plan = (schedule.zero, schedule.annealing, schedule.weight, schedule.recovery)
        callbacks.insert(0, KLAnnealing(training.examples, *plan))
    keras.utils.set_random_seed(seed)
    history = model.fit(
        **training.fit_arguments(seed),
        epochs=schedule.epochs,
        callbacks=callbacks,
        verbose=0,
    )
    return dict(history.history)


def _validation(history: dict[str, list[float]]) -> dict[str, float]:
    metrics = {name: float(values[-1]) for name, values in history.items()}
    accuracy = next((n for n in metrics if n.startswith("val_") and "acc" in n), None)
    if accuracy is not None:
        metrics["val_error"] = 1.0 - metrics[accuracy]
    return metrics


class DivergedError(RuntimeError):
    """The loss is no longer a number."""


class Watch(keras.callbacks.Callback):
    """Ends a training that has diverged, or that is far behind half-way.

    Args:
        blueprint: To measure the network.
        epochs: Of the training.
        front: Metrics of the best trials so far.
    """

    def __init__(
        self, blueprint: Blueprint, epochs: int, front: Sequence[dict[str, float]]
    ) -> None:
        super().__init__()
        self.blueprint = blueprint
        self.half = (epochs + 1) // 2
        self.epochs = epochs
        self.front = front
        self.reason = ""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Looks at the loss, and once at everything."""
        logs = logs or {}
        if not math.isfinite(float(logs.get("loss", 0.0))):
            raise DivergedError(f"the loss is {logs['loss']} after epoch {epoch + 1}")
        if epoch + 1 == self.half < self.epochs and self.front:
            history = {name: [value] for name, value in logs.items()}
            metrics = {**_validation(history), **self.blueprint.measured(self.model)}
            if any(self._is_far_better(member, metrics) for member in self.front):
                self.reason = f"stopped after epoch {epoch + 1}: far behind the front"
                self.model.stop_training = True

    def _is_far_better(self, member: dict[str, float], metrics: dict[str, float]) -> bool:
        for goal in self.blueprint.goals:
            if not goal.logarithmic or goal.name not in metrics:
                return False  # there is no telling what "far" is
            margin = _MARGIN.get(goal.name, _SIZE_MARGIN)
            if goal.value(member) + margin > goal.value(metrics):
                return False
        return True
