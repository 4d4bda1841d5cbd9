"""Random scalarizations: many objectives become one, by weights that express a preference.

Paria et al. (2018): g(x) = max_k λ_k·t_k(x), where t_k is objective k on a scale on which 0 is a
little better than the best known value and 1 the limit (the user's budget, or the worst on
the front). Each draw of λ aims at another point of the front: u is drawn in the preferred region
(0, 1]^K and λ_k ∝ 1/u_k, so that the minimum of g lies in the direction of u.
"""

from typing import NamedTuple

import numpy as np

from .pareto import non_dominated

_SLOPE = 0.05
"""Share of the sum beside the maximum: of two points with the same worst objective the better."""

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


def draw_weights(count: int, rng: np.random.Generator) -> np.ndarray:
    """λ of one random scalarization of `count` objectives; positive, sums to 1."""
    preferred = rng.uniform(_NEAREST, 1.0, count)
    weights = 1.0 / preferred
    return np.asarray(weights / weights.sum())


def scalarize(normalised: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The one objective: shape (…, objectives) to (…,); smaller is better."""
    weighted = normalised * weights
    return np.asarray(weighted.max(axis=-1) + _SLOPE * weighted.sum(axis=-1))
