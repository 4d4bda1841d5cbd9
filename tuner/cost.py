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
)
"""What a training step takes time for: by itself, per layer, per parameter, and per example."""


_HOLD = 0.4
"""Error of one estimate (a third) over how much coefficients differ from the common ones."""


class Observation(NamedTuple):
    """A network and the seconds that one training step of it took."""

    graph: Graph
    batch_size: int
    seconds: float


class CostModel(NamedTuple):
    """Seconds for one unit of each of `FEATURES`; from `fit`."""

    coefficients: tuple[float, ...]

    @classmethod
    def common(cls) -> "CostModel":
        """Rough numbers, the same everywhere, so that a search proposes the same on every machine.

        `calibrate` fits them to this one.
        """
        return cls((2.5e-3, 5e-4, 2e-8, 1.5e-10, 1.5e-9, 3e-10, 6e-9))

    def step_seconds(self, graph: Graph, batch_size: int) -> float:
        """Seconds of one training step."""
        return float(np.dot(self.coefficients, features(graph, batch_size)))

    def epoch_seconds(self, graph: Graph, batch_size: int, examples: int) -> float:
        """Seconds of one training epoch."""
        return self.step_seconds(graph, batch_size) * -(-examples // batch_size)


def features(graph: Graph, batch_size: int) -> np.ndarray:
    """How much of each of `FEATURES` one training step has."""
    macs = {"Conv2D": 0, "DepthwiseConv2D": 0, "Dense": 0}
    layers = parameters = 0
    for operator in graph.operators:
        if operator.weights:
            layers += 1
            parameters += operator.parameters
            macs[operator.kind] = macs.get(operator.kind, 0) + operator.macs
    activations = sum(map(graph.size, graph.shapes))
    per_example = [macs["Conv2D"], macs["DepthwiseConv2D"], macs["Dense"], activations]
    return np.array([1.0, layers, parameters, *(batch_size * n for n in per_example)])


def fit(observations: Sequence[Observation]) -> CostModel:
    """The coefficients with the least squares of the logarithms of estimated over measured.

    A few observations do not tell seven coefficients, so they are held near those of
    `CostModel.common`, up to a factor that all share: how fast the machine is.
    """
    if len(observations) < 3:
        raise ValueError(
            f"The cost of training needs at least 3 observations. Received: {len(observations)}"
        )
    rows = np.array([features(o.graph, o.batch_size) for o in observations])
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
    return Observation(model.graph(configuration), batch_size, seconds)


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
