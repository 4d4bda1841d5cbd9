"""How sparse a model is, layer by layer: facts first, a printed table second."""

from typing import Any, NamedTuple

import keras
import numpy as np

from .layers import SparseLayer


class LayerSparsity(NamedTuple):
    """Kernel weights of one layer; biases are not counted.

    Attributes:
        name: The layer's name.
        weights: Number of kernel weights.
        nonzeros: How many of them are not zero in prediction.
    """

    name: str
    weights: int
    nonzeros: int

    @property
    def sparsity(self) -> float:
        """Share of zeros, 0 to 1."""
        return 1.0 - self.nonzeros / self.weights if self.weights else 0.0

    @property
    def compression(self) -> float:
        """Weights over non-zeros."""
        return self.weights / max(self.nonzeros, 1)


class ModelSparsity(NamedTuple):
    """Sparsity of each layer with a kernel, and of all together; `print` shows a table."""

    layers: tuple[LayerSparsity, ...]

    @property
    def total(self) -> LayerSparsity:
        """All layers together."""
        weights = sum(layer.weights for layer in self.layers)
        return LayerSparsity("total", weights, sum(layer.nonzeros for layer in self.layers))

    def __str__(self) -> str:
        rows = [(row.name, row.weights, row.nonzeros, row) for row in (*self.layers, self.total)]
        width = max(len(name) for name, *_ in rows)
        lines = [
            f"{'layer':<{width}}  {'weights':>9}  {'non-zero':>9}  {'sparsity':>8}  {'ratio':>7}"
        ]
        for name, weights, nonzeros, row in rows:
            lines.append(
                f"{name:<{width}}  {weights:>9,}  {nonzeros:>9,}  "
                f"{row.sparsity:>8.1%}  {row.compression:>6.1f}x"
            )
        return "\n".join(lines)


def sparse_layers(model: keras.Model) -> list[Any]:
    """The SpVD and BC layers of a model, also those inside nested models, each once."""
    return [layer for layer in _leaf_layers(model) if isinstance(layer, SparseLayer)]


def sparsity(model: keras.Model) -> ModelSparsity:
    """Counts the kernel weights that prediction uses in each layer of any Keras model.

    A sparse layer is counted as it predicts (pruned), a plain layer by its zeros. For BC this
    counts whole groups per layer; `strip` removes more, because a removed feature map also leaves
    the next layer's kernel.
    """
    rows = []
    for layer in _leaf_layers(model):
        if not layer.built:
            continue
        if isinstance(layer, SparseLayer):
            kernels = [np.asarray(kernel) for kernel in layer.pruned_kernels()]
        else:
            names = [name for name in KERNEL_NAMES if hasattr(layer, name)]
            kernels = [keras.ops.convert_to_numpy(getattr(layer, name)) for name in names]
        if kernels:
            weights = sum(kernel.size for kernel in kernels)
            nonzeros = sum(int(np.count_nonzero(kernel)) for kernel in kernels)
            rows.append(LayerSparsity(layer.name, weights, nonzeros))
    return ModelSparsity(tuple(rows))


KERNEL_NAMES = ("kernel", "depthwise_kernel", "pointwise_kernel")


def _leaf_layers(model: keras.Model) -> list[keras.layers.Layer]:
    layers = model._flatten_layers(include_self=False, recursive=True)
    unique = {id(layer): layer for layer in layers if not isinstance(layer, keras.Model)}
    return list(unique.values())
