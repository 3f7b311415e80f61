"""Losses, determinants, inverses, and writing into caches, over drawn shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_nodes import Drawn, array, check, drawn, seeds, wide
from hypothesis import given
from hypothesis import strategies as st

KINDS = st.sampled_from((np.float32, np.float64, np.float16))


@drawn
@given(
    st.sampled_from(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]), KINDS, st.sampled_from(["none", "sum", "mean"]),
    st.sampled_from([0, 1, 2, 5]), st.integers(1, 6), st.lists(st.integers(1, 4), max_size=2), seeds, st.data(),
)  # fmt: skip
def test_losses(
    op: str, dtype: Any, reduction: str, batch: int, classes: int, space: list[int], seed: int, data: st.DataObject
) -> None:
    batch = batch or (1 if reduction == "mean" else 0)
    x = array(seed, (batch, classes, *space), dtype)
    target = np.random.default_rng(seed).integers(0, classes, (batch, *space))
    ignored = data.draw(st.sampled_from([None, -1, 0]))
    if ignored == -1:
        target = np.where(np.random.default_rng(seed + 1).random(target.shape) < 0.3, -1, target)
    weights = array(seed + 2, (classes,), dtype, low=0.25, high=1) if data.draw(st.booleans()) else None
    v = wide(x)
    log = v
    if op.startswith("Softmax"):
        log = v - v.max(1, keepdims=True) - np.log(np.exp(v - v.max(1, keepdims=True)).sum(1, keepdims=True))
    w = (np.ones(classes) if weights is None else wide(weights))[np.maximum(target, 0)]
    w = np.where(target == ignored, 0, w) if ignored is not None else w
    loss = -np.take_along_axis(log, np.maximum(target, 0)[:, None], 1)[:, 0] * w
    if reduction == "mean":
        if w.sum() == 0:
            return  # 0 / 0
        loss = loss.sum() / w.sum()
    elif reduction == "sum":
        loss = loss.sum()
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    both = op.startswith("Softmax") and data.draw(st.booleans())
    node = Drawn(op, [x, target, weights], attributes, outputs=2 if both else 1, opset=13)
    check(node, [loss, log] if both else loss, 40 if dtype is not np.float16 else 24, scale=8 + 8 * loss.size)


@drawn
@given(st.sampled_from((np.float32, np.float64)), st.lists(st.sampled_from([0, 1, 2, 3]), max_size=2), st.integers(1, 9), seeds)
def test_determinants_and_inverses(dtype: Any, batch: list[int], size: int, seed: int) -> None:
    x = array(seed, (*batch, size, size), dtype, low=-1, high=1)
    x = (x + 2 * np.eye(size) * np.where(array(seed + 1, (*batch, 1, 1), bool), 1, -1)).astype(dtype)
    v = wide(x)
    check(Drawn("Det", [x], opset=22), np.linalg.det(v), 600, scale=np.abs(v).sum(-1).max(initial=1) ** min(size, 3))
    if (np.linalg.cond(v) < 1e3).all():
        check(Drawn("Inverse", [x], domain="com.microsoft", opset=1), np.linalg.inv(v), 6000, scale=4)


@drawn
@given(
    st.sampled_from((np.float32, np.int64, np.float16, bool)),
    st.integers(0, 3),
    st.integers(1, 5),
    st.booleans(),
    seeds,
    st.data(),
)
def test_tensor_scatter(dtype: Any, batch: int, length: int, circular: bool, seed: int, data: st.DataObject) -> None:
    """New rows are written into a cache at a place of each sequence."""
    rank, at = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 1))
    inner = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    axis = min(at, rank) + 1
    shape = [batch, *inner[: axis - 1], length, *inner[axis - 1 :]]
    count = data.draw(st.integers(0, length))
    new = [count if i == axis else d for i, d in enumerate(shape)]
    cache, update = array(seed, shape, dtype), array(seed + 1, new, dtype)
    places = np.random.default_rng(seed).integers(0, length if circular else length - count + 1, batch)
    expected = cache.copy()
    for b, i in np.ndindex(batch, count):
        place = (places[b] + i) % length
        np.moveaxis(expected[b], axis - 1, 0)[place] = np.moveaxis(update[b], axis - 1, 0)[i]
    attributes = {"mode": "circular" if circular else "linear", "axis": axis - len(shape) if data.draw(st.booleans()) else axis}
    places_given = None if not places.any() and data.draw(st.booleans()) else places
    check(Drawn("TensorScatter", [cache, update, places_given], attributes, opset=24), expected)
