"""The end of a search: members of the front trained for longer, in int8, and the test set once.

Members are chosen on validation data. Each is written when it is done, as `<name>.json` and
`<name>.tflite` in benchmarks/results/tables/<search>/members, so that a run that was stopped goes
on with the next one. `test.json` says what the test set said, and how often it was asked.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras_sparse.tuner.answers import TrialRecord
from keras_sparse.tuner.loading import load_network
from keras_sparse.tuner.project import Project, read_json
from keras_sparse.tuner.reading import records_of
from keras_sparse.tuner.references import Published, published

from benchmarks.record import commit, environment
from benchmarks.tables_search import Places, RandomShift, is_searched, tuner_of
from benchmarks.tables_settings import MEMORY, PRUNING, Final, Settings
from benchmarks.tables_state import fronts_of
from benchmarks.tables_training import in_int8, targets_of, train
from keras_sparse import datasets
from keras_sparse.deploy import MicroModel, to_c
from keras_sparse.files import write_bytes, write_json

_PER_ROW = 2
"""Candidates for each published row, as they are."""

_SLACKS = (4.0, 2.0, 1.3)
"""The best of the trials up to so much larger than a row are trimmed to it while they train on; for
single weights only. A larger one has more to choose from and more to lose, so that each row gets
one of each slack, as far as `Final.members` reaches."""

_SMALL = 50_000
"""Published networks above this size are beaten by any; no member is chosen for them."""


class Candidate(NamedTuple):
    """A trial to finish.

    Attributes:
        trial: Id of the trial.
        limit: Parameters to which it is trimmed; None for as many as its pruning leaves.
    """

    trial: str
    limit: int | None = None

    @property
    def name(self) -> str:
        """Of its files."""
        return self.trial if self.limit is None else f"{self.trial}-{self.limit}"


def tables_of(settings: Settings) -> list[int]:
    """The paper's tables that come from a search."""
    return [table for table, pruning in PRUNING.items() if pruning == settings.pruning]


def candidates_of(settings: Settings, records: Sequence[TrialRecord]) -> list[Candidate]:
    """The most accurate on validation for each published row, then a spread over the front."""
    front = sorted(fronts_of(list(records)), key=lambda r: r.metrics["val_error"])
    rows = [
        row
        for table in tables_of(settings)
        for row in published(settings.data, MEMORY[table])
        if row.method == "SpArSe" and row.model_size < _SMALL
    ]
    if settings.pruning == "unstructured":
        chosen = [
            Candidate(record.trial_id, int(row.model_size))
            for slack in _SLACKS
            for row in rows
            for record in _for_row(front, row, slack, 1)
        ]
    else:
        chosen = [
            Candidate(record.trial_id)
            for row in rows
            for record in _for_row(front, row, 1.0, _PER_ROW)
        ]
    chosen = list(dict.fromkeys(chosen))[: settings.final.members]
    left = settings.final.members - len(chosen)
    places = np.linspace(0, len(front) - 1, min(left, len(front))).round().astype(int)
    spread = [Candidate(front[i].trial_id) for i in places.tolist()]
    return list(dict.fromkeys([*chosen, *spread]))


def _for_row(
    front: list[TrialRecord], row: Published, slack: float, count: int
) -> list[TrialRecord]:
    """The most accurate that fit into a row; if none does, those that come closest."""
    fitting = [record for record in front if _excess(record.metrics, row, slack) == 0.0]
    closest = sorted(front, key=lambda record: _excess(record.metrics, row))
    return (fitting or closest)[:count]


def _excess(metrics: dict[str, float], row: Published, slack: float = 1.0) -> float:
    """By how much a network is larger than a row: the sum of log ratios; 0 if it is not."""
    sizes = [(metrics["nonzeros"], slack * row.model_size)]
    if row.working_memory is not None:
        sizes.append((metrics[f"working_memory/{row.memory_model}"], row.working_memory))
    return float(sum(max(0.0, np.log(size / most)) for size, most in sizes))


def finish_front(
    settings: Settings, data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> bool:
    """Finishes all candidates of a search; returns whether it came to the end."""
    members, final = places.state(settings) / "members", settings.final
    for candidate in candidates_of(settings, records_with_weights(settings, places)):
        if (members / f"{candidate.name}.json").is_file():
            continue
        if is_over():
            return False
        start, cpu = time.monotonic(), time.process_time()
        model = finished(settings, data, places, candidate)
        record = record_of(model, data, final, settings.seed, members / candidate.name)
        record |= {"trial": candidate.trial, "trimmed to": candidate.limit}
        record |= {"seconds": round(time.monotonic() - start, 1)}
        record |= {"cpu_seconds": round(time.process_time() - cpu, 1)}
        model.save(places.folder(settings) / "final" / f"{candidate.name}.keras")
        write_json(members / f"{candidate.name}.json", record)
        print(f"member {candidate.name}: {shown(record)}", flush=True)
    return True


def records_with_weights(settings: Settings, places: Places) -> list[TrialRecord]:
    """The trials whose weights are there: a restored search has those of the fronts only."""
    project = Project(places.folder(settings))
    return [
        record
        for record in records_of(project)
        if (project.trial_folder(record.trial_id) / "posterior.npz").is_file()
    ]


def finished(
    settings: Settings, data: datasets.Dataset, places: Places, candidate: Candidate
) -> keras.Model:
    """Longer training of a trial: first with its sparse layers, then of what they leave."""
    final = settings.final
    targets = targets_of(data, final, places.runs / "teachers", settings.seed)
    key = f"{candidate.trial}-{final.sparse_epochs}-shift{final.shift}"
    path = places.folder(settings) / "final" / f"sparse-{key}.keras"
    if path.is_file():  # several candidates may be of one trial
        model = keras.models.load_model(path)
    elif not final.sparse_epochs:
        model = load_network(places.folder(settings), candidate.trial)
    else:
        tuner = tuner_of(settings, data, places)
        model, _ = tuner.finetune(
            candidate.trial,
            data.x_train,
            data.y_train,
            validation_data=(data.x_val, data.y_val),
            epochs=final.sparse_epochs,
            learning_rate=final.sparse_rate,
            augment=RandomShift(final.shift) if final.shift else None,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return train(
        model,
        data,
        targets,
        final,
        epochs=final.epochs,
        rate=final.rate,
        seed=settings.seed,
        limit=candidate.limit,
    )


def record_of(
    model: keras.Model, data: datasets.Dataset, final: Final, seed: int, path: Path
) -> dict[str, Any]:
    """Makes a trained plain model int8 and writes `path`.tflite; all but the test accuracy."""
    measured = in_int8(model, data, final.quantized_epochs, seed)
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
    words = [f"{final.sparse_epochs} + {final.epochs} epochs, cosine schedule"]
    words += [f"shifts of {final.shift} px"] if final.shift else []
    words += ["mirroring"] if final.flip else []
    words += ["distillation from a teacher"] if final.distillation else []
    return ", ".join(words)


def shown(record: dict[str, Any]) -> str:
    """A member in a line."""
    sizes = record["sizes"]
    memory = [f"{sizes[f'working_memory/{m}']:,.0f} B" for m in MEMORY.values() if m]
    accuracy = f"{record['val_accuracy_int8']:.2%} on validation (float "
    accuracy += f"{record['val_accuracy_float']:.2%}), {sizes['nonzeros']:,.0f} non-zeros"
    return f"{accuracy}, WM1 {memory[0]}, WM2 {memory[1]}"


def members_of(settings: Settings, places: Places) -> dict[str, dict[str, Any]]:
    """The finished members of a search, by name."""
    paths = sorted((places.state(settings) / "members").glob("*.json"))
    return {path.stem: dict(read_json(path) or {}) for path in paths}


def look_at_test(
    settings: Settings, data: datasets.Dataset, places: Places, *, again: bool = False
) -> None:
    """Asks the test set, once, about all members.

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
    accuracies = {}
    for name in members:
        flatbuffer = (places.state(settings) / "members" / f"{name}.tflite").read_bytes()
        micro = MicroModel(flatbuffer, trusted=True)
        accuracies[name] = {"int8": round(float(micro.evaluate(data.x_test, data.y_test)), 5)}
        model = places.folder(settings) / "final" / f"{name}.keras"
        if model.is_file():
            outputs = keras.models.load_model(model).predict(data.x_test, 500, verbose=0)
            correct = float(np.mean(outputs.argmax(axis=-1) == data.y_test))
            accuracies[name]["float"] = round(correct, 5)
    looks = int(earlier.get("looks", 0)) + 1
    write_json(path, {"looks": looks, "accuracy": accuracies, "commit": commit()})


def _unfinished(settings: Settings, places: Places) -> str:
    """What is missing before the test set may be asked; "" if nothing is."""
    if not is_searched(settings, places):
        return "a search with trials to run"
    records = records_with_weights(settings, places)
    names = {candidate.name for candidate in candidates_of(settings, records)}
    missing = sorted(names - set(members_of(settings, places)))
    return f"no {', '.join(missing)}" if missing else ""
