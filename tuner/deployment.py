"""From the folder of a search to a board: a network quantized, converted and checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_sparse import datasets
from keras_sparse.deploy import BoardError, MicroModel, export, quantize, run_on_board, to_c
from keras_sparse.deploy.c import BOARDS
from keras_sparse.files import write_json

from .loading import chosen_trial, load_network
from .project import read_json
from .reading import read_search


class Deployment(NamedTuple):
    """What came of it; `print` shows a table.

    Attributes:
        facts: Flat: "trial", "board" and numbers by name, in the order of the way to the board.
        folder: Where the files are.
        problem: Why it did not run on the board; "" if it did.
    """

    facts: dict[str, str | float]
    folder: Path
    problem: str = ""

    def __str__(self) -> str:
        rows = [(name.replace("_", " "), _shown(name, value)) for name, value in self.facts.items()]
        rows.append(("files", str(self.folder)))
        if self.problem:
            rows.append(("not on the board", self.problem))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def deploy_trial(
    folder: str | Path,
    trial: str = "best",
    *,
    board: str = "uno",
    out: str | Path = "firmware",
    data: str | datasets.Dataset | None = None,
    epochs: int = 5,
    images: int = 50,
) -> Deployment:
    """Quantizes a trial's network, checks it on TFLite Micro and brings it to a board.

    Args:
        folder: Of the search.
        trial: "best" for the most accurate within the budget, or an id.
        board: Name of the board.
        out: Folder for the files; it must not exist or be empty.
        data: Data set or its name or path; None for that of the search.
        epochs: Of quantization-aware training.
        images: Test images to run on the board.

    Returns:
        What was measured, which is also written to `deployments` in the folder of the search.
    """
    if board not in BOARDS:
        raise ValueError(f"board must be one of {', '.join(BOARDS)}. Received: {board!r}")
    search, out = read_search(folder), Path(out)
    trial_id = chosen_trial(search, trial)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out must be a folder that is empty or new. Received: {str(out)!r}")
    examples = data if isinstance(data, datasets.Dataset) else _data_of(folder, data)
    if search.input_shape and examples.input_shape != search.input_shape:
        raise ValueError(
            f"The data must be those of the search, images of {search.input_shape}. "
            f"Received: {examples.name} with {examples.input_shape}"
        )
    small = load_network(folder, trial_id)
    quantized = quantize(
        small,
        examples.x_train,
        examples.y_train,
        epochs=epochs,
        validation_data=(examples.x_val, examples.y_val),
        input_range=input_range(examples),
    )
    card = export(
        quantized,
        out / "tflite",
        test_data=(examples.x_test, examples.y_test),
        original=small,
        class_names=examples.class_names,
        mean=examples.mean,
        deviation=examples.deviation,
    )
    facts: dict[str, str | float] = {"trial": trial_id, "board": board, "data": examples.name}
    facts |= _numbers(card)
    flatbuffer = (out / "tflite" / "model.tflite").read_bytes()
    firmware = to_c(flatbuffer, out / "c")
    facts |= {"c_weight_bytes": firmware.weights, "c_table_bytes": firmware.flash}
    problem = ""
    try:
        facts |= _on_board(out / "c", board, flatbuffer, examples.x_test[:images])
    except BoardError as error:
        problem = str(error)
    write_json(search.folder / "deployments" / f"{trial_id}-{board}.json", facts)
    return Deployment(facts, out, problem)


def input_range(data: datasets.Dataset) -> tuple[float, float] | None:
    """Grey pixels from 0 to 255 as the network sees them: then the device takes pixel − 128.

    None, for the range of the data, if there are several channels or other pixels.
    """
    if len(data.mean) > 1:
        return None
    mean, deviation = float(data.mean[0]), float(data.deviation[0])
    low, high = ((float(x) * deviation + mean) for x in (data.x_train.min(), data.x_train.max()))
    has_bytes = low >= -0.5 and 128 <= high <= 255.5
    return ((0.0 - mean) / deviation, (255.0 - mean) / deviation) if has_bytes else None


def _on_board(folder: Path, board: str, flatbuffer: bytes, x: np.ndarray) -> dict[str, float]:
    """What the firmware takes, and whether it answers as TFLite Micro does."""
    micro = MicroModel(flatbuffer, trusted=True)
    images = micro.input.quantized(x)
    run = run_on_board(folder, board, images)
    expected = micro.predict_int8(images).reshape(run.outputs.shape)
    numbers = {
        "board_flash_bytes": run.flash,
        "board_ram_bytes": run.memory,
        "board_static_bytes": run.ram,
        "board_stack_bytes": run.stack,
        "board_cycles_per_image": run.cycles,
        "board_instructions_per_image": run.instructions,
        "board_images": len(images),
        "board_mismatches": int(np.any(run.outputs != expected, axis=-1).sum()),
    }
    is_counted = {name for name, value in numbers.items() if value or "per_image" not in name}
    return {name: value for name, value in numbers.items() if name in is_counted}


def _numbers(card: Mapping[str, Any]) -> dict[str, float]:
    """What a table shows of the card; what was not measured is left out."""
    arena = card["arena"] or {}
    numbers = {
        "test_accuracy_float": card["accuracy"]["float"],
        "test_accuracy_int8": card["accuracy"]["tflite-micro"],
        "tflite_bytes": card["flatbuffer bytes"],
        "tflite_micro_arena_bytes": arena.get("total"),
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _data_of(folder: str | Path, data: str | None) -> datasets.Dataset:
    from .cli import load_data  # the settings of the command

    settings = read_json(Path(folder) / "command.json")
    settings = dict(settings) if isinstance(settings, dict) else {}
    settings = {"image_size": "32x32", "colour": False, **settings}
    if data is not None:
        settings["data"] = data
    if "data" not in settings:
        raise ValueError(
            f"--data must be given: {str(folder)!r} does not say on what it was searched. "
            "Received: none"
        )
    return load_data(settings)


def _shown(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2%}" if "accuracy" in name else f"{value:,.0f}"
