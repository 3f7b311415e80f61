"""Pointwise convolutions in K blocks (`blocked_k_microkernel`): C[m, n] = epilogue(A[m, :] B), A in rows.

Packed weights are [panel][step][columns of the panel]. One block of a panel, some 128 steps, stays in the first-level cache
while the tiles of a group go past it; their sums wait on the stack. Units of work are tiles in the order chunk of tiles, panel,
tile, and shared by `claims`. `line_buffer_kernel` has the windows, which share the way through blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, tiled_rows
from intarsia.providers.cpu.kernels.common.register_epilogue import Record, ending_of
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import A_RESIDENT_NBYTES, GemmSpec, Operand
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import Gemm

LINE = 64  # bytes of a pixel's channels in a block
GROUP = 32  # tiles whose sums wait at once
BLOCK_TAPS = 18  # of a block of steps, about: two for every pixel of a 3 x 3 window
_STREAMED_TAPS = 128  # of a block of rows' sums that is read from the second-level cache
_L1_WAY_NBYTES = 4096  # lines so distant are in the same set of a first-level cache of 32 KiB, which holds eight
_ROWS_FIELDS = (
    *"micro a lda b near c ldc m n taps units per rest blocks panel_nbytes tiles rows extra chunk panels".split(),
    *claiming.FIELDS,
)


def check(spec: GemmSpec) -> Tile:
    if spec.tile is None or spec.b_layout != "packed" or spec.dtype not in (DType.FLOAT, DType.DOUBLE):
        raise ValueError(f"blocked products are of FLOAT or DOUBLE by packed weights, in a tile that is given; got {spec}")
    return spec.tile


def has_long_blocks(target: Target) -> bool:
    """Whether a block need not stay in the first-level cache: a step of 6 x 2 vectors of 32 bytes reads 64 bytes of B in 6
    cycles, one of 14 x 2 vectors in two halves 128 in 28, which the second level delivers, and sums that wait between blocks,
    and calls of the micro-kernel, cost more."""
    return target.is_avx2 or target.halves_vectors


def _most_taps(target: Target) -> int:
    """Of a block of rows' sums; with AVX-512 longer ones gained a hundredth at four times the error."""
    return _STREAMED_TAPS if target.is_avx2 else BLOCK_TAPS


def row_taps(dtype: DType, target: Target) -> np.ndarray:
    """The taps of a block of `rows_text`: int64 bytes."""
    return np.arange(_most_taps(target) + 1, dtype=np.int64) * STEPS * itemsize(dtype)


def row_blocks(k: int, target: Target) -> tuple[int, int, int, int]:
    """Division of a sum of k products: taps, taps of a block, single steps behind the last one, blocks."""
    units = k // STEPS
    blocks = max(1, -(-units // _most_taps(target)))
    return units, max(1, -(-units // blocks)), k % STEPS, blocks


def _near(lda: int, rows: int, target: Target) -> int:
    """How far behind a tile's rows those lie that are fetched into the first-level cache, the next tile's: 0 (its own) where
    both would be in one set."""
    return 0 if target.is_avx2 and lda % _L1_WAY_NBYTES == 0 else lda * rows


def rows_args(
    spec: GemmSpec,
    target: Target,
    *,
    micro: Address,
    a: Address,
    b: Address,
    c: Address,
    m: int,
    n: int,
    k: int,
    taps: Address,
    claims: Address = 0,
    lda: int | None = None,
    ldc: int | None = None,
    operands: Sequence[Operand] = (),
    threads: int = 1,
) -> list[Argument]:
    """The arguments of `rows_text` for C[M, N] = A[M, K] B[K, N].

    Args:
        taps: the address of `row_taps`.
        claims: the address of an int64 0 for this call alone, which is 0 again at its end; for one thread it is not used.
        threads: for how many threads work is divided; any number may call the kernel.
    """
    tile = check(spec)
    size, out_size = tile.itemsize, itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)
    lda, ldc = lda or k * size, ldc or n * out_size
    tiles, panels = -(-m // tile.rows), -(-n // tile.width)
    chunks = min(max(1, tiles), max(1, -(-(lda * m) // A_RESIDENT_NBYTES)))
    if lda * m + ldc * m > k * n * size and tiles >= 2 * threads:
        chunks = -(-chunks // threads) * threads
    even, chunk = m // max(1, tiles), max(1, -(-tiles // chunks))
    args = [
        micro, a, lda, b, _near(lda, even, target), c, ldc, m, n, taps, *row_blocks(k, target), k * tile.width * size, tiles,
        even, m % max(1, tiles), chunk, panels, claims,
        *pieces.tail(tiles * panels, tile.rows * tile.width * k, threads, (chunk,)),
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


@functools.lru_cache(maxsize=1024)
def rows_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel for A in rows; its arguments are `rows_args`, the micro-kernel `blocked_k_microkernel.stepped_micro_text`."""
    return Rows(spec, target).text()


@dataclass(frozen=True)
class Block:
    """One block of a panel's sums, as the kernel is to multiply it.

    Attributes:
        tap, taps, rest: its first tap, their number, and single steps behind them.
        fields: what else tells which products these are.
        is_first, is_last: of the panel.
        b: its rows of B.
        ahead, pace: rows of B to be fetched meanwhile, each tile some, and the bytes that a tap fetches.
    """

    tap: Value
    taps: Value
    rest: Value
    fields: dict[str, Value]
    is_first: Value
    is_last: Value
    b: Value
    ahead: Value
    pace: Value


def chunk_place(body: Body, v: Mapping[str, Value], unit: Value) -> tuple[Value, Value, Value, Value, Value]:
    """Where a unit is, panel by panel in chunks of tiles: its chunk, that one's first tile and tiles, the panel, and its tile
    in the chunk. `v` has the kernel's arguments."""
    chunk_units = body.mul(v["chunk"], v["panels"])
    chunk, inside = body.div(unit, chunk_units), body.rem(unit, chunk_units)
    first_tile = body.mul(chunk, v["chunk"])
    tiles = body.min(v["chunk"], body.sub(v["tiles"], first_tile))
    return chunk, first_tile, tiles, body.div(inside, tiles), body.rem(inside, tiles)


class Rows(Gemm):
    fields: Sequence[str] = _ROWS_FIELDS
    pointers: Sequence[str] = ("micro", "a", "b", "c", "taps", "claims")
    name = "rows"

    def text(self) -> KernelText:
        body = self.body
        self.read_arguments()
        v = self.v
        self.sums = body.alloca(GROUP * self.tile.nbytes)
        ending = ending_of(self.spec.epilogue, self.spec.dtype, self.module.target) if self.spec.ends else None
        self.ending = Record(body, ending, self.spec.dtype, v["ldc"]) if ending is not None else None
        self.bias, self.residual = (ending.bias, ending.residual) if ending is not None else (0, -1)
        if self.ending is not None and self.residual >= 0:
            self.ending.set("residual_row", self.operands[self.residual][1])
        claiming.emit_shares(body, self._begin(), v, self._units)
        body.b.ret_void()
        return self.module.text(self.name, self.effort)

    def _begin(self) -> Value:
        """Writes the code at the beginning of a call; returns how many units there are."""
        return self.body.mul(self.v["tiles"], self.v["panels"])

    def _units(self, unit: Value, last: Value, taken: Value) -> Value:
        body = self.body
        _, first_tile, tiles, panel, start = chunk_place(body, self.v, unit)
        count = body.min(body.sub(tiles, start), body.sub(last, unit))
        self._stand(panel)
        self._groups(body.add(first_tile, start), count)
        return count

    def _stand(self, panel: Value) -> None:
        """At a panel: its weights, and its columns of the output and of the operands."""
        body, v, tile = self.body, self.v, self.tile
        column = body.mul(panel, tile.width)
        self.columns = body.min(body.sub(v["n"], column), tile.width)
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        self.ldb = body.mul(self.vectors, tile.lanes * tile.itemsize)
        self.b = body.at(v["b"], body.mul(panel, v["panel_nbytes"]))
        self.c = body.at(v["c"], body.mul(column, self.finish.itemsize))
        self.bases = []
        for kind, dtype, operand in zip(self.finish.kinds, self.finish.dtypes, self.operands, strict=True):
            offset = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            self.bases.append(body.at(operand[0], offset))
        if self.ending is not None:
            self.ending.set("bias", body.b.ptrtoint(self.bases[self.bias], column.type))
            self.ending.set("rest", body.rem(self.columns, tile.lanes))

    def _groups(self, first: Value, count: Value) -> None:
        """Tiles from `first` on by one panel: a group after the other, each block by block."""
        body, v = self.body, self.v
        tap_nbytes = body.mul(self.ldb, STEPS)
        with body.loop(0, count, GROUP) as start:
            number = body.min(GROUP, body.sub(count, start))
            pace = body.div(body.add(tap_nbytes, body.sub(number, 1)), number)
            with body.loop(0, v["blocks"]) as index:
                is_last = body.equal(body.add(index, 1), v["blocks"])
                tap, taps, rest, fields = self._block(index, is_last)
                b = body.at(self.b, body.mul(tap, tap_nbytes))
                ahead = body.at(b, body.mul(taps, tap_nbytes), body.mul(rest, self.ldb))
                block = Block(tap, taps, rest, fields, body.equal(index, 0), is_last, b, ahead, pace)
                with body.loop(0, number) as i:
                    self.buffer = body.at(self.sums, body.mul(i, self.tile.nbytes))
                    self.fetch = body.at(block.ahead, body.mul(body.mul(i, taps), pace))
                    self._tile(body.add(first, body.add(start, i)), block)

    def _block(self, index: Value, is_last: Value) -> tuple[Value, Value, Value, dict[str, Value]]:
        """The first tap of a block, its taps, its single steps, and what else `_tile` needs."""
        body, v = self.body, self.v
        tap = body.mul(index, v["per"])
        return tap, body.min(v["per"], body.sub(v["units"], tap)), body.select(is_last, v["rest"], 0), {}

    def _multiply(
        self, a: Value, b: Value, rest: Value, taps: Value, count: Value, accumulate: Value, block: Block, rows: Value
    ) -> None:
        """`count` taps of the table `taps` by the rows of B at `b`, for a tile of so many rows at `a`."""
        v = self.v
        self.body.call_pointer(
            v["micro"], PARAMETERS,
            [
                a, v["lda"], b, v["near"], rest, taps, count, self.buffer, accumulate, self.fetch, block.pace, rows,
                self.vectors,
            ],
        )  # fmt: skip

    def _tile(self, tile: Value, block: Block) -> None:
        """One block of one tile's sums, and the tile's end behind its last block."""
        body, v = self.body, self.v
        row = body.add(body.mul(tile, v["rows"]), body.min(tile, v["extra"]))
        rows = body.add(v["rows"], body.select(body.less(tile, v["extra"]), 1, 0))
        a = body.at(v["a"], body.mul(row, v["lda"]), body.mul(block.tap, STEPS * self.tile.itemsize))
        c = body.at(self.c, body.mul(row, v["ldc"]))
        places = self._places([(row, 1)])
        accumulate, finishes = body.select(block.is_first, 0, 1), block.is_last
        if self.ending is not None:
            direct = body.less(tiled_rows(self.tile) - 1, rows)
            finishes = body.b.and_(block.is_last, body.b.not_(direct))
            self.ending.set("accumulate", accumulate)
            self.ending.set("c", body.b.ptrtoint(c, row.type))
            if self.residual >= 0:
                self.ending.set("residual", body.b.ptrtoint(places[self.residual], row.type))
            accumulate = body.select(body.b.and_(block.is_last, direct), self.ending.address, accumulate)
        with body.when(block.is_last if self.residual >= 0 else finishes):
            self._fetch(c, places, rows)
        self._multiply(a, block.b, block.rest, v["taps"], block.taps, accumulate, block, rows)
        with body.when(finishes):
            self._finish(c, places, rows)

    def _places(self, place: list[tuple[Value, int]]) -> list[Value]:
        """Where a tile's operands are; `place` has its numbers of rows, lines and images, and their fields of an operand."""
        body = self.body
        return [
            body.at(base, *(body.mul(i, operand[level]) for i, level in place)) if kind in ("row", "full") else base
            for kind, base, operand in zip(self.finish.kinds, self.bases, self.operands, strict=True)
        ]

    def _finish(self, c: Value, places: list[Value], rows: Value) -> None:
        """The epilogue of a tile."""
        body = self.body
        with body.either(body.equal(self.columns, self.tile.width)) as (whole, partial):
            with whole:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)
