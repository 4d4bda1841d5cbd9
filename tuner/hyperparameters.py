"""A space in the terms of KerasTuner."""

from typing import Any

from keras_tuner.engine.hyperparameters import HyperParameter, deserialize

from .parameters import Condition, Parameter, Space


def hyperparameters_of(space: Space) -> list[HyperParameter]:
    """KerasTuner's parameters for those of `space`, with their conditions.

    They are made from configurations because KerasTuner's own `conditional_scope` cannot express
    a condition on two parameters that do not depend on each other. It knows "and" but not "or", so
    a parameter with alternatives (total-fc-layer-weights, merge-type) always has a value there,
    which has no effect while the parameter is inactive.
    """
    result = []
    for parameter in space:
        class_name, config = _described(parameter)
        alternatives = parameter.conditions
        config["conditions"] = _conditions(alternatives[0]) if len(alternatives) == 1 else []
        result.append(deserialize({"class_name": class_name, "config": config}))
    return result


def _described(parameter: Parameter) -> tuple[str, dict[str, Any]]:
    """Class and configuration of KerasTuner's parameter."""
    config: dict[str, Any] = {"name": parameter.name, "default": parameter.default}
    if parameter.is_fixed:
        return "Fixed", {"name": parameter.name, "value": parameter.default}
    if set(parameter.values) == {False, True}:
        return "Boolean", config
    if parameter.values:
        return "Choice", {**config, "values": list(parameter.values), "ordered": False}
    step = None if parameter.log else parameter.step or None
    config["sampling"] = "log" if parameter.log else "linear"
    if not parameter.is_integer:
        limits = {"min_value": parameter.low, "max_value": parameter.high}
        return "Float", {**config, **limits, "step": step}
    limits = {"min_value": int(parameter.low), "max_value": int(parameter.high)}
    return "Int", {**config, **limits, "step": step and int(step)}


def _conditions(condition: Condition) -> list[dict[str, Any]]:
    return [
        {"class_name": "Parent", "config": {"name": parent, "values": list(values)}}
        for parent, values in condition.items()
    ]
