"""Training images moved, turned and stretched anew for every epoch."""

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Augmentation(NamedTuple):
    """How images change.

    Attributes:
        shift: They move by up to so many pixels both ways.
        affine: Whether they also turn (10 degrees), stretch (10 %) and shear (10 %).
        flip: Whether they are mirrored.
    """

    shift: int = 2
    affine: bool = False
    flip: bool = False


def augmented(x: np.ndarray, how: Augmentation, rng: np.random.Generator) -> np.ndarray:
    """Each image through an affine map of its own, read bilinearly; edges repeat."""
    result = np.empty_like(x)
    for start in range(0, len(x), 2000):
        part = x[start : start + 2000]
        result[start : start + 2000] = _warped(part, how, rng)
    return result


def _warped(x: np.ndarray, how: Augmentation, rng: np.random.Generator) -> np.ndarray:
    count, height, width, _ = x.shape
    if how.flip:
        x = np.where(rng.random((count, 1, 1, 1)) < 0.5, x[:, :, ::-1], x)
    identity = np.broadcast_to(np.eye(2), (count, 2, 2))
    move = rng.uniform(-how.shift, how.shift, (count, 2, 1))
    if not how.affine:
        move = np.round(move)
    matrix = _matrices(count, rng) if how.affine else identity
    center = np.array([[(height - 1) / 2], [(width - 1) / 2]])
    grid = np.stack([axis.ravel() for axis in np.mgrid[:height, :width]]) - center
    places = (matrix @ grid + center + move).astype(np.float32)
    row = np.clip(places[:, 0], 0, height - 1)
    column = np.clip(places[:, 1], 0, width - 1)
    top = np.minimum(row.astype(np.int32), height - 2)
    left = np.minimum(column.astype(np.int32), width - 2)
    down, right = (row - top)[..., None], (column - left)[..., None]
    flat = x.reshape(count, height * width, -1)
    images = np.arange(count)[:, None]
    corner = top * width + left
    upper = flat[images, corner] * (1 - right) + flat[images, corner + 1] * right
    lower = flat[images, corner + width] * (1 - right) + flat[images, corner + width + 1] * right
    return (upper * (1 - down) + lower * down).reshape(x.shape)


def _matrices(count: int, rng: np.random.Generator) -> np.ndarray:
    angle = np.deg2rad(rng.uniform(-10, 10, count))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    stretch = np.zeros((count, 2, 2))
    stretch[:, [0, 1], [0, 1]] = rng.uniform(0.9, 1.1, (count, 2))
    stretch[:, [0, 1], [1, 0]] = rng.uniform(-0.1, 0.1, (count, 2))
    return turn.transpose(2, 0, 1) @ stretch


def augmented_copy(
    x: np.ndarray, how: Augmentation, seed: int, number: int, folder: Path
) -> np.ndarray:
    """The same, but from a file in `folder` if it was made before."""
    path = folder / f"{seed}-{number}.npy"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        changed = augmented(x, how, np.random.default_rng((seed, number)))
        np.save(path, changed.astype(np.float16))
    return np.load(path).astype(np.float32)
