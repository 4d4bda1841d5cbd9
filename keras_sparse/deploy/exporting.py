"""export: everything that a TFLite Micro project needs of a model, in one folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..files import write_bytes, write_json
from ..footprint import measure, memory_models
from ..walking import check_graph
from . import card, sources
from .checking import checked_classes, checked_examples
from .converting import calibrated, converted, with_rounded_weights
from .micro import MicroModel, has_wheel
from .native import is_fake_quantized


def export(
    model: keras.Model,
    directory: str | os.PathLike[str],
    x: Any = None,
    *,
    test_data: tuple[Any, Any] | None = None,
    original: keras.Model | None = None,
    class_names: Sequence[str] = (),
    mean: Any = None,
    deviation: Any = None,
) -> dict[str, Any]:
    """Writes a model as C++ sources and a flatbuffer, with a card that says what it is.

    The folder gets `model.tflite`, `model_data.h` and `model_data.cc` (the same bytes, aligned and
    constant), `model_ops.h` (a resolver with exactly the operators used, and the size of the
    arena), `model_card.json` and `model_card.md`.

    Args:
        model: What `quantize` returned, or a plain model with `x`, as in `to_tflite`.
        directory: A folder; it is made if it does not exist.
        x: Examples to measure the ranges of a plain model on.
        test_data: (x, y) on which accuracies and the confusion matrix are measured.
        original: The float model before `quantize`, for its accuracy; a plain `model` is its own.
        class_names: One for each class.
        mean: Of a pixel from 0 to 255, one number or one per channel, if the examples are
            (pixel − mean) / deviation: then the card says how the device makes its input of pixels.
        deviation: As `mean`.

    Returns:
        The content of `model_card.json`.

    Raises:
        ValueError: An argument does not fit; before anything is written.
    """
    check_graph(model, "export")
    if original is not None:
        check_graph(original, "export")
    if not is_fake_quantized(model):
        original = model if original is None else original
        model = calibrated(model, x, "export")
    shape, classes = tuple(model.inputs[0].shape[1:]), int(model.outputs[0].shape[-1])
    names = _checked_names(class_names, classes)
    if (mean is None) != (deviation is None):
        raise ValueError(
            "mean and deviation must be given together. "
            f"Received: mean={mean!r}, deviation={deviation!r}"
        )
    test = None
    if test_data is not None:
        examples = checked_examples(test_data[0], shape, "export")
        test = examples, checked_classes(test_data[1], len(examples)).reshape(-1)
    flatbuffer, bytes_before = converted(model)
    micro = MicroModel(flatbuffer, trusted=True) if has_wheel() else None
    plain = with_rounded_weights(model, ranges=False)
    content: dict[str, Any] = {
        "flatbuffer bytes": len(flatbuffer),
        "flatbuffer bytes before stripping": bytes_before,
        "input": card.input_facts(flatbuffer, mean, deviation),
        "output": card.output_facts(flatbuffer),
        "classes": names,
        "operators": card.operator_counts(flatbuffer),
        "arena": None if micro is None else micro.arena._asdict(),
        "sizes": _sizes(plain),
        "accuracy": _accuracy(original, model, micro, test),
        "confusion matrix": _confusion(micro, test, classes),
    }
    folder = Path(directory)
    write_bytes(folder / "model.tflite", flatbuffer)
    write_bytes(folder / "model_data.h", sources.data_header().encode())
    write_bytes(folder / "model_data.cc", sources.data_source(flatbuffer).encode())
    arena = None if micro is None else micro.arena.total
    operators = list(content["operators"])
    write_bytes(folder / "model_ops.h", sources.operators_header(operators, arena).encode())
    write_json(folder / "model_card.json", content)
    write_bytes(folder / "model_card.md", card.readable(content).encode())
    return content


def _checked_names(names: Sequence[str], classes: int) -> list[str]:
    if not names:
        return [str(number) for number in range(classes)]
    if len(names) != classes:
        raise ValueError(
            f"class_names must have one name for each of {classes} classes. Received: {len(names)}"
        )
    return [str(name) for name in names]


def _sizes(plain: keras.Model) -> dict[str, Any]:
    """Flash and RAM by every model of memory, in bytes."""
    footprint = measure(plain, bias_bits=32)
    memories = {name: measure(plain, working_memory=name) for name in memory_models()}
    return {
        "parameters": footprint.parameters,
        "non-zero": footprint.nonzeros,
        "non-zero bytes": footprint.model_size,
        "sparse bytes": footprint.sparse_bytes,
        "dense bytes": footprint.dense_bytes,
        "MACs": footprint.macs,
        "MACs without zeros": footprint.sparse_macs,
        "working memory": {name: m.working_memory for name, m in memories.items()},
        "working memory with the image": {
            name: m.working_memory_with_image for name, m in memories.items()
        },
    }


def _accuracy(
    original: keras.Model | None,
    model: keras.Model,
    micro: MicroModel | None,
    test: tuple[np.ndarray, np.ndarray] | None,
) -> dict[str, float | None]:
    """On the test data: of the float model, with fake quantization, and on TFLite Micro."""

    def of(tested: keras.Model | None) -> float | None:
        if tested is None or test is None:
            return None
        outputs = tested.predict(test[0], batch_size=256, verbose=0)
        return float(np.mean(outputs.argmax(axis=-1) == test[1]))

    on_device = None if micro is None or test is None else micro.evaluate(*test)
    return {"float": of(original), "fake-quant": of(model), "tflite-micro": on_device}


def _confusion(
    micro: MicroModel | None, test: tuple[np.ndarray, np.ndarray] | None, classes: int
) -> list[list[int]] | None:
    """Counts on TFLite Micro: a row for each true class, a column for each answer."""
    if micro is None or test is None:
        return None
    answers = micro.predict_int8(micro.input.quantized(test[0])).argmax(axis=-1)
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (test[1].astype(int), answers), 1)
    return [[int(count) for count in row] for row in counts]
