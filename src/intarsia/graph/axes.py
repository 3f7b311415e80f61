"""Shapes of what takes parts of axes or divides them anew, with sizes that may be symbolic: slices and reshapes."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.graph.dims import (
    Dim,
    Expr,
    Shape,
    dim_max,
    dim_min,
    floordiv,
    format_shape,
    is_nonnegative,
    lower_bound,
    opaque,
    product,
    quotient,
)

SLICE_END = 2**31 - 1  # a slice bound this far out means "to the end" (exporters write INT32_MAX or INT64_MAX)


def slice_bounds(start: Dim, stop: Dim, step: int, extent: Dim) -> tuple[Dim, Dim]:
    """First index and number of elements of `[start:stop:step]` on an axis of size `extent`.

    Negative bounds count from the end, bounds outside are clamped: as in Python, but ONNX clamps the start of a negative step
    to 0 (Python: -1, so that nothing is left). The first index matters only where the number is not 0.
    """
    if step > 0:
        first = _at_least(_wrapped(start, extent), 0)
        span = _at_most(_wrapped(stop, extent), extent) - first
    else:
        first = _wrapped(start, extent)
        if first != extent - 1:
            first = _at_most(_at_least(first, 0), extent - 1)
        span = first - _at_least(_wrapped(stop, extent), -1)
    return first, _at_least(floordiv(span + (abs(step) - 1), abs(step)), 0)


def _wrapped(index: Dim, extent: Dim) -> Dim:
    if isinstance(index, int):
        if index >= 0:
            return extent if index >= SLICE_END else index
        return -1 if index < -SLICE_END + 1 else index + extent
    if is_nonnegative(index):
        return index
    return index + extent if is_nonnegative(-index - 1) else opaque("wrap", index, extent)


def _at_least(d: Dim, low: int) -> Dim:
    return d if is_nonnegative(d - low) else dim_max(d, low)


def _at_most(d: Dim, high: Dim) -> Dim:
    return d if is_nonnegative(high - d) else dim_min(d, high)


def reshape_dims(shape: Sequence[Dim], target: Sequence[Dim], allowzero: bool = False) -> Shape:
    """The shape that ONNX's Reshape gives: 0 copies the input's size (unless `allowzero`), one -1 takes what is left.

    Elements of `target` that only a run knows may turn out as 0 or -1 then.

    Raises:
        ValueError: more than one -1, or a 0 beyond the input's rank.
    """
    out: list[Dim] = []
    for i, t in enumerate(target):
        if isinstance(t, Expr) and lower_bound(t) is None:
            out.append(opaque("reshape_dim", i, int(allowzero), len(shape), *shape, *target))
        elif t == 0 and not allowzero:
            if i >= len(shape):
                raise ValueError(
                    f"element {i} of the target {format_shape(target)} is 0: {format_shape(shape)} has no such axis"
                )
            out.append(shape[i])
        else:
            out.append(t)
    free = [i for i, t in enumerate(out) if t == -1]
    if len(free) > 1:
        raise ValueError(f"the target {format_shape(target)} has more than one -1")
    if free:
        out[free[0]] = quotient(product(shape), product(d for d in out if d != -1))
    return tuple(out)
