"""Broken flatbuffers give an error, never a crash of this process."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_sparse.deploy import MicroModel, to_tflite
from keras_sparse.deploy.flatbuffer import FlatbufferError, packed, parse

from .networks import every_layer

EXAMPLES = np.random.default_rng(0).random((20, 12, 12, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def flatbuffer() -> bytes:
    return to_tflite(every_layer(), EXAMPLES)


def mutated(flatbuffer: bytes, seed: int) -> bytes:
    """A few bytes changed, most often where the structure is; or a piece lost or doubled."""
    rng = np.random.default_rng(seed)
    content = bytearray(flatbuffer)
    kind = rng.integers(10)
    if kind == 0:
        return bytes(content[: rng.integers(len(content))])
    if kind == 1:
        start = int(rng.integers(8, len(content)))
        return bytes(content[:start] + content[start + int(rng.integers(1, 9)) :])
    for _ in range(rng.integers(1, 6)):
        place = int(rng.integers(8, len(content)))
        content[place] = int(rng.choice([0, 1, 127, 128, 255, rng.integers(256)]))
    return bytes(content)


def is_run(flatbuffer: bytes) -> bool:
    """Whether it runs; it may be refused with the one kind of error, and nothing else."""
    rng = np.random.default_rng(1)
    try:
        micro = MicroModel(flatbuffer)
        q = rng.integers(-128, 128, (3, *micro.input_shape)).astype(np.int8)
        return micro.predict_int8(q).shape == (3, *micro.output_shape)
    except ValueError:
        return False


def check_mutations(flatbuffer: bytes, count: int) -> None:
    changed = [mutated(flatbuffer, seed) for seed in range(count)]
    with ThreadPoolExecutor(2) as pool:  # each waits for a process
        ran = sum(pool.map(is_run, changed))
    assert 0 < ran < count


def test_mutated_files_are_refused_or_run_and_never_crash_this_process(flatbuffer):
    check_mutations(flatbuffer, 40)


@pytest.mark.slow
def test_a_thousand_mutated_files_are_refused_or_run(flatbuffer):
    check_mutations(flatbuffer, 1000)


def test_the_structure_of_mutated_files_is_checked_without_a_crash(flatbuffer):
    refused = 0
    for seed in range(2000):
        try:
            parse(mutated(flatbuffer, seed))
        except FlatbufferError:
            refused += 1
    assert 400 < refused < 2000


@pytest.mark.parametrize("keep", [0, 5, 100, 1000])
def test_truncated_files_are_named_so(flatbuffer, keep):
    with pytest.raises(FlatbufferError, match=f"Received: {keep} bytes"):
        MicroModel(flatbuffer[:keep])


def test_what_is_no_flatbuffer_is_refused():
    with pytest.raises(FlatbufferError, match="TFL3"):
        MicroModel(b"this is the text of a file, not a network")
    with pytest.raises(TypeError, match="bytes"):
        MicroModel("model.tflite")


def test_a_crash_of_tflite_micro_is_reported(flatbuffer):
    model = parse(flatbuffer)
    model.subgraphs[0].operators[0].inputs = [0, -1, -1]  # a convolution without a kernel
    with pytest.raises(FlatbufferError, match="TFLite Micro (crashed|refused)"):
        MicroModel(packed(model))


def test_a_float_flatbuffer_is_refused():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    with pytest.raises(ValueError, match="int8 input.*FLOAT32"):
        MicroModel(converter.convert())
