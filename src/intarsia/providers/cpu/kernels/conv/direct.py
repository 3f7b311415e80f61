"""The schedules of direct sums of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.microkernel import met_of, micro_text
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.conv import line_buffer_kernel, window_products
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.conv_arguments import ImplicitGemmCall, LineBufferCall
from intarsia.providers.cpu.kernels.conv.conv_cost import FEW_PIXELS, ConvSchedule, estimated, has_few_pixels, reads_floats
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import is_applicable
from intarsia.providers.cpu.kernels.conv.winograd.winograd import estimated_seconds
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution

_YES = Support.yes()


@dataclass(frozen=True)
class LineBuffer(ConvSchedule):
    """Products of windows in blocks of their sums, of lines of the input that are copied near; borders are not multiplied."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.is_pointwise and node.group == 1:
            return Support.no("it is pointwise")
        filters, channels = node.filter_shape[:2]
        if not line_buffer_kernel.takes_windows(channels, filters, node.group, self._tile(node, env)):
            return Support.no(f"{channels} channels or {filters // node.group} filters of a group do not fill half a vector")
        return reads_floats(node)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if has_few_pixels(node.pixels):
            return Support.no(f"it has fewer than {FEW_PIXELS} pixels, for which reading the filters is what takes the time")
        return _YES

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        if is_applicable(node.geometry(node.kernel).usual()):
            return estimated_seconds(node, env, None)
        return estimated(node, env, columns=self._tile(node, env).lanes)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        target, env, dtype, filters = request.target, request.env, node.data.dtype, node.filter_shape[0]
        tile = self._tile(node, env)
        spec = gemm_arguments.GemmSpec(dtype, "packed", request.epilogue, tile=tile)
        packed, packing = node.packed(request.workspace, Layout.WINDOWS, tile, target)
        rows = node.output.shape[-2] if len(node.kernel) > 1 else None  # a line alone is divided, the last piece may be short
        micro = stepped_micro_text(dtype, target, tile, met_of(tile, rows, filters // node.group))
        call = LineBufferCall(
            node.geometry(node.kernel), spec, target, node.reads[0], packed, request.out, request.operands, micro.symbol
        )
        step = Step(
            line_buffer_kernel.window_text(spec, target), (node.reads[0], packed, *request.operand_names), (request.out,),
            call, label=f"conv {'x'.join(map(str, node.kernel))} {node.output}", calls=(micro,), work=ConvWork(call.geometry),
        )  # fmt: skip
        return [*packing, step]

    @staticmethod
    def _tile(node: Convolution, env: LoweringEnv) -> Tile:
        line = node.output.shape[-2]
        filters, rows = node.filter_shape[0] // node.group, line if isinstance(line, int) else None
        return blocked_tile(filters, rows, node.data.dtype, env.target, halves=node.packed_ahead)


@dataclass(frozen=True)
class ImplicitGemm(ConvSchedule):
    """Products of windows that are read where they lie, of an input with its border: takes every convolution."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        return reads_floats(node)

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, columns=tile_of(node.data.dtype, env.target).lanes, copied=1.0 * any(node.pads))

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        target, workspace, dtype, kernel = request.target, request.workspace, node.data.dtype, node.kernel
        weights = node.constant_filters(workspace)
        spec = gemm_arguments.GemmSpec(dtype, "packed", request.epilogue)
        tile = tile_of(dtype, target)
        packed = workspace.add(
            node.reads[1], node.packing(Layout.FILTERS, tile), lambda: window_products.pack_weights(weights, node.group, tile)
        )
        border, source = node.bordered(target, workspace, request.out, kernel)
        micro = micro_text(dtype, target, met=met_of(tile, node.output.shape[-2], weights.shape[0] // node.group))
        call = ImplicitGemmCall(
            node.geometry(kernel), spec, target, source, packed, request.out, request.operands, micro.symbol
        )
        step = Step(
            gemm_kernel.kernel_text(spec, target), (source, packed, *request.operand_names), (request.out,), call,
            label=f"conv {'x'.join(map(str, kernel))} {node.output}", calls=(micro,), work=ConvWork(call.geometry),
        )  # fmt: skip
        return [*border, step]
