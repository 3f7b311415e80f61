"""Depthwise convolutions: packed weights, and what their kernel (`depthwise_kernel`) is called with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.plan.step import Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import FIELDS, LINE, WindowSpec, window_args
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands


def pack_weights(weights: np.ndarray, target: Target) -> np.ndarray:
    """ONNX weights [M, 1, *kernel] as [vectors, positions, lanes], M padded to whole cache lines (`depthwise_line_buffer`)."""
    channels, count = weights.shape[0], math.prod(weights.shape[2:])
    lanes = target.vector_bytes // weights.dtype.itemsize
    vectors = -(-channels * weights.dtype.itemsize // LINE) * (LINE // target.vector_bytes)
    flat = np.zeros((vectors * lanes, count), weights.dtype)
    flat[:channels] = weights.reshape(channels, count)
    out = aligned_zeros((vectors, count, lanes), weights.dtype)
    out[:] = flat.reshape(vectors, lanes, count).transpose(0, 2, 1)
    return out


def depthwise_args(spec: WindowSpec, target: Target, shape: ConvShape, data: WindowOperands) -> list[Argument]:
    """The kernel's arguments for the input without border and `pack_weights`' result."""
    if spec.multiplier > 1:
        data = data._replace(x_pixel_nbytes=data.x_pixel_nbytes or shape.channels * itemsize(spec.dtype))
        shape = replace(shape, channels=shape.filters)
    args = window_args(spec, target, shape, data)
    if spec.buffers_lines:
        from intarsia.providers.cpu.kernels.conv.grouped.depthwise_line_buffer import units

        args[FIELDS.index("blocks")], args[FIELDS.index("lines")] = units(spec, shape)
    return args
