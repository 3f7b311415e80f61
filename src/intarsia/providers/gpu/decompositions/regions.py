"""Pooling of regions, whose bins have as many samples as the run says: the largest number is read before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn import region_samples as region_places
from intarsia.ops.nn.detection import RegionBins
from intarsia.ops.nn.region_samples import MOST_SAMPLES
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import lowest
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op
from intarsia.run_status import SAMPLES_ARE_TOO_MANY

_AXES = (1, 0)  # of x1, y1: rows of an image go along y


def _column(x: Tensor, i: int) -> Tensor:
    return k.reshape(k.strided_slice(x, [0, i], [1, 1], (x.shape[0], 1)), (x.shape[0],))


def _extents(rois: Tensor, wide: DType, scale: float, half_pixel: bool) -> list[tuple[Tensor, Tensor]]:
    """Along y and x: where each region begins, and its extent, [regions]."""
    corners = k.cast(rois, wide) * scale - (0.5 if half_pixel else 0.0)
    found = []
    for i in _AXES:
        low, high = (_column(corners, j) for j in (i, i + 2))
        found.append((low, region_places.extent(low, high, half_pixel)))
    return found


@device_op("RegionSamples")
def region_samples(
    rois: Tensor, *, output_height: int = 1, output_width: int = 1, spatial_scale: float = 1.0, half_pixel: int = 1
) -> Tensor:
    """The most samples of any region's bins along y and x, int64 [2]."""
    wide = DType.DOUBLE if rois.dtype is DType.DOUBLE else DType.FLOAT
    pairs = zip(_extents(rois, wide, spatial_scale, bool(half_pixel)), (output_height, output_width), strict=True)
    most = [k.reduce_max(k.cast(region_places.samples(extent / float(bins)), DType.INT64), [0]) for (_, extent), bins in pairs]
    return k.maximum(k.concat([k.reshape(m, (1,)) for m in most], 0), 0)


@device_op("RoiAlign", values=("samples",))
def roi_align(
    X: Tensor, rois: Tensor, batch_indices: Tensor, samples: Any = None, *, region_bins: RegionBins, half_pixel: int = 1
) -> Tensor:
    """ONNX's RoiAlign with the largest number of samples along y and x known."""
    mode, sampling_ratio, spatial_scale = region_bins.mode, region_bins.sampling_ratio, region_bins.spatial_scale
    if mode not in ("avg", "max"):
        raise k.DefinitionError(f"mode is {mode!r}; expected avg or max")
    most = [sampling_ratio] * 2 if samples is None else [int(s) for s in _numbers(samples)]
    if max(most) > MOST_SAMPLES:
        raise k.DefinitionError(SAMPLES_ARE_TOO_MANY)
    wide = DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT
    bins, count = (region_bins.output_height, region_bins.output_width), rois.shape[0]
    shape = (count, X.shape[1], *bins, *most)
    if 0 in most:
        return k.full(shape[:4], 0.0, X.dtype)
    axes = []
    for a, (start, extent) in enumerate(_extents(rois, wide, spatial_scale, bool(half_pixel))):
        size = extent / float(bins[a])
        taken = k.full((count,), sampling_ratio, DType.INT32) if samples is None else region_places.samples(size)
        axes.append(_taps(start, size, taken, bins[a], most[a], X.shape[2 + a], a))
    image = k.broadcast(k.reshape(batch_indices, (count, 1, 1, 1, 1, 1)), shape)
    channel = k.broadcast(k.reshape(k.iota((X.shape[1],), 0), (1, X.shape[1], 1, 1, 1, 1)), shape)
    corners = []
    for y, weight_y in axes[0].neighbours:
        for x, weight_x in axes[1].neighbours:
            places = [image, channel, k.broadcast(y, shape), k.broadcast(x, shape)]
            corners.append(k.cast(k.index(X, places), wide) * (weight_y * weight_x))
    taken = k.stored(k.cast(axes[0].taken * axes[1].taken, wide))
    number = k.reshape(taken, (count, 1, 1, 1))
    if mode == "max":
        there = k.broadcast(k.binary("and", axes[0].there, axes[1].there), shape)
        best = k.maximum(k.maximum(corners[0], corners[1]), k.maximum(corners[2], corners[3]))
        out = k.reduce_max(k.select(there, best, float(lowest(wide))), [4, 5])
    else:
        out = k.reduce_sum(corners[0] + corners[1] + corners[2] + corners[3], [4, 5]) / k.maximum(number, 1.0)
    return k.cast(k.select(k.broadcast(number > 0.0, out.shape), out, 0.0), X.dtype)


def _numbers(values: Any) -> list[Any]:
    found = list(values.reshape(-1))
    if any(not isinstance(v, int) for v in found):
        raise k.SymbolicValueError("the number of samples is known only at run time")
    return found


@dataclass(frozen=True)
class _Taps:
    """Samples along one axis, of shapes that broadcast to [regions, channels, bins, bins, samples, samples].

    Attributes:
        neighbours: lower and upper element, and their weights; 0 where a sample is outside of the image or not there.
        there: whether a sample is there.
        taken: the samples of each region, [regions].
    """

    neighbours: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
    there: Tensor
    taken: Tensor


def _taps(start: Tensor, size: Tensor, taken: Tensor, bins: int, most: int, length: Any, axis: int) -> _Taps:
    wide, count = size.dtype, start.shape[0]
    shape = (count, 1, bins if axis == 0 else 1, bins if axis == 1 else 1, most if axis == 0 else 1, most if axis == 1 else 1)
    taken = k.stored(taken)

    def whole(x: Tensor) -> Tensor:
        return k.reshape(x, (count, 1, 1, 1, 1, 1))

    bin_at, sample = (k.cast(k.iota(shape, axis + i), wide) for i in (2, 4))
    number = whole(k.cast(k.maximum(taken, 1), wide))
    place = k.stored(region_places.place(whole(start), whole(size), number, bin_at, sample))
    there = k.cast(k.iota(shape, axis + 4), DType.INT32) < k.broadcast(whole(taken), shape)
    low, high, *weights = region_places.taps(place, k.size(length, DType.INT32))
    lower, upper = (k.stored(k.select(there, weight, 0.0)) for weight in weights)
    return _Taps(((k.stored(low), lower), (high, upper)), there, taken)


# --- MaxRoiPool -------------------------------------------------------------------------------------------------------


def _edges(rois: Tensor, bins: Sequence[int], scale: float, image: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
    """Along y and x: begin and end of each bin, clipped to the image, int64 [regions, bins]."""
    found, count = [], rois.shape[0]
    corners = k.stored(k.cast(k.unary("round", k.cast(rois, DType.FLOAT) * scale), DType.INT64))
    for a, i in enumerate(_AXES):
        start = k.reshape(_column(corners, i + 1), (count, 1))
        size = k.maximum(k.reshape(_column(corners, i + 3), (count, 1)) - start + 1, 1)
        at = k.reshape(k.iota((bins[a],), 0), (1, bins[a]))
        limit = k.size(image[a])
        begin = at * size / bins[a] + start
        end = ((at + 1) * size + (bins[a] - 1)) / bins[a] + start
        found.append((k.stored(k.minimum(k.maximum(begin, 0), limit)), k.stored(k.minimum(k.maximum(end, 0), limit))))
    return found


@device_op("RegionExtents")
def region_extents(X: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Tensor:
    """The most rows and columns that a bin has, int64 [2]."""
    edges = _edges(rois, [int(n) for n in pooled_shape], spatial_scale, X.shape[2:])
    most = [k.reduce_max(end - begin, [0, 1]) for begin, end in edges]
    return k.maximum(k.concat([k.reshape(m, (1,)) for m in most], 0), 0)


@device_op("MaxRoiPool", values=("extents",))
def max_roi_pool(X: Tensor, rois: Tensor, extents: Any, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Tensor:
    """Largest element of each bin of each region [batch, x1, y1, x2, y2]; 0 where a bin lies outside the image."""
    rows, columns = (int(n) for n in _numbers(extents))
    bins = [int(n) for n in pooled_shape]
    count, channels, (high, wide) = rois.shape[0], X.shape[1], X.shape[2:]
    if not rows or not columns:
        return k.full((count, channels, *bins), 0.0, X.dtype)
    shape = (count, channels, *bins, rows, columns)
    places, inside = [], []
    for a, ((begin, end), length) in enumerate(zip(_edges(rois, bins, spatial_scale, X.shape[2:]), (high, wide), strict=True)):
        own = (count, 1, bins[0] if a == 0 else 1, bins[1] if a == 1 else 1, 1, 1)
        first, last = (k.broadcast(k.reshape(e, own), shape) for e in (begin, end))
        at = first + k.iota(shape, 4 + a)
        inside.append(at < last)
        places.append(k.minimum(at, k.size(length) - 1))
    image = k.broadcast(k.reshape(k.cast(_column(rois, 0), DType.INT64), (count, 1, 1, 1, 1, 1)), shape)
    channel = k.broadcast(k.reshape(k.iota((channels,), 0), (1, channels, 1, 1, 1, 1)), shape)
    there = k.binary("and", *inside)
    least = float(lowest(DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT))
    found = k.cast(k.index(X, [image, channel, *places]), DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT)
    best = k.reduce_max(k.select(there, found, least), [4, 5])
    some = k.reduce(there, "any", [4, 5])
    return k.cast(k.select(some, best, 0.0), X.dtype)
