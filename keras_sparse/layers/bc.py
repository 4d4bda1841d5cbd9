"""Bayesian Compression, group normal-Jeffreys (Louizos et al., 2017): each group has its own noise.

A group is an output feature map of a convolution or an input neuron of a dense layer. Its scale
z has the posterior N(μ_z, σ_z²) under a log-uniform prior; the weights are w = z·v with
v ~ N(μ, σ²) under a standard normal prior. A group whose α_z = σ_z²/μ_z² ends above e^threshold is
noise and is zero in prediction. The scale of an output map multiplies its bias too, so that
the output of a pruned map is exactly activation(0).
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..fusing import fused
from ..kl import EPSILON, LOG_ALPHA_LIMIT, log_alpha, log_uniform_kl, standard_normal_kl
from .base import SparseLayer, get_initializer
from .estimators import ESTIMATORS
from .noise import normal_like
from .stages import (
    Conv2DStages,
    DenseStages,
    DepthwiseConv2DStages,
    SeparableConv2DStages,
    Stage,
)


@fused
def _times(x: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    return x * z


@fused
def _times_gradients(
    upstream: tf.Tensor, x: tf.Tensor, z: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return upstream * z, tf.reduce_sum(upstream * x, _positions(x, z), keepdims=True)


@fused
def _rectified(x: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    return tf.maximum(x * z, 0.0)


@fused
def _rectified_gradients(
    upstream: tf.Tensor, x: tf.Tensor, z: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return _times_gradients(tf.where(x * z > 0.0, upstream, 0.0), x, z)


def _positions(x: tf.Tensor, z: tf.Tensor) -> list[int]:
    """The axes of `x` over which `z` broadcasts, beside that of the examples."""
    return [axis for axis in range(1, x.shape.rank) if z.shape[axis] == 1]


@tf.custom_gradient
def _scaled(
    x: tf.Tensor, z: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """`x` times `z`, which broadcasts over positions; few passes over memory."""
    return _times(x, z), lambda upstream: _times_gradients(upstream, x, z)


@tf.custom_gradient
def _scaled_relu(
    x: tf.Tensor, z: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """ReLU of `x` times `z`, in as few passes over memory as the product alone."""
    return _rectified(x, z), lambda upstream: _rectified_gradients(upstream, x, z)


def _group_deviation(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
    """σ_z with log α_z limited from above, as in the KL term."""
    # Not the root of a variance: its gradient is not finite when the variance underflows.
    most = tf.sqrt(tf.square(mean) + EPSILON) * math.exp(0.5 * LOG_ALPHA_LIMIT)
    return tf.minimum(tf.exp(0.5 * log_variance), most)


def _limited(group_log_alpha: tf.Tensor) -> tf.Tensor:
    # Not from below, as in SpVD: groups start at log α = −9, where a clip would stop the gradient.
    return tf.minimum(group_log_alpha, LOG_ALPHA_LIMIT)


class BCMixin(SparseLayer):
    """The mathematics of BC for any layer that has `stages`.

    Args:
        *args: The Keras layer's own arguments.
        threshold: Groups with log α_z at or above it are pruned.
        log_variance_initializer: Start of all log-variances (weights, biases, groups): a number
            or a Keras initializer.
        group_initializer: Start of the means of the group scales.
        estimator: "local" (a noise value for every activation), "mirrored" (one for every weight,
            mirrored over the batch: half the cost) or "auto" (local in dense layers, mirrored in
            convolutions); see `keras_sparse.layers.estimators`. The scales of the groups have
            a noise value for every example in any case.
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
        self._posteriors = {}
        for index, stage in enumerate(self.stages()):
            name = stage.kernel_name
            shape = getattr(self, name).shape
            group_shape = tuple(shape[axis] for axis in stage.group_axes)
            self._posteriors[name] = {
                "log_variance": self._add_log_variance(f"{name}_log_variance", shape),
                "group_mean": self.add_weight(
                    name=f"{name}_group_mean",
                    shape=group_shape,
                    initializer=self.group_initializer,
                    autocast=False,
                ),
                "group_log_variance": self._add_log_variance(
                    f"{name}_group_log_variance", group_shape, carries_kl=index == 0
                ),
            }
        self.bias_log_variance = (
            None
            if self.bias is None
            else self._add_log_variance("bias_log_variance", self.bias.shape)
        )

    def _weights(self, stage: Stage) -> tuple[tf.Tensor, tf.Tensor]:
        """(μ, log σ²) of a stage's kernel before its group scale, each in the kernel's shape."""
        posterior = self._posteriors[stage.kernel_name]
        return self._wide(getattr(self, stage.kernel_name)), self._wide(posterior["log_variance"])

    def _groups(self, stage: Stage) -> tuple[tf.Tensor, tf.Tensor]:
        """(μ_z, log σ_z²) of a stage's groups, each in the shape of the kernel's group axes."""
        posterior = self._posteriors[stage.kernel_name]
        return self._wide(posterior["group_mean"]), self._wide(posterior["group_log_variance"])

    def group_means(self) -> list[keras.Variable]:
        """The variables μ_z, one per stage."""
        return [self._posteriors[stage.kernel_name]["group_mean"] for stage in self.stages()]

    def _log_alpha(self, stage: Stage) -> tf.Tensor:
        return log_alpha(*self._groups(stage))

    def kl_divergence(self) -> tf.Tensor:
        terms = []
        for stage in self.stages():
            terms.append(tf.reduce_sum(log_uniform_kl(_limited(self._log_alpha(stage)))))
            terms.append(standard_normal_kl(*self._weights(stage)))
        if self.bias is not None:
            bias = self._wide(self.bias), self._wide(self.bias_log_variance)
            terms.append(standard_normal_kl(*bias))
        return tf.add_n(terms)

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
        stages = self.stages()
        for stage in stages:
            x = self._sample_stage(x, stage, stage is stages[-1])
        return x

    def _sample_stage(self, x: tf.Tensor, stage: Stage, is_last: bool) -> tf.Tensor:
        """A sample of a stage's output, scaled; of the last one after bias and activation."""
        seed, has_bias = self.seed_generator.next(), is_last and self.bias is not None
        mean, log_variance = (tf.reshape(value, [-1]) for value in self._groups(stage))
        sizes = [int(mean.shape[0]), int(self.bias.shape[0]) if has_bias else 0]
        # All noise in one go: in networks this small, operations cost more than values.
        like = tf.zeros(tf.stack([tf.shape(x)[0], sum(sizes)]), mean.dtype)
        of_groups, of_bias = tf.split(normal_like(like, seed), sizes, axis=1)
        scale = tf.cast(mean + _group_deviation(mean, log_variance) * of_groups, x.dtype)
        if stage.groups_are_inputs:
            x = self._times(x, scale)
        bias = None
        if has_bias:  # one draw for the whole batch
            deviation = tf.exp(0.5 * self._wide(self.bias_log_variance))
            bias = self._wide(self.bias) + deviation * tf.reduce_sum(of_bias[:1], axis=0)
        mean, log_variance = self._weights(stage)
        output = ESTIMATORS[self.estimator](
            stage.linear,
            x,
            mean,
            tf.exp(log_variance),
            seed + tf.constant([1, 0], seed.dtype),
            lambda output: self._add_per_channel(output, bias),
        )
        if not stage.groups_are_inputs:
            if is_last and self.activation is keras.activations.relu:
                return _scaled_relu(output, self._over_positions(scale, output))
            output = self._times(output, scale)
        return self._activate(output) if is_last else output

    def _times(self, x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """`x` times `scale`, shape (batch, channels)."""
        return x * scale if x.shape.rank == 2 else _scaled(x, self._over_positions(scale, x))

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
