"""The schedule of convolutions by a few filters, whose channels lie across the lanes of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.conv import few_output_channels_kernel
from intarsia.providers.cpu.kernels.conv.conv_arguments import FewFiltersCall
from intarsia.providers.cpu.kernels.conv.conv_cost import ConvSchedule, estimated, reads_floats
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, strides_and_dilations

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution


@dataclass(frozen=True)
class FewOutputChannels(ConvSchedule):
    """A vector holds channels of the input, which all filters share, and whose lanes are added at the end."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.group > 1:
            return Support.no(f"its channels are {node.group} groups")
        lanes = env.target.vector_bytes * 8 // node.data.dtype.bits
        if not few_output_channels_kernel.takes(node.filter_shape, node.group, lanes):
            filters, channels = node.filter_shape[:2]
            return Support.no(f"{filters} filters of {channels} channels are not few enough for vectors of {lanes} channels")
        return reads_floats(node)

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=0.5)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        weights, target, kernel = node.constant_filters(request.workspace), request.target, node.kernel
        strides = strides_and_dilations(node.node, len(kernel))
        spec = WindowSpec("multiply", kernel, *strides, node.data.dtype, request.epilogue, filters=weights.shape[0])
        packed = request.workspace.add(
            node.reads[1], node.packing(Layout.FEW_FILTERS), lambda: few_output_channels_kernel.pack_weights(weights, target)
        )
        call = FewFiltersCall(node.geometry(kernel), spec, target, node.reads[0], packed, request.out, request.operands)
        step = Step(
            few_output_channels_kernel.kernel_text(spec, target), (node.reads[0], packed, *request.operand_names),
            (request.out,), call, label=f"few filters {'x'.join(map(str, kernel))} {node.output}",
            work=ConvWork(call.geometry),
        )  # fmt: skip
        return [step]
