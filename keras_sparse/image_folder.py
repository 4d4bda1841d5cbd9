"""A user's own pictures as arrays: one folder per class, the folder's name is the class's."""

import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from sklearn.model_selection import train_test_split

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
FEWEST = 10
"""Images that every class must have: some to train, some to validate, some to test."""

_TEST_SHARE = 0.2
_SPLIT_SEED = 0


def read_image_folder(
    folder: str | os.PathLike[str], size: tuple[int, int] = (32, 32), *, colour: bool = False
) -> dict[str, np.ndarray]:
    """Reads a folder with one folder of images per class.

    With folders `train` and `test` these are the two sets; else a fifth of every class, always the
    same, becomes the test set.

    Args:
        folder: Path of the folder.
        size: (height, width) to which all images are scaled.
        colour: Whether to keep red, green and blue; else images become grey.

    Returns:
        Arrays x_train, y_train, x_test, y_test (images uint8, (examples, height, width, channels))
        and classes (names), as in an `.npz` file for `keras_sparse.datasets.load`.

    Raises:
        ValueError: What is in the folder is not that; the message says what to do.
    """
    folder = Path(folder)
    parts = {path.name for path in _folders(folder)}
    if parts == {"train", "test"}:
        classes = _classes(folder / "train")
        extra = sorted(set(_classes(folder / "test")) ^ set(classes))
        if extra:
            raise ValueError(
                f"{str(folder)!r} must have the same classes in train and test. Received: "
                f"{', '.join(map(repr, extra))} in one of them only"
            )
        x_train, y_train = _read_classes(folder / "train", classes, size, colour)
        x_test, y_test = _read_classes(folder / "test", classes, size, colour)
    else:
        classes = _classes(folder)
        x, y = _read_classes(folder, classes, size, colour)
        x_train, x_test, y_train, y_test = train_test_split(
            x, y, test_size=_TEST_SHARE, stratify=y, random_state=_SPLIT_SEED
        )
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return {**arrays, "classes": np.array(classes)}


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _classes(folder: Path) -> list[str]:
    names = [path.name for path in _folders(folder)]
    if len(names) < 2:
        raise ValueError(
            f"{str(folder)!r} must hold one folder of images per class, at least two. "
            f"Received: {len(names)} folders"
        )
    return names


def _read_classes(
    folder: Path, classes: list[str], size: tuple[int, int], colour: bool
) -> tuple[np.ndarray, np.ndarray]:
    images, labels = [], []
    for number, name in enumerate(classes):
        files = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in ENDINGS)
        if len(files) < (FEWEST if folder.name != "test" else 1):
            raise ValueError(
                f"The class folder {str(folder / name)!r} must hold at least {FEWEST} images "
                f"({', '.join(ENDINGS)}): add some, or remove the class. Received: {len(files)}"
            )
        images += [_read(path, size, colour) for path in files]
        labels += [number] * len(files)
    return np.stack(images), np.array(labels, np.int32)


def _read(path: Path, size: tuple[int, int], colour: bool) -> np.ndarray:
    try:
        with Image.open(path) as image:
            scaled = image.convert("RGB" if colour else "L").resize(
                (size[1], size[0]), Image.Resampling.BOX
            )
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{str(path)!r} must be an image: remove or replace it. Received: {error}"
        ) from None
    pixels = np.asarray(scaled, np.uint8)
    return pixels if colour else pixels[..., np.newaxis]
