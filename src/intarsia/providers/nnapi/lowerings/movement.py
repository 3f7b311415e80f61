"""Operators that move elements: shapes, slices, paddings, tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.graph.model import Node
from intarsia.providers.nnapi.expressions import (
    binary,
    compare,
    concatenated,
    filled,
    gathered,
    like,
    part,
    select,
    sliced,
    split,
    transposed,
)
from intarsia.providers.nnapi.lowerings.elementwise import Lowering
from intarsia.providers.nnapi.operands import Kind, Tensor, operand_dims
from intarsia.providers.nnapi.writer import AXIS_IN_NHWC, MOST_AXES, NHWC, TO_NCHW, TO_NHWC, Writer
from intarsia.providers.vendor.translator import Untranslatable


def axis_of(w: Writer, node: Node, default: int = 0, index: int = 0) -> int:
    """A node's axis, not negative."""
    rank = len(w.shape(node.inputs[index]))
    axis = int(node.attributes.get("axis", default))
    return axis + rank if axis < 0 else axis


def in_layout(axis: int, layout: str) -> int:
    """ONNX's axis in a layout."""
    return AXIS_IN_NHWC[axis] if layout == NHWC else axis


def _reshape(w: Writer, node: Node) -> None:
    x, dims = w.elements(node.inputs[0]), w.shape(node.outputs[0])
    w.set_elements(node.outputs[0], x if len(dims) > MOST_AXES else w.reshaped(x, dims))


def _transpose(w: Writer, node: Node) -> None:
    name = node.inputs[0]
    rank = len(w.shape(name))
    perm = [int(p) for p in node.attributes.get("perm") or range(rank)[::-1]]
    if rank > MOST_AXES:
        w.set_elements(node.outputs[0], _transposed_blocks(w, w.elements(name), w.shape(name), perm))
        return
    layout = w.layout(name) if name not in w.graph.constants else "plain"
    if layout == NHWC:  # result axis i is ONNX's axis perm[i], which lies at AXIS_IN_NHWC[perm[i]]
        in_nhwc = [AXIS_IN_NHWC[p] for p in perm]
        if in_nhwc == [0, 1, 2, 3] or perm != list(TO_NCHW):
            w.set(node.outputs[0], transposed(w, w.value(name, NHWC), in_nhwc))
            return
    if perm == list(TO_NCHW) and rank == 4 and not w.target.nchw:  # what comes is an image already
        w.set(node.outputs[0], w.value(name), NHWC)
        return
    w.set(node.outputs[0], transposed(w, w.value(name), perm))


def _transposed_blocks(w: Writer, x: Tensor, shape: Sequence[int], perm: Sequence[int]) -> Tensor:
    """Elements of any number of axes, transposed.

    Axes of size 1 go, and neighbours that stay neighbours become one. Where more than four are left, one after the other is
    brought before those that it overtakes.
    """
    longer = [axis for axis, size in enumerate(shape) if size != 1]
    runs: list[list[int]] = []
    for axis in (longer.index(p) for p in perm if shape[p] != 1):
        if runs and runs[-1][-1] + 1 == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    sizes = {run[0]: math.prod(shape[longer[axis]] for axis in run) for run in runs}
    wanted, now = list(sizes), sorted(sizes)
    if len(now) <= MOST_AXES:
        return transposed(w, w.reshaped(x, [sizes[a] for a in now]), [now.index(a) for a in wanted])
    for i, axis in enumerate(wanted):
        j = now.index(axis)
        if i < j:
            blocks = (now[:i], now[i:j], [axis], now[j + 1 :])
            counts = [math.prod(sizes[a] for a in block) for block in blocks]
            x = transposed(w, w.reshaped(x, counts), (0, 2, 1, 3))
            now.insert(i, now.pop(j))
    return x


def _concat(w: Writer, node: Node) -> None:
    axis = axis_of(w, node)
    names = [n for n in node.inputs if n]
    tensors, layout = w.together(names)
    if layout == NHWC:
        tensors = [w.value(n, NHWC) for n in names]
    if any(t.rank != tensors[0].rank for t in tensors):
        raise Untranslatable("NNAPI concatenates tensors of one rank")
    if tensors[0].kind in (Kind.TENSOR_BOOL8, Kind.TENSOR_INT32):
        raise Untranslatable(f"NNAPI's CONCATENATION takes no {tensors[0].kind.name}", "no-kernel")
    w.set(node.outputs[0], concatenated(w, tensors, in_layout(axis, layout)), layout)


def _split(w: Writer, node: Node) -> None:
    axis = axis_of(w, node)
    layout = w.layout(node.inputs[0])
    x, place = w.value(node.inputs[0], layout), in_layout(axis, layout)
    sizes = [w.shape(n)[axis] if n else 0 for n in node.outputs]
    if len(set(sizes)) == 1 and sum(sizes) == x.dims[place] and len(sizes) > 1:
        for name, found in zip(node.outputs, split(w, x, place, len(sizes)), strict=True):
            w.set(name, found, layout)
        return
    if 0 in sizes:
        raise Untranslatable("Split with an output that is left out")
    start = 0
    for name, size in zip(node.outputs, sizes, strict=True):
        w.set(name, x if size == x.dims[place] else part(w, x, place, start, size), layout)
        start += size


def _slice(w: Writer, node: Node) -> None:
    name = node.inputs[0]
    shape = w.shape(name)
    if node.version < 10:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes"), None
    else:
        given = [w.ints(n, f"the {what} of Slice") if n else None for n, what in
                 zip(node.inputs[1:5], ("starts", "ends", "axes", "steps"), strict=False)]  # fmt: skip
        starts, ends, axes, steps = [*given, None, None][:4]
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    layout = w.layout(name) if name not in w.graph.constants else "plain"
    x = w.value(name, layout)
    begin, size, stride = [0] * x.rank, list(x.dims), [1] * x.rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis += len(shape) if axis < 0 else 0
        rows = range(*slice(_clamped(start), _clamped(end), step).indices(shape[axis]))
        place = in_layout(axis, layout)
        begin[place], size[place], stride[place] = rows.start, len(rows), step
    if all(s == 1 for s in stride):
        found = x if tuple(size) == x.dims else sliced(w, x, begin, size)
    else:
        found = _strided(w, x, begin, size, stride)
    w.set(node.outputs[0], found, layout)


def _clamped(value: int) -> int:
    return max(min(value, 1 << 40), -(1 << 40))


def _strided(w: Writer, x: Tensor, begin: list[int], size: list[int], stride: list[int]) -> Tensor:
    """STRIDED_SLICE, or a GATHER for each axis where it does not take the type."""
    if x.kind is Kind.TENSOR_INT32 or x.rank > 4:
        for axis in range(x.rank):
            rows = [begin[axis] + stride[axis] * k for k in range(size[axis])]
            if rows != list(range(x.dims[axis])):
                x = gathered(w, x, axis, w.vector(rows))
        return x
    last = [b + s * n for b, s, n in zip(begin, stride, size, strict=True)]
    open_ends = sum(1 << i for i, (n, s) in enumerate(zip(last, stride, strict=True)) if s < 0 and n < 0)
    places = [w.vector(begin), w.vector([max(n, 0) for n in last]), w.vector(stride)]
    given = [x, *places, w.int32(0), w.int32(open_ends), w.int32(0)]
    return w.call("STRIDED_SLICE", given, x.type.of(size))


def wrapped(w: Writer, indices: Tensor, size: int) -> Tensor:
    """Indices from -size on, counted from the start: NNAPI has none from the end."""
    shifted = binary(w, "ADD", indices, like(w, indices, size))
    return select(w, compare(w, "LESS", indices, like(w, indices, 0)), shifted, indices)


def _indices(w: Writer, name: str, size: int) -> Tensor:
    array = w.array(name)
    if array is None:
        return wrapped(w, w.value(name), size)
    if array.size and (array.min() < -size or array.max() >= size):
        raise Untranslatable(f"indices from {array.min()} to {array.max()} in {size}")
    return w.constant(np.where(array < 0, array + size, array).astype(np.int32))


def _gather(w: Writer, node: Node) -> None:
    axis = axis_of(w, node)
    x = w.value(node.inputs[0])
    w.set(node.outputs[0], gathered(w, x, axis, _indices(w, node.inputs[1], x.dims[axis])))


def _gather_elements(w: Writer, node: Node) -> None:
    """A GATHER of all elements in a row, by the number of each."""
    axis = axis_of(w, node)
    x = w.value(node.inputs[0])
    dims = operand_dims(w.shape(node.inputs[1]))
    if x.type.size > 1 << 24:
        raise Untranslatable("NNAPI has nothing for GatherElements of so large a tensor")
    strides = [math.prod(x.dims[i + 1 :]) for i in range(x.rank)]
    places = np.indices(dims)
    start = sum(places[i] * strides[i] for i in range(x.rank) if i != axis) + np.zeros(dims, np.int64)
    rows = _indices(w, node.inputs[1], x.dims[axis])
    steps = binary(w, "MUL", rows, like(w, rows, strides[axis])) if strides[axis] != 1 else rows
    numbers = binary(w, "ADD", steps, w.constant(start)) if start.any() else steps
    w.set(node.outputs[0], gathered(w, w.reshaped(x, (x.type.size,)), 0, numbers))


def _expand(w: Writer, node: Node) -> None:
    x = w.value(node.inputs[0])
    w.set(node.outputs[0], filled(w, x, w.shape(node.outputs[0]) or (1,)))


def _tile(w: Writer, node: Node) -> None:
    x = w.value(node.inputs[0])
    repeats = w.ints(node.inputs[1], "the repeats of Tile")
    w.set(node.outputs[0], x if set(repeats) <= {1} else w.call("TILE", [x, w.vector(repeats)],
          x.type.of([d * r for d, r in zip(x.dims, repeats, strict=True)])))  # fmt: skip


def _pad(w: Writer, node: Node) -> None:
    mode = node.attributes.get("mode", "constant")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    shape = w.shape(node.inputs[0])
    if node.version < 11:
        pads, value = [int(p) for p in node.attributes["pads"]], float(node.attributes.get("value", 0.0))
    else:
        pads, value = w.ints(node.inputs[1], "the padding"), _pad_value(w, node)
    axes = list(range(len(shape)))
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = [a % len(shape) for a in w.ints(node.inputs[3], "the axes of Pad")]
    table = np.zeros((len(shape), 2), np.int32)
    for i, axis in enumerate(axes):
        table[axis] = pads[i], pads[i + len(axes)]
    if (table < 0).any() or mode in ("edge", "wrap"):
        raise Untranslatable(f"NNAPI has no padding of mode {mode}, or that takes off")
    layout = w.layout(node.inputs[0])
    x = w.value(node.inputs[0], layout)
    if layout == NHWC:
        table = table[list(TO_NHWC)]
    w.set(node.outputs[0], _padded(w, x, table, mode, value), layout)


def _padded(w: Writer, x: Tensor, table: np.ndarray, mode: str, value: float) -> Tensor:
    result = x.type.of([int(d + a + b) for d, (a, b) in zip(x.dims, table, strict=True)])
    if not table.any():
        return x
    paddings = w.constant(table)
    if mode == "reflect":
        if any(max(pair) >= d for pair, d in zip(table.tolist(), x.dims, strict=True)):
            raise Untranslatable("NNAPI reflects no more elements than there are")
        return w.call("MIRROR_PAD", [x, paddings, w.int32(0)], result)
    if x.kind.byte:
        raise Untranslatable("NNAPI pads quantised tensors by their zero point", "wrong")
    if value == 0:
        return w.call("PAD", [x, paddings], result)
    return w.call("PAD_V2", [x, paddings, w.number(x, value)], result)


def _pad_value(w: Writer, node: Node) -> float:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return 0.0
    found = w.array(node.inputs[2])
    if found is None:
        raise Untranslatable("NNAPI needs the value of padding as a constant")
    return float(found.reshape(()))


def _trilu(w: Writer, node: Node) -> None:
    shape = w.shape(node.inputs[0])
    k = w.ints(node.inputs[1], "the diagonal of Trilu")[0] if len(node.inputs) > 1 and node.inputs[1] else 0
    if math.prod(shape) > 1 << 22:
        raise Untranslatable("the mask of Trilu would be large")
    ones = np.ones(shape[-2:], np.bool_)
    mask = np.triu(ones, k) if node.attributes.get("upper", 1) else np.tril(ones, k)
    x = w.value(node.inputs[0])
    w.set(node.outputs[0], select(w, w.constant(mask), x, like(w, x, 0)))


def _one_hot(w: Writer, node: Node) -> None:
    """Where the index, counted from the start, is a column's number."""
    depth = w.ints(node.inputs[1], "the depth of OneHot")[0]
    shape = w.shape(node.inputs[0])
    axis = int(node.attributes.get("axis", -1))
    axis += len(shape) + 1 if axis < 0 else 0
    values = w.array(node.inputs[2])
    if values is None:
        raise Untranslatable("NNAPI needs the values of OneHot as constants")
    kind = w.type_of(node.outputs[0])
    indices = w.value(node.inputs[0])
    if indices.kind is not Kind.TENSOR_INT32:
        raise Untranslatable("NNAPI's indices are integers of 32 bits", "type")
    lifted = w.reshaped(wrapped(w, indices, depth), (*shape[:axis], 1, *shape[axis:]))
    columns = w.constant(np.arange(depth, dtype=np.int32).reshape(-1, *(1,) * (len(shape) - axis)))
    hit = compare(w, "EQUAL", lifted, columns)
    off, on = (w.constant(values[i : i + 1].astype(kind.kind.numpy), kind.of((1,))) for i in (0, 1))
    w.set(node.outputs[0], select(w, hit, on, off))


LOWERINGS: dict[str, Lowering] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Trilu": _trilu,
    "OneHot": _one_hot,
}
