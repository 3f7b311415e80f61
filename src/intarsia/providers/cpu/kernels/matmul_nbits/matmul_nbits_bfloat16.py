"""The schedule of products by blocks of bits whose many rows are pairs of bfloat16 (VDPBF16PS), where the `accuracy_level` or
the session lets rows be rounded so.

Panels of B are unpacked to float32 in a thread's scratch and rounded to pairs, once for all tiles of a chunk of A.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.tiles import product_tile
from intarsia.providers.cpu.kernels.common.units import VECTORS
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import SAID, PairProduct, reads_rows, rounded, zero_tap
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, shares
from intarsia.providers.cpu.kernels.matmul.vnni import pays
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_rows_text
from intarsia.providers.cpu.kernels.matmul_nbits.block_schedule import ManyRows
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_arguments import OfRowsCall

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import BlockMatMul

_LEAST_ROWS = 16  # fewer are multiplied by numbers in registers, or float32 panels
_PAIRS_OF_A = 3  # the accuracy_level that lets A be rounded to bfloat16


@dataclass(frozen=True)
class Bfloat16ManyRows(ManyRows):
    """A is rounded by a step of its own."""

    def applies(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        rows, depth = node.rows_and_batches.rows, node.matrix_shape[0]
        if isinstance(rows, int) and rows < _LEAST_ROWS:
            return Support.no(f"{rows} rows, fewer than {_LEAST_ROWS}, are multiplied as fast in float32")
        options = replace(env.options, arithmetic="bfloat16") if node.accuracy_level == _PAIRS_OF_A else env.options
        if not reads_rows(options, env.target):
            return Support.no("products of pairs of bfloat16 are not requested, or the CPU is no faster with them")
        if depth % 2:
            return Support.no(f"{depth} terms are no pairs")
        return self.multiplies_few(node, env)

    def pays(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        depth, columns = node.matrix_shape
        if not pays(node.rows_and_batches.rows, columns, depth):
            return Support.no("it has too few columns or terms to be worth rounding rows")
        return Support.yes()

    def cost(self, node: BlockMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=2.0, copied=0.5)

    def steps(self, node: BlockMatMul, request: KernelRequest) -> list[Step]:
        target, workspace, m, (k, n) = request.target, request.workspace, node.rows_and_batches.rows, node.matrix_shape
        tile = product_tile(n, DType.FLOAT, target)
        right, *_ = node.right(workspace, True, tile, target)
        before, a = rounded(target, workspace, node.reads[0], DType.FLOAT, m * k)
        spec = gemm_arguments.GemmSpec(DType.FLOAT, "blocks", request.epilogue, node.form, tile=tile, unit=VECTORS)
        micro, zero = pair_rows_text(tile, target), zero_tap(workspace)
        call = PairProduct(spec, target, micro.symbol, a, right, request.out, zero, m, n, k // 2, request.operands)
        step = Step(
            gemm_kernel.kernel_text(spec, target), (a, right, zero, *request.operand_names), (request.out,),
            OfRowsCall(call, m, _LEAST_ROWS, many=True),
            serial=Below(m * n * k, SERIAL_PRODUCTS), label=f"gemm {m}x{n}x{k}", calls=(micro,),
            work=shares(m * n * (k // 2)), arithmetic=SAID, ahead=True,
        )  # fmt: skip
        return [*self.steps_of_few(node, request, _LEAST_ROWS), *before, step]
