"""A model in layers: what is quantised together and given back to floats together."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import onnx

from intarsia.quantization.description.node_order import in_order


@dataclass(frozen=True)
class Layer:
    """A node with weights, and the nodes behind it up to the next such node.

    Attributes:
        name, op_type: of the node with weights; of the first node where there is none.
        nodes: names of all of them.
        outputs: the values that they compute.
        weights: how many weights the layer has.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: int


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a name of its own, in place: layers are left out by names."""
    taken: set[str] = set()
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = _free(f"{node.name or node.op_type}_{i}", taken)
        taken.add(node.name)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def layers_of(model: onnx.ModelProto, op_types: Collection[str]) -> list[Layer]:
    """The layers of a model whose nodes have names; nodes of other operators than these belong to none."""
    graph = model.graph
    sizes = {t.name: math.prod(t.dims) for t in graph.initializer}
    known = [*sizes, *(v.name for v in graph.input)]
    found: list[tuple[onnx.NodeProto, list[onnx.NodeProto], int]] = []
    owner: dict[str, int] = {}
    for node in in_order(graph.node, known):
        if node.op_type not in op_types:
            continue
        weights = sum(sizes.get(name, 0) for name in node.input)
        behind = [owner[name] for name in node.input if name in owner]
        if _has_weights(node, sizes) or not behind:
            found.append((node, [], 0))
            place = len(found) - 1
        else:
            place = max(behind)
        found[place][1].append(node)
        found[place] = (found[place][0], found[place][1], found[place][2] + weights)
        owner.update(dict.fromkeys(node.output, place))
    return [
        Layer(first.name, first.op_type, tuple(n.name for n in nodes), tuple(o for n in nodes for o in n.output if o), weights)
        for first, nodes, weights in found
    ]


def _has_weights(node: onnx.NodeProto, sizes: dict[str, int]) -> bool:
    return node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "Gather", "Attention") and any(
        sizes.get(name, 0) > 1 for name in node.input
    )
