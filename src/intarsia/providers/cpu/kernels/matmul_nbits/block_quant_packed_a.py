"""C = epilogue(A B) of many rows of float32 by weights of 4 or 8 bits: `packed_a_kernel` with a B of blocks
(`block_quant_kernel`).

A block of K steps of a panel of B is written out as float32 in the thread's scratch, where all tiles of A's rows meet it: rows
that are packed, or with AVX2 rows where they lie, few ones, too. Sums are float32's, as of weights that are dequantised first.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.plan.step import Argument
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul import packed_a_kernel as tiled
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.pack_a import k_block
from intarsia.providers.cpu.kernels.matmul.packed_a_kernel import FIELDS, TiledGemm
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import (
    DIRECT_ROWS,
    UNPACK_PARAMETERS,
    BlockFormat,
    unpack_text,
)

# Steps of a block of K where rows lie: for few rows half of a first-level cache of 32 KiB; for many, which are faster by longer
# blocks, what leaves short sums: 2048 at once are faster by 3 %, and three to seven times as far from exact ones.
_FEW_STEPS, _MANY_STEPS = 256, 512


def lie(target: Target) -> bool:
    """Whether rows are read where they lie: packed ones gain nothing (`Target.reads_rows`)."""
    return target.reads_rows and not target.halves_vectors


def least_rows(tile: Tile, target: Target) -> int:
    """From how many rows on they are for this kernel."""
    return DIRECT_ROWS + 1 if lie(target) else tiled.least_packed_rows(tile)


def fits(form: BlockFormat, k: int, tile: Tile, target: Target) -> bool:
    """Whether the blocks of K are whole blocks of the weights."""
    return lie(target) or k_block(k, tile) % form.size == 0


def parts(k: int, tile: Tile, target: Target) -> list[tuple[int, int]]:
    """(first, steps) of the parts of K: whole blocks each."""
    return [(0, k)] if lie(target) else tiled.parts(k, tile)


def scratch_nbytes(spec: GemmSpec, form: BlockFormat, target: Target, m: int, k: int) -> int:
    """Bytes of scratch a thread needs: a strip of tiles, and behind it a block of B."""
    assert spec.tile is not None
    written = _steps(form, m, k, spec.tile, target) * spec.tile.width * spec.tile.itemsize
    return tiled.tiled_scratch_nbytes(spec, target, m, k) + written


def _steps(form: BlockFormat, m: int, k: int, tile: Tile, target: Target) -> int:
    """Steps of a block of K."""
    if not lie(target):
        return k_block(k, tile)
    count = -(-k // (_MANY_STEPS if tiled.packs(m, tile) else _FEW_STEPS))
    return min(k, -(-k // (count * form.size)) * form.size)


def with_blocks(args: list[Argument], spec: GemmSpec, form: BlockFormat, target: Target, m: int, k: int) -> list[Argument]:
    """The arguments of `block_tiled_text`'s kernel, from those of `packed_a_kernel.tiled_args` for an A that is packed unless
    it lies; nothing to do where m is 0."""
    assert spec.tile is not None
    args[FIELDS.index("panel_nbytes")] = form.rows(k) * spec.tile.width * 4
    args[FIELDS.index("block")] = _steps(form, m, k, spec.tile, target)
    args[FIELDS.index("scratch_nbytes")] = scratch_nbytes(spec, form, target, m, k)
    return args


@functools.lru_cache(maxsize=256)
def block_tiled_text(spec: GemmSpec, form: BlockFormat, target: Target) -> KernelText:
    """The kernel of a spec (of FLOAT, with a tile)."""
    return _BlockTiled(spec, form, target).text()


class _BlockTiled(TiledGemm):
    def __init__(self, spec: GemmSpec, form: BlockFormat, target: Target) -> None:
        super().__init__(spec, target)
        self.form, self.lies = form, lie(target)
        self.unpack = self.module.part(unpack_text(form, self.tile, target), UNPACK_PARAMETERS)

    def _find_b(self, b: Value, panel: Value) -> None:
        body, v, tile = self.body, self.v, self.tile
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        self.ldb = body.mul(self.vectors, tile.lanes * tile.itemsize)
        self.b = body.at(b, body.mul(panel, v["panel_nbytes"]))

    def _begin_block(self, b: Value, at: Value, steps: Value) -> None:
        body, v, tile, form = self.body, self.v, self.tile, self.form
        before = body.add(v["first"], at)
        self.block_steps = steps
        self.block_a = body.at(v["a"], body.mul(before if self.lies else body.mul(before, v["m"]), tile.itemsize))
        end = body.at(v["scratch"], body.mul(body.add(body.args[1], 1), v["scratch_nbytes"]))
        self.block_b = body.at(end, body.sub(0, body.mul(v["block"], tile.width * tile.itemsize)))
        rows = body.mul(body.div(before, form.size), form.head + form.size // form.each)
        body.b.call(self.unpack, [body.at(self.b, body.mul(rows, self.ldb)), steps, self.block_b, self.vectors])

    def _multiply(self, row: Value, rows: Value, accumulate: Value, ahead: Value) -> None:
        body, v = self.body, self.v
        before = body.mul(row, v["lda"]) if self.lies else body.mul(body.mul(row, self.block_steps), self.tile.itemsize)
        place_a = [body.at(self.block_a, before), v["lda"] if self.lies else 0]
        given = [*place_a, self.block_b, self.ldb, self.block_steps, v["taps"], 1, self.buffer, accumulate, self.block_b, 0]
        body.call_pointer(v["micro"], PARAMETERS, [*given, rows, self.vectors])
