"""Resize and Upsample: one resampling per axis, each a few gathered neighbours times their weights.

Where an output element lies in the input is a quotient of integers, so that whole positions and ties are what the operator's
formula says, whatever the sizes (14 to 2 elements by "floor": 0 and 7).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, numbers_of, product, scaled
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import op
from intarsia.ops.framework.size_quotients import Quotient
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

TRANSFORMS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
_MOST_DENSE = 256  # elements of an axis that is resampled by a matrix rather than by neighbours
_MOST_NEIGHBOURS = 1 << 16  # to either side of an element
_FEW_NEIGHBOURS = 4  # that are written out one by one
_MOST_FOLDED = 1 << 20  # elements of a table that is made with the session; those of longer axes are computed in each run
_MOST = 1 << 31  # numerator and denominator of a scale
_HALF_WAY = Fraction(499, 1000)  # and not quite, which may round to the neighbour
_FARTHEST = 1 << 15  # border of a region of interest, in lengths of the axis; and its denominator
_EIGHT_BITS = {DType.UINT8: (0.0, 255.0), DType.INT8: (-128.0, 127.0)}


@dataclass(frozen=True)
class Axis:
    """How one axis is resampled. `scale` None: output size by input size. `start`, `end`: the region of interest."""

    axis: int
    length: Dim
    out: Dim
    scale: Fraction | None
    start: Fraction = Fraction(0)
    end: Fraction = Fraction(1)

    @property
    def quotient(self) -> tuple[Dim, Dim]:
        """The scale's numerator and denominator."""
        return (self.out, self.length) if self.scale is None else self.scale.as_integer_ratio()


@dataclass(frozen=True)
class Sampling:
    """Resize's attributes that say where and how neighbours are taken."""

    mode: str = "nearest"
    transform: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False

    def check(self) -> None:
        if self.mode not in ("nearest", "linear", "cubic"):
            raise k.DefinitionError(f"mode is {self.mode!r}; expected nearest, linear or cubic")
        if self.transform not in TRANSFORMS:
            raise k.DefinitionError(
                f"coordinate_transformation_mode is {self.transform!r}; expected one of {', '.join(TRANSFORMS)}"
            )
        if self.nearest_mode not in NEAREST:
            raise k.DefinitionError(f"nearest_mode is {self.nearest_mode!r}; expected one of {', '.join(NEAREST[:4])}")


@op("Upsample", since=1)
def upsample_1(X: k.Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest") -> k.Tensor:
    if X.rank != 4:
        raise k.DefinitionError(f"X has rank {X.rank}; expected [N, C, H, W]")
    return upsample(X, (1.0, 1.0, height_scale, width_scale), mode=mode)


@op("Upsample", since=(7,))
def upsample_7(X: k.Tensor, *, scales: Sequence[float], mode: str = "nearest") -> k.Tensor:
    return upsample(X, scales, mode=mode)


@op("Upsample", since=(9, 10), values=("scales",))
def upsample(X: k.Tensor, scales: Sequence[float], *, mode: str = "nearest") -> k.Tensor:
    mode = "linear" if mode in ("bilinear", "trilinear") else mode
    return resample(X, _scaled_axes(X, range(X.rank), scales), Sampling(mode, "asymmetric", "floor"))


@op("Resize", since=10, values=("scales",))
def resize_10(X: k.Tensor, scales: Sequence[float], *, mode: str = "nearest") -> k.Tensor:
    return resample(X, _scaled_axes(X, range(X.rank), scales), Sampling(mode, "asymmetric", "simple"))


@dataclass(frozen=True)
class ResizeAttributes(ParameterGroup):
    """Which axes change, how their new sizes follow, and how elements between others are computed."""

    antialias: int = 0
    axes: Sequence[int] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            self.mode, self.coordinate_transformation_mode, self.nearest_mode, self.cubic_coeff_a, bool(self.exclude_outside),
            self.extrapolation_value, bool(self.antialias),
        )  # fmt: skip


@op("Resize", since=(11, 13, 18, 19), values=("roi", "scales", "sizes"))
def resize(
    X: k.Tensor, roi: Sequence[float] | None = None, scales: Sequence[float] | None = None,
    sizes: Sequence[Dim] | None = None, *, attributes: ResizeAttributes,
) -> k.Tensor:  # fmt: skip
    axes, sampling = attributes.axes, attributes.sampling
    where = [a + X.rank if a < 0 else int(a) for a in axes] if axes is not None else list(range(X.rank))
    cropped = sampling.transform == "tf_crop_and_resize"
    region = [float(r) for r in roi] if cropped and roi is not None and len(roi) else None
    given_scales, given_sizes = scales is not None and len(scales) > 0, sizes is not None and len(sizes) > 0
    if given_scales == given_sizes:
        raise k.DefinitionError("Resize needs exactly one of scales and sizes")
    if region is not None and len(region) != 2 * len(where):
        raise k.DefinitionError(f"roi has {len(region)} values; expected {2 * len(where)} for {len(where)} axes")
    if given_scales:
        assert scales is not None
        plan = _scaled_axes(X, where, scales, region)
    else:
        assert sizes is not None
        plan = _sized_axes(X, where, sizes, attributes.keep_aspect_ratio_policy, region)
    return resample(X, plan, sampling)


def _scaled_axes(x: k.Tensor, axes: Sequence[int], scales: Sequence[float], roi: Sequence[float] | None = None) -> list[Axis]:
    if len(scales) != len(axes):
        raise k.DefinitionError(f"scales has {len(scales)} values; expected {len(axes)}")
    plan = []
    for i, (axis, factor) in enumerate(zip(axes, scales, strict=True)):
        if isinstance(factor, (Expr, Quotient)):
            plan.append(_computed_axis(axis, x.shape[axis], factor, roi is not None))
            continue
        start, end = (roi[i], roi[len(axes) + i]) if roi is not None else (0.0, 1.0)
        scale = float(np.float32(factor))
        if not 0 < scale < math.inf:
            raise k.DefinitionError(f"scales has {scale} for axis {axis}; expected a number greater than 0 and finite")
        first, last = _border(start), _border(end)
        plan.append(Axis(axis, x.shape[axis], scaled(x.shape[axis], scale * (end - start)), _scale(scale), first, last))
    return plan


def simplest_fraction(value: float) -> Fraction:
    """The fraction of the smallest denominator that float32 rounds to `value` (which is one: 0.1 as float32 gives 1/10).

    Models hold scales as float32 that are meant as quotients of sizes, which these are.
    """
    number = np.float32(value)
    if number == 0:
        return Fraction(0)
    if number < 0:
        return -simplest_fraction(-value)
    exact = Fraction(float(number))
    below, above = (Fraction(float(np.nextafter(number, np.float32(to)))) for to in (0, np.finfo(np.float32).max))
    return _simplest_between(exact + (below - exact) * _HALF_WAY, exact + (above - exact) * _HALF_WAY)


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """By continued fractions, 0 <= low <= high."""
    terms = []
    while True:
        whole = math.ceil(low)
        if whole <= high:
            break
        terms.append(whole - 1)
        low, high = 1 / (high - (whole - 1)), 1 / (low - (whole - 1))
    found = Fraction(whole)
    for term in reversed(terms):
        found = term + 1 / found
    return found


def _scale(value: float) -> Fraction:
    """Cut off where positions would not be int64: no axis is so long that it has elements then."""
    numerator, denominator = simplest_fraction(value).as_integer_ratio()
    return Fraction(max(1, min(numerator, _MOST)), min(denominator, _MOST))


def _border(value: float) -> Fraction:
    """A border of the region of interest, to about a float32's precision of the axis."""
    if not abs(value) <= _FARTHEST:
        raise k.DefinitionError(f"roi has {value}; expected a number from -{_FARTHEST} to {_FARTHEST}")
    found = simplest_fraction(value) if float(np.float32(value)) == value else Fraction(value)
    return found.limit_denominator(_FARTHEST)


def _computed_axis(axis: int, length: Dim, factor: Expr | Quotient, cropped: bool) -> Axis:
    """An axis whose scale is its new size by its size: what a float32 rounds of that is left out of account."""
    if cropped or isinstance(factor, Expr) or factor.denominator != length:
        raise k.SymbolicValueError(f"its scale of axis {axis} is computed from sizes other than its own")
    return Axis(axis, length, factor.numerator, None)


def _sized_axes(x: k.Tensor, axes: Sequence[int], sizes: Sequence[Dim], policy: str, roi: Sequence[float] | None) -> list[Axis]:
    if len(sizes) != len(axes):
        raise k.DefinitionError(f"sizes has {len(sizes)} values; expected {len(axes)}")
    scale: Fraction | None = None
    out = list(sizes)
    if policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            raise k.DefinitionError(f"keep_aspect_ratio_policy is {policy!r}; expected stretch, not_larger or not_smaller")
        lengths = [x.shape[a] for a in axes]
        if any(isinstance(d, Expr) for d in (*lengths, *sizes)):
            raise k.SymbolicValueError(f"keep_aspect_ratio_policy {policy} needs the input's sizes, which only a run gives")
        if not lengths or 0 in lengths:
            raise k.DefinitionError(
                f"keep_aspect_ratio_policy {policy} needs axes that have elements; their sizes are {lengths}"
            )
        ratios = [Fraction(s, d) for s, d in zip(numbers_of(sizes), numbers_of(lengths), strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        out = [math.floor(scale * d + Fraction(1, 2)) for d in numbers_of(lengths)]
    plan = []
    for i, axis in enumerate(axes):
        start, end = (roi[i], roi[len(axes) + i]) if roi is not None else (0.0, 1.0)
        plan.append(Axis(axis, x.shape[axis], out[i], scale, _border(start), _border(end)))
    return plan


def resample(x: k.Tensor, axes: Sequence[Axis], sampling: Sampling) -> k.Tensor:
    """`x` with every axis of the plan brought to its new size."""
    sampling.check()
    crop = sampling.transform == "tf_crop_and_resize"
    active = [
        a
        for a in axes
        if a.length != a.out or (a.scale not in (None, 1)) or (crop and (a.start, a.end) != (Fraction(0), Fraction(1)))
    ]
    if sampling.mode == "nearest":
        out = x
        for a in active:
            times = _repeats(a, sampling)
            out = _repeated(out, a.axis, times) if times else k.take(out, _fold(_nearest(a, sampling)), a.axis)
    else:
        out = k.cast(x, DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT)
        for a in active if x.dtype in _EIGHT_BITS else _least_taken(active):
            out = _interpolate(out, a, sampling)
        if x.dtype in _EIGHT_BITS:
            low, high = _EIGHT_BITS[x.dtype]
            out = k.unary("floor", out + 0.5) if sampling.antialias else out
            out = k.minimum(k.maximum(out, low), high)
    if crop and active:
        outside = _outside(active, out, sampling)
        out = k.select(outside, sampling.extrapolation_value, out)
    return k.cast(out, x.dtype)


def _least_taken(axes: Sequence[Axis]) -> list[Axis]:
    """Axes in the order in which they are resampled, from the first to the last where an image shrinks: the rows of what is
    between two axes are fewer then. Where it grows, neighbours along the last axis are taken from the rows that are there.
    """
    return [*axes] if any(_shrinks(a) for a in axes) else [*reversed(axes)]


def _shrinks(a: Axis) -> bool:
    """Whether the axis is known to become shorter."""
    if a.scale is not None:
        return a.scale < 1
    return isinstance(a.out, int) and isinstance(a.length, int) and a.out < a.length


@dataclass(frozen=True)
class Places:
    """x_original of every output index along an axis (ONNX Resize, coordinate_transformation_mode): numerator / denominator,
    int64; the denominator is 1 or more."""

    numerator: k.Tensor
    denominator: k.Tensor

    def floor(self) -> tuple[k.Tensor, k.Tensor]:
        """The index below each place, and what is left, as a numerator."""
        left = k.binary("mod", self.numerator, self.denominator)
        return (self.numerator - left) / self.denominator, left

    def rounded(self, mode: str) -> k.Tensor:
        """The nearest index as `nearest_mode` has it; 0 for all below 0, where division would round towards zero."""
        top, bottom = self.numerator, self.denominator
        if mode.startswith("round"):
            top, bottom = top * 2 + bottom, bottom * 2  # floor(x + 1/2), or ceil(x - 1/2) = floor(x + 1/2 - 1 / bottom)
            top = top - 1 if mode == "round_prefer_floor" else top
        elif mode == "ceil":
            top = top + bottom - 1
        return k.maximum(top, 0) / bottom


def places(a: Axis, transform: str) -> Places:
    i = k.iota((a.out,), 0)
    last, (p, q) = a.length - 1, a.quotient
    if transform == "align_corners":
        ideal, part = (a.out, 1) if a.scale is None else (a.length * p, q)  # the output's length before it is rounded down
        return _places(i * k.size(last * part), ideal - part)
    if transform == "asymmetric":
        return _places(i * k.size(q), p)
    if transform == "tf_crop_and_resize":
        return _cropped(a, i)
    middle = i * 2 + 1  # twice the middle of the output element
    if transform == "tf_half_pixel_for_nn":
        if isinstance(a.out, Expr):  # an axis that keeps its size is as it was, which is here no matter of rounding
            middle = k.select(k.equal(k.size(a.out), k.size(a.length)), i * 2, middle)
        return _places(middle * k.size(q), p * 2)
    if transform == "half_pixel_symmetric":  # half_pixel and the input's middle less that of the output
        return _places((middle - k.size(a.out)) * k.size(q) + k.size(last * p), p * 2)
    half = middle * k.size(q) - k.size(p)
    return _places(_if_single(a.out, i, half) if transform == "pytorch_half_pixel" else half, p * 2)


def _places(numerator: k.Tensor, denominator: Dim) -> Places:
    return Places(numerator, k.maximum(k.size(denominator), 1))  # 0 where there are no elements, or one, which lies at 0


def _cropped(a: Axis, i: k.Tensor) -> Places:
    bottom = math.lcm(a.start.denominator, a.end.denominator)
    start, end = int(a.start * bottom), int(a.end * bottom)
    last = a.length - 1
    spread = (i * (end - start) + k.size((a.out - 1) * start)) * k.size(last)
    single, intervals = i + k.size(last * (start + end)), k.maximum(k.size(a.out - 1), 1)
    return Places(_if_single(a.out, single, spread), _if_single(a.out, k.scalar(2 * bottom, DType.INT64), intervals * bottom))


def _if_single(out: Dim, single: k.Tensor, several: k.Tensor) -> k.Tensor:
    """The places of an axis whose output has one element, or of one that has several: a run decides where only it knows."""
    if isinstance(out, Expr):
        return k.select(k.equal(k.size(out), 1), single, several)
    return single if out == 1 else several


# Transforms and roundings that give i // n where the scale is a whole number n.
_REPEATING = {
    *itertools.product(("asymmetric", "tf_half_pixel_for_nn"), ("floor", "simple")),
    *itertools.product(
        ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"), ("round_prefer_floor", "round_prefer_ceil")
    ),
}


def _repeats(a: Axis, sampling: Sampling) -> int:
    """How many times each element of the axis comes, one after the other; 0 if they do not all come as often."""
    scale = a.scale
    if scale is None and isinstance(a.length, int) and isinstance(a.out, int) and a.length and a.out % a.length == 0:
        scale = Fraction(a.out // a.length)
    if scale is None or scale.denominator != 1 or a.out != a.length * int(scale):
        return 0
    return int(scale) if (sampling.transform, sampling.nearest_mode) in _REPEATING else 0


def _repeated(x: k.Tensor, axis: int, times: int) -> k.Tensor:
    expanded = k.expand_dims(x, [axis + 1])
    shape = [times if i == axis + 1 else d for i, d in enumerate(expanded.shape)]
    return k.reshape(k.broadcast(expanded, shape), [d * times if i == axis else d for i, d in enumerate(x.shape)])


def _nearest(a: Axis, sampling: Sampling) -> k.Tensor:
    where, mode = places(a, sampling.transform), sampling.nearest_mode
    if mode != "simple":
        return _clamp(where.rounded(mode), a.length)
    # Resize-10: towards the input's start when enlarging, its end when shrinking
    if a.scale is not None:
        return _clamp(where.rounded("ceil" if a.scale < 1 else "floor"), a.length)
    shrinks = k.size(a.out) < k.size(a.length)
    return _clamp(k.select(shrinks, where.rounded("ceil"), where.rounded("floor")), a.length)


def _interpolate(x: k.Tensor, a: Axis, sampling: Sampling) -> k.Tensor:
    """Weighted neighbours along one axis: weights come from a linear or cubic filter, widened where antialiasing shrinks."""
    where = places(a, sampling.transform)
    below, left = where.floor()
    ratio = k.cast(left, x.dtype) / k.cast(where.denominator, x.dtype)
    support = 1 if sampling.mode == "linear" else 2
    shrink = _shrink(a) if sampling.antialias else 1.0
    if a.out == 0:
        shrink = 1.0
    if support / shrink > _MOST_NEIGHBOURS:
        raise k.DefinitionError(
            f"antialias at scale {shrink:g} takes {2 * support / shrink:.3g} neighbours of each element of axis {a.axis}; "
            f"at most {2 * _MOST_NEIGHBOURS} are supported"
        )
    first = math.floor(-support / shrink) + 1
    count = 2 - 2 * first
    few = count <= _FEW_NEIGHBOURS
    if few:
        steps: list[Any] = list(range(first, 2 - first))
        distances: list[Any] = [float(j) for j in steps]
    else:  # of all neighbours at once: [out, count]
        below, ratio = k.expand_dims(below, [1]), k.expand_dims(ratio, [1])
        steps = [k.iota((1, count), 1) + first]
        distances = [k.cast(steps[0], x.dtype)]
    kernel = _filter(sampling)
    weights = [kernel(k.absolute(j - ratio) * shrink) for j in distances]
    indices = [below + j for j in steps]
    if sampling.exclude_outside:
        weights = [k.select((i < 0) | (i >= k.size(a.length)), 0.0, w) for i, w in zip(indices, weights, strict=True)]
    if sampling.exclude_outside or sampling.antialias:
        total = weights[0] if few else k.reduce_sum(weights[0], [1], keepdims=True)
        for w in weights[1:]:
            total = total + w
        weights = [w / total for w in weights]
    indices = [_clamp(i, a.length) for i in indices]
    if few:
        column = [a.out if i == a.axis else 1 for i in range(x.rank)]
        parts = [k.take(x, _fold(i), a.axis) * k.reshape(_fold(w), column) for i, w in zip(indices, weights, strict=True)]
        out = parts[0]
        for part in parts[1:]:
            out = out + part
        return out
    table, factors = _fold(indices[0]), _fold(weights[0])
    if isinstance(a.length, int) and a.length <= _MOST_DENSE and a.axis == x.rank - 1 and _folds(table):
        return _product(x, a, table, factors)
    gathered = k.take(x, table, a.axis)
    shape = [a.out if i == a.axis else count if i == a.axis + 1 else 1 for i in range(gathered.rank)]
    return k.reduce_sum(gathered * k.reshape(factors, shape), [a.axis + 1])


def _product(x: k.Tensor, a: Axis, table: k.Tensor, factors: k.Tensor) -> k.Tensor:
    """Many taps of the last axis, if it is short, as a product with a matrix of weights [out, length]: neighbours along it
    would be gathered one by one, those along others are rows.

    An element that is not finite therefore spreads along the axis.
    """
    places, weights = interpret([table, factors], [])
    assert isinstance(a.length, int)
    dense = np.zeros((len(places), a.length), weights.dtype)
    np.add.at(dense, (np.arange(len(places))[:, None], places), weights)
    return k.dot(x, k.constant(dense.T))


def _shrink(a: Axis) -> float:
    if a.scale is not None:
        return min(1.0, float(a.scale))
    if isinstance(a.out, Expr) or isinstance(a.length, Expr):
        raise k.SymbolicValueError("antialias needs the input's and the output's sizes, which only a run gives")
    return min(1.0, a.out / a.length)


def _filter(sampling: Sampling) -> Callable[[k.Tensor], k.Tensor]:
    """Weight of a neighbour at distance d >= 0: the triangle 1 - d, or Keys's cubic (equation 4 of IEEE 1163711)."""
    if sampling.mode == "linear":
        return lambda d: k.maximum(1.0 - d, 0.0)
    c = sampling.cubic_coeff_a
    return lambda d: cubic_weight(d, c)


def cubic_weight(d: k.Tensor, c: float) -> k.Tensor:
    inner = ((c + 2) * d - (c + 3)) * d * d + 1.0
    outer = ((c * d - 5 * c) * d + 8 * c) * d - 4 * c
    return k.select(d <= 1.0, inner, k.select(d < 2.0, outer, 0.0))


def _outside(axes: Sequence[Axis], out: k.Tensor, sampling: Sampling) -> k.Tensor:
    """Output elements whose place lies outside the input on some axis."""
    found: k.Tensor | None = None
    for a in axes:
        where = places(a, sampling.transform)
        beyond = (where.numerator < 0) | (where.numerator > where.denominator * k.size(a.length - 1))
        here = k.reshape(beyond, [a.out if i == a.axis else 1 for i in range(out.rank)])
        found = here if found is None else found | here
    assert found is not None
    return k.broadcast(found, out.shape)


def _clamp(i: k.Tensor, length: Dim) -> k.Tensor:
    return k.minimum(k.maximum(i, 0), k.size(length - 1))


def number(d: Dim) -> k.Tensor:
    """A dimension as float32."""
    return k.cast(k.size(d), DType.FLOAT) if isinstance(d, Expr) else k.scalar(float(d), DType.FLOAT)


def _fold(t: k.Tensor) -> k.Tensor:
    """A table instead of arithmetic on indices, where all sizes are known and the table is not large."""
    return k.constant(interpret([t], [])[0]) if _folds(t) else t


def _folds(t: k.Tensor) -> bool:
    """A model of 200 bytes may ask for an axis of 2^31 elements: what is as large as that is left to the run."""
    size = product(t.shape)
    return isinstance(size, int) and size <= _MOST_FOLDED and not any(_symbolic(part) for part in k.walk([t]))


def _symbolic(t: k.Tensor) -> bool:
    parts: list[Any] = [*t.shape, *t.attrs]
    return t.prim in ("input", "size") or any(isinstance(p, Expr) for p in parts)
