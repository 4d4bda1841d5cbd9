"""Runs a plan row by row, without values: what does each delay line hold at most?"""

from .integer_graph import UnsupportedError
from .operators import Add
from .planning import Plan, Sink, Stage


class MissingRowError(UnsupportedError):
    """An addition whose branches are not there when they should be."""

    def __init__(self, addition: Add) -> None:
        super().__init__(
            "C is generated for an ADD one branch of which is always the earlier one. "
            f"Received: tensor {addition.output} as the sum of {addition.input} and "
            f"{addition.other}"
        )
        self.addition = addition


def delay_rows(plan: Plan) -> tuple[int, ...]:
    """Rows that the delay line of each addition needs."""
    return _Simulation(plan).run()


class _Simulation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = [stage.window.padding[0] for stage in plan.stages]  # in the window
        self.received = [0] * len(plan.stages)
        self.emitted = [0] * len(plan.stages)
        self.written = [0] * len(plan.additions)
        self.read = [0] * len(plan.additions)
        self.most = [0] * len(plan.additions)

    def run(self) -> tuple[int, ...]:
        for _ in range(self.plan.stages[0].input[0]):
            self._emit(0)
        for stage in self.plan.stages:
            if self.emitted[stage.number] != stage.output[0]:
                raise UnsupportedError(
                    f"C is generated for networks whose rows all arrive. Received: stage "
                    f"{stage.number} with {self.emitted[stage.number]} of {stage.output[0]} rows"
                )
        return tuple(self.most)

    def _emit(self, number: int) -> None:
        row = self.emitted[number]
        self.emitted[number] += 1
        sinks = self.plan.sinks[number]
        self._store(sinks)
        self._trigger(sinks, row)

    def _store(self, sinks: tuple[Sink, ...]) -> None:
        for sink in sinks:
            if sink.kind == "delay":
                self.written[sink.target] += 1
                held = self.written[sink.target] - self.read[sink.target]
                self.most[sink.target] = max(self.most[sink.target], held)
            elif sink.kind == "add":
                if self.written[sink.target] <= self.read[sink.target]:
                    raise MissingRowError(self.plan.additions[sink.target])
                self.read[sink.target] += 1
            self._store(sink.then)

    def _trigger(self, sinks: tuple[Sink, ...], row: int) -> None:
        for sink in sinks:
            self._trigger(sink.then, row)
            if sink.kind in ("window", "flat", "dense", "sum"):
                pooled = sink.pool
                if pooled is not None:
                    height = pooled.kernel[0]
                    stage = self.plan.stages[sink.target]
                    rows = stage.input[0] if sink.part is None else sink.part.shape[0]
                    if row % height != height - 1 or row // height >= rows:
                        continue
                self._push(self.plan.stages[sink.target])

    def _push(self, stage: Stage) -> None:
        number = stage.number
        self.received[number] += 1
        if stage.kind == "dense":
            if self.received[number] == sum(part.shape[0] for part in stage.parts):
                self._emit(number)
            return
        height, stride = stage.window.kernel[0], stage.window.stride[0]
        if stage.kind == "sum":
            whole = self.received[number] % height == 0
            if whole and self.emitted[number] < stage.output[0]:
                self._emit(number)
            return
        bottom = stage.window.padding[1] if self.received[number] == stage.input[0] else 0
        for _ in range(1 + bottom):
            self.rows[number] += 1
            if self.rows[number] == height:
                self._emit(number)
                self.rows[number] -= stride
