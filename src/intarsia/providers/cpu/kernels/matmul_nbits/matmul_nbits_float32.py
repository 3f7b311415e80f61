"""The schedule of products of many rows of float32 by blocks of bits, which are written out as float32 for all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.microkernel import met_of, micro_text, tiled_micro_text
from intarsia.providers.cpu.kernels.common.packing import ZERO_TAP
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import PackCall, PartCall
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, shares
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_text
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_packed_a
from intarsia.providers.cpu.kernels.matmul_nbits.block_schedule import ManyRows
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits_arguments import TiledBlocks

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import BlockMatMul


def _tile(node: BlockMatMul, target: Target) -> Tile:
    """Where rows may be few or many, both kinds of steps read the same panels."""
    if isinstance(node.rows_and_batches.rows, int):
        return product_tile(node.matrix_shape[1], DType.FLOAT, target)
    return tile_of(DType.FLOAT, target)


@dataclass(frozen=True)
class UnpackedBlocks(ManyRows):
    """A is packed by tiles, or with `in_place` read where it lies; a step for each range of K blocks."""

    in_place: bool

    def applies(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        target, tile, rows, depth = env.target, _tile(node, env.target), node.rows_and_batches.rows, node.matrix_shape[0]
        if block_quant_packed_a.lie(target) != self.in_place:
            return Support.no(
                "products of packed rows are faster on this CPU" if self.in_place else "packed rows gain nothing on this CPU"
            )
        if not block_quant_packed_a.fits(node.form, depth, tile, target):
            return Support.no(f"blocks of {node.form.size} numbers do not divide the parts of K that stay in a cache")
        least = block_quant_packed_a.least_rows(tile, target)
        if isinstance(rows, int) and rows < least:
            return Support.no(f"{rows} rows, fewer than {least}, are not worth writing weights out")
        return self.multiplies_few(node, env)

    def pays(self, node: BlockMatMul, env: LoweringEnv) -> Support:
        depth, columns = node.matrix_shape
        if not tiled.tiles_pay(columns, depth, GemmSpec(), env.target):
            return Support.no(f"packing rows of {depth} costs more than it spares for {columns} columns")
        return Support.yes()

    def cost(self, node: BlockMatMul, env: LoweringEnv) -> float:
        return estimated(node, env, copied=0.0 if self.in_place else 0.5)

    def steps(self, node: BlockMatMul, request: KernelRequest) -> list[Step]:
        target, workspace, source, (k, n) = request.target, request.workspace, node.reads[0], node.matrix_shape
        m, tile = node.rows_and_batches.rows, _tile(node, request.target)
        spec = GemmSpec(DType.FLOAT, "packed", request.epilogue, tile=tile)
        right, *_ = node.right(workspace, True, tile, target)
        zero = workspace.add("", ZERO_TAP, lambda: np.zeros(1, np.int64))
        packed = source if self.in_place else workspace.temporary(f"{source}%tiles{tile.rows}", DType.FLOAT, (m, k))
        parts, sums = block_quant_packed_a.parts(k, tile, target), ""
        if len(parts) > 1:
            sums = workspace.temporary(f"{request.out}%sums", DType.FLOAT, (tiled.partial_elements(m, n, tile),))
        rows_micro = micro_text(DType.FLOAT, target, tile, met=met_of(tile, m, n))
        micro = rows_micro if self.in_place else tiled_micro_text(DType.FLOAT, target, tile)
        product = TiledBlocks(
            spec, node.form, target, micro.symbol, source, packed, right, request.out, zero, sums, m, k, n, request.operands
        )
        steps = [] if self.in_place else [
            Step(
                pack_tiles_text(DType.FLOAT, tile, target), (source,), (packed,), PackCall(product),
                serial=Below(m, 4 * tile.rows), label=f"pack {m}x{k}", shared=True,
            )
        ]  # fmt: skip
        between = (sums,) if sums else ()
        steps += [
            Step(
                block_quant_packed_a.block_tiled_text(spec, node.form, target),
                (packed, right, zero, *request.operand_names, *between), (request.out, *between), PartCall(product, part),
                label=f"gemm {m}x{n}x{part[1]}" + (f" of {k}" if sums else ""),
                serial=Below(m * n * k, SERIAL_PRODUCTS) if self.in_place else Below(m, 4 * tile.rows), calls=(micro,),
                work=shares(m * n * part[1]), ahead=True,
            )
            for part in parts
        ]  # fmt: skip
        return [*self.steps_of_few(node, request, block_quant_packed_a.least_rows(tile, target)), *steps]
