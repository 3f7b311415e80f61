"""Reductions, running sums, softmax and normalisations over drawn shapes, types and axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from drawn_nodes import FLOATS, SIDES, Drawn, array, check, drawn, seeds, shapes, structures, wide
from hypothesis import given
from hypothesis import strategies as st

EPSILON = 2.0**-10  # exact as a float32, which attributes are
SOME = tuple(d for d in SIDES if d)  # without 0


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceL1": lambda x, **kw: np.sum(np.abs(x), **kw),
    "ReduceL2": lambda x, **kw: np.sqrt(np.sum(x * x, **kw)),
    "ReduceSumSquare": lambda x, **kw: np.sum(x * x, **kw),
    "ReduceLogSum": lambda x, **kw: np.log(np.sum(x, **kw)),
    "ReduceLogSumExp": _log_sum_exp,
}


@drawn
@given(
    st.sampled_from(sorted(REDUCTIONS)),
    st.sampled_from((*FLOATS, np.int32, np.int64)),
    shapes(0, 4),
    seeds,
    st.data(),
)
def test_reductions(op: str, dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    rank = len(shape)
    axes = data.draw(st.one_of(st.none(), st.lists(st.integers(0, max(rank - 1, 0)), unique=True, max_size=rank)))
    if axes is not None:
        axes = [a - rank if data.draw(st.booleans()) else a for a in axes]
    keep, noop, old = (data.draw(st.booleans()) for _ in range(3))
    kept_axes = (
        range(rank)
        if noop and not old and not axes
        else [i for i in range(rank) if axes and i not in axes and i - rank not in axes]
    )
    shape = tuple(d if i in kept_axes else max(d, 1) for i, d in enumerate(shape))  # of nothing: the test below
    if op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceL2"):
        dtype = np.float32 if dtype in (np.int32, np.int64) else dtype
    x = array(seed, shape, dtype, low=0.5 if op in ("ReduceLogSum", "ReduceProd") else -2, high=2)
    along = tuple(axes) if axes else () if noop and not old else None
    with np.errstate(all="ignore"):
        terms = wide(x)
        expected = np.asarray(REDUCTIONS[op](terms, axis=along, keepdims=keep))
        total = np.sum(
            np.abs(terms).astype(np.float64) ** (2 if op in ("ReduceL2", "ReduceSumSquare") else 1), axis=along, keepdims=keep
        )
    attributes: dict[str, Any] = {"keepdims": int(keep)}
    if old:  # axes as an attribute, until opset 13
        node = Drawn(op, [x], attributes | ({"axes": axes} if axes else {}), opset=12)
        if op == "ReduceSumSquare" or dtype in FLOATS[2:]:
            node.opset = 11 if dtype in FLOATS[:2] else 12
    else:
        given_axes = None if axes is None else np.array(axes, np.int64)
        node = Drawn(
            op,
            [x, given_axes],
            attributes | {"noop_with_empty_axes": int(noop)},
            constant=(1,) if data.draw(st.booleans()) else (),
        )
    if dtype not in FLOATS:
        expected = expected.astype(dtype)
    units = 4 if op in ("ReduceMax", "ReduceMin") else 24 + x.size // 8
    check(node, expected, units, scale=1 if op.startswith("ReduceLog") else np.maximum(total, 1) if op == "ReduceL2" else total)


@drawn
@given(
    st.sampled_from(["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"]),
    st.sampled_from((np.float32, np.int32, np.float16)),
    shapes(1, 4),
    st.data(),
)
def test_reductions_of_nothing(op: str, dtype: Any, shape: tuple[int, ...], data: st.DataObject) -> None:
    """Along an axis of size 0: the neutral element."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    shape = tuple(0 if i == axis else d for i, d in enumerate(shape))
    info = np.iinfo(dtype) if dtype is np.int32 else None
    neutral = {"ReduceProd": 1, "ReduceMax": info.min if info else -np.inf, "ReduceMin": info.max if info else np.inf}.get(
        op, 0
    )
    kept = tuple(1 if i == axis else d for i, d in enumerate(shape))
    check(Drawn(op, [np.zeros(shape, dtype), np.array([axis])]), np.full(kept, neutral, dtype))


@drawn
@given(
    st.sampled_from(["ArgMax", "ArgMin"]),
    st.sampled_from((*FLOATS, np.int32, np.uint8, np.int64)),
    shapes(1, 4),
    seeds,
    st.data(),
)
def test_arg_reductions(op: str, dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    if shape[axis] == 0:
        shape = tuple(3 if i == axis % len(shape) else d for i, d in enumerate(shape))
    keep, last = data.draw(st.booleans()), data.draw(st.booleans())
    x = np.round(array(seed, shape, dtype))  # so that there are ties
    find = np.argmax if op == "ArgMax" else np.argmin
    expected = shape[axis] - 1 - find(np.flip(wide(x), axis), axis) if last else find(wide(x), axis)
    expected = np.expand_dims(expected, axis) if keep else expected
    check(Drawn(op, [x], {"axis": axis, "keepdims": int(keep), "select_last_index": int(last)}), expected)


@drawn
@given(
    st.sampled_from(["CumSum", "CumProd"]),
    st.sampled_from((np.float32, np.float64, np.int32, np.int64, np.float16)),
    shapes(1, 4),
    seeds,
    st.data(),
)
def test_running(op: str, dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    x = array(seed, shape, dtype, low=0.5, high=1.5)
    v = np.flip(wide(x), axis) if reverse else wide(x)
    run = np.cumsum if op == "CumSum" else np.cumprod
    if exclusive:
        first = np.full_like(np.take(v, [0], axis) if v.shape[axis] else v, op == "CumProd")
        v = np.concatenate([first, np.delete(v, -1, axis)], axis) if v.shape[axis] else v
    with np.errstate(all="ignore"):
        expected = run(v, axis=axis)
    expected = np.flip(expected, axis) if reverse else expected
    node = Drawn(
        op,
        [x, np.array(axis)],
        {"exclusive": int(exclusive), "reverse": int(reverse)},
        constant=(1,) if data.draw(st.booleans()) else (),
        opset=26 if op == "CumProd" else 25,
    )
    check(node, expected if dtype in FLOATS else expected.astype(dtype), 40)


@drawn
@given(st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]), st.sampled_from(FLOATS), shapes(1, 4), seeds, st.data())
def test_softmax(op: str, dtype: Any, shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    old = data.draw(st.booleans()) and dtype is np.float32
    x = array(seed, shape, dtype, low=-30, high=30)
    v = wide(x)
    if old:  # until opset 12: over the matrix of shape [before axis, the rest]
        a = axis % len(shape)
        v = v.reshape(int(np.prod(shape[:a])), int(np.prod(shape[a:])))
    along = 1 if old else axis
    if v.shape[along] == 0:
        expected = v.reshape(shape)
    elif op == "Hardmax":
        expected = np.zeros_like(v)
        np.put_along_axis(expected, np.expand_dims(np.argmax(v, along), along), 1, along)
    else:
        top = v - v.max(axis=along, keepdims=True)
        expected = top - np.log(np.exp(top).sum(axis=along, keepdims=True))
        expected = np.exp(expected) if op == "Softmax" else expected
    check(
        Drawn(op, [x], {"axis": axis}, opset=11 if old else 25),
        expected.reshape(shape),
        40,
        scale=1 if op == "LogSoftmax" else 1e-3,
    )


@drawn
@given(structures, seeds, st.data())
def test_layer_norm(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    dtype, rank = FLOATS[rng.integers(len(FLOATS))], int(rng.integers(1, 4))
    axis, biased, rms, constant = int(rng.integers(-rank, rank)), rng.integers(2), rng.integers(2), rng.integers(4) == 0
    sides = (1, 2, 3, 8, 17)
    outer = (0, *sides)  # axes that are not normalised may be empty
    shape = tuple(
        int(rng.choice(sides)) if constant else data.draw(st.sampled_from(outer if i < axis % rank else sides))
        for i in range(rank)
    )
    x, weights = array(seed, shape, dtype), structure if constant else seed + 1
    weight, bias = array(weights, shape[axis:], dtype), array(weights + 1, shape[axis:], dtype)
    v = wide(x)
    along = tuple(range(axis % len(shape), len(shape)))
    if not rms:
        v = v - v.mean(axis=along, keepdims=True)
    variance = (v * v).mean(axis=along, keepdims=True)
    expected = v / np.sqrt(variance + EPSILON) * wide(weight)
    if rms:
        node = Drawn("RMSNormalization", [x, weight], {"axis": axis, "epsilon": EPSILON})
    else:
        expected = expected + wide(bias) if biased else expected
        node = Drawn("LayerNormalization", [x, weight, bias if biased else None], {"axis": axis, "epsilon": EPSILON})
    node.constant = (1, 2) if constant else ()
    check(node, expected, 40 if dtype in FLOATS[:2] else 12, scale=4)


@drawn
@given(
    st.sampled_from(
        [
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
            "LRN",
        ]
    ),
    st.sampled_from((np.float32, np.float64, np.float16)),
    st.integers(0, 3),
    st.sampled_from([1, 2, 3, 4, 6, 8, 17]),
    shapes(0, 3, SOME),
    seeds,
    st.data(),
)
def test_channel_norms(
    op: str, dtype: Any, batch: int, channels: int, spatial: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    if op in ("InstanceNormalization", "GroupNormalization") and not spatial:
        spatial = (3,)
    if op in ("MeanVarianceNormalization", "LRN"):
        spatial = (*spatial, 2, 3)[:2]
    shape = (batch, channels, *spatial)
    x = array(seed, shape, dtype)
    v = wide(x)
    space = tuple(range(2, len(shape)))
    per = [array(seed + i, (channels,), dtype, low=0.5, high=2) for i in range(1, 5)]
    column = [wide(p).reshape(-1, *[1] * len(spatial)) for p in per]
    constant = (1, 2, 3, 4) if data.draw(st.booleans()) else ()
    if op == "BatchNormalization":
        expected = (v - column[2]) / np.sqrt(column[3] + EPSILON) * column[0] + column[1]
        check(Drawn(op, [x, *per], {"epsilon": EPSILON}, constant=constant), expected, 30, scale=8)
    elif op == "InstanceNormalization":
        expected = (v - v.mean(space, keepdims=True)) / np.sqrt(v.var(space, keepdims=True) + EPSILON) * column[0] + column[1]
        check(Drawn(op, [x, *per[:2]], {"epsilon": EPSILON}, constant=constant), expected, 40, scale=8)
    elif op == "GroupNormalization":
        groups = data.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        t = v.reshape(batch, groups, v[:1, : channels // groups].size or channels // groups * int(np.prod(spatial)))
        t = (t - t.mean(-1, keepdims=True)) / np.sqrt(t.var(-1, keepdims=True) + EPSILON)
        expected = t.reshape(shape) * column[0] + column[1]
        check(Drawn(op, [x, *per[:2]], {"epsilon": EPSILON, "num_groups": groups}, constant=constant), expected, 40, scale=8)
    elif op == "LpNormalization":
        axis, p = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.sampled_from([1, 2]))
        norm = np.abs(v).sum(axis, keepdims=True) if p == 1 else np.sqrt((v * v).sum(axis, keepdims=True))
        check(Drawn(op, [x], {"axis": axis, "p": p}), v / norm, 30, scale=1)
    elif op == "LRN":
        size = data.draw(st.sampled_from([1, 3, 5]))
        half = (size - 1) // 2
        square = np.stack([(v * v)[:, max(0, c - half) : c + half + 1].sum(1) for c in range(channels)], 1)
        check(
            Drawn(op, [x], {"size": size, "alpha": 0.125, "beta": 0.75, "bias": 1.0}, opset=13),
            v / (1 + 0.125 / size * square) ** 0.75,
            30,
        )
    else:
        batch = max(batch, 1)
        x = array(seed, (batch, *shape[1:]), dtype)
        v, along = wide(x), (0, 2, 3)
        mean, square = v.mean(along, keepdims=True), (v * v).mean(along, keepdims=True)
        deviation = np.sqrt(np.maximum(square - mean * mean, 0))
        good = deviation > 0.05
        node = Drawn(op, [x], {"axes": list(along)}, opset=13)
        if good.all():
            check(node, (v - mean) / (deviation + 1e-9), 400, scale=4)
