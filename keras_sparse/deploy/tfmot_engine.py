"""The engine "tfmot": TensorFlow Model Optimization trains, on an equal tf_keras model.

Only this file knows tfmot and tf_keras. tfmot takes no Keras 3 model, so the network is built
again in tf_keras, trained there with tfmot's default 8-bit scheme, zeros put back after every
step, and the weights come back into the Keras 3 model, whose ranges are then measured on the data.
"""

import os
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from .native import observe
from .nodes import LINEAR, Network, Node

if TYPE_CHECKING:
    from .quantizing import Training

_SWITCH = "TF_USE_LEGACY_KERAS"


def train(network: Network, model: keras.Model, training: "Training") -> None:
    """Trains the weights of `network` with tfmot and gives them to `model`, ranges measured.

    Args:
        network: The operations, with the weights to start from.
        model: The model with fake quantization of the same network.
        training: Data and how to train.
    """
    legacy, tfmot = _modules()
    tensors = {network.input: legacy.Input(network.input_shape, name="input")}
    for node in network.nodes:
        tensors[node.output] = _operation(legacy.layers, node, [tensors[i] for i in node.inputs])
    plain = legacy.Model(tensors[network.input], tensors[network.output])
    weighted = [node for node in network.nodes if node.kind in LINEAR]
    for node in weighted:
        plain.get_layer(node.name).set_weights([node.kernel, node.bias])
    quantized = tfmot.quantization.keras.quantize_model(plain)
    variables = {n.name: _variables(quantized.get_layer(f"quant_{n.name}")) for n in weighted}
    model.compile(loss=training.loss, metrics=["accuracy"])
    unmeasured = model.get_weights()
    before, weights = _measured(model, training)
    _fit(legacy, quantized, variables, model, training)
    model.set_weights(unmeasured)
    for name, (kernel, bias) in variables.items():
        target = model.get_layer(name)
        target.kernel.assign(kernel.numpy() * np.asarray(target.kernel_mask))
        target.bias.assign(bias.numpy() * np.asarray(target.bias_mask))
    after, _ = _measured(model, training)
    if before > after:
        model.set_weights(weights)


def _measured(model: keras.Model, training: "Training") -> tuple[float, list[np.ndarray]]:
    """Validation accuracy (0 without such data) and weights after the ranges were measured."""
    observe(model, training.x, training.batch_size)
    if training.validation is None:
        return 0.0, []
    result = model.evaluate(*training.validation, 512, verbose=0, return_dict=True)
    return result["accuracy"], model.get_weights()


def _modules() -> tuple[Any, Any]:
    """tf_keras and tfmot, leaving no trace: `tf.keras` and the environment are as before."""
    _ = tf.keras.Model  # found now, it stays Keras 3; tfmot would make it tf_keras for good
    before = os.environ.get(_SWITCH)
    try:
        import tensorflow_model_optimization as tfmot
        import tf_keras
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "engine='tfmot' needs tensorflow-model-optimization and tf_keras: "
            f"pip install keras-sparse[tfmot]. Received: {error}"
        ) from error
    finally:
        os.environ.pop(_SWITCH, None)
        if before is not None:
            os.environ[_SWITCH] = before
    return tf_keras, tfmot


def _fit(
    legacy: Any,
    quantized: Any,
    variables: dict[str, tuple[Any, Any]],
    model: keras.Model,
    training: "Training",
) -> None:
    masks = []
    for name, (kernel, bias) in variables.items():
        target = model.get_layer(name)
        masks += [
            (kernel, np.asarray(target.kernel_mask)),
            (bias, np.asarray(target.bias_mask)),
        ]

    class Zeros(legacy.callbacks.Callback):
        """Puts zeros back after every step; keeps the best epoch."""

        best, weights = -1.0, None

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for variable, mask in masks:
                variable.assign(variable * mask)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if training.validation is not None:
                accuracy = quantized.evaluate(*training.validation, 512, verbose=0)[1]
                if accuracy >= self.best:
                    self.best, self.weights = accuracy, quantized.get_weights()

        def on_train_end(self, logs: Any = None) -> None:
            if self.weights is not None:
                quantized.set_weights(self.weights)

    loss = keras.losses.get(training.loss)
    steps = training.epochs * -(-len(training.x) // training.batch_size)
    schedule = legacy.optimizers.schedules.CosineDecay(training.learning_rate, steps)
    quantized.compile(
        legacy.optimizers.Adam(schedule),
        lambda y, outputs: tf.reduce_mean(loss(y, outputs)),
        metrics=["accuracy"],
    )
    quantized.fit(
        training.x,
        training.y,
        training.batch_size,
        epochs=training.epochs,
        callbacks=[Zeros()],
        verbose=training.verbose,
    )


def _variables(wrapper: Any) -> tuple[Any, Any]:
    """Kernel and bias of a layer that tfmot has wrapped, which hides them behind rounded ones."""
    weights = wrapper.trainable_weights
    kernel = next(weight for weight in weights if "kernel" in weight.name.rpartition("/")[2])
    bias = next(weight for weight in weights if "bias" in weight.name.rpartition("/")[2])
    return kernel, bias


def _operation(layers: Any, node: Node, inputs: list[Any]) -> Any:
    """The tf_keras tensor of a node's output."""
    name, kernel, options, x = node.name, node.kernel, dict(node.options), inputs[0]
    if node.kind in LINEAR:
        assert kernel is not None  # noqa: S101
        if node.kind == "dense":
            return layers.Dense(kernel.shape[-1], node.activation, name=name)(x)
        options["activation"] = node.activation
        if node.kind == "conv":
            layer = layers.Conv2D(kernel.shape[-1], kernel.shape[:2], name=name, **options)
        else:
            layer = layers.DepthwiseConv2D(
                kernel.shape[:2], depth_multiplier=kernel.shape[-1], name=name, **options
            )
        return layer(x)
    if node.kind == "add":
        total = layers.Add(name=name)(inputs)
        is_linear = node.activation == "linear"
        return (
            total if is_linear else layers.Activation(node.activation, name=f"{name}_fused")(total)
        )
    if node.kind == "activation":
        if node.activation == "leaky_relu":
            return layers.LeakyReLU(node.options["negative_slope"], name=name)(x)
        return layers.Activation(node.activation, name=name)(x)
    if node.kind == "reshape":
        return layers.Reshape(node.shape, name=name)(x)
    kinds = {
        "concatenate": layers.Concatenate,
        "max_pool": layers.MaxPooling2D,
        "average_pool": layers.AveragePooling2D,
        "mean": layers.GlobalAveragePooling2D,
        "maximum": layers.GlobalMaxPooling2D,
        "pad": layers.ZeroPadding2D,
    }
    return kinds[node.kind](name=name, **options)(inputs if node.kind == "concatenate" else x)
