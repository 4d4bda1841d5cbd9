"""What holds a row back: long training of a few members with one option changed at a time.

Judged on validation images alone. Results: benchmarks/results/tables/<search>/effects.json.
"""

import time
from collections.abc import Callable
from typing import Any

from keras_sparse.tuner.project import read_json

from benchmarks.record import commit, environment
from benchmarks.tables_front import finalists_of, finished, options_of
from benchmarks.tables_search import Places
from benchmarks.tables_settings import Final, Settings
from benchmarks.tables_training import in_int8
from keras_sparse import datasets
from keras_sparse.files import write_json

MEMBERS = 2
"""So many members, the first ones of the search."""


def variants_of(final: Final) -> dict[str, Final]:
    """The training of the tables, and the same with one thing changed."""
    return {
        "as in the table": final,
        "no distillation": final._replace(distillation=0.0),
        "no shifts": final._replace(shift=0),
        "shifts of one pixel more": final._replace(shift=final.shift + 1),
        "a quarter of the epochs": final._replace(epochs=max(1, final.epochs // 4)),
        "twice the epochs": final._replace(epochs=2 * final.epochs),
    }


def measure_effects(
    settings: Settings, data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> bool:
    """Trains what has not been trained; returns whether it came to the end."""
    path = places.state(settings) / "effects.json"
    candidates = finalists_of(settings, places)[:MEMBERS]
    for candidate in candidates:
        for name, final in variants_of(settings.final).items():
            known: dict[str, Any] = dict(read_json(path) or {})
            if name in known.get(candidate.name, {}):
                continue
            if is_over():
                return False
            start = time.process_time()
            model = finished(settings._replace(final=final), data, places, candidate)
            measured = in_int8(model, data, final.quantized_epochs, settings.seed)
            row = {
                "val_accuracy_float": round(measured.float_validation, 5),
                "val_accuracy_int8": round(measured.validation, 5),
                "nonzeros": measured.sizes["nonzeros"],
                "options": options_of(final),
                "cpu_seconds": round(time.process_time() - start, 1),
                "command": environment()["command"],
                "commit": commit(),
            }
            rows = {**known.get(candidate.name, {}), name: row}
            write_json(path, {**known, candidate.name: rows})
            print(f"{candidate.name}, {name}: {measured.validation:.2%}", flush=True)
    return True
