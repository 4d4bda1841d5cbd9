"""Removing dead channels from a plain Keras model without changing what it computes.

A channel (a feature map, or a neuron of a dense layer) can go in two cases: it is constant, and all
its readers can take the constant into their bias; or none of its readers uses it, because their
weights for it are zero. Which channels go is the largest set that satisfies every layer at once:
the analysis starts with all candidates and takes back what some layer objects to, until nothing
changes.

The rules, per layer, for channels on the last axis:

* Dense, Conv2D, SeparableConv2D read a channel freely: it may go if its weights are zero, or if it
  is constant and that constant adds the same to every output position (zero, or no padding).
* Batch normalization, activations, dropout, pooling and the like tie input to output: a channel
  goes on both sides or stays on both. The same holds for every input of an addition.
* DepthwiseConv2D ties an input channel to all output maps made from it.
* Concatenate and Flatten tie each output channel to the input channel that it comes from; a channel
  before Flatten goes only if all its positions go.
* Everything else (other layers, layers used twice, grouped convolutions, the model's inputs and
  outputs) keeps all its channels.
"""

from collections import Counter

import keras
import numpy as np

from .shrink_rules import Rule, rule_for
from .walking import Call, Walk, copy_of, copy_weights, rebuild, walk

Rules = list[Rule | None]


def shrink(model: keras.Model) -> keras.Model:
    """Copies a built Sequential or functional model of plain layers without its dead channels.

    Args:
        model: Any such model; layers that are not known are left as they are.

    Returns:
        A model that predicts the same to float tolerance, with fewer channels where possible.
    """
    graph = walk(model)
    rules = _rules(graph)
    constants = _constants(graph, rules)
    removed = _removable(graph, rules, constants)
    ruled: dict[int, tuple[Call, Rule]] = {
        id(call.layer): (call, rule)
        for call, rule in zip(graph.calls, rules, strict=True)
        if rule is not None
    }
    weights: dict[int, list[np.ndarray]] = {}

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        if id(layer) not in ruled:
            return copy_of(layer)
        call, rule = ruled[id(layer)]
        kept_in = [~removed[tensor] for tensor in call.inputs]
        kept_out = ~removed[call.outputs[0]]
        used = [constants[tensor] for tensor in call.inputs]
        new, weights[id(layer)] = rule.resized(layer, kept_in, kept_out, used)
        return new

    def replace_model(nested: keras.Model) -> keras.Model | None:
        return None if _shares_layers(nested, model) else shrink(nested)

    small, pairs = rebuild(model, replace, replace_model)
    for old, new in pairs:
        if id(old) in weights:
            new.set_weights(weights[id(old)])
        else:
            copy_weights(old, new)
    return small


def _shares_layers(nested: keras.Model, model: keras.Model) -> bool:
    """Whether a layer of `nested` is also used in `model` outside of it."""
    inside = {id(layer) for layer in nested._flatten_layers(include_self=True, recursive=True)}
    outside: set[int] = set()
    for layer in model.layers:
        if layer is not nested:
            outside |= {id(x) for x in layer._flatten_layers(include_self=True, recursive=True)}
    return bool(inside & outside)


def _rules(graph: Walk) -> Rules:
    """The rule of each call; None where all channels must stay."""
    uses = Counter(id(call.layer) for call in graph.calls)
    return [
        rule_for(call.layer, [graph.shapes[tensor] for tensor in call.inputs])
        if uses[id(call.layer)] == 1 and len(call.outputs) == 1 and call.is_plain
        else None
        for call in graph.calls
    ]


def _constants(graph: Walk, rules: Rules) -> list[np.ndarray]:
    """For each tensor the value of each channel where it is the same for every input, else NaN."""
    constants = [np.full(shape[-1] or 0 if shape else 0, np.nan) for shape in graph.shapes]
    for call, rule in zip(graph.calls, rules, strict=True):
        if rule is not None:
            values = rule.constants(call.layer, [constants[tensor] for tensor in call.inputs])
            constants[call.outputs[0]] = values
    return constants


def _removable(graph: Walk, rules: Rules, constants: list[np.ndarray]) -> list[np.ndarray]:
    """For each tensor which channels go: the greatest fixed point of all layers' rules."""
    removed = [np.ones(len(constant), bool) for constant in constants]
    for tensor in (*graph.inputs, *graph.outputs):
        removed[tensor][:] = False
    for call, rule in zip(graph.calls, rules, strict=True):
        if rule is None:
            for tensor in (*call.inputs, *call.outputs):
                removed[tensor][:] = False
        else:
            droppable = rule.droppable(call.layer, [constants[t] for t in call.inputs])
            for tensor, may_go in zip(call.inputs, droppable, strict=True):
                removed[tensor] &= may_go
    while True:
        _settle(graph, rules, removed)
        emptied = [mask for mask in removed if mask.size and mask.all()]
        if not emptied:
            return removed
        # No tensor may end without any channel; which one stays does not matter.
        emptied[0][0] = False


def _settle(graph: Walk, rules: Rules, removed: list[np.ndarray]) -> None:
    """Takes back removals, in place, until the inputs and outputs of all layers agree."""
    before = -1
    while (total := sum(int(mask.sum()) for mask in removed)) != before:
        before = total
        for call, rule in zip(graph.calls, rules, strict=True):
            if rule is not None:
                rule.tie([removed[tensor] for tensor in call.inputs], removed[call.outputs[0]])
