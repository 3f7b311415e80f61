"""The schedules of convolutions of bytes whose vectors hold neighbouring channels: depthwise ones, and small groups."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.conv.conv_cost import estimated
from intarsia.providers.cpu.kernels.conv.grouped import (
    depthwise_arguments,
    depthwise_int8_kernel,
    depthwise_kernel,
    small_groups_int8_kernel,
)
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_steps import (
    YES,
    ByteConvSchedule,
    corrected,
    finished,
    fits_bytes,
    lift_of,
    window_step,
)
from intarsia.providers.cpu.kernels.conv.window_geometry import strides_and_dilations
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import rate_of
from intarsia.providers.cpu.kernels.matmul_int8.zero_point_correction import Correction

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import ByteConvolution

_EXACT = 1 << 24  # whole numbers up to here are float32
_LARGEST = 255 * 255  # product of two bytes less their zero points
_FLOATS = 0.25  # of them are multiplied in the time of one byte
_BESIDE = 0.5  # of a full tile's rate, where windows slide along a line


def _is_depthwise(node: ByteConvolution) -> Support:
    filters, channels = node.filter_shape[:2]
    if node.group != filters or channels != 1:
        return Support.no(f"{filters} filters see {channels} channels each, not one channel of their own")
    if math.prod(node.kernel) * _LARGEST >= _EXACT:
        return Support.no(f"sums of {math.prod(node.kernel)} products are not exact in float32")
    return YES


def _spec(node: ByteConvolution, dtype: DType) -> WindowSpec:
    """The kernel's, without an epilogue; `dtype`: of the sums."""
    return WindowSpec(
        "multiply", node.kernel, *strides_and_dilations(node.node, len(node.kernel)), dtype, None, node.data.dtype
    )


def _width(node: ByteConvolution) -> int | None:
    """Pixels of a line of the output; None where only a run knows them."""
    y = node.output.shape
    return y[-2] if isinstance(y[-2], int) else None


@dataclass(frozen=True)
class ByteDepthwise(ByteConvSchedule):
    """Bytes of four lines are multiplied at once (VPDPBUSD)."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        found = _is_depthwise(node)
        if found and not depthwise_int8_kernel.takes(_spec(node, SUMS), env.target):
            return Support.no("the CPU does not multiply bytes by fours, or its windows are one line, or of three axes")
        return found and fits_bytes(node, env)

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=_BESIDE * rate_of(env.target))

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace = request.target, request.workspace
        weights, view = node.weights(workspace), node.weights_view(workspace)
        made = corrected(node, request, weights, lift_of(node))
        spec = depthwise_int8_kernel.scheduled(replace(_spec(node, SUMS), epilogue=made.epilogue), _width(node), target)
        packing = Packing(Layout.INT8_LINES, view=view)
        lines = weights.astype(np.int8)
        packed = workspace.add(node.reads[1], packing, lambda: depthwise_int8_kernel.pack_lines(lines, target))
        return [window_step(node, made, "depthwise", spec, depthwise_int8_kernel.kernel_text(spec, target), packed)]


@dataclass(frozen=True)
class FloatDepthwise(ByteConvSchedule):
    """Bytes become float32, in which their sums are exact."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        return _is_depthwise(node)

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=_BESIDE * _FLOATS)

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace = request.target, request.workspace
        weights, view = node.weights(workspace), node.weights_view(workspace)
        made = finished(request, Correction(request.epilogue, request.operands, DType.FLOAT))
        plain = replace(_spec(node, DType.FLOAT), epilogue=made.epilogue)
        spec = depthwise_kernel.scheduled(plain, len(weights), _width(node), target)
        packing = Packing(Layout.INT8_DEPTHWISE, view=view)
        floats = weights.astype(np.float32)
        packed = workspace.add(node.reads[1], packing, lambda: depthwise_arguments.pack_weights(floats, target))
        return [window_step(node, made, "depthwise", spec, depthwise_kernel.kernel_text(spec, target), packed)]


@dataclass(frozen=True)
class ByteSmallGroups(ByteConvSchedule):
    """As many filters as channels in each group, multiplied by fours (VPDPBUSD)."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if node.group == 1:
            return Support.no("all channels are one group")
        if not depthwise_int8_kernel.multiplies_fours(env.target):
            return Support.no("the CPU does not multiply bytes by fours")
        if not small_groups_int8_kernel.takes(node.filter_shape, node.group, node.data.dtype, env.target):
            filters, channels = node.filter_shape[0] // node.group, node.filter_shape[1]
            return Support.no(
                f"{node.group} groups of {channels} channels, {filters} filters; it takes small ones, short kernels"
            )
        return fits_bytes(node, env)

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=_BESIDE * rate_of(env.target))

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace = request.target, request.workspace
        weights, view = node.weights(workspace), node.weights_view(workspace)
        made = corrected(node, request, weights, lift_of(node))
        plain = replace(_spec(node, SUMS), epilogue=made.epilogue)
        spec = small_groups_int8_kernel.scheduled(plain, weights.shape[1], _width(node), target)
        packing = Packing(Layout.INT8_GROUPS, view=view)
        groups = weights.astype(np.int8)
        packed = workspace.add(node.reads[1], packing, lambda: small_groups_int8_kernel.pack_groups(groups, target))
        return [window_step(node, made, "grouped", spec, small_groups_int8_kernel.kernel_text(spec, target), packed)]
