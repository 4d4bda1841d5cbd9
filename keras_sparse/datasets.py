"""Named image data sets with fixed splits, and a user's own `.npz` files in the same form.

Files are looked for in the folder named by the environment variable `KERAS_SPARSE_DATA`; MNIST,
CIFAR-10 and Fashion-MNIST can also come from Keras's own download; digits is part of scikit-learn.
"""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from .image_folder import read_image_folder

FOLDER_VARIABLE = "KERAS_SPARSE_DATA"
_SPLIT_SEED = 0
_KEYS = ("x_train", "y_train", "x_test", "y_test")


class Dataset(NamedTuple):
    """Images and labels, split and normalised.

    Attributes:
        name: As given to `load`.
        x_train: float32, shape (examples, height, width, channels): (pixel − mean) / deviation.
        y_train: int32 class numbers, shape (examples,).
        x_val: Validation images, cut from the training set: select on these.
        y_val: Their classes.
        x_test: Test images: report on these, once.
        y_test: Their classes.
        class_names: What the class numbers stand for.
        mean: Of the training pixels, per channel, in pixel values; shape (channels,).
        deviation: Standard deviation of the same.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    class_names: tuple[str, ...]
    mean: np.ndarray
    deviation: np.ndarray

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        height, width, channels = self.x_train.shape[1:]
        return height, width, channels


class _Source(NamedTuple):
    """Where a named data set comes from and how it is split.

    `split_class` makes it binary: labels below it are class 0, the rest class 1.
    """

    files: tuple[str, ...]
    validation: int
    split_class: int | None = None
    download: Callable[[], Any] | None = None
    class_names: list[str] | None = None


_FASHION = ["T-shirt", "trouser", "pullover", "dress", "coat"]
_FASHION += ["sandal", "shirt", "sneaker", "bag", "ankle boot"]
_CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer"]
_CIFAR10 += ["dog", "frog", "horse", "ship", "truck"]

_MNIST = _Source(("mnist.npz",), 5000, download=keras.datasets.mnist.load_data)
_CIFAR = _Source(
    ("cifar10.npz",), 5000, download=keras.datasets.cifar10.load_data, class_names=_CIFAR10
)
_CHARS = _Source(("chars4k_20x20gray.npz",), 500)
_SOURCES = {
    "mnist": _MNIST,
    "mnist-binary": _MNIST._replace(split_class=5),
    "cifar10": _CIFAR,
    "cifar10-binary": _CIFAR._replace(split_class=5),
    "chars4k": _CHARS,
    "chars4k-binary": _CHARS._replace(split_class=31),
    "chars4k-rgb": _Source(("chars4k_32x32rgb.npz",), 500),
    "fashion-mnist": _Source(
        ("fashion_mnist.npz", "fashion_mnist_kaggle.npz"),
        5000,
        download=keras.datasets.fashion_mnist.load_data,
        class_names=_FASHION,
    ),
    "kth-tips": _Source(("kth_tips_gray48.npz",), 160),
}
NAMES = ("digits", *_SOURCES)


def load(
    name: str | os.PathLike[str],
    *,
    image_size: tuple[int, int] = (32, 32),
    colour: bool = False,
) -> Dataset:
    """Loads a data set by name, or a user's own: an `.npz` file or a folder of images.

    The validation set is cut from the training set, stratified by class, always the same. The
    binary sets (MNIST and CIFAR-10: label < 5, Chars4k: label < 31, against the rest) follow the
    public definition of µNAS. KTH-TIPS is cut by photograph: crops of one stay together.

    Args:
        name: One of `NAMES`, or the path of an `.npz` with `x_train`, `y_train`, `x_test`, `y_test`
            (images (n, height, width) or (n, height, width, channels), labels (n,)). Optional are
            `x_val` with `y_val`, `classes` (names) and `group_train` (what must stay together). Or
            the path of a folder with one folder of images per class; see `image_folder`.
        image_size: (height, width) to which the images of a folder are scaled.
        colour: Whether the images of a folder keep their colours.

    Returns:
        The data set, with pixels normalised by one mean and deviation per channel.

    Raises:
        ValueError: The name is unknown, or the data are not usable; the message says why.
        FileNotFoundError: A file is missing; the message says what to put where.
    """
    if str(name).endswith(".npz"):
        arrays = _read(Path(name))
        return _prepare(str(name), arrays, validation=None)
    if name == "digits":
        return _prepare("digits", _digits(), validation=180)
    if name not in _SOURCES and Path(name).is_dir():
        arrays = read_image_folder(name, image_size, colour=colour)
        return _prepare(str(name), arrays, validation=None)
    if name not in _SOURCES:
        raise ValueError(
            f"name must be one of {', '.join(NAMES)}, or the path of an .npz file or of a folder "
            f"with one folder of images per class. Received: name={str(name)!r}"
        )
    source = _SOURCES[str(name)]
    arrays = dict(_find(str(name), source))
    if source.class_names is not None:
        arrays["classes"] = np.array(source.class_names)
    data = _prepare(str(name), arrays, validation=source.validation)
    return data if source.split_class is None else _binary(data, source.split_class)


def check_data(x: np.ndarray, y: np.ndarray, num_classes: int, *, name: str = "x and y") -> None:
    """Raises a ValueError in one sentence if images and labels cannot be trained on.

    Args:
        x: Images, shape (examples, …).
        y: Class numbers, shape (examples,).
        num_classes: Labels must be 0 … num_classes − 1.
        name: What to call the data in the message.
    """
    x, y = np.asarray(x), np.asarray(y)
    if len(x) == 0:
        raise ValueError(f"{name} must not be empty. Received: {x.shape} images")
    if len(x) != len(y):
        raise ValueError(
            f"{name} must have one label per image. Received: {len(x)} images and {len(y)} labels"
        )
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be images of numbers. Received: dtype={x.dtype}")
    if not np.isfinite(x).all():
        raise ValueError(
            f"{name} must be finite. Received: {np.sum(~np.isfinite(x))} NaN or infinite values"
        )
    check_labels(y, f"The labels of {name}")
    if y.min() < 0 or y.max() >= num_classes:
        hint = ": subtract 1" if y.min() == 1 and y.max() == num_classes else ""
        raise ValueError(
            f"The labels of {name} must be 0 to {num_classes - 1}{hint}. "
            f"Received: labels from {y.min()} to {y.max()}"
        )


def check_labels(y: np.ndarray, name: str) -> None:
    """Raises a ValueError, which says what to do, if labels are not class numbers.

    Args:
        y: Labels; shape (examples,) is what they must have.
        name: What to call them in the message.
    """
    hint = ""
    if y.ndim == 2 and y.shape[1] > 1:
        hint = ": of one-hot labels take y.argmax(axis=-1)"
    elif y.ndim == 1 and y.dtype.kind == "f" and np.array_equal(y, np.round(y)):
        hint = ': use y.astype("int32")'
    elif y.ndim == 1 and y.dtype.kind in "USO":
        hint = ": of names take np.unique(y, return_inverse=True)[1]"
    if y.ndim != 1 or y.dtype.kind not in "biu":
        raise ValueError(
            f"{name} must be whole class numbers, shape (examples,){hint}. "
            f"Received: dtype={y.dtype}, shape={y.shape}"
        )


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no data file {str(path)!r}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} is not a readable .npz of plain arrays: {error}") from None
    missing = [key for key in _KEYS if key not in arrays]
    if missing:
        raise ValueError(
            f"{str(path)!r} must hold the arrays {', '.join(_KEYS)}. Missing: {', '.join(missing)}"
        )
    return arrays


def _find(name: str, source: _Source) -> dict[str, np.ndarray]:
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        for file in source.files:
            if (Path(folder) / file).is_file():
                return _read(Path(folder) / file)
    where = f"in the folder {folder!r}" if folder else "in a folder of your choice"
    advice = f"put {' or '.join(source.files)} {where} and set {FOLDER_VARIABLE} to that folder"
    if source.download is None:
        raise FileNotFoundError(f"The data set {name!r} cannot be downloaded: {advice}.")
    try:
        (x_train, y_train), (x_test, y_test) = source.download()
    except Exception as error:  # Keras raises bare exceptions for a failed download.
        raise FileNotFoundError(
            f"The data set {name!r} could not be downloaded ({error}): {advice}."
        ) from None
    return dict(zip(_KEYS, (x_train, y_train, x_test, y_test), strict=True))


def _digits() -> dict[str, np.ndarray]:
    digits = load_digits()
    splits = train_test_split(
        digits.images,
        digits.target,
        test_size=360,
        stratify=digits.target,
        random_state=_SPLIT_SEED,
    )
    x_train, x_test, y_train, y_test = splits
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _prepare(name: str, arrays: dict[str, np.ndarray], validation: int | None) -> Dataset:
    if ("x_val" in arrays) != ("y_val" in arrays):
        raise ValueError(f"{name} must hold x_val and y_val together. Received: one of them")
    labels = {key: _labels(arrays[key]) for key in arrays if key.startswith("y_")}
    for key, values in labels.items():
        check_labels(values, f"The labels {key} of {name}")
    names = arrays.get("classes")
    num_classes = len(names) if names is not None else int(labels["y_train"].max(initial=0)) + 1
    for part in ("train", "val", "test"):
        if f"x_{part}" in arrays:
            check_data(
                arrays[f"x_{part}"], labels[f"y_{part}"], num_classes, name=f"{name}'s {part} set"
            )
    images = {key: _images(name, arrays[key]) for key in arrays if key.startswith("x_")}
    if len({value.shape[1:] for value in images.values()}) > 1:
        shapes = {key: value.shape[1:] for key, value in images.items()}
        raise ValueError(f"All images of {name} must have one shape. Received: {shapes}")
    if "x_val" not in images:
        train, val = _split(name, labels["y_train"], arrays.get("group_train"), validation)
        for data, key in ((images, "x"), (labels, "y")):
            whole = data[f"{key}_train"]
            data[f"{key}_train"], data[f"{key}_val"] = whole[train], whole[val]
    pixels = images["x_train"]
    mean = pixels.mean(axis=(0, 1, 2), dtype=np.float64)
    deviation = np.maximum(pixels.std(axis=(0, 1, 2), dtype=np.float64), 1e-7)
    scaled = {
        key: ((value - mean.astype(np.float32)) / deviation.astype(np.float32)).astype(np.float32)
        for key, value in images.items()
    }
    class_names = (
        tuple(map(str, names)) if names is not None else tuple(map(str, range(num_classes)))
    )
    return Dataset(
        name=name,
        **{key: scaled[key] for key in ("x_train", "x_val", "x_test")},
        **{key: labels[key] for key in ("y_train", "y_val", "y_test")},
        class_names=class_names,
        mean=mean,
        deviation=deviation,
    )


def _binary(data: Dataset, split_class: int) -> Dataset:
    """The same images in the same split with two classes: below `split_class`, and the rest."""
    return data._replace(
        y_train=(data.y_train >= split_class).astype(np.int32),
        y_val=(data.y_val >= split_class).astype(np.int32),
        y_test=(data.y_test >= split_class).astype(np.int32),
        class_names=(f"label<{split_class}", f"label>={split_class}"),
    )


def _labels(labels: np.ndarray) -> np.ndarray:
    labels = labels.reshape(len(labels)) if labels.size == len(labels) else labels
    return labels.astype(np.int32) if labels.dtype.kind in "biu" else labels


def _images(name: str, images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4:
        raise ValueError(
            f"The images of {name} must have the shape (n, height, width) or (n, height, width, "
            f"channels). Received: shape={images.shape}"
        )
    return images.astype(np.float32)


def _split(
    name: str, labels: np.ndarray, groups: np.ndarray | None, validation: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the validation examples."""
    size = validation if validation is not None else min(5000, max(len(labels) // 10, 1))
    if groups is None:
        groups = np.arange(len(labels))
    if len(groups) != len(labels):
        raise ValueError(
            f"group_train of {name} must have one number per training image. "
            f"Received: {len(groups)} for {len(labels)} images"
        )
    photos, first = np.unique(groups, return_index=True)
    test_size = max(round(size * len(photos) / len(labels)), len(np.unique(labels)))
    try:
        _, chosen = train_test_split(
            photos, test_size=test_size, stratify=labels[first], random_state=_SPLIT_SEED
        )
    except ValueError as error:
        raise ValueError(f"No stratified validation set can be cut from {name}: {error}") from None
    in_validation = np.isin(groups, chosen)
    return np.flatnonzero(~in_validation), np.flatnonzero(in_validation)
