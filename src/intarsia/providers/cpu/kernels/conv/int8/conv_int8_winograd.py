"""The schedule of 3 x 3 convolutions of bytes by Winograd's minimal filtering, in 16-bit integers: the sums are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.lowering_options import DISABLE_WINOGRAD
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.conv import pointwise_kernel
from intarsia.providers.cpu.kernels.conv.conv_cost import estimated
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_arguments import ByteWinogradCall
from intarsia.providers.cpu.kernels.conv.int8.conv_int8_steps import YES, ByteConvSchedule
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork
from intarsia.providers.cpu.kernels.conv.winograd import int8
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_spec
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import is_applicable
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import rate_of

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import ByteConvolution


@dataclass(frozen=True)
class ByteWinograd(ByteConvSchedule):
    """F(4 x 4, 3 x 3): fewer multiplications, of 16-bit integers."""

    def applies(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if node.kernel != (3, 3):
            return Support.no(f"its kernel is {'x'.join(map(str, node.kernel))}, not 3x3")
        if not env.options.winograd:
            return Support.no(f"{DISABLE_WINOGRAD} is 1")
        shape = node.geometry(node.kernel).usual()
        if not is_applicable(shape) or shape.group > 1:
            return Support.no("it has strides, or its channels are several groups")
        if int8.rates(env.target) is None:
            return Support.no("how fast this CPU is with 16-bit integers is not known")
        weights, zero = node.weights(env.constants), node.known_zero(env.constants)
        return (
            YES if int8.is_exact(weights, node.data.dtype, zero) else Support.no("sums of transformed bytes need over 32 bits")
        )

    def pays(self, node: ByteConvolution, env: LoweringEnv) -> Support:
        if not int8.is_faster(node.geometry(node.kernel).usual(), env.target):
            return Support.no("direct sums are expected to be as fast, or nearly")
        return YES

    def cost(self, node: ByteConvolution, env: LoweringEnv) -> float:
        times = int8.times_as_fast(node.geometry(node.kernel).usual(), env.target)
        return estimated(node, env, rate=rate_of(env.target) * times)

    def steps(self, node: ByteConvolution, request: KernelRequest) -> list[Step]:
        target, workspace = request.target, request.workspace
        weights, view = node.weights(workspace), node.weights_view(workspace)
        tile, zero = int8.register_tile(len(weights), target), node.border_number(workspace)
        spec = winograd_spec.WinogradSpec(int8.OUTPUTS, request.epilogue, SUMS, tile, node.data.dtype)
        packing = Packing(Layout.INT8_WINOGRAD, tile.width, view=view)
        packed = workspace.add(node.reads[1], packing, lambda: int8.pack_weights(weights, tile))
        taps = workspace.add("", Packing(Layout.TAPS, dtype=SUMS, view="rows"), lambda: pointwise_kernel.row_taps(SUMS, target))
        micro = int8.micro_text(target, tile)
        call = ByteWinogradCall(
            node.geometry(node.kernel), spec, target, node.reads[0], packed, request.out, request.operands, micro.symbol, taps,
            zero,
        )  # fmt: skip
        return [Step(
            int8.kernel_text(spec, target), (node.reads[0], packed, taps, zero, *request.operand_names), (request.out,), call,
            label=f"byte winograd{spec.outputs} {node.output}", calls=(micro,), work=ConvWork(call.geometry),
        )]  # fmt: skip
