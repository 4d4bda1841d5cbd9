"""Trains several hundred networks of the search space, the base of a benchmark of whole searches.

    python -m benchmarks.trained_networks

Half of the networks are random, half are chains of morphs, all below a limit of
multiply-accumulates and trained from scratch on a part of MNIST with the trial's own code, the last
epochs for what is left after pruning: without them the error of so short a training says more about
the thresholds than about the network, and nothing predicts it well. Random networks of the paper's
space are trained too, to compare the two spaces. A run that was stopped goes on where it was.
Results: benchmarks/results/trained_networks.json, one row per network.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras_tuner
import numpy as np
from keras_sparse.tuner.cost import affordable
from keras_sparse.tuner.goals import goals_of
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.morphs import morph
from keras_sparse.tuner.parameters import Configuration
from keras_sparse.tuner.training import Training
from keras_sparse.tuner.trial import Blueprint, run

from benchmarks.record import RESULTS, environment
from keras_sparse import datasets
from keras_sparse.files import write_bytes

FILE = RESULTS / "trained_networks.json"
EXAMPLES, EPOCHS, BATCH = 5_120, 10, 128
RECOVERY = 0.3
MOST_MACS = 300_000
CHAIN = 10
SETTINGS = {
    "examples": EXAMPLES,
    "epochs": EPOCHS,
    "batch": BATCH,
    "most_macs": MOST_MACS,
    "recovery": RECOVERY,
}
METRICS = ("val_error", "nonzeros", "working_memory", "parameters", "flash", "macs")


class Network(NamedTuple):
    """A network that was trained.

    Attributes:
        key: Kind ("random", "chain" or "paper") and number.
        configuration: Its parameters.
        metrics: Of `METRICS`; empty if the training failed.
    """

    key: str
    configuration: Configuration
    metrics: dict[str, float]


class OneValidation(Training):
    """Validates after the last epoch only: what is between them is not kept."""

    def fit_arguments(self, seed: int) -> dict[str, Any]:
        """As in `Training`."""
        return {**super().fit_arguments(seed), "validation_freq": EPOCHS}


def search_space(space: str = "extended") -> SparseCNN:
    """The space that the networks are drawn from."""
    return SparseCNN((28, 28, 1), 10, "unstructured", space=space)


def macs(model: SparseCNN, configuration: Configuration) -> int:
    """Multiply-accumulates of a network before pruning."""
    return sum(operator.macs for operator in model.graph(configuration).operators)


def chain(model: SparseCNN, number: int) -> list[Configuration]:
    """Morphs of morphs of a random network, none of them larger than allowed."""
    rng = np.random.default_rng((2, number))
    found = affordable(model, rng, 1, MOST_MACS)
    while len(found) < CHAIN:
        child = morph(model, found[-1], rng, count=int(rng.integers(1, 4)))
        if child is not None and macs(model, child.configuration) <= MOST_MACS:
            found.append(child.configuration)
    return found


def wanted(counts: dict[str, int]) -> Iterator[tuple[str, Configuration]]:
    """Keys and configurations, the kinds by turns so that a part of the run is a fair sample."""
    extended, paper = search_space(), search_space("paper")
    chains: list[Configuration] = []
    for number in range(max(counts.values())):
        if number < counts["random"]:
            rng = np.random.default_rng((1, number))
            yield f"random {number}", affordable(extended, rng, 1, MOST_MACS)[0]
        if number < counts["chain"]:
            if number % CHAIN == 0:
                chains += chain(extended, number // CHAIN)
            yield f"chain {number}", chains[number]
        if number % 3 == 0 and number // 3 < counts["paper"]:
            rng = np.random.default_rng((3, number // 3))
            yield f"paper {number // 3}", affordable(paper, rng, 1, MOST_MACS)[0]


def train(model: SparseCNN, configuration: Configuration, training: Training) -> dict[str, float]:
    """Metrics of a network after training and pruning; empty if its loss was not a number."""
    blueprint = Blueprint(model, goals_of(["val_error", "model_size"]), "inputs+weights")
    try:
        outcome, _ = run(
            blueprint,
            configuration,
            keras_tuner.HyperParameters(),
            training,
            reference=None,
            front=(),
            seed=1,
            callbacks=lambda fold: [],
        )
    except RuntimeError as error:
        print(error, flush=True)
        return {}
    return {name: round(outcome.metrics[name], 5) for name in METRICS}


def save(networks: list[Network]) -> None:
    """Writes the table: names of all parameters, then a row of values per network."""
    names = list(dict.fromkeys(name for network in networks for name in network.configuration))
    rows = [
        [n.key, [n.metrics.get(m) for m in METRICS], [n.configuration.get(p) for p in names]]
        for n in networks
    ]
    head = {
        "settings": SETTINGS,
        "environment": environment(),
        "parameters": names,
        "metrics": METRICS,
    }
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    write_bytes(FILE, f'{json.dumps(head)[:-1]},\n"networks": [\n{lines}\n]}}\n'.encode())


def load() -> list[Network]:
    """What was trained so far; nothing of what was trained with other settings."""
    content: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    if content.get("settings") != SETTINGS:
        return []
    return [
        Network(
            key,
            {n: v for n, v in zip(content["parameters"], values, strict=True) if v is not None},
            {m: v for m, v in zip(content["metrics"], metrics, strict=True) if v is not None},
        )
        for key, metrics, values in content["networks"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for kind, count in (("random", 150), ("chain", 150), ("paper", 34)):
        parser.add_argument(f"--{kind}", type=int, default=count)
    arguments = parser.parse_args()
    data = datasets.load("mnist")
    x, y = data.x_train[:EXAMPLES], data.y_train[:EXAMPLES]
    training = OneValidation(
        x, y, (data.x_val, data.y_val), EPOCHS, BATCH, recovery=RECOVERY, total=EXAMPLES
    )
    networks = load()
    done = {network.key for network in networks}
    for key, configuration in wanted(vars(arguments)):
        if key in done:
            continue
        model = search_space("paper" if key.startswith("paper") else "extended")
        metrics = train(model, configuration, training)
        networks.append(Network(key, configuration, metrics))
        print(key, metrics, flush=True)
        if len(networks) % 5 == 0:
            save(networks)
    save(networks)


if __name__ == "__main__":
    main()
