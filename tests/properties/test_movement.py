"""Operators that move elements: slices, pads, joins, transposes, over drawn shapes and attributes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, shapes
from hypothesis import given
from hypothesis import strategies as st

TYPES = (np.float32, np.int64, np.uint8, bool, np.float16, np.complex64, object, ml_dtypes.int4)
types = st.sampled_from(TYPES)
COMMON = st.sampled_from((np.float32, np.int64, np.uint8, np.float16))


def constants(data: st.DataObject, *positions: int) -> tuple[int, ...]:
    return positions if data.draw(st.booleans(), label="constant") else ()


@drawn
@given(types, shapes(1, 4), seeds, st.data())
def test_slice(dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    x = array(seed, shape, dtype)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    far = st.one_of(st.integers(-9, 9), st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]))
    starts = [data.draw(far) for _ in axes]
    ends = [data.draw(far) for _ in axes]
    steps = [data.draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2, 7])) for _ in axes]
    where = [slice(None)] * len(shape)
    for a, b, c, s in zip(axes, starts, ends, steps, strict=True):
        n = shape[a]
        low, high = (0, n) if s > 0 else (0, n - 1)
        first = min(max(b + n if b < 0 else b, low), high)
        last = min(max(c + n if c < 0 else c, 0 if s > 0 else -1), n if s > 0 else n - 1)
        where[a] = slice(first, last, s) if s > 0 or last >= 0 else slice(first, None, s)
        if n == 0:
            where[a] = slice(0, 0)
    axes = [a - len(shape) if data.draw(st.booleans()) else a for a in axes]
    lists = [np.array(v, np.int64) for v in (starts, ends, axes, steps)]
    check(Drawn("Slice", [x, *lists], constant=constants(data, 1, 2, 3, 4) or (3, 4)), x[tuple(where)])


@drawn
@given(COMMON, shapes(1, 4), seeds, st.sampled_from(["constant", "edge", "reflect", "wrap"]), st.data())
def test_pad(dtype: Any, shape: tuple[int, ...], seed: int, mode: str, data: st.DataObject) -> None:
    if mode != "constant":
        shape = tuple(max(d, 1) for d in shape)
    x = array(seed, shape, dtype)
    rank = len(shape)
    pads = []
    for d in (*shape, *shape):
        most = {"constant": 5, "edge": 5, "reflect": min(d - 1, 5), "wrap": min(d, 5)}[mode]
        pads.append(data.draw(st.integers(-min(d // 2, 2), max(most, 0))))
    low, high = pads[:rank], pads[rank:]
    cut = x[tuple(slice(max(-a, 0), d - max(-b, 0)) for a, b, d in zip(low, high, shape, strict=True))]
    if mode in ("reflect", "wrap") and min(pads) < 0:
        pads = [max(p, 0) for p in pads]
        low, high, cut = pads[:rank], pads[rank:], x
    if mode == "edge" and cut.size == 0:
        return
    fill = array(seed + 1, (), dtype)
    amounts = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    expected = np.pad(cut, amounts, constant_values=fill) if mode == "constant" else np.pad(cut, amounts, mode=mode)
    check(
        Drawn("Pad", [x, np.array(pads), fill if mode == "constant" else None], {"mode": mode}, constant=constants(data, 1)),
        expected,
    )


@drawn
@given(types, shapes(1, 4), st.integers(1, 4), seeds, st.data())
def test_concat_and_split(dtype: Any, shape: tuple[int, ...], count: int, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = [data.draw(st.sampled_from([0, 1, 2, 3, 5, 8])) for _ in range(count)]
    parts = [
        array(seed + i, [n if a == axis % len(shape) else d for a, d in enumerate(shape)], dtype) for i, n in enumerate(sizes)
    ]
    joined = np.concatenate(parts, axis)
    check(Drawn("Concat", parts, {"axis": axis}, static=data.draw(st.booleans())), joined)
    check(Drawn("Split", [joined, np.array(sizes)], {"axis": axis}, outputs=count, constant=constants(data, 1)), parts)


@drawn
@given(types, shapes(0, 5, (0, 1, 2, 3, 4, 5)), seeds, st.booleans(), st.data())
def test_transpose(dtype: Any, shape: tuple[int, ...], seed: int, static: bool, data: st.DataObject) -> None:
    x = array(seed, shape, dtype)
    perm = data.draw(st.permutations(range(len(shape))))
    check(Drawn("Transpose", [x], {"perm": list(perm)} if shape else {}, static=static), x.transpose(perm))


@drawn
@given(types, shapes(0, 3, (0, 1, 2, 3, 5)), seeds, st.sampled_from(["Tile", "Expand"]), st.data())
def test_repeats(dtype: Any, shape: tuple[int, ...], seed: int, op: str, data: st.DataObject) -> None:
    x = array(seed, shape, dtype)
    if op == "Tile":
        repeats = [data.draw(st.integers(0, 3)) for _ in shape]
        expected = np.tile(x, repeats) if shape else x
    else:
        repeats = [data.draw(st.sampled_from([1, d] if d != 1 else [1, 2, 3, 0])) for d in shape]
        repeats = [data.draw(st.sampled_from([0, 1, 2, 3])) for _ in range(data.draw(st.integers(0, 2)))] + repeats
        repeats = repeats[data.draw(st.integers(0, len(repeats))) :]
        expected = np.broadcast_to(x, np.broadcast_shapes(shape, tuple(repeats)))
    check(Drawn(op, [x, np.array(repeats, np.int64)], constant=constants(data, 1)), expected)


@drawn
@given(types, shapes(0, 4), seeds, st.sampled_from(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Size"]), st.data())
def test_views(dtype: Any, shape: tuple[int, ...], seed: int, op: str, data: st.DataObject) -> None:
    x = array(seed, shape, dtype)
    rank = len(shape)
    if op == "Reshape":
        target = list(data.draw(st.permutations(shape)))
        expected = x.reshape(target)
        written = [0 if i < rank and d == shape[i] and data.draw(st.booleans()) else d for i, d in enumerate(target)]
        allow = int(0 in target)
        if not allow and written and data.draw(st.booleans()):
            written[data.draw(st.integers(0, len(written) - 1))] = -1
        check(
            Drawn(op, [x, np.array(target if allow else written, np.int64)], {"allowzero": allow}, constant=constants(data, 1)),
            expected,
        )
    elif op == "Flatten":
        axis = data.draw(st.integers(-rank, rank))
        a = axis if axis >= 0 else axis + rank
        check(Drawn(op, [x], {"axis": axis}), x.reshape(int(np.prod(shape[:a])), int(np.prod(shape[a:]))))
    elif op == "Squeeze":
        ones = [i for i, d in enumerate(shape) if d == 1]
        axes = [a - rank if data.draw(st.booleans()) else a for a in ones if data.draw(st.booleans())]
        every = data.draw(st.booleans())
        check(
            Drawn(op, [x, None if every else np.array(axes, np.int64)], constant=constants(data, 1)),
            x.squeeze() if every else x.squeeze(tuple(axes)),
        )
    elif op == "Unsqueeze":
        count = data.draw(st.integers(0, 2))
        axes = (
            data.draw(st.lists(st.integers(0, rank + count - 1), unique=True, min_size=count, max_size=count))
            if rank + count
            else []
        )
        check(Drawn(op, [x, np.array(axes, np.int64)], constant=constants(data, 1)), np.expand_dims(x, tuple(axes)))
    elif op == "Shape":
        start, end = data.draw(st.integers(-6, 6)), data.draw(st.one_of(st.none(), st.integers(-6, 6)))
        clipped = [min(max(v + rank if v < 0 else v, 0), rank) for v in (start, rank if end is None else end)]
        check(
            Drawn(op, [x], {"start": start} | ({} if end is None else {"end": end})),
            np.array(shape[clipped[0] : clipped[1]], np.int64),
        )
    else:
        check(Drawn(op, [x]), np.array(x.size, np.int64))


@drawn
@given(
    COMMON,
    st.sampled_from(["DepthToSpace", "SpaceToDepth", "Trilu", "EyeLike", "CenterCropPad", "ReverseSequence"]),
    seeds,
    st.data(),
)
def test_rearrangements(dtype: Any, op: str, seed: int, data: st.DataObject) -> None:
    n, c, h, w, b = (data.draw(st.integers(0 if i == 0 else 1, 3)) for i in range(5))
    if op == "DepthToSpace":
        mode = data.draw(st.sampled_from(["DCR", "CRD"]))
        x = array(seed, (n, c * b * b, h, w), dtype)
        if mode == "DCR":
            t = x.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            t = x.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        check(Drawn(op, [x], {"blocksize": b, "mode": mode}), t.reshape(n, c, h * b, w * b))
    elif op == "SpaceToDepth":
        x = array(seed, (n, c, h * b, w * b), dtype)
        t = x.reshape(n, c, h, b, w, b).transpose(0, 3, 5, 1, 2, 4)
        check(Drawn(op, [x], {"blocksize": b}), t.reshape(n, c * b * b, h, w))
    elif op == "Trilu":
        x = array(seed, (n, h, w), dtype)
        shift, upper = data.draw(st.one_of(st.none(), st.integers(-5, 5))), data.draw(st.booleans())
        keep = (np.triu if upper else np.tril)(np.ones((h, w), bool), shift or 0)
        operand = None if shift is None else np.array(shift)
        check(Drawn(op, [x, operand], {"upper": int(upper)}, constant=constants(data, 1)), np.where(keep, x, x.dtype.type(0)))
    elif op == "EyeLike":
        x, shift = array(seed, (n, w), dtype), data.draw(st.integers(-4, 4))
        check(Drawn(op, [x], {"k": shift}), np.eye(n, w, shift, dtype=dtype))
    elif op == "CenterCropPad":
        x = array(seed, (h, w + 2, c), dtype)
        wanted = [data.draw(st.integers(1, 6)) for _ in range(3)]
        expected = x
        for axis, size in enumerate(wanted):
            have = expected.shape[axis]
            if size < have:
                expected = np.take(expected, range((have - size) // 2, (have - size) // 2 + size), axis)
            elif size > have:
                low = (size - have) // 2
                expected = np.pad(expected, [(low, size - have - low) if a == axis else (0, 0) for a in range(3)])
        check(Drawn(op, [x, np.array(wanted)], constant=constants(data, 1)), expected)
    else:
        x = array(seed, (h + 3, w, 2), dtype)
        lengths = np.random.default_rng(seed).integers(0, h + 4, w)
        expected = x.copy()
        for i, length in enumerate(lengths):
            expected[:length, i] = x[:length, i][::-1]
        check(Drawn(op, [x, lengths]), expected)


@drawn
@given(st.sampled_from(["Range", "ConstantOfShape", "OneHot"]), seeds, st.data())
def test_generators(op: str, seed: int, data: st.DataObject) -> None:
    if op == "Range":
        dtype = data.draw(st.sampled_from((np.int64, np.int32, np.float32, np.float64, np.int16)))
        start, limit = data.draw(st.integers(-20, 20)), data.draw(st.integers(-20, 20))
        delta = data.draw(st.sampled_from([1, 2, 3, -1, -2, 7]))
        operands = [np.array(v, dtype) for v in (start, limit, delta)]
        check(Drawn(op, operands, constant=constants(data, 0, 2)), np.arange(start, limit, delta).astype(dtype))
    elif op == "ConstantOfShape":
        shape = data.draw(shapes(0, 3))
        value = array(seed, (1,), data.draw(COMMON))
        from onnx import numpy_helper

        node = Drawn(op, [np.array(shape, np.int64)], {"value": numpy_helper.from_array(value)}, constant=constants(data, 0))
        from drawn_nodes import assert_close, compiled

        assert_close(compiled(node, [value.dtype])[0], np.full(shape, value[0]), 0, 0, repr(node))
    else:
        indices = np.random.default_rng(seed).integers(-6, 6, data.draw(shapes(0, 2)))
        depth, axis = data.draw(st.integers(1, 6)), data.draw(st.integers(-indices.ndim - 1, indices.ndim))
        values = array(seed, (2,), data.draw(COMMON))
        inside = (indices >= -depth) & (indices < depth)
        hot = (np.mod(indices, depth)[..., None] == np.arange(depth)) & inside[..., None]
        expected = np.moveaxis(np.where(hot, values[1], values[0]), -1, axis)
        check(Drawn(op, [indices, np.array(depth), values], {"axis": axis}, constant=constants(data, 1)), expected)
