"""What every sparse layer shares: arguments, threshold, KL term, saving, prediction."""

import inspect
import math
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import initializers

from .estimators import AUTOMATIC, ESTIMATORS
from .parts import VariablePart
from .stages import Stage

_REFUSED = ("lora_rank", "lora_alpha", "quantization_config")

NO_KL_WARNING = (
    "A sparse layer is being trained without a KL weight, so its weights will not become sparse: "
    "pass keras_sparse.KLAnnealing(num_examples=...) to fit(callbacks=[...]), or assign a positive "
    "value to the layers' kl_weight in your own training loop."
)


def check_threshold(threshold: Any) -> float:
    """Returns `threshold` as a float, or raises a ValueError if it is not a number."""
    is_number = isinstance(threshold, numbers.Real) and not isinstance(threshold, bool)
    if not is_number or math.isnan(threshold):
        raise ValueError(
            f"threshold must be a number (a limit on log α). Received: threshold={threshold!r}"
        )
    return float(threshold)


def get_initializer(name: str, identifier: Any) -> keras.initializers.Initializer:
    """A Keras initialiser from one, from its name or configuration, or from a plain number."""
    if isinstance(identifier, numbers.Real) and not isinstance(identifier, bool):
        return initializers.Constant(float(identifier))
    if identifier is None:
        raise ValueError(f"{name} must be a number or a Keras initializer. Received: {name}=None")
    return initializers.get(identifier)


class SparseLayer:
    """Mixin that stands before a Keras layer in the bases of a sparse layer.

    Subclasses (`SpVDMixin`, `BCMixin`) supply the posterior; a thin class per Keras layer joins
    one of them with the layer's `stages` and the layer itself.
    """

    # From the class of `stages.py` that stands between this one and the Keras layer.
    stages: Callable[[], tuple[Stage, ...]]
    channel_axis: int
    # From the Keras layer.
    activation: Any
    bias: Any
    compute_dtype: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, keras.layers.Layer) and "__init__" not in vars(cls):
            cls.__signature__ = _joined_signature(cls)  # type: ignore[attr-defined]

    def __init__(
        self,
        *args: Any,
        threshold: float,
        log_variance_initializer: Any,
        estimator: str,
        seed: int | None,
        **kwargs: Any,
    ) -> None:
        threshold = check_threshold(threshold)
        log_variance_initializer = get_initializer(
            "log_variance_initializer", log_variance_initializer
        )
        names = sorted([AUTOMATIC, *ESTIMATORS])
        if estimator not in names:
            raise ValueError(f"estimator must be one of {names}. Received: estimator={estimator!r}")
        super().__init__(*args, **kwargs)
        for name in _REFUSED:
            if getattr(self, name, None) is not None:
                raise ValueError(
                    f"{type(self).__name__} does not take {name}: sparse layers are neither "
                    f"quantized nor adapted by LoRA. Received: {name}={getattr(self, name)!r}"
                )
        self.log_variance_initializer = log_variance_initializer
        self.estimator = estimator
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self._threshold = self._add_scalar("threshold", threshold)
        self._kl_weight = self._add_scalar("kl_weight", 0.0)
        self._kl_is_scheduled = False
        self.is_recovering = False

    def _add_scalar(self: Any, name: str, value: float) -> keras.Variable:
        return self.add_weight(
            name=name,
            shape=(),
            initializer=initializers.Constant(value),
            trainable=False,
            dtype="float32",
            autocast=False,
        )

    @property
    def threshold(self) -> keras.Variable:
        """Limit on log α: weights or groups at or above it are pruned; assign to change it.

        A non-trainable scalar variable, so that a new value holds at once, also in a `predict` that
        is already compiled.
        """
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._threshold.assign(check_threshold(value))

    @property
    def kl_weight(self) -> keras.Variable:
        """Factor of the KL divergence in the loss: γ/N for N training examples; assign to it."""
        return self._kl_weight

    @kl_weight.setter
    def kl_weight(self, value: float) -> None:
        self._kl_weight.assign(value)

    # The posterior, supplied by the method.

    def log_alpha(self) -> tf.Tensor | tuple[tf.Tensor, ...]:
        """Log α of each weight (SpVD) or group (BC); a pair for separable convolutions."""
        return _unpacked([self._log_alpha(stage) for stage in self.stages()])

    def keep_mask(self) -> tf.Tensor | tuple[tf.Tensor, ...]:
        """True where a weight (SpVD) or group (BC) stays; shapes as in `log_alpha`.

        The strongest always stays: a layer without any weight would cut the network in two.
        """
        return _unpacked([self._keep_mask(stage) for stage in self.stages()])

    @abstractmethod
    def kl_divergence(self) -> tf.Tensor:
        """KL divergence of the layer's posterior from its prior, in nats; a scalar."""

    @abstractmethod
    def pruned_kernels(self) -> list[tf.Tensor]:
        """The kernels that prediction uses: means, zero where pruned; one per stage."""

    @abstractmethod
    def pruned_bias(self) -> tf.Tensor | None:
        """The bias that prediction uses, shape (outputs,), or None."""

    @abstractmethod
    def _log_alpha(self, stage: Stage) -> tf.Tensor:
        """Log α of each weight or group of one stage."""

    @abstractmethod
    def _sample_output(self, x: tf.Tensor) -> tf.Tensor:
        """A sample of the output, after bias and activation."""

    def _keep_mask(self, stage: Stage) -> tf.Tensor:
        log_alpha = self._log_alpha(stage)
        below = log_alpha < tf.cast(self._threshold, log_alpha.dtype)
        flat = tf.reshape(log_alpha, [-1])
        strongest = tf.one_hot(tf.argmin(flat), flat.shape[0], on_value=True, off_value=False)
        return below | tf.reshape(strongest, log_alpha.shape)

    def prunes_everything(self) -> bool:
        """Whether no weight or group is below the threshold, so that only the strongest stays."""
        threshold = float(self._threshold)
        return any(float(tf.reduce_min(self._log_alpha(s))) >= threshold for s in self.stages())

    # What Keras calls.

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Training: a sample of the output. Otherwise: the output of the pruned mean weights.

        While a layer `is_recovering`, training takes the pruned mean weights as well.
        """
        x = tf.cast(inputs, self.compute_dtype)
        if training and not self.is_recovering:
            self._warn_without_kl()
            return self._sample_output(x)
        for stage, kernel in zip(self.stages(), self.pruned_kernels(), strict=True):
            x = stage.linear(x, tf.cast(kernel, x.dtype))
        return self._activate(self._add_per_channel(x, self.pruned_bias()))

    def _activate(self, x: tf.Tensor) -> tf.Tensor:
        return x if self.activation is None else self.activation(x)

    def _add_per_channel(self, x: tf.Tensor, value: tf.Tensor | None) -> tf.Tensor:
        """Adds `value`, shape (channels,), to the channels of `x`."""
        if value is None:
            return x
        value = tf.cast(value, x.dtype)
        # Several times faster on a CPU than an addition that broadcasts.
        return (
            tf.nn.bias_add(x, value)
            if self.channel_axis == -1
            else x + self._over_positions(value, x)
        )

    def _over_positions(self, value: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """`value`, shape (channels,) or (batch, channels), shaped so that it broadcasts to `x`."""
        positions = [1] * (x.shape.rank - 2)
        batch = [-1] if value.shape.rank == 2 else [1]
        channels = [value.shape[-1]]
        shape = positions + channels if self.channel_axis == -1 else channels + positions
        return tf.reshape(value, batch + shape)

    def _wide(self: Any, variable: Any) -> tf.Tensor:
        """A variable's value in the type of the posterior's arithmetic, whatever the policy."""
        return tf.cast(
            tf.convert_to_tensor(variable),
            tf.float64 if self.variable_dtype == "float64" else tf.float32,
        )

    def _add_log_variance(
        self: Any, name: str, shape: tuple[int, ...], *, carries_kl: bool = False
    ) -> keras.Variable:
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=self.log_variance_initializer,
            regularizer=self._kl_term if carries_kl else None,
            autocast=False,
        )

    def _kl_term(self, _: Any) -> tf.Tensor:
        # A regulariser of one variable of the layer: Keras then counts it once a step however
        # often the layer is called, leaves it out when the layer is frozen, and shows it in
        # `model.losses` for custom loops.
        return tf.cast(self._kl_weight, tf.float32) * tf.cast(self.kl_divergence(), tf.float32)

    def _warn_without_kl(self: Any) -> None:
        if self._kl_is_scheduled or not self.trainable:
            return
        with tf.init_scope():
            has_weight = float(self._kl_weight) > 0.0
        if not has_weight:
            warnings.warn(NO_KL_WARNING, stacklevel=2)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()  # type: ignore[misc]
        config.update(
            threshold=float(self._threshold),
            log_variance_initializer=initializers.serialize(self.log_variance_initializer),
            estimator=self.estimator,
            seed=self.seed,
        )
        return config

    # Dense and Conv2D save only their kernel and bias, and no Keras layer its noise: a loaded model
    # would train on with other noise than the saved one.

    def save_own_variables(self: Any, store: Any) -> None:
        for name, variable in self._saved_variables().items():
            store[name] = variable.value() if isinstance(variable, VariablePart) else variable

    def load_own_variables(self: Any, store: Any) -> None:
        variables = self._saved_variables()
        if set(variables) != set(store.keys()):
            raise ValueError(
                f"Layer {self.name!r} needs the variables {sorted(variables)}. "
                f"Received: a file with {sorted(store.keys())}"
            )
        for name, variable in variables.items():
            variable.assign(store[name])

    def named_variables(self: Any) -> dict[str, Any]:
        """All variables by name; where several share one (BC), as parts that read and assign."""
        return {variable.name: variable for variable in self.weights}

    def _saved_variables(self: Any) -> dict[str, Any]:
        return {**self.named_variables(), "noise": self.seed_generator.state}

    # As every layer without a quantized form: `Model.quantize` passes over it with a warning.
    quantize = keras.layers.Layer.quantize

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(f"{type(self).__name__} has no LoRA: strip() the model first.")


def _unpacked(values: list[tf.Tensor]) -> tf.Tensor | tuple[tf.Tensor, ...]:
    return values[0] if len(values) == 1 else tuple(values)


def own_parameters(cls: type) -> list[inspect.Parameter]:
    """The keyword-only parameters that a sparse layer has beside those of the Keras layer."""
    mixin = next(c for c in cls.__mro__ if SparseLayer in c.__bases__)
    parameters = inspect.signature(vars(mixin)["__init__"]).parameters.values()
    return [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


def keras_class(cls: type) -> Any:
    """The Keras layer that a sparse layer replaces."""
    return next(c for c in cls.__mro__ if c.__module__.startswith("keras."))


def _joined_signature(cls: type) -> inspect.Signature:
    """The Keras layer's own parameters followed by the sparse layer's keyword-only ones.

    Made from the installed Keras, so that the two cannot drift apart.
    """
    theirs = list(inspect.signature(keras_class(cls)).parameters.values())
    positional = [p for p in theirs if p.kind is not inspect.Parameter.VAR_KEYWORD]
    rest = [p for p in theirs if p.kind is inspect.Parameter.VAR_KEYWORD]
    return inspect.Signature([*positional, *own_parameters(cls), *rest])
