"""The schedules of the products of each expert's rows with its constant matrix: of floats, or of few bits that stay packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import micro_text
from intarsia.providers.cpu.kernels.common.packing import ZERO_TAP
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat
from intarsia.providers.cpu.kernels.moe import expert_kernels
from intarsia.providers.cpu.kernels.moe.expert_arguments import ExpertCall

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.moe.expert_matmul import ExpertProducts

    ExpertSchedule = Schedule[ExpertProducts]
else:
    ExpertSchedule = Schedule

_SERIAL_PRODUCTS = 100_000  # as for other products
_USUAL_ROWS = 128  # where their number is not known


@dataclass(frozen=True)
class ExpertPanels(ExpertSchedule):
    """Matrices of floats, packed once as float32."""

    def applies(self, node: ExpertProducts, env: LoweringEnv) -> Support:
        return Support.no(f"its matrices are of {node.bits} bits") if node.bits else Support.yes()

    def cost(self, node: ExpertProducts, env: LoweringEnv) -> float:
        return _estimated(node, env, DType.FLOAT.bits)

    def steps(self, node: ExpertProducts, request: KernelRequest) -> list[Step]:
        weights = node.float_panels(request.workspace, tile_of(DType.FLOAT, request.target))
        return [_step(node, request, weights, None)]


@dataclass(frozen=True)
class ExpertBlocks(ExpertSchedule):
    """Matrices of 2, 4 or 8 bits in blocks with a scale each, whose numbers become float32 where they are multiplied."""

    def applies(self, node: ExpertProducts, env: LoweringEnv) -> Support:
        return Support.yes() if node.bits else Support.no("its matrices are of floats")

    def cost(self, node: ExpertProducts, env: LoweringEnv) -> float:
        return _estimated(node, env, node.block_format().bits)

    def steps(self, node: ExpertProducts, request: KernelRequest) -> list[Step]:
        form = node.block_format()
        weights = node.block_panels(request.workspace, form, tile_of(DType.FLOAT, request.target))
        return [_step(node, request, weights, form)]


def _estimated(node: ExpertProducts, env: LoweringEnv, bits: int) -> float:
    """Seconds on one core; `bits`: of memory that a number of the matrices takes."""
    rows, depth = (d if isinstance(d, int) else _USUAL_ROWS for d in node.rows_shape)
    found, lanes = rates(env.target.l2_nbytes), env.target.vector_bytes / 64
    compute = 2 * rows * depth * node.columns / (found.flops * lanes)
    weights = min(node.experts, rows) * depth * node.columns * bits / 8 / found.weight_bytes
    return max(compute, weights) + found.overlap * min(compute, weights)


def _step(node: ExpertProducts, request: KernelRequest, weights: str, blocks: BlockFormat | None) -> Step:
    target, workspace, (rows, depth) = request.target, request.workspace, node.rows_shape
    rows_read, starts = node.reads
    zero = workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64))
    bias = node.bias(workspace)
    spec = gemm_arguments.GemmSpec(DType.FLOAT, "packed" if blocks is None else "blocks", _BIASED if bias else None, blocks)
    micro, kernel = micro_text(DType.FLOAT, target), gemm_kernel.kernel_text(spec, target)
    call = ExpertCall(
        spec, target, micro.symbol, kernel.symbol, rows_read, starts, weights, bias, zero, request.out, node.experts,
        depth, node.columns,
    )  # fmt: skip
    reads = (*node.reads, weights, zero, *([bias] if bias else []))
    return Step(
        expert_kernels.products_text(spec, target), reads, (request.out,), call,
        serial=Below(product((rows, depth, node.columns)), _SERIAL_PRODUCTS), label="products of experts",
        calls=(micro, kernel), chosen=(weights,),
    )  # fmt: skip


def _biased() -> Epilogue:
    acc, bias = (k.input(i, DType.FLOAT, (1, 1)) for i in range(2))
    return Epilogue(acc + bias, ("column",), (DType.FLOAT,))


_BIASED = _biased()
