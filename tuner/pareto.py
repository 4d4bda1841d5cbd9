"""The set of results that no other beats in everything, and the volume that it dominates.

Objectives are minimised: rows are results, columns objectives.
"""

import numpy as np


def non_dominated(points: np.ndarray) -> np.ndarray:
    """Which points no other point dominates.

    A point dominates another if it is at least as good in everything and better in something. Of
    equal points all stay.

    Args:
        points: Shape (results, objectives), to be minimised; rows with NaN are never in the set.

    Returns:
        A mask, shape (results,).
    """
    points = np.asarray(points, float)
    mask = np.zeros(len(points), bool)
    left = np.flatnonzero(~np.isnan(points).any(axis=1)) if len(points) else np.zeros(0, int)
    # A point of the least sum is dominated by none; what it dominates leaves with it.
    left = left[np.argsort(points[left].sum(axis=1), kind="stable")] if len(left) else left
    while len(left):
        first, rest = left[0], left[1:]
        mask[first] = True
        is_equal = (points[rest] == points[first]).all(axis=1)
        mask[rest[is_equal]] = True
        left = rest[(points[rest] < points[first]).any(axis=1) & ~is_equal]
    return mask


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """The volume between the points and `reference` that at least one point dominates, exactly.

    Args:
        points: Shape (results, objectives), to be minimised.
        reference: Shape (objectives,); points that are not better in everything add nothing.
    """
    points, reference = np.asarray(points, float), np.asarray(reference, float)
    if points.size == 0:
        return 0.0
    inside = points[(points < reference).all(axis=1)]
    return _volume(inside[non_dominated(inside)], reference) if len(inside) else 0.0


def _volume(points: np.ndarray, reference: np.ndarray) -> float:
    """By slices along the last objective; the points do not dominate each other."""
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    if points.shape[1] == 2:
        x, y = points[np.argsort(points[:, 0])].T
        return float(np.sum((reference[0] - x) * (np.append(reference[1], y[:-1]) - y)))
    points = points[np.argsort(points[:, -1])]
    depths = np.append(points[1:, -1], reference[-1]) - points[:, -1]
    total = 0.0
    for i, depth in enumerate(depths):
        if depth > 0:
            slab = points[: i + 1, :-1]
            total += depth * _volume(_front(slab), reference[:-1])
    return total


def _front(points: np.ndarray) -> np.ndarray:
    """The non-dominated points, equal ones once."""
    front: np.ndarray = np.unique(points[non_dominated(points)], axis=0)
    return front
