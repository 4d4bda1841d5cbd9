"""A second count of a configuration's network, written from the paper's text alone.

It shares nothing with the assembler: sizes are found by sliding windows over real index ranges and
weights by multiplying out what every layer connects.
"""

from typing import Any


def slots(size: int, window: int, stride: int, padding: str) -> int:
    """Places of a window on a line, found by trying them."""
    if padding == "same":
        return len(range(0, size, stride))
    return len([start for start in range(0, size, stride) if start + window <= size])


class Counter:
    def __init__(self) -> None:
        self.ops: list[dict[str, Any]] = []

    def op(self, inputs: list[int], output: int, weights: int = 0, macs: int = 0) -> None:
        self.ops.append({"in": sum(inputs), "out": output, "weights": weights, "macs": macs})


def count(values: dict[str, Any], shape: tuple[int, int, int], classes: int) -> dict[str, int]:
    """Parameters, multiply-accumulates and working memory of a configuration, in values."""
    c = Counter()
    h, w, d = shape
    if values.get("downsample-input-in-depth"):
        c.op([h * w * d], h * w)
        d = 1
    if values["downsample-input"]:
        h, w = _pool(c, h, w, d, values["input-downsampling-rate"])
    before_weights = len(c.ops)
    image = (h, w, d)
    first = image
    for k in range(1, values["num-conv-blocks"] + 1):
        h, w, d = _block(c, values, k, h, w, d)
        if k == 1:
            first = (h, w, d)
    if values.get("global-pooling") == "average":
        c.op([h * w * d], d)
        h = w = 1
    main = h * w * d
    ends = {"main": main, "left": _volume(first), "right": _volume(image)}
    used = {
        "main": values["num-fc-layers"] == 1,
        "left": values["left-branch"],
        "right": values["right-branch"],
    }
    fractions = {b: values[f"weight-fraction-{b}-branch"] for b in ends if used[b]}
    total = sum(fractions.values())
    widths = {}
    for branch, fraction in fractions.items():
        share = fraction if total <= 1 else fraction / total
        widths[branch] = max(1, int(share * values["total-fc-layer-weights"] / ends[branch] + 1e-9))
    if values.get("merge-type") == "Sum" and used["main"]:
        widths = {branch: min(widths.values()) for branch in widths}
    outputs = []
    for branch, size in ends.items():
        if used[branch]:
            c.op([size], widths[branch], (size + 1) * widths[branch], size * widths[branch])
            outputs.append(widths[branch])
        elif branch == "main":
            outputs.append(size)
    merged = outputs[0]
    if len(outputs) > 1:
        is_sum = values["merge-type"] == "Sum"
        merged = outputs[0] if is_sum else sum(outputs)
        c.op(outputs, merged)
    c.op([merged], classes, (merged + 1) * classes, merged * classes)
    result = {
        "parameters": sum(op["weights"] for op in c.ops),
        "macs": sum(op["macs"] for op in c.ops),
    }
    for name, other in (("inputs+weights", "weights"), ("inputs+outputs", "out")):
        memory = [op["in"] + op[other] for op in c.ops]
        result[name] = max(memory[before_weights:])
        result[f"{name} with image"] = max(memory)
    return result


def _volume(shape: tuple[int, int, int]) -> int:
    h, w, d = shape
    return h * w * d


def _pool(c: Counter, h: int, w: int, d: int, window: int) -> tuple[int, int]:
    wh, ww = min(window, h), min(window, w)
    new = slots(h, wh, wh, "valid"), slots(w, ww, ww, "valid")
    if (wh, ww) != (1, 1):
        c.op([h * w * d], new[0] * new[1] * d)
    return new


def _block(
    c: Counter, values: dict[str, Any], k: int, h: int, w: int, d: int
) -> tuple[int, int, int]:
    start = (h, w, d)
    for layer in range(1, values[f"num-conv-layers-block-{k}"] + 1):
        if layer % 2:
            start = (h, w, d)

        def of(stem: str, layer: int = layer) -> Any:
            return values.get(f"{stem}-block-{k}-layer-{layer}")

        if of("layer-type") == "DownsampledConv2D":
            depth = max(1, round(of("downsample") * d))
            c.op([h * w * d], h * w * depth, (d + 1) * depth, h * w * d * depth)
            d = depth
        kh, kw = min(of("kernel-size"), h), min(of("kernel-size"), w)
        stride, filters = of("stride") or 1, of("num-filters")
        nh, nw = (slots(n, s, stride, of("padding")) for n, s in ((h, kh), (w, kw)))
        if of("layer-type") == "SeparableConv2D":
            c.op([h * w * d], nh * nw * d, kh * kw * d, nh * nw * kh * kw * d)
            c.op([nh * nw * d], nh * nw * filters, (d + 1) * filters, nh * nw * d * filters)
        else:
            weights = kh * kw * d * filters
            c.op([h * w * d], nh * nw * filters, weights + filters, nh * nw * weights)
        h, w, d = nh, nw, filters
        if values["residual-connections"] and layer % 2 == 0 and start[:2] == (h, w):
            if start[2] != d:
                size = _volume(start)
                c.op([size], h * w * d, (start[2] + 1) * d, size * d)
            c.op([h * w * d, h * w * d], h * w * d)
    h, w = _pool(c, h, w, d, values[f"pooling-window-block-{k}"])
    return h, w, d
