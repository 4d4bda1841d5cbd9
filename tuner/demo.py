"""The demonstration: from scikit-learn's digits to a network in 2 KB on a board, in minutes.

    python -m keras_sparse.tuner.demo    (or `make demo`, or `keras-sparse demo`)

A real search in three stages on a small space, the best network within the budget quantized, run on
TFLite Micro, written as C and run on an emulated board, and a report of it all.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from keras_sparse import datasets
from keras_sparse.files import write_json

from .budget import Budget
from .deployment import deploy_trial
from .hypermodel import SparseCNN
from .parameters import Value
from .reading import read_search
from .report import write_report
from .tuner import SparseTuner

_RANGES: dict[str, Sequence[Value]] = {
    "downsample-input": [False],
    "global-pooling": ["none"],
    "num-conv-blocks": (1, 1),
    "num-conv-layers": (1, 2),
    "num-filters": (6, 24),
    "kernel-size": (2, 3),
    "stride": (1, 1),
    "pooling-window": (2, 2),
    "padding": ["same"],
    "num-fc-layers": (0, 0),
    "left-branch": [False],
    "right-branch": [False],
    "pruning-thresholds": (-3.0, 1.0),
    "alpha": (0.05, 0.5),
}
"""A space for images of 8 × 8 pixels, in which a few trials are enough to find something."""


def run_demo(out: Path, *, trials: int = 16, epochs: int = 30, images: int = 50) -> Path:
    """Runs the demonstration; prints what it does and what came of it.

    Args:
        out: Folder; a demonstration that was stopped goes on there.
        trials: Of the search.
        epochs: Of a trial from scratch.
        images: To run on the board.

    Returns:
        The path of the report.
    """
    start = time.monotonic()
    data = datasets.load("digits")
    print(
        f"1. A search for the most accurate CNN for {len(data.x_train)} images of digits in "
        f"at most 2 KB of flash and 2 KB of RAM: {trials} trials in three stages.\n",
        flush=True,
    )
    folder = out / "search"
    tuner = SparseTuner(
        SparseCNN(data.input_shape, data.num_classes, pruning="structured", ranges=_RANGES),
        budget=Budget(ram="2KB", flash="2KB"),
        max_trials=trials,
        directory=out,
        project_name=folder.name,
        seed=1,
    )
    write_json(folder / "command.json", {"data": "digits"})
    validation = (data.x_val, data.y_val)
    tuner.search(
        data.x_train, data.y_train, validation_data=validation, epochs=epochs, batch_size=32
    )
    print()
    tuner.results_summary()
    if read_search(folder).best is None:
        print("\nNo network is within the budget after so few trials.")
    else:
        firmware = _empty(out / "firmware")
        print(
            "\n2. The best within the budget, quantized and on the way to the board.\n", flush=True
        )
        print(deploy_trial(folder, "best", out=firmware, data=data, images=images))
    report = write_report(folder)
    minutes, seconds = divmod(int(time.monotonic() - start), 60)
    print(f"\nDone in {minutes} min {seconds} s. The report of this run: {report}")
    return report


def _empty(folder: Path) -> Path:
    """A folder that does not exist yet, beside those of earlier demonstrations."""
    number = 1
    path = folder
    while path.exists():
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


if __name__ == "__main__":
    run_demo(Path("runs/demo"))
