"""The end of a search: members of the front trained for longer, in int8, and the test set once.

Members are chosen on validation data (`tables_candidates.py`). Each is written when it is done, as
`<name>.json` and `<name>.tflite` in benchmarks/results/tables/<search>/members, so that a run that
was stopped goes on with the next one. `test.json` says what the test set said, and how often it was
asked.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.loading import load_network
from keras_sparse.tuner.project import Project, read_json
from keras_sparse.tuner.reading import records_of

from benchmarks.record import commit, environment
from benchmarks.tables_candidates import Candidate, competitors, finalists
from benchmarks.tables_folds import folds_of, merged
from benchmarks.tables_places import Places
from benchmarks.tables_search import is_searched
from benchmarks.tables_settings import MEMORY, Final, Settings
from benchmarks.tables_state import forget, restore
from benchmarks.tables_targets import rows_of
from benchmarks.tables_teacher import targets_of
from benchmarks.tables_training import in_int8, train
from keras_sparse import datasets, measure
from keras_sparse.deploy import MicroModel, to_c
from keras_sparse.files import write_bytes, write_json
from keras_sparse.scoring import accuracy

_FRESH_BEGIN = 0.2
"""Which of the weights drawn anew matter cannot be said before they have learnt something."""


def finish_front(
    settings: Settings,
    data: datasets.Dataset,
    places: Places,
    is_over: Callable[[], bool],
    *,
    again: bool = False,
    backwards: bool = False,
) -> bool:
    """Runs the heats, then trains the finalists; returns whether it came to the end.

    What is trained after the test set was used could be chosen by it, so nothing is, unless
    `again`: for rows that came later; the table then says that there was a look before.
    `backwards` begins with the last: a second process beside the first, which meets it half-way.
    """
    if (places.state(settings) / "test.json").is_file() and not again:
        return True
    if not run_heats(settings, data, places, is_over, backwards=backwards):
        return False
    members, final = places.state(settings) / "members", settings.final
    heats = heats_of(settings, places)
    data = merged(data) if final.folds else data
    for candidate in _ordered(finalists_of(settings, places), backwards):
        if (members / f"{candidate.name}.json").is_file():
            continue
        if is_over():
            return False
        start, cpu = time.monotonic(), time.process_time()
        model = finished(settings, data, places, candidate)
        record = record_of(model, data, final, settings.seed, members / candidate.name)
        if final.folds:  # its validation images were training images, too
            record = {k: v for k, v in record.items() if not k.startswith("val_accuracy")}
            record |= {"val_accuracy_folds": heats[candidate.name]["val_accuracy"]}
        record |= {"trial": candidate.trial, "trimmed to": candidate.limit}
        record |= {"memory trimmed to": candidate.memory}
        record |= {"seconds": round(time.monotonic() - start, 1)}
        record |= {"cpu_seconds": round(time.process_time() - cpu, 1)}
        float_model = places.folder(settings) / "final" / f"{candidate.name}.keras"
        float_model.parent.mkdir(parents=True, exist_ok=True)
        model.save(float_model)
        write_json(members / f"{candidate.name}.json", record)
        print(f"member {candidate.name}: {shown(record)}", flush=True)
    return True


def _ordered(candidates: list[Candidate], backwards: bool) -> list[Candidate]:
    return candidates[::-1] if backwards else candidates


def run_heats(
    settings: Settings,
    data: datasets.Dataset,
    places: Places,
    is_over: Callable[[], bool],
    *,
    backwards: bool = False,
) -> bool:
    """Short training of all candidates, to choose among them; returns whether it came to the end.

    With folds, each is trained as often, and the accuracy is that of the cross-validation.
    Results: benchmarks/results/tables/<search>/heats.json.
    """
    path, final = places.state(settings) / "heats.json", settings.final
    pairs = []
    if final.heat_epochs:
        rows = rows_of(settings, places)
        pairs = competitors(settings, trials_of(settings, places), rows)
    short = settings._replace(final=final._replace(epochs=final.heat_epochs))
    candidates = list(dict.fromkeys(c for _, found in pairs for c in found))
    for candidate in _ordered(candidates, backwards):
        if candidate.name in heats_of(settings, places):
            continue
        if is_over():
            return False
        start, cpu = time.monotonic(), time.process_time()
        right, model = tried(short, data, places, candidate)
        heat = {
            "val_accuracy": round(right, 5),
            "sizes": heat_sizes(model),
            "seconds": round(time.monotonic() - start, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "commit": commit(),
        }
        # Read now: a second process may have written.
        write_json(path, {**heats_of(settings, places), candidate.name: heat})
        shown = f"{heat['val_accuracy']:.2%}, {heat['sizes']['nonzeros']:,.0f} non-zeros"
        print(f"heat {candidate.name}: {shown}", flush=True)
    return True


def tried(
    settings: Settings, data: datasets.Dataset, places: Places, candidate: Candidate
) -> tuple[float, keras.Model]:
    """Trains a candidate, with folds in each of them; its accuracy before int8, and the last one.

    Args:
        settings: Of the search, with as many epochs as it is to train.
        data: The data set.
        places: Folders.
        candidate: The candidate.
    """
    folds, scores = settings.final.folds, []
    for part in folds_of(data, folds) if folds else [data]:
        model = finished(settings, part, places, candidate, is_fresh=folds > 0)
        scores += [float(accuracy(model, part.x_val, part.y_val))] * len(part.x_val)
    return float(np.mean(scores)), model


def heat_sizes(model: keras.Model) -> dict[str, float]:
    """What a candidate takes, by the models of memory of the tables."""
    sizes = {"nonzeros": float(measure(model).nonzeros)}
    for name in filter(None, MEMORY.values()):
        sizes[f"working_memory/{name}"] = float(measure(model, working_memory=name).working_memory)
    return sizes


def heats_of(settings: Settings, places: Places) -> dict[str, dict[str, Any]]:
    """The heats that have been run, by the name of the candidate."""
    return dict(read_json(places.state(settings) / "heats.json") or {})


def trials_of(settings: Settings, places: Places) -> list[TrialRecord]:
    """The trials of a search whose weights are there; a trimmed state keeps those of candidates."""
    restore(places.state(settings), places.folder(settings))
    project = Project(places.folder(settings))
    return [
        record
        for record in records_of(project)
        if (project.trial_folder(record.trial_id) / "posterior.npz").is_file()
    ]


def finalists_of(settings: Settings, places: Places) -> list[Candidate]:
    """What gets the long training."""
    trials, heats = trials_of(settings, places), heats_of(settings, places)
    return finalists(settings, trials, heats, rows_of(settings, places))


def finished(
    settings: Settings,
    data: datasets.Dataset,
    places: Places,
    candidate: Candidate,
    *,
    is_fresh: bool = False,
) -> keras.Model:
    """Longer training of a trial's network; `is_fresh` draws its weights anew."""
    final = settings.final
    # Single weights are chosen anew; of feature maps those stay that the trial has left.
    is_whole = settings.pruning == "unstructured" and candidate.limit is not None
    targets = targets_of(data, final, places.runs / "teachers", settings.seed)
    model = load_network(places.folder(settings), candidate.trial, pruned=not is_whole)
    if is_fresh:
        keras.utils.set_random_seed(settings.seed)
        model = keras.models.clone_model(model)
    return train(
        model,
        data,
        targets,
        final,
        epochs=final.epochs,
        rate=final.rate,
        seed=settings.seed,
        limit=candidate.limit,
        memory=candidate.memory,
        begin=_FRESH_BEGIN if is_fresh else 0.0,
    )


def record_of(
    model: keras.Model, data: datasets.Dataset, final: Final, seed: int, path: Path
) -> dict[str, Any]:
    """Makes a trained plain model int8 and writes `path`.tflite; all but the test accuracy."""
    measured = in_int8(model, data, final, seed)
    write_bytes(path.with_name(f"{path.name}.tflite"), measured.flatbuffer)
    with tempfile.TemporaryDirectory() as folder:
        firmware = to_c(measured.flatbuffer, Path(folder) / "c")
    return {
        "val_accuracy_float": round(measured.float_validation, 5),
        "val_accuracy_int8": round(measured.validation, 5),
        "sizes": {
            **measured.sizes,
            "tflite_bytes": float(len(measured.flatbuffer)),
            "c_ram": float(firmware.ram),
            "c_flash": float(firmware.flash),
        },
        "options": options_of(final),
        "seed": seed,
        "command": environment()["command"],
        "commit": commit(),
    }


def options_of(final: Final) -> str:
    """What the paper did not do, in words for the table."""
    words = [f"{final.epochs} epochs, cosine schedule"]
    words += [f"shifts of {final.shift} px"] if final.shift else []
    words += ["mirroring"] if final.flip else []
    words += ["turned and stretched images"] if final.affine else []
    words += ["light and dark exchanged"] if final.inverted else []
    words += ["a bounded loss"] if final.bound else []
    words += ["distillation from a teacher"] if final.distillation else []
    words += ["validation images for training, too"] if final.folds else []
    return ", ".join(words)


def shown(record: dict[str, Any]) -> str:
    """A member in a line."""
    sizes = record["sizes"]
    memory = [f"{sizes[f'working_memory/{m}']:,.0f} B" for m in MEMORY.values() if m]
    accuracy = f"{validation_of(record):.2%} on validation, {sizes['nonzeros']:,.0f} non-zeros"
    return f"{accuracy}, WM1 {memory[0]}, WM2 {memory[1]}"


def validation_of(record: dict[str, Any]) -> float:
    """By which members are chosen: a cross-validation, or int8 on the validation images."""
    return float(record.get("val_accuracy_folds", record.get("val_accuracy_int8")))


def members_of(settings: Settings, places: Places) -> dict[str, dict[str, Any]]:
    """The finished members of a search, by name."""
    paths = sorted((places.state(settings) / "members").glob("*.json"))
    return {path.stem: dict(read_json(path) or {}) for path in paths}


def begin_anew(settings: Settings, places: Places, *, search: bool = False) -> None:
    """Forgets the members of a search, not how often the test set was asked about such.

    For a better way to choose or train them. What the test set said of the last ones stays in
    `earlier.json` and on the page, where everyone can see that there was a look before.

    Args:
        settings: Of the search.
        places: Its folders.
        search: Whether its trials are forgotten, too: for a better space.
    """
    state = places.state(settings)
    test = read_json(state / "test.json")
    if isinstance(test, dict):
        before = read_json(state / "earlier.json")
        write_json(state / "earlier.json", {**test, "earlier": before} if before else test)
    for name in ("members", "firmware"):
        shutil.rmtree(state / name, ignore_errors=True)
    for name in ("heats.json", "effects.json", "test.json"):
        (state / name).unlink(missing_ok=True)
    if search:
        forget(places.folder(settings), state)


def look_at_test(
    settings: Settings, data: datasets.Dataset, places: Places, *, again: bool = False
) -> None:
    """Asks the test set, once, about each member.

    Raises:
        ValueError: It was asked before, unless `again`; then the number of times is counted.
    """
    path, members = places.state(settings) / "test.json", members_of(settings, places)
    earlier = read_json(path) or {}
    if earlier and not again:
        raise ValueError(
            f"The test set is used once a search, and {settings.name} has used it "
            f"{earlier['looks']} times: --again looks once more and says so in the table. "
            "Received: again=False"
        )
    unfinished = _unfinished(settings, places)
    if unfinished:
        raise ValueError(
            f"The test set is for the final front, and {settings.name} is not there yet: run the "
            f"parts search and final first. Received: {unfinished}"
        )
    # Members do not change: what the test set has said of them, it says again.
    accuracies = dict(earlier.get("accuracy", {}))
    for name in sorted(members.keys() - accuracies.keys()):
        flatbuffer = (places.state(settings) / "members" / f"{name}.tflite").read_bytes()
        micro = MicroModel(flatbuffer, trusted=True)
        accuracies[name] = {"int8": round(float(micro.evaluate(data.x_test, data.y_test)), 5)}
        model = places.folder(settings) / "final" / f"{name}.keras"
        if model.is_file():
            restored = keras.models.load_model(model, compile=False)
            outputs = restored.predict(data.x_test, 500, verbose=0)
            correct = float(np.mean(outputs.argmax(axis=-1) == data.y_test))
            accuracies[name]["float"] = round(correct, 5)
    before = earlier or read_json(places.state(settings) / "earlier.json") or {}
    looks = int(before.get("looks", 0)) + 1
    found = {"looks": looks, "accuracy": dict(sorted(accuracies.items())), "commit": commit()}
    write_json(path, {**found, "environment": environment()})


def _unfinished(settings: Settings, places: Places) -> str:
    """What is missing before the test set may be asked; "" if nothing is."""
    if not is_searched(settings, places):
        return "a search with trials to run"
    names = {candidate.name for candidate in finalists_of(settings, places)}
    missing = sorted(names - set(members_of(settings, places)))
    return f"no {', '.join(missing)}" if missing else ""
