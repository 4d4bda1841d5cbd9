"""A benchmark of searches from our own domain: forests fitted to networks that were trained.

    python -m benchmarks.own_space

A table of trained networks is no benchmark, because a search almost never proposes one of its
rows. In the manner of NAS-Bench-301 the sizes before pruning come from the measuring code, and
forests of trees over a few dozen numbers of a network (`benchmarks/network_features.py`), fitted to
`benchmarks/results/trained_networks.json`, tell the error and what is left after pruning. This
command prints how well they rank networks that they have not seen (folds keep the chains of morphs
together), and compares random networks of the two spaces.
Results: benchmarks/results/own_space.json.
"""

import functools
import math
from typing import Any

import numpy as np
from keras_sparse.tuner.domain import CNNDomain
from keras_sparse.tuner.parameters import Configuration
from keras_sparse.tuner.pareto import hypervolume
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import GroupKFold, cross_val_predict

from benchmarks.network_features import features
from benchmarks.problems import Problem
from benchmarks.record import RESULTS, environment
from benchmarks.trained_networks import CHAIN, MOST_MACS, Network, load, macs, search_space
from keras_sparse.files import write_json

SIZES = ("", "nonzeros", "working_memory")
REFERENCE = np.array([0.0, math.log(100_000), math.log(20_000)])
"""Where the hypervolume starts: an error of 1, 100 thousand weights, 20 KB of working memory."""

IDEAL = np.array([math.log(0.01), math.log(100), math.log(200)])


def domain() -> CNNDomain:
    """The space as a search sees it."""
    return CNNDomain(search_space(), SIZES)


def targets(networks: list[Network]) -> np.ndarray:
    """Logs of error and of both sizes after pruning; shape (networks, 3).

    Not relative to the sizes before: the KL term leaves of large networks hardly more than of small
    ones.
    """
    names = ("val_error", "nonzeros", "working_memory")
    values = [[network.metrics[name] for name in names] for network in networks]
    return np.log(np.maximum(values, 1e-4))


def forest() -> ExtraTreesRegressor:
    """The model of one target."""
    return ExtraTreesRegressor(300, max_features=0.6, random_state=0, n_jobs=1)


def usable() -> list[Network]:
    """Networks of the extended space whose training did not fail."""
    return [n for n in load() if n.metrics and not n.key.startswith("paper")]


class OwnSpace:
    """Objectives of a configuration as the forests tell them."""

    def __init__(self) -> None:
        self.domain = domain()
        networks = usable()
        vectors = [features(self.domain.model, n.configuration) for n in networks]
        self.forests = [forest().fit(vectors, column) for column in targets(networks).T]

    def __call__(self, configuration: Configuration) -> tuple[float, ...]:
        """Logs of error, non-zeros and working memory; too large a network has failed."""
        configuration = self.domain.model.repaired(dict(configuration))
        if not self.is_affordable(configuration):
            return tuple(REFERENCE)
        vector = [features(self.domain.model, configuration)]
        told = np.array([forest.predict(vector)[0] for forest in self.forests])
        # Pruning adds nothing, and no error is above 1: its logarithm is at most 0.
        return tuple(np.minimum(told, self.domain.known(configuration)).tolist())

    def is_affordable(self, configuration: Configuration) -> bool:
        """Whether the network is not larger than those that were trained."""
        return macs(self.domain.model, configuration) <= MOST_MACS


@functools.cache
def own_space() -> Problem:
    """The problem; its best hypervolume is not known, that of the ideal corner stands in."""
    function = OwnSpace()
    best = float(np.prod(REFERENCE - IDEAL))
    space = function.domain.model.space
    accept = function.is_affordable
    return Problem("own space", space, function, REFERENCE, best, function.domain, accept)


def correlations(networks: list[Network]) -> dict[str, float]:
    """Rank correlation of each objective between forests and networks that they did not see."""
    space = domain()
    vectors = np.array([features(space.model, n.configuration) for n in networks])
    values = targets(networks)
    known = np.array([space.known(n.configuration) for n in networks])
    groups = [_group(n.key) for n in networks]
    result = {}
    for k, name in enumerate(("val_error", "nonzeros", "working_memory")):
        told = cross_val_predict(forest(), vectors, values[:, k], groups=groups, cv=GroupKFold(10))
        told = np.minimum(told, known[:, k])
        result[name] = round(float(spearmanr(told, values[:, k])[0]), 3)
    return result


def _group(key: str) -> str:
    kind, number = key.split()
    return f"chain {int(number) // CHAIN}" if kind == "chain" else key


def spaces(networks: list[Network], draws: int = 1000) -> dict[str, Any]:
    """Hypervolume of random networks of each space, as many of both, mean over many draws."""
    kinds = {"extended": "random", "paper": "paper"}
    trained = {
        space: [n.metrics for n in networks if n.metrics and n.key.startswith(kind)]
        for space, kind in kinds.items()
    }
    # Of fewer than there are, else every draw of the rarer kind would be the same.
    size = 2 * min(map(len, trained.values())) // 3
    result: dict[str, Any] = {"networks of a draw": size}
    rng = np.random.default_rng(0)
    for space, chosen in trained.items():
        if size < 10:
            break
        names = ("val_error", "nonzeros", "working_memory")
        points = np.log(np.maximum([[m[name] for name in names] for m in chosen], 1e-4))
        volumes = [
            hypervolume(points[rng.choice(len(points), size, replace=False)], REFERENCE)
            for _ in range(draws)
        ]
        result[space] = {
            "networks": len(chosen),
            "mean hypervolume": round(float(np.mean(volumes)), 2),
            "90 % of the draws": [round(float(q), 2) for q in np.quantile(volumes, [0.05, 0.95])],
        }
    return result


def main() -> None:
    networks = usable()
    results = {
        "networks": len(networks),
        "rank correlation": correlations(networks),
        "random networks of both spaces": spaces(load()),
        "environment": environment(),
    }
    print(results)
    write_json(RESULTS / "own_space.json", results)


if __name__ == "__main__":
    main()
