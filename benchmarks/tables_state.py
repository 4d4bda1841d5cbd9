"""A search in less than 2 MB, so that it survives a lost machine: written here, restored from here.

The trimmed state has what every trial was and what came of it, and the weights of the trials on a
front; in the end only of those that are trained on. A search that goes on from it proposes the same
configurations; only trials whose reference lost its weights train from scratch. In
benchmarks/results/tables/<search>/:

    project.json, settings.json, command.json, clock.json    as in the folder of the search
    trials.jsonl.gz                                          one trial a line
    posteriors/<trial>.npz, <trial>-fold<n>.npz              see above
"""

import gzip
import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_sparse.tuner.answers import TrialRecord, front_of
from keras_sparse.tuner.goals import Goal
from keras_sparse.tuner.project import Project, read_json
from keras_sparse.tuner.reading import records_of

from keras_sparse.files import write_bytes, write_json

STATE_FILES = ("project.json", "settings.json", "command.json", "clock.json")
_TRIALS = "trials.jsonl.gz"
MOST_BYTES = 1_200_000
"""Of the trials and their weights; several searches are to fit into a few MB."""


def fronts_of(records: list[TrialRecord]) -> list[TrialRecord]:
    """The trials that are on the front by one of the tables' models of memory, in their order."""
    sizes: list[tuple[str, ...]] = [("model_size",)]
    sizes += [("model_size", f"working_memory/inputs+{other}") for other in ("weights", "outputs")]
    chosen: set[str] = set()
    for names in sizes:
        goals = [Goal("val_error"), *(Goal(name) for name in names)]
        measured = [r for r in records if all(goal.name in r.metrics for goal in goals)]
        chosen |= {record.trial_id for record in front_of(measured, goals)}
    return [record for record in records if record.trial_id in chosen]


def save_state(folder: Path, target: Path, weights_of: Collection[str] | None = None) -> int:
    """Writes the trimmed state of a search.

    Args:
        folder: Of the search.
        target: Of the state; what is there of an earlier one is replaced.
        weights_of: The trials whose weights are kept; None for those of the fronts.

    Returns:
        Bytes of the state.
    """
    project = Project(folder)
    ended = [record for record in records_of(project) if record.status != "running"]
    front = {record.trial_id for record in fronts_of(ended)}
    kept = front if weights_of is None else set(weights_of)
    lines = [_line(project, record.trial_id, record.trial_id in front) for record in ended]
    if lines:  # a search goes on with what the last proposal knew
        lines[-1]["proposal"]["state"] = _raw(project, ended[-1].trial_id, "proposal")["state"]
    target.mkdir(parents=True, exist_ok=True)
    for name in STATE_FILES:
        content = read_json(folder / name)
        if content is not None:
            write_json(target / name, content)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packed = gzip.compress(text.encode(), mtime=0)  # a tenth; the same trials, the same bytes
    write_bytes(target / _TRIALS, packed)
    whole = weights_of is None
    total = len(packed) + _copy_posteriors(project, kept, target / "posteriors", len(packed), whole)
    return total + sum((target / n).stat().st_size for n in STATE_FILES if (target / n).is_file())


def _raw(project: Project, trial_id: str, name: str) -> dict[str, Any]:
    return dict(read_json(project.trial_folder(trial_id) / f"{name}.json") or {})


def _line(project: Project, trial_id: str, is_kept: bool) -> dict[str, Any]:
    proposal, result = (_raw(project, trial_id, name) for name in ("proposal", "result"))
    proposal["state"] = {}
    if not is_kept:
        result["network"] = {}  # drawn only for members of a front
    return {"trial": trial_id, "proposal": proposal, "result": result}


def _copy_posteriors(
    project: Project, kept: set[str], folder: Path, used: int, is_whole: bool
) -> int:
    """Copies from the smallest on, so that as many as possible stay; returns their bytes.

    Args:
        project: Of the search.
        kept: The trials.
        folder: Where to.
        used: Bytes that the state has already.
        is_whole: Whether those of all folds are copied, for a search that goes on; else the first.
    """
    names = "posterior*.npz" if is_whole else "posterior.npz"
    files = {i: sorted(project.trial_folder(i).glob(names)) for i in kept}
    sizes = {i: sum(path.stat().st_size for path in paths) for i, paths in files.items() if paths}
    total, written = 0, set()
    for trial_id in sorted(sizes, key=lambda i: (sizes[i], i)):
        if used + total + sizes[trial_id] <= MOST_BYTES:
            total += sizes[trial_id]
            for path in files[trial_id]:
                name = path.name.replace("posterior", trial_id, 1)
                written.add(name)
                write_bytes(folder / name, path.read_bytes())
    for path in folder.glob("*.npz"):
        if path.name not in written:
            path.unlink()
    return total


def forget(folder: Path, state: Path) -> None:
    """Removes the folder of a search and its trimmed state, not what came of its members."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(state / "posteriors", ignore_errors=True)
    for name in (*STATE_FILES, _TRIALS):
        (state / name).unlink(missing_ok=True)


def restore(state: Path, folder: Path) -> int:
    """Makes the folder of a search from its trimmed state, unless the folder exists.

    Args:
        state: From `save_state`.
        folder: Of the search.

    Returns:
        Number of trials restored; 0 if there was nothing to do.
    """
    if folder.exists() or not (state / _TRIALS).is_file():
        return 0
    part = folder.with_name(f"{folder.name}.part")  # a folder is there whole or not at all
    shutil.rmtree(part, ignore_errors=True)
    for name in STATE_FILES:
        if (state / name).is_file():
            write_bytes(part / name, (state / name).read_bytes())
    project, count = Project(part), 0
    for line in gzip.decompress((state / _TRIALS).read_bytes()).splitlines():
        content = json.loads(line)
        trial_folder = project.trial_folder(content["trial"])
        write_json(trial_folder / "proposal.json", content["proposal"])
        write_json(trial_folder / "result.json", content["result"])
        for path in (state / "posteriors").glob(f"{content['trial']}*.npz"):
            trial, _, fold = path.stem.partition("-")
            if trial == content["trial"]:
                name = f"posterior-{fold}.npz" if fold else "posterior.npz"
                write_bytes(trial_folder / name, path.read_bytes())
        count += 1
    part.rename(folder)
    return count
