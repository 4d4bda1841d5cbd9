"""The memory of a plan, member by member: what is in RAM, and what is in flash."""

import math
from typing import NamedTuple

import numpy as np

from .encoding import Stream, smallest
from .operators import Convolution, Dense, Mean, Pooling, Rescaling
from .planning import Plan, Sink, Stage

_TYPES = {"int32_t": 4, "uint32_t": 4, "int16_t": 2, "uint16_t": 2, "int8_t": 1, "uint8_t": 1}


class Member(NamedTuple):
    """A variable: its C type, name, number of elements, values if constant, and what it is for."""

    type: str
    name: str
    elements: int
    purpose: str
    values: tuple[int, ...] = ()
    is_array: bool = True

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""
        return _TYPES[self.type] * self.elements

    @property
    def alignment(self) -> int:
        """Bytes of one element."""
        return _TYPES[self.type]


class Layout(NamedTuple):
    """All variables and tables of a network, the widest types first, so that none needs padding.

    Attributes:
        ram: Variables.
        flash: Tables: weights, indices, biases, factors.
        streams: The encoded weights by the name of their table.
    """

    ram: tuple[Member, ...]
    flash: tuple[Member, ...]
    streams: dict[str, Stream]

    def ram_bytes(self, word: int = 1) -> int:
        """Static RAM; `word` is the alignment of 32-bit values, 1 on an AVR and 4 on an ARM."""
        return _total(self.ram, word)

    def flash_bytes(self, word: int = 1) -> int:
        """All tables; `word` as in `ram_bytes`."""
        return _total(self.flash, word)


def _total(members: tuple[Member, ...], word: int) -> int:
    widest = max((min(member.alignment, word) for member in members), default=1)
    return -(-sum(member.bytes for member in members) // widest) * widest


def layout(plan: Plan, encoding: str | None = None) -> Layout:
    """The variables and tables of a plan.

    Args:
        plan: Of the network.
        encoding: Name of one format for all weights, instead of the smallest for each.
    """
    ram: list[Member] = []
    flash: list[Member] = []
    streams: dict[str, Stream] = {}
    for stage in plan.stages:
        ram += _variables(plan, stage)
        flash += _tables(plan, stage, streams, encoding)
    for number, (addition, rows) in enumerate(zip(plan.additions, plan.delays, strict=True)):
        _, width, channels = plan.graph.shapes[addition.output]
        size = rows * width * channels
        ram.append(Member("int8_t", f"delay{number}", size, f"delay line of {rows} rows"))
        flash.append(
            Member("int32_t", f"sum{number}", 3, "factors of an addition", addition.multipliers)
        )
        numbers = (
            *addition.shifts,
            *addition.offsets,
            addition.zero_point,
            addition.low,
            addition.high,
        )
        flash.append(Member("int8_t", f"sum{number}_shifts", 8, "shifts and limits of it", numbers))
    for operator in plan.graph.operators:
        if isinstance(operator, Rescaling):
            rescale = operator.rescale
            flash += _factors(f"_{operator.output}", rescale.multiplier, rescale.shift)
    size = max(
        sink.part.offset + math.prod(sink.part.shape)
        for sinks in plan.sinks
        for sink in flattened(sinks)
        if sink.kind == "output" and sink.part is not None
    )
    ram.append(Member("int8_t", "output", size, "the result"))
    for number, width in enumerate(_lines(plan)):
        ram.append(Member("int8_t", f"line{number}", width, "a row of one channel"))
    return Layout(_sorted(ram), _sorted(flash), streams)


def flattened(sinks: tuple[Sink, ...]) -> list[Sink]:
    """All sinks, those behind others too."""
    return [s for sink in sinks for s in (sink, *flattened(sink.then))]


def _sorted(members: list[Member]) -> tuple[Member, ...]:
    return tuple(sorted((m for m in members if m.elements), key=lambda m: -m.alignment))


def counter(name: str, most: int, purpose: str) -> Member:
    """A counter that is wide enough for `most`."""
    return _scalar("uint8_t" if most < 256 else "uint16_t", name, purpose)


def _scalar(kind: str, name: str, purpose: str) -> Member:
    return Member(kind, name, 1, purpose, is_array=False)


def line_bytes(stage: Stage) -> int:
    """Bytes of a channel's row in a stage's window, padding included."""
    _, _, left, right = stage.window.padding
    return left + stage.input[1] + right


def row_bytes(stage: Stage) -> int:
    """Bytes of a row of all channels in a stage's window."""
    return line_bytes(stage) * stage.input[2]


def counts_window(stage: Stage) -> bool:
    """Whether the rows in a stage's window have to be counted."""
    return stage.window.kernel[0] > 1 or stage.window.stride[0] > 1


def counts_rows(plan: Plan, stage: Stage) -> bool:
    """Whether the rows that a stage makes have to be counted."""
    if stage.kind == "input":
        return True
    pooled_with_padding = (
        isinstance(stage.operator, Pooling) and stage.kind == "window" and stage.output[0] > 1
    )
    return stage.output[0] > 1 and (
        pooled_with_padding
        or any(
            sink.pool is not None or sink.kind in ("flat", "delay", "add", "output")
            for sink in flattened(plan.sinks[stage.number])
        )
    )


def _variables(plan: Plan, stage: Stage) -> list[Member]:
    k = stage.number
    height, width, _ = stage.input
    result = []
    if counts_rows(plan, stage):
        result.append(counter(f"y{k}", max(stage.output[0], height), "rows made"))
    if stage.kind == "input":
        result.append(counter(f"x{k}", width, "pixels of this row"))
    elif stage.kind == "window":
        rows = stage.window.kernel[0]
        result.append(Member("int8_t", f"window{k}", rows * row_bytes(stage), f"{rows} rows"))
        if counts_window(stage):
            result.append(_scalar("int8_t", f"n{k}", "rows in the window"))
        if stage.window.padding[1]:
            result.append(counter(f"r{k}", height, "rows received"))
    elif stage.kind == "sum":
        size = stage.output[1] * stage.output[2]
        result.append(Member("int32_t", f"sums{k}", size, "sums of a row of windows"))
        result.append(counter(f"r{k}", height, "rows received"))
    else:
        rows = sum(part.shape[0] for part in stage.parts)
        if rows > 1:
            result.append(counter(f"r{k}", rows, "rows received"))
        if stage.flat:
            size = sum(math.prod(part.shape) for part in stage.parts)
            result.append(Member("int8_t", f"input{k}", size, "the whole input"))
        else:
            result.append(Member("int32_t", f"sums{k}", stage.output[2], "accumulators"))
            for number in range(len(stage.parts)):
                name = f"cursor{k}_{number}"
                weights = math.prod(stage.parts[number].shape) * stage.output[2]
                wide = "uint16_t" if 2 * weights < 2**16 else "uint32_t"
                result += [
                    _scalar(wide, f"{name}_next", "place in the weights"),
                    _scalar("uint16_t", f"{name}_zeros", "and within a run"),
                    _scalar("uint8_t", f"{name}_bits", "and within a byte"),
                    _scalar("uint8_t", f"{name}_left", "and within a byte"),
                ]
    return result


def _lines(plan: Plan) -> list[int]:
    """Widths of the buffers for a channel's row."""
    widths: list[int] = []

    def visit(sinks: tuple[Sink, ...], width: int, level: int) -> None:
        widths.extend([0] * (level + 1 - len(widths)))
        widths[level] = max(widths[level], width)
        inner = [sink for sink in sinks if sink.then]
        for sink in inner:
            visit(sink.then, width, level if sink is inner[-1] else level + 1)

    for stage in plan.stages[1:]:
        visit(plan.sinks[stage.number], stage.output[1], 0)
    return widths


def shape_of(stage: Stage) -> tuple[int, ...]:
    """Rows, length, gap, step, stride and width of a stage's window in memory; see the runtime.

    The values of a channel are neighbours in a row of the window, so that all rows of all channels
    lie at the same distance from each other: the taps in one column of a convolution's kernel are
    what the runtime calls a row.
    """
    operator = stage.operator
    if isinstance(operator, Dense):
        return 1, operator.weights.shape[1], 0, 1, 0, 1
    rows, columns = stage.window.kernel
    stride, width = stage.window.stride[1], stage.output[1]
    if isinstance(operator, Convolution) and not operator.multiplier:
        return columns, rows * stage.input[2], 1, line_bytes(stage), stride, width
    return rows, columns, row_bytes(stage), 1, stride, width


def weights_in_order(operator: Convolution) -> np.ndarray:
    """The weights of a convolution in the order of `shape_of`, shape (outputs, taps)."""
    weights = operator.weights
    if not operator.multiplier:
        weights = weights.transpose(0, 2, 1, 3)
    return weights.reshape(len(weights), -1)


def _tables(
    plan: Plan, stage: Stage, streams: dict[str, Stream], encoding: str | None
) -> list[Member]:
    k = stage.number
    operator = stage.operator
    result: list[Member] = []

    def weights(name: str, values: np.ndarray) -> None:
        stream = smallest(values.ravel(), encoding)
        streams[name] = stream
        result.append(
            Member(
                "uint8_t",
                name,
                len(stream.content),
                f"{stream.nonzeros} of {stream.size} weights, {stream.name}",
                tuple(stream.content),
            )
        )

    is_window = isinstance(operator, (Convolution, Pooling)) and stage.kind == "window"
    if is_window or stage.flat:
        shape = shape_of(stage)
        result.append(Member("uint16_t", f"shape{k}", len(shape), "how the window lies", shape))
    if isinstance(operator, (Convolution, Dense)):
        bias = tuple(int(value) for value in operator.bias)
        narrow = all(-32768 <= value < 32768 for value in bias)
        result.append(Member("int16_t" if narrow else "int32_t", f"bias{k}", len(bias), "", bias))
        result += _factors(f"{k}", operator.rescale.multiplier, operator.rescale.shift)
    if isinstance(operator, Mean):
        result += _factors(f"{k}", operator.rescale.multiplier, operator.rescale.shift)
    if isinstance(operator, Convolution):
        weights(f"weights{k}", weights_in_order(operator))
    elif isinstance(operator, Dense) and stage.flat:
        weights(f"weights{k}", operator.weights)
    elif isinstance(operator, Dense):
        for number, part in enumerate(stage.parts):
            height, width, channels = part.shape
            values = operator.weights[:, part.offset : part.offset + math.prod(part.shape)]
            values = values.reshape(-1, height, width, channels)
            # In the order in which the rows of channels arrive.
            weights(f"weights{k}_{number}", values.transpose(1, 3, 0, 2))
    return result


def _factors(name: str, multiplier: np.ndarray, shift: np.ndarray) -> list[Member]:
    numbers = tuple(int(value) for value in multiplier)
    shifts = tuple(int(value) for value in shift)
    return [
        Member("int32_t", f"factor{name}", len(numbers), "", numbers),
        Member("int8_t", f"shift{name}", len(shifts), "", shifts),
    ]
