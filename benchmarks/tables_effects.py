"""What holds a row back: long training of a member with one thing changed at a time.

Judged on validation images alone. Results: benchmarks/results/tables/<search>/effects.json.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_sparse.tuner.project import read_json

from benchmarks.record import commit, environment
from benchmarks.tables_candidates import Candidate
from benchmarks.tables_front import (
    finished,
    heat_sizes,
    members_of,
    options_of,
    tried,
    validation_of,
)
from benchmarks.tables_places import Places
from benchmarks.tables_rows import answered_rows
from benchmarks.tables_settings import Final, Settings
from benchmarks.tables_training import in_int8
from keras_sparse import datasets
from keras_sparse.files import write_json


class Variant(NamedTuple):
    """A way to train a member.

    Attributes:
        final: The training.
        is_fresh: Whether it begins with weights drawn anew instead of the trial's.
    """

    final: Final
    is_fresh: bool = False


def variants_of(final: Final) -> dict[str, Variant]:
    """The training of the tables with one thing changed, by its name in the page.

    With folds each is a heat, in which weights are drawn anew anyway.
    """
    if final.folds:
        final = final._replace(epochs=final.heat_epochs)
    whole = {
        "twice the epochs": Variant(final._replace(epochs=2 * final.epochs)),
        "no distillation": Variant(final._replace(distillation=0.0)),
        "no shifts": Variant(final._replace(shift=0)),
        "shifts of one pixel more": Variant(final._replace(shift=final.shift + 1)),
        "weights drawn anew": Variant(final, is_fresh=True),
        "a quarter of the epochs": Variant(final._replace(epochs=max(1, final.epochs // 4))),
    }
    if final.inverted:
        whole["light and dark as they are"] = Variant(final._replace(inverted=False))
    if final.bound:
        whole["cross-entropy"] = Variant(final._replace(bound=0.0))
    if final.folds:
        del whole["weights drawn anew"]
    return whole


def measure_effects(
    settings: Settings, data: datasets.Dataset, places: Places, is_over: Callable[[], bool]
) -> bool:
    """Trains what has not been trained; returns whether it came to the end."""
    path = places.state(settings) / "effects.json"
    member, record = hardest_member(settings, places)
    candidate = Candidate(record["trial"], record["trimmed to"], record.get("memory trimmed to"))
    for name, variant in variants_of(settings.final).items():
        known: dict[str, Any] = dict(read_json(path) or {})
        if name in known.get(member, {}):
            continue
        if is_over():
            return False
        start = time.process_time()
        changed = settings._replace(final=variant.final)
        row = {
            **_outcome(changed, data, places, candidate, variant.is_fresh),
            "options": options_of(variant.final),
            "cpu_seconds": round(time.process_time() - start, 1),
            "command": environment()["command"],
            "commit": commit(),
        }
        rows = {**known.get(member, {}), name: row}
        write_json(path, {**known, member: rows})
        print(f"{member}, {name}: {validation_of(row):.2%}", flush=True)
    return True


def _outcome(
    settings: Settings,
    data: datasets.Dataset,
    places: Places,
    candidate: Candidate,
    is_fresh: bool,
) -> dict[str, float]:
    """Accuracy and size of a network after a training; of a cross-validation with folds."""
    if settings.final.folds:
        right, model = tried(settings, data, places, candidate)
        return {"val_accuracy_folds": round(right, 5), **heat_sizes(model)}
    model = finished(settings, data, places, candidate, is_fresh=is_fresh)
    measured = in_int8(model, data, settings.final, settings.seed)
    return {
        "val_accuracy_float": round(measured.float_validation, 5),
        "val_accuracy_int8": round(measured.validation, 5),
        "nonzeros": measured.sizes["nonzeros"],
    }


def hardest_member(settings: Settings, places: Places) -> tuple[str, dict[str, Any]]:
    """The member with the least lead over its row, or that misses it; its name and record.

    Before the test set was asked, that of the largest row.

    Raises:
        ValueError: There is no member yet.
    """
    members = members_of(settings, places)
    if not members:
        raise ValueError(
            f"The effects are those of the long training: run the parts search and final of "
            f"{settings.name} first. Received: no members"
        )
    leads = [
        (answer.accuracy - published.accuracy, answer.member)
        for published, answer in answered_rows(settings, places)
    ]
    if leads:
        closest = min(leads)[1]
        return closest, members[closest]
    return max(members.items(), key=lambda item: item[1].get("trimmed to") or 0)
