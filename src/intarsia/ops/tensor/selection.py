"""Operators whose output size depends on data: NonZero, Compress, Unique. They run on the host."""

from __future__ import annotations

import math

import numpy as np

from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.operands import normal_axis
from intarsia.ops.framework.registry import NodeContext, host_op
from intarsia.primitives import lang as k

_REASON = "the size of its output depends on the data"


def _nonzero_type(X: TensorType) -> TensorType:
    return TensorType(DType.INT64, None if X.shape is None else (max(len(X.shape), 1), fresh_symbol("nonzero")))


@host_op("NonZero", (9, 13), infer=_nonzero_type, reason=_REASON)
def nonzero(X: np.ndarray) -> np.ndarray:
    """Indices of the elements that are not zero, one row per axis, in row-major order."""
    found = X.reshape(-1) if X.ndim == 0 else X
    mask = found.astype(bool) if found.dtype != object else np.frompyfunc(bool, 1, 1)(found).astype(bool)
    return np.array(np.nonzero(mask), np.int64)


def _compress_type(input: TensorType, condition: TensorType, *, axis: int | None = None) -> TensorType:
    count = fresh_symbol("compress")
    if axis is None:
        return TensorType(input.dtype, (count,))
    if input.shape is None:
        return TensorType(input.dtype)
    shape: list[Dim] = list(input.shape)
    shape[normal_axis(axis, len(shape))] = count
    return TensorType(input.dtype, tuple(shape))


@host_op("Compress", (9, 11, 28), infer=_compress_type, reason=_REASON)
def compress(input: np.ndarray, condition: np.ndarray, *, axis: int | None = None) -> np.ndarray:
    """The slices along `axis` (elements, where it is None) whose condition holds; conditions that are missing are false."""
    if condition.ndim != 1:
        raise k.DefinitionError(f"condition has rank {condition.ndim}; expected 1")
    x = input.reshape(-1) if axis is None else input
    at = 0 if axis is None else normal_axis(axis, x.ndim)
    chosen = np.flatnonzero(condition[: x.shape[at]])
    return np.take(x, chosen, axis=at)


def _unique_types(X: TensorType, *, axis: int | None = None) -> tuple[TensorType, ...]:
    count = fresh_symbol("unique")
    inverse: Dim = fresh_symbol("unique_inverse")
    values: tuple[Dim, ...] | None = (count,)
    if axis is not None:
        values = None
        if X.shape is not None:
            at = normal_axis(axis, len(X.shape))
            values, inverse = (*X.shape[:at], count, *X.shape[at + 1 :]), X.shape[at]
    ints = TensorType(DType.INT64, (count,))
    return TensorType(X.dtype, values), ints, TensorType(DType.INT64, (inverse,)), ints


@host_op("Unique", (11, 28), infer=_unique_types, reason=_REASON)
def unique(X: np.ndarray, *, axis: int | None = None, sorted: int = 1, node: NodeContext) -> tuple[np.ndarray, ...]:
    """Distinct elements (slices along `axis`), the index of the first of each, which one each element is, and counts."""
    x = X.reshape(-1) if axis is None else X
    at = 0 if axis is None else normal_axis(axis, x.ndim)
    keys = _order_keys(x, at)
    _, first, inverse, counts = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, inverse, counts = first[order], rank[inverse], counts[order]
    indices = first.astype(np.int64)
    return np.take(x, indices, axis=at), indices, inverse.astype(np.int64), counts.astype(np.int64)


def _order_keys(x: np.ndarray, axis: int) -> np.ndarray:
    """One row per slice along `axis`, in a type that NumPy sorts by rows: strings by rank, narrow floats widened."""
    rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], math.prod(x.shape[:axis] + x.shape[axis + 1 :]))
    if rows.dtype == object:
        words = rows.reshape(-1).tolist()  # NumPy's own strings drop zeros at their ends
        ranks = {word: rank for rank, word in enumerate(sorted(set(words)))}
        return np.array([ranks[word] for word in words], np.int64).reshape(rows.shape)
    return rows if rows.dtype.kind in "biufc" else rows.astype(np.float32)
