"""The schedule of convolutions in small groups of channels, which a vector has several of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.packing import Layout
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.conv.conv_arguments import DepthwiseCall
from intarsia.providers.cpu.kernels.conv.conv_cost import UNIT_FILTERS, ConvSchedule, estimated
from intarsia.providers.cpu.kernels.conv.grouped import small_groups_kernel
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork, strides_and_dilations
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import PAIRED, SAID, in_pairs, reads_rows, rounded

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution

_LEAST_TERMS = 16  # of a sum in a small group


@dataclass(frozen=True)
class SmallGroups(ConvSchedule):
    """As many filters as channels in each group; by pairs of bfloat16 where these are requested."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.group == 1:
            return Support.no("all channels are one group")
        lanes = env.target.vector_bytes * 8 // _sums_dtype(node).bits
        if not small_groups_kernel.takes(node.filter_shape, node.group, lanes):
            filters, channels = node.filter_shape[0] // node.group, node.filter_shape[1]
            return Support.no(f"groups of {channels} channels, {filters} filters; it takes 2, 4 or 8 of both, short kernels")
        return Support.yes()

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated(node, env, rate=0.5 + 0.5 * self.rounds(node, env))

    def rounds(self, node: Convolution, env: LoweringEnv) -> bool:
        filters = node.filter_shape
        many = filters[0] >= UNIT_FILTERS and math.prod(filters[1:]) >= _LEAST_TERMS
        return node.data.dtype in PAIRED and many and reads_rows(env.options_of(node), env.target)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        weights, target, workspace = node.constant_filters(request.workspace), request.target, request.workspace
        kernel, x, y = node.kernel, node.data.shape, node.output.shape
        steps, each = strides_and_dilations(node.node, len(kernel)), weights.shape[1]
        plain = WindowSpec("multiply", kernel, *steps, _sums_dtype(node), request.epilogue, each=each)
        spec = small_groups_kernel.scheduled(plain, y[-2] if isinstance(y[-2], int) else None, target)
        pairs = self.rounds(node, request.env)
        before: list[Step] = []
        source = node.reads[0]
        if pairs:
            spec = replace(spec, x_dtype=DType.BFLOAT16)
            before, source = rounded(target, workspace, source, node.data.dtype, product(x))
        layout, pack = (Layout.PAIRED_GROUPS, in_pairs) if pairs else (Layout.GROUPS, None)
        packed = workspace.add(
            node.reads[1], node.packing(layout), lambda: small_groups_kernel.pack_weights(weights, target, pack)
        )
        call = DepthwiseCall(node.geometry(kernel), spec, target, source, packed, request.out, request.operands)
        step = Step(
            small_groups_kernel.kernel_text(spec, target), (source, packed, *request.operand_names), (request.out,),
            call, label=f"grouped {'x'.join(map(str, kernel))} {TensorType(_sums_dtype(node), y)}",
            work=ConvWork(call.geometry), arithmetic=SAID if pairs else "",
        )  # fmt: skip
        return [*before, step]


def _sums_dtype(node: Convolution) -> DType:
    return DType.FLOAT if node.data.dtype is DType.BFLOAT16 else node.data.dtype
