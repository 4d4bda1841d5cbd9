"""KerasTuner's hyperparameters as a space."""

import math
from dataclasses import replace
from typing import Any

import keras_tuner
from keras_tuner.engine import hyperparameters as hp_module

from .parameters import Condition, Parameter, Space


def space_of(hyperparameters: keras_tuner.HyperParameters) -> Space:
    """The parameters that a user's `build(hp)` has declared.

    A name that is declared under several conditions is active under any of them; it must have the
    same range everywhere.
    """
    found: dict[str, Parameter] = {}
    for declared in hyperparameters.space:
        if not isinstance(declared, _KINDS):
            continue
        parameter = _parameter(declared)
        known = found.get(parameter.name)
        if known is None:
            found[parameter.name] = parameter
        elif replace(known, conditions=()) != replace(parameter, conditions=()):
            raise ValueError(
                "A hyperparameter that is declared twice must have the same values each time. "
                f"Received: {parameter.name!r}"
            )
        elif known.conditions and parameter.conditions:
            conditions = known.conditions + parameter.conditions
            found[parameter.name] = replace(known, conditions=conditions)
        else:
            found[parameter.name] = replace(known, conditions=())
    return Space(_ordered(found))


_KINDS = (hp_module.Int, hp_module.Float, hp_module.Choice, hp_module.Boolean, hp_module.Fixed)


def _parameter(declared: Any) -> Parameter:
    conditions: tuple[Condition, ...] = ()
    if declared.conditions:
        merged: dict[str, tuple[Any, ...]] = {}
        for parent in declared.conditions:
            merged[parent.name] = tuple(parent.values)
        conditions = (merged,)
    if isinstance(declared, hp_module.Fixed):
        return Parameter(declared.name, (declared.value,), conditions=conditions)
    if isinstance(declared, hp_module.Boolean):
        return Parameter(declared.name, (False, True), conditions=conditions)
    if isinstance(declared, hp_module.Choice):
        return Parameter(declared.name, tuple(declared.values), conditions=conditions)
    is_log = declared.sampling in ("log", "reverse_log")
    if is_log and declared.step is not None:  # the step multiplies
        count = int(math.log(declared.max_value / declared.min_value, declared.step) + 1e-9)
        grid = tuple(declared.min_value * declared.step**i for i in range(count + 1))
        return Parameter(declared.name, grid, conditions=conditions)
    step = 0 if declared.step is None else declared.step
    if isinstance(declared, hp_module.Int):
        step = step or 1
    return Parameter(
        declared.name,
        low=declared.min_value,
        high=declared.max_value,
        step=step,
        log=is_log,
        conditions=conditions,
    )


def _ordered(found: dict[str, Parameter]) -> list[Parameter]:
    """Every parameter after those that its conditions name."""
    result: list[Parameter] = []
    names: set[str] = set()
    waiting = list(found.values())
    while waiting:
        ready = [p for p in waiting if all(set(c) <= names for c in p.conditions)]
        if not ready:
            raise ValueError(
                "Conditions must name hyperparameters that exist. "
                f"Received: {[p.name for p in waiting]}"
            )
        result += ready
        names.update(p.name for p in ready)
        waiting = [p for p in waiting if p.name not in names]
    return result
