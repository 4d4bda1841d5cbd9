"""Reads the folder of a search without the data, the model or KerasTuner.

The folder may be a stranger's: it is data, of which nothing is taken for granted. What cannot be
understood is left out and named in `Search.problems`.
"""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_sparse import network_facts
from keras_sparse.network_facts import NetworkFacts

from .answers import TrialRecord, best_of, front_of
from .budget import Budget
from .goals import MEASURED, Goal, Limit, limits_of
from .parameters import Configuration
from .project import Outcome, Project, TrialProposal, read_json


class Search(NamedTuple):
    """A search, as its folder tells it.

    Attributes:
        folder: Where it is.
        goals: What was optimised, everything minimised.
        budget: What the user could afford, in bytes.
        max_trials: How many trials were asked for; 0 if not known.
        memory_model: Name of the model of working memory.
        input_shape: (height, width, channels); () if it is a model of the user's own.
        data: Name of the data set; "" if not known.
        records: All trials, in the order of their numbers.
        networks: Of the trials whose network is known, by trial.
        deployments: What came of trials that were brought to a board: flat records of text and
            numbers, each with "trial" and "board".
        problems: What could not be read, one sentence each.
    """

    folder: Path
    goals: tuple[Goal, ...]
    budget: Budget
    max_trials: int
    memory_model: str
    input_shape: tuple[int, ...]
    data: str
    records: list[TrialRecord]
    networks: dict[str, NetworkFacts]
    deployments: list[dict[str, Any]]
    problems: list[str]

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The budget's limits on metrics."""
        return limits_of(self.budget)

    @property
    def front(self) -> list[TrialRecord]:
        """The trials that no other beats in everything."""
        return front_of(self.records, self.goals)

    @property
    def best(self) -> TrialRecord | None:
        """The most accurate within the budget; None if none is within."""
        return best_of(self.records, self.goals, self.limits)


def records_of(project: Project) -> list[TrialRecord]:
    """All trials of a folder that this process has written itself."""
    records = []
    for number, trial_id in enumerate(project.trial_ids()):
        proposal = project.read_proposal(trial_id)
        if proposal is not None:
            records.append(record_of(number, trial_id, proposal, project.read_outcome(trial_id)))
    return records


def record_of(
    number: int, trial_id: str, proposal: TrialProposal, outcome: Outcome | None
) -> TrialRecord:
    """One trial from its two files."""
    status = "running"
    if outcome is not None:
        status = "completed" if outcome.is_complete else "failed"
    return TrialRecord(
        trial_id,
        number,
        status,
        proposal.stage,
        proposal.reference,
        {**proposal.configuration, **(outcome.more if outcome else {})},
        *(outcome or Outcome({}))[:4],
    )


def read_search(folder: str | Path) -> Search:
    """Reads the folder of a search.

    Args:
        folder: Such as "runs/digits".

    Raises:
        ValueError: It is not the folder of a search; the message says what to do.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} must be the folder of a search, as --out of `keras-sparse search` "
            "named it. Received: no such folder"
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        about = _mapping(read_json(folder / "project.json"))
        settings = _mapping(read_json(folder / "settings.json"))
        command = _mapping(read_json(folder / "command.json"))
        files = {
            trial_id: (
                read_json(folder / f"trial_{trial_id}" / "proposal.json"),
                read_json(folder / f"trial_{trial_id}" / "result.json"),
            )
            for trial_id in Project(folder).trial_ids()
        }
        deployed = [read_json(path) for path in sorted(folder.glob("deployments/*.json"))]
    problems = [str(warning.message) for warning in caught]
    goals = _goals(about.get("objectives"))
    if not goals:
        found = sorted(path.parent.name for path in folder.glob("*/project.json"))
        hint = f"; there are searches in it: {', '.join(found)}" if found else ""
        raise ValueError(
            f"{str(folder)!r} must be the folder of a search, with a project.json that names its "
            f"objectives{hint}. Received: none that can be read"
        )
    budget = _budget(settings.get("budget"), problems)
    needed = {*(goal.name for goal in goals), *(limit.metric for limit in limits_of(budget))}
    records: list[TrialRecord] = []
    networks: dict[str, NetworkFacts] = {}
    for trial_id, (proposal, result) in files.items():
        try:
            record = _checked_record(len(records), trial_id, proposal, result, needed)
            records.append(_with_known_reference(record, records))
            content = _mapping(_mapping(result).get("network"))
            if content:
                networks[trial_id] = network_facts.from_json(content)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            problems.append(f"Trial {trial_id} cannot be read in full: {error}")
    hypermodel = _mapping(about.get("hypermodel"))
    return Search(
        folder,
        goals,
        budget,
        _whole(settings.get("max_trials")),
        str(about.get("working_memory", "")),
        tuple(_whole(size) for size in _list(hypermodel.get("input_shape"))),
        str(command.get("data", "")),
        records,
        networks,
        [flat for flat in map(_deployment, deployed) if flat],
        problems,
    )


def _goals(names: Any) -> tuple[Goal, ...]:
    names = [name for name in _list(names) if isinstance(name, str)]
    return tuple(Goal(name, logarithmic=name in MEASURED) for name in dict.fromkeys(names))


def _checked_record(
    number: int, trial_id: str, proposal: Any, result: Any, needed: set[str]
) -> TrialRecord:
    proposal, content = _mapping(proposal), _mapping(result)
    reference = proposal.get("reference")
    outcome = None
    if result is not None:
        metrics = {
            str(name): float(value)
            for name, value in _mapping(content.get("metrics")).items()
            if _is_number(value)
        }
        if not needed <= set(metrics):
            metrics = {}  # as of a failed trial
        outcome = Outcome(
            metrics,
            str(content.get("reason", "")),
            _whole(content.get("epochs")),
            float(content["seconds"]) if _is_number(content.get("seconds")) else 0.0,
            _configuration(content.get("more")),
        )
    return record_of(
        number,
        trial_id,
        TrialProposal(
            _configuration(proposal.get("configuration")),
            reference if isinstance(reference, str) else None,
            max(_whole(proposal.get("stage")), 1),
            {},
        ),
        outcome,
    )


def _with_known_reference(record: TrialRecord, earlier: list[TrialRecord]) -> TrialRecord:
    """A reference is an earlier trial: so a line of references ends."""
    is_known = any(other.trial_id == record.reference for other in earlier)
    return record if is_known else record._replace(reference=None)


def _budget(content: Any, problems: list[str]) -> Budget:
    content = _mapping(content)
    try:
        return Budget(*(content.get(name) for name in Budget._fields)).checked()
    except (ValueError, TypeError, OverflowError) as error:
        problems.append(f"The budget cannot be read: {error}")
        return Budget()


def _deployment(content: Any) -> dict[str, Any]:
    record = {str(k): v for k, v in _mapping(content).items() if isinstance(v, str)}
    numbers = {str(k): v for k, v in _mapping(content).items() if _is_number(v)}
    record.update(numbers)
    return record if "trial" in record and "board" in record else {}


def _configuration(content: Any) -> Configuration:
    return {
        str(name): value
        for name, value in _mapping(content).items()
        if isinstance(value, (str, bool)) or _is_number(value)
    }


def _mapping(content: Any) -> Mapping[str, Any]:
    return content if isinstance(content, Mapping) else {}


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and abs(value) < 1e300 and math.isfinite(value)


def _whole(value: Any) -> int:
    return int(value) if _is_number(value) else 0
