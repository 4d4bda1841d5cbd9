"""The results page, generated from the files of the searches, and the README's part of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_sparse.tuner.project import read_json
from keras_sparse.tuner.references import Published

from benchmarks.record import RESULTS
from benchmarks.tables_comparisons import opened
from benchmarks.tables_cost import cost_of, cost_table
from benchmarks.tables_figures import write_figures
from benchmarks.tables_front import members_of, validation_of
from benchmarks.tables_others import other_part
from benchmarks.tables_places import Places
from benchmarks.tables_rows import Answer, Row, looks_before, outcome_of
from benchmarks.tables_settings import MEMORY, PRUNING, Settings, settings_of
from benchmarks.tables_targets import baselines_of, competitors_of
from keras_sparse.files import write_bytes

PAGE = RESULTS.parent / "RESULTS.md"
README = RESULTS.parent.parent / "README.md"
BEGIN, END = "<!-- results: generated -->", "<!-- results: end -->"
TITLES = {
    1: "Table 1: accuracy against parameters (single weights pruned)",
    2: "Table 2: with working memory as inputs + weights (structured)",
    3: "Table 3: with working memory as inputs + outputs (structured)",
}
DATA = {
    "mnist": "MNIST",
    "cifar10-binary": "CIFAR10-binary (label < 5 against the rest; harder than the paper's)",
    "chars4k": "Chars4k (20×20 grey)",
    "chars4k-binary": "Chars4k-binary (label < 31 against the rest)",
    "kth-tips": "KTH-TIPS (stands in for CUReT, which cannot be had)",
}
_TABLES = {"unstructured": "table 1", "structured": "tables 2 and 3"}
_HEAD = """# Results: the paper's tables

Written by `python -m benchmarks.tables --page` from the files under `benchmarks/results/tables`; do
not edit. Networks are chosen on validation images, the test images are used once, for the final
front; where they were used again, it says so, and what they had said before.
Accuracies are on test images in int8 on TFLite Micro unless it says otherwise. *By
validation*: of the networks at most as large as a row, the most accurate on validation images. *By
test*: the paper's rule, the most accurate on test images, which flatters. Sizes are in bytes at 8
bits; MS counts non-zero parameters as the paper does, flash also what the indices take; WM1 and WM2
count from the first convolution on, as the paper does.
"""


def write_page(places: Places, page: Path = PAGE, readme: Path = README) -> str:
    """Writes the page, the figures and the README's table; returns what was done, in a sentence."""
    figures = {
        path.stem: f"![{path.stem}](results/{path.relative_to(places.results.parent).as_posix()})\n"
        for path in write_figures(places)
    }
    count = len(figures)
    parts = [_HEAD]
    parts += [_table_part(table, places, figures) for table in TITLES]
    cost = f"## What it took\n\n{_cost_part(places)}"
    parts += [_baselines_part(places), cost, other_part(DATA, places), *figures.values()]
    write_bytes(page, "\n".join(part for part in parts if part).encode())
    text = readme.read_text()
    if BEGIN in text and END in text:
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        generated = f"{readme_table(places)}\n{_cost_part(places)}"
        write_bytes(readme, f"{before}{BEGIN}\n{generated}{END}{after}".encode())
    return f"{page.name} with {count} figures is written."


def _table_part(table: int, places: Places, figures: dict[str, str]) -> str:
    """A section; takes its figures out of `figures`."""
    parts = [_data_part(table, data, places, figures) for data in DATA]
    found = [part for part in parts if part]
    return "\n".join([f"## {TITLES[table]}\n", *found]) if found else ""


def _data_part(table: int, data: str, places: Places, figures: dict[str, str]) -> str:
    settings = settings_of(data, table)
    search = opened(settings, places)
    if search is None:
        return ""
    ended = [record for record in search.records if record.status != "running"]
    members, cost = members_of(settings, places), cost_of(settings, places)
    trials = settings.parts[-1].trials
    lines = [
        f"### {DATA[data]}\n",
        f"Search `{settings.name}`: {len(ended)} of {trials} trials, {len(members)} "
        f"networks trained on, {cost.wall:.1f} hours of wall-clock, "
        f"{cost.search + cost.training:.1f} CPU-hours. Command: "
        f"`python -m benchmarks.tables --table {table} --data {data}`, seed {settings.seed}"
        f"{_commits(members)}.\n",
    ]
    lines += [f"{settings.remark}\n"] if settings.remark else []
    outcome = outcome_of(settings, table, places)
    if outcome is None:
        earlier = _earlier(settings, places)
        these = "of these networks " if earlier else ""
        lines.append(f"The test set has not been asked {these}yet; nothing is claimed.")
        lines += [*earlier, ""]
    else:
        if outcome.looks > 1:
            lines.append(f"**The test set was looked at {outcome.looks} times.**")
            lines += [*_earlier(settings, places), ""]
        lines += [*_rows(outcome.rows, table), "", *_missed(outcome.rows, table), ""]
    same = [other for other in TITLES if other < table and PRUNING[other] == PRUNING[table]]
    if same:
        lines.append(f"The networks are those of Table {same[0]}, which has all their numbers.\n")
        return "\n".join(lines)
    if members:
        lines += [*_members(settings, members, places), ""]
    lines += [*_effects(settings, places), ""]
    own = [name for name in figures if name.startswith(f"{settings.name}-")]
    return "\n".join([*lines, *(figures.pop(name) for name in own)])


def _earlier(settings: Settings, places: Places) -> list[str]:
    """What earlier looks at the test set said, the last one first."""
    lines, earlier = [], read_json(places.state(settings) / "earlier.json")
    while isinstance(earlier, dict):
        seen = [f"`{name}` {found['int8']:.2%}" for name, found in earlier["accuracy"].items()]
        lines.append(
            f"Before the members were chosen and trained anew, those of commit {earlier['commit']} "
            f"had on it: {', '.join(seen)}."
        )
        earlier = earlier.get("earlier")
    return lines


def _commits(members: dict[str, dict[str, Any]]) -> str:
    names = sorted({str(record.get("commit", "")) for record in members.values()} - {""})
    return f", commit {', '.join(names)}" if names else ""


def _rows(rows: Sequence[Row], table: int) -> list[str]:
    lines = [
        "| competitor | its accuracy | its size | ours, by validation | size | | ours, by test "
        "| size | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [_name(row.published), f"{row.published.accuracy:.2%}"]
        cells.append(_published_size(row.published))
        for answer in (row.by_validation, row.by_test):
            cells += _answer_cells(answer, table)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _name(row: Published) -> str:
    return f"{row.method} ({row.note})" if row.note else row.method


def _published_size(row: Published) -> str:
    text = f"MS {row.model_size:,.0f}"
    memory = row.working_memory
    return text if memory is None else f"{text}, WM {memory:,.0f}"


def _answer_cells(answer: Answer | None, table: int) -> list[str]:
    if answer is None:
        return ["none as small", "", ""]
    size = f"MS {answer.sizes['nonzeros']:,.0f}"
    if MEMORY[table]:
        size += f", WM {answer.sizes[f'working_memory/{MEMORY[table]}']:,.0f}"
    verdict = "**dominates**" if answer.dominates else "not reached"
    return [f"{answer.accuracy:.2%} (`{answer.member}`)", size, verdict]


def _missed(rows: Sequence[Row], table: int) -> list[str]:
    """By how much rows of the paper's own method are missed."""
    lines = []
    for row in rows:
        answer = row.by_validation
        if row.published.method != "SpArSe" or (answer is not None and answer.dominates):
            continue
        name = f"{row.published.accuracy:.2%} at {_published_size(row.published)}"
        if answer is None:
            lines.append(f"- {name}: no network is as small.")
        else:
            gap = 100 * (row.published.accuracy - answer.accuracy)
            lines.append(f"- {name}: missed by {gap:.2f} points.")
    return ["Rows of the paper that are not reached:", "", *lines] if lines else []


def _members(settings: Settings, members: dict[str, dict[str, Any]], places: Places) -> list[str]:
    test = (read_json(places.state(settings) / "test.json") or {}).get("accuracy", {})
    lines = [
        f"Networks trained on ({next(iter(members.values()))['options']}); "
        f"`benchmarks/results/tables/{settings.name}/members` has the model files:\n",
        "| network | validation, int8 | float | test, int8 | float | MS | flash | WM1 | WM2 "
        "| with image | TFLM arena | streamed C RAM | C flash | .tflite |",
        "| --- " * 14 + "|",
    ]
    for name, record in members.items():
        sizes, seen = record["sizes"], test.get(name, {})
        columns = [
            "nonzeros", "bytes_with_indices", "working_memory/inputs+weights",
            "working_memory/inputs+outputs", "working_memory_with_image/inputs+outputs",
            "tflm_arena", "c_ram", "c_flash", "tflite_bytes",
        ]  # fmt: skip
        cells = [f"`{name}`", *_validation(record)]
        cells += [f"{seen[kind]:.2%}" if kind in seen else "" for kind in ("int8", "float")]
        cells += [f"{sizes[column]:,.0f}" for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _validation(record: dict[str, Any]) -> list[str]:
    """Accuracies on validation images: int8 and float, or one of a cross-validation."""
    if "val_accuracy_folds" in record:
        return ["", f"{record['val_accuracy_folds']:.2%} (cross-validation)"]
    return [f"{record[f'val_accuracy_{kind}']:.2%}" for kind in ("int8", "float")]


def _effects(settings: Settings, places: Places) -> list[str]:
    """What each option of the long training brings, on validation images."""
    effects = read_json(places.state(settings) / "effects.json") or {}
    lines = ["| network | training | validation | MS |", "| --- | --- | --- | --- |"]
    for member, rows in effects.items():
        record = members_of(settings, places)[member]
        as_in_table = {**record, "nonzeros": record["sizes"]["nonzeros"]}
        for name, row in {"as in the table": as_in_table, **rows}.items():
            cells = [f"`{member}`", name, f"{validation_of(row):.2%}"]
            lines.append(f"| {' | '.join(cells)} | {row['nonzeros']:,.0f} |")
    how = "in heats, that is in a cross-validation" if settings.final.folds else "in int8"
    return [f"What each option of the long training brings, {how}:\n", *lines] if effects else []


def _baselines_part(places: Places) -> str:
    """Other methods on the same splits."""
    parts = [part for data in DATA for part in _baselines(data, places)]
    head = (
        "## Baselines on the same splits\n\n"
        "Settings are chosen on validation images. What was published of Bonsai, ProtoNN and "
        "BitNetMCU is in the tables above.\n"
    )
    return "\n".join([head, *parts, ""]) if parts else ""


def _baselines(data: str, places: Places) -> list[str]:
    records = baselines_of(data, places)
    if not records:
        return []
    lines = [
        f"### {DATA[data]}\n",
        "| method | setting | validation | test | values | command, seed, commit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, record in records.items():
        run = f"`{record['command']}`, {record['seed']}, {record['commit']}"
        lines.append(
            f"| {name} | {record['setting']} | {record['val_accuracy']:.2%} | "
            f"{record['test_accuracy']:.2%} | {record['size']:,.0f} | {run} |"
        )
    return [*lines, ""]


def _cost_part(places: Places) -> str:
    """What the searches took whose networks have answered."""
    rows = []
    for data in DATA:
        for table in (1, 2):
            settings = settings_of(data, table)
            if outcome_of(settings, table, places) is not None:
                rows.append((f"{data}, {_TABLES[PRUNING[table]]}", cost_of(settings, places)))
    return cost_table(rows)


def readme_table(places: Places) -> str:
    """The paper's own rows and our answers, chosen on validation."""
    lines = [
        "| data | the paper's network | size | ours | size | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for table in TITLES:
        for data in DATA:
            settings = settings_of(data, table)
            outcome, before = outcome_of(settings, table, places), looks_before(settings, places)
            for number, competitor in enumerate(competitors_of(data, table, places)):
                if competitor.method != "SpArSe" or not (outcome or before):
                    continue
                cells = [f"{data}, table {table}", f"{competitor.accuracy:.2%}"]
                cells.append(_published_size(competitor))
                if outcome:
                    cells += _answer_cells(outcome.rows[number].by_validation, table)
                else:
                    cells += ["being searched anew", "", "not asked yet"]
                looks = outcome.looks if outcome else before
                if looks > 1 or before:
                    many = "1 look" if looks == 1 else f"{looks} looks"
                    when = "" if outcome else " before"
                    cells[-1] += f" ({many} at the test set{when})"
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
