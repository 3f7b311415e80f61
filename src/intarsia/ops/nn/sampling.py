"""Reading an image at places that are data: GridSample, AffineGrid, DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from intarsia.graph.dims import Dim, floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.operands import widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import op
from intarsia.ops.nn.resize import cubic_weight, number
from intarsia.ops.nn.sliding_windows import WindowAttributes, place_windows
from intarsia.primitives import lang as k

Ints = Sequence[int]
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_CUBIC = -0.75
_MOST_CORNERS = 256  # elements that are read for each place: linear in 8 axes, cubic in 4


@dataclass(frozen=True)
class Border:
    """What lies outside an axis of `length` elements: zeros, its last element, or its mirror image between two edges."""

    padding: str
    length: Dim
    low: float  # the edges that `reflection` mirrors at: low and length - 1 - low
    dtype: DType

    def place(self, x: k.Tensor) -> k.Tensor:
        """A coordinate brought inside, as the padding mode has it."""
        if self.padding == "border":
            return k.minimum(k.maximum(x, 0.0), self._number(self.length - 1))
        return self._mirror(x) if self.padding == "reflection" else x

    def element(self, i: k.Tensor) -> tuple[k.Tensor, k.Tensor | None]:
        """The index for a coordinate without fraction, and whether it counts (None: always)."""
        last = self._number(self.length - 1)
        inside = (i >= 0.0) & (i <= last) if self.padding == "zeros" else None
        if self.padding == "reflection":
            i = self._mirror(i)
        index = k.cast(k.minimum(k.maximum(i, 0.0), last), DType.INT64)
        return k.minimum(k.maximum(index, 0), k.size(self.length - 1)), inside

    def _mirror(self, x: k.Tensor) -> k.Tensor:
        span = self._number(self.length) - (1.0 + 2 * self.low)
        turn = k.binary("mod", x - self.low, k.maximum(span * 2.0, 1.0))
        return span - k.absolute(turn - span) + self.low

    def _number(self, d: Dim) -> k.Tensor:
        return k.cast(number(d), self.dtype)


def sample(
    x: k.Tensor, lead: Sequence[k.Tensor], places: Sequence[k.Tensor], borders: Sequence[Border], mode: str,
    behind: Sequence[k.Tensor] = (),
) -> k.Tensor:  # fmt: skip
    """x[lead..., places..., behind...] interpolated along the axes of `places`; indices and places broadcast together."""
    if mode == "nearest":
        found = [b.element(b.place(k.unary("round", p))) for p, b in zip(places, borders, strict=True)]
        value = k.index(x, [*lead, *(i for i, _ in found), *behind])
        for _, inside in found:
            value = value if inside is None else k.select(inside, value, k.scalar(0, x.dtype))
        return value
    if mode == "linear":
        places = [b.place(p) for p, b in zip(places, borders, strict=True)]
    taps = [_taps(p, b, mode) for p, b in zip(places, borders, strict=True)]
    corners = math.prod(map(len, taps))
    if corners > _MOST_CORNERS:
        said = f"{mode} interpolation along {len(taps)} axes reads {corners} elements at each place"
        raise k.DefinitionError(f"{said}; expected at most {_MOST_CORNERS}")
    total: k.Tensor | None = None
    for corner in itertools.product(*taps):
        value = k.index(x, [*lead, *(i for i, _ in corner), *behind])
        weight = corner[0][1]
        for _, w in corner[1:]:
            weight = weight * w
        part = value * k.cast(weight, value.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def _taps(x: k.Tensor, border: Border, mode: str) -> list[tuple[k.Tensor, k.Tensor]]:
    below = k.unary("floor", x)
    ratio = x - below
    taps = []
    for j in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
        distance = k.absolute(float(j) - ratio)
        weight = 1.0 - distance if mode == "linear" else cubic_weight(distance, _CUBIC)
        index, inside = border.element(below + float(j))
        taps.append((index, weight if inside is None else k.select(inside, weight, 0.0)))
    return taps


@op("GridSample", since=16)
def grid_sample_16(
    X: k.Tensor, grid: k.Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> k.Tensor:
    return grid_sample(X, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@op("GridSample", since=(20, 22))
def grid_sample(
    X: k.Tensor, grid: k.Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> k.Tensor:
    return grid_sampled(X, grid, 1, align_corners, mode, padding_mode)


def grid_sampled(
    X: k.Tensor, grid: k.Tensor, channels: int, align_corners: int, mode: str, padding_mode: str
) -> k.Tensor:  # fmt: skip
    """GridSample of an image whose channels are its axis `channels`: 1, or the last one, as in the result."""
    mode = _MODES.get(mode, mode)
    if mode not in ("linear", "nearest", "cubic"):
        raise k.DefinitionError(f"mode is {mode!r}; expected linear, nearest or cubic")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise k.DefinitionError(f"padding_mode is {padding_mode!r}; expected zeros, border or reflection")
    rank = X.rank - 2
    if grid.rank != X.rank:
        raise k.DefinitionError(f"grid is {grid!r}; expected [N, ..., {rank}] of rank {X.rank}")
    k.require_equal(grid.shape[-1], rank, f"grid is {grid!r}; expected [N, ..., {rank}] of rank {X.rank}")
    if grid.shape[-1] != rank:
        grid = k.reshape(grid, (*grid.shape[:-1], rank))
    if grid.shape[0] != X.shape[0]:
        grid = k.broadcast(grid, (X.shape[0], *grid.shape[1:]))
    grid = widened(grid)
    exact = X.dtype is DType.DOUBLE or X.dtype.is_complex or mode == "nearest"
    image = X if exact else k.cast(X, DType.FLOAT)
    spatial = [d for axis, d in enumerate(X.shape) if axis not in (0, channels)]
    out = list(grid.shape[:-1])
    out.insert(channels, X.shape[channels])
    places = []
    borders = []
    for i in range(rank):  # the grid lists coordinates from the innermost axis to the outermost
        last = [0] * (grid.rank - 1) + [rank - 1 - i]
        column = k.strided_slice(grid, last, (1,) * grid.rank, (*grid.shape[:-1], 1))
        normal = k.reshape(column, [1 if axis == channels else d for axis, d in enumerate(out)])
        length = k.cast(number(spatial[i]), grid.dtype)
        place = (normal + 1.0) * 0.5 * (length - 1.0) if align_corners else ((normal + 1.0) * length - 1.0) * 0.5
        places.append(place)
        borders.append(Border(padding_mode, spatial[i], 0.0 if align_corners else -0.5, grid.dtype))
    batch, channel = k.iota(out, 0), k.iota(out, channels)
    lead, behind = ([batch, channel], []) if channels == 1 else ([batch], [channel])
    return k.cast(sample(image, lead, places, borders, mode, behind), X.dtype)


@op("AffineGrid", since=20, values=("size",))
def affine_grid(theta: k.Tensor, size: Sequence[Dim], *, align_corners: int = 0) -> k.Tensor:
    image = list(size)[2:]
    rank = len(image)
    if theta.rank != 3 or rank not in (2, 3):
        raise k.DefinitionError(
            f"theta is {theta!r} and size has {rank + 2} values; expected [N, 2, 3] with 4 or [N, 3, 4] with 5"
        )
    wide = widened(theta)
    columns = []
    for axis in reversed(range(rank)):  # x (innermost) first, as theta's columns are
        i, n = k.iota(image, axis, wide.dtype), k.cast(number(image[axis]), wide.dtype)
        place = i * 2.0 / k.maximum(n - 1.0, 1.0) - 1.0 if align_corners else (i * 2.0 + 1.0) / n - 1.0
        columns.append(k.reshape(place, (1, product(image))))
    columns.append(k.full((1, product(image)), 1, wide.dtype))
    points = k.dot(wide, k.concat(columns, 0))
    return k.cast(k.reshape(k.transpose(points, (0, 2, 1)), (theta.shape[0], *image, rank)), theta.dtype)


@dataclass(frozen=True)
class DeformConvAttributes(ParameterGroup):
    """A deformable convolution's attributes; `offset_group` groups of channels move together."""

    dilations: Ints | None = None
    group: int = 1
    kernel_shape: Ints | None = None
    offset_group: int = 1
    pads: Ints | None = None
    strides: Ints | None = None


@op("DeformConv", since=(19, 22))
def deform_conv(
    X: k.Tensor, W: k.Tensor, offset: k.Tensor, B: k.Tensor | None = None, mask: k.Tensor | None = None, *,
    attributes: DeformConvAttributes,
) -> k.Tensor:  # fmt: skip
    rank, group, offset_group = X.rank - 2, attributes.group, attributes.offset_group
    sizes = tuple(attributes.kernel_shape) if attributes.kernel_shape else W.shape[2:]
    given = WindowAttributes(pads=attributes.pads, strides=attributes.strides, dilations=attributes.dilations)
    windows = place_windows(X.shape[2:], sizes, given)
    steps, spread = windows.strides, windows.dilations
    x, batch, area = widened(X), X.shape[0], product(sizes)
    channels = floordiv(X.shape[1], offset_group)
    moved = k.reshape(widened(offset), (batch, offset_group, *sizes, rank, *windows.out))
    shape = (batch, offset_group, *sizes, *windows.out)
    places = []
    for i in range(rank):
        starts = [0] * moved.rank
        starts[2 + rank] = i
        part = k.strided_slice(moved, starts, (1,) * moved.rank, (*moved.shape[: 2 + rank], 1, *windows.out))
        regular = k.iota(shape, 2 + rank + i) * steps[i] + k.iota(shape, 2 + i) * spread[i] - k.size(windows.low[i])
        place = k.reshape(part, shape) + k.cast(regular, x.dtype)
        places.append(k.reshape(place, (batch, offset_group, 1, area, product(windows.out))))
    borders = [Border("zeros", n, 0.0, x.dtype) for n in X.shape[2:]]
    columns = (batch, offset_group, channels, area, product(windows.out))
    lead = [k.iota(columns, 0), k.iota(columns, 1) * k.size(channels) + k.iota(columns, 2)]
    value = sample(x, lead, places, borders, "linear")
    if mask is not None:
        value = value * k.reshape(widened(mask), (batch, offset_group, 1, area, product(windows.out)))
    depth = product((W.shape[1], area))
    rows = k.reshape(widened(W), (group, floordiv(W.shape[0], group), depth))
    out = k.dot(rows, k.reshape(value, (batch, group, depth, product(windows.out))))
    out = k.reshape(out, (batch, W.shape[0], *windows.out))
    if B is not None:
        out = out + k.reshape(widened(B), (1, W.shape[0], *(1 for _ in sizes)))
    return k.cast(out, X.dtype)
