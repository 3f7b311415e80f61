"""The schedule of products by blocks of bits whose `accuracy_level` lets rows be rounded to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_int8
from intarsia.providers.cpu.kernels.matmul_nbits.block_schedule import BlockSchedule
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_arguments import (
    BYTES_IN_TIME,
    ByteBlocksCall,
    QuantizeCall,
    byte_shares,
)

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import BlockMatMul

_BYTES_OF_A = 4  # the accuracy_level that lets A be rounded to bytes, in blocks of its own
_SERIAL_ELEMENTS = 16384  # of A: fewer are quantised by one thread


@dataclass(frozen=True)
class Int8Rows(BlockSchedule):
    """A step makes bytes of A's rows, in blocks with scales of their own, and one multiplies them."""

    def applies(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        if node.accuracy_level != _BYTES_OF_A:
            return Support.no(f"its accuracy_level is {node.accuracy_level}, and {_BYTES_OF_A} lets rows be rounded to bytes")
        return block_quant_int8.takes(node.form, env.target)

    def cost(self, node: BlockMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, rate=BYTES_IN_TIME, copied=0.25)

    def steps(self, node: BlockMatMul, request: KernelRequest) -> list[Step]:
        form, target, workspace, (depth, columns) = node.form, request.target, request.workspace, node.matrix_shape
        rows, source, operands = node.rows_and_batches.rows, node.reads[0], request.operands
        tile, blocks = block_quant_int8.block_tile(target), -(-depth // form.size)
        spec = GemmSpec(DType.FLOAT, epilogue=request.epilogue, tile=tile)
        dtype = block_quant_int8.row_dtype(form, target)
        packing = Packing(Layout.INT8_BLOCKS, tile.width, dtype, form)
        right = workspace.add(node.reads[1], packing, lambda: node.packed_for_bytes(workspace, target))
        middle = "" if form.zeros else str(form.bits)
        numbers = workspace.temporary(f"{source}%bytes{form.size}_{dtype.bits}", dtype, (rows, blocks * form.size))
        scales = workspace.temporary(f"{source}%scales{form.size}_{middle}", DType.FLOAT, (rows, 2 * blocks))
        micro = block_quant_int8.block_micro_text(form, target)
        call = ByteBlocksCall(
            spec, form, target, micro.symbol, numbers, scales, right, request.out, rows, depth, columns, operands
        )
        products = rows * columns * depth
        return [
            Step(
                block_quant_int8.quantize_rows_text(form, target), (source,), (numbers, scales),
                QuantizeCall(source, numbers, scales, rows, depth), serial=Below(rows * depth, _SERIAL_ELEMENTS),
                label=f"quantize {rows}x{depth}", shared=True, arithmetic="int8",
            ),
            Step(
                block_quant_int8.block_text(spec, target), (numbers, scales, right, *request.operand_names), (request.out,),
                call, serial=Below(products, SERIAL_PRODUCTS * BYTES_IN_TIME),
                label=f"gemm {rows}x{columns}x{depth}", calls=(micro,), work=byte_shares(products), arithmetic="int8",
                ahead=True,
            ),
        ]  # fmt: skip
