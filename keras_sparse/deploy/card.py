"""The card of an exported model: facts first, readable text second."""

from collections import Counter
from typing import Any

import numpy as np

from .flatbuffer import io_tensor, operators, parse


def input_facts(flatbuffer: bytes, mean: Any, deviation: Any) -> dict[str, Any]:
    """Shape, scale and zero point of the input, and how the device prepares it.

    Args:
        flatbuffer: Of the model.
        mean: Of a pixel from 0 to 255, one number or one per channel, or None.
        deviation: As `mean`.
    """
    shape, quantization = io_tensor(parse(flatbuffer), "input")
    formula = "q = round(x / scale) + zero_point, limited to -128 to 127"
    table = None
    if mean is not None:
        pixels = np.arange(256)[:, None]
        real = (pixels - np.ravel(mean)) / np.ravel(deviation)
        q = quantization.quantized(real)
        if np.all(q == pixels - 128):
            formula = "q = pixel - 128"
        else:
            formula = "q = table[channel][pixel]"
            table = [[int(value) for value in channel] for channel in q.T]
    return {
        "shape": list(shape),
        "scale": quantization.scale,
        "zero point": quantization.zero_point,
        "prepared by": formula,
        "table": table,
    }


def output_facts(flatbuffer: bytes) -> dict[str, Any]:
    """Shape, scale and zero point of the output."""
    shape, quantization = io_tensor(parse(flatbuffer), "output")
    return {
        "shape": list(shape),
        "scale": quantization.scale,
        "zero point": quantization.zero_point,
    }


def operator_counts(flatbuffer: bytes) -> dict[str, int]:
    """How often each operator is used."""
    return dict(sorted(Counter(operators(parse(flatbuffer))).items()))


def readable(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    rows: list[tuple[str, str]] = [
        ("flatbuffer", _bytes(card["flatbuffer bytes"])),
        ("flatbuffer before stripping", _bytes(card["flatbuffer bytes before stripping"])),
    ]
    if card["arena"] is None:
        rows.append(("arena", "not measured: TFLite Micro was not installed"))
    else:
        arena = card["arena"]
        text = f"{_bytes(arena['total'])} (head {arena['head']:,}, tail {arena['tail']:,})"
        rows.append(("arena on a 64-bit machine", text))
    sizes = card["sizes"]
    for name in ("parameters", "non-zero", "MACs", "MACs without zeros"):
        rows.append((name, f"{sizes[name]:,}"))
    for name in ("non-zero bytes", "sparse bytes", "dense bytes"):
        rows.append((f"weights: {name}", _bytes(sizes[name])))
    for name, size in sizes["working memory"].items():
        rows.append((f"working memory ({name})", _bytes(size)))
    for name, value in card["accuracy"].items():
        rows.append((f"accuracy, {name}", "not measured" if value is None else f"{value:.2%}"))
    rows.append(("operators", ", ".join(f"{n}× {name}" for name, n in card["operators"].items())))
    lines = ["# Model card", "", "| fact | value |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", "## Input and output", ""]
    for name in ("input", "output"):
        facts = card[name]
        shape = "×".join(map(str, facts["shape"]))
        quantization = f"scale {facts['scale']:.9g}, zero point {facts['zero point']}"
        lines.append(f"- {name}: int8, {shape}, {quantization}")
    lines.append(f"- prepare each value: {card['input']['prepared by']}")
    lines.append("- the answer is the class with the largest output")
    lines += ["", f"Classes: {', '.join(card['classes'])}"]
    if card["confusion matrix"] is not None:
        lines += ["", "## Confusion matrix on TFLite Micro", "", "A row for each true class.", ""]
        lines.append("| | " + " | ".join(card["classes"]) + " |")
        lines.append("| --- " * (len(card["classes"]) + 1) + "|")
        for name, row in zip(card["classes"], card["confusion matrix"], strict=True):
            lines.append(f"| {name} | " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def _bytes(count: int) -> str:
    return f"{count:,} B"
