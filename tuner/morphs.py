"""The paper's morphs: a configuration in, a slightly different one out. Pure functions.

Every row of the paper's table is a function in `PAPER_ROWS`. Rows that name no step ("change the
kernel size") draw another value of the range. In the paper's space no row reaches the down-sampling
of the input, the epochs, pretraining, padding and the pooling windows: those come from random
proposals only. `EXTENDED_ROWS` adds a row for each of them and for the extended space's own
parameters.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .graph_builder import repaired
from .hypermodel import SparseCNN
from .parameters import Configuration, Parameter, Space, Value
from .space import INPUT_POOLING

Change = dict[str, tuple[Value, Value]]
"""(old, new) by the parameter's name."""

STAGE_2 = ("threshold", "alpha")
"""The rows that change pruning parameters only."""

_NEW_BRANCH_FRACTION = 0.05
_ATTEMPTS = 20


class Morph(NamedTuple):
    """A new configuration and how it came about.

    Attributes:
        configuration: Valid and buildable.
        rows: Names of the rows that were applied, in order.
        changes: What the rows themselves changed.
        sets: What the rows say they set besides, and the values of parameters that became active;
            these have None as their old value.
        repairs: What had to change so that the network can be built as the values say.
    """

    configuration: Configuration
    rows: tuple[str, ...]
    changes: Change
    sets: dict[str, tuple[Value | None, Value]]
    repairs: Change


class Step(NamedTuple):
    """What one row does: the parameters it changes and those that it says it sets."""

    changes: Configuration
    sets: Configuration | None = None


Row = Callable[[Space, Configuration, np.random.Generator], Step | None]
"""None if the row cannot be applied to the configuration."""


def morph(
    model: SparseCNN,
    reference: Configuration,
    rng: np.random.Generator,
    *,
    rows: Iterable[str] | None = None,
    count: int = 1,
) -> Morph | None:
    """Applies `count` randomly chosen rows to `reference`.

    Args:
        model: The space and the image.
        reference: A valid configuration; it is not changed.
        rng: Source of randomness.
        rows: Names of the rows to choose from; by default all of the space's.
        count: Number of rows to apply one after the other.

    Returns:
        The morph, or None if no row can change the reference.
    """
    model.space.check(reference)
    known = rows_of(model)
    names = list(known) if rows is None else list(rows)
    if not set(names) <= set(known):
        raise ValueError(
            f"rows must be some of {sorted(known)}. Received: {sorted(set(names) - set(known))}"
        )
    return morphed(model, reference, rng, names, count)


def morphed(
    model: SparseCNN,
    reference: Configuration,
    rng: np.random.Generator,
    rows: Iterable[str],
    count: int,
) -> Morph | None:
    """The same as `morph` for arguments that are known to be valid: a search has hundreds."""
    names = list(rows)
    for _ in range(_ATTEMPTS):
        result = _chain(model, reference, names, count, rng)
        if result is None or result.configuration != reference:
            return result
    return None


def _chain(
    model: SparseCNN,
    reference: Configuration,
    names: list[str],
    count: int,
    rng: np.random.Generator,
) -> Morph | None:
    """`count` steps, which may together lead back to the reference; None if none can be made."""
    result = Morph(reference, (), {}, {}, {})
    for _ in range(count):
        for place in rng.permutation(len(names)):
            step = apply(model, result.configuration, names[place], rng)
            if step is not None and step.configuration != result.configuration:
                result = _joined(result, step)
                break
    return result if result.rows else None


def _joined(first: Morph, second: Morph) -> Morph:
    """Two steps as one: old values are those before the first, new ones those after the second."""
    final = second.configuration

    def record(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in {**earlier, **later} if name in final]
        return {name: ({**later, **earlier}[name][0], final[name]) for name in names}

    return Morph(
        final,
        (*first.rows, *second.rows),
        record(first.changes, second.changes),
        record(first.sets, second.sets),
        record(first.repairs, second.repairs),
    )


def apply(
    model: SparseCNN, reference: Configuration, row: str, rng: np.random.Generator
) -> Morph | None:
    """Applies one row to `reference`; None if it cannot be applied."""
    step = rows_of(model)[row](model.space, reference, rng)
    if step is None:
        return None
    also = step.sets or {}
    wanted = {**reference, **step.changes, **also}
    complete = model.space.complete(wanted, rng)
    configuration, repairs = repaired(complete, model.space, model.input_shape)
    sets: dict[str, tuple[Value | None, Value]] = {
        name: (reference.get(name), value)
        for name, value in complete.items()
        if name not in step.changes and (name not in reference or name in also)
    }
    changes = {name: (reference[name], value) for name, value in step.changes.items()}
    return Morph(configuration, (row,), changes, sets, repairs)


def rows_of(model: SparseCNN) -> dict[str, Row]:
    """The rows of the model's space by name."""
    rows = PAPER_ROWS if model.space_name == "paper" else EXTENDED_ROWS
    return {**rows, **OPTIONAL_ROWS} if INPUT_POOLING in model.space.parameters else rows


# Moves of a single parameter.


def _active(space: Space, configuration: Configuration, stem: str) -> list[Parameter]:
    """Parameters of that name, or with that beginning and a block or layer, that can change."""
    return [
        space[name]
        for name in configuration
        if (name == stem or name.startswith(f"{stem}-")) and not space[name].is_fixed
    ]


def _choose(parameters: Sequence[Parameter], rng: np.random.Generator) -> Parameter | None:
    return parameters[int(rng.integers(len(parameters)))] if parameters else None


def _moved(parameter: Parameter, value: Value, by: float, rng: np.random.Generator) -> Value:
    """`value` ± `by`; at an end of the range the other way."""
    numbers = [parameter.nearest(float(value) + sign * by) for sign in (1, -1)]
    different = [number for number in numbers if number != value]
    return different[int(rng.integers(len(different)))] if different else value


def _another(parameter: Parameter, value: Value, rng: np.random.Generator) -> Value:
    """A random value other than `value`."""
    for _ in range(100):
        drawn = parameter.sample(rng)
        if drawn != value:
            return drawn
    return value


def _step_row(stem: str, by: float, smallest: float | None = None) -> Row:
    """A row that moves one parameter of that name by ± `by`, or by `smallest` to `by`."""

    def row(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
        parameter = _choose(_active(space, c, stem), rng)
        if parameter is None:
            return None
        distance = by if smallest is None else rng.uniform(smallest, by)
        distance = max(distance, parameter.step)
        return Step({parameter.name: _moved(parameter, c[parameter.name], distance, rng)})

    return row


def _draw_row(stem: str) -> Row:
    """A row that draws another value for one parameter of that name; a switch is flipped."""

    def row(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
        parameter = _choose(_active(space, c, stem), rng)
        if parameter is None:
            return None
        return Step({parameter.name: _another(parameter, c[parameter.name], rng)})

    return row


# The rows that do more.


def _num_conv_blocks(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
    step = _step_row("num-conv-blocks", 1)(space, c, rng)
    if step is None:
        return None
    number = int(step.changes["num-conv-blocks"])
    name = f"num-conv-layers-block-{number}"
    is_new = number > int(c["num-conv-blocks"])
    return step._replace(sets={name: space[name].nearest(1)} if is_new else None)


def _branch(side: str) -> Row:
    def row(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
        step = _draw_row(f"{side}-branch")(space, c, rng)
        if step is None or not step.changes[f"{side}-branch"]:
            return step
        name = f"weight-fraction-{side}-branch"
        return step._replace(sets={name: space[name].nearest(_NEW_BRANCH_FRACTION)})

    return row


def _weight_fraction(largest: float) -> Row:
    """Moves every active fraction by 0.05, or by up to `largest` where that is more."""

    def row(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
        parameters = _active(space, c, "weight-fraction")
        if not parameters:
            return None
        by = 0.05 * (largest / 0.05) ** rng.uniform(0, 1)
        return Step({p.name: _moved(p, c[p.name], by, rng) for p in parameters})

    return row


def _num_filters(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
    """In the extended space half to twice as many, so that most of the layer is inherited."""
    parameter = _choose(_active(space, c, "num-filters"), rng)
    if parameter is None:
        return None
    old = int(c[parameter.name])
    new = parameter.nearest(old * 2.0 ** rng.uniform(-1, 1))
    return Step({parameter.name: new if new != old else _moved(parameter, old, 1, rng)})


def _fc_weights(space: Space, c: Configuration, rng: np.random.Generator) -> Step | None:
    """In the extended space half to twice as many."""
    parameter = _choose(_active(space, c, "total-fc-layer-weights"), rng)
    if parameter is None:
        return None
    old = c[parameter.name]
    new = parameter.nearest(float(old) * 2.0 ** rng.uniform(-1, 1))
    changed = new if new != old else _moved(parameter, old, parameter.step, rng)
    return Step({parameter.name: changed})


PAPER_ROWS: dict[str, Row] = {
    "num-fc-layers": _step_row("num-fc-layers", 1),
    "num-conv-blocks": _num_conv_blocks,
    "layer-type": _draw_row("layer-type"),
    "num-conv-filters": _draw_row("num-filters"),
    "kernel-size": _draw_row("kernel-size"),
    "downsampling-rate": _draw_row("downsample-block"),
    "batch-norm": _draw_row("batch-norm"),
    "residual-connections": _draw_row("residual-connections"),
    "left-branch": _branch("left"),
    "right-branch": _branch("right"),
    "total-fc-layer-weights": _step_row("total-fc-layer-weights", 5e3),
    "merge-type": _draw_row("merge-type"),
    "threshold": _step_row("pruning-thresholds", 0.5),
    "weight-fraction": _weight_fraction(0.05),
    "alpha": _step_row("alpha", 0.1),
    "num-conv-layers": _step_row("num-conv-layers", 1),
}
"""The 16 rows of the paper's table, by its names."""

EXTENDED_ROWS: dict[str, Row] = {
    **PAPER_ROWS,
    "num-conv-filters": _num_filters,
    "total-fc-layer-weights": _fc_weights,
    "weight-fraction": _weight_fraction(0.5),
    "downsample-input": _draw_row("downsample-input"),
    "input-downsampling-rate": _step_row("input-downsampling-rate", 1),
    "threshold": _step_row("pruning-thresholds", 0.5, smallest=0.1),
    "alpha": _step_row("alpha", 0.1, smallest=0.01),
    "zero-regularization-epochs": _step_row("zero-regularization-epochs", 3, smallest=1),
    "annealing-epochs": _step_row("annealing-epochs", 3, smallest=1),
    "pretraining": _draw_row("pretraining"),
    "padding": _draw_row("padding"),
    "pooling-window": _step_row("pooling-window", 1),
    "stride": _step_row("stride", 1),
    "pooling-type": _draw_row("pooling-type"),
    "global-pooling": _draw_row("global-pooling"),
}

OPTIONAL_ROWS: dict[str, Row] = {INPUT_POOLING: _draw_row(INPUT_POOLING)}
"""For spaces that have the parameter."""
