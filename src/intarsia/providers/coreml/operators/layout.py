"""Operators that give elements another shape or place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import (
    ALL,
    CARRIERS,
    FLOATS,
    Handler,
    NodeBuilder,
    Var,
    known_size,
    shape_of,
)


def broadcast_to(b: NodeBuilder, x: Var, shape: Sequence[int]) -> Var:
    """A variable repeated along the axes where it has one element and `shape` more."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.broadcast_to(x, tuple(shape)).copy()
    given = shape_of(x)
    if given == tuple(shape):
        return x
    if not shape:
        return x
    x = b.reshape(x, (*(1,) * (len(shape) - len(given)), *given))
    reps = [want // have for want, have in zip(shape, shape_of(x), strict=True)]
    return b.moved(x, lambda v: b.mb.tile(x=v, reps=reps)) if set(reps) != {1} else x


def _to_out_shape(b: NodeBuilder) -> Var:
    """Reshape, Flatten, Squeeze, Unsqueeze: ONNX's inference has the shape."""
    b.only(*ALL)
    if all(isinstance(d, int) for d in b.out_dims()):
        found = b.reshape(b.x(), b.out_shape())
    else:
        found = _reshaped(b)
    return found if found is not b.x() else b.mb.identity(x=found)


def _reshaped(b: NodeBuilder) -> Var:
    """A reshape to sizes that vary: one of them is what is left over, the others are sizes of the input."""
    given, wanted, mb = b.dims(), b.out_dims(), b.mb
    if given == wanted:
        return b.x()
    open_axes = [i for i, d in enumerate(wanted) if not isinstance(d, int)]
    sizes: list[int | Var] = [d if isinstance(d, int) else -1 for d in wanted]
    if len(open_axes) == 1:
        return mb.reshape(x=b.x(), shape=sizes)
    shape, left = mb.shape(x=b.x()), 0
    for i in open_axes:
        at = next((k for k, d in enumerate(given) if d == wanted[i]), None)
        if at is None:
            left += 1
        else:
            sizes[i] = mb.slice_by_index(x=shape, begin=[at], end=[at + 1])
    if left > 1:
        raise b.refuse("Reshape to several sizes that vary and are none of the input's", "shape")
    pieces = [np.array([d], np.int32) if isinstance(d, int) else d for d in sizes]
    return mb.reshape(x=b.x(), shape=mb.concat(values=pieces, axis=0))


def _expand(b: NodeBuilder) -> Var:
    b.only(*ALL)
    if b.dims() == b.out_dims():
        return b.mb.identity(x=b.x())
    found = broadcast_to(b, b.x(), b.out_shape())
    return found if found is not b.x() else b.mb.identity(x=found)


def _transpose(b: NodeBuilder) -> Var:
    b.only(*ALL)
    perm = [int(p) for p in b.attribute("perm") or range(b.rank)[::-1]]
    return b.mb.transpose(x=b.x(), perm=perm) if perm != list(range(b.rank)) else b.mb.identity(x=b.x())


def _concat(b: NodeBuilder) -> Var:
    dtype = b.only(*ALL)
    rank = b.rank
    axis = b.axis(1 if b.node.version < 4 else 0, rank)
    values = [b.x(i) for i in range(len(b.node.inputs))]
    if len(values) == 1:
        return b.mb.identity(x=values[0])
    if dtype is DType.BOOL:
        return b.mb.cast(x=b.mb.concat(values=[b.movable(v) for v in values], axis=axis), dtype="bool")
    return b.mb.concat(values=values, axis=axis)


def _split(b: NodeBuilder) -> list[Var]:
    b.only(*ALL)
    axis = b.axis()
    sizes = [known_size(b.out_dims(i)[axis], b.node.outputs[i]) for i in range(len(b.node.outputs))]
    if len(sizes) == 1:
        return [b.mb.identity(x=b.x())]
    x = b.x()
    cast = x if b.dtype() is not DType.BOOL else b.movable(x)
    found = list(b.mb.split(x=cast, split_sizes=sizes, axis=axis))
    return [b.cast(v, CARRIERS[b.dtype()]) for v in found]


def _slice(b: NodeBuilder) -> Var:
    """Starts, ends and steps become places within the tensor: beyond its borders Core ML counts otherwise."""
    b.only(*ALL)
    if b.node.version < 10:
        starts = [int(n) for n in b.attribute("starts")]
        axes = [int(n) for n in b.attribute("axes") or range(len(starts))]
        steps = [1] * len(starts)
    else:
        starts = b.ints(1, "where slices begin")
        b.ints(2, "where slices end")
        axes = b.ints(3, "the axes of slices") if b.has(3) else list(range(len(starts)))
        steps = b.ints(4, "the steps of slices") if b.has(4) else [1] * len(starts)
    begin, step = [0] * b.rank, [1] * b.rank
    count: list[int | None] = [None] * b.rank
    for start, axis, stride in zip(starts, axes, steps, strict=True):
        axis %= b.rank
        size = b.size(axis)
        start += size if start < 0 else 0
        begin[axis] = min(max(start, 0), size - 1 if stride < 0 else size)
        count[axis], step[axis] = known_size(b.out_dims()[axis], b.node.outputs[0]), stride
    return strided(b, b.x(), begin, count, step)


def strided(b: NodeBuilder, x: Var, begin: Sequence[int], count: Sequence[int | None], step: Sequence[int]) -> Var:
    """`count` elements of each axis from `begin` on; None: all of it."""
    ends, masks = [], []
    for at, n, by in zip(begin, count, step, strict=True):
        end = 0 if n is None else at + (n - 1) * by + (1 if by > 0 else -1)
        ends.append(max(end, 0))
        masks.append(n is None or end < 0)
    return b.moved(x, lambda v: b.mb.slice_by_index(x=v, begin=list(begin), end=ends, stride=list(step), end_mask=masks))


def _tile(b: NodeBuilder) -> Var:
    b.only(*ALL)
    if b.node.version < 6:
        raise b.refuse("Tile of version 1 repeats along one axis of the run")
    reps = b.ints(1, "how often Tile repeats")
    return b.moved(b.x(), lambda v: b.mb.tile(x=v, reps=reps)) if set(reps) != {1} else b.mb.identity(x=b.x())


def _pad(b: NodeBuilder) -> Var:
    """Constants beside floats by Core ML's pad; the other modes, which read elements again, by gathering."""
    dtype = b.only(*ALL)
    rank, mode = b.rank, b.attribute("mode", "constant")
    if b.node.version < 11:
        pads = [int(n) for n in b.attribute("pads" if b.node.version > 1 else "paddings")]
    else:
        pads = b.ints(1, "how much is padded")
    low, high = [0] * rank, [0] * rank
    axes = [a % rank for a in b.ints(3, "the padded axes")] if b.has(3) else list(range(rank))
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[len(axes) + i]
    x = b.x()
    if any(n < 0 for n in (*low, *high)):
        begin = [max(-n, 0) for n in low]
        count = [d + min(a, 0) + min(c, 0) for d, a, c in zip(b.shape(), low, high, strict=True)]
        if min(count) < 1:
            raise b.refuse("negative pads leave nothing of an axis")
        x = strided(b, x, begin, count, [1] * rank)
        low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    if mode != "constant":
        return _gathered_pad(b, x, low, high, mode)
    if b.has(2):
        value = b.known(2, "the value of the padding").reshape(())
    else:
        value = np.array(b.attribute("value", 0), dtype.numpy)
    if not any((*low, *high)):
        return b.mb.identity(x=x)
    fill = value.astype(CARRIERS[dtype])[()]
    if dtype in FLOATS:
        return b.mb.pad(x=x, pad=[n for pair in zip(low, high, strict=True) for n in pair], mode="constant", constant_val=fill)
    return b.moved(x, lambda v: _filled(b, v, (low, high), np.int32(fill)))


def _filled(b: NodeBuilder, x: Var, pads: tuple[Sequence[int], Sequence[int]], fill: np.int32) -> Var:
    """Constants put beside integers, axis by axis."""
    for axis, (before, after) in enumerate(zip(*pads, strict=True)):
        shape = list(shape_of(x))
        sides = [np.full([*shape[:axis], n, *shape[axis + 1 :]], fill, np.int32) for n in (before, after)]
        pieces = [*(sides[:1] if before else []), x, *(sides[1:] if after else [])]
        x = b.mb.concat(values=pieces, axis=axis) if len(pieces) > 1 else x
    return x


def _gathered_pad(b: NodeBuilder, x: Var, low: Sequence[int], high: Sequence[int], mode: str) -> Var:
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if before or after:
            places = np.pad(np.arange(shape_of(x)[axis]), (before, after), mode=mode)  # type: ignore[call-overload] # ONNX's modes have NumPy's names
            x = b.moved(x, partial(_taken, b, places.astype(np.int32), axis))
    return x


def _taken(b: NodeBuilder, places: np.ndarray, axis: int, x: Var) -> Var:
    return b.mb.gather(x=x, indices=places, axis=axis)


def _depth_to_space(b: NodeBuilder) -> Var:
    """By reshapes of six axes at most five of which Core ML has at a time: the two halves one after the other."""
    b.only(*ALL)
    n, c, h, w = b.shape()
    size = int(b.attribute("blocksize"))
    depth = c // size**2
    mb = b.mb
    x = b.x()
    if b.attribute("mode", "DCR") == "DCR":
        x = b.reshape(x, (n * size, size, depth, h, w))  # rows of blocks, columns of blocks, channels
        x = b.reshape(mb.transpose(x=x, perm=[0, 2, 3, 4, 1]), (n, size, depth, h, w * size))
        x = mb.transpose(x=x, perm=[0, 2, 3, 1, 4])
    else:
        x = b.reshape(x, (n * depth, size, size, h, w))
        x = b.reshape(mb.transpose(x=x, perm=[0, 3, 1, 4, 2]), (n, depth, h, size, w * size))
    return b.reshape(x, (n, depth, h * size, w * size))


def _space_to_depth(b: NodeBuilder) -> Var:
    b.only(*ALL)
    if b.attribute("mode", "DCR") != "DCR":
        raise b.refuse("SpaceToDepth is translated for mode DCR")
    n, c, h, w = b.shape()
    size = int(b.attribute("blocksize"))
    mb = b.mb
    x = b.reshape(b.x(), (n * c, h // size, size, w // size, size))
    x = mb.transpose(x=x, perm=[0, 2, 4, 1, 3])
    x = b.reshape(x, (n, c, size * size, h // size, w // size))
    x = mb.transpose(x=x, perm=[0, 2, 1, 3, 4])
    return b.reshape(x, (n, c * size * size, h // size, w // size))


def _trilu(b: NodeBuilder) -> Var:
    dtype = b.only(*ALL)
    k = b.ints(1, "Trilu's diagonal")[0] if b.has(1) else 0
    shape = b.shape()
    ones = np.ones(shape[-2:], np.bool_)
    mask = np.triu(ones, k) if b.attribute("upper", 1) else np.tril(ones, k)
    cond = np.broadcast_to(mask, shape).copy()
    zero = np.zeros(shape, CARRIERS[dtype])
    return b.mb.select(cond=cond, a=b.x(), b=zero)


def _reverse_sequence(b: NodeBuilder) -> Var:
    """Places of lengths that are known become indices."""
    b.only(*ALL)
    lengths = b.ints(1, "the lengths of sequences")
    time, batch = b.axis(0, name="time_axis"), b.axis(1, name="batch_axis")
    shape = b.shape()
    place = np.tile(np.arange(shape[time]), (shape[batch], 1))
    for i, n in enumerate(lengths):
        place[i, :n] = np.arange(n)[::-1]
    wide = [1] * len(shape)
    wide[time], wide[batch] = shape[time], shape[batch]
    grid = (place.T if time < batch else place).reshape(wide)
    indices = np.broadcast_to(grid, shape).astype(np.int32)
    return b.moved(b.x(), lambda v: b.mb.gather_along_axis(x=v, indices=indices, axis=time))


def _shape_constant(b: NodeBuilder) -> Var:
    """Shape, Size: of sizes that are known."""
    shape = b.shape()
    if b.node.op_type == "Size":
        return np.int32(prod(shape))
    rank = len(shape)
    start, end = int(b.attribute("start", 0)), b.attribute("end")
    start = min(max(start + rank if start < 0 else start, 0), rank)
    end = rank if end is None else int(end)
    return np.array(shape[start : end + rank if end < 0 else end], np.int32)


HANDLERS: Mapping[str, Handler] = {
    "Concat": _concat, "DepthToSpace": _depth_to_space, "Expand": _expand, "Flatten": _to_out_shape, "Pad": _pad,
    "Reshape": _to_out_shape, "ReverseSequence": _reverse_sequence, "Shape": _shape_constant, "Size": _shape_constant,
    "Slice": _slice, "SpaceToDepth": _space_to_depth, "Split": _split, "Squeeze": _to_out_shape, "Tile": _tile,
    "Transpose": _transpose, "Trilu": _trilu, "Unsqueeze": _to_out_shape,
}  # fmt: skip
