"""Base of the schedules of convolutions of floats, and an estimate of multiply-adds and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution
    from intarsia.providers.cpu.kernels.conv.window_geometry import Filtered

    ConvSchedule = Schedule[Convolution]
else:
    ConvSchedule = Schedule

FEW_PIXELS = 24  # fewer: weights, read once, are what limits
UNIT_FILTERS = 64  # fewer are not worth rounding the input to bfloat16
BYTES_PER_SECOND = 20e9  # of the input and the output, which mostly come from memory


def reads_floats(node: Convolution) -> Support:
    """Whether the input is stored as the kernels of floats read it; another step may store it as bfloat16 (`narrow`)."""
    return Support.no("its input is stored as bfloat16") if node.data.dtype is DType.BFLOAT16 else Support.yes()


def has_few_pixels(pixels: Dim) -> bool:
    """Whether a convolution surely has so few pixels that reading its filters limits it."""
    return isinstance(pixels, int) and pixels < FEW_PIXELS


def estimated(
    node: Filtered, env: LoweringEnv, *, columns: int = 1, rate: float = 1.0, moved: float = 1.0, copied: float = 0.0
) -> float:
    """Seconds of a convolution on one core, with usual sizes for those that are not known.

    Args:
        columns: of how many filters of a group the kernel computes a multiple.
        rate: multiply-adds in the time of one of float32.
        moved: the part of the input's and the output's bytes that are read and written.
        copied: how many times the input is copied first.
    """
    shape = node.geometry(node.kernel).usual()
    filters = -(-shape.filters // shape.group // columns) * columns * shape.group
    sums = shape.batch * math.prod(shape.output) * filters
    terms = math.prod(shape.kernel) * shape.channels // shape.group
    item = node.data.dtype.bits / 8
    inputs = shape.batch * math.prod(shape.spatial) * shape.channels * item
    outputs = shape.batch * math.prod(shape.output) * shape.filters * item
    found = rates(env.target.l2_nbytes)
    lanes = env.target.vector_bytes / 64 * 4 / item
    compute = 2 * sums * terms / (found.flops * rate * lanes)
    weights = filters * terms * item / found.weight_bytes
    moving = (moved * (inputs + outputs) + 2 * copied * inputs) / BYTES_PER_SECOND
    return max(compute, weights) + found.overlap * min(compute, weights) + moving
