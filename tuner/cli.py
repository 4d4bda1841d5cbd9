"""What the `keras-sparse` command does; its arguments are in `keras_sparse_command`."""

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_tuner

from keras_sparse import datasets
from keras_sparse.files import write_json

from .budget import Budget
from .hypermodel import SparseCNN
from .project import read_json
from .report import write_report
from .tuner import SparseTuner
from .workers import launch

_DEFAULTS: dict[str, Any] = {
    "data": None, "ram": None, "flash": None, "accuracy": None, "trials": 100, "epochs": 20,
    "batch_size": 128, "pruning": "structured", "working_memory": "inputs+weights",
    "image_size": "32x32", "colour": False, "seed": 0,
}  # fmt: skip
"""Of a new search; one that is continued takes what it was started with."""


def run(options: argparse.Namespace, words: list[str]) -> int:
    """Runs a subcommand; a user's mistake is answered in a sentence.

    Args:
        options: As `keras_sparse_command.parser` reads them.
        words: The arguments themselves, for the workers.

    Returns:
        The exit code.
    """
    commands: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
        "search": search,
        "report": report,
        "deploy": deploy,
        "demo": demo,
    }
    with warnings.catch_warnings():
        warnings.showwarning = _shown  # a sentence, without a line of code
        try:
            return commands[options.command](options, words)
        except KeyboardInterrupt:
            print("\nkeras-sparse: stopped; the same command goes on from here", file=sys.stderr)
            return 130
        except BrokenPipeError:  # whoever read the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        except (ValueError, OSError, RuntimeError, keras_tuner.errors.FatalError) as error:
            if options.verbose:
                raise
            print(f"keras-sparse: {_sentence(error)}", file=sys.stderr)
            return 2


def search(options: argparse.Namespace, words: list[str]) -> int:
    """Searches, or continues a search."""
    is_worker = "KERASTUNER_TUNER_ID" in os.environ
    folder, settings = _settings(options)
    hours = options.hours
    if hours is not None and not hours > 0:
        raise ValueError(f"--hours must be more than 0. Received: {hours}")
    data = load_data(settings)
    if options.workers != 1 and not is_worker:
        _make_tuner(folder, settings, data)  # mistakes are found once, before there are processes
        write_json(folder / "command.json", settings)
        code = launch(["-m", "keras_sparse_command", *words], options.workers)
    else:
        tuner = _make_tuner(folder, settings, data)
        if not is_worker:
            write_json(folder / "command.json", settings)
        tuner.search(
            data.x_train,
            data.y_train,
            validation_data=(data.x_val, data.y_val),
            epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            seconds=None if hours is None else 3600 * hours,
        )
        if os.environ.get("KERASTUNER_TUNER_ID", "chief") == "chief":
            tuner.results_summary()
        code = 0
    if not is_worker and code == 0:
        print(f"report: {write_report(folder)}")
        print(f"next: keras-sparse deploy {folder} --trial best --board uno --out firmware/")
    return code


def _settings(options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """The folder, and what the search is to be: given now, or when it was started, or by default.

    What changes the meaning of trials that exist must not change.
    """
    if options.data is None and options.out is None:
        raise ValueError(
            "--data must be given: a name such as digits, an .npz file or a folder of images. "
            "Received: none"
        )
    folder = Path(options.out) if options.out else Path("runs") / _name(options.data)
    known = read_json(folder / "command.json")
    known = known if isinstance(known, dict) else {}
    given = {name: getattr(options, name) for name in _DEFAULTS}
    given["data"] = _absolute(given["data"])
    settings = {
        name: known.get(name, default) if given[name] is None else given[name]
        for name, default in _DEFAULTS.items()
    }
    if settings["data"] is None:
        raise ValueError(
            f"--data must be given for a new search. Received: none, and {str(folder)!r} holds no "
            "search to continue"
        )
    fixed = ("data", "pruning", "working_memory", "image_size", "colour", "seed", "epochs")
    changed = [name for name in fixed if known and known.get(name) != settings[name]]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{str(folder)!r} holds a search with --{name.replace('_', '-')} {known.get(name)}, "
            f"which cannot change: choose another --out. Received: {settings[name]}"
        )
    return folder, settings


def load_data(settings: dict[str, Any]) -> datasets.Dataset:
    """The data set of a search, from its settings."""
    size = settings["image_size"]
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", str(size))
    if match is None or not all(int(n) for n in match.groups()):
        raise ValueError(f"--image-size must be HEIGHTxWIDTH, such as 32x32. Received: {size}")
    return datasets.load(
        settings["data"],
        image_size=(int(match[1]), int(match[2])),
        colour=bool(settings["colour"]),
    )


def _make_tuner(folder: Path, settings: dict[str, Any], data: datasets.Dataset) -> SparseTuner:
    return SparseTuner(
        SparseCNN(data.input_shape, data.num_classes, settings["pruning"]),
        budget=Budget(settings["ram"], settings["flash"], settings["accuracy"]),
        max_trials=settings["trials"],
        working_memory=settings["working_memory"],
        directory=folder.parent,
        project_name=folder.name,
        seed=settings["seed"],
    )


def report(options: argparse.Namespace, words: list[str]) -> int:
    """Writes the HTML report."""
    print(write_report(options.folder, options.out))
    return 0


def deploy(options: argparse.Namespace, words: list[str]) -> int:
    """Brings a network of a search to a board."""
    from .deployment import deploy_trial  # imports what searching does not need

    deployed = deploy_trial(
        options.folder,
        options.trial,
        board=options.board,
        out=options.out,
        data=options.data,
        epochs=options.epochs,
        images=options.images,
    )
    print(deployed)
    print(f"report: {write_report(options.folder)}")
    return 2 if deployed.problem else 0


def demo(options: argparse.Namespace, words: list[str]) -> int:
    """Runs the demonstration."""
    from .demo import run_demo

    run_demo(Path(options.out), trials=options.trials, epochs=options.epochs)
    return 0


def _name(data: str) -> str:
    """Name of the folder for a data set."""
    return Path(data).name.removesuffix(".npz") or "search"


def _absolute(data: str | None) -> str | None:
    """A path that is the same from every folder; names of data sets stay."""
    if data is None or data in datasets.NAMES or not Path(data).exists():
        return data
    return str(Path(data).resolve())


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        is_denied = isinstance(error, PermissionError)
        reason = "may not be written or read" if is_denied else error.strerror
        return f"{str(error.filename)!r}: {reason}; choose another folder or file, such as --out"
    return str(error)


def _shown(message: Any, *_: Any, **__: Any) -> None:
    print(f"keras-sparse: {message}", file=sys.stderr)
