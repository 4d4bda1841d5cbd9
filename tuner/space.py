"""What may vary in a `SparseCNN`: the paper's table of parameters, and an extended one.

`paper_space` has the names, ranges and conditions of the paper's appendix, and what only its text
names: padding, pooling window, residual connections, thresholds of the fully connected (FC) layers.
`extended_space` adds strides, average and global pooling and blocks without pooling, and samples
filters and FC weights evenly in their logarithm, down to the very small.

One parameter is there only where `ranges` names it: input-pooling-type, "max" or "average", of a
down-sampled input. Without it, as in the paper, the largest pixel is taken.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .parameters import Condition, Parameter, Space, Value

Ranges = Mapping[str, Sequence[Value]]
LAYER_TYPES = ("Conv2D", "DownsampledConv2D", "SeparableConv2D")
SPACES = ("extended", "paper")
PRUNING = ("unstructured", "structured", None)
BOTH = (False, True)
INPUT_POOLING = "input-pooling-type"
"""Only in spaces whose ranges name it: configurations found without it stay whole."""


def layer_key(stem: str, block: int, layer: int) -> str:
    """Name of a convolution's parameter; blocks and layers count from 1."""
    return f"{stem}-block-{block}-layer-{layer}"


def block_key(stem: str, block: int) -> str:
    """Name of a block's parameter."""
    return f"{stem}-block-{block}"


def cnn_space(space: str, channels: int, pruning: str | None, ranges: Ranges) -> Space:
    """The parameters of a `SparseCNN`.

    Args:
        space: "extended" or "paper".
        channels: Channels of the input image; with one there is nothing to reduce in depth.
        pruning: "unstructured", "structured" or None; without it no pruning parameters.
        ranges: For a parameter's name, or its beginning for all blocks and layers, another
            (low, high) or list of choices.
    """
    is_extended = space == "extended"
    blocks = _highest(ranges, ["num-conv-blocks"], 2)
    parameters = [
        *_input(channels, ranges),
        *(_training() if pruning else ()),
        *_global(is_extended, blocks),
        *(
            parameter
            for block in range(1, blocks + 1)
            for parameter in _block(block, blocks, ranges, is_extended, pruning)
        ),
        *_fully_connected(is_extended, pruning),
    ]
    return Space(_with_ranges(parameters, ranges))


def _highest(ranges: Ranges, names: list[str], default: int) -> int:
    """The largest number of blocks or layers, which decides what parameters there are.

    The last of the names for which there is a range counts; `_narrowed` checks it later.
    """
    for name in reversed(names):
        given = ranges.get(name)
        if isinstance(given, (list, tuple)) and given and isinstance(given[-1], int):
            low, high = _LIMITS[names[0]]
            return min(max(int(given[-1]), int(low)), int(high))
    return default


def _input(channels: int, ranges: Ranges) -> list[Parameter]:
    is_downsampled: Condition = {"downsample-input": (True,)}
    kind = Parameter(INPUT_POOLING, ("max", "average"), conditions=(is_downsampled,))
    depth = [Parameter("downsample-input-in-depth", BOTH)] if channels > 1 else []
    return [
        *depth,
        Parameter("downsample-input", BOTH),
        Parameter(
            "input-downsampling-rate",
            low=2,
            high=4,
            step=1,
            conditions=(is_downsampled,),
        ),
        *([kind] if INPUT_POOLING in ranges else ()),
    ]


def _training() -> list[Parameter]:
    return [
        Parameter("pretraining", BOTH),
        Parameter("zero-regularization-epochs", low=5, high=30, step=1),
        # With pretraining the network is already trained, and the whole KL term applies at once.
        Parameter(
            "annealing-epochs", low=15, high=25, step=1, conditions=({"pretraining": (False,)},)
        ),
        Parameter("alpha", low=0.01, high=1.0, step=0.01),
    ]


def _global(is_extended: bool, blocks: int) -> list[Parameter]:
    extended = [
        Parameter("pooling-type", ("max", "average")),
        Parameter("global-pooling", ("none", "average")),
    ]
    return [
        Parameter("batch-norm", BOTH),
        Parameter("residual-connections", BOTH),
        Parameter("num-conv-blocks", low=1, high=blocks, step=1),
        *(extended if is_extended else ()),
    ]


def _block(
    block: int, blocks: int, ranges: Ranges, is_extended: bool, pruning: str | None
) -> list[Parameter]:
    exists: Condition = {"num-conv-blocks": tuple(range(block, blocks + 1))}
    conditions = () if block == 1 else (exists,)
    count = block_key("num-conv-layers", block)
    layers = _highest(ranges, ["num-conv-layers", count], 3)
    parameters = [
        Parameter(count, low=1, high=layers, step=1, conditions=conditions),
        Parameter(
            block_key("pooling-window", block),
            low=1 if is_extended else 2,
            high=3,
            step=1,
            conditions=conditions,
        ),
    ]
    for layer in range(1, layers + 1):
        in_block: Condition = {count: tuple(range(layer, layers + 1))}
        active = () if block == layer == 1 else ({**(exists if block > 1 else {}), **in_block},)
        parameters += _convolution(block, layer, active, is_extended, pruning)
    return parameters


def _convolution(
    block: int,
    layer: int,
    conditions: tuple[Condition, ...],
    is_extended: bool,
    pruning: str | None,
) -> list[Parameter]:
    def named(stem: str, values: tuple[Value, ...] = (), **kwargs: Any) -> Parameter:
        kwargs.setdefault("conditions", conditions)
        return Parameter(layer_key(stem, block, layer), values, **kwargs)

    type_key = layer_key("layer-type", block, layer)
    reduced = tuple(
        {**condition, type_key: ("DownsampledConv2D",)} for condition in conditions or ({},)
    )
    parameters = [
        named("layer-type", LAYER_TYPES),
        named("kernel-size", low=2, high=5, step=1),
        named("num-filters", low=1, high=100, step=1, log=is_extended),
        named("downsample", low=0.0, high=0.5, conditions=reduced),
        named("padding", ("valid", "same")),
    ]
    if is_extended:
        parameters.append(named("stride", low=1, high=2, step=1))
    if pruning:
        parameters.append(_threshold(layer_key("", block, layer), conditions))
    return parameters


def _fully_connected(is_extended: bool, pruning: str | None) -> list[Parameter]:
    main: Condition = {"num-fc-layers": (1,)}
    left: Condition = {"left-branch": (True,)}
    right: Condition = {"right-branch": (True,)}
    low, step = (50, 10) if is_extended else (1000, 1000)
    parameters = [
        Parameter("num-fc-layers", low=0, high=1, step=1),
        Parameter("left-branch", BOTH),
        Parameter("right-branch", BOTH),
        Parameter(
            "total-fc-layer-weights",
            low=low,
            high=800_000,
            step=step,
            log=is_extended,
            conditions=(main, left, right),
        ),
        Parameter("weight-fraction-main-branch", low=0.0, high=1.0, conditions=(main,)),
        Parameter("weight-fraction-left-branch", low=0.01, high=1.0, conditions=(left,)),
        Parameter("weight-fraction-right-branch", low=0.01, high=1.0, conditions=(right,)),
        Parameter("merge-type", ("Sum", "Concatenate"), conditions=(left, right)),
    ]
    if pruning:
        parameters += [
            _threshold("-main-branch", (main,)),
            _threshold("-left-branch", (left,)),
            _threshold("-right-branch", (right,)),
            _threshold("-output", ()),
        ]
    return parameters


def _threshold(suffix: str, conditions: tuple[Condition, ...]) -> Parameter:
    name = f"pruning-thresholds{suffix}"
    return Parameter(name, low=-6.0, high=3.0, step=0.1, conditions=conditions)


_LIMITS = {
    "kernel-size": (1, 15),
    "num-filters": (1, math.inf),
    "num-conv-layers": (1, 8),
    "num-conv-blocks": (1, 6),
    "num-fc-layers": (0, 1),
    "pooling-window": (1, 8),
    "stride": (1, 4),
    "input-downsampling-rate": (1, math.inf),
    "total-fc-layer-weights": (1, math.inf),
    "weight-fraction": (0, 1),
    "downsample": (0, 1),
    "pruning-thresholds": (-math.inf, math.inf),
}
"""Beyond these a number makes no sense; for those not named here, from 0 on."""


def _with_ranges(parameters: list[Parameter], ranges: Ranges) -> list[Parameter]:
    used: set[str] = set()
    result = []
    for parameter in parameters:
        # The longest name that fits, so that one layer can differ from the rest.
        fitting = [key for key in ranges if _stands_for(key, parameter.name)]
        if fitting:
            key = max(fitting, key=len)
            used.update(fitting)
            parameter = _narrowed(parameter, key, ranges[key])
        result.append(parameter)
    if set(ranges) - used:
        raise ValueError(
            "ranges must name parameters of the space, such as 'num-filters' or "
            f"'num-filters-block-1-layer-2'. Received: {sorted(set(ranges) - used)}"
        )
    return result


def _stands_for(key: str, name: str) -> bool:
    """Whether `key` is the name of a parameter or that of a group of parameters."""
    rest = name.removeprefix(key)
    groups = ("-block-", "-layer-", "-main-", "-left-", "-right-", "-output")
    return name.startswith(key) and (not rest or rest.startswith(groups))


def _narrowed(parameter: Parameter, key: str, given: Any) -> Parameter:
    if parameter.values:
        choices = list(given) if isinstance(given, (list, tuple)) else []
        if not choices or not all(parameter.contains(value) for value in choices):
            raise ValueError(
                f"ranges[{key!r}] must be a list of some of {list(parameter.values)}. "
                f"Received: {given!r}"
            )
        return replace(parameter, values=tuple(choices))
    is_pair = isinstance(given, (list, tuple)) and len(given) == 2
    if not is_pair or not all(_is_finite(number) for number in given) or given[0] > given[1]:
        raise ValueError(f"ranges[{key!r}] must be (low, high), finite. Received: {given!r}")
    low, high = given
    limits = next((v for k, v in _LIMITS.items() if key.startswith(k)), (0, math.inf))
    if low < limits[0] or high > limits[1]:
        raise ValueError(
            f"ranges[{key!r}] must lie within {limits[0]:g} and {limits[1]:g}. Received: {given!r}"
        )
    if parameter.is_integer and not all(isinstance(number, int) for number in given):
        raise ValueError(f"ranges[{key!r}] must be two whole numbers. Received: {given!r}")
    if low < high < low + parameter.step:
        raise ValueError(
            f"ranges[{key!r}] must span at least one step of {parameter.step:g} or be one value "
            f"twice. Received: {given!r}"
        )
    return replace(parameter, low=low, high=high)


def _is_finite(number: Any) -> bool:
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return is_number and math.isfinite(number)
