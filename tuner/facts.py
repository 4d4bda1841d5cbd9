"""What the pictures of a search show, as plain facts; `plots` and `report` draw them."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_sparse.network_facts import NetworkFacts

from .answers import TrialRecord, hypervolumes, lineage_of
from .goals import violation
from .parameters import Value
from .reading import Search
from .references import Published, published


class FrontPoint(NamedTuple):
    """A trial in the picture of the front.

    Attributes:
        trial_id: Of the trial.
        size: Bytes of the model without indices, or its non-zeros.
        accuracy: On the validation data, 0 to 1.
        working_memory: Bytes; None if it was not measured.
        stage: Of the search, from 1.
        on_front: Whether no trial beats it in all objectives.
        within: Whether it is within the budget.
    """

    trial_id: str
    size: float
    accuracy: float
    working_memory: float | None
    stage: int
    on_front: bool
    within: bool


class FrontFacts(NamedTuple):
    """The Pareto front.

    Attributes:
        points: All trials with metrics, in their order.
        best: Trial id of the most accurate within the budget; None if none is.
        staircase: (size, accuracy) of the trials that no other beats in these two, from small to
            large; of three objectives it is a part of the front.
        references: Published results.
        size_limit: Bytes of flash that the user can afford; None for any.
    """

    points: tuple[FrontPoint, ...]
    best: str | None
    staircase: tuple[tuple[float, float], ...]
    references: tuple[Published, ...]
    size_limit: float | None


def front_facts(search: Search, references: str | None = None) -> FrontFacts:
    """The front of a search whose trials have an accuracy and a size.

    Args:
        search: From `read_search`.
        references: Name of the data set whose published results stand beside it; None for that of
            the search.
    """
    front = {record.trial_id for record in search.front}
    points = tuple(
        FrontPoint(
            record.trial_id,
            record.metrics["model_size"],
            1.0 - record.metrics["val_error"],
            record.metrics.get("working_memory"),
            record.stage,
            record.trial_id in front,
            violation(search.limits, record.metrics) == 0,
        )
        for record in _measured(search)
    )
    best = search.best
    has_ram = any(goal.name == "working_memory" for goal in search.goals)
    return FrontFacts(
        points,
        None if best is None else best.trial_id,
        _staircase([(point.size, point.accuracy) for point in points]),
        tuple(
            published(
                search.data if references is None else references,
                search.memory_model if has_ram else "",
            )
        ),
        None if search.budget.flash is None else float(search.budget.flash),
    )


def _measured(search: Search) -> list[TrialRecord]:
    needed = {"val_error", "model_size"}
    return [record for record in search.records if needed <= set(record.metrics)]


def _staircase(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    steps: list[tuple[float, float]] = []
    for size, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not steps or accuracy > steps[-1][1]:
            steps.append((size, accuracy))
    return tuple(steps)


class HypervolumeFacts(NamedTuple):
    """How good the front was after each trial that has ended.

    Attributes:
        volumes: From 0 to 1.
        stages: Of each trial.
        hours: Of training up to the end of each trial, all workers added.
    """

    volumes: tuple[float, ...]
    stages: tuple[int, ...]
    hours: tuple[float, ...]


def hypervolume_facts(search: Search) -> HypervolumeFacts:
    """The hypervolume over the trials."""
    ended = [record for record in search.records if record.status != "running"]
    hours, total = [], 0.0
    for record in ended:
        total += record.seconds / 3600
        hours.append(total)
    return HypervolumeFacts(
        tuple(hypervolumes(ended, search.goals)),
        tuple(record.stage for record in ended),
        tuple(hours),
    )


class Step(NamedTuple):
    """A trial in a line of references.

    Attributes:
        trial_id: Of the trial.
        stage: Of the search.
        metrics: Of the trial.
        changes: (parameter, value in the reference, value here), None where it is not active.
    """

    trial_id: str
    stage: int
    metrics: dict[str, float]
    changes: tuple[tuple[str, Value | None, Value | None], ...]


def lineage_facts(search: Search, trial_id: str | None = None) -> tuple[Step, ...]:
    """How a configuration came about, its oldest ancestor first.

    Args:
        search: From `read_search`.
        trial_id: Which one; None for the best within the budget, or else the first of the front.
    """
    line = lineage_of(search.records, _chosen(search, trial_id).trial_id)[::-1]
    steps = []
    for number, record in enumerate(line):
        earlier = line[number - 1].configuration if number else None
        changes = [] if earlier is None else _changes(earlier, record.configuration)
        steps.append(Step(record.trial_id, record.stage, record.metrics, tuple(changes)))
    return tuple(steps)


def _chosen(search: Search, trial_id: str | None) -> TrialRecord:
    if trial_id is not None:
        return lineage_of(search.records, trial_id)[0]  # names a trial that does not exist
    record = search.best or next(iter(search.front), None)
    if record is None:
        raise ValueError("search must have a trial that has completed. Received: none")
    return record


def _changes(
    old: dict[str, Value], new: dict[str, Value]
) -> list[tuple[str, Value | None, Value | None]]:
    names = dict.fromkeys([*new, *old])
    return [(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)]


class ScatterFacts(NamedTuple):
    """The paper's scatter: edges of the network against weights that are left after pruning.

    Attributes:
        trial_ids: Of the trials that are accurate enough.
        edges: |E|, the parameters before pruning.
        nonzeros: ‖ω̄‖₀, the parameters that are not zero after it.
        accuracies: On the validation data.
        least_accuracy: Of the trials that are shown.
    """

    trial_ids: tuple[str, ...]
    edges: tuple[float, ...]
    nonzeros: tuple[float, ...]
    accuracies: tuple[float, ...]
    least_accuracy: float


def scatter_facts(search: Search, least_accuracy: float = 0.0) -> ScatterFacts:
    """Edges against non-zeros of the trials that are at least so accurate."""
    shown = [
        record
        for record in _measured(search)
        if {"parameters", "nonzeros"} <= set(record.metrics)
        and 1.0 - record.metrics["val_error"] >= least_accuracy
    ]
    return ScatterFacts(
        tuple(record.trial_id for record in shown),
        tuple(record.metrics["parameters"] for record in shown),
        tuple(record.metrics["nonzeros"] for record in shown),
        tuple(1.0 - record.metrics["val_error"] for record in shown),
        least_accuracy,
    )


class LayerFacts(NamedTuple):
    """Parameters of one layer, biases included, before and after pruning."""

    name: str
    before: int
    after: int

    @property
    def sparsity(self) -> float:
        """Share that was pruned, 0 to 1."""
        return 1.0 - self.after / self.before if self.before else 0.0


def sparsity_facts(network: NetworkFacts) -> tuple[LayerFacts, ...]:
    """The layers with parameters, in order of execution."""
    return tuple(
        LayerFacts(node.name, *node.parameters) for node in network.nodes if node.parameters.before
    )


def network_of(search: Search, trial_id: str | None = None) -> NetworkFacts:
    """What is known of a trial's network.

    Args:
        search: From `read_search`.
        trial_id: Which one; None for the best within the budget, or else the first of the front.
    """
    record = _chosen(search, trial_id)
    if record.trial_id not in search.networks:
        raise ValueError(
            f"trial must be one that has completed and whose network was recorded. "
            f"Received: {record.trial_id!r}"
        )
    return search.networks[record.trial_id]
