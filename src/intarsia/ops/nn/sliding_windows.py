"""Where sliding windows lie: kernel shape, strides, dilations, pads and auto_pad of convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from intarsia.graph.dims import Dim, dim_max, dim_min, floordiv, format_shape, is_nonnegative
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.primitives import lang as k

CLIPPED = frozenset("MaxPool AveragePool LpPool NhwcMaxPool MaxpoolWithMask QLinearAveragePool".split())
"""Operators whose windows may be larger than the padded input (`place_windows`, clipped)."""

AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
Ints = Sequence[int]


@dataclass(frozen=True)
class WindowAttributes(ParameterGroup):
    """A node's attributes that say where its windows lie; without `kernel_shape`, the weights say their sizes."""

    auto_pad: str = "NOTSET"
    dilations: Ints | None = None
    kernel_shape: Ints | None = None
    pads: Ints | None = None
    strides: Ints | None = None


@dataclass(frozen=True)
class PoolAttributes(ParameterGroup):
    """A pool's attributes that say where its windows lie."""

    kernel_shape: Ints
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    pads: Ints | None = None
    strides: Ints | None = None

    def windows(self, extents: Sequence[Dim]) -> Windows:
        """The windows over spatial axes of these sizes. Raises DefinitionError as `place_windows`."""
        return place_windows(extents, tuple(self.kernel_shape), self.attributes, ceil_mode=self.ceil_mode, clipped=True)

    @property
    def attributes(self) -> WindowAttributes:
        """Those that a convolution has, too."""
        return WindowAttributes(self.auto_pad, None, self.kernel_shape, self.pads, self.strides)


@dataclass(frozen=True)
class DilatedPoolAttributes(PoolAttributes):
    """Those of a pool that may leave out elements within its windows."""

    dilations: Ints | None = None

    @property
    def attributes(self) -> WindowAttributes:
        return WindowAttributes(self.auto_pad, self.dilations, self.kernel_shape, self.pads, self.strides)


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes: per axis their size, step, and how far the input is padded on either side.

    `out` is the number of windows; `ceil` says that the last one may reach over the padded input's end, or the only one.
    """

    sizes: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    out: tuple[Dim, ...]
    ceil: bool = False

    @property
    def spans(self) -> tuple[Dim, ...]:
        """Elements from a window's first to its last, dilation included."""
        return tuple((n - 1) * d + 1 for n, d in zip(self.sizes, self.dilations, strict=True))

    @property
    def unpadded(self) -> bool:
        return not self.ceil and all(p == 0 for p in (*self.low, *self.high))


def place_windows(
    extents: Sequence[Dim], sizes: Sequence[Dim], attributes: WindowAttributes, *, ceil_mode: int = 0, clipped: bool = False
) -> Windows:
    """Resolve padding for spatial sizes `extents` and windows of `sizes` (ONNX Conv and MaxPool, attribute auto_pad).

    `clipped`: of pools, where a window may be larger than the padded input. Their number is then a quotient towards 0 (ONNX's
    shape inference and onnxruntime): one window of the elements there are if less than a stride is missing, none if less than
    two are. Of sizes that are symbols it is a quotient downwards, so runs that `may_be_clipped` names need another graph.

    Raises:
        DefinitionError: a list has the wrong length, a pad is negative, auto_pad is not one of its values, or a convolution's
            axis has no elements (onnxruntime refuses all of those; here pads alone may make it long enough).
    """
    rank, pads, auto_pad = len(extents), attributes.pads, attributes.auto_pad
    steps = per_axis("strides", attributes.strides, rank)
    spread = per_axis("dilations", attributes.dilations, rank)
    if len(sizes) != rank:
        raise k.DefinitionError(f"kernel_shape has {len(sizes)} sizes; the input has {rank} spatial axes")
    for n in sizes:
        k.require_least(n, 1, f"kernel_shape must be at least 1 on each axis, got {format_shape(sizes)}: one")
    check_padding(pads, auto_pad, rank)
    explicit = tuple(pads) if pads is not None and auto_pad == "NOTSET" else (0,) * (2 * rank)
    low: list[Dim] = []
    high: list[Dim] = []
    out: list[Dim] = []
    reaches = bool(ceil_mode) and not auto_pad.startswith("SAME")
    for i, extent in enumerate(extents):
        span = (sizes[i] - 1) * spread[i] + 1
        if auto_pad.startswith("SAME"):
            if not clipped:  # with the border as pads there would be less than the kernel spans
                k.require_least(extent, 1, f"the extent of spatial axis {i}, whose border is {auto_pad}")
            count = ceildiv(extent, steps[i])
            total = dim_max((count - 1) * steps[i] + span - extent, 0) if not _fits(span, steps[i]) else span - steps[i]
            half = floordiv(total, 2)
            before, after = (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)
        else:
            before, after = explicit[i], explicit[rank + i]
            slack = extent + before + after - span
            if isinstance(slack, int) and slack <= -steps[i] * (2 if clipped else 1 if ceil_mode else 0) and slack < 0:
                raise k.DefinitionError(
                    f"the kernel spans {span} elements of spatial axis {i}, which has {span + slack} with its pads"
                )
            if not isinstance(slack, int) and not clipped:
                least = 1 - steps[i] if ceil_mode else 0
                k.require_least(slack + span, span + least, f"the padded extent of spatial axis {i}, which the kernel spans")
            is_clipped = isinstance(slack, int) and slack < 0
            reaches = reaches or is_clipped
            count = (ceildiv(slack, steps[i]) if ceil_mode or is_clipped else floordiv(slack, steps[i])) + 1
            if ceil_mode:  # a window that would start in the padding behind the input is dropped
                count = dim_min(count, floordiv(extent + before - 1, steps[i]) + 1)
        low.append(before)
        high.append(after)
        out.append(count)
    return Windows(tuple(sizes), steps, spread, tuple(low), tuple(high), tuple(out), reaches)


def may_be_clipped(
    extents: Sequence[Dim],
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> list[tuple[Dim, int]]:
    """Padded sizes that only a run knows, and what a pool's window spans of each: where that is more, `out` is wrong."""
    if ceil_mode or auto_pad.startswith("SAME"):
        return []
    rank = len(extents)
    spread, explicit = (
        per_axis("dilations", dilations, rank),
        tuple(pads) if pads and auto_pad == "NOTSET" else (0,) * (2 * rank),
    )
    pairs = [(extent + explicit[i] + explicit[rank + i], (sizes[i] - 1) * spread[i] + 1) for i, extent in enumerate(extents)]
    return [(d, span) for d, span in pairs if not isinstance(d, int) and not is_nonnegative(d - span)]


def check_padding(pads: Sequence[int] | None, auto_pad: str, rank: int) -> None:
    """Raise DefinitionError unless pads has two sizes per axis, none negative, and auto_pad is one of its values."""
    if auto_pad not in AUTO_PAD:
        raise k.DefinitionError(f"auto_pad is {auto_pad!r}; expected one of {', '.join(AUTO_PAD)}")
    if pads is not None and len(pads) != 2 * rank:
        raise k.DefinitionError(f"pads has {len(pads)} values; expected {2 * rank} for {rank} spatial axes")
    if pads is not None and min(pads, default=0) < 0:
        raise k.DefinitionError(f"pads must not be negative, got {list(pads)}; cut the input with Slice instead")


def slide(x: k.Tensor, windows: Windows, fill: k.Operand, first: int = 2) -> k.Tensor:
    """Windows over the axes from `first` on: [..., *out, *sizes], with `fill` where they reach over the input."""
    lead = (0,) * first
    axes = range(first, x.rank)
    padded = k.pad(x, (*lead, *windows.low), (*lead, *windows.high), fill)
    if windows.ceil:
        padded = _fit(padded, windows, fill, first)
    return k.windows(padded, axes, windows.sizes, windows.strides, windows.dilations)


def _fit(x: k.Tensor, windows: Windows, fill: k.Operand, first: int) -> k.Tensor:
    """Lengthen or shorten the spatial axes to what the windows cover exactly."""
    cover = [(n - 1) * s + span for n, s, span in zip(windows.out, windows.strides, windows.spans, strict=True)]
    cover = [max(c, 0) if isinstance(c, int) else c for c in cover]  # of no windows, any size less than a window's
    lead = (0,) * first
    more = [dim_max(c - d, 0) for c, d in zip(cover, x.shape[first:], strict=True)]
    x = k.pad(x, (0,) * x.rank, (*lead, *more), fill)
    return k.strided_slice(x, (0,) * x.rank, (1,) * x.rank, (*x.shape[:first], *cover))


LARGE_WINDOW = 1 << 12  # elements: larger ones are cut to what of them meets the input


def is_large(sizes: Sequence[Dim]) -> bool:
    """Whether a window has so many elements that most of them may be border."""
    return math.prod(n for n in sizes if isinstance(n, int)) > LARGE_WINDOW


def cut_to(windows: Windows, extents: Sequence[Dim]) -> Windows:
    """Large windows without the elements that meet no element of the input in any place: what is computed of a window is then
    bounded by the input and the output, whatever its size is. For reductions to which the border adds nothing."""
    if not is_large(windows.sizes):
        return windows
    sizes: list[Dim] = []
    low: list[Dim] = []
    high: list[Dim] = []
    for i, extent in enumerate(extents):
        spread, before = windows.dilations[i], windows.low[i]
        reach = (windows.out[i] - 1) * windows.strides[i]  # from the first window to the last
        first = dim_min(floordiv(dim_max(before - dim_max(reach, 0), 0), spread), windows.sizes[i] - 1)
        last = dim_max(first, dim_min(windows.sizes[i] - 1, floordiv(extent - 1 + before, spread)))
        sizes.append(last - first + 1)
        low.append(before - first * spread)
        high.append(dim_max(reach + (last - first) * spread + 1 - extent - low[-1], 0))
    return replace(windows, sizes=tuple(sizes), low=tuple(low), high=tuple(high), ceil=True)


def met(windows: Windows, axis: int, begin: Dim, end: Dim) -> k.Tensor:
    """How many elements of each window along an axis lie from `begin` to before `end` of the input: int64 [out]."""
    spread, size = windows.dilations[axis], windows.sizes[axis]
    start = k.iota((windows.out[axis],), 0) * k.size(windows.strides[axis]) - k.size(windows.low[axis])
    before = k.maximum(k.size(begin + spread - 1) - start, k.size(0)) / k.size(spread)
    until = k.maximum(k.size(end + spread - 1) - start, k.size(0)) / k.size(spread)
    return k.maximum(k.minimum(until, k.size(size)) - before, k.size(0))


def per_axis(name: str, values: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The attribute's values, 1 per axis where it is not given."""
    if values is None or len(values) == 0:
        return (1,) * rank
    if len(values) != rank:
        raise k.DefinitionError(f"{name} has {len(values)} values; expected {rank} for {rank} spatial axes")
    if min(values) < 1:
        raise k.DefinitionError(f"{name} must be at least 1 on each axis, got {list(values)}")
    return tuple(int(v) for v in values)


def ceildiv(a: Dim, b: int) -> Dim:
    return floordiv(a + (b - 1), b)


def _fits(span: Dim, stride: int) -> bool:
    """The padding total does not depend on the extent: ceil(n / 1) = n."""
    return stride == 1 and isinstance(span, int)
