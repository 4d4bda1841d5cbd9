"""The one assembler: a configuration to a Keras model, or to the graph that is measured.

`assemble` walks a configuration once and tells a `Builder` what to make; `graph_builder` and
`keras_builder` have the two that exist, so that the network that trains and the graph
that is measured cannot disagree. A node has the same name in all networks that have it; weights are
inherited by these names.

What a configuration asks for and an image cannot give is repaired while walking, by these rules:

1. An input is down-sampled at most to one pixel; kernels and pooling windows are at most as large
   as their feature map, in each direction.
2. A residual connection joins the input of the first and the output of the second of each two
   convolutions of a block, if the map keeps its height and width between them; where the
   number of channels changes, a 1×1 convolution adapts it. Where no connection is possible,
   residual-connections becomes False.
3. A branch's FC layer has the share of total-fc-layer-weights that its fraction says, divided by
   the sum of the fractions if that is more than 1, and at least one neuron.
4. A sum needs branches of one width: all get the smallest. Where the main branch has no FC
   layer, branches are concatenated.
5. A down-sampled convolution keeps at least one channel.
"""

import math
from typing import Any, NamedTuple, Protocol

from keras_sparse.footprint.graph import Shape

from .parameters import Configuration
from .space import INPUT_POOLING, block_key, layer_key

Kernel = tuple[int, int]


class Node(NamedTuple):
    """A tensor on its way through the network: what the builder knows it by, and its shape."""

    tensor: Any
    shape: Shape


class Convolution(NamedTuple):
    """What a convolution is.

    Attributes:
        name: Of the layer.
        filters: Number of output maps.
        kernel: (height, width).
        threshold: Name of the parameter with its pruning threshold.
        stride: In both directions.
        padding: "valid" or "same".
        separable: Whether it is a depthwise and a 1×1 convolution.
        norm: Whether batch normalization follows.
        relu: Whether a ReLU follows.
    """

    name: str
    filters: int
    kernel: Kernel
    threshold: str
    stride: int = 1
    padding: str = "valid"
    separable: bool = False
    norm: bool = False
    relu: bool = True


class Builder(Protocol):
    """What `assemble` needs to make a network. Names are those of the layers."""

    def input(self, shape: Shape) -> Node:
        """The image, shape (height, width, channels)."""
        ...

    def depth_maximum(self, x: Node, name: str) -> Node:
        """The largest channel of every pixel."""
        ...

    def pool(self, x: Node, name: str, kind: str, window: Kernel) -> Node:
        """Pooling of kind "max" or "average"; its stride is its window."""
        ...

    def global_average(self, x: Node, name: str) -> Node:
        """The mean of every feature map, shape (channels,)."""
        ...

    def convolution(self, x: Node, spec: Convolution) -> Node:
        """A convolution."""
        ...

    def dense(
        self, x: Node, name: str, units: int, *, norm: bool, relu: bool, threshold: str
    ) -> Node:
        """A fully connected layer; arguments as in `Convolution`."""
        ...

    def flatten(self, x: Node, name: str) -> Node:
        """The same values in one dimension."""
        ...

    def add(self, nodes: list[Node], name: str, *, relu: bool) -> Node:
        """The sum of tensors of one shape."""
        ...

    def concatenate(self, nodes: list[Node], name: str) -> Node:
        """Vectors one after the other."""
        ...


class Source(NamedTuple):
    """Where a part of an FC layer's input comes from.

    Attributes:
        name: "main", "left", "right" for the end of a branch, the name of its FC layer if it has
            one, "sum" for a sum of branches.
        shape: Shape before flatten.
    """

    name: str
    shape: Shape


class Assembly(NamedTuple):
    """What `assemble` gives besides the network.

    Attributes:
        output: The logits.
        sources: For each FC layer by name the parts of its input, in order.
        repairs: Values that the network does not have as the configuration says; in their place.
    """

    output: Node
    sources: dict[str, tuple[Source, ...]]
    repairs: Configuration


def assemble(
    configuration: Configuration, input_shape: Shape, num_classes: int, builder: Builder
) -> Assembly:
    """Makes the network of a configuration.

    Args:
        configuration: Values of all active parameters.
        input_shape: (height, width, channels) of an image.
        num_classes: Number of logits.
        builder: What makes the nodes.
    """
    return _Assembler(configuration, builder).assemble(input_shape, num_classes)


class _Assembler:
    def __init__(self, configuration: Configuration, builder: Builder) -> None:
        self.values: dict[str, Any] = dict(configuration)
        self.builder = builder
        self.repairs: Configuration = {}
        self.sources: dict[str, tuple[Source, ...]] = {}
        self.norm = self.values["batch-norm"]
        self.has_residual = False

    def assemble(self, input_shape: Shape, num_classes: int) -> Assembly:
        image = self._downsampled(self.builder.input(input_shape))
        x = image
        first_block = image
        for block in range(1, self.values["num-conv-blocks"] + 1):
            x = self._block(x, block)
            first_block = x if block == 1 else first_block
        if self.values["residual-connections"] and not self.has_residual:
            self.repairs["residual-connections"] = False
        if self.values.get("global-pooling") == "average":
            x = self.builder.global_average(x, "global-pooling")
        merged, sources = self._branches({"main": x, "left": first_block, "right": image})
        self.sources["output"] = sources
        output = self.builder.dense(
            merged,
            "output",
            num_classes,
            norm=False,
            relu=False,
            threshold="pruning-thresholds-output",
        )
        return Assembly(output, self.sources, self.repairs)

    def _downsampled(self, x: Node) -> Node:
        if self.values.get("downsample-input-in-depth"):
            x = self.builder.depth_maximum(x, "input-depth-pool")
        if self.values["downsample-input"]:
            rate = self.values["input-downsampling-rate"]
            largest = max(x.shape[:2])
            if rate > largest:
                self.repairs["input-downsampling-rate"] = largest
            kind = self.values.get(INPUT_POOLING, "max")
            x = self._pool(x, "input-pool", kind, rate)
        return x

    def _pool(self, x: Node, name: str, kind: str, window: int) -> Node:
        height, width = (min(window, size) for size in x.shape[:2])
        return x if height == width == 1 else self.builder.pool(x, name, kind, (height, width))

    def _block(self, x: Node, block: int) -> Node:
        layers = self.values[block_key("num-conv-layers", block)]
        residual = self.values["residual-connections"]
        pair_input = x
        for layer in range(1, layers + 1):
            is_second = layer % 2 == 0
            keeps_size = residual and is_second and self._keeps_size(pair_input, x, block, layer)
            if not is_second:
                pair_input = x
            x = self._layer(x, block, layer, relu=not keeps_size)
            if keeps_size:
                x = self._residual(pair_input, x, block, layer)
        name = block_key("pooling-window", block)
        window, largest = self.values[name], max(x.shape[:2])
        if window > largest:
            self.repairs[name] = largest
        return self._pool(x, f"block-{block}-pool", self.values.get("pooling-type", "max"), window)

    def _layer(self, x: Node, block: int, layer: int, relu: bool) -> Node:
        name = f"block-{block}-layer-{layer}"
        threshold = layer_key("pruning-thresholds", block, layer)
        layer_type = self.values[layer_key("layer-type", block, layer)]
        if layer_type == "DownsampledConv2D":
            rate = self.values[layer_key("downsample", block, layer)]
            depth = max(1, round(rate * x.shape[-1]))
            reduction = Convolution(f"{name}-reduce", depth, (1, 1), threshold, relu=False)
            x = self.builder.convolution(x, reduction)
        key = layer_key("kernel-size", block, layer)
        size, largest = self.values[key], max(x.shape[:2])
        if size > largest:
            self.repairs[key] = largest
        convolution = Convolution(
            name,
            self.values[layer_key("num-filters", block, layer)],
            (min(size, x.shape[0]), min(size, x.shape[1])),
            threshold,
            stride=self.values.get(layer_key("stride", block, layer), 1),
            padding=self.values[layer_key("padding", block, layer)],
            separable=layer_type == "SeparableConv2D",
            norm=self.norm,
            relu=relu,
        )
        return self.builder.convolution(x, convolution)

    def _keeps_size(self, pair_input: Node, x: Node, block: int, layer: int) -> bool:
        """Whether the output of this layer will be as large as the input of the one before."""
        kernel = min(self.values[layer_key("kernel-size", block, layer)], max(x.shape[:2]))
        padding = self.values[layer_key("padding", block, layer)]
        stride = self.values.get(layer_key("stride", block, layer), 1)
        same = stride == 1 and (padding == "same" or kernel == 1)
        return same and pair_input.shape[:2] == x.shape[:2]

    def _residual(self, before: Node, after: Node, block: int, layer: int) -> Node:
        self.has_residual = True
        name = f"block-{block}-layer-{layer}"
        if before.shape[-1] != after.shape[-1]:
            threshold = layer_key("pruning-thresholds", block, layer)
            matching = Convolution(f"{name}-match", after.shape[-1], (1, 1), threshold, relu=False)
            before = self.builder.convolution(before, matching)
        return self.builder.add([before, after], f"{name}-residual", relu=True)

    def _branches(self, ends: dict[str, Node]) -> tuple[Node, tuple[Source, ...]]:
        """Routes the ends of the branches through their FC layers and merges them."""
        has_fc = {
            "main": self.values["num-fc-layers"] == 1,
            "left": self.values["left-branch"],
            "right": self.values["right-branch"],
        }
        merge = self.values.get("merge-type", "Concatenate")
        if merge == "Sum" and not has_fc["main"]:
            self.repairs["merge-type"] = merge = "Concatenate"
        widths = self._widths({name: ends[name] for name in ends if has_fc[name]})
        if merge == "Sum":
            widths = dict.fromkeys(widths, min(widths.values()))
        nodes, sources = [], []
        for branch, x in ends.items():
            if branch == "main" or has_fc[branch]:
                source = Source(branch, x.shape)
                x = self.builder.flatten(x, f"{branch}-flatten")
                if has_fc[branch]:
                    name = f"{branch}-branch"
                    self.sources[name] = (source,)
                    x = self.builder.dense(
                        x,
                        name,
                        widths[branch],
                        norm=self.norm,
                        relu=True,
                        threshold=f"pruning-thresholds-{branch}-branch",
                    )
                    source = Source(name, x.shape)
                nodes.append(x)
                sources.append(source)
        if len(nodes) == 1:
            return nodes[0], tuple(sources)
        if merge == "Sum":
            return self.builder.add(nodes, "merge", relu=False), (Source("sum", nodes[0].shape),)
        return self.builder.concatenate(nodes, "merge"), tuple(sources)

    def _widths(self, ends: dict[str, Node]) -> dict[str, int]:
        if not ends:
            return {}
        fractions = {name: self.values[f"weight-fraction-{name}-branch"] for name in ends}
        scale = self.values["total-fc-layer-weights"] / max(1.0, sum(fractions.values()))
        return {
            name: max(1, int(fractions[name] * scale / math.prod(x.shape)))
            for name, x in ends.items()
        }
