"""How many epochs a morph with inherited weights needs, against training from scratch.

    python -m benchmarks.inheritance

On a part of MNIST: every reference is trained, then morphed several times by one row of the paper's
table. Each morph is trained twice, from scratch with the whole schedule, and with inherited
weights and the full KL term from the start. The goal is what the training from scratch ends with:
validation accuracy (minus a tolerance) and non-zeros (plus a tenth). For both we count the epochs
until the goal is first met; a morph that never meets it counts as a ratio of 0. From scratch the
size cannot be met before the KL term has risen, which is what a schedule from scratch costs. A run
that was stopped goes on where it was. Results: benchmarks/results/inheritance.json.
"""

import argparse
import json
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner.cost import affordable
from keras_sparse.tuner.graph_builder import GraphBuilder
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.inherit import inherit
from keras_sparse.tuner.morphs import apply, rows_of
from keras_sparse.tuner.network import assemble
from keras_sparse.tuner.parameters import Configuration
from keras_sparse.tuner.posterior import posterior_of

from benchmarks.record import RESULTS, environment
from keras_sparse import KLAnnealing, datasets
from keras_sparse.files import write_json

EXAMPLES, BATCH = 12_800, 128
EPOCHS, ZERO, ANNEALING = 20, 4, 8
TOLERANCE = 0.003  # of the validation accuracy; one standard error of 5 000 images at 98 % is 0.002
ROWS = (
    "num-conv-filters",
    "kernel-size",
    "num-conv-layers",
    "layer-type",
    "total-fc-layer-weights",
    "left-branch",
    "right-branch",
    "num-fc-layers",
    "threshold",
    "alpha",
)


def search_space() -> SparseCNN:
    return SparseCNN(
        (28, 28, 1),
        10,
        space="paper",
        ranges={
            "num-filters": (4, 40),
            "pruning-thresholds": (0.0, 3.0),
            "alpha": (0.2, 1.0),
            "total-fc-layer-weights": (2000, 20_000),
            "input-downsampling-rate": (2, 2),
            "batch-norm": [False],
        },
    )


def train(
    model: SparseCNN,
    network: keras.Model,
    configuration: Configuration,
    data: datasets.Dataset,
    zero: int,
    annealing: int,
) -> list[tuple[float, int]]:
    """Trains for all epochs; returns (validation accuracy, non-zeros) after each."""
    model.compile(network)
    schedule = KLAnnealing(EXAMPLES, zero, annealing, weight=float(configuration["alpha"]))
    history = network.fit(
        data.x_train[:EXAMPLES],
        data.y_train[:EXAMPLES],
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(data.x_val, data.y_val),
        validation_batch_size=1000,
        callbacks=[schedule],
        verbose=0,
    ).history
    return list(zip(history["val_accuracy"], map(int, history["nonzeros"]), strict=True))


def epochs_to(goal: tuple[float, int], log: list[tuple[float, int]], first: int) -> int | None:
    """The first epoch, from `first` on, that reaches accuracy and size; None if none does."""
    for epoch, (accuracy, nonzeros) in enumerate(log, start=1):
        if epoch >= first and accuracy >= goal[0] - TOLERANCE and nonzeros <= 1.1 * goal[1]:
            return epoch
    return None


def compare(
    model: SparseCNN, number: int, morphs: int, data: datasets.Dataset, seed: int
) -> list[dict[str, Any]]:
    """Trains one reference and its morphs."""
    rng = np.random.default_rng((seed, number))
    keras.utils.set_random_seed(seed + number)
    # Not the smallest, which cannot learn the digits: between 100 and 400 thousand MACs.
    while True:
        reference = affordable(model, rng, 1, 400_000)[0]
        if sum(operator.macs for operator in model.graph(reference).operators) >= 100_000:
            break
    network = model.network(reference, seed=seed + number)
    reference_log = train(model, network, reference, data, ZERO, ANNEALING)
    posterior = posterior_of(network)
    rows = []
    usable = [row for row in ROWS if row in rows_of(model)]
    for row in rng.permutation(usable):
        child = apply(model, reference, str(row), rng)
        if child is None or child.configuration == reference or len(rows) == morphs:
            continue
        configuration = child.configuration
        keras.backend.clear_session()
        scratch = model.network(configuration, seed=seed + 100 + number)
        scratch_log = train(model, scratch, configuration, data, ZERO, ANNEALING)
        heir = model.network(configuration, seed=seed + 200 + number)
        sources = [
            assemble(c, model.input_shape, model.num_classes, GraphBuilder()).sources
            for c in (configuration, reference)
        ]
        inherit(heir, posterior, *sources)
        heir_log = train(model, heir, configuration, data, 0, 0)
        goal = scratch_log[-1]
        result = {
            "reference": number,
            "row": str(row),
            "reference (accuracy, nonzeros)": reference_log[-1],
            "goal (accuracy, nonzeros)": goal,
            "epochs from scratch": epochs_to(goal, scratch_log, 1),
            "epochs inherited": epochs_to(goal, heir_log, 1),
            "inherited after the same epochs": heir_log[-1],
            "inherited log": heir_log,
        }
        print({k: v for k, v in result.items() if k != "inherited log"}, flush=True)
        rows.append(result)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--references", type=int, default=6)
    parser.add_argument("--morphs", type=int, default=4, help="morphs of each reference")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    file = RESULTS / "inheritance.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if results.get("seed") != arguments.seed:
        results = {"morphs": []}
    done = {row["reference"] for row in results["morphs"]}
    data, model = datasets.load("mnist"), search_space()
    for number in range(arguments.references):
        if number in done:
            continue
        results["morphs"] += compare(model, number, arguments.morphs, data, arguments.seed)
        reached = [row for row in results["morphs"] if row["epochs inherited"]]
        ratios = [
            row["epochs from scratch"] / row["epochs inherited"] if row["epochs inherited"] else 0.0
            for row in results["morphs"]
        ]
        results |= {
            "examples": EXAMPLES,
            "schedule from scratch (epochs, zero, annealing)": [EPOCHS, ZERO, ANNEALING],
            "seed": arguments.seed,
            "morphs in all": len(results["morphs"]),
            "reached the goal": len(reached),
            "median ratio of epochs": round(float(np.median(ratios)), 2),
            "quartiles": [round(float(q), 2) for q in np.quantile(ratios, [0.25, 0.75])],
            "environment": environment(),
        }
        write_json(file, results)
        print(results["median ratio of epochs"], results["quartiles"], flush=True)


if __name__ == "__main__":
    main()
