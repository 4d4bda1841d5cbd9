"""Cross-validation of candidates where one validation set is too small to tell them apart.

500 images tell an accuracy of 78 % to 1.9 points, 4 397 to 0.6. Every network of a cross-validation
begins with weights drawn anew, because those of the trial have seen training images, and has a
teacher of its own for the same reason. Its accuracy chooses a network; the long training after it
begins with the trial's weights and has all images but the test's.
"""

from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import StratifiedKFold

from keras_sparse import datasets

_SEED = 0


def merged(data: datasets.Dataset) -> datasets.Dataset:
    """Training and validation images as training images; the validation images stay, too."""
    x = np.concatenate([data.x_train, data.x_val])
    y = np.concatenate([data.y_train, data.y_val])
    return data._replace(name=f"{data.name}-merged", x_train=x, y_train=y)


def folds_of(data: datasets.Dataset, count: int) -> Iterator[datasets.Dataset]:
    """Training and validation images parted anew, `count` times, each image once for validation."""
    whole = merged(data)
    splitter = StratifiedKFold(count, shuffle=True, random_state=_SEED)
    for number, (train, val) in enumerate(splitter.split(whole.y_train, whole.y_train)):
        yield data._replace(
            name=f"{data.name}-fold{number}of{count}",
            x_train=whole.x_train[train],
            y_train=whole.y_train[train],
            x_val=whole.x_train[val],
            y_val=whole.y_train[val],
        )
