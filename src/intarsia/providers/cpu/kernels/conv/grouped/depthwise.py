"""The schedule of depthwise convolutions, in which each filter sees one channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.conv.conv_arguments import DepthwiseCall
from intarsia.providers.cpu.kernels.conv.conv_cost import ConvSchedule, estimated, reads_floats
from intarsia.providers.cpu.kernels.conv.grouped import depthwise_kernel
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, strides_and_dilations

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution


@dataclass(frozen=True)
class Depthwise(ConvSchedule):
    """A vector holds neighbouring channels; sums stay in registers along a line."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        filters, channels = node.filter_shape[:2]
        if node.group == 1 or channels != 1:
            return Support.no(f"a filter sees {channels} channels, not one of several groups")
        if not depthwise_kernel.takes(node.filter_shape, node.group, env.target.vector_bytes * 8 // node.data.dtype.bits):
            return Support.no(
                f"{filters} filters of {node.group} channels; it takes a power of two for each channel, and less than a vector"
            )
        return reads_floats(node)

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=0.5)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        target, kernel, y, filters = request.target, node.kernel, node.output.shape, node.filter_shape[0]
        strides = strides_and_dilations(node.node, len(kernel))
        plain = WindowSpec("multiply", kernel, *strides, node.data.dtype, request.epilogue, multiplier=filters // node.group)
        spec = depthwise_kernel.scheduled(plain, filters, y[-2] if isinstance(y[-2], int) else None, target)
        packed, packing = node.packed(request.workspace, Layout.DEPTHWISE, None, target)

        call = DepthwiseCall(node.geometry(kernel), spec, target, node.reads[0], packed, request.out, request.operands)
        step = Step(
            depthwise_kernel.kernel_text(spec, target), (node.reads[0], packed, *request.operand_names), (request.out,),
            call, label=f"depthwise {'x'.join(map(str, kernel))} {node.output}", work=ConvWork(call.geometry),
        )  # fmt: skip
        return [*packing, step]
