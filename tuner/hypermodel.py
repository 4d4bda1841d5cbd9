"""SparseCNN: the paper's family of convolutional networks as a KerasTuner hypermodel."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import keras_tuner
import numpy as np
import tensorflow as tf

from keras_sparse import KLAnnealing
from keras_sparse.footprint import Graph

from .graph_builder import graph_of, repaired
from .hyperparameters import hyperparameters_of
from .keras_builder import build_network
from .parameters import Configuration, Space, Value
from .space import PRUNING, SPACES, cnn_space

_STEPS = 16
"""Training steps of one call into TensorFlow: the result is the same, and the calls take time, too.
Callbacks hear of batches once in so many."""


class SparseCNN(keras_tuner.HyperModel):
    """Convolutional networks for images, with what the search may vary.

    Works with every tuner of KerasTuner; values have the paper's names.

    Args:
        input_shape: (height, width, channels) of an image.
        num_classes: Number of classes, at least 2.
        pruning: "unstructured" (SpVD: single weights), "structured" (BC: feature maps and neurons)
            or None.
        space: "extended" or "paper"; see `keras_sparse.tuner.space`.
        ranges: Another (low, high) or list of choices for a parameter, or for all with the same
            beginning: {"num-filters": (1, 16), "batch-norm": [True]}.
        learning_rate: Of Adam.
        estimator: How sparse layers draw their noise.
        seed: Of initial weights and noise.
        name: Of the hypermodel.
        tunable: As in KerasTuner.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        pruning: str | None = "unstructured",
        *,
        space: str = "extended",
        ranges: Mapping[str, Sequence[Value]] | None = None,
        learning_rate: float = 3e-3,
        estimator: str = "auto",
        seed: int = 0,
        name: str | None = None,
        tunable: bool = True,
    ) -> None:
        super().__init__(name=name, tunable=tunable)
        self.input_shape: tuple[int, int, int] = _checked_shape(input_shape)
        if not isinstance(num_classes, numbers.Integral) or num_classes < 2:
            raise ValueError(f"num_classes must be at least 2. Received: {num_classes!r}")
        if pruning not in PRUNING:
            raise ValueError(f"pruning must be one of {list(PRUNING)}. Received: {pruning!r}")
        if space not in SPACES:
            raise ValueError(f"space must be one of {list(SPACES)}. Received: {space!r}")
        self.num_classes: int = int(num_classes)
        self.pruning: str | None = pruning
        self.space_name: str = space
        self.learning_rate: float = learning_rate
        self.estimator: str = estimator
        self.seed: int = seed
        self.space: Space = cnn_space(space, self.input_shape[-1], pruning, ranges or {})
        self._hyperparameters: list[Any] = hyperparameters_of(self.space)

    # Configurations.

    def sample(self, rng: np.random.Generator) -> Configuration:
        """A random configuration that can be built."""
        return self.repaired(self.space.sample(rng))

    def repaired(self, configuration: Configuration) -> Configuration:
        """The configuration whose values say what is built."""
        return repaired(configuration, self.space, self.input_shape)[0]

    def graph(self, configuration: Configuration) -> Graph:
        """The network before pruning, for `measure`; no Keras model is built."""
        return graph_of(configuration, self.input_shape, self.num_classes)

    def least_bytes(self, *, with_image: bool = False) -> tuple[int, int]:
        """(working memory, model size) below which no network of the space can be, at 8 bits.

        Everything can be pruned but the image that the first layer reads, one weight of each of
        two layers, and the biases of the classes.

        Args:
            with_image: Whether the raw image counts, not only what is left after down-sampling.
        """
        height, width, channels = self.input_shape
        rate = 1
        if not with_image and True in self.space["downsample-input"].values:
            rate = int(self.space["input-downsampling-rate"].high)
        reduces_depth = not with_image and "downsample-input-in-depth" in self.space.parameters
        depth = 1 if reduces_depth else channels
        return max(height // rate, 1) * max(width // rate, 1) * depth, self.num_classes + 2

    def network(self, configuration: Configuration, *, seed: int | None = None) -> keras.Model:
        """The Keras model, not compiled."""
        self.space.check(configuration)
        return build_network(
            configuration,
            self.input_shape,
            self.num_classes,
            self.pruning,
            seed=self.seed if seed is None else seed,
            estimator=self.estimator,
        )[0]

    # What KerasTuner calls.

    def declare_hyperparameters(self, hp: keras_tuner.HyperParameters) -> None:
        """Tells KerasTuner all parameters at once, each with its conditions."""
        hp.merge(self._hyperparameters, overwrite=False)

    def declare(self, hp: keras_tuner.HyperParameters) -> Configuration:
        """Declares all parameters in `hp`; returns the values of the active ones."""
        self.declare_hyperparameters(hp)
        configuration: Configuration = {}
        for parameter in self.space:
            if parameter.is_active(configuration):
                value = hp.get(parameter.name)
                configuration[parameter.name] = (
                    value if parameter.values else parameter.nearest(float(value))
                )
        return configuration

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """The compiled model of the values in `hp`."""
        model = self.network(self.repaired(self.declare(hp)))
        self.compile(model)
        return model

    def compile(self, model: keras.Model) -> None:
        """Adam, cross-entropy of the logits, accuracy."""
        model.compile(
            keras.optimizers.Adam(self.learning_rate),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=_STEPS,
        )
        # Variables that the first training step would make would have it traced a second time.
        model.optimizer.build(model.trainable_variables)
        model.compute_metrics(None, np.zeros(1, int), np.zeros((1, self.num_classes), "float32"))
        model.reset_metrics()

    def fit(self, hp: Any, model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        """`model.fit` with the schedule of the KL term that the values in `hp` say.

        For KerasTuner's own tuners. With `pretraining` the KL term comes at once after the epochs
        without it, instead of rising.
        """
        if self.pruning is not None:
            configuration = self.declare(hp)
            x = args[0] if args else kwargs["x"]
            share = 1.0 - float(kwargs.get("validation_split") or 0.0)
            annealing = KLAnnealing(
                max(1, int(share * count_examples(x))),
                int(configuration["zero-regularization-epochs"]),
                int(configuration.get("annealing-epochs", 0)),
                weight=float(configuration["alpha"]),
            )
            kwargs["callbacks"] = [annealing, *(kwargs.get("callbacks") or ())]
        return model.fit(*args, **kwargs)


def count_examples(x: Any) -> int:
    """Number of examples in arrays or in a finite, batched `tf.data.Dataset`."""
    if isinstance(x, tf.data.Dataset):
        if x.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                "x must be a data set that ends, so that its examples can be counted: repeat() is "
                "not needed for several epochs. Received: an infinite tf.data.Dataset"
            )

        def add(total: tf.Tensor, *batch: Any) -> tf.Tensor:
            return total + tf.shape(keras.tree.flatten(batch)[0], out_type=tf.int64)[0]

        return int(x.reduce(tf.constant(0, tf.int64), add))
    arrays = keras.tree.flatten(x)
    if not arrays or not hasattr(arrays[0], "shape"):
        raise ValueError(
            "x must be arrays or a tf.data.Dataset, so that its examples can be counted. "
            f"Received: {type(x).__name__}"
        )
    return int(arrays[0].shape[0])


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = tuple(shape)
    if len(sizes) != 3 or not all(isinstance(n, numbers.Integral) and n > 0 for n in sizes):
        raise ValueError(
            f"input_shape must be (height, width, channels), all positive. Received: {shape!r}"
        )
    height, width, channels = map(int, sizes)
    return height, width, channels
