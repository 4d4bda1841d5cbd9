"""C text of the stages: what happens when a row arrives, and where rows go."""

import math
import re
from typing import cast

import numpy as np

from .emitting_sinks import SinkWriter
from .layout import counts_rows, counts_window, line_bytes, row_bytes, shape_of
from .operators import Convolution, Dense, DepthMaximum, Mean, Pooling
from .planning import Stage


class StageWriter(SinkWriter):
    """Writes the functions of a plan's stages."""

    def stage(self, stage: Stage) -> str:
        """The functions of one stage: `push`, when a row has been stored, and `row`."""
        body = {"window": self._window, "sum": self._sum, "dense": self._dense}[stage.kind](stage)
        return f"/* {self._title(stage)} */\n{body}\n"

    def push(self) -> str:
        """`model_push`."""
        stage = self.plan.stages[0]
        height, width, channels = stage.output
        _, _, given = stage.input
        lines = ["uint8_t model_push(const int8_t *pixel)", "{"]
        if self.plan.depth_first:
            lines += ["    int8_t most;", f"    ks_depth_maximum(pixel, 1, {given}, 1, &most);"]
            lines.append("    pixel = &most;")
        for sink in self.plan.sinks[0]:
            lines += [f"    {line}" for line in self._store_pixel(sink, channels)]
        lines.append(f"    if (++s.x0 < {width}) {{")
        lines += ["        return 0;", "    }", "    s.x0 = 0;", "    s.y0++;"]
        lines += [f"    {line}" for line in self._triggers(self.plan.sinks[0])]
        lines.append(f"    return s.y0 == {height};")
        # Only what is used, or compilers complain.
        for name in "yx":
            if any(re.search(rf"\b{name}\b", line) for line in lines):
                lines.insert(2, f"    const {self._type(f'{name}0')} {name} = s.{name}0;")
        return "\n".join([*lines, "}", ""])

    def _title(self, stage: Stage) -> str:
        """A comment with the operator, its shapes, encoding and buffer."""
        k = stage.number
        operator = stage.operator
        names = {"Convolution": "convolution", "Dense": "fully connected", "Mean": "mean"}
        name = names.get(type(operator).__name__, type(operator).__name__.lower())
        if isinstance(operator, Convolution):
            rows, columns = stage.window.kernel
            name = f"{'depthwise ' if operator.multiplier else ''}{name} {rows}x{columns}"
            name += f", stride {stage.window.stride[0]}x{stage.window.stride[1]}"
            name += f", padding {stage.window.padding}"
        elif isinstance(operator, Pooling):
            name = f"{operator.kind} pooling {stage.window.kernel}, stride {stage.window.stride}"
        elif operator is None:
            name = "a row that is kept"
        shapes = [f"{'x'.join(map(str, shape))}" for shape in (stage.input, stage.output)]
        own = [m for m in self.memory.ram if m.name in _owned(k)]
        text = f"Stage {k}: {name}; {shapes[0]} -> {shapes[1]}; "
        text += " and ".join(f"{m.name}: {m.bytes} B ({m.purpose})" for m in own)
        for key, stream in self.memory.streams.items():
            if key == f"weights{k}" or key.startswith(f"weights{k}_"):
                text += f"; {key}: {stream.name}, {len(stream.content)} B"
        return text

    # ---- stages ----

    def _window(self, stage: Stage) -> str:
        k = stage.number
        rows, stride = stage.window.kernel[0], stage.window.stride[0]
        size = row_bytes(stage)
        lines = [f"static void row{k}(void)", "{", *self._row(stage)]
        if rows > stride:
            move = f"ks_move(s.window{k}, {stride * size}, {(rows - stride) * size});"
            # Consumers may not see the window: it can move before they run.
            lines.insert(len(lines) - self._trailing, f"    {move}")
        lines += ["}", "", f"static void push{k}(void)", "{"]
        if not counts_window(stage):
            lines += [f"    row{k}();", "}"]
            return "\n".join(lines)
        whole = [f"if (++s.n{k} == {rows}) {{", f"    s.n{k} = {rows - stride};"]
        whole += [f"    row{k}();", "}"]
        bottom = stage.window.padding[1]
        lines += [f"    {line}" for line in whole]
        if bottom:
            lines.append(f"    if (++s.r{k} == {stage.input[0]}) {{")
            lines += ["        uint8_t i;", f"        for (i = 0; i < {bottom}; i++) {{"]
            place = f"s.window{k} + {self._slot(stage)} * {size}"
            lines.append(f"            ks_fill({place}, {self._pad(stage)}, {size});")
            lines += [f"            {line}" for line in whole]
            lines += ["        }", "    }"]
        return "\n".join([*lines, "}"])

    def _pad(self, stage: Stage) -> int:
        if isinstance(stage.operator, Convolution):
            return stage.operator.pad_value
        return -128 if isinstance(stage.operator, Pooling) and stage.operator.kind == "max" else 0

    def _row(self, stage: Stage) -> list[str]:
        """Body of `row`: computes a row of each channel and hands it on."""
        k = stage.number
        operator = stage.operator
        _, width, channels = stage.output
        lines = [f"    {self._index(channels)} c;", *self._counted(stage)]
        if isinstance(operator, (Convolution, Pooling)):
            lines.append(f"    const ks_shape g = {self._shape(k)};")
        begin, body = [], []
        if isinstance(operator, Convolution):
            name = self.memory.streams[f"weights{k}"].name
            begin.append(f"    ks_cursor w = ks_begin_{name}(d.weights{k});")
            place = f"s.window{k}"
            if operator.multiplier:
                source = "c" if operator.multiplier == 1 else f"c / {operator.multiplier}"
                place += f" + {source} * {line_bytes(stage)}"
            body += self._channel(f"{k}", operator.rescale, f"d.bias{k}[c]")
            body.append(f"ks_conv_{_kernel(stage, name)}(&w, {place}, &g, &k, s.line0);")
        elif isinstance(operator, Pooling):
            limits = f"{operator.low}, {operator.high}"
            if operator.kind == "max":
                place = f"s.window{k} + c * {line_bytes(stage)}"
                body.append(f"ks_pool_maximum({place}, &g, {limits}, s.line0);")
            else:
                begin, body = self._average(stage, operator, limits)
        elif isinstance(operator, DepthMaximum):
            sizes = f"{width}, {stage.input[2]}, {line_bytes(stage)}"
            body.append(f"ks_depth_maximum(s.window{k}, {sizes}, s.line0);")
        else:
            place = f"s.window{k} + c * {line_bytes(stage)}"
            body.append(f"ks_store(s.line0, {place}, {width}, 1);")
        return self._channels(stage, lines + begin, body)

    @staticmethod
    def _shape(k: int) -> str:
        return "{" + ", ".join(f"d.shape{k}[{i}]" for i in range(6)) + "}"

    def _average(self, stage: Stage, operator: Pooling, limits: str) -> tuple[list[str], list[str]]:
        k = stage.number
        top, _, left, _ = stage.window.padding
        rows, stride = stage.window.kernel[0], stage.window.stride[0]
        y = "y" if counts_rows(self.plan, stage) else "0"
        begin = [
            f"    const int16_t from = (int16_t)({y} * {stride} - {top});",
            f"    const int16_t to = (int16_t)(from + {rows});",
            f"    const int16_t rows = (int16_t)((to < {stage.input[0]} ? to : {stage.input[0]})"
            " - (from > 0 ? from : 0));",
        ]
        body = [
            f"ks_pool_average(s.window{k} + c * {line_bytes(stage)}, &g, rows, {left}, "
            f"{left + stage.input[1]}, {stage.window.stride[1]}, {limits}, s.line0);"
        ]
        return begin, body

    def _sum(self, stage: Stage) -> str:
        k = stage.number
        operator = stage.operator
        _, width, channels = stage.output
        height = stage.window.kernel[0]
        lines = [f"static void push{k}(void)", "{"]
        lines += [f"    {self._index(channels)} c;", "    uint16_t x;", *self._counted(stage)]
        wait = f"    if (++s.r{k} % {height} != 0) {{"
        # Counting before the rows are complete would be wrong: only a whole row is one.
        guard = [wait, "        return;", "    }"]
        counted = [line for line in lines if "++;" in line]
        lines = [line for line in lines if line not in counted] + guard + counted
        body = []
        place = f"s.sums{k}[x * {channels} + c]"
        if isinstance(operator, Mean):
            body += self._channel(f"{k}", operator.rescale, "0")
            value = f"ks_rescale({place} - ({operator.zero_sum}l), &k)"
        else:
            value = f"ks_quotient({place}, {math.prod(stage.window.kernel)})"
        body += [f"for (x = 0; x < {width}; x++) {{", f"    s.line0[x] = {value};"]
        body += [f"    {place} = 0;", "}"]
        return "\n".join([*self._channels(stage, lines, body), "}"])

    def _dense(self, stage: Stage) -> str:
        k = stage.number
        operator = cast(Dense, stage.operator)
        rows = sum(part.shape[0] for part in stage.parts)
        outputs = stage.output[2]
        lines = [f"static void push{k}(void)", "{", f"    {self._index(outputs)} c;"]
        body = []
        start: list[str] = []
        if stage.flat:
            name = self.memory.streams[f"weights{k}"].name
            lines.append(f"    const ks_shape g = {self._shape(k)};")
            lines.append("    ks_cursor w;")
            start.append(f"    w = ks_begin_{name}(d.weights{k});")
            body += self._channel(f"{k}", operator.rescale, f"d.bias{k}[c]")
            value = f"ks_dot_{name}(&w, s.input{k}, &g, k.bias)"
        else:
            body += self._channel(f"{k}", operator.rescale, "0")
            value = f"s.sums{k}[c]"
        body.append(f"s.line0[0] = ks_rescale({value}, &k);")
        if rows > 1:
            lines += [f"    if (++s.r{k} < {rows}) {{", "        return;", "    }"]
        return "\n".join([*self._channels(stage, lines + start, body), "}"])

    def _channels(self, stage: Stage, lines: list[str], body: list[str]) -> list[str]:
        """A loop over channels that computes and stores, then the stages that have new rows."""
        sinks = self.plan.sinks[stage.number]
        stores = self._stores(sinks, stage.output, 0)
        channels = stage.output[2]
        lines = [*lines, f"    for (c = 0; c < {channels}; c++) {{"]
        lines += [f"        {line}" for line in body + stores]
        lines.append("    }")
        triggers = [f"    {line}" for line in self._triggers(sinks)]
        self._trailing = len(triggers)
        return lines + triggers

    @staticmethod
    def _index(count: int) -> str:
        return "uint8_t" if count < 256 else "uint16_t"

    def _counted(self, stage: Stage) -> list[str]:
        if not counts_rows(self.plan, stage):
            return []
        name = f"y{stage.number}"
        return [f"    const {self._type(name)} y = s.{name}++;"]


def _owned(k: int) -> tuple[str, ...]:
    return f"window{k}", f"input{k}", f"sums{k}"


def _kernel(stage: Stage, name: str) -> str:
    """Which function of the runtime computes a row of a convolution, its weights so encoded."""
    operator = cast(Convolution, stage.operator)
    _, length, _, _, stride, width = shape_of(stage)
    if width < 4 or not _fits_24_bits(operator):
        return f"wide_{name}"
    if name == "bitmap" and length % 8 == 0:
        name = "bitmap8"
    return f"near_{name}" if stride == 1 else f"far_{name}"


def _fits_24_bits(operator: Convolution) -> bool:
    """Whether no sum of the convolution, whole or partial, can leave 24 bits."""
    weights = np.abs(operator.weights.reshape(len(operator.weights), -1).astype(np.int64))
    largest = np.abs(operator.bias.astype(np.int64)) + 128 * weights.sum(axis=1)
    return bool(np.all(largest < 2**23))
