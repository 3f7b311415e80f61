"""Convolution and pooling on channels-last tensors [N, spatial..., C]: forms that providers use inside, never a model.

Each is the standard operator with its data input and output transposed; weights keep ONNX's layout.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from intarsia.graph.dims import Dim, floordiv
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import REGISTRY, OpRecord, op
from intarsia.ops.nn import conv, pooling
from intarsia.ops.nn.sampling import Border, grid_sampled, sample
from intarsia.ops.nn.sliding_windows import WindowAttributes, Windows, place_windows, slide
from intarsia.primitives import lang as k

DOMAIN = "intarsia.channels_last"
OPERATORS = ("Conv", "ConvInteger", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")


def to_channels_first(x: k.Tensor) -> k.Tensor:
    return k.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def to_channels_last(x: k.Tensor) -> k.Tensor:
    return k.transpose(x, (0, *range(2, x.rank), 1))


def _transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def definition(x: k.Tensor, *others: Any, **attributes: Any) -> k.Tensor:
        out = function(to_channels_first(x), *others, **attributes)
        return to_channels_last(out[0] if isinstance(out, tuple) else out)

    return definition


def _register(record: OpRecord) -> None:
    REGISTRY.add(replace(record, domain=DOMAIN, function=_transposed(record.function)))


WRAPPED = (conv, pooling)  # imported first: their records are what is wrapped

for _name in OPERATORS:
    for _record in list(REGISTRY.of("", _name)):
        _register(_record)


@op("Interleave", 1, domain=DOMAIN)
def interleave(x: k.Tensor, *, blocks: Sequence[int], begins: Sequence[int], ends: Sequence[int], group: int = 1) -> k.Tensor:
    """[N, q..., group * blocks... * M] to [N, q * block..., group * M], cropped by `begins` and `ends` along spatial axes."""
    rank = len(blocks)
    spatial, filters = x.shape[1:-1], floordiv(x.shape[-1], group * math.prod(blocks))
    parts = k.reshape(x, (x.shape[0], *spatial, group, *blocks, filters))
    pairs = [axis for i in range(rank) for axis in (1 + i, 2 + rank + i)]
    mixed = k.transpose(parts, (0, *pairs, 1 + rank, 2 + 2 * rank))
    whole = [d * b for d, b in zip(spatial, blocks, strict=True)]
    joined = k.reshape(mixed, (x.shape[0], *whole, filters * group))
    inner = [d - low - high for d, low, high in zip(whole, begins, ends, strict=True)]
    return k.strided_slice(joined, (0, *begins, 0), (1,) * (rank + 2), (x.shape[0], *inner, filters * group))


@dataclass(frozen=True)
class PlacedWindows(ParameterGroup):
    """Where the windows of a channels-last convolution lie, with nothing left to find out."""

    kernel_shape: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]

    def over(self, extents: Sequence[Dim]) -> Windows:
        """The windows over spatial axes of these sizes."""
        attributes = WindowAttributes("NOTSET", self.dilations, self.kernel_shape, self.pads, self.strides)
        return place_windows(extents, tuple(self.kernel_shape), attributes)


@op("Windows", 1, domain=DOMAIN)
def windows(x: k.Tensor, *, places: PlacedWindows) -> k.Tensor:
    """[N, spatial..., C] to [N, out..., kernel... * C]: what a convolution multiplies, zero outside the image."""
    kernel_shape, placed = places.kernel_shape, places.over(x.shape[1:-1])
    rank = len(kernel_shape)
    seen = slide(to_channels_first(x), placed, 0)  # [N, C, out..., kernel...]
    rows = k.transpose(seen, (0, *range(2, 2 + 2 * rank), 1))
    return k.reshape(rows, (x.shape[0], *placed.out, math.prod(kernel_shape) * x.shape[-1]))


@op("GridSample", 1, domain=DOMAIN)
def grid_sample(
    x: k.Tensor, grid: k.Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> k.Tensor:
    """[N, spatial..., C] by a grid [N, out..., rank] to [N, out..., C]."""
    return grid_sampled(x, grid, x.rank - 1, align_corners, mode, padding_mode)


@op("BentWindows", 1, domain=DOMAIN)
def bent_windows(
    x: k.Tensor, offset: k.Tensor, mask: k.Tensor | None = None, *, regular: PlacedWindows, groups: int = 1
) -> k.Tensor:
    """[N, spatial..., C] to [N, out..., kernel... * C]: what DeformConv multiplies, read at places that `offset`
    [N, out..., groups * kernel... * rank] moves, times `mask` [N, out..., groups * kernel...]; zero outside the image."""
    kernel_shape, batch, spatial = regular.kernel_shape, x.shape[0], x.shape[1:-1]
    rank, area, placed = len(kernel_shape), math.prod(kernel_shape), regular.over(spatial)
    pixels = (batch, *placed.out)
    moved = k.reshape(offset, (*pixels, groups, *kernel_shape, rank))
    shape = (*pixels, groups, *kernel_shape)

    def beside_channels(t: k.Tensor) -> k.Tensor:
        """[N, out..., groups, kernel...] to [N, out..., kernel, groups, 1]."""
        flat = k.reshape(t, (*pixels, groups, area))
        return k.expand_dims(k.transpose(flat, (*range(rank + 1), rank + 2, rank + 1)), [rank + 3])

    places = []
    for i in range(rank):
        part = k.strided_slice(moved, (0,) * (2 * rank + 2) + (i,), (1,) * moved.rank, (*shape, 1))
        window, tap = k.iota(shape, 1 + i) * placed.strides[i], k.iota(shape, 2 + rank + i) * placed.dilations[i]
        places.append(beside_channels(k.reshape(part, shape) + k.cast(window + tap - k.size(placed.low[i]), x.dtype)))
    columns = (*pixels, area, groups, floordiv(x.shape[-1], groups))
    borders = [Border("zeros", n, 0.0, x.dtype) for n in spatial]
    unflattened = k.reshape(x, (batch, *spatial, *columns[-2:]))
    behind = [k.iota(columns, rank + 2), k.iota(columns, rank + 3)]
    value = sample(unflattened, [k.iota(columns, 0)], places, borders, "linear", behind)
    if mask is not None:
        value = value * beside_channels(k.reshape(mask, shape))
    return k.reshape(value, (*pixels, area * x.shape[-1]))
