"""The few operations of which networks for TFLite Micro are made, and how they are simplified."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

LINEAR = ("conv", "depthwise", "dense")
SAME_SCALE = ("max_pool", "average_pool", "reshape", "pad", "maximum")
"""Operations whose output is quantized like their input."""

FUSED = ("relu", "relu6")
ACTIVATIONS = ("linear", *FUSED, "softmax", "sigmoid", "tanh", "leaky_relu")


@dataclass
class Node:
    """One operation.

    Attributes:
        kind: "conv", "depthwise", "dense", "affine", "activation", "add", "concatenate",
            "max_pool", "average_pool", "mean", "maximum", "reshape" or "pad".
        name: Of the layer that it comes from; unique.
        inputs: Tensors that it reads, by number.
        output: Tensor that it writes.
        shape: Shape of the output, without the batch.
        options: Arguments of the operation, such as strides.
        kernel: Weights as in Keras; of "affine" the factor of each channel.
        bias: Shape (outputs,); every operation with a kernel has one.
        activation: Of a linear operation or a sum, as in Keras.
    """

    kind: str
    name: str
    inputs: list[int]
    output: int
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    kernel: np.ndarray | None = None
    bias: np.ndarray | None = None
    activation: str = "linear"


@dataclass
class Network:
    """Nodes in order of execution, from one image to one output."""

    nodes: list[Node]
    input: int
    input_shape: tuple[int, ...]
    output: int

    def readers(self) -> Counter[int]:
        """How many nodes read each tensor; the output of the network counts as read."""
        counts = Counter(tensor for node in self.nodes for tensor in node.inputs)
        counts[self.output] += 1
        return counts


def needed(network: Network) -> list[Node]:
    """The nodes that the output depends on."""
    needed, kept = {network.output}, []
    for node in reversed(network.nodes):
        if node.output in needed:
            needed.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def fold_affine(network: Network) -> None:
    """Multiplies normalizations into the linear operation before them."""
    readers = network.readers()
    made_by: dict[int, Node] = {}
    kept = []
    for node in network.nodes:
        before = made_by.get(node.inputs[0])
        if (
            node.kind == "affine"
            and before is not None
            and before.kind in (*LINEAR, "affine")
            and readers[before.output] == 1
        ):
            assert node.kernel is not None and before.kernel is not None  # noqa: PT018, S101
            factor = node.kernel
            if before.kind == "depthwise":
                factor = factor.reshape(before.kernel.shape[-2:])
            before.kernel = before.kernel * factor
            before.bias = np.asarray(before.bias * node.kernel + node.bias, np.float32)
            before.output = node.output
            before.shape = node.shape
        else:
            before = node
            kept.append(node)
        made_by[before.output] = before
    network.nodes = kept


def fold_affine_forward(network: Network) -> None:
    """Multiplies what is left of them, such as the scaling of pixels, into the operation after.

    Where that pads, only without a shift: what is padded with is not shifted.
    """
    readers = network.readers()
    made_by = {node.output: node for node in network.nodes}
    folded = []
    for node in network.nodes:
        before = made_by.get(node.inputs[0])
        if (
            before is None
            or before.kind != "affine"
            or node.kind not in LINEAR
            or readers[before.output] > 1
        ):
            continue
        assert before.kernel is not None and before.bias is not None  # noqa: PT018, S101
        assert node.kernel is not None and node.bias is not None  # noqa: PT018, S101
        if node.options.get("padding", "valid") != "valid" and np.any(before.bias != 0):
            continue
        shifted = node.kernel * before.bias[:, None]
        axes = (0, 1) if node.kind == "depthwise" else tuple(range(shifted.ndim - 1))
        node.bias = np.asarray(node.bias + shifted.sum(axis=axes).ravel(), np.float32)
        node.kernel = np.asarray(node.kernel * before.kernel[:, None], np.float32)
        node.inputs = list(before.inputs)
        folded.append(before.output)
    network.nodes = [node for node in network.nodes if node.output not in folded]


def fuse_activations(network: Network) -> None:
    """Joins each ReLU to the operation before it, where nobody else reads what that computes."""
    readers = network.readers()
    made_by: dict[int, Node] = {}
    kept = []
    for node in network.nodes:
        before = made_by.get(node.inputs[0])
        if (
            node.kind == "activation"
            and node.activation in FUSED
            and before is not None
            and before.kind in (*LINEAR, "affine", "add")
            and before.activation == "linear"
            and readers[before.output] == 1
        ):
            before.activation, before.output = node.activation, node.output
        else:
            before = node
            kept.append(node)
        made_by[before.output] = before
    network.nodes = kept


def as_depthwise(node: Node, new_tensor: Callable[[], int]) -> list[Node]:
    """A node; an affine map that could not be folded as a 1×1 depthwise convolution."""
    if node.kind != "affine":
        return [node]
    assert node.kernel is not None  # noqa: S101
    channels = len(node.kernel)
    options = {"strides": (1, 1), "padding": "valid", "dilation_rate": (1, 1)}
    convolution = replace(
        node, kind="depthwise", options=options, kernel=node.kernel.reshape(1, 1, channels, 1)
    )
    if len(node.shape) == 3:
        return [convolution]
    image = (1, int(np.prod(node.shape[:-1])), channels)
    tensors = new_tensor(), new_tensor()
    return [
        Node("reshape", f"{node.name}_image", node.inputs, tensors[0], image),
        replace(convolution, inputs=[tensors[0]], output=tensors[1], shape=image),
        Node("reshape", f"{node.name}_shape", [tensors[1]], node.output, node.shape),
    ]
