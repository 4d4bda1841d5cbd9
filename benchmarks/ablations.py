"""What each part of the search is worth: the whole, and the whole without one of its parts.

    python -m benchmarks.ablations
    python -m benchmarks.ablations --own-space

Searches on scikit-learn's digits with the same number of configurations, with several seeds:
without pruning, without inherited weights (every trial then trains from scratch, for all epochs),
without the model (ρ = 0: all configurations random) and without stages (one stage that morphs
anything from anywhere); and with something that the paper has not, the last quarter of the epochs
of a trial for what is left after pruning (`recovery`). The hypervolume of log error and log number
of non-zero weights after each trial is kept, from the same reference for all, and compared seed by
seed. A run that was stopped goes on with the next search. `--own-space` compares what needs no
training, the model and the stages, with 100 evaluations and ten seeds on `benchmarks.own_space`.
Results: benchmarks/results/ablations.json.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras_sparse.tuner import SparseCNN, SparseTuner, Stage
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.pareto import hypervolume
from keras_sparse.tuner.project import TrialProposal
from keras_sparse.tuner.stages import default_stages
from keras_sparse.tuner.trial import Reference

from benchmarks.hypervolume import history as volumes_of
from benchmarks.hypervolume import ours
from benchmarks.own_space import own_space
from benchmarks.record import RESULTS, environment
from keras_sparse import datasets
from keras_sparse.files import write_json

FILE = RESULTS / "ablations.json"
RANGES = {"num-filters": (1, 16), "total-fc-layer-weights": (50, 2000)}
REFERENCE = np.array([0.0, math.log(10_000)])
"""Where the hypervolume starts: an error of 1 and ten thousand weights."""

IDEAL = np.array([math.log(0.005), math.log(50)])
"""Where it would be 1."""


class Variant(NamedTuple):
    """A search, or one without a part.

    Attributes:
        pruning: As in `SparseCNN`.
        inherits: Whether morphs inherit weights.
        stages: Of so many trials; None for the default.
        recovery: As in `SparseTuner.search`.
    """

    pruning: str | None = "unstructured"
    inherits: bool = True
    stages: Sequence[Stage] | None = None
    recovery: float = 0.0


def variants(trials: int) -> dict[str, Variant]:
    """The whole search and those without a part."""
    return {
        "whole": Variant(),
        "without pruning": Variant(pruning=None),
        "without inheritance": Variant(inherits=False),
        "without the model": Variant(stages=[Stage(trials, 0.0)]),
        "without stages": Variant(stages=[Stage(trials, 0.85)]),
        "with recovery": Variant(recovery=0.25),
    }


class Uninherited(SparseTuner):
    """A search whose trials all train from scratch."""

    def _reference(self, proposal: TrialProposal, folds: int = 0) -> Reference | None:
        return None


def history(records: Sequence[TrialRecord]) -> list[float]:
    """Hypervolume after each trial, as a share of that of the ideal corner."""
    metrics = [record.metrics for record in records]
    points = np.array(
        [
            [math.log(max(m["val_error"], 1e-3)), math.log(max(m["nonzeros"], 1.0))]
            if m
            else REFERENCE
            for m in metrics
        ]
    )
    whole = float(np.prod(REFERENCE - IDEAL))
    return [round(hypervolume(points[: i + 1], REFERENCE) / whole, 5) for i in range(len(points))]


def run(variant: Variant, trials: int, epochs: int, seed: int) -> dict[str, Any]:
    """One search."""
    data = datasets.load("digits")
    model = SparseCNN(data.input_shape, data.num_classes, variant.pruning, ranges=RANGES)
    make = SparseTuner if variant.inherits else Uninherited
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        tuner = make(
            model,
            objectives=["val_error", "model_size"],
            max_trials=trials,
            stages=variant.stages,
            directory=folder,
            seed=seed,
        )
        validation = (data.x_val, data.y_val)
        tuner.search(
            data.x_train,
            data.y_train,
            validation_data=validation,
            epochs=epochs,
            recovery=variant.recovery,
            verbose=0,
        )
        records = tuner.trials()
    return {
        "hypervolume": history(records),
        "failed": sum(not record.metrics for record in records),
        "seconds of processor": round(time.process_time() - start),
    }


def on_own_space(count: int, seed: int) -> dict[str, list[float]]:
    """Hypervolume after each evaluation, of the whole search and without the model or stages."""
    problem = own_space()
    stages = {
        "whole": default_stages(count),
        "without the model": [Stage(count, 0.0)],
        "without stages": [Stage(count, 0.85)],
    }
    found = {name: ours(problem, count, seed, chosen) for name, chosen in stages.items()}
    return {
        name: [round(volume / problem.best, 5) for volume in volumes_of(problem, values)]
        for name, values in found.items()
    }


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation of each variant, and of how many seeds the whole search is ahead."""
    final: dict[str, dict[str, float]] = {}
    for key, result in runs.items():
        variant, seed = key.split(" | ")
        final.setdefault(variant, {})[seed] = result["hypervolume"][-1]
    rows = {}
    for variant, by_seed in final.items():
        common = [seed for seed in by_seed if seed in final.get("whole", {})]
        ahead = [final["whole"][seed] - by_seed[seed] for seed in common]
        rows[variant] = {
            "mean": round(float(np.mean(list(by_seed.values()))), 4),
            "deviation": round(float(np.std(list(by_seed.values()))), 4),
            "seeds": len(by_seed),
            "whole is ahead by": round(float(np.mean(ahead)), 4) if ahead else None,
            "whole is ahead (seeds)": sum(difference > 0 for difference in ahead),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("trials", 24), ("epochs", 24), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--own-space", action="store_true", help="without training")
    arguments = parser.parse_args()
    every: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    if arguments.own_space:
        results = {"runs": {}}
        for seed in range(10):
            for name, volumes in on_own_space(100, seed).items():
                results["runs"][f"{name} | {seed}"] = {"hypervolume": volumes}
        results |= {"summary": summary(results["runs"]), "environment": environment()}
        every["own space, 100 evaluations"] = results
        write_json(FILE, every)
        print(json.dumps(results["summary"], indent=1))
        return
    settings = f"{arguments.trials} trials of {arguments.epochs} epochs"
    results = every.setdefault(settings, {"runs": {}})
    for seed in range(arguments.seeds):
        for name, variant in variants(arguments.trials).items():
            key = f"{name} | {seed}"
            if key in results["runs"]:
                continue
            results["runs"][key] = run(variant, arguments.trials, arguments.epochs, seed)
            results["summary"] = summary(results["runs"])
            results["environment"] = environment()
            write_json(FILE, every)
            print(key, results["runs"][key]["hypervolume"][-1], flush=True)
    print(json.dumps(results.get("summary"), indent=1))


if __name__ == "__main__":
    main()
