"""Sparse Variational Dropout (Molchanov et al., 2017): each weight has its own noise.

The posterior of a weight is N(θ, σ²), its prior log-uniform. Training learns both numbers; a weight
whose α = σ²/θ² ends above e^threshold is noise and is zero in prediction.
"""

from typing import Any

import keras
import tensorflow as tf

from ..fusing import fused
from ..kl import EPSILON, clip_log_alpha, log_alpha, log_uniform_kl
from .base import SparseLayer
from .estimators import estimator_of, mirrored
from .stages import (
    Conv2DStages,
    DenseStages,
    DepthwiseConv2DStages,
    SeparableConv2DStages,
    Stage,
)


@fused
def _clipped_deviation(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
    """σ with log α clipped: the noise of a dead weight vanishes together with its mean."""
    root_alpha = tf.exp(0.5 * clip_log_alpha(log_alpha(mean, log_variance)))
    return root_alpha * tf.sqrt(tf.square(mean) + EPSILON)


@fused
def _total_kl(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(log_uniform_kl(clip_log_alpha(log_alpha(mean, log_variance))))


class SpVDMixin(SparseLayer):
    """The mathematics of SpVD for any layer that has `stages`.

    Args:
        *args: The Keras layer's own arguments.
        threshold: Weights with log α at or above it are pruned. 3 is the classic value.
        log_variance_initializer: Start of log σ²: a number or a Keras initializer.
        estimator: "local" (a noise value for every activation), "mirrored" (one for every weight,
            mirrored over the batch: half the cost), "shared" (not mirrored) or "auto" (local in
            dense layers, mirrored in convolutions); see `keras_sparse.layers.estimators`.
        seed: Seed of the noise; None draws one from Keras's global seed.
        **kwargs: The Keras layer's own arguments.
    """

    def __init__(
        self,
        *args: Any,
        threshold: float = 3.0,
        log_variance_initializer: Any = -10.0,
        estimator: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *args,
            threshold=threshold,
            log_variance_initializer=log_variance_initializer,
            estimator=estimator,
            seed=seed,
            **kwargs,
        )

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)  # type: ignore[misc]
        self._log_variances = {
            stage.kernel_name: self._add_log_variance(
                f"{stage.kernel_name}_log_variance",
                getattr(self, stage.kernel_name).shape,
                carries_kl=index == 0,
            )
            for index, stage in enumerate(self.stages())
        }

    def _posterior(self, stage: Stage) -> tuple[tf.Tensor, tf.Tensor]:
        """(θ, log σ²) of a stage's kernel, each in the kernel's shape."""
        log_variance = self._log_variances[stage.kernel_name]
        return self._wide(getattr(self, stage.kernel_name)), self._wide(log_variance)

    def _log_alpha(self, stage: Stage) -> tf.Tensor:
        return log_alpha(*self._posterior(stage))

    def kl_divergence(self) -> tf.Tensor:
        return tf.add_n([_total_kl(*self._posterior(stage)) for stage in self.stages()])

    def pruned_kernels(self) -> list[tf.Tensor]:
        return [
            tf.where(self._keep_mask(stage), self._posterior(stage)[0], 0.0)
            for stage in self.stages()
        ]

    def pruned_bias(self) -> tf.Tensor | None:
        return None if self.bias is None else self._wide(self.bias)

    def _sample_output(self, x: tf.Tensor) -> tf.Tensor:
        bias, stages = self.pruned_bias(), self.stages()

        def finish(output: tf.Tensor) -> tf.Tensor:
            return self._activate(self._add_per_channel(output, bias))

        for stage in stages:
            mean, log_variance = self._posterior(stage)
            x = estimator_of(self.estimator, stage.linear, mirrored)(
                stage.linear,
                x,
                mean,
                _clipped_deviation(mean, log_variance),
                self.seed_generator.next(),
                finish if stage is stages[-1] else tf.identity,
            )
        return x


@keras.saving.register_keras_serializable(package="keras_sparse")
class SpVDDense(SpVDMixin, DenseStages, keras.layers.Dense):
    """`keras.layers.Dense` with Sparse Variational Dropout on its kernel.

    Takes all arguments of `keras.layers.Dense` and those of `SpVDMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class SpVDConv2D(SpVDMixin, Conv2DStages, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with Sparse Variational Dropout on its kernel.

    Takes all arguments of `keras.layers.Conv2D` and those of `SpVDMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class SpVDDepthwiseConv2D(SpVDMixin, DepthwiseConv2DStages, keras.layers.DepthwiseConv2D):
    """`keras.layers.DepthwiseConv2D` with Sparse Variational Dropout on its kernel.

    Takes all arguments of `keras.layers.DepthwiseConv2D` and those of `SpVDMixin`.
    """


@keras.saving.register_keras_serializable(package="keras_sparse")
class SpVDSeparableConv2D(SpVDMixin, SeparableConv2DStages, keras.layers.SeparableConv2D):
    """`keras.layers.SeparableConv2D` with Sparse Variational Dropout on both kernels.

    Takes all arguments of `keras.layers.SeparableConv2D` and those of `SpVDMixin`.
    """
