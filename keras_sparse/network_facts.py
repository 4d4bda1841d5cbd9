"""What is known of a network, node by node: plain facts to draw, to plot and to keep as JSON."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from .footprint import Footprint, Graph, NodeFootprint, Operator

Shape = tuple[int, ...]


class Change(NamedTuple):
    """A number before and after pruning."""

    before: int
    after: int


class NodeFacts(NamedTuple):
    """One operator.

    Attributes:
        name: Of its layer.
        kind: Of its layer, such as "Conv2D".
        inputs: Names of the nodes that it reads.
        kernel: (height, width) of its kernel; () without one.
        shape_before: Of its output, before pruning.
        shape: The same after pruning.
        parameters: Before pruning, and those that are not zero after it.
        model_size: Bytes of the parameters that are not zero.
        working_memory: Bytes of RAM by the chosen model.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    kernel: Shape
    shape_before: Shape
    shape: Shape
    parameters: Change
    model_size: Change
    working_memory: Change


class NetworkFacts(NamedTuple):
    """A network before and after pruning.

    Attributes:
        images: Shape of each input by name.
        nodes: In order of execution.
        model_size: Bytes of the parameters that are not zero.
        working_memory: Bytes of the largest node.
        sparse_bytes: Bytes of the parameters with indices, after pruning.
        working_memory_with_image: As `working_memory`, with the preparation of the raw image.
        memory_model: Name of the model of working memory.
    """

    images: dict[str, Shape]
    nodes: tuple[NodeFacts, ...]
    model_size: Change
    working_memory: Change
    sparse_bytes: int
    working_memory_with_image: int
    memory_model: str


def facts_of(graph: Graph, footprint: Footprint) -> NetworkFacts:
    """The facts of a pruned network.

    Args:
        graph: Of the network after pruning.
        footprint: Of the same, by `measure`.
    """
    first = footprint.before or footprint
    before = {node.name: node for node in first.nodes}
    return NetworkFacts(
        {name: graph.shapes[name] for name in graph.inputs},
        tuple(
            _node(operator, node, before.get(node.name, node))
            for operator, node in zip(graph.operators, footprint.nodes, strict=True)
        ),
        Change(first.model_size, footprint.model_size),
        Change(first.working_memory, footprint.working_memory),
        footprint.sparse_bytes,
        footprint.working_memory_with_image,
        footprint.memory_model,
    )


def _node(operator: Operator, node: NodeFootprint, before: NodeFootprint) -> NodeFacts:
    kernels = [w for w in operator.weights if not w.is_bias and len(w.shape) > 2]
    return NodeFacts(
        node.name,
        node.kind,
        tuple(dict.fromkeys(operator.inputs)),
        tuple(kernels[0].shape[:-2]) if kernels else (),
        before.shape,
        node.shape,
        Change(before.parameters, node.nonzeros),
        Change(before.model_size, node.model_size),
        Change(before.working_memory, node.working_memory),
    )


def to_json(facts: NetworkFacts) -> dict[str, Any]:
    """The facts as JSON has them: objects, arrays, texts and whole numbers."""
    nodes = [node._asdict() for node in facts.nodes]
    return {**facts._asdict(), "nodes": nodes}


def from_json(content: Any) -> NetworkFacts:
    """The facts from JSON, of which nothing is taken for granted.

    Raises:
        ValueError: It is not what `to_json` makes; the message says what is wrong.
    """
    try:
        nodes = tuple(_checked_node(node) for node in content["nodes"])
        facts = NetworkFacts(
            {str(name): _shape(shape) for name, shape in content["images"].items()},
            nodes,
            _change(content["model_size"]),
            _change(content["working_memory"]),
            int(content["sparse_bytes"]),
            int(content["working_memory_with_image"]),
            str(content["memory_model"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"A network must be what to_json makes. Received: {error!r}") from None
    known = set(facts.images)
    for node in nodes:
        if node.name in known or not known.issuperset(node.inputs):
            raise ValueError(
                "The nodes of a network must have names of their own and read only nodes before "
                f"them. Received: {node.name!r} that reads {list(node.inputs)}"
            )
        known.add(node.name)
    return facts


def _checked_node(node: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        str(node["name"]),
        str(node["kind"]),
        tuple(str(name) for name in node["inputs"]),
        _shape(node["kernel"]),
        _shape(node["shape_before"]),
        _shape(node["shape"]),
        _change(node["parameters"]),
        _change(node["model_size"]),
        _change(node["working_memory"]),
    )


def _shape(values: Any) -> Shape:
    return tuple(int(value) for value in values)


def _change(values: Any) -> Change:
    before, after = values
    return Change(int(before), int(after))
