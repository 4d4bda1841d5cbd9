"""Random scalarizations: many objectives become one, by weights that express a preference.

Paria et al. (2018): g(x) = max_k λ_k·t_k(x), where t_k is objective k on a scale on which 0 is a
little better than the best known value and 1 the limit (the user's budget, or the worst on
the front). Each draw of λ aims at another point of the front: u is drawn in the preferred region
(0, 1]^K and λ_k = 1/u_k, so that the minimum of g lies in the direction of u. Here u is a unit
vector: g is then the distance from 0 along u, and comparable between draws.
"""

from typing import NamedTuple

import numpy as np

from .pareto import non_dominated

_NEAREST = 0.02
"""How close to 0 a preference may be: 1/u must stay finite."""


class Scale(NamedTuple):
    """Where 0 and 1 of each objective are, both of shape (objectives,)."""

    best: np.ndarray
    limit: np.ndarray

    def normalised(self, values: np.ndarray) -> np.ndarray:
        """Values of shape (…, objectives) on the scale; beyond the limit they exceed 1."""
        return (values - self.best) / np.maximum(self.limit - self.best, 1e-12)


def scale_of(values: np.ndarray, limits: np.ndarray) -> Scale:
    """The scale of results so far.

    Args:
        values: Shape (results, objectives), to be minimised, without NaN.
        limits: Shape (objectives,): the user's limits on the same scale as `values`; NaN where
            there is none, and the worst value on the front so far stands in.
    """
    best = values.min(axis=0)
    spread = np.maximum(values.max(axis=0) - best, 1e-9)
    worst = values[non_dominated(values)].max(axis=0)
    limit = np.where(np.isnan(limits), worst, limits)
    # A limit that everything meets with room to spare still leaves an objective to improve.
    limit = np.maximum(limit, best + 0.05 * spread)
    # A little better than the best so far is in reach.
    return Scale(best - 0.05 * (limit - best), limit)


def draw_directions(count: int, objectives: int, rng: np.random.Generator) -> np.ndarray:
    """U of `count` random scalarizations, shape (count, objectives); positive, of length 1."""
    preferred = rng.uniform(_NEAREST, 1.0, (count, objectives))
    return np.asarray(preferred / np.linalg.norm(preferred, axis=1, keepdims=True))


def scalarize(normalised: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """G of points (points, objectives) in each direction: (points, directions); less is better."""
    return np.asarray(np.maximum((normalised[:, None, :] / directions).max(axis=2), 0.0))


def gains(known: np.ndarray, candidates: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """How much each candidate improves on what is known, over all directions; (candidates,).

    Seen from 0, what no known point dominates is a bundle of cones, so that what is gained in the
    directions is in proportion to the hypervolume that is gained. Where nothing is gained the
    number is negative: what is missing in the direction that suits best.

    Args:
        known: Normalised results, shape (results, objectives).
        candidates: Normalised, shape (candidates, objectives).
        directions: From `draw_directions`.
    """
    power = known.shape[1]
    best = scalarize(known, directions).min(axis=0) ** power
    difference = best - scalarize(candidates, directions) ** power
    total = np.maximum(difference, 0.0).sum(axis=1)
    return np.asarray(np.where(total > 0, total, difference.max(axis=1)))
