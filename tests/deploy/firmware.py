"""Networks as flatbuffers, images for them, and TFLite Micro's answers."""

import tempfile
from pathlib import Path

import keras
import numpy as np
from tflite_micro import runtime

from keras_sparse.deploy import MicroModel, run_on_board, to_c, to_tflite
from keras_sparse.deploy.c import twin
from keras_sparse.deploy.c.integer_graph import read_graph
from keras_sparse.deploy.flatbuffer import Quantization

from .networks import sampled


def flatbuffer_of(model: keras.Model, rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    """Its flatbuffer, and what its input may look like, shape (100, …)."""
    x = rng.normal(size=(100, *model.input_shape[1:])).astype(np.float32)
    return to_tflite(model, x), x


def images_for(micro: MicroModel, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """50 images of int8, half of them of random bytes."""
    return _half_random(micro.input.quantized(x[:50]), rng)


def _half_random(q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    q[: len(q) // 2] = rng.integers(-128, 128, q[: len(q) // 2].shape)
    return q


def _tflite_micro(flatbuffer: bytes, q: np.ndarray) -> np.ndarray:
    """Outputs in an arena that is large enough: finding the smallest takes longer than all else."""
    interpreter = runtime.Interpreter.from_bytes(flatbuffer, arena_size=1 << 22)
    outputs = []
    for example in q:
        interpreter.set_input(example[None], 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0).reshape(-1).copy())
    return np.stack(outputs)


def mismatches(seed: int) -> dict[str, int]:
    """Bytes in which the twin and the host's C differ from TFLite Micro, for a random network."""
    rng = np.random.default_rng(seed)
    flatbuffer, x = flatbuffer_of(sampled(seed), rng)
    graph = read_graph(flatbuffer)
    quantization = Quantization(graph.input_scale, graph.input_zero_point)
    q = _half_random(quantization.quantized(x[:50]), rng)
    expected = _tflite_micro(flatbuffer, q)
    with tempfile.TemporaryDirectory() as folder:
        to_c(flatbuffer, Path(folder) / "firmware")
        ours = run_on_board(Path(folder) / "firmware", "host", q).outputs
    reference = twin.run(graph, q)
    return {
        "twin": int(np.count_nonzero(reference != expected)),
        "C": int(np.count_nonzero(ours != expected)),
    }
