"""How well the seconds of a training step are estimated, and how fast configurations are handled.

    python -m benchmarks.cost

Half of the random configurations calibrate the estimate, the other half test it. The rate is that
of sampling, morphing and measuring without building a model. Seconds are processor time of one
thread, so that what else the machine does matters little. A run that was stopped goes on where it
was. Results: benchmarks/results/cost.json.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
from keras_sparse.tuner.cost import FEATURES, Observation, affordable, fit, observe
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.morphs import morph

from benchmarks.record import RESULTS, environment, use_threads
from keras_sparse import measure
from keras_sparse.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="configurations to time")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    use_threads(1)
    file = RESULTS / "cost.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if results.get("seed") != arguments.seed:
        results = {"seed": arguments.seed, "rate": rate(), "ms per step": {}}
    print(results["rate"], flush=True)
    for pruning in ("unstructured", "structured"):
        model = SparseCNN((28, 28, 1), 10, pruning)
        rng = np.random.default_rng(arguments.seed)
        chosen = affordable(model, rng, arguments.count, 5_000_000)
        known = results["ms per step"].setdefault(pruning, [])
        for configuration in chosen[len(known) :]:
            observed = observe(model, configuration, steps=(5, 25), clock=time.process_time)
            known.append(round(1e3 * observed.seconds, 3))
            write_json(file, {**results, "environment": environment()})
        results[pruning] = tested(
            [
                Observation(model.graph(configuration), 128, 1e-3 * milliseconds)
                for configuration, milliseconds in zip(chosen, known, strict=False)
            ]
        )
        print(pruning, results[pruning], flush=True)
        write_json(file, {**results, "environment": environment()})


def tested(observed: list[Observation]) -> dict[str, Any]:
    """How well an estimate that is fitted to the first half tells the second."""
    half = len(observed) // 2
    cost = fit(observed[:half])
    ratios = [cost.step_seconds(o.graph, o.batch_size) / o.seconds for o in observed[half:]]
    within = np.mean([1 / 1.5 <= ratio <= 1.5 for ratio in ratios])
    return {
        "calibrated on": half,
        "tested on": len(ratios),
        "share within a factor of 1.5": round(float(within), 3),
        "estimated / measured": sorted(round(ratio, 2) for ratio in ratios),
        "seconds per unit": dict(zip(FEATURES, cost.coefficients, strict=True)),
    }


def rate(count: int = 1000, repetitions: int = 5) -> dict[str, float]:
    """Seconds for 1000 configurations, median of the repetitions."""
    model = SparseCNN((28, 28, 1), 10)
    seconds: dict[str, list[float]] = {"sample": [], "morph": [], "measure": []}
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        start = time.process_time()
        configurations = [model.sample(rng) for _ in range(count)]
        sampled = time.process_time()
        morphs = [morph(model, configuration, rng) for configuration in configurations]
        morphed = time.process_time()
        for result in morphs:
            measure(model.graph(result.configuration if result else configurations[0]))
        measured = time.process_time()
        for name, value in (
            ("sample", sampled - start),
            ("morph", morphed - sampled),
            ("measure", measured - morphed),
        ):
            seconds[name].append(value)
    medians = {name: round(float(np.median(values)), 3) for name, values in seconds.items()}
    return {"configurations": count, **medians, "total": round(sum(medians.values()), 3)}


if __name__ == "__main__":
    main()
