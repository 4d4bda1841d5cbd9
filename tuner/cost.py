"""How long a network will train: seconds estimated from its operations, fitted to this machine."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
from scipy.optimize import least_squares

from keras_sparse.footprint import Graph

from .hypermodel import SparseCNN
from .parameters import Configuration

FEATURES = (
    "step",
    "layer",
    "parameter",
    "convolution MAC",
    "depthwise MAC",
    "dense MAC",
    "activation",
    "normalization",
    "normalized activation",
)
"""What a training step takes time for: by itself, per layer, per parameter, and per example."""


_HOLD = 0.3
"""Error of one estimate (a third) over how much coefficients differ from the common ones."""


class Observation(NamedTuple):
    """A network and the seconds that one training step of it took.

    Attributes:
        graph: Of the network; batch normalization is folded in it.
        batch_size: Examples of a step.
        seconds: Of a step.
        batch_norm: Whether its convolutions are normalized in training.
    """

    graph: Graph
    batch_size: int
    seconds: float
    batch_norm: bool = False


class CostModel(NamedTuple):
    """Seconds for one unit of each of `FEATURES`; from `fit`."""

    coefficients: tuple[float, ...]

    @classmethod
    def common(cls) -> "CostModel":
        """Rough numbers, the same everywhere, so that a search proposes the same on every machine.

        `calibrate` fits them to this one.
        """
        return cls((1e-3, 7e-4, 2e-8, 1.7e-10, 4e-10, 2.5e-10, 6e-9, 4e-4, 4e-9))

    def step_seconds(self, graph: Graph, batch_size: int, *, batch_norm: bool = False) -> float:
        """Seconds of one training step; `batch_norm` as in `Observation`."""
        return float(np.dot(self.coefficients, features(graph, batch_size, batch_norm)))

    def epoch_seconds(
        self, graph: Graph, batch_size: int, examples: int, *, batch_norm: bool = False
    ) -> float:
        """Seconds of one training epoch; `batch_norm` as in `Observation`."""
        steps = -(-examples // batch_size)
        return steps * self.step_seconds(graph, batch_size, batch_norm=batch_norm)


def features(graph: Graph, batch_size: int, batch_norm: bool = False) -> np.ndarray:
    """How much of each of `FEATURES` one training step has."""
    macs = {"Conv2D": 0, "DepthwiseConv2D": 0, "Dense": 0}
    layers = parameters = normalizations = normalized = 0
    for operator in graph.operators:
        if not operator.weights:
            continue
        parameters += operator.parameters
        macs[operator.kind] = macs.get(operator.kind, 0) + operator.macs
        # A depthwise convolution here is the first half of a separable one: one Keras layer.
        layers += operator.kind != "DepthwiseConv2D"
        if batch_norm and operator.kind == "Conv2D":
            normalizations += 1
            normalized += graph.size(operator.name)
    activations = sum(map(graph.size, graph.shapes))
    per_example = [macs["Conv2D"], macs["DepthwiseConv2D"], macs["Dense"], activations]
    counts = [1.0, layers, parameters, *(batch_size * n for n in per_example)]
    return np.array([*counts, normalizations, batch_size * normalized])


def fit(observations: Sequence[Observation]) -> CostModel:
    """The coefficients with the least squares of the logarithms of estimated over measured.

    A few observations do not tell nine coefficients, so they are held near those of
    `CostModel.common`, up to a factor that all share: how fast the machine is.
    """
    if len(observations) < 3:
        raise ValueError(
            f"The cost of training needs at least 3 observations. Received: {len(observations)}"
        )
    rows = np.array([features(o.graph, o.batch_size, o.batch_norm) for o in observations])
    rows = rows * CostModel.common().coefficients
    seconds = np.log([o.seconds for o in observations])

    def errors(logarithms: np.ndarray) -> np.ndarray:
        speed, factors = logarithms[0], logarithms[1:]
        estimated = np.log(rows @ np.exp(factors)) + speed
        return np.concatenate([estimated - seconds, _HOLD * factors])

    speed, *factors = least_squares(errors, np.zeros(1 + len(FEATURES))).x
    common = np.array(CostModel.common().coefficients)
    return CostModel(tuple(float(c) for c in common * np.exp(speed + np.array(factors))))


def observe(
    model: SparseCNN,
    configuration: Configuration,
    batch_size: int = 128,
    steps: tuple[int, int] = (5, 45),
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> Observation:
    """Times training steps of a configuration on random images.

    Two lengths of an epoch are timed and their difference counts, so that neither tracing nor the
    start of an epoch is in it; of each the fastest of the rounds, because whatever else the machine
    does only adds. On a busy machine `time.process_time` is the better clock, with one thread.
    """
    network = model.network(configuration)
    model.compile(network)
    for layer in network.layers:
        if hasattr(layer, "kl_weight"):
            layer.kl_weight = 1e-5
    rng = np.random.default_rng(0)
    x = rng.normal(size=(max(steps) * batch_size, *model.input_shape)).astype("float32")
    y = rng.integers(0, model.num_classes, len(x))
    network.fit(x[:batch_size], y[:batch_size], batch_size, verbose=0)

    def fastest(count: int) -> float:
        seconds = []
        for _ in range(rounds):
            start = clock()
            network.fit(x[: count * batch_size], y[: count * batch_size], batch_size, verbose=0)
            seconds.append(clock() - start)
        return min(seconds)

    few, many = steps
    short, long = fastest(few), fastest(many)
    keras.backend.clear_session()
    # On a busy machine the difference could come out as nothing; the whole is an upper limit.
    seconds = max((long - short) / (many - few), 0.1 * long / many)
    batch_norm = bool(configuration.get("batch-norm"))
    return Observation(model.graph(configuration), batch_size, seconds, batch_norm)


def calibrate(
    model: SparseCNN,
    *,
    count: int = 16,
    batch_size: int = 128,
    max_macs: int = 5_000_000,
    seed: int = 0,
) -> CostModel:
    """Fits the cost of training to this machine with `count` random configurations.

    Args:
        model: The space to draw them from.
        count: How many; each takes some seconds, most of them for tracing.
        batch_size: Examples of a step.
        max_macs: Larger networks are not drawn.
        seed: Of the configurations.
    """
    rng = np.random.default_rng(seed)
    chosen = affordable(model, rng, count, max_macs)
    return fit([observe(model, configuration, batch_size) for configuration in chosen])


def affordable(
    model: SparseCNN, rng: np.random.Generator, count: int, max_macs: int
) -> list[Configuration]:
    """Random configurations of at most `max_macs` multiply-accumulates for one example."""
    result: list[Configuration] = []
    for _ in range(1000 * count):
        configuration = model.sample(rng)
        if sum(operator.macs for operator in model.graph(configuration).operators) <= max_macs:
            result.append(configuration)
        if len(result) == count:
            return result
    raise ValueError(
        f"max_macs must allow some networks of the space. Received: max_macs={max_macs}"
    )
