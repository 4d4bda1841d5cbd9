"""Bayesian Compression, group normal-Jeffreys (Louizos et al., 2017): each group has its own noise.

A group is an output feature map of a convolution or an input neuron of a dense layer. Its scale
z has the posterior N(μ_z, σ_z²) under a log-uniform prior; the weights are w = z·v with
v ~ N(μ, σ²) under a standard normal prior. A group whose α_z = σ_z²/μ_z² ends above e^threshold is
noise and is zero in prediction. The scale of an output map multiplies its bias too, so that
the output of a pruned map is exactly activation(0).
"""

import math
from typing import Any

import keras
import tensorflow as tf

from ..kl import EPSILON, LOG_ALPHA_LIMIT, group_kl, log_alpha, standard_normal_kl
from .base import SparseLayer, get_initializer
from .estimators import estimator_of, shared
from .noise import normal
from .parts import VariablePart, parts_of
from .stages import (
    Conv2DStages,
    DenseStages,
    DepthwiseConv2DStages,
    SeparableConv2DStages,
    Stage,
)


def _stream(seed: tf.Tensor, number: int) -> tf.Tensor:
    """The seed of another noise of the same layer, far from those of layers with the next seeds."""
    return seed + tf.constant([number << 24, 0], seed.dtype)


def _most_deviation(mean: tf.Tensor) -> tf.Tensor:
    """Largest σ_z, where log α_z is limited from above, as in the KL term."""
    return tf.sqrt(tf.square(mean) + EPSILON) * math.exp(0.5 * LOG_ALPHA_LIMIT)


class BCMixin(SparseLayer):
    """The mathematics of BC for any layer that has `stages`.

    Args:
        *args: The Keras layer's own arguments.
        threshold: Groups with log α_z at or above it are pruned.
        log_variance_initializer: Start of all log-variances (weights, biases, groups): a number
            or a Keras initializer.
        group_initializer: Start of the means of the group scales.
        estimator: "local" (a noise value for every activation), "mirrored" (one for every weight,
            mirrored over the batch: half the cost), "shared" (not mirrored) or "auto" (local in
            dense layers, shared in convolutions); see `keras_sparse.layers.estimators`. The scales
            of the groups have a noise value for every example in any case.
        seed: Seed of the noise; None draws one from Keras's global seed.
        **kwargs: The Keras layer's own arguments.
    """

    def __init__(
        self,
        *args: Any,
        threshold: float = -3.0,
        log_variance_initializer: Any = -9.0,
        group_initializer: Any = 1.0,
        estimator: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        group_initializer = get_initializer("group_initializer", group_initializer)
        super().__init__(
            *args,
            threshold=threshold,
            log_variance_initializer=log_variance_initializer,
            estimator=estimator,
            seed=seed,
            **kwargs,
        )
        self.group_initializer = group_initializer

    def build(self: Any, input_shape: Any) -> None:
        super().build(input_shape)  # type: ignore[misc]
        shapes: dict[str, tuple[int, ...]] = {}
        kernels = {stage.kernel_name: getattr(self, stage.kernel_name) for stage in self.stages()}
        for name, kernel in kernels.items():
            shapes[f"{name}_log_variance"] = tuple(kernel.shape)
        if self.bias is not None:
            shapes["bias_log_variance"] = tuple(self.bias.shape)
        self._weight_elements = sum(math.prod(shape) for shape in shapes.values())
        groups = {
            stage.kernel_name: tuple(kernels[stage.kernel_name].shape[a] for a in stage.group_axes)
            for stage in self.stages()
        }
        self._group_elements = sum(math.prod(shape) for shape in groups.values())
        shapes |= {f"{name}_group_log_variance": shape for name, shape in groups.items()}
        shapes |= {f"{name}_group_mean": shape for name, shape in groups.items()}
        self.posterior = self.add_weight(
            name="posterior",
            shape=(self._weight_elements + 2 * self._group_elements,),
            initializer=lambda _, dtype: self._initial_posterior(shapes, dtype),
            regularizer=self._kl_term,
            autocast=False,
        )
        self._parts = parts_of(self.posterior, shapes)

    def _initial_posterior(self, shapes: dict[str, tuple[int, ...]], dtype: Any) -> tf.Tensor:
        values = [
            (self.log_variance_initializer if "log_variance" in name else self.group_initializer)(
                shape, dtype
            )
            for name, shape in shapes.items()
        ]
        return tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)

    def named_variables(self) -> dict[str, Any]:
        variables = super().named_variables()
        del variables["posterior"]
        return {**variables, **self._parts}

    def _part(self, name: str) -> tf.Tensor:
        return self._wide(self._parts[name].value())

    def _weights(self, stage: Stage) -> tuple[tf.Tensor, tf.Tensor]:
        """(μ, log σ²) of a stage's kernel before its group scale, each in the kernel's shape."""
        name = stage.kernel_name
        return self._wide(getattr(self, name)), self._part(f"{name}_log_variance")

    def _groups(self, stage: Stage) -> tuple[tf.Tensor, tf.Tensor]:
        """(μ_z, log σ_z²) of a stage's groups, each in the shape of the kernel's group axes."""
        name = stage.kernel_name
        return self._part(f"{name}_group_mean"), self._part(f"{name}_group_log_variance")

    def group_means(self) -> list[VariablePart]:
        """μ_z, one per stage; they read and assign like variables."""
        return [self._parts[f"{stage.kernel_name}_group_mean"] for stage in self.stages()]

    def _log_alpha(self, stage: Stage) -> tf.Tensor:
        return log_alpha(*self._groups(stage))

    def kl_divergence(self) -> tf.Tensor:
        sizes = [self._weight_elements, self._group_elements, self._group_elements]
        log_variances, of_groups, group_means = tf.split(self._wide(self.posterior), sizes)
        means = [self._wide(getattr(self, stage.kernel_name)) for stage in self.stages()]
        means += [] if self.bias is None else [self._wide(self.bias)]
        return standard_normal_kl(log_variances, *means) + group_kl(group_means, of_groups)

    def _pruned_scale(self, stage: Stage) -> tf.Tensor:
        """μ_z, zero where the group is pruned; shape of the kernel's group axes."""
        return tf.where(self._keep_mask(stage), self._groups(stage)[0], 0.0)

    def pruned_kernels(self) -> list[tf.Tensor]:
        kernels = []
        for stage in self.stages():
            mean, _ = self._weights(stage)
            scale = tf.reshape(self._pruned_scale(stage), stage.group_shape(mean.shape))
            kernels.append(mean * scale)
        return kernels

    def pruned_bias(self) -> tf.Tensor | None:
        if self.bias is None:
            return None
        bias, last = self._wide(self.bias), self.stages()[-1]
        return bias if last.groups_are_inputs else bias * tf.reshape(self._pruned_scale(last), [-1])

    def _sample_output(self, x: tf.Tensor) -> tf.Tensor:
        stages, noise = self.stages(), self._noise()
        for stage in stages:
            x = self._sample_stage(x, stage, noise, stage is stages[-1])
        return x

    def _noise(self) -> dict[str, tf.Tensor]:
        """All standard deviations, and the means of the groups, by the names of the parts."""
        sizes = [self._weight_elements + self._group_elements, self._group_elements]
        log_variances, means = tf.split(self._wide(self.posterior), sizes)
        # Not the root of a variance: its gradient is not finite when the variance underflows.
        deviations = tf.exp(0.5 * log_variances)
        sizes = [part.size for part in self._parts.values()]
        count = len(sizes) - len(self.stages())
        values = [*tf.split(deviations, sizes[:count]), *tf.split(means, sizes[count:])]
        return dict(zip(self._parts, values, strict=True))

    def _sample_stage(
        self, x: tf.Tensor, stage: Stage, noise: dict[str, tf.Tensor], is_last: bool
    ) -> tf.Tensor:
        """A sample of a stage's output, scaled; of the last one after bias and activation."""
        seed, name = self.seed_generator.next(), stage.kernel_name
        mean = noise[f"{name}_group_mean"]
        deviation = tf.minimum(noise[f"{name}_group_log_variance"], _most_deviation(mean))
        of_groups = normal([tf.shape(x)[0], mean.shape[0]], seed, mean.dtype)
        scale = tf.cast(mean + deviation * of_groups, x.dtype)
        if stage.groups_are_inputs:
            x = x * self._over_positions(scale, x)
        bias = None
        if is_last and self.bias is not None:  # one draw for the whole batch
            deviation = noise["bias_log_variance"]
            of_bias = normal(deviation.shape, _stream(seed, 2), mean.dtype)
            bias = self._wide(self.bias) + deviation * of_bias
        kernel = self._wide(getattr(self, name))
        output = estimator_of(self.estimator, stage.linear, shared)(
            stage.linear,
            x,
            kernel,
            tf.reshape(noise[f"{name}_log_variance"], kernel.shape),
            _stream(seed, 1),
            lambda output: self._add_per_channel(output, bias),
        )
        if not stage.groups_are_inputs:
            output = output * self._over_positions(scale, output)
        return self._activate(output) if is_last else output

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["group_initializer"] = keras.initializers.serialize(self.group_initializer)
        return config


@keras.saving.register_keras_serializable(package="keras_sparse")
class BCDense(BCMixin, DenseStages, keras.layers.Dense):
    """`keras.layers.Dense` with Bayesian Compression; its groups are the input neurons.

    Takes all arguments of `keras.layers.Dense` and those of `BCMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class BCConv2D(BCMixin, Conv2DStages, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with Bayesian Compression; its groups are the output feature maps.

    Takes all arguments of `keras.layers.Conv2D` and those of `BCMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class BCDepthwiseConv2D(BCMixin, DepthwiseConv2DStages, keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` with Bayesian Compression; its groups are the output maps.

    Takes all arguments of `keras.layers.DepthwiseConv2D` and those of `BCMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class BCSeparableConv2D(BCMixin, SeparableConv2DStages, keras.layers.SeparableConv2D):
    """`keras.layers.SeparableConv2D` with Bayesian Compression.

    Its groups are the maps of the depthwise part and the output maps of the 1×1 part. Takes all
    arguments of `keras.layers.SeparableConv2D` and those of `BCMixin`.
    """
