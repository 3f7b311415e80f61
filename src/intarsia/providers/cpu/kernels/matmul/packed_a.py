"""The schedules of matrix products by a constant for which A is packed by tiles, then multiplied in K blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Below, Step
from intarsia.providers.cpu.kernels.common.microkernel import met_of, micro_text, tiled_micro_text
from intarsia.providers.cpu.kernels.common.precision import described
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.tiles import Tile, columns_time, product_tile
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import zero_tap
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.matmul_arguments import PackCall, PackedAProduct, PartCall
from intarsia.providers.cpu.kernels.matmul.matmul_schedule_base import MatMulSchedule, estimated
from intarsia.providers.cpu.kernels.matmul.matmul_steps import SERIAL_PRODUCTS, shares
from intarsia.providers.cpu.kernels.matmul.pack_a import pack_tiles_text

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.matmul.matmul import MatMul

TILE_14X2, _TILE_8X3 = Tile(14, 2, 16, 4), Tile(8, 3, 16, 4)  # of 32 registers of 64 bytes; either may be the faster
_YES = Support.yes()


def packing_pays(node: MatMul, env: LoweringEnv) -> Support:
    """Whether A is packed where it has many rows: the second operand is a large enough constant."""
    if not node.is_single:
        return Support.no("it has batch axes of its own in both operands")
    columns, depth, rows = node.columns, node.depth, node.rows_and_batches.rows
    if not env.constants.is_constant(node.reads[1]) or not isinstance(depth, int) or not isinstance(columns, int):
        return Support.no("its second operand is computed in the run")
    if isinstance(rows, int) and not tiled.packs(rows, product_tile(columns, node.dtype, env.target)):
        return Support.no(f"{rows} rows are too few to use B's lines again")
    if not tiled.tiles_pay(columns, depth, GemmSpec(node.dtype), env.target):
        return Support.no(f"packing rows of {depth} costs more than it spares for {columns} columns")
    return _YES


@dataclass(frozen=True)
class PackedA(MatMulSchedule):
    """By the register tile `tile`, or that which suits the columns best: 8 x 3 where both fit, as few columns are not packed
    for."""

    tile: Tile | None = None

    def applies(self, node: MatMul, env: LoweringEnv) -> Support:
        found = node.reads_floats() and packing_pays(node, env)
        if not found or self.tile is None:
            return found
        if node.dtype is not DType.FLOAT:
            return Support.no(f"it is of {node.dtype.name.lower()}, not float32")
        if self._default(node, env) != _TILE_8X3:
            return Support.no("the CPU has no registers for its tile")
        return found

    def pays(self, node: MatMul, env: LoweringEnv) -> Support:
        return _YES if self.tile is None else Support.no("the other tile suits the columns better by estimate")

    def cost(self, node: MatMul, env: LoweringEnv) -> float:
        tile, columns, rate = self.tile or self._default(node, env), node.matrix_shape[1], 1.0
        if tile in (TILE_14X2, _TILE_8X3) and columns:
            rate = columns / tile.lanes / columns_time(columns, tile)
        return estimated(node, env, rate=rate, copied=0.5)

    @staticmethod
    def _default(node: MatMul, env: LoweringEnv) -> Tile:
        """The tile that suits the columns best."""
        return product_tile(node.matrix_shape[1], node.dtype, env.target)

    def steps(self, node: MatMul, request: KernelRequest) -> list[Step]:
        target, workspace, dtype, (k, n) = request.target, request.workspace, node.dtype, node.matrix_shape
        m = node.rows_and_batches.rows
        tile = self.tile or product_tile(n, dtype, target)
        right, layout, _, stored = node.right(workspace, True, tile, target)
        assert layout == "packed", layout
        spec = GemmSpec(dtype, "packed", request.epilogue, tile=tile, stored=stored)
        zero = zero_tap(workspace)
        packed = workspace.temporary(f"{node.reads[0]}%tiles{tile.rows}", dtype, (m, k))
        parts, sums = tiled.parts(k, tile), ""
        if len(parts) > 1:
            sums = workspace.temporary(f"{request.out}%sums", dtype, (tiled.partial_elements(m, n, tile),))
        few_rows = micro_text(dtype, target, tile, stored, met_of(tile, None, n))
        micros = few_rows, tiled_micro_text(dtype, target, tile)
        few = Below(m, 4 * tile.rows)
        made = PackedAProduct(
            spec, target, (micros[0].symbol, micros[1].symbol), (node.reads[0], packed), right, request.out, zero, sums, m, k,
            n, request.operands,
        )  # fmt: skip
        steps = [
            Step(
                pack_tiles_text(dtype, tile, target), (node.reads[0],), (packed,), PackCall(made), serial=few,
                label=f"pack {m}x{k}", shared=True,
            )
        ]  # fmt: skip
        between = (sums,) if sums else ()
        for number, part in enumerate(parts):
            reads = (node.reads[0], packed, right, zero, *request.operand_names, *between)
            steps.append(
                Step(
                    tiled.tiled_text(spec, target), reads, (request.out, *between), PartCall(made, part),
                    label=f"gemm {m}x{n}x{part[1]}" + (f" of {k}" if sums else ""),
                    serial=few if number else Below(m * n * k, SERIAL_PRODUCTS), calls=micros, arithmetic=described(stored),
                    work=shares(m * n * part[1]), ahead=True,
                )
            )  # fmt: skip
        return steps
