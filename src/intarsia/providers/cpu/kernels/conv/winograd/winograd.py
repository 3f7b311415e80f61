"""The schedules of 3 x 3 convolutions by Winograd's minimal filtering, of float32 and of pairs of bfloat16."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.jit import KernelText
from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.lowering_options import DISABLE_WINOGRAD
from intarsia.providers.cpu.kernels.common.microkernel import met_of
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, duration
from intarsia.providers.cpu.kernels.conv import pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.conv_arguments import WinogradCall
from intarsia.providers.cpu.kernels.conv.conv_cost import UNIT_FILTERS, ConvSchedule
from intarsia.providers.cpu.kernels.conv.window_geometry import ConvWork
from intarsia.providers.cpu.kernels.conv.winograd import bfloat16, cost_model, kernel
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_spec
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import SAID, in_pairs, reads_rows

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.conv.conv import Convolution

_YES = Support.yes()


def preferred(node: Convolution, env: LoweringEnv) -> int | None:
    """The outputs of a tile of Winograd's float32 variant that is estimated to be the fastest, for sizes that are not known as
    for one image; None for direct convolution, and where none may be taken."""
    if not env.options.winograd or node.data.dtype is not DType.FLOAT or len(node.kernel) < 2 or node.kernel[-2:] != (3, 3):
        return None
    shape = node.geometry(node.kernel).usual()
    return cost_model.prefers_winograd(shape, env.target.vector_bytes // 4, env.target.l2_nbytes)


def estimated_seconds(node: Convolution, env: LoweringEnv, outputs: int | None, pairs: bool = False) -> float:
    """The cost model's, of a variant; direct sums for None."""
    shape = node.geometry(node.kernel).usual()
    return cost_model.estimated_seconds(shape, outputs, env.target.vector_bytes // 4, env.target.l2_nbytes, pairs)


def _is_possible(node: Convolution, env: LoweringEnv) -> Support:
    """Whether any variant may be taken."""
    if len(node.kernel) < 2 or node.kernel[-2:] != (3, 3):
        return Support.no(f"its kernel is {'x'.join(map(str, node.kernel))}, not 3x3")
    if node.data.dtype is not DType.FLOAT:
        return Support.no(f"it is of {node.data.dtype.name.lower()}, not float32")
    if not env.options.winograd:
        return Support.no(f"{DISABLE_WINOGRAD} is 1")
    if not cost_model.is_applicable(node.geometry(node.kernel).usual()):
        return Support.no("it has strides, or too few channels or filters in a group or a plane")
    return _YES


@dataclass(frozen=True)
class Winograd(ConvSchedule):
    """F(m x m, 3 x 3) of float32, for m = `outputs`."""

    outputs: int

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        return _is_possible(node, env)

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        best = preferred(node, env)
        if best == self.outputs:
            return _YES
        other = f"winograd{best}" if best is not None else "direct sums"
        return Support.no(f"{other} at {duration(estimated_seconds(node, env, best))} is expected to be faster, or as good")

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated_seconds(node, env, self.outputs)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        weights, target = node.constant_filters(request.workspace), request.target
        filters = node.filter_shape[0] // node.group
        spec = winograd_spec.WinogradSpec(
            self.outputs, request.epilogue, tile=blocked_tile(filters, None, node.data.dtype, target)
        )
        tile = winograd_spec.winograd_tile(spec, target)
        packed = request.workspace.add(
            node.reads[1],
            node.packing(Layout.WINOGRAD, tile, self.outputs),
            partial(winograd_spec.pack_weights, weights, spec, tile, node.group),
        )
        micro = stepped_micro_text(node.data.dtype, target, tile, met_of(tile, None, filters))
        return [_step(node, request, spec, packed, kernel.kernel_text(spec, target), micro)]


@dataclass(frozen=True)
class WinogradBfloat16(ConvSchedule):
    """F(2 x 2, 3 x 3), whose products are of pairs of bfloat16."""

    def applies(self, node: Convolution, env: LoweringEnv) -> Support:
        possible = _is_possible(node, env)
        if not possible:
            return possible
        if not reads_rows(env.options, env.target):
            return Support.no("products of pairs of bfloat16 are not requested, or the CPU is no faster with them")
        if node.kernel != (3, 3) or node.group > 1 or node.filter_shape[1] % 2:
            return Support.no("it has planes, groups or an odd number of channels")
        return _YES

    def pays(self, node: Convolution, env: LoweringEnv) -> Support:
        if node.filter_shape[0] < UNIT_FILTERS:
            return Support.no(f"{node.filter_shape[0]} filters, fewer than {UNIT_FILTERS}, are not worth rounding its input")
        shape = node.geometry(node.kernel).usual()
        if not cost_model.prefers_pairs(shape, env.target.vector_bytes // 4, env.target.l2_nbytes):
            return Support.no("products of float32, or direct sums of pairs, are expected to be as fast")
        return _YES

    def cost(self, node: Convolution, env: LoweringEnv) -> float:
        return estimated_seconds(node, env, bfloat16.OUTPUTS, pairs=True)

    def steps(self, node: Convolution, request: KernelRequest) -> list[Step]:
        weights, target = node.constant_filters(request.workspace), request.target
        tile = blocked_tile(len(weights), None, node.data.dtype, target)
        spec = winograd_spec.WinogradSpec(bfloat16.OUTPUTS, request.epilogue, tile=tile, pairs=True)
        tile = winograd_spec.winograd_tile(spec, target)
        packed = request.workspace.add(
            node.reads[1],
            node.packing(Layout.WINOGRAD_PAIRS, tile, spec.outputs),
            partial(bfloat16.pack_weights, weights, tile, in_pairs),
        )
        micro = bfloat16.micro_text(target, tile, met_of(tile, None, len(weights)))
        return [_step(node, request, spec, packed, bfloat16.kernel_text(spec, target), micro)]


def _step(
    node: Convolution,
    request: KernelRequest,
    spec: winograd_spec.WinogradSpec,
    packed: str,
    text: KernelText,
    micro: KernelText,
) -> Step:
    target, dtype = request.target, node.data.dtype
    taps = request.workspace.add(
        "", Packing(Layout.TAPS, dtype=dtype, view="rows"), lambda: pointwise_kernel.row_taps(dtype, target)
    )
    # Blocks have sizes that follow from the number of threads.
    call = WinogradCall(
        node.geometry(node.kernel), spec, target, node.reads[0], packed, request.out, request.operands, micro.symbol, taps
    )
    return Step(
        text, (node.reads[0], packed, taps, *request.operand_names), (request.out,), call,
        label=f"winograd{spec.outputs} {node.output}", calls=(micro,), work=ConvWork(call.geometry),
        arithmetic=SAID if spec.pairs else "",
    )  # fmt: skip
