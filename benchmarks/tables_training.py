"""Long training of a chosen network: moved images, zeros held, more of them, int8."""

from typing import NamedTuple

import keras
import numpy as np
from keras_sparse.tuner.deployment import input_range

from benchmarks.augmentation import Augmentation, augmented
from benchmarks.lenet import shifted
from benchmarks.tables_losses import loss_of
from benchmarks.tables_settings import Final
from keras_sparse import Trimming, datasets, measure
from keras_sparse.deploy import MicroModel, quantize, to_tflite
from keras_sparse.deploy.converting import with_rounded_weights
from keras_sparse.footprint import memory_models
from keras_sparse.trimming import smallest_sizes

BATCH = 128


def moved(x: np.ndarray, final: Final, rng: np.random.Generator) -> np.ndarray:
    """Images of an epoch: each one shifted, perhaps mirrored, turned, inverted on its own."""
    if final.inverted:  # around the mean of the data set, which is 0
        x = np.where(rng.random((len(x), 1, 1, 1)) < 0.5, -x, x)
    if final.affine:
        return augmented(x, Augmentation(final.shift, affine=True, flip=final.flip), rng)
    if final.flip:
        x = np.where(rng.random((len(x), 1, 1, 1)) < 0.5, x[:, :, ::-1], x)
    return shifted(x, final.shift, rng)


def train(
    model: keras.Model,
    data: datasets.Dataset,
    targets: np.ndarray,
    final: Final,
    *,
    epochs: int,
    rate: float,
    seed: int,
    limit: int | None = None,
    memory: int | None = None,
    begin: float = 0.0,
) -> keras.Model:
    """Trains a plain model in place; weights that are zero stay zero.

    Args:
        model: Such as `strip` gives.
        data: Its training images are used, its validation images for nothing here.
        targets: Probabilities of the classes for each training image.
        final: Augmentation and loss.
        epochs: To train, the learning rate falling to 0.
        rate: Adam's at the start.
        seed: Of the order and the movement of the images.
        limit: Over the first half it is trimmed to so many parameters, biases included; None for no
            more zeros.
        memory: To so many bytes of inputs and parameters of a layer; None for no such limit.
        begin: Share of the epochs before the first weight goes, less than a half.
    """
    steps = epochs * -(-len(data.x_train) // BATCH)
    least = smallest_sizes(model)  # a candidate that cannot be as small as a row loses its heat
    trimming = Trimming(
        None if limit is None else max(limit, least.parameters),
        working_memory=None if memory is None else max(memory, least.working_memory),
        begin=begin,
    )
    trimming.set_params({"epochs": epochs})
    trimming.set_model(model)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps)),
        loss_of(final, classes=False),
    )
    keras.utils.set_random_seed(seed)
    for epoch in range(epochs):
        trimming.on_epoch_begin(epoch)
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(data.x_train))
        x = moved(data.x_train, final, rng)
        model.fit(x[order], targets[order], batch_size=BATCH, shuffle=False, verbose=0)
    trimming.on_train_end()
    return model


class Measured(NamedTuple):
    """A network in int8.

    Attributes:
        flatbuffer: The model file.
        validation: Accuracy on the validation images on TFLite Micro.
        float_validation: The same before quantization.
        sizes: Bytes and counts by every memory model.
    """

    flatbuffer: bytes
    validation: float
    float_validation: float
    sizes: dict[str, float]


def in_int8(model: keras.Model, data: datasets.Dataset, final: Final, seed: int) -> Measured:
    """Quantizes a plain model with training, and measures it on TFLite Micro."""
    # Class probabilities were the targets until now; the int8 training takes class numbers.
    model.compile(loss=loss_of(final, classes=True))
    quantized = quantize(
        model,
        data.x_train,
        data.y_train,
        epochs=final.quantized_epochs,
        validation_data=(data.x_val, data.y_val),
        learning_rate=3e-4,
        input_range=input_range(data),
        seed=seed,
    )
    flatbuffer = to_tflite(quantized)
    micro = MicroModel(flatbuffer, trusted=True)
    before = model.predict(data.x_val, batch_size=500, verbose=0).argmax(axis=-1)
    return Measured(
        flatbuffer,
        float(micro.evaluate(data.x_val, data.y_val)),
        float(np.mean(before == data.y_val)),
        sizes_of(with_rounded_weights(quantized, ranges=False), micro.arena_bytes),
    )


def sizes_of(plain: keras.Model, arena: int) -> dict[str, float]:
    """Sizes by all models of memory, of a model whose weights are those of int8."""
    footprint = measure(plain)
    sizes = {
        "parameters": footprint.parameters,
        "nonzeros": footprint.nonzeros,
        "bytes_with_indices": footprint.sparse_bytes,
        "macs": footprint.sparse_macs,
        "tflm_arena": arena,
    }
    for name in memory_models():
        measured = measure(plain, working_memory=name)
        sizes[f"working_memory/{name}"] = measured.working_memory
        sizes[f"working_memory_with_image/{name}"] = measured.working_memory_with_image
    return {name: float(value) for name, value in sizes.items()}
