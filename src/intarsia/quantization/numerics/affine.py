"""Affine quantisation: x = scale * (q - zero point). Scales and zero points of ranges, for any number of channels at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from intarsia.errors import InvalidArgument, NotImplemented
from intarsia.quantization.numerics.quant_types import FLOAT8, IntegerType, integer_type, storage_dtype

_FLOAT8_MOST = 448.0  # of E4M3FN


@dataclass(frozen=True)
class AffineParameters:
    """How a tensor is quantised.

    Attributes:
        scale: float32 or float16: a scalar, [channels], or in blocks of the tensor's rank with the number of blocks at `axis`.
        zero_point: of `kind` and the shape of `scale`.
        kind: ONNX's number of the quantised element type.
        axis: the axis of channels or blocks, counted from the front; None for one scale.
        block: elements along `axis` that share a scale; 0 without blocks.
        source: where the range comes from, in words.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    kind: int
    axis: int | None = None
    block: int = 0
    source: str = ""

    def with_scale(self, scale: np.ndarray) -> AffineParameters:
        return replace(self, scale=scale)


def least_scale(dtype: Any) -> float:
    """The smallest scale that a tensor of this type can have: float16 divides in float32, so subnormal scales serve."""
    info = np.finfo(dtype)
    return float(info.smallest_subnormal if info.bits == 16 else info.tiny)


def affine_of_range(
    least: np.ndarray, most: np.ndarray, bounds: tuple[int, int], symmetric: bool, least_width: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Zero points (int64) and scales (of the ranges' type) for ranges [least, most], element by element.

    Zero is inside every range, so that it is exact. A range without width gets the scale 1 and the zero point 0.

    Args:
        least, most: float32 or float16 of one shape.
        bounds: the least and greatest quantised value.
        symmetric: make the range symmetric about 0; the zero point is then the middle of `bounds`.
        least_width: ranges that are narrower are widened upwards to this.
    """
    low, high = bounds
    if low > 0 or high < 0:
        raise InvalidArgument(f"bounds of quantised values: expected a range around 0, got [{low}, {high}]")
    dtype = np.result_type(most)
    bottom = np.minimum(least, np.zeros((), dtype))
    top = np.maximum(most, np.zeros((), dtype))
    if least_width is not None:
        top = np.maximum(top, bottom + np.asarray(least_width, dtype))
    if symmetric:
        top = np.maximum(np.abs(bottom), np.abs(top))
        bottom = -top
    wide = (top.astype(np.float64) - bottom.astype(np.float64)) / (high - low)
    stored = wide.astype(dtype)
    narrow = (stored if dtype.itemsize == 2 else wide) < least_scale(dtype)
    if symmetric:
        points = np.full(np.shape(wide), np.round((low + high) / 2.0))
    else:
        points = np.round(low - bottom / np.where(narrow, 1.0, wide))
    return np.where(narrow, 0, points).astype(np.int64), np.where(narrow, np.ones((), dtype), stored)


def snapped_to_middle(
    least: float, most: float, bounds: tuple[int, int] = (0, 255), least_width: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Zero point (uint8) and scale (float32) where the zero point may only be the least value or the middle of `bounds`.

    The least value for ranges without negative numbers, else the middle with a scale that clips neither side.
    """
    low, high = bounds
    middle, width = (low + high + 1) // 2, high - low
    bottom, top = min(float(least), 0.0), max(float(most), 0.0)
    if least_width:
        top = max(top, bottom + float(least_width))
    if bottom >= 0.0:
        point, scale = low, top / width
    else:
        point, scale = middle, max(-bottom / (middle - low), top / (high - middle))
    if top <= bottom:
        scale = 1.0 / max(1, width)
    scale = max(scale, (least_width or 0.0) / width)
    return np.array(point, np.uint8), np.array(scale, np.float32)


def float8_scale(deviation: np.ndarray) -> np.ndarray:
    """The scale of float8 (E4M3FN) for values of this standard deviation: as if they were spread as its finite numbers are."""
    return np.array(deviation / _float8_deviation(), np.result_type(deviation))


def _float8_deviation() -> float:
    numbers = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return float(np.std(numbers[np.isfinite(numbers)]))


def quantized(values: np.ndarray, parameters: AffineParameters) -> np.ndarray:
    """The tensor in its quantised type, of the shape of `values` (float32 or float16), rounded half to even and clipped.

    One pass over slices of a few hundred KiB, in a buffer of that size, so that a large weight costs no second float copy.
    """
    if parameters.block:
        return _quantized_in_blocks(values, parameters)
    scale, point = (_along(values, a, parameters.axis) for a in (parameters.scale, parameters.zero_point))
    found = np.empty(values.shape, storage_dtype(parameters.kind))
    if not values.ndim or values.nbytes <= _SLICE:
        found[...] = rounded(values, scale, point, parameters.kind)
        return found
    step = max(1, _SLICE // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        own = part if parameters.axis == 0 else slice(None)
        step_scale, step_point = (a[own] if a.ndim else a for a in (scale, point))
        found[part] = rounded(values[part], step_scale, step_point, parameters.kind)
    return found


_SLICE = 1 << 19  # bytes that are rounded at once: what a second-level cache holds


def _along(values: np.ndarray, numbers: np.ndarray, axis: int | None) -> np.ndarray:
    """Numbers of channels in a shape that broadcasts over the tensor."""
    if axis is None or not np.ndim(numbers):
        return np.asarray(numbers).reshape(())
    shape = [1] * values.ndim
    shape[axis] = -1
    return np.asarray(numbers).reshape(shape)


def _quantized_in_blocks(values: np.ndarray, parameters: AffineParameters) -> np.ndarray:
    axis, block = parameters.axis or 0, parameters.block
    moved = np.moveaxis(values, axis, 0)
    scales, points = np.moveaxis(parameters.scale, axis, 0), np.moveaxis(parameters.zero_point, axis, 0)
    found = np.empty(moved.shape, storage_dtype(parameters.kind))
    for i in range(len(scales)):
        rows = slice(i * block, (i + 1) * block)
        found[rows] = rounded(moved[rows], scales[i], points[i], parameters.kind)
    return np.moveaxis(found, 0, axis)


def rounded(
    values: np.ndarray, scale: Any, point: Any, kind: int, bounds: tuple[int, int] | None = None
) -> np.ndarray:  # fmt: skip
    """round(values / scale) + point in the type `kind`, clipped to `bounds` (by default the type's)."""
    with np.errstate(all="ignore"):
        wide = np.asarray(np.divide(values, scale, dtype=np.float32))
        if kind == FLOAT8:
            nan = np.isnan(wide)
            np.clip(wide, -_FLOAT8_MOST, _FLOAT8_MOST, out=wide)
            wide[nan] = np.nan
            return wide.astype(ml_dtypes.float8_e4m3fn)
        own = integer_type(kind)
        low, high = bounds or (own.low, own.high)
        np.rint(wide, out=wide)
        offset = np.asarray(point).astype(np.float32)
        if offset.any():
            wide += offset
        np.clip(wide, low, high, out=wide)
        return wide.astype(np.int16 if own.bits == 4 else own.dtype).astype(own.dtype, copy=False)


def dequantized(values: np.ndarray, parameters: AffineParameters, dtype: Any = np.float32) -> np.ndarray:
    """scale * (q - zero point), as DequantizeLinear computes it, in `dtype`."""
    if parameters.block:
        axis, count = parameters.axis or 0, values.shape[parameters.axis or 0]
        scale, point = (
            np.repeat(a, parameters.block, axis).take(np.arange(count), axis) for a in (parameters.scale, parameters.zero_point)
        )
    else:
        scale, point = (_along(values, a, parameters.axis) for a in (parameters.scale, parameters.zero_point))
    wide = values.astype(np.float32) - np.asarray(point).astype(np.float32)
    return (wide * np.asarray(scale).astype(np.float32)).astype(dtype)


def tensor_parameters(values: np.ndarray, kind: int, rule: RangeRule) -> AffineParameters:
    """Parameters of a stored tensor by its own values: one scale, one for each channel, or one for each block.

    Args:
        values: float32 or float16.
        kind: ONNX's number of the quantised type.
        rule: how ranges become parameters.

    Raises:
        InvalidArgument: reduced ranges of float8.
        NotImplemented: blocks of a tensor that is no matrix.
    """
    if kind == FLOAT8:
        if rule.reduced:
            raise InvalidArgument("reduce_range: expected False for float8, got True")
        deviation = np.std(values) if values.size else np.zeros((), values.dtype)
        point = np.array(0, ml_dtypes.float8_e4m3fn)
        return AffineParameters(float8_scale(deviation), point, kind, source="standard deviation of the weights")
    own = integer_type(kind)
    if rule.block:
        return _block_parameters(values, own, rule)
    least, most = ends(values, rule.axis)
    return range_parameters(least, most, own, rule)


@dataclass(frozen=True)
class RangeRule:
    """How a range becomes a scale and a zero point.

    Attributes:
        symmetric: about 0.
        reduced: one bit less than the type has.
        least_width: narrower ranges are widened.
        axis: of channels or blocks.
        block: elements in a block; 0 without.
        source: where ranges come from, in words.
    """

    symmetric: bool
    reduced: bool = False
    least_width: float | None = None
    axis: int | None = None
    block: int = 0
    source: str = "values"


def range_parameters(least: np.ndarray, most: np.ndarray, own: IntegerType, rule: RangeRule) -> AffineParameters:
    """Parameters for ranges: scalars, or one of each channel."""
    bounds = own.bounds(symmetric=rule.symmetric, reduced=rule.reduced)
    points, scales = affine_of_range(least, most, bounds, rule.symmetric, rule.least_width)
    return AffineParameters(scales, points.astype(own.dtype), own.number, rule.axis, 0, rule.source)


def ends(values: np.ndarray, axis: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest value of a tensor or of each of its channels; 0 where it is empty."""
    if not values.size:
        none = np.zeros(() if axis is None else values.shape[axis], values.dtype)
        return none, none
    over = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    return np.asarray(values.min(axis=over)), np.asarray(values.max(axis=over))


def _block_parameters(values: np.ndarray, own: IntegerType, rule: RangeRule) -> AffineParameters:
    if values.ndim != 2:
        raise NotImplemented(f"blocks of weights: expected a matrix, got a tensor of shape {list(values.shape)}; reshape it")
    axis, block = rule.axis or 0, rule.block
    moved = np.moveaxis(values, axis, 0)
    starts = np.arange(0, len(moved), block)
    least, most = np.minimum.reduceat(moved, starts, axis=0), np.maximum.reduceat(moved, starts, axis=0)
    bounds = own.bounds(symmetric=rule.symmetric)
    points, scales = affine_of_range(least, most, bounds, rule.symmetric)
    points = np.clip(points, *bounds).astype(own.dtype)
    return AffineParameters(
        np.moveaxis(scales, 0, axis), np.moveaxis(points, 0, axis), own.number, axis, block, f"{rule.source}, in blocks"
    )
