"""Gathers, scatters and selections over drawn shapes, indices and axes."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, shapes
from hypothesis import given
from hypothesis import strategies as st
from test_movement import constants

COMMON = st.sampled_from((np.float32, np.int64, np.uint8, np.float16, object, bool, ml_dtypes.uint4))
NUMBERS = st.sampled_from((np.float32, np.float64, np.int32, np.int64, np.float16))
SMALL = (0, 1, 2, 3, 4, 5, 8, 17)
SOME = SMALL[1:]
INDEX = st.sampled_from((np.int32, np.int64))


def indices_below(seed: int, extent: int, shape: tuple[int, ...], dtype: Any = np.int64) -> np.ndarray:
    """Indices of both signs."""
    return (
        np.random.default_rng(seed).integers(-extent, extent, shape).astype(dtype)
        if extent
        else np.zeros((*shape[:-1], 0), dtype)
    )


@drawn
@given(COMMON, shapes(1, 4, SMALL), shapes(0, 3, SMALL), INDEX, seeds, st.data())
def test_gather(dtype: Any, shape: tuple[int, ...], at: tuple[int, ...], kind: Any, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = array(seed, shape, dtype)
    if shape[axis] == 0:
        at = (*at, 0)
    indices = indices_below(seed, max(shape[axis], 1), at, kind)
    check(
        Drawn("Gather", [x, indices], {"axis": axis}, constant=constants(data, data.draw(st.integers(0, 1)))),
        np.take(x, indices, axis),
    )


@drawn
@given(COMMON, shapes(1, 4, SOME), INDEX, seeds, st.data())
def test_gather_elements(dtype: Any, shape: tuple[int, ...], kind: Any, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = array(seed, shape, dtype)
    at = tuple(data.draw(st.integers(0, d + 2 if i == axis % len(shape) else d)) for i, d in enumerate(shape))
    indices = indices_below(seed, shape[axis], at, kind)
    part = x[tuple(slice(None) if i == axis % len(shape) else slice(0, d) for i, d in enumerate(at))]
    expected = np.take_along_axis(part, np.mod(indices, shape[axis]).astype(np.int64), axis)
    check(Drawn("GatherElements", [x, indices], {"axis": axis}, constant=constants(data, 1)), expected)


@drawn
@given(COMMON, shapes(1, 4, SOME), seeds, st.data())
def test_gather_nd(dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    outer = (*shape[:batch], *data.draw(shapes(0 if batch else 1, 2, SMALL)))
    x = array(seed, shape, dtype)
    parts = [indices_below(seed + i, shape[batch + i], outer) for i in range(depth)]
    indices = np.stack(parts, -1)
    expected = np.empty((*outer, *shape[batch + depth :]), x.dtype)
    for at in np.ndindex(*outer):
        expected[at] = x[(*at[:batch], *(int(v) for v in indices[at]))]
    check(Drawn("GatherND", [x, indices], {"batch_dims": batch}, static=True, constant=constants(data, 1)), expected)


REDUCTIONS = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": max, "min": min, "none": lambda a, b: b}


@drawn
@given(NUMBERS, shapes(1, 3, SOME), st.sampled_from(sorted(REDUCTIONS)), seeds, st.data())
def test_scatter_elements(dtype: Any, shape: tuple[int, ...], reduction: str, seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = axis % len(shape)
    x = array(seed, shape, dtype)
    at = tuple(data.draw(st.integers(0, d)) for d in shape)
    indices = indices_below(seed, shape[a], at)
    if reduction == "none":  # which of several updates of one element stays is not defined
        order = np.argsort(np.random.default_rng(seed).random((*shape[:a], *shape[a + 1 :], shape[a])), axis=-1)
        indices = np.moveaxis(order, -1, a)[tuple(slice(0, d) for d in at)]
    updates = array(seed + 1, at, dtype)
    expected = x.astype(np.float64) if x.dtype.kind == "f" else x.copy()
    for p in np.ndindex(*at):
        q = tuple(int(indices[p]) if i == a else v for i, v in enumerate(p))
        expected[q] = REDUCTIONS[reduction](expected[q], expected.dtype.type(updates[p]))
    check(
        Drawn("ScatterElements", [x, indices, updates], {"axis": axis, "reduction": reduction}, constant=constants(data, 1)),
        expected,
        30,
        scale=4 if reduction == "add" else 0,
    )


@drawn
@given(NUMBERS, shapes(1, 3, SOME), st.sampled_from(sorted(REDUCTIONS)), seeds, st.data())
def test_scatter_nd(dtype: Any, shape: tuple[int, ...], reduction: str, seed: int, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    count = data.draw(st.integers(0, min(6, int(np.prod(shape[:depth])))))
    picked = np.random.default_rng(seed).permutation(int(np.prod(shape[:depth])))[:count]
    if reduction != "none" and count:
        picked[-1] = picked[0]
    indices = np.stack(np.unravel_index(picked, shape[:depth]), -1)
    indices = np.where(np.random.default_rng(seed + 1).random(indices.shape) < 0.3, indices - np.array(shape[:depth]), indices)
    x, updates = array(seed, shape, dtype), array(seed + 1, (count, *shape[depth:]), dtype)
    expected = x.astype(np.float64) if x.dtype.kind == "f" else x.copy()
    for at, u in itertools.product(range(count), np.ndindex(*shape[depth:])):
        q = (*(int(v) for v in indices[at]), *u)
        expected[q] = REDUCTIONS[reduction](expected[q], expected.dtype.type(updates[(at, *u)]))
    check(
        Drawn(
            "ScatterND",
            [x, indices, updates],
            {"reduction": reduction},
            static=data.draw(st.booleans()),
            constant=constants(data, 1),
        ),
        expected,
        30,
        scale=4 if reduction == "add" else 0,
    )


@drawn
@given(st.sampled_from((np.float32, np.float64, np.int32, np.int64, np.float16, np.uint8)), shapes(1, 3), seeds, st.data())
def test_topk(dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k, largest = data.draw(st.integers(0, shape[axis])), data.draw(st.booleans())
    x = np.round(array(seed, shape, dtype))  # with ties: the lower index comes first
    key = -x.astype(np.float64) if largest else x.astype(np.float64)
    at = np.take(np.argsort(key, axis, kind="stable"), range(k), axis)
    check(
        Drawn("TopK", [x, np.array([k])], {"axis": axis, "largest": int(largest)}, outputs=2, constant=constants(data, 1)),
        [np.take_along_axis(x, at, axis), at],
    )


@drawn
@given(
    st.sampled_from((np.float32, np.int64, np.int8, bool)),
    shapes(0, 3, SMALL),
    seeds,
    st.sampled_from(["NonZero", "Unique", "Compress"]),
    st.data(),
)
def test_selections(dtype: Any, shape: tuple[int, ...], seed: int, op: str, data: st.DataObject) -> None:
    x = np.round(array(seed, shape, dtype)) if dtype is not bool else array(seed, shape, dtype)
    if op == "NonZero":
        check(
            Drawn(op, [x]),
            np.array(np.nonzero(x) if shape else np.nonzero(x.reshape(1))[:0], np.int64).reshape(len(shape), -1)
            if shape
            else None,
        )
    elif op == "Compress":
        shape = shape or (3,)
        x = array(seed, shape, dtype)
        axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
        extent = x.size if axis is None else shape[axis]
        condition = array(seed + 1, (data.draw(st.integers(0, extent)),), bool)
        check(Drawn(op, [x, condition], {} if axis is None else {"axis": axis}), np.compress(condition, x, axis))
    else:
        shape = shape or (3,)
        x = np.round(array(seed, shape, np.int64 if dtype is bool else dtype))
        axis = data.draw(st.one_of(st.none(), st.integers(0, len(shape) - 1)))
        if axis is not None and x.size == 0:
            return
        y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        check(Drawn(op, [x], {} if axis is None else {"axis": axis}, outputs=4), [y, first, inverse.reshape(-1), counts])


@drawn
@given(
    st.sampled_from(["GatherElements", "GatherND", "ScatterElements", "ScatterND"]), COMMON, shapes(1, 4, SMALL),
    st.sampled_from(sorted(REDUCTIONS)), seeds, st.data(),
)  # fmt: skip
def test_nothing_is_moved(op: str, dtype: Any, shape: tuple[int, ...], reduction: str, seed: int, data: st.DataObject) -> None:
    """No indices, into tensors that may be empty."""
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape)))
    x = array(seed, shape, dtype)
    none = tuple(0 if i == axis % len(shape) else d for i, d in enumerate(shape))
    if op == "GatherElements":
        check(Drawn(op, [x, np.zeros(none, np.int64)], {"axis": axis}), x[:0].reshape(none))
    elif op == "GatherND":
        check(Drawn(op, [x, np.zeros((2, 0, depth), np.int64)], static=True), np.empty((2, 0, *shape[depth:]), x.dtype))
    elif op == "ScatterElements":
        attributes = {"axis": axis} | ({"reduction": reduction} if dtype in (np.float32, np.int64) else {})
        check(Drawn(op, [x, np.zeros(none, np.int64), array(seed, none, dtype)], attributes), x)
    else:
        operands = [x, np.zeros((0, depth), np.int64), np.empty((0, *shape[depth:]), x.dtype)]
        check(Drawn(op, operands, {"reduction": reduction} if dtype in (np.float32, np.int64) else {}, static=True), x)
