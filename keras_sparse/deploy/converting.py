"""to_tflite: a Keras model as a full int8 flatbuffer."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from ..walking import check_graph, copy_of, copy_weights, rebuild
from .checking import checked_examples
from .compressing import compressed
from .device_rounding import DeviceRounding, settle
from .fake_quant import ActivationRange, NoRange, QuantizedWeights
from .flatbuffer import TFLM_OPERATORS, TYPE_NAMES, operators, parse, shrunk
from .native import fake_quantized, is_fake_quantized, observe, range_names
from .node_reading import read_nodes

_BATCH = 128


def to_tflite(model: keras.Model, x: Any = None, *, compress: bool = False) -> bytes:
    """Converts a model to a flatbuffer of int8 operators with int8 input and output, for batch 1.

    Args:
        model: What `quantize` returned; or any built Sequential or functional model of supported
            layers, which is then quantized as it is, after training.
        x: For a model that was not quantized: examples, shape (examples, …), on which the ranges
            of the activations are measured.
        compress: Whether kernels are stored without their zeros and expanded by TFLite Micro's
            DECODE operator, where that makes the file smaller. It costs RAM: the arena holds the
            expanded kernel.

    Returns:
        The content of a .tflite file, without names and metadata.

    Raises:
        ValueError: A layer is not supported, or `x` does not fit; the message says which.
    """
    flatbuffer = converted(model, x)[0]
    return compressed(flatbuffer) if compress else flatbuffer


def converted(model: keras.Model, x: Any = None) -> tuple[bytes, int]:
    """The flatbuffer of `to_tflite`, and the bytes it had with names and metadata."""
    check_graph(model, "to_tflite")
    if not is_fake_quantized(model):
        model = calibrated(model, x, "to_tflite")
    plain = with_rounded_weights(model)
    image = tf.TensorSpec((1, *model.inputs[0].shape[1:]), tf.float32)
    function = tf.function(lambda example: plain(example, training=False), autograph=False)
    concrete = convert_variables_to_constants_v2(function.get_concrete_function(image))
    with _quiet():
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.inference_input_type = tf.int8
        converter.inference_output_type = tf.int8
        flatbuffer = converter.convert()
    _check_integer(flatbuffer)
    return shrunk(flatbuffer), len(flatbuffer)


def calibrated(model: keras.Model, x: Any, function: str) -> keras.Model:
    """A plain model with fake quantization, its ranges measured on `x`."""
    network = read_nodes(model, function)
    x = checked_examples(x, network.input_shape, function)
    result = fake_quantized(network, (float(x.min()), float(x.max())))
    observe(result, x, _BATCH)
    settle(result, network, range_names(network))
    return result


def with_rounded_weights(model: keras.Model, *, ranges: bool = True) -> keras.Model:
    """The same model with plain Keras layers whose weights are as int8 arithmetic has them.

    Args:
        model: What `quantize` returned.
        ranges: Whether activations are still rounded; without, all layers are plain.
    """

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, QuantizedWeights):
            return layer.plain()
        is_rounding = isinstance(layer, ActivationRange) and not ranges
        if is_rounding or isinstance(layer, DeviceRounding):
            return NoRange(name=layer.name)
        copy = copy_of(layer)
        if isinstance(copy, ActivationRange):
            copy.is_converting = True
        return copy

    result, pairs = rebuild(model, replace)
    for old, new in pairs:
        if isinstance(old, QuantizedWeights):
            new.set_weights(old.plain_weights())
        elif not isinstance(new, NoRange):
            copy_weights(old, new)
    return result


def _check_integer(flatbuffer: bytes) -> None:
    """Raises if anything was left in floating point, or TFLite Micro could not run it."""
    model = parse(flatbuffer)
    types = {TYPE_NAMES[tensor.type] for tensor in model.subgraphs[0].tensors}
    wrong = (types - {"INT8", "INT32"}) | (set(operators(model)) - set(TFLM_OPERATORS))
    if wrong:
        raise RuntimeError(
            "The converter made something that TFLite Micro does not run in int8: please report "
            f"this model. Received: {sorted(wrong)}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the converter's advice, which does not concern this way of using it."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
