"""Which finished network answers which published row, by two rules.

*By validation*: of the networks at most as large as the row, the most accurate on the validation
images; its test accuracy says whether the row is dominated. *By test*: the paper's rule, the most
accurate on the test images of the same networks, which flatters, and stands beside it.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_sparse.tuner.project import read_json
from keras_sparse.tuner.references import Published

from benchmarks.tables_candidates import excess
from benchmarks.tables_front import members_of, validation_of
from benchmarks.tables_places import Places
from benchmarks.tables_settings import Settings
from benchmarks.tables_targets import competitors_of, tables_of
from keras_sparse.deploy import to_c
from keras_sparse.files import write_bytes


class Answer(NamedTuple):
    """A network that stands against a row.

    Attributes:
        member: Its name.
        accuracy: On the test images, in int8 on TFLite Micro.
        float_accuracy: Before quantization; None if the float model was not at hand.
        validation: In int8 on the validation images, or in a cross-validation before.
        sizes: By all memory models.
        dominates: Whether it is at least as accurate, and at most as large by construction.
    """

    member: str
    accuracy: float
    float_accuracy: float | None
    validation: float
    sizes: dict[str, float]
    dominates: bool


class Row(NamedTuple):
    """A published row and our answers; None where no network is as small."""

    published: Published
    by_validation: Answer | None
    by_test: Answer | None


class Outcome(NamedTuple):
    """A table of one search.

    Attributes:
        rows: One for each competitor.
        looks: How often the test set was asked.
        commit: At which it was.
    """

    rows: tuple[Row, ...]
    looks: int
    commit: str


def outcome_of(settings: Settings, table: int, places: Places) -> Outcome | None:
    """A table from the files of a search; None before the test set was used."""
    test = read_json(places.state(settings) / "test.json")
    if not isinstance(test, dict):
        return None
    members = members_of(settings, places)
    competitors = competitors_of(settings.data, table, places)
    rows = tuple(row_of(row, members, test["accuracy"]) for row in competitors)
    return Outcome(rows, int(test["looks"]), str(test.get("commit", "")))


def looks_before(settings: Settings, places: Places) -> int:
    """How often the test set was asked about members that were then chosen anew."""
    earlier = read_json(places.state(settings) / "earlier.json")
    return int(earlier["looks"]) if isinstance(earlier, dict) else 0


def answered_rows(settings: Settings, places: Places) -> list[tuple[Published, Answer]]:
    """The paper's own rows and what stands against them by validation; none before the test."""
    outcomes = [outcome_of(settings, table, places) for table in tables_of(settings)]
    return [
        (row.published, row.by_validation)
        for outcome in outcomes
        for row in (outcome.rows if outcome else ())
        if row.published.method == "SpArSe" and row.by_validation is not None
    ]


def answers_of(settings: Settings, places: Places) -> list[Answer]:
    """The networks that stand against the paper's own rows, by validation."""
    return [answer for _, answer in answered_rows(settings, places)]


def row_of(
    row: Published, members: Mapping[str, dict[str, Any]], accuracies: Mapping[str, dict[str, Any]]
) -> Row:
    """The answers to one row.

    Args:
        row: What was published.
        members: Records of the finished networks, by name.
        accuracies: Their test accuracies, "int8" and perhaps "float".
    """
    answers = [
        Answer(
            name,
            accuracies[name]["int8"],
            accuracies[name].get("float"),
            validation_of(record),
            record["sizes"],
            accuracies[name]["int8"] >= row.accuracy,
        )
        for name, record in members.items()
        if name in accuracies and fits(record["sizes"], row)
    ]
    return Row(
        row,
        max(answers, key=lambda a: (a.validation, -a.sizes["nonzeros"]), default=None),
        max(answers, key=lambda a: (a.accuracy, -a.sizes["nonzeros"]), default=None),
    )


def fits(sizes: Mapping[str, float], row: Published) -> bool:
    """Whether a network is at most as large as a row in everything that the row says."""
    return excess(sizes, row) == 0.0


def write_firmware(settings: Settings, places: Places) -> list[str]:
    """Writes the C of the networks that answer the paper's rows; returns their names.

    Only what is the network's own: `to_c` on the `.tflite` beside it adds the runtime.
    """
    names = {answer.member for answer in answers_of(settings, places)}
    state = places.state(settings)
    for name in sorted(names):
        flatbuffer = (state / "members" / f"{name}.tflite").read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            firmware = to_c(flatbuffer, Path(folder) / "c")
            for file in ("model.c", "model.h", "model.json"):
                content = (firmware.directory / file).read_bytes()
                write_bytes(state / "firmware" / name / file, content)
    return sorted(names)
