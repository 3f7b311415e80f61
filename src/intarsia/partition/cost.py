"""Rough cost of nodes and copies, good enough to tell a worthwhile part from an island of trifles."""

from __future__ import annotations

import math
from collections.abc import Iterable

from intarsia.graph.dims import Expr, symbols_of
from intarsia.graph.model import Graph, Node, TensorType

ASSUMED_SIZE = 32  # for every size that only a run knows
HOST_GFLOP_PER_S = 50.0
HOST_GBYTE_PER_S = 10.0


def elements(graph: Graph, name: str) -> float:
    """Elements of a tensor, symbolic sizes assumed; of an unknown shape: 1."""
    found = graph.type_of(name)
    if not isinstance(found, TensorType) or found.shape is None:
        return 1.0
    return math.prod(_size(dim) for dim in found.shape)


def _size(dim: int | Expr) -> float:
    if isinstance(dim, int):
        return float(dim)
    try:
        return float(max(dim.evaluate(dict.fromkeys(symbols_of(dim), ASSUMED_SIZE)), 1))
    except (KeyError, ValueError, ZeroDivisionError):
        return float(ASSUMED_SIZE)


def nbytes(graph: Graph, name: str) -> float:
    found = graph.type_of(name)
    return elements(graph, name) * (found.dtype.bits / 8 if isinstance(found, TensorType) else 8)


def is_estimated(graph: Graph, name: str) -> bool:
    """Whether the tensor's size is known only in a run, so that its cost is a guess."""
    found = graph.type_of(name)
    return not isinstance(found, TensorType) or found.shape is None or any(not isinstance(d, int) for d in found.shape)


def flop(graph: Graph, node: Node) -> float:
    """Arithmetic operations of one node: products for contractions, one per output element otherwise."""
    out = sum(elements(graph, n) for n in node.outputs if n)
    if node.op_type in ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"):
        found = graph.type_of(node.inputs[0])
        depth = _size(found.shape[-1]) if isinstance(found, TensorType) and found.shape else 1.0
        return 2 * out * depth
    if node.op_type in ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose"):
        weight = graph.type_of(node.inputs[3 if node.op_type == "QLinearConv" else 1])
        if isinstance(weight, TensorType) and weight.shape:
            return 2 * out * math.prod(_size(d) for d in weight.shape[1:])
    return out


def host_microseconds(graph: Graph, nodes: Iterable[Node]) -> float:
    total = 0.0
    for node in nodes:
        moved = sum(nbytes(graph, n) for n in (*node.inputs, *node.outputs) if n)
        total += max(flop(graph, node) / HOST_GFLOP_PER_S, moved / HOST_GBYTE_PER_S) / 1e3
    return total


def device_microseconds(graph: Graph, nodes: Iterable[Node], gflop_per_s: float) -> float:
    return sum(flop(graph, node) for node in nodes) / gflop_per_s / 1e3


def copy_microseconds(graph: Graph, names: Iterable[str], latency_us: float, gbyte_per_s: float) -> float:
    return sum(latency_us + nbytes(graph, name) / gbyte_per_s / 1e3 for name in names)
