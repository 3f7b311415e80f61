"""Which 3 x 3 convolutions Winograd's minimal filtering can take, and which of its variants is the fastest: a model of the time
each takes on a core.

With three axes (kernel d x 3 x 3) the planes of a window are more input channels of a convolution of one output plane, zero
outside the image.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from intarsia.codegen.llvm.target import L2_NBYTES
from intarsia.codegen.winograd_transforms import OUTPUTS
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.conv.line_buffer_kernel import multiplied_share
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape

_PLANE_LANES = 16  # channels of a plane come in multiples of it where windows have several
_LEAST_IN_GROUP = 16  # channels, and filters: of fewer a vector has several groups


def is_applicable(shape: ConvShape) -> bool:
    """Whether the convolution is 3 x 3 with stride 1, or so in each plane, with whole vectors of channels; groups are of many
    channels and filters."""
    if shape.kernel[-2:] != (3, 3) or shape.strides[-2:] != (1, 1):
        return False
    if shape.group > 1:
        return len(shape.kernel) == 2 and min(shape.channels, shape.filters) >= _LEAST_IN_GROUP * shape.group
    return len(shape.kernel) == 2 or shape.channels % _PLANE_LANES == 0


def one_group(shape: ConvShape) -> ConvShape:
    """The convolution of one of the groups."""
    if shape.group == 1:
        return shape
    return replace(shape, channels=shape.channels // shape.group, filters=shape.filters // shape.group, group=1)


def planar(shape: ConvShape) -> ConvShape:
    """The same convolution by planes of the output: those are images, and the planes of a window channels."""
    if len(shape.kernel) == 2:
        return shape
    return ConvShape(
        shape.batch * shape.output[0], shape.spatial[1:], shape.kernel[0] * shape.channels, shape.filters, shape.kernel[1:],
        shape.strides[1:], shape.dilations[1:], (*shape.pads[1:3], *shape.pads[4:]),
    )  # fmt: skip


def phase_tiles(shape: ConvShape, outputs: int) -> tuple[int, int]:
    """Rows and columns of tiles of one phase."""
    down, across = (-(-n // (d * outputs)) for n, d in zip(shape.output, shape.dilations, strict=True))
    return down, across


def tile_count(shape: ConvShape, outputs: int) -> int:
    return shape.batch * math.prod(shape.dilations) * math.prod(phase_tiles(shape, outputs))


@dataclass(frozen=True)
class Rates:
    """Rates of a core, of which only the ratios decide.

    Attributes:
        flops: of the micro-kernel, in a second.
        weight_bytes: that stream in a second from the third-level cache or from memory.
        transform_seconds: of one vector of channels of one tile, in or out, by the tile's outputs.
        overlap: of the shorter of computing and streaming weights that the longer does not hide.
        call_steps: what a call of the micro-kernel costs, in steps along k.
        masked: how many times a vector's time one takes whose lanes are not all channels.
        worth: the part of direct sums' time that is worth Winograd's larger weights.
    """

    flops: float
    weight_bytes: float
    transform_seconds: tuple[tuple[int, float], ...]
    overlap: float
    call_steps: int
    masked: int = 1
    worth: float = 1.0

    def transform(self, outputs: int) -> float:
        return dict(self.transform_seconds)[outputs]

    def vectors(self, channels: int, lanes: int) -> int:
        """Vectors of a pixel, in the time of whole ones."""
        return channels // lanes + (self.masked if channels % lanes else 0)


# Measured on Intel's Sapphire Rapids (3 GHz, 2 MiB of second-level cache for a core), and on AMD's Zen 4 (1 MiB).
_LARGE_L2 = Rates(165e9, 11.5e9, ((2, 25e-9), (4, 100e-9)), 0.35, 12)
_SMALL_L2 = Rates(117e9, 11.5e9, ((2, 15e-9), (4, 40e-9)), 0.5, 6, 4, 0.9)
_BORDER_BYTES_PER_SECOND = 20e9


def rates(l2_nbytes: int) -> Rates:
    """Those of the measured core whose second-level cache is the most like this."""
    return _LARGE_L2 if l2_nbytes >= L2_NBYTES else _SMALL_L2


@functools.lru_cache(maxsize=1024)
def estimated_seconds(
    shape: ConvShape, outputs: int | None, lanes: int = 16, l2_nbytes: int = L2_NBYTES, pairs: bool = False
) -> float:
    """Model of the time a 3 x 3 convolution takes on one core: Winograd with `outputs`, or direct (None). `pairs`: of bfloat16,
    each of which is multiplied like a float32."""
    if shape.group > 1:
        return shape.group * estimated_seconds(one_group(shape), outputs, lanes, l2_nbytes, pairs)
    share, rate = multiplied_share(shape) if outputs is None else 1.0, rates(l2_nbytes)
    shape = planar(shape)
    height, width = shape.output
    channels, filters = shape.channels, shape.filters
    if outputs is None:
        sums, depth, weights = shape.batch * height * width, 9 * channels, 9 * channels * filters
        transform = 8 * shape.batch * channels * height * width / _BORDER_BYTES_PER_SECOND
    else:
        tiles = tile_count(shape, outputs)
        matrices = (outputs + 2) ** 2
        sums, depth, weights = matrices * tiles, channels, matrices * channels * filters
        transform = tiles * (rate.vectors(channels, lanes) + rate.vectors(filters, lanes)) * rate.transform(outputs)
    each = 2 if pairs else 1
    compute = 2 * sums * (depth * share / each + rate.call_steps) * filters / rate.flops
    stream = 4 / each * weights / rate.weight_bytes
    return max(compute, stream) + rate.overlap * min(compute, stream) + transform


@functools.lru_cache(maxsize=1024)
def prefers_winograd(shape: ConvShape, lanes: int = 16, l2_nbytes: int = L2_NBYTES) -> int | None:
    """The outputs (4 or 2) of the Winograd variant that is estimated to be fastest, or None for direct convolution.

    Args:
        lanes: float32 numbers of a vector.
        l2_nbytes: of a core's second-level cache.
    """
    if not is_applicable(shape):
        return None
    seconds = {outputs: estimated_seconds(shape, outputs, lanes, l2_nbytes) for outputs in (None, *OUTPUTS)}
    seconds[None] *= rates(l2_nbytes).worth
    return min(seconds, key=seconds.__getitem__)


_PAIRS_WORTH = 0.9  # of the time without that is worth what rounding transforms loses


def prefers_pairs(shape: ConvShape, lanes: int = 16, l2_nbytes: int = L2_NBYTES) -> bool:
    """Whether F(2x2) of pairs of bfloat16 is estimated to be faster than Winograd's float32, and than direct sums of pairs."""
    if not is_applicable(shape) or len(shape.kernel) > 2 or shape.channels % 2 or shape.group > 1:
        return False
    others = [estimated_seconds(shape, outputs, lanes, l2_nbytes) for outputs in OUTPUTS]
    others.append(estimated_seconds(shape, None, lanes, l2_nbytes, pairs=True))
    return estimated_seconds(shape, 2, lanes, l2_nbytes, pairs=True) < _PAIRS_WORTH * min(others)
