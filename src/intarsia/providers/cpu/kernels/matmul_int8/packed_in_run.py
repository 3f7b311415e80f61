"""The schedule of products by bytes that the run computes: these are packed in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import estimated
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.byte_product_arguments import PackBytesCall
from intarsia.providers.cpu.kernels.matmul_int8.byte_product_steps import (
    SERIAL_PRODUCTS,
    ByteSchedule,
    ProductSteps,
    plain_factors,
)
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import rate_of
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import BytePackSpec, byte_pack_text

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul


@dataclass(frozen=True)
class PackedInRun(ByteSchedule):
    """Any product: a step packs B and sums its columns."""

    def applies(self, node: ByteMatMul, env: LoweringEnv) -> Support:
        return Support.yes()

    def cost(self, node: ByteMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=rate_of(env.target), packed=1.0)

    def steps(self, node: ByteMatMul, request: KernelRequest) -> list[Step]:
        step, made = _packing_step(node, request), ProductSteps(node, request)
        made.before.append(step)
        made.subtract_computed(step.writes[1])
        return made.product(plain_factors(node, request, step.writes[0]))


def _packing_step(node: ByteMatMul, request: KernelRequest) -> Step:
    """The step that packs all matrices of B, and sums their columns."""
    found, tile, workspace = node.rows_and_batches, byte_tile(request.target), request.workspace
    matrices: list[Dim] = [d for d, s in zip(found.sizes, found.b, strict=True) if s != 0]
    count, depth, n = product(matrices), node.depth, node.columns
    source = node.reads[1]
    padded = (depth + 3) * (n + tile.lanes - 1)  # at least what the panels take, and a polynomial
    packed = workspace.temporary(f"{request.out}%packed", DType.INT8, (count, padded))
    sums = workspace.temporary(f"{request.out}%sums", SUMS, (count, n))
    return Step(
        byte_pack_text(BytePackSpec(node.weight_dtype), request.target), (source,), (packed, sums),
        PackBytesCall(source, packed, sums, depth, n, count),
        serial=Below(depth * n * count, SERIAL_PRODUCTS // 8), label="pack bytes",
    )  # fmt: skip
