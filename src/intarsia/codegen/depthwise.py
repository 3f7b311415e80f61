"""Depthwise convolution in channels-last layout: every channel has a window of its own (group == C == M), or every few
neighbouring ones have one together."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from intarsia.codegen.conv import ConvShape
from intarsia.codegen.engine import KernelText
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.gemm import Operand
from intarsia.codegen.pack import aligned_zeros
from intarsia.codegen.target import Target
from intarsia.codegen.window import Window, WindowSpec, window_args
from intarsia.graph.dtypes import DType


def depthwise_spec(shape: ConvShape, dtype: DType = DType.FLOAT, epilogue: Epilogue | None = None) -> WindowSpec:
    """The spec of a depthwise convolution.

    Raises:
        ValueError: a filter sees more than its own channel (`codegen.conv` takes those).
    """
    if not shape.group == shape.channels == shape.filters:
        raise ValueError(
            f"depthwise convolution has group == channels == filters; got group {shape.group}, {shape.channels} channels, "
            f"{shape.filters} filters: use codegen.conv"
        )
    return WindowSpec("multiply", shape.kernel, shape.strides, shape.dilations, dtype, epilogue)


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a spec; its arguments are `depthwise_args`."""
    return Window(spec, target).text()


def pack_weights(weights: np.ndarray, target: Target) -> np.ndarray:
    """ONNX weights [C, channels of a group, *kernel] as [positions * channels of a group, C padded to whole vectors]."""
    channels, each, count = *weights.shape[:2], math.prod(weights.shape[2:])
    lanes = target.vector_bytes // weights.dtype.itemsize
    out = aligned_zeros((count * each, -(-channels // lanes) * lanes), weights.dtype)
    out[:, :channels] = weights.reshape(channels, each, count).transpose(2, 1, 0).reshape(count * each, channels)
    return out


MOST_IN_GROUP = 8  # of wider groups the matrix product of their windows wastes nothing
_UNROLLED = 64  # channels of a group times the window's pixels in a line, at most


def takes_groups(weights: tuple[int, ...], group: int, lanes: int) -> bool:
    """Whether a convolution by such weights is one of this kernel's: as many filters as channels, in small groups."""
    each = weights[1]
    return (
        weights[0] == group * each and each in (2, 4, MOST_IN_GROUP) and lanes % each == 0 and each * weights[-1] <= _UNROLLED
    )


def depthwise_args(
    spec: WindowSpec,
    target: Target,
    shape: ConvShape,
    *,
    x: int,
    weights: int,
    y: int,
    operands: Sequence[Operand] = (),
    x_pixel_nbytes: int | None = None,
    y_pixel_nbytes: int | None = None,
    number: int = 0,
) -> list[int]:
    """The kernel's arguments: addresses of the input (without border), of `pack_weights`' result, of the output."""
    return window_args(
        spec, target, shape, x=x, y=y, weights=weights, operands=operands, x_pixel_nbytes=x_pixel_nbytes,
        y_pixel_nbytes=y_pixel_nbytes, number=number,
    )  # fmt: skip
