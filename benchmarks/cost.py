"""How well the seconds of a training step are estimated, and how fast configurations are handled.

    python -m benchmarks.cost

One half of the random configurations calibrates the estimate, the other tests it, for many ways to
draw the halves. (The common coefficients, near which fits are held, were read off a fit to all of
these networks, so the result is a little better than it would be on others.) The rate is that
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
        results[pruning] = judged(
            [
                Observation(
                    model.graph(configuration),
                    128,
                    1e-3 * milliseconds,
                    bool(configuration.get("batch-norm")),
                )
                for configuration, milliseconds in zip(chosen, known, strict=False)
            ]
        )
        print(pruning, results[pruning], flush=True)
        write_json(file, {**results, "environment": environment()})


def judged(observed: list[Observation], draws: int = 50) -> dict[str, Any]:
    """How well an estimate that is fitted to a random half tells the other, over many draws."""
    rng = np.random.default_rng(0)
    half = len(observed) // 2
    shares, ratios = [], []
    for _ in range(draws):
        order = rng.permutation(len(observed))
        cost = fit([observed[i] for i in order[:half]])
        for o in (observed[i] for i in order[half:]):
            estimated = cost.step_seconds(o.graph, o.batch_size, batch_norm=o.batch_norm)
            ratios.append(estimated / o.seconds)
        shares.append(np.mean([1 / 1.5 <= r <= 1.5 for r in ratios[-(len(observed) - half) :]]))
    quantiles = np.quantile(ratios, [0.05, 0.25, 0.5, 0.75, 0.95])
    return {
        "calibrated on": half,
        "tested on": len(observed) - half,
        "draws of the halves": draws,
        "share within a factor of 1.5": round(float(np.mean(shares)), 3),
        "estimated / measured, 5, 25, 50, 75, 95 %": [round(float(q), 2) for q in quantiles],
        "seconds per unit": dict(zip(FEATURES, fit(observed).coefficients, strict=True)),
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
