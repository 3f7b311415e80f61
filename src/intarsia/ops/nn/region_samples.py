"""Where the samples of regions lie, in primitives: the CPU's kernel (`kernels.pooling.roi_pooling_kernel`) computes it for one
bin at a time, devices for all of them."""

from __future__ import annotations

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor

MOST_SAMPLES = 1 << 14  # of a bin along an axis: what needs more is reported
MOST_CORNER = 1 << 30  # of regions whose largest elements are taken: corners beyond it count as there
Taps = tuple[Tensor, Tensor, Tensor, Tensor]


def extent(low: Tensor, high: Tensor, half_pixel: bool) -> Tensor:
    """Of a region, from its scaled corners."""
    return high - low if half_pixel else k.maximum(high - low, 1.0)


def samples(bin_size: Tensor) -> Tensor:
    """int32: one for each started pixel of a bin, at most `MOST_SAMPLES` + 1; none where the size is no number."""
    count = k.unary("ceil", bin_size)
    return k.cast(k.select(count > 0.0, k.minimum(count, MOST_SAMPLES + 1.0), 0.0), DType.INT32)


def place(start: Tensor, bin_size: Tensor, count: Tensor, bin_at: Tensor, sample: Tensor) -> Tensor:
    """Of a bin's sample; all are floats."""
    return start + bin_at * bin_size + (sample + 0.5) * bin_size / count


def taps(at: Tensor, length: Tensor) -> Taps:
    """Lower and upper element beside a place, and their weights; 0 where it lies outside of -1 to `length`, an integer."""
    end, last = k.cast(length, at.dtype), length - 1
    inside = (at >= -1.0) & (at <= end)
    clamped = k.select(inside, k.maximum(at, 0.0), 0.0)
    low = k.minimum(k.cast(clamped, length.dtype), last)
    upper = k.select(low < last, clamped - k.cast(low, at.dtype), 0.0)
    return low, k.minimum(low + 1, last), k.select(inside, 1.0 - upper, 0.0), k.select(inside, upper, 0.0)
