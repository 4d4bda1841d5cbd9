"""How much of the front a search finds, against its peers, with the same number of evaluations.

    python -m benchmarks.hypervolume

Every method evaluates the same number of configurations on each problem, with several seeds. The
hypervolume after each evaluation is kept; the results are compared seed by seed. Peers from
Optuna and BoTorch (`benchmarks/botorch_peer.py`) take part if they are installed
(`pip install optuna botorch`). A run that was stopped goes on where it was, `--seeds 0` only sums
up. Results: benchmarks/results/hypervolume.json, and a picture of the same name.
"""

import argparse
import importlib.util
import io
import json
import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from keras_sparse.tuner.domain import SpaceDomain
from keras_sparse.tuner.hyperparameters import hyperparameters_of
from keras_sparse.tuner.parameters import Configuration, Parameter, Value
from keras_sparse.tuner.pareto import hypervolume
from keras_sparse.tuner.proposer import Proposer, Result
from keras_sparse.tuner.stages import Stage, default_stages
from matplotlib.figure import Figure

from benchmarks.own_space import own_space
from benchmarks.problems import PROBLEMS, Evaluations, Problem
from benchmarks.record import RESULTS, environment
from keras_sparse.files import write_bytes

Values = list[tuple[float, ...]]


def ours(problem: Problem, count: int, seed: int, stages: Sequence[Stage] | None = None) -> Values:
    """Our proposer, with the stages that a search has unless others are given."""
    objectives = len(problem.reference)
    domain = problem.domain or SpaceDomain(problem.space, objectives)
    stages = stages or default_stages(count, has_pruning=domain.has_pruning)
    proposer = Proposer(domain, objectives, stages, seed=seed, accept=problem.accept)
    results: list[Result] = []
    for _ in range(count):
        configuration = proposer.propose(results).configuration
        results.append(Result(configuration, problem.objectives(configuration)))
    return [result.objectives for result in results if result.objectives is not None]


def random_search(problem: Problem, count: int, seed: int) -> Values:
    """Uniformly random."""
    rng = np.random.default_rng((seed, 7))
    evaluate = Evaluations(problem, count)
    while not evaluate.is_over:
        evaluate(problem.space.sample(rng))
    return evaluate.values


def keras_tuner_bayesian(problem: Problem, count: int, seed: int) -> Values:
    """KerasTuner's Bayesian optimization on the sum of the objectives.

    It begins with three random points for each dimension, and those of a seed are nearly those of
    the next one, so that its deviation over the seeds is too small.
    """
    import keras_tuner

    hyperparameters = keras_tuner.HyperParameters()
    hyperparameters.merge(hyperparameters_of(problem.space))
    oracle = keras_tuner.oracles.BayesianOptimizationOracle(
        keras_tuner.Objective("sum", "min"),
        max_trials=None,
        hyperparameters=hyperparameters,
        seed=seed + 1,
    )
    oracle.verbose = 0
    evaluate = Evaluations(problem, count)
    with tempfile.TemporaryDirectory() as folder:
        oracle._set_project_dir(folder, "peer")
        while not evaluate.is_over:
            trial = oracle.create_trial("tuner0")
            if trial.status == "STOPPED":
                break
            configuration: Configuration = {}
            for parameter in problem.space:
                if parameter.is_active(configuration):
                    configuration[parameter.name] = trial.hyperparameters.values[parameter.name]
            oracle.update_trial(trial.trial_id, {"sum": sum(evaluate(configuration))})
            trial.status = "COMPLETED"
            oracle.end_trial(trial)
    return evaluate.values


def optuna_with(make: Callable[[int], Any]) -> Callable[[Problem, int, int], Values]:
    """A sampler of Optuna; inactive parameters are not asked for, as its users would do."""

    def run(problem: Problem, count: int, seed: int) -> Values:
        import optuna

        optuna.logging.set_verbosity(logging.ERROR)
        directions = ["minimize"] * len(problem.reference)
        study = optuna.create_study(sampler=make(seed), directions=directions)
        evaluate = Evaluations(problem, count)
        while not evaluate.is_over:
            trial, configuration = study.ask(), Configuration()
            for p in problem.space:
                if p.is_active(configuration):
                    configuration[p.name] = _suggested(trial, p)
            study.tell(trial, evaluate(configuration))
        return evaluate.values

    return run


def _suggested(trial: Any, parameter: Parameter) -> Value:
    name, low, high, log = parameter.name, parameter.low, parameter.high, parameter.log
    if parameter.values:
        return trial.suggest_categorical(name, list(parameter.values))
    if parameter.is_integer:
        step = 1 if log else int(parameter.step)
        return parameter.nearest(trial.suggest_int(name, int(low), int(high), log=log, step=step))
    return parameter.nearest(trial.suggest_float(name, low, high, log=log))


def methods() -> dict[str, Callable[[Problem, int, int], Values]]:
    """All that are installed."""
    found: dict[str, Callable[[Problem, int, int], Values]] = {
        "ours": ours,
        "random": random_search,
        "KerasTuner Bayesian": keras_tuner_bayesian,
    }
    if importlib.util.find_spec("optuna"):
        import optuna

        samplers = optuna.samplers
        found["Optuna NSGA-II"] = optuna_with(lambda s: samplers.NSGAIISampler(seed=s))
        found["Optuna TPE"] = optuna_with(lambda s: samplers.TPESampler(seed=s))
        if importlib.util.find_spec("torch"):
            found["Optuna GP"] = optuna_with(lambda s: samplers.GPSampler(seed=s))
    if importlib.util.find_spec("botorch"):
        from benchmarks.botorch_peer import parego

        found["BoTorch qLogNParEGO"] = parego
    return found


def history(problem: Problem, values: Values) -> list[float]:
    """Hypervolume after each evaluation."""
    points = np.array(values)
    volumes = [hypervolume(points[: i + 1], problem.reference) for i in range(len(points))]
    return [round(float(volume), 6) for volume in volumes]


def summary(problem: Problem, runs: dict[str, list[float]]) -> dict[str, Any]:
    """Mean, deviation and wins of ours over each method, over the seeds that both have."""
    final: dict[str, dict[int, float]] = {}
    for key, volumes in runs.items():
        name, method, seed = key.split(" | ")
        if name == problem.name:
            final.setdefault(method, {})[int(seed)] = volumes[-1]
    rows = {}
    for method, by_seed in final.items():
        common = sorted(set(by_seed) & set(final.get("ours", {})))
        ours = [final["ours"][s] for s in common]
        theirs = [by_seed[s] for s in common]
        rows[method] = {
            "mean": round(float(np.mean(list(by_seed.values()))), 5),
            "deviation": round(float(np.std(list(by_seed.values()))), 5),
            "seeds": len(by_seed),
            "share of the best": round(float(np.mean(list(by_seed.values()))) / problem.best, 4),
            "seeds of both": len(common),
            "ours is better (seeds)": sum(a > b for a, b in zip(ours, theirs, strict=True)),
            "ours to theirs": round(float(np.sum(ours) / np.sum(theirs)), 4) if common else None,
        }
    return rows


def plot(problems: list[Problem], runs: dict[str, list[float]], file: Path) -> None:
    """Mean over the seeds of what is missing to the best hypervolume, with a standard error."""
    figure = Figure(figsize=(4.5 * len(problems), 4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(problems)))
    methods_run = list(dict.fromkeys(key.split(" | ")[1] for key in runs))
    lines: dict[str, Any] = {}
    for axis, problem in zip(axes, problems, strict=True):
        by_method: dict[str, list[list[float]]] = {}
        for key, volumes in runs.items():
            name, method, _ = key.split(" | ")
            if name == problem.name:
                by_method.setdefault(method, []).append(volumes)
        for method, rows in by_method.items():
            missing = 1.0 - np.array(rows) / problem.best
            mean, error = missing.mean(axis=0), missing.std(axis=0) / np.sqrt(len(missing))
            steps = np.arange(1, len(mean) + 1)
            color, width = f"C{methods_run.index(method)}", 2 if method == "ours" else 1
            lines[method] = axis.plot(steps, mean, color=color, linewidth=width)[0]
            axis.fill_between(steps, mean - error, mean + error, color=color, alpha=0.2)
        axis.set(title=problem.name, xlabel="evaluations", yscale="log")
    axes[0].set_ylabel("share of the best hypervolume that is missing")
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines))
    write_figure(figure, file)


def write_figure(figure: Figure, file: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    write_bytes(file, buffer.getvalue())


def save(file: Path, results: dict[str, Any]) -> None:
    """Writes the results, one line per run."""
    runs = ",\n".join(f"{json.dumps(key)}: {json.dumps(v)}" for key, v in results["runs"].items())
    head = json.dumps({key: v for key, v in results.items() if key != "runs"}, indent=1)
    write_bytes(file, f'{head[:-2]},\n "runs": {{\n{runs}\n}}\n}}\n'.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=100)
    names, known = [*PROBLEMS, "own space"], methods()
    parser.add_argument("--problems", nargs="*", default=names, choices=names)
    parser.add_argument("--methods", nargs="*", default=list(known), choices=list(known))
    arguments = parser.parse_args()
    problems = {n: PROBLEMS.get(n) or own_space() for n in arguments.problems}
    file = RESULTS / "hypervolume.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if results.get("evaluations") != arguments.evaluations:
        results = {"evaluations": arguments.evaluations, "runs": {}}
    for seed in range(arguments.seeds):
        for name, problem in problems.items():
            for method in arguments.methods:
                key = f"{name} | {method} | {seed}"
                if key in results["runs"]:
                    continue
                values = known[method](problem, arguments.evaluations, seed)
                results["runs"][key] = history(problem, values)
                print(key, results["runs"][key][-1], flush=True)
                results["environment"] = environment()
                save(file, results)
    results["summary"] = {
        **results.get("summary", {}),
        **{name: summary(problem, results["runs"]) for name, problem in problems.items()},
    }
    save(file, results)
    print(json.dumps(results["summary"], indent=1))
    plot(list(problems.values()), results["runs"], file.with_suffix(".png"))


if __name__ == "__main__":
    main()
