"""Random scalarizations: many objectives become one, by weights that express a preference.

Paria et al. (2018): g(x) = max_k λ_k·t_k(x), where t_k is objective k on a scale on which 0 is a
little better than the best known value of interest and 1 the limit (the user's budget, or the worst
on the front). Each draw of λ aims at another point of the front: u is drawn in the preferred region
(0, 1]^K and λ_k = 1/u_k, so that the minimum of g lies in the direction of u. Here u is a unit
vector: g is then the distance from 0 along u, and comparable between draws. A budget is a wall:
what lies beyond it gains nothing, however much better it is than other networks of no use.
"""

from typing import NamedTuple

import numpy as np

from .pareto import non_dominated

_NEAREST = 0.02
"""How close to 0 a preference may be: 1/u must stay finite."""


class Scale(NamedTuple):
    """Where 0 and 1 of each objective are.

    Attributes:
        best: Of value 0, shape (objectives,).
        limit: Of value 1, shape (objectives,).
        is_wall: Whether nothing beyond the limit is of interest, shape (objectives,).
    """

    best: np.ndarray
    limit: np.ndarray
    is_wall: np.ndarray

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
    is_wall = ~np.isnan(limits)
    lowest = values.min(axis=0)
    best = np.array([_best(values, limits, k) for k in range(len(limits))])
    spread = np.maximum(values.max(axis=0) - lowest, 1e-9)
    worst = values[non_dominated(values)].max(axis=0)
    limit = np.where(is_wall, limits, worst)
    # A limit that everything meets with room to spare still leaves an objective to improve.
    limit = np.maximum(limit, lowest + 0.05 * spread)
    best = np.minimum(best, limit - 0.05 * spread)
    # A little better than the best so far is in reach.
    return Scale(best - 0.05 * (limit - best), limit, is_wall)


def _best(values: np.ndarray, limits: np.ndarray, objective: int) -> float:
    """The least value of an objective among the results that keep the limits of the others.

    The smallest networks of all are of no use to anyone who has asked for an accuracy.
    """
    others = np.arange(len(limits)) != objective
    is_useful = ~(values[:, others] > limits[others]).any(axis=1)
    return float((values[is_useful] if is_useful.any() else values)[:, objective].min())


def draw_directions(count: int, objectives: int, rng: np.random.Generator) -> np.ndarray:
    """U of `count` random scalarizations, shape (count, objectives); positive, of length 1."""
    preferred = rng.uniform(_NEAREST, 1.0, (count, objectives))
    return np.asarray(preferred / np.linalg.norm(preferred, axis=1, keepdims=True))


def scalarize(normalised: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """G of points (points, objectives) in each direction: (points, directions); less is better."""
    return np.asarray(np.maximum((normalised[:, None, :] / directions).max(axis=2), 0.0))


def gains(
    known: np.ndarray, candidates: np.ndarray, directions: np.ndarray, is_wall: np.ndarray
) -> np.ndarray:
    """How much each candidate improves on what is known, over all directions; (candidates,).

    Seen from 0, what no known point dominates is a bundle of cones, so that what is gained in the
    directions is in proportion to the hypervolume that is gained. Where nothing is gained the
    number is negative: what is missing in the direction that suits best, and how far the candidate
    lies beyond the walls.

    Args:
        known: Normalised results, shape (results, objectives).
        candidates: Normalised, shape (candidates, objectives).
        directions: From `draw_directions`.
        is_wall: As in `Scale`, shape (objectives,).
    """
    power = known.shape[1]
    # Where each direction meets the first wall, seen from 0.
    ends = np.where(is_wall, 1.0 / directions, np.inf).min(axis=1)
    best = np.minimum(scalarize(known, directions).min(axis=0), ends) ** power
    difference = best - np.minimum(scalarize(candidates, directions), ends) ** power
    total = np.maximum(difference, 0.0).sum(axis=1)
    return np.asarray(
        np.where(total > 0, total, difference.max(axis=1) - beyond(candidates, is_wall))
    )


def beyond(normalised: np.ndarray, is_wall: np.ndarray) -> np.ndarray:
    """How far points (points, objectives) lie beyond the walls, in widths; shape (points,)."""
    return np.asarray(np.where(is_wall, np.maximum(normalised - 1.0, 0.0), 0.0).sum(axis=1))
