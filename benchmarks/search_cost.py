"""What a search costs beside the training of its networks.

    python -m benchmarks.search_cost --part proposals

Parts, each measured by itself: `proposals` (seconds of one proposal after 100, 300 and 1000
trials), `overhead` (share of a search on MNIST in which no training step runs: proposing, building,
tracing, measuring, saving), `memory` (resident memory after 50 and after 200 small trials),
`workers` (trials an hour of two workers with a core each, against one with both).
Results: benchmarks/results/search_cost.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner import Budget, SparseCNN, SparseTuner
from keras_sparse.tuner.domain import CNNDomain
from keras_sparse.tuner.proposer import Proposer, Result
from keras_sparse.tuner.stages import default_stages

from benchmarks.record import RESULTS, environment
from keras_sparse import datasets
from keras_sparse.files import write_json

FILE = RESULTS / "search_cost.json"


def proposals(repetitions: int = 5) -> dict[str, Any]:
    """Seconds of proposals in a space like that of MNIST, three objectives.

    By the clock and of the processor: a proposal uses one thread, so that the latter is what it
    takes on a quiet machine.
    """
    model = SparseCNN((28, 28, 1), 10, "structured")
    sizes = ("", "nonzeros", "working_memory")
    rows = {}
    for count in (100, 300, 1000):
        domain, rng = CNNDomain(model, sizes), np.random.default_rng(0)
        results = []
        for _ in range(count):
            configuration = model.sample(rng)
            known = domain.known(configuration)
            drawn = known - rng.uniform(0.5, 2.0, 3)
            drawn[0] = -0.3 * known[1] + rng.normal(0.0, 0.2)
            results.append(Result(configuration, tuple(drawn.tolist())))
        proposer = Proposer(domain, 3, default_stages(2 * count), seed=1)
        seconds = []
        while len(seconds) < repetitions:
            start = np.array([time.perf_counter(), time.process_time()])
            proposal = proposer.propose(results)
            if proposal.reference is not None:  # random ones take no time
                seconds.append(np.array([time.perf_counter(), time.process_time()]) - start)
            results.append(Result(proposal.configuration, results[len(seconds)].objectives))
        rows[f"after {count} trials"] = {
            name: {
                "first (fits the models)": round(float(column[0]), 3),
                "median": round(float(np.median(column)), 3),
                "longest": round(float(column.max()), 3),
            }
            for name, column in zip(("clock", "processor"), np.array(seconds).T, strict=True)
        }
    return rows


class Stopwatch(keras.callbacks.Callback):
    """Adds up the seconds of training and validation, as long as the median epoch each."""

    total = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self.epochs: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(time.perf_counter() - self.start)

    def on_train_end(self, logs: Any = None) -> None:
        # The first epoch has the tracing in it.
        Stopwatch.total += float(np.median(self.epochs)) * len(self.epochs)


def overhead(trials: int = 8, epochs: int = 20) -> dict[str, Any]:
    """Share of a search on all of MNIST that is not training.

    Shorter than a search would be, which trains up to 70 epochs, and so not to its advantage.
    """
    data = datasets.load("mnist")
    Stopwatch.total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        tuner = SparseTuner(
            SparseCNN(data.input_shape, data.num_classes, "unstructured"),
            budget=Budget(flash="8KB"),
            max_trials=trials,
            max_trial_seconds=240.0,
            directory=folder,
            seed=1,
        )
        start = time.perf_counter()
        tuner.search(
            data.x_train,
            data.y_train,
            validation_data=(data.x_val, data.y_val),
            epochs=epochs,
            callbacks=[Stopwatch()],
            verbose=0,
        )
        seconds = time.perf_counter() - start
    return {
        "trials": trials,
        "epochs": epochs,
        "seconds": round(seconds, 1),
        "seconds of training": round(Stopwatch.total, 1),
        "share that is not training": round(1.0 - Stopwatch.total / seconds, 3),
    }


def memory(trials: int = 200, early: int = 50) -> dict[str, Any]:
    """Resident memory of one process in MB after some and after many trials on digits."""
    seen: dict[int, float] = {}

    class Watching(SparseTuner):
        def on_trial_end(self, trial: Any) -> None:
            super().on_trial_end(trial)
            seen[int(trial.trial_id) + 1] = _resident()

    with tempfile.TemporaryDirectory() as folder:
        # Networks of few layers: what a trial leaves behind does not depend on how long it took.
        few = {"num-conv-blocks": (1, 1), "num-conv-layers": (1, 1)}
        _search(Watching, folder, trials, epochs=1, ranges=few)
    return {
        f"MB after {early} trials": round(seen[early], 1),
        f"MB after {trials} trials": round(seen[trials], 1),
        "ratio": round(seen[trials] / seen[early], 3),
    }


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _search(
    make: type[SparseTuner],
    folder: str,
    trials: int,
    epochs: int,
    ranges: dict[str, tuple[int, int]] | None = None,
) -> None:
    data = datasets.load("digits")
    small = {"num-filters": (1, 16), "total-fc-layer-weights": (50, 2000), **(ranges or {})}
    model = SparseCNN(data.input_shape, data.num_classes, ranges=small)
    tuner = make(model, max_trials=trials, directory=folder, seed=1)
    validation = (data.x_val, data.y_val)
    tuner.search(data.x_train, data.y_train, validation_data=validation, epochs=epochs, verbose=0)


def workers(trials: int = 40) -> dict[str, Any]:
    """Trials an hour of one worker with all cores and of two that share them, by the command."""
    rates = {}
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.search_cost", "--worker", folder]
            start = time.perf_counter()
            launcher = [*command, str(trials), str(count)]
            subprocess.run(launcher, check=True)  # noqa: S603  (this file)
            rates[count] = 3600.0 * trials / (time.perf_counter() - start)
    return {
        "trials": trials,
        "trials an hour with 1 worker": round(rates[1]),
        "trials an hour with 2 workers": round(rates[2]),
        "ratio": round(rates[2] / rates[1], 2),
    }


def work(folder: str, trials: int, count: int) -> None:
    """One of the processes of `workers`, or the one that starts them."""
    from keras_sparse.tuner.workers import launch

    if count > 1 and "KERASTUNER_TUNER_ID" not in os.environ:
        words = ["-m", "benchmarks.search_cost", "--worker", folder, str(trials), str(count)]
        raise SystemExit(launch(words, count))
    _search(SparseTuner, folder, trials, epochs=10)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "proposals": proposals,
    "overhead": overhead,
    "memory": memory,
    "workers": workers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        folder, trials, count = arguments.worker
        work(folder, int(trials), int(count))
        return
    for part in [arguments.part] if arguments.part else PARTS:
        measured = {**PARTS[part](), "environment": environment()}
        print(part, measured, flush=True)
        results = json.loads(FILE.read_text()) if FILE.is_file() else {}
        write_json(FILE, {**results, part: measured})


if __name__ == "__main__":
    main()
