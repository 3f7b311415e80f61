"""Products of matrices, reductions, softmax, layer normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.model import Node
from intarsia.providers.nnapi.expressions import (
    binary,
    broadcast,
    cast,
    compare,
    concatenated,
    filled,
    gathered,
    like,
    plus,
    product,
    reduced,
    select,
    split,
    transposed,
    unary,
)
from intarsia.providers.nnapi.lowerings.elementwise import Lowering, need_real
from intarsia.providers.nnapi.lowerings.movement import axis_of, in_layout
from intarsia.providers.nnapi.lowerings.windows import moments
from intarsia.providers.nnapi.operands import LEVEL_6, Kind, OperandType, Tensor
from intarsia.providers.nnapi.writer import Writer
from intarsia.providers.vendor.translator import Untranslatable

_MOST_PRODUCTS = 256
"""Of a batched product that is written one by one, before feature level 6."""


def _mat_mul(w: Writer, node: Node) -> None:
    need_real(w, node)
    a, b = node.inputs[:2]
    shape_a, shape_b = w.shape(a), w.shape(b)
    if len(shape_b) == 2 and len(shape_a) >= 1:
        _with_matrix(w, node)
        return
    left = (1, *shape_a) if len(shape_a) == 1 else shape_a
    right = (*shape_b, 1) if len(shape_b) == 1 else shape_b
    x, y = w.reshaped(w.value(a), left), w.reshaped(w.value(b), right)
    w.set(node.outputs[0], batched(w, x, y))


def _with_matrix(w: Writer, node: Node) -> None:
    """FULLY_CONNECTED, with a bias and an activation where these follow."""
    array = w.array(node.inputs[1])
    x = w.value(node.inputs[0])
    if array is not None:
        weights = w.constant(np.ascontiguousarray(array.T))
    else:
        weights = transposed(w, w.value(node.inputs[1]), (1, 0))
    bias, last = _bias(w, node, weights.dims[0])
    fuse, out = w.activation(last)
    w.set(out, product(w, x, weights, bias, fuse))


def _bias(w: Writer, node: Node, units: int) -> tuple[Tensor | None, Node]:
    """The constant that is added to a product alone, and the node that adds it."""
    reader = w.sole_reader(node.outputs[0])
    if reader is None or reader.domain or reader.op_type != "Add":
        return None, node
    for name in reader.inputs:
        array = w.array(name)
        if array is None or array.size not in (1, units) or array.shape not in ((), (1,), (units,), (1, units)):
            continue
        if len(array.shape) > len(w.shape(node.outputs[0])):
            continue
        w.done.add(id(reader))
        return w.constant(np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (units,)))), reader
    return None, node


def batched(w: Writer, x: Tensor, y: Tensor) -> Tensor:
    """x [..., M, K] times y [..., K, N]: BATCH_MATMUL, or one FULLY_CONNECTED for each pair of matrices."""
    batch = broadcast(x.dims[:-2], y.dims[:-2])
    x, y = (filled(w, t, (*batch, *t.dims[-2:])) for t in (x, y))
    count, rows, inner, columns = math.prod(batch), x.dims[-2], x.dims[-1], y.dims[-1]
    dims = (*batch, rows, columns)
    if w.target.level >= LEVEL_6 and x.kind.real:
        flat = [w.reshaped(x, (count, rows, inner)), w.reshaped(y, (count, inner, columns))]
        given = [*flat, w.boolean(False), w.boolean(False)]
        return w.reshaped(w.call("BATCH_MATMUL", given, x.type.of((count, rows, columns))), dims)
    if count > _MOST_PRODUCTS:
        raise Untranslatable(f"NNAPI has batched products from feature level {LEVEL_6} on, and this is {w.target.level}",
                             "no-kernel")  # fmt: skip
    turned = transposed(w, w.reshaped(y, (count, inner, columns)), (0, 2, 1))
    lefts = split(w, w.reshaped(x, (count * rows, inner)), 0, count)
    rights = split(w, w.reshaped(turned, (count * columns, inner)), 0, count)
    parts = [product(w, a, b, None) for a, b in zip(lefts, rights, strict=True)]
    return w.reshaped(concatenated(w, parts, 0), dims)


# reductions


def reduction_axes(w: Writer, node: Node) -> list[int]:
    rank = len(w.shape(node.inputs[0]))
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        axes = w.ints(node.inputs[1], f"the axes of {node.op_type}")
    return sorted({int(a) % rank for a in axes}) if axes else list(range(rank))


def _reduction(function: Callable[[Writer, Tensor, Sequence[int]], Tensor]) -> Lowering:
    def lower(w: Writer, node: Node) -> None:
        need_real(w, node)
        name = node.inputs[0]
        axes = reduction_axes(w, node)
        keep = bool(node.attributes.get("keepdims", 1))
        layout = w.layout(name) if keep and len(w.shape(name)) == 4 else "plain"
        x = w.value(name, layout)
        if not w.shape(name):
            axes = [0]
        found = function(w, x, [in_layout(a, layout) for a in axes])
        w.set(node.outputs[0], found, layout if keep else "plain")

    return lower


def _named(name: str) -> Lowering:
    return _reduction(lambda w, x, axes: reduced(w, name, x, axes))


def _l1(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    return reduced(w, "REDUCE_SUM", unary(w, "ABS", x), axes)


def _sum_square(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    return reduced(w, "REDUCE_SUM", binary(w, "MUL", x, x), axes)


def _l2(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    return unary(w, "SQRT", _sum_square(w, x, axes))


def _log_sum(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    return unary(w, "LOG", reduced(w, "REDUCE_SUM", x, axes))


def _log_sum_exp(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """max + log(sum(exp(x - max))), where the maximum is finite."""
    top = reduced(w, "REDUCE_MAX", x, axes)
    limit = float(np.finfo(x.kind.numpy).max)
    bound = binary(w, "MAXIMUM", binary(w, "MINIMUM", top, like_limit(w, x, limit)), like_limit(w, x, -limit))
    powers = unary(w, "EXP", binary(w, "SUB", x, bound))
    return binary(w, "ADD", bound, unary(w, "LOG", reduced(w, "REDUCE_SUM", powers, axes)))


def like_limit(w: Writer, x: Tensor, value: float) -> Tensor:
    return w.constant(np.array([value], x.kind.numpy))


def _arg(name: str) -> Lowering:
    def lower(w: Writer, node: Node) -> None:
        if node.attributes.get("select_last_index", 0):
            raise Untranslatable(f"NNAPI's {name} gives the first of equal elements", "wrong")
        if not w.shape(node.inputs[0]):
            raise Untranslatable(f"{node.op_type} of one element")
        axis = axis_of(w, node)
        x = w.value(node.inputs[0])
        dims = [d for i, d in enumerate(x.dims) if i != axis]
        w.set(node.outputs[0], w.call(name, [x, w.int32(axis)], OperandType(Kind.TENSOR_INT32, tuple(dims or [1]))))

    return lower


def _softmax(w: Writer, node: Node) -> None:
    need_real(w, node)
    if not w.shape(node.inputs[0]):
        raise Untranslatable(f"{node.op_type} of one element")
    axis = axis_of(w, node, default=-1)
    layout = w.layout(node.inputs[0])
    x = w.value(node.inputs[0], layout)
    place = in_layout(axis, layout)
    if node.op_type == "LogSoftmax":
        w.set(node.outputs[0], w.call("LOG_SOFTMAX", [x, w.number(x, 1.0), w.int32(place)], x.type), layout)
        return
    if x.rank > 4:
        _softmax_of_many(w, node, x, place)
        return
    given = [x, w.number(x, 1.0)]
    if w.target.level >= 29:
        given.append(w.int32(place))
    elif place != x.rank - 1 or x.rank not in (2, 4):
        raise Untranslatable("NNAPI's SOFTMAX takes another axis than the last, and ranks 1 and 3, from feature level 29 on",
                             "no-kernel")  # fmt: skip
    w.set(node.outputs[0], w.call("SOFTMAX", given, x.type), layout)


def _softmax_of_many(w: Writer, node: Node, x: Tensor, axis: int) -> None:
    """Of more than four dimensions: those before the axis as one, and those behind it."""
    dims = (math.prod(x.dims[:axis]), x.dims[axis], math.prod(x.dims[axis + 1 :]))
    flat = w.reshaped(x, dims)
    w.set(node.outputs[0], w.call("SOFTMAX", [flat, w.number(x, 1.0), w.int32(1)], flat.type))


def _layer_normalization(w: Writer, node: Node) -> None:
    need_real(w, node)
    x = w.value(node.inputs[0])
    axes = list(range(axis_of(w, node, default=-1), x.rank))
    found, *others = moments(w, x, axes, float(node.attributes.get("epsilon", 1e-5)))
    for name, made in zip(node.outputs[1:], others, strict=False):
        if name:
            w.set(name, cast(w, made, w.kind(name)))
    found = binary(w, "MUL", found, w.value(node.inputs[1]))
    if len(node.inputs) > 2 and node.inputs[2]:
        found = binary(w, "ADD", found, w.value(node.inputs[2]))
    w.set(node.outputs[0], found)


def _rms_normalization(w: Writer, node: Node) -> None:
    need_real(w, node)
    x = w.value(node.inputs[0])
    axes = list(range(axis_of(w, node, default=-1), x.rank))
    square = reduced(w, "MEAN", binary(w, "MUL", x, x), axes)
    root = unary(w, "RSQRT", plus(w, square, float(node.attributes.get("epsilon", 1e-5))))
    found = binary(w, "MUL", binary(w, "MUL", x, root), w.value(node.inputs[1]))
    w.set(node.outputs[0], found)


def _lp_normalization(w: Writer, node: Node) -> None:
    need_real(w, node)
    x = w.value(node.inputs[0])
    axis = [axis_of(w, node, default=-1)]
    norm = _l1(w, x, axis) if int(node.attributes.get("p", 2)) == 1 else _l2(w, x, axis)
    zero = w.constant(np.zeros(1, x.kind.numpy))
    safe = select(w, compare(w, "EQUAL", norm, zero), w.constant(np.ones(1, x.kind.numpy)), norm)
    w.set(node.outputs[0], binary(w, "DIV", x, safe))


def _mean_variance(w: Writer, node: Node) -> None:
    need_real(w, node)
    axes = [int(a) for a in node.attributes.get("axes") or (0, 2, 3)]
    layout = w.layout(node.inputs[0])
    x = w.value(node.inputs[0], layout)
    places = [in_layout(a % x.rank, layout) for a in axes]
    centred = binary(w, "SUB", x, reduced(w, "MEAN", x, places))
    deviation = unary(w, "SQRT", reduced(w, "MEAN", binary(w, "MUL", centred, centred), places))
    w.set(node.outputs[0], binary(w, "DIV", centred, plus(w, deviation, 1e-9)), layout)


def _top_k(w: Writer, node: Node) -> None:
    """TOPK_V2 has of equal elements the last one first, ONNX the first: so it is given them in reverse order."""
    k = w.ints(node.inputs[1], "how many elements TopK gives")[0] if node.version >= 10 else int(node.attributes["k"])
    x, axis = w.value(node.inputs[0]), axis_of(w, node, default=-1)
    if not 0 < k <= x.dims[axis]:
        raise Untranslatable(f"TopK of {k} out of {x.dims[axis]}", "shape")
    if x.dims[axis] > 1 << 24 and axis != x.rank - 1:
        raise Untranslatable("positions in so long an axis are no numbers of float32, in which they are transposed", "type")
    if x.kind.byte and (x.type.scale, x.type.zero_point) != (1.0, 0):
        raise Untranslatable("TopK of quantised numbers with a scale", "type")
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    x = transposed(w, x, perm)
    smallest = not node.attributes.get("largest", 1)
    if smallest:
        x = _turned_round(w, x)
    size = x.dims[-1]
    backward = gathered(w, x, x.rank - 1, w.vector(range(size)[::-1])) if size > 1 else x
    dims = (*x.dims[:-1], k)
    values, places = w.calls("TOPK_V2", [backward, w.int32(k)], [x.type.of(dims), OperandType(Kind.TENSOR_INT32, dims)])
    if smallest:
        values = _turned_round(w, values)
    back = [perm.index(i) for i in range(x.rank)]
    if node.outputs[0]:
        w.set(node.outputs[0], transposed(w, values, back))
    if len(node.outputs) > 1 and node.outputs[1]:
        found = binary(w, "SUB", like(w, places, size - 1), places)
        if back != sorted(back):  # TRANSPOSE takes no integers: positions are numbers of float32
            found = cast(w, transposed(w, cast(w, found, Kind.TENSOR_FLOAT32), back), Kind.TENSOR_INT32)
        w.set(node.outputs[1], found)


def _turned_round(w: Writer, x: Tensor) -> Tensor:
    """Other numbers, the larger of which are the smaller of these, and back: -x; of integers -1 - x, which always fits."""
    if x.kind.real:
        return unary(w, "NEG", x)
    if x.kind is not Kind.TENSOR_INT32:
        raise Untranslatable(f"NNAPI has the largest elements only, and {x.kind.name} has no negative of each", "type")
    return binary(w, "SUB", like(w, x, -1), x)


LOWERINGS: dict[str, Lowering] = {
    "TopK": _top_k,
    "MatMul": _mat_mul,
    "ReduceMean": _named("MEAN"),
    "ReduceSum": _named("REDUCE_SUM"),
    "ReduceMax": _named("REDUCE_MAX"),
    "ReduceMin": _named("REDUCE_MIN"),
    "ReduceProd": _named("REDUCE_PROD"),
    "ReduceL1": _reduction(_l1),
    "ReduceL2": _reduction(_l2),
    "ReduceSumSquare": _reduction(_sum_square),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ArgMax": _arg("ARGMAX"),
    "ArgMin": _arg("ARGMIN"),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance,
}
