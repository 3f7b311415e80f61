"""A model in layers: what is quantised together and given back to floats together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import onnx

from intarsia.quantization.description.node_order import in_order, subgraphs
from intarsia.quantization.numerics.quant_types import FLOAT_TYPES

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "Gather", "Attention")


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


def floats_in_bodies(model: onnx.ModelProto) -> dict[str, int]:
    """Operator -> how many nodes in bodies of control flow read stored matrices of floats."""
    stored = {t.name for t in model.graph.initializer if _is_matrix(t)}
    found: Counter[str] = Counter()
    for node in model.graph.node:
        for body in subgraphs(node):
            _count_floats(body, stored, found)
    return dict(found)


def _count_floats(graph: onnx.GraphProto, outer: set[str], found: Counter[str]) -> None:
    constants = (
        (node.output[0], a.t) for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "value"
    )
    own = [(t.name, t) for t in graph.initializer]
    stored = outer | {name for name, tensor in (*own, *constants) if _is_matrix(tensor)}
    for node in graph.node:
        found[node.op_type] += node.op_type in _WEIGHTED and any(name in stored for name in node.input)
        for body in subgraphs(node):
            _count_floats(body, stored, found)
    for name in [name for name, count in found.items() if not count]:
        del found[name]


def _is_matrix(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in FLOAT_TYPES and len(tensor.dims) > 1 and math.prod(tensor.dims) > 1


def _has_weights(node: onnx.NodeProto, sizes: dict[str, int]) -> bool:
    return node.op_type in _WEIGHTED and any(
        sizes.get(name, 0) > 1 for name in node.input
    )
