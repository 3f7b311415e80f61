"""Rough cost of nodes and copies, good enough to tell a worthwhile part from an island of trifles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from intarsia.graph.dims import Expr, symbols_of
from intarsia.graph.model import Graph, Node, TensorType

ASSUMED_SIZE = 32  # for every size that only a run knows
HOST_GFLOP_PER_S = 50.0
HOST_GBYTE_PER_S = 10.0
PICKING = frozenset(("Gather", "GatherElements", "GatherND", "Slice", "Compress", "EmbedLayerNormalization"))
"""Operators that read only a part of their first operand."""

Sizes = Mapping[str, int]
_UNKNOWN: Sizes = MappingProxyType({})


def elements(graph: Graph, name: str, sizes: Sizes = _UNKNOWN) -> float:
    """Elements of a tensor, with `sizes` for symbols and the rest assumed; of an unknown shape: 1."""
    return math.prod(_shape(graph, name, sizes) or (1.0,))


def _shape(graph: Graph, name: str, sizes: Sizes) -> tuple[float, ...]:
    """() for scalars and unknown shapes."""
    found = graph.type_of(name)
    if not isinstance(found, TensorType) or found.shape is None:
        return ()
    return tuple(_size(dim, sizes) for dim in found.shape)


def _size(dim: int | Expr, sizes: Sizes = _UNKNOWN) -> float:
    if isinstance(dim, int):
        return float(dim)
    try:
        return float(max(dim.evaluate({s: sizes.get(s, ASSUMED_SIZE) for s in symbols_of(dim)}), 1))
    except (KeyError, ValueError, ZeroDivisionError):
        return float(ASSUMED_SIZE)


def nbytes(graph: Graph, name: str, sizes: Sizes = _UNKNOWN) -> float:
    found = graph.type_of(name)
    return elements(graph, name, sizes) * (found.dtype.bits / 8 if isinstance(found, TensorType) else 8)


def moved_nbytes(graph: Graph, node: Node, sizes: Sizes = _UNKNOWN) -> float:
    """Bytes that a node reads and writes when it runs alone; of an operand that it picks from, as much as it takes."""
    out = sum(nbytes(graph, n, sizes) for n in node.outputs if n)
    read = [nbytes(graph, n, sizes) for n in node.inputs if n]
    if node.op_type in PICKING and read:
        read[0] = min(read[0], out)
    return out + sum(read)


def is_estimated(graph: Graph, name: str, sizes: Sizes = _UNKNOWN) -> bool:
    """Whether the tensor's size is known only in a run (or by `sizes`), so that its cost is a guess."""
    found = graph.type_of(name)
    return not isinstance(found, TensorType) or found.shape is None or any(symbols_of(d) - sizes.keys() for d in found.shape)


def flop(graph: Graph, node: Node, sizes: Sizes = _UNKNOWN) -> float:
    """Arithmetic operations of one node: products for contractions, attention and recurrence (a multiplication and an
    addition are two), one per output element otherwise."""
    out = sum(elements(graph, n, sizes) for n in node.outputs if n)
    shapes = [_shape(graph, n, sizes) if n else () for n in node.inputs]
    count = _PRODUCTS.get(node.op_type)
    if count is not None:
        try:
            return count(node, shapes, _shape(graph, node.outputs[0], sizes) if node.outputs[0] else (out,))
        except (IndexError, ValueError):
            pass  # shapes that are not known
    return out


def _matmul(node: Node, shapes: Sequence[tuple[float, ...]], out: tuple[float, ...]) -> float:
    transposed = node.attributes.get("transA")
    return 2 * math.prod(out) * shapes[0][-2 if transposed else -1]


def _convolution(node: Node, shapes: Sequence[tuple[float, ...]], out: tuple[float, ...]) -> float:
    weight = shapes[3 if node.op_type == "QLinearConv" else 1]
    return 2 * math.prod(out) * math.prod(weight[1:]) if weight else math.prod(out)


def _transposed_convolution(_node: Node, shapes: Sequence[tuple[float, ...]], _out: tuple[float, ...]) -> float:
    return 2 * math.prod(shapes[0]) * math.prod(shapes[1][1:])


def _recurrence(_node: Node, shapes: Sequence[tuple[float, ...]], _out: tuple[float, ...]) -> float:
    steps, batch = shapes[0][:2]
    return 2 * steps * batch * (math.prod(shapes[1]) + math.prod(shapes[2]))


def _attention(_node: Node, shapes: Sequence[tuple[float, ...]], _out: tuple[float, ...]) -> float:
    q, k = shapes[0], shapes[1]
    return 2 * 2 * math.prod(q) * k[-2]


def _packed_matmul(node: Node, _shapes: Sequence[tuple[float, ...]], out: tuple[float, ...]) -> float:
    return 2 * math.prod(out) * float(node.attributes.get("K") or 1)


def _einsum(node: Node, shapes: Sequence[tuple[float, ...]], out: tuple[float, ...]) -> float:
    equation = str(node.attributes.get("equation") or "").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if "." in equation or len(terms) != len(shapes):
        return math.prod(out)
    sizes = {letter: n for term, shape in zip(terms, shapes, strict=True) for letter, n in zip(term, shape, strict=True)}
    return 2 * math.prod(sizes.values())


_PRODUCTS: dict[str, Callable[[Node, Sequence[tuple[float, ...]], tuple[float, ...]], float]] = {
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "FusedMatMul"), _matmul),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "FusedConv"), _convolution),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrence),
    "Attention": _attention,
    "MultiHeadAttention": _attention,
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), _packed_matmul),
}


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
