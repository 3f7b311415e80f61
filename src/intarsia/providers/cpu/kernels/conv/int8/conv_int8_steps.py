"""Base of the schedules of convolutions of bytes: the term of the input's zero point, and the steps of kernels that
several of them call."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.jit import KernelText
from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv import implicit_gemm, window_products
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_arguments import ByteProductCall, ByteWindowCall
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, strides_and_dilations
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT, add_sums
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_micro_text, byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import ByteConvolution

    ByteConvSchedule = Schedule[ByteConvolution]
else:
    ByteConvSchedule = Schedule

YES = Support.yes()
NINE_BITS = Support.no("filters less their zero points need nine bits")


def fits_bytes(node: ByteConvolution, env: LoweringEnv) -> Support:
    """Whether the zero points can be subtracted from the filters."""
    return YES if node.is_signed_byte(env.constants) else NINE_BITS


def lift_of(node: ByteConvolution) -> int:
    """The number added to the input by kernels, which read it as unsigned."""
    return LIFT if node.data.dtype is DType.INT8 else 0


def finished(request: KernelRequest, correction: Correction) -> KernelRequest:
    """The request with the epilogue and the operands that the terms of zero points have become."""
    epilogue, operands = correction.finish()
    return replace(request, epilogue=epilogue, operands=tuple(operands))


def corrected(
    node: ByteConvolution, request: KernelRequest, weights: np.ndarray, lift: int, correction: Correction | None = None
) -> KernelRequest:
    """The request with the input's zero point times the sums of `weights` subtracted.

    Args:
        lift: what the kernel adds to the input.
        correction: what is subtracted besides.
    """
    workspace = request.workspace
    correction = correction or Correction(request.epilogue, request.operands)
    sums = weights.reshape(len(weights), -1).sum(1, dtype=np.int64)
    zero = node.known_zero(workspace)
    if zero is not None:
        values = sums * (zero + lift)
        if values.any():
            label = add_sums(workspace, node.reads[1], values)
            correction.subtract(correction.operand(label, "column", SUMS))
    elif sums.any():
        x_zero = node.operand(2)
        label = add_sums(workspace, node.reads[1], sums)
        factor = correction.operand(node.reads[2], "scalar", x_zero.dtype) + lift
        correction.subtract(correction.operand(label, "column", SUMS) * factor)
    return finished(request, correction)


def window_step(
    node: ByteConvolution, request: KernelRequest, kind: str, spec: WindowSpec, text: KernelText, packed: str
) -> Step:
    """The step of a kernel whose vectors hold neighbouring channels, by packed filters; `kind`: what it is called."""
    zero, source = node.border_number(request.workspace), node.reads[0]
    call = ByteWindowCall(
        node.geometry(spec.kernel), spec, request.target, source, packed, request.out, request.operands, zero=zero
    )
    label = f"byte {kind} {'x'.join(map(str, spec.kernel))} {node.output}"
    reads = (source, packed, zero, *request.operand_names)
    return Step(text, reads, (request.out,), call, label=label, work=ConvWork(call.geometry))


@dataclass(frozen=True)
class Filters:
    """Packed filters, and the micro-kernels that multiply windows by them.

    Attributes:
        filters: how many there are, in `group` groups, of windows of `kernel` pixels.
        packed: the buffer of them, in panels of a tile.
        micro, few: the micro-kernels, that for few pixels where it is another.
        stored: the type in which they are stored, where the kernel widens them.
        parts: how many int8 numbers add up to a weight.
        panel_nbytes: as of `ByteProductCall`.
    """

    filters: int
    group: int
    kernel: tuple[int, ...]
    packed: str
    tile: Tile
    micro: KernelText
    few: KernelText | None = None
    stored: DType | None = None
    parts: int = 1
    panel_nbytes: int = 0


def sums_step(node: ByteConvolution, request: KernelRequest, source: str, filters: Filters) -> Step:
    """The step of the sums of products of windows by filters; `source`: the input, with its border."""
    y, target, micro, few = node.output.shape, request.target, filters.micro, filters.few
    spec = gemm_arguments.GemmSpec(SUMS, "packed", request.epilogue, tile=filters.tile, stored=filters.stored)
    geometry = replace(node.geometry(filters.kernel), y=(*y[:-1], filters.filters))
    call = ByteProductCall(
        geometry, spec, target, source, filters.packed, request.out, request.operands, micro.symbol, parts=filters.parts,
        panel_nbytes=filters.panel_nbytes, few=few.symbol if few else "",
    )  # fmt: skip
    label = f"byte conv {'x'.join(map(str, filters.kernel))} {TensorType(SUMS, geometry.y)}"
    return Step(
        gemm_kernel.kernel_text(spec, target), (source, filters.packed, *request.operand_names), (request.out,), call,
        label=label, calls=(micro, few) if few else (micro,), work=ConvWork(call.geometry),
    )  # fmt: skip


def byte_filters(
    node: ByteConvolution, request: KernelRequest, parts: np.ndarray, view: Hashable, group: int | None = None
) -> Filters:
    """Filters [parts, M, C / group, *kernel] of int8, whose parts are added, for bytes as they lie; `view`: what they
    follow from besides the constant, `group`: the node's by default."""
    target, group = request.target, node.group if group is None else group
    tile = sums_tile(node, parts.shape[1], group, request)
    long_rows = has_long_rows(node, parts.shape[1], group, tile)
    packed = request.workspace.add(
        node.reads[1],
        Packing(Layout.INT8_PANELS, tile.width, view=(view, group, long_rows)),
        lambda: implicit_gemm.pack_byte_weights(parts, group, tile, long_rows),
    )
    micro = byte_micro_text(node.data.dtype, target, tile)
    return Filters(parts.shape[1], group, tuple(parts.shape[3:]), packed, tile, micro, parts=len(parts))


def sums_tile(node: ByteConvolution, filters: int, group: int, request: KernelRequest) -> Tile:
    """The tile of sums of windows that are read where they lie."""
    y, kernel = node.output.shape, node.kernel
    each = filters // group * window_products.merged_groups(filters, group, byte_tile(request.target))
    strides, _ = strides_and_dilations(node.node, len(kernel))
    pointwise = math.prod(kernel) == math.prod(strides) == 1
    line = y[-2] if isinstance(y[-2], int) and not pointwise else None
    return blocked_tile(each, line, SUMS, request.target)


def has_long_rows(node: ByteConvolution, filters: int, group: int, tile: Tile) -> bool:
    """Whether a row of a window is one run of numbers: see `window_products.displacements`."""
    _, dilations = strides_and_dilations(node.node, len(node.kernel))
    return group == window_products.merged_groups(filters, group, tile) and dilations[-1] == 1
