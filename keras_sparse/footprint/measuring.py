"""measure: the bytes, operations and working memory of a network, per node and in total."""

import numbers
from typing import NamedTuple

import keras

from ..counting import sparse_layers
from ..walking import check_graph
from . import working_memory as memory
from .encodings import Encoding, dense_bytes, smallest
from .graph import Graph, Operator, Shape, Weights
from .reading import read


class NodeFootprint(NamedTuple):
    """One operator.

    Attributes:
        name: Name of its layer.
        kind: Kind of its layer.
        shape: Shape of its output, without the batch.
        parameters: Number of parameters, batch normalization folded in.
        nonzeros: How many of them are not zero.
        model_size: Bytes of those that are not zero, without indices.
        dense_bytes: Bytes of all parameters.
        sparse_bytes: Bytes of the parameters in the smallest encoding, indices included.
        encodings: That encoding for each array of parameters.
        macs: Multiply-accumulates with dense kernels.
        sparse_macs: Multiply-accumulates if zeros are skipped.
        working_memory: Bytes of RAM by the chosen model.
        prepares_image: Whether it comes before the first operator with parameters.
    """

    name: str
    kind: str
    shape: Shape
    parameters: int
    nonzeros: int
    model_size: int
    dense_bytes: int
    sparse_bytes: int
    encodings: tuple[str, ...]
    macs: int
    sparse_macs: int
    working_memory: int
    prepares_image: bool


class Footprint(NamedTuple):
    """What a network takes; `print` shows a table.

    Attributes:
        nodes: One row per operator, in order of execution.
        bits: Bits of a weight and of an activation.
        memory_model: Name of the model of working memory.
        parameters: Number of parameters, batch normalization folded in.
        nonzeros: How many of them are not zero: the paper's model size, in values.
        model_size: Bytes of the non-zero parameters alone (the paper's model size).
        dense_bytes: Bytes of all parameters.
        sparse_bytes: Bytes with each array in its smallest encoding, indices included.
        macs: Multiply-accumulates with dense kernels.
        sparse_macs: Multiply-accumulates if zeros are skipped.
        working_memory: Bytes of the largest node, from the first layer with parameters on (the
            paper's way of counting, which leaves out a down-sampling of the raw image).
        working_memory_with_image: The same over all nodes.
        live_memory: Bytes of all tensors alive at once, at most, raw image included: what an
            allocator needs.
        before: The same network before pruning; None in there.
    """

    nodes: tuple[NodeFootprint, ...]
    bits: int
    memory_model: str
    parameters: int
    nonzeros: int
    model_size: int
    dense_bytes: int
    sparse_bytes: int
    macs: int
    sparse_macs: int
    working_memory: int
    working_memory_with_image: int
    live_memory: int
    before: "Footprint | None"

    def __str__(self) -> str:
        return _table(self)


def measure(
    model: keras.Model | Graph,
    *,
    before: keras.Model | Graph | None = None,
    working_memory: str | memory.MemoryModel = "inputs+weights",
    bits: int = 8,
    bias_bits: int | None = None,
) -> Footprint:
    """Counts what a network takes in flash and RAM.

    Args:
        model: A built Sequential or functional model of plain Keras layers, such as `strip` gives;
            or a `Graph`.
        before: The network before pruning, with sparse or plain layers, to compare with. By
            default `model` itself, its zeros counted.
        working_memory: Name of a model ("inputs+weights", "inputs+outputs", "live" or one that was
            registered), or a function of graph and bits that gives the bytes of each operator.
        bits: Bits of a weight and of an activation, 1 to 32.
        bias_bits: Bits of a bias in flash; None takes `bits`, as the paper does. Integer runtimes
            use 32. The models of working memory count every value with `bits`.

    Returns:
        The counts, per node and in total.
    """
    for name, value in (("bits", bits), ("bias_bits", bits if bias_bits is None else bias_bits)):
        if not isinstance(value, numbers.Integral) or not 1 <= value <= 32:
            raise ValueError(f"{name} must be a whole number from 1 to 32. Received: {value!r}")
    options = (memory.get(working_memory), bits, bits if bias_bits is None else bias_bits)
    after = _graph(model)
    _refuse_sparse(model)
    measured = _footprint(after, *options)
    if before is None and measured.nonzeros == measured.parameters:
        return measured._replace(before=measured)
    dense = (after if before is None else _graph(before)).dense()
    return measured._replace(before=_footprint(dense, *options))


def _graph(model: keras.Model | Graph) -> Graph:
    if isinstance(model, Graph):
        return model
    check_graph(model, "measure")
    return read(model)


def _refuse_sparse(model: keras.Model | Graph) -> None:
    names = [] if isinstance(model, Graph) else [layer.name for layer in sparse_layers(model)]
    if names:
        raise ValueError(
            "measure() counts plain layers: strip() the model first and pass it as it was as "
            f"before=. Received: a model with the sparse layers {', '.join(map(repr, names))}"
        )


def _footprint(
    graph: Graph, model_of_memory: memory.MemoryModel, bits: int, bias_bits: int
) -> Footprint:
    def encoded(weights: Weights) -> Encoding:
        width = bias_bits if weights.is_bias else bits
        if weights.values is None or weights.nonzeros == weights.size:
            return Encoding("dense", dense_bytes(weights.size, width))
        return smallest(weights.values, width)

    def dense(weights: Weights) -> int:
        return dense_bytes(weights.size, bias_bits if weights.is_bias else bits)

    def values_only(weights: Weights) -> int:
        return dense_bytes(weights.nonzeros, bias_bits if weights.is_bias else bits)

    def node(operator: Operator, bytes_of_ram: int, prepares_image: bool) -> NodeFootprint:
        chosen = [encoded(weights) for weights in operator.weights]
        return NodeFootprint(
            operator.name,
            operator.kind,
            graph.shapes[operator.name],
            operator.parameters,
            operator.nonzeros,
            sum(map(values_only, operator.weights)),
            sum(map(dense, operator.weights)),
            sum(encoding.bytes for encoding in chosen),
            tuple(encoding.name for encoding in chosen),
            operator.macs,
            operator.sparse_macs,
            bytes_of_ram,
            prepares_image,
        )

    first = graph.first_weighted()
    ram = model_of_memory(graph, bits)
    nodes = tuple(node(operator, ram[i], i < first) for i, operator in enumerate(graph.operators))
    arrays = list(graph.weights())  # an array that two operators share is stored once
    nonzeros = sum(weights.nonzeros for weights in arrays)
    return Footprint(
        nodes=nodes,
        bits=bits,
        memory_model=memory.name_of(model_of_memory),
        parameters=sum(weights.size for weights in arrays),
        nonzeros=nonzeros,
        model_size=sum(map(values_only, arrays)),
        dense_bytes=sum(map(dense, arrays)),
        sparse_bytes=sum(encoded(weights).bytes for weights in arrays),
        macs=sum(row.macs for row in nodes),
        sparse_macs=sum(row.sparse_macs for row in nodes),
        working_memory=max((row.working_memory for row in nodes[first:]), default=0),
        working_memory_with_image=max((row.working_memory for row in nodes), default=0),
        live_memory=max(memory.live_tensors(graph, bits), default=0),
        before=None,
    )


def _table(footprint: Footprint) -> str:
    rows: list[tuple[str, ...]] = [
        ("node", "kind", "output", "parameters", "non-zero", "bytes", "MACs", "RAM")
    ]
    for node in footprint.nodes:
        shape = "×".join(map(str, node.shape))
        numbers_ = (node.parameters, node.nonzeros, node.sparse_bytes, node.macs)
        ram = f"{node.working_memory:,}{' (image)' if node.prepares_image else ''}"
        rows.append((node.name, node.kind, shape, *(f"{n:,}" for n in numbers_), ram))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    f, b = footprint, footprint.before or footprint
    lines += [
        f"parameters {b.parameters:,} -> {f.nonzeros:,} non-zero; "
        f"bytes at {f.bits} bits: values {b.model_size:,} -> {f.model_size:,}, "
        f"with indices {f.sparse_bytes:,}, dense {f.dense_bytes:,}",
        f"working memory ({f.memory_model}) {b.working_memory:,} -> {f.working_memory:,} B, with "
        f"the image {f.working_memory_with_image:,} B; live at once {f.live_memory:,} B; "
        f"MACs {f.macs:,} ({f.sparse_macs:,} without zeros)",
    ]
    return "\n".join(lines)
