"""Pools: reductions over windows of the spatial axes, over all of them, or over regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import Dim, dim_max, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.operands import widened
from intarsia.ops.framework.registry import NodeContext, host_op, op
from intarsia.ops.nn.region_samples import MOST_CORNER
from intarsia.ops.nn.sliding_windows import (
    DilatedPoolAttributes,
    PoolAttributes,
    Windows,
    check_padding,
    cut_to,
    is_large,
    met,
    per_axis,
    slide,
)
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import lowest

Ints = Sequence[int]


@op("MaxPool", since=(1, 8, 10, 11, 12, 22))
def max_pool(
    X: k.Tensor, *, attributes: DilatedPoolAttributes, storage_order: int = 0, node: NodeContext
) -> tuple[k.Tensor, k.Tensor | None]:
    _check_rank(X)
    windows = cut_to(attributes.windows(X.shape[2:]), X.shape[2:])
    view = slide(X, windows, lowest(X.dtype))
    axes = range(X.rank, view.rank)
    largest = k.reduce(view, "max", axes)
    if node.outputs < 2 or not node.wanted[1]:
        return largest, None
    return largest, _indices_of_largest(X, view, largest, windows, storage_order)


def _indices_of_largest(x: k.Tensor, view: k.Tensor, largest: k.Tensor, windows: Windows, storage_order: int) -> k.Tensor:
    """Position in the whole of x, as a flat index, of the first element of each window that equals its maximum."""
    axes = range(x.rank, view.rank)
    image = x.shape[2:]
    row_major = _flat_index(image, image, range(len(image)))
    places = slide(k.reshape(row_major, (1, 1, *image)), windows, -1)
    last = product(image)
    at_maximum = k.equal(view, k.expand_dims(largest, axes)) & (places >= 0)
    first = k.reduce(k.select(at_maximum, k.broadcast(places, view.shape), k.size(last)), "min", axes)
    first = k.minimum(first, k.size(last - 1))
    if storage_order:
        first = k.take(k.reshape(_flat_index(image, image[::-1], range(len(image) - 1, -1, -1)), (last,)), first, 0)
    plane = k.iota(largest.shape, 0) * k.size(x.shape[1]) + k.iota(largest.shape, 1)
    return first + plane * k.size(last)


def _flat_index(shape: Sequence[Dim], extents: Sequence[Dim], order: Sequence[int]) -> k.Tensor:
    """At each element of `shape`, its flat index when the axes are nested in `order` (outermost first)."""
    total: k.Tensor | None = None
    for extent, axis in zip(extents, order, strict=True):
        here = k.iota(shape, axis)
        total = here if total is None else total * k.size(extent) + here
    assert total is not None
    return total


@op("AveragePool", since=(1, 7, 10, 11, 19, 22))
def average_pool(X: k.Tensor, *, attributes: DilatedPoolAttributes, count_include_pad: int = 0) -> k.Tensor:
    return average_over(X, attributes, count_include_pad)


def average_over(X: k.Tensor, attributes: PoolAttributes, count_include_pad: int) -> k.Tensor:
    """The means of windows, of the elements that they have with the padding or without it."""
    _check_rank(X)
    wide = widened(X)
    windows = attributes.windows(X.shape[2:])
    total = k.reduce_sum(slide(wide, cut_to(windows, X.shape[2:]), 0), range(X.rank, 2 * X.rank - 2))
    if windows.unpadded or (count_include_pad and not windows.ceil):
        return k.cast(total / float(math.prod(attributes.kernel_shape)), X.dtype)
    return k.cast(total / _window_counts(X, windows, bool(count_include_pad), wide.dtype), X.dtype)


def _window_counts(x: k.Tensor, windows: Windows, include_pad: bool, dtype: DType) -> k.Tensor:
    """Elements that each window covers, [1, 1, *out]: of the input, or of the input with its explicit padding."""
    spatial = x.rank - 2
    count: k.Tensor | None = None
    for i in range(spatial):
        low, high, extent = windows.low[i], windows.high[i], x.shape[2 + i]
        if is_large(windows.sizes):
            covered = met(windows, i, -low, extent + high) if include_pad else met(windows, i, 0, extent)
            shape = [windows.out[i] if j == 2 + i else 1 for j in range(x.rank)]
            along = k.reshape(k.cast(covered, dtype), shape)
            count = along if count is None else count * along
            continue
        inside = (
            k.full((extent + low + high,), 1, dtype) if include_pad else k.pad(k.full((extent,), 1, dtype), [low], [high], 0)
        )
        axis = Windows(
            windows.sizes[i : i + 1], windows.strides[i : i + 1], windows.dilations[i : i + 1], (0,), (0,),
            windows.out[i : i + 1], windows.ceil,
        )  # fmt: skip
        along = k.reduce_sum(slide(inside, axis, 0, first=0), [1])
        along = k.reshape(along, [windows.out[i] if j == 2 + i else 1 for j in range(x.rank)])
        count = along if count is None else count * along
    assert count is not None
    return count


@op("LpPool", since=(1, 2, 11, 18, 22))
def lp_pool(X: k.Tensor, *, attributes: DilatedPoolAttributes, p: float = 2) -> k.Tensor:
    _check_rank(X)
    windows = cut_to(attributes.windows(X.shape[2:]), X.shape[2:])
    return k.cast(_lp_norm(slide(widened(X), windows, 0), range(X.rank, 2 * X.rank - 2), p, False), X.dtype)


def _lp_norm(x: k.Tensor, axes: Sequence[int], p: float, keepdims: bool) -> k.Tensor:
    if p == 0:
        raise k.DefinitionError("p is 0; expected the exponent of a norm, such as 2")
    if p == 1:
        return k.reduce_sum(k.absolute(x), axes, keepdims)
    if p == 2:
        return k.sqrt(k.reduce_sum(x * x, axes, keepdims))
    return k.power(k.reduce_sum(k.power(k.absolute(x), float(p)), axes, keepdims), 1.0 / p)


@op("GlobalAveragePool", since=(1, 22))
def global_average_pool(X: k.Tensor) -> k.Tensor:
    _check_rank(X)
    return k.cast(k.reduce_mean(widened(X), range(2, X.rank), True), X.dtype)


@op("GlobalMaxPool", since=(1, 22))
def global_max_pool(X: k.Tensor) -> k.Tensor:
    _check_rank(X)
    return k.reduce(X, "max", range(2, X.rank), True)


@op("GlobalLpPool", since=(1, 2, 22))
def global_lp_pool(X: k.Tensor, *, p: float = 2) -> k.Tensor:
    _check_rank(X)
    return k.cast(_lp_norm(widened(X), range(2, X.rank), p, True), X.dtype)


def _unpooled(x: k.Tensor, kernel_shape: Ints, strides: Ints | None, pads: Ints | None) -> list[Dim]:
    rank = x.rank - 2
    check_padding(pads or None, "NOTSET", rank)
    if len(kernel_shape) != rank or min(kernel_shape, default=1) < 1:
        raise k.DefinitionError(f"kernel_shape is {list(kernel_shape)}; expected {rank} sizes of at least 1")
    steps, edges = per_axis("strides", strides, rank), tuple(pads) if pads else (0,) * (2 * rank)
    return [(n - 1) * steps[i] + kernel_shape[i] - edges[i] - edges[rank + i] for i, n in enumerate(x.shape[2:])]


@op("MaxUnpool", since=(9, 11, 22), values=("output_shape",))
def max_unpool(
    X: k.Tensor, indices: k.Tensor, output_shape: Sequence[Dim] | None = None, *, kernel_shape: Ints,
    pads: Ints | None = None, strides: Ints | None = None,
) -> k.Tensor:  # fmt: skip
    _check_rank(X)
    shape = [*X.shape[:2], *_unpooled(X, kernel_shape, strides, None if output_shape is not None else pads)]
    flat = k.full((product(shape),), 0, X.dtype)
    count = product(X.shape)
    spread = k.scatter(flat, [k.reshape(indices, (count,))], k.reshape(X, (count,)))
    out = k.reshape(spread, shape)
    if output_shape is None:
        return out
    wanted = list(output_shape)
    if len(wanted) != X.rank:
        raise k.DefinitionError(f"output_shape has {len(wanted)} sizes; X has rank {X.rank}")
    more = [dim_max(w - n, 0) for w, n in zip(wanted, shape, strict=True)]
    return k.strided_slice(k.pad(out, (0,) * X.rank, more, 0), (0,) * X.rank, (1,) * X.rank, wanted)


def _roi_pool_type(X: TensorType, rois: TensorType, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> TensorType:
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise k.DefinitionError(f"pooled_shape is {list(pooled_shape)}; expected 2 sizes of at least 1")
    if X.shape is None or rois.shape is None:
        return TensorType(X.dtype)
    if len(X.shape) != 4 or len(rois.shape) != 2:
        raise k.DefinitionError(
            f"X is {X}, rois {rois}, pooled_shape {list(pooled_shape)}; expected [N, C, H, W], [regions, 5], two"
        )
    k.require_equal(rois.shape[1], 5, "the numbers of a region in rois, its image first")
    return TensorType(X.dtype, (rois.shape[0], X.shape[1], *(int(n) for n in pooled_shape)))


@host_op("MaxRoiPool", since=(1, 22), infer=_roi_pool_type, reason="the extent of each bin depends on the regions' coordinates")
def max_roi_pool(X: np.ndarray, rois: np.ndarray, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> np.ndarray:
    """Largest element of each bin of each region [batch, x1, y1, x2, y2]; 0 where a bin lies outside the image."""
    high, wide = (int(n) for n in pooled_shape)
    out = np.zeros((len(rois), X.shape[1], high, wide), X.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        corners = within(np.round(rois[:, 1:].astype(np.float32) * np.float32(spatial_scale)), -MOST_CORNER, MOST_CORNER)
        batches = within(rois[:, 0].astype(np.float32), -1, 1 << 31)
    for r, (x1, y1, x2, y2) in enumerate(corners):
        batch = int(batches[r])
        if not 0 <= batch < len(X):
            raise k.DefinitionError(f"region {r} is of image {batch}; X has {len(X)}")
        image = X[batch]
        rows = _bins(int(y1), int(y2), high, image.shape[1])
        columns = _bins(int(x1), int(x2), wide, image.shape[2])
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                if bottom > top and right > left:
                    out[r, :, i, j] = image[:, top:bottom, left:right].max(axis=(1, 2))
    return out


def within(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Floats clamped to bounds (NaN: the lower) and cut to integers."""
    return np.asarray(np.clip(np.where(np.isnan(x), low, x), low, high), np.int64)


def _bins(start: int, end: int, count: int, extent: int) -> list[tuple[int, int]]:
    """The region [start, end] cut into `count` overlapping bins, clipped to the image."""
    size = max(end - start + 1, 1)
    edges = [(i * size // count + start, -(-(i + 1) * size // count) + start) for i in range(count)]
    return [(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


def _check_rank(x: k.Tensor) -> None:
    if x.rank < 3:
        raise k.DefinitionError(f"a pool needs X [N, C, D1, ...], got {x!r}")
