"""C text of the sinks: where the rows of a stage go, and which stages then have work."""

from typing import NamedTuple, cast

from .layout import Layout, counts_window, line_bytes, row_bytes
from .operators import Rescale, Rescaling
from .planning import Part, Plan, Sink, Stage


class _Place(NamedTuple):
    """Where the values of a row go.

    Attributes:
        first: C expression of the address of the first value of channel 0.
        distance: Bytes from a channel to the next one.
        step: Bytes from a value of a channel to the next one.
        width: Values of a channel.
        rows: Rows of the target.
    """

    first: str
    distance: int
    step: int
    width: int
    rows: int

    def channel(self, c: str) -> str:
        """The address of the first value of a channel."""
        return f"{self.first} + {c}" + (f" * {self.distance}" if self.distance > 1 else "")

    def pixel(self, x: str) -> str:
        """The address of the first channel of a pixel."""
        return f"{self.first} + {x}" + (f" * {self.step}" if self.step > 1 else "")


class SinkWriter:
    """Writes the stores of a plan's rows."""

    def __init__(self, plan: Plan, memory: Layout) -> None:
        self.plan = plan
        self.memory = memory

    def _type(self, name: str) -> str:
        return next(member.type for member in self.memory.ram if member.name == name)

    @staticmethod
    def _channel(name: str, rescale: Rescale, bias: str) -> list[str]:
        """How the sums of channel c become int8; from tables, because constants would take RAM."""
        index = "c" if len(rescale.multiplier) > 1 else "0"
        factor = f"d.factor{name}[{index}], d.shift{name}[{index}]"
        limits = f"{rescale.zero_point}, {rescale.low}, {rescale.high}"
        return [f"const ks_channel k = {{{bias}, {factor}, {limits}}};"]

    def _slot(self, stage: Stage) -> str:
        """The row of a window that is written next."""
        if not counts_window(stage):
            return "0"
        n = f"s.n{stage.number}"
        return f"({n} < 0 ? 0 : {n})" if stage.window.stride[0] > stage.window.kernel[0] else n

    def _place(self, sink: Sink, row: str) -> _Place:
        """Where the values of a row go."""
        stage = self.plan.stages[sink.target]
        if sink.kind == "window":
            height, width, _ = stage.input
            left = stage.window.padding[2]
            place = f"s.window{stage.number}"
            if counts_window(stage):
                place += f" + {self._slot(stage)} * {row_bytes(stage)}"
            place += f" + {left}" if left else ""
            return _Place(place, line_bytes(stage), 1, width, height)
        part = cast(Part, sink.part)
        height, width, channels = part.shape
        place = f"s.input{stage.number}" if sink.kind == "flat" else "s.output"
        place += f" + {part.offset}" if part.offset else ""
        if height > 1:
            place += f" + {row} * {width * channels}"
        return _Place(place, 1, channels, width, height)

    def _stores(
        self, sinks: tuple[Sink, ...], shape: tuple[int, int, int], level: int
    ) -> list[str]:
        """Stores the line of a level into all sinks."""
        line = f"s.line{level}"
        result: list[str] = []
        inner = [sink for sink in sinks if sink.then]
        for sink in sinks:
            if not sink.then:
                result += self._store(sink, line, shape)
        for sink in inner:
            below = level if sink is inner[-1] else level + 1
            result += self._transform(sink, line, f"s.line{below}", shape)
            result += self._stores(sink.then, shape, below)
        return result

    def _store(self, sink: Sink, line: str, shape: tuple[int, int, int]) -> list[str]:
        height, width, channels = shape
        y = "y" if height > 1 else "0"
        if sink.kind == "delay":
            place = self._delayed(sink, shape)
            return [f"ks_store({place} + c, {line}, {width}, {channels});"]
        if sink.kind == "dense":
            return self._accumulate(sink, line, width)
        if sink.kind == "sum":
            stage = self.plan.stages[sink.target]
            rows, columns = stage.window.kernel
            store = f"ks_sum(s.sums{sink.target} + c, {line}, {stage.output[1]}, {channels}, "
            store += f"{columns});"
            return self._limited(
                f"s.r{sink.target} < {stage.output[0] * rows}", store, height, rows
            )
        if sink.pool is None:
            to = self._place(sink, y)
            return [f"ks_store({to.channel('c')}, {line}, {width}, {to.step});"]
        rows, columns = sink.pool.kernel
        to = self._place(sink, f"({y} / {rows})")
        store = f"ks_store_maximum({to.channel('c')}, {line}, {to.width}, {to.step}, {columns}, "
        store += f"{y} % {rows} == 0);"
        return self._limited(f"{y} < {to.rows * rows}", store, height, rows)

    @staticmethod
    def _limited(condition: str, store: str, height: int, rows: int) -> list[str]:
        """A store that leaves out the rows below the last whole window."""
        if height % rows == 0:
            return [store]
        return [f"if ({condition}) {{", f"    {store}", "}"]

    def _delayed(self, sink: Sink, shape: tuple[int, int, int]) -> str:
        height, width, channels = shape
        rows = self.plan.delays[sink.target]
        place = f"s.delay{sink.target}"
        return place if rows == 1 or height == 1 else f"{place} + y % {rows} * {width * channels}"

    def _transform(self, sink: Sink, line: str, to: str, shape: tuple[int, int, int]) -> list[str]:
        _, width, channels = shape
        if sink.kind == "add":
            j = sink.target
            place = self._delayed(sink, shape)
            tables = f"d.sum{j}, d.sum{j}_shifts"
            return [f"ks_add({to}, {line}, {place} + c, {width}, {channels}, {tables});"]
        operator = cast(Rescaling, sink.operator)
        channel = self._channel(
            f"_{operator.output}", operator.rescale, str(operator.input_zero_point)
        )
        return [
            "{",
            *(f"    {text}" for text in channel),
            f"    ks_rescale_line({to}, {line}, {width}, &k);",
            "}",
        ]

    def _accumulate(self, sink: Sink, line: str, width: int) -> list[str]:
        k = sink.target
        stream = f"weights{k}_{sink.number}"
        cursor = f"s.cursor{k}_{sink.number}"
        name = self.memory.streams[stream].name
        kind = self._type(f"cursor{k}_{sink.number}_next")
        outputs = self.plan.stages[k].output[2]
        return [
            "{",
            f"    ks_cursor w = {{0, {cursor}_zeros, {cursor}_bits, {cursor}_left}};",
            f"    w.next = d.{stream} + {cursor}_next;",
            f"    ks_accumulate_{name}(&w, {line}, {width}, s.sums{k}, {outputs});",
            f"    {cursor}_next = ({kind})(w.next - d.{stream});",
            *(f"    {cursor}_{field} = w.{field};" for field in ("zeros", "bits", "left")),
            "}",
        ]

    def _store_pixel(self, sink: Sink, channels: int) -> list[str]:
        if sink.pool is None:
            to = self._place(sink, "y")
            return [f"ks_store({to.pixel('x')}, pixel, {channels}, {to.distance});"]
        rows, columns = sink.pool.kernel
        to = self._place(sink, f"(y / {rows})")
        place = to.pixel(f"x / {columns}")
        store = f"ks_store_maximum({place}, pixel, {channels}, {to.distance}, 1, "
        store += f"y % {rows} == 0 && x % {columns} == 0);"
        return [f"if (x < {to.width * columns} && y < {to.rows * rows}) {{", f"    {store}", "}"]

    def _triggers(self, sinks: tuple[Sink, ...]) -> list[str]:
        """Calls of the stages that have got a row."""
        result: list[str] = []
        for sink in sinks:
            result += self._triggers(sink.then)
            if sink.kind not in ("window", "flat", "dense", "sum"):
                continue
            call = f"push{sink.target}();"
            if sink.pool is None or sink.pool.kernel[0] == 1:
                result.append(call)
                continue
            rows = sink.pool.kernel[0]
            limit = f" && y < {self._place(sink, 'y').rows * rows}"
            result += [f"if (y % {rows} == {rows - 1}{limit}) {{", f"    {call}", "}"]
        return result
