"""Slice, Pad, CenterCropPad, ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.axes import slice_bounds
from intarsia.graph.dims import Dim, Expr, dim_max, floordiv, format_shape, is_nonnegative
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import along, as_scalar, dims, integers, normal_axes, normal_axis
from intarsia.ops.framework.registry import op
from intarsia.primitives import lang as k

Tensor = k.Tensor


def _sliced(
    x: Tensor, starts: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Tensor:
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise k.DefinitionError(
            f"starts, ends, axes and steps must have one length, got {len(starts)}, {len(ends)}, {len(axes)} and {len(steps)}"
        )
    if 0 in steps:
        raise k.DefinitionError("steps must not be 0")
    first: list[Dim] = [0] * x.rank
    stride = [1] * x.rank
    shape = list(x.shape)
    for axis, start, end, step in zip(normal_axes(axes, x.rank), starts, ends, steps, strict=True):
        first[axis], shape[axis] = slice_bounds(start, end, step, x.shape[axis])
        stride[axis] = step
    return k.strided_slice(x, first, stride, shape, inside=True)


@op("Slice", 1)
def slice_attributes(data: Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None) -> Tensor:
    return _sliced(data, starts, ends, axes, None)


@op("Slice", (10, 11, 13), values=("starts", "ends", "axes", "steps"))
def slice_inputs(
    data: Tensor, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> Tensor:
    """Starts and ends may be symbolic; axes and steps must be known."""
    along_axes = None if axes is None else integers(axes, "axes")
    return _sliced(data, dims(starts), dims(ends), along_axes, None if steps is None else integers(steps, "steps"))


MODES = ("constant", "reflect", "edge", "wrap")


def padded(x: Tensor, low: Sequence[Dim], high: Sequence[Dim], mode: str, value: k.Operand) -> Tensor:
    """ONNX's Pad on all axes; negative amounts crop (before padding)."""
    if mode not in MODES:
        raise k.DefinitionError(f"mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}")
    if mode == "constant":
        return _pad_constant(x, low, high, value)
    for axis in range(x.rank):
        if low[axis] != 0 or high[axis] != 0:
            x = _pad_by_index(x, axis, low[axis], high[axis], mode)
    return x


def _pad_constant(x: Tensor, low: Sequence[Dim], high: Sequence[Dim], value: k.Operand) -> Tensor:
    if any(_is_shift(a, b) and not isinstance(d, int) for d, a, b in zip(x.shape, low, high, strict=True)):
        starts, shape = (
            [dim_max(-p, 0) for p in low],
            [dim_max(d + a + b, 0) for d, a, b in zip(x.shape, low, high, strict=True)],
        )
        x = k.pad(x, [dim_max(p, 0) for p in low], [dim_max(p, 0) for p in high], value)
        return k.strided_slice(x, starts, [1] * x.rank, shape, inside=True)
    if not all(is_nonnegative(p) for p in (*low, *high)):
        starts = [dim_max(-p, 0) for p in low]
        shape = [dim_max(d - s - dim_max(-p, 0), 0) for d, s, p in zip(x.shape, starts, high, strict=True)]
        x = k.strided_slice(x, starts, [1] * x.rank, shape, inside=True)
        low, high = [dim_max(p, 0) for p in low], [dim_max(p, 0) for p in high]
    return k.pad(x, low, high, value)


def _is_shift(low: Dim, high: Dim) -> bool:
    """Whether as much is padded at one end as is cropped at the other, or more: then the size is known without a maximum."""
    return isinstance(low, int) and isinstance(high, int) and low * high < 0 and low + high >= 0


def _pad_by_index(x: Tensor, axis: int, low: Dim, high: Dim, mode: str) -> Tensor:
    """Element i of the result is element f(i - low) of x, f by mode; a negative amount crops the result."""
    extent = x.shape[axis]
    if not (is_nonnegative(low) and is_nonnegative(high)):
        return k.take(x, _sources(x, axis, low, high, mode, 0, extent + low + high), axis)
    ends = [(start, count) for start, count in ((0, low), (low + extent, high)) if count != 0]
    parts = [k.take(x, _sources(x, axis, low, high, mode, start, count), axis) for start, count in ends]
    return k.concat([*parts[: low != 0], x, *parts[low != 0 :]], axis)


def _sources(x: Tensor, axis: int, low: Dim, high: Dim, mode: str, start: Dim, count: Dim) -> Tensor:
    """Which elements of x come at `count` places of the result from `start` on."""
    extent = x.shape[axis]
    at = k.iota((count,), 0) + k.size(start - low)
    if mode == "edge":
        at = k.minimum(k.maximum(at, 0), k.size(extent - 1))
    elif mode == "wrap":
        if _at_most(low, extent) and _at_most(high, extent):  # a division of 64-bit integers is no vector instruction
            at = k.select(at < 0, at + k.size(extent), at)
            at = k.select(at < k.size(extent), at, at - k.size(extent))
        else:
            at = k.binary("mod", at, k.size(extent))
    else:
        if _at_most(low, extent - 1) and _at_most(high, extent - 1):
            at = k.absolute(at)
        else:
            at = k.binary("mod", at, k.size(dim_max((extent - 1) * 2, 1)))
        at = k.minimum(at, k.size((extent - 1) * 2) - at)
    return at


def _at_most(amount: Dim, limit: Dim) -> bool:
    return isinstance(amount, int) and isinstance(limit, int) and amount <= limit


def _halves(x: Tensor, pads: Sequence[Dim], axes: Sequence[int] | None) -> tuple[list[Dim], list[Dim]]:
    axes = list(range(x.rank)) if axes is None else normal_axes(axes, x.rank)
    if len(pads) != 2 * len(axes):
        raise k.DefinitionError(f"pads must have {2 * len(axes)} elements for {len(axes)} axes, got {len(pads)}")
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[len(axes) + i]
    return low, high


@op("Pad", 1)
def pad_paddings(data: Tensor, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return padded(data, *_halves(data, paddings, None), mode, value)


@op("Pad", 2)
def pad_attribute(data: Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return padded(data, *_halves(data, pads, None), mode, value)


def _fill(x: Tensor, value: Tensor | None) -> k.Operand:
    if value is not None:
        return as_scalar(value, "constant_value")
    return False if x.dtype is DType.BOOL else 0


@op("Pad", (11, 13), values=("pads",))
def pad_all_axes(data: Tensor, pads: np.ndarray, constant_value: Tensor | None = None, *, mode: str = "constant") -> Tensor:
    return padded(data, *_halves(data, dims(pads), None), mode, _fill(data, constant_value))


@op("Pad", (18, 19, 21, 23, 24, 25), values=("pads", "axes"))
def pad(
    data: Tensor,
    pads: np.ndarray,
    constant_value: Tensor | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    given = None if axes is None else integers(axes, "axes")
    return padded(data, *_halves(data, dims(pads), given), mode, _fill(data, constant_value))


@op("CenterCropPad", 18, values=("shape",))
def center_crop_pad(input_data: Tensor, shape: np.ndarray, *, axes: Sequence[int] | None = None) -> Tensor:
    """Larger axes keep their middle (rounded to the left), smaller ones are padded with zeros (more at the end)."""
    x = input_data
    target = dims(shape)
    at = list(range(x.rank)) if axes is None else normal_axes(axes, x.rank)
    if len(target) != len(at):
        raise k.DefinitionError(f"shape must have one element per axis of {at}, got {len(target)}")
    starts: list[Dim] = [0] * x.rank
    lengths = list(x.shape)
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for axis, want in zip(at, target, strict=True):
        have = x.shape[axis]
        surplus, lack = dim_max(have - want, 0), dim_max(want - have, 0)
        starts[axis], lengths[axis] = floordiv(surplus, 2), have - surplus
        low[axis] = floordiv(lack, 2)
        high[axis] = lack - low[axis]
    out = k.pad(k.strided_slice(x, starts, [1] * x.rank, lengths), low, high, 0)
    final = list(x.shape)
    for axis, want in zip(at, target, strict=True):
        final[axis] = want
    return k.reshape(out, final) if any(isinstance(d, Expr) for d in (*out.shape, *final)) else out


@op("ReverseSequence", (10, 28))
def reverse_sequence(input: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first `sequence_lens[b]` steps of each batch element in reverse order, the others as they are."""
    x = input
    if x.rank < 2:
        raise k.DefinitionError(f"ReverseSequence needs at least 2 axes, got shape {format_shape(x.shape)}")
    batch, time = normal_axis(batch_axis, x.rank), normal_axis(time_axis, x.rank)
    if batch == time:
        raise k.DefinitionError(f"batch_axis and time_axis must differ, both are {batch}")
    grid = [k.iota(x.shape, axis) for axis in range(x.rank)]
    lengths = along(k.cast(sequence_lens, DType.INT64), batch, x.rank)
    grid[time] = k.select(grid[time] < lengths, lengths - grid[time] - 1, grid[time])
    return k.index(x, grid)
