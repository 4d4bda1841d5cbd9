"""Random small graphs of sparse and plain layers, for property tests."""

from collections import Counter
from typing import Any

import keras
import numpy as np

from keras_sparse import layers as sparse
from keras_sparse.layers.bc import BCMixin

L = keras.layers


class RandomModel:
    """Builds one random functional model; `features` counts what it contains."""

    def __init__(self, seed: int, method: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.prefix = {"spvd": "SpVD", "bc": "BC"}[method]
        self.features: Counter[str] = Counter()

    def build(self) -> keras.Model:
        size, depth = int(self.rng.integers(6, 11)), int(self.rng.integers(1, 4))
        inputs = keras.Input((size, size, depth))
        x = self._conv(inputs)
        for _ in range(self.rng.integers(1, 4)):
            step = self._pick("conv", "conv", "pool", "residual", "branch", "depthwise", "resize")
            x = getattr(self, f"_{step}")(x)
        x = self._pick(self._flatten, self._flatten, self._global_pool)(x)
        if self.rng.random() < 0.6:
            x = self._activate(self._layer("Dense", int(self.rng.integers(1, 8)))(x))
        if self.rng.random() < 0.3:
            x = self._norm(x)
        outputs = self._layer("Dense", int(self.rng.integers(2, 5)))(x)
        model = keras.Model(inputs, outputs)
        self._randomise(model)
        return model

    def _pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def _layer(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        if self.rng.random() < 0.15:
            self.features["plain"] += 1
            return getattr(L, kind)(*args, **kwargs)
        self.features[kind] += 1
        return getattr(sparse, self.prefix + kind)(*args, **kwargs)

    def _kernel(self, x: Any) -> int:
        return int(self.rng.integers(1, 1 + min(3, x.shape[1], x.shape[2])))

    def _conv(self, x: Any, filters: int | None = None, padding: str | None = None) -> Any:
        filters = filters or int(self.rng.integers(1, 7))
        padding = padding or self._pick("valid", "same")
        kind = self._pick("Conv2D", "Conv2D", "SeparableConv2D")
        strides = int(self._pick(1, 1, 2)) if padding == "valid" else 1
        self.features[padding] += 1
        self.features["strides"] += strides > 1
        layer = self._layer(
            kind,
            filters,
            self._kernel(x),
            strides=strides,
            padding=padding,
            activation=self._pick(None, "relu", "tanh", "sigmoid"),
            use_bias=bool(self.rng.random() < 0.7),
        )
        return self._maybe_norm(layer(x))

    def _depthwise(self, x: Any) -> Any:
        multiplier = int(self.rng.integers(1, 3))
        self.features[f"multiplier{multiplier}"] += 1
        layer = self._layer(
            "DepthwiseConv2D",
            self._kernel(x),
            depth_multiplier=multiplier,
            padding=self._pick("valid", "same"),
            activation=self._pick(None, "relu"),
        )
        return self._maybe_norm(layer(x))

    def _maybe_norm(self, x: Any) -> Any:
        x = self._norm(x) if self.rng.random() < 0.4 else x
        return self._activate(x) if self.rng.random() < 0.4 else x

    def _norm(self, x: Any) -> Any:
        self.features["norm"] += 1
        scale, center = self.rng.random(2) < 0.8
        return L.BatchNormalization(scale=bool(scale), center=bool(center))(x)

    def _activate(self, x: Any) -> Any:
        return self._pick(L.ReLU, L.LeakyReLU, lambda: L.Activation("sigmoid"))()(x)

    def _pool(self, x: Any) -> Any:
        if x.shape[1] < 2:
            return x
        self.features["pool"] += 1
        kind = self._pick(L.MaxPooling2D, L.AveragePooling2D)
        return kind(2, padding=self._pick("valid", "same"))(x)

    def _resize(self, x: Any) -> Any:
        self.features["resize"] += 1
        choices = [L.ZeroPadding2D(1), L.SpatialDropout2D(0.1)]
        if x.shape[1] <= 6:
            choices += [L.UpSampling2D(2), L.UpSampling2D(2, interpolation="bilinear")]
        if x.shape[1] >= 3:
            choices += [L.Cropping2D(1)]
        return self._pick(*choices)(x)

    def _residual(self, x: Any) -> Any:
        self.features["residual"] += 1
        y = self._conv(x, padding="same")
        y = self._conv(y, filters=x.shape[-1], padding="same")
        kind = self._pick(L.Add, L.Add, L.Average, L.Maximum, L.Minimum, L.Multiply, L.Subtract)
        self.features["merge"] += kind is not L.Add
        return kind()([x, y])

    def _branch(self, x: Any) -> Any:
        self.features["branch"] += 1
        parts = [self._conv(x, padding="same"), self._conv(x, padding="same")]
        return L.Concatenate()(parts)

    def _flatten(self, x: Any) -> Any:
        self.features["flatten"] += 1
        return L.Flatten()(x)

    def _global_pool(self, x: Any) -> Any:
        self.features["global"] += 1
        return self._pick(L.GlobalAveragePooling2D, L.GlobalMaxPooling2D)()(x)

    def _randomise(self, model: keras.Model) -> None:
        """Weights as after training: biases, statistics, and about half of everything pruned."""
        for layer in model.layers:
            for variable in layer.trainable_variables:
                variable.assign(self.rng.normal(0.3, 1.0, variable.shape))
            if isinstance(layer, L.BatchNormalization):
                layer.moving_mean.assign(self.rng.normal(0, 1, layer.moving_mean.shape))
                layer.moving_variance.assign(self.rng.uniform(0.5, 2, layer.moving_variance.shape))
            if isinstance(layer, sparse.SparseLayer):
                quantile = self._pick(0.0, 0.3, 0.6, 0.9)
                values = layer.log_alpha()
                values = values if isinstance(values, tuple) else (values,)
                flat = np.concatenate([np.ravel(value) for value in values])
                layer.threshold = float(np.quantile(flat, 1.0 - quantile)) + (quantile == 0.0)
                if isinstance(layer, BCMixin) and layer.prunes_everything():
                    self.features["all pruned"] += 1
