"""Plans how a network streams: stages that keep a few rows, and where every row goes.

An image arrives pixel by pixel, row after row. A stage keeps only the rows that its kernel sees.
When they are there it computes one row of its output, channel by channel, and hands each channel's
values to its sinks: into the windows of the next stages, through a pooling on the way, into sums,
into the accumulators of a fully connected layer, into the delay line of a branch that waits for
another one. Nothing else is stored, so that the RAM is known before a compiler runs.
"""

import math
from typing import Any, NamedTuple

from .integer_graph import UnsupportedError
from .operators import (
    Add,
    Concatenation,
    Convolution,
    Dense,
    DepthMaximum,
    IntegerGraph,
    Mean,
    Operator,
    Pooling,
    Rescaling,
    Shape,
    Window,
    inputs_of,
)

_SINGLE = Window((1, 1), (1, 1), (0, 0, 0, 0))


class Part(NamedTuple):
    """A tensor as a part of a fully connected layer's input: its shape, and where it begins."""

    shape: Shape
    offset: int


class Sink(NamedTuple):
    """Where a row of a channel goes.

    Attributes:
        kind: "window" (of stage `target`), "flat" (the whole input of a fully connected stage),
            "dense" (into its accumulators), "sum" (of stage `target`), "delay" (of addition
            `target`), "output", or on the way "add" and "rescale".
        target: Number of the stage, or of the addition.
        pool: Max-pooling on the way into "window" or "flat".
        part: Position in a flat input, and for "dense" which of its parts it is.
        number: Which part of a "dense" sink.
        operator: Of "add" and "rescale".
        then: Sinks behind "add" and "rescale".
    """

    kind: str
    target: int = -1
    pool: Window | None = None
    part: Part | None = None
    number: int = 0
    operator: Add | Rescaling | None = None
    then: tuple["Sink", ...] = ()


class Stage(NamedTuple):
    """What keeps rows and makes rows.

    Attributes:
        number: From 0, the input.
        kind: "input", "window" (convolution, overlapping pooling, depth maximum, or just a row that
            is kept), "sum" (average and mean), "dense".
        operator: What it computes; None for the input and for a row that is kept.
        input: Shape of its input.
        output: Shape of its output.
        window: Kernel, strides, padding.
        flat: Whether a dense stage keeps its whole input instead of accumulators.
        parts: The parts of a dense stage's input.
    """

    number: int
    kind: str
    operator: Operator | None
    input: Shape
    output: Shape
    window: Window = _SINGLE
    flat: bool = False
    parts: tuple[Part, ...] = ()


class Plan(NamedTuple):
    """A network as stages.

    Attributes:
        graph: The network.
        stages: By number.
        sinks: For each stage where its rows go.
        additions: Every addition that has a delay line.
        delays: Rows of each delay line.
        depth_first: Whether the input is reduced to its largest channel as it arrives.
    """

    graph: IntegerGraph
    stages: tuple[Stage, ...]
    sinks: tuple[tuple[Sink, ...], ...]
    additions: tuple[Add, ...]
    delays: tuple[int, ...]
    depth_first: bool


def plan(graph: IntegerGraph) -> Plan:
    """Plans a network."""
    from .simulating import MissingRowError, delay_rows  # it simulates plans

    reversed_additions: set[int] = set()
    while True:
        drafted = _Planner(graph, reversed_additions).plan()
        try:
            return drafted._replace(delays=delay_rows(drafted))
        except MissingRowError as error:
            # The longer branch is not the later one, if it does not need the last rows.
            if error.addition.output in reversed_additions:
                raise
            reversed_additions.add(error.addition.output)


class _Planner:
    def __init__(self, graph: IntegerGraph, reversed_additions: set[int]) -> None:
        self.graph = graph
        self.reversed = reversed_additions
        self.readers: dict[int, list[Operator]] = {}
        for operator in graph.operators:
            for tensor in dict.fromkeys(inputs_of(operator)):
                self.readers.setdefault(tensor, []).append(operator)
        self.depth = self._depths()
        self.distance = self._distances()
        self.stages: list[Stage] = []
        self.outputs: list[int] = []  # tensor of each stage
        self.of_operator: dict[int, int] = {}  # output tensor of an operator: its stage
        self.additions: list[Add] = []

    def plan(self) -> Plan:
        graph = self.graph
        image = graph.input
        readers = self.readers.get(image, [])
        depth_first = len(readers) == 1 and isinstance(readers[0], DepthMaximum)
        tensor = readers[0].output if depth_first else image
        self._stage("input", None, graph.shapes[image], graph.shapes[tensor], tensor)
        for operator in graph.operators:
            if not (depth_first and operator is readers[0]):
                self._add_operator(operator)
        sinks: list[tuple[Sink, ...]] = []
        while len(sinks) < len(self.stages):  # rows that have to be kept become stages on the way
            sinks.append(self._sinks_of(len(sinks)))
        return Plan(graph, tuple(self.stages), tuple(sinks), tuple(self.additions), (), depth_first)

    def _stage(
        self,
        kind: str,
        operator: Operator | None,
        source: Shape,
        output: Shape,
        tensor: int,
        **kwargs: Any,
    ) -> int:
        number = len(self.stages)
        self.stages.append(Stage(number, kind, operator, source, output, **kwargs))
        self.outputs.append(tensor)
        return number

    def _add_operator(self, operator: Operator) -> None:
        shapes = self.graph.shapes
        output = shapes[operator.output]
        if isinstance(operator, (Concatenation, Rescaling)):
            return
        if isinstance(operator, Add):
            self.additions.append(self._last_first(operator))
            return
        source = shapes[operator.input]
        kind = "window"
        kwargs: dict[str, Any] = {}
        if isinstance(operator, Convolution):
            kwargs = {"window": operator.window}
        elif isinstance(operator, Pooling):
            if _is_simple(operator):
                if operator.kind == "max":
                    return
                kind, kwargs = "sum", {"window": operator.window}
            else:
                kwargs = {"window": operator.window}
        elif isinstance(operator, Mean):
            size = (source[0], source[1])
            kind, kwargs = "sum", {"window": Window(size, size, (0, 0, 0, 0))}
        elif isinstance(operator, Dense):
            parts = self._parts(operator.input)
            kind, kwargs = "dense", {"parts": parts, "flat": self._is_flat(operator, parts)}
        number = self._stage(kind, operator, source, output, operator.output, **kwargs)
        self.of_operator[operator.output] = number

    def _last_first(self, operator: Add) -> Add:
        """The same addition, its first input that of the longer branch, whose rows come later."""
        first, second = operator.input, operator.other
        if first == second:
            raise UnsupportedError("C is generated for the ADD of two tensors. Received: one twice")
        if (self.depth[second] < self.depth[first]) != (operator.output in self.reversed):
            return operator
        return operator._replace(
            input=second,
            other=first,
            offsets=operator.offsets[::-1],
            multipliers=(operator.multipliers[1], operator.multipliers[0], operator.multipliers[2]),
            shifts=(operator.shifts[1], operator.shifts[0], operator.shifts[2]),
        )

    def _parts(self, tensor: int) -> tuple[Part, ...]:
        """The tensors of which a fully connected layer's input consists."""
        producer = next((o for o in self.graph.operators if o.output == tensor), None)
        tensors = producer.inputs if isinstance(producer, Concatenation) else (tensor,)
        parts, offset = [], 0
        for part in tensors:
            parts.append(Part(self.graph.shapes[part], offset))
            offset += math.prod(self.graph.shapes[part])
        return tuple(parts)

    def _is_flat(self, operator: Dense, parts: tuple[Part, ...]) -> bool:
        kept = 0  # a pooled or raw row has to be complete before accumulators can take it
        producer = next((o for o in self.graph.operators if o.output == operator.input), None)
        if producer is None or isinstance(producer, Pooling):
            kept = parts[0].shape[1] * parts[0].shape[2]
        accumulators = 4 * operator.weights.shape[0] + 8 * len(parts)
        return sum(math.prod(part.shape) for part in parts) <= accumulators + kept

    def _sinks_of(self, number: int) -> tuple[Sink, ...]:
        flow = self._flow(self.outputs[number])
        if number == 0 and not all(sink.kind in ("window", "flat") for sink in flow):
            return (Sink("window", self._kept_row(self.outputs[0])),)
        return flow

    def _kept_row(self, tensor: int) -> int:
        shape = self.graph.shapes[tensor]
        return self._stage("window", None, shape, shape, tensor)

    def _flow(self, tensor: int) -> tuple[Sink, ...]:
        """The sinks of a tensor's rows, those first whose results are needed first."""
        readers = sorted(self.readers.get(tensor, []), key=lambda o: self.distance[o.output])
        result: list[Sink] = []
        for operator in readers:
            result += self._to(operator, tensor)
        if tensor == self.graph.output:
            result.append(Sink("output", part=Part(self.graph.shapes[tensor], 0)))
        return tuple(result)

    def _to(self, operator: Operator, tensor: int) -> list[Sink]:
        if isinstance(operator, Dense):
            return [self._to_dense(operator, 0)]
        if isinstance(operator, Concatenation):
            return self._to_concatenation(operator, tensor)
        if isinstance(operator, Rescaling):
            return [Sink("rescale", operator=operator, then=self._flow(operator.output))]
        if isinstance(operator, Add):
            addition = next(a for a in self.additions if a.output == operator.output)
            number = self.additions.index(addition)
            if tensor != addition.input:
                return [Sink("delay", number)]
            return [Sink("add", number, operator=addition, then=self._flow(operator.output))]
        if isinstance(operator, Pooling) and _is_simple(operator) and operator.kind == "max":
            return self._to_maximum(operator)
        number = self.of_operator[operator.output]
        return [Sink("sum" if self.stages[number].kind == "sum" else "window", number)]

    def _to_dense(self, operator: Dense, number: int) -> Sink:
        stage = self.stages[self.of_operator[operator.output]]
        kind = "flat" if stage.flat else "dense"
        return Sink(kind, stage.number, part=stage.parts[number], number=number)

    def _to_concatenation(self, operator: Concatenation, tensor: int) -> list[Sink]:
        result: list[Sink] = []
        for number, part in enumerate(operator.inputs):
            if part != tensor:
                continue
            for reader in self.readers.get(operator.output, []):
                if not isinstance(reader, Dense):
                    raise UnsupportedError(
                        "C is generated for a CONCATENATION that fully connected layers read. "
                        f"Received: {type(reader).__name__}"
                    )
                result.append(self._to_dense(reader, number))
            if operator.output == self.graph.output:
                offset = sum(math.prod(self.graph.shapes[p]) for p in operator.inputs[:number])
                result.append(Sink("output", part=Part(self.graph.shapes[part], offset)))
        return result

    def _to_maximum(self, operator: Pooling) -> list[Sink]:
        flow = self._flow(operator.output)
        if all(sink.kind in ("window", "flat") and sink.pool is None for sink in flow):
            return [sink._replace(pool=operator.window) for sink in flow]
        for number, tensor in enumerate(self.outputs):
            if tensor == operator.output:
                return [Sink("window", number, pool=operator.window)]
        return [Sink("window", self._kept_row(operator.output), pool=operator.window)]

    def _depths(self) -> dict[int, int]:
        """Operators on the longest way from the image to each tensor."""
        depth = {self.graph.input: 0}
        for operator in self.graph.operators:
            depth[operator.output] = 1 + max(depth[tensor] for tensor in inputs_of(operator))
        return depth

    def _distances(self) -> dict[int, int]:
        """Operators on the longest way from each tensor to the result."""
        distance = dict.fromkeys(self.graph.shapes, 0)
        for operator in reversed(self.graph.operators):
            for tensor in inputs_of(operator):
                distance[tensor] = max(distance[tensor], 1 + distance[operator.output])
        return distance


def _is_simple(operator: Pooling) -> bool:
    """Whether windows do not overlap, need no padding and no clamping."""
    window = operator.window
    return (
        window.kernel == window.stride
        and not any(window.padding)
        and (operator.low, operator.high) == (-128, 127)
    )
