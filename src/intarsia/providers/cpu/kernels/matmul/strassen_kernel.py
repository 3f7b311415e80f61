"""C[m, n] = epilogue(sum over p of A[m, p] * B[p, n]) by seven products of halves instead of eight (Strassen, 1969).

A's rows are two halves, B's columns are pairs of neighbouring panels, a block of K's steps are two halves: of a pair, B11
and B21 are the halves of the first panel's rows, B12 and B22 of the second's.

    M1 = (A11 + A22) (B11 + B22)    C11 = M1 + M4 - M5 + M7
    M2 = (A21 + A22) B11            C12 = M3 + M5
    M3 = A11 (B12 - B22)            C21 = M2 + M4
    M4 = A22 (B21 - B11)            C22 = M1 - M2 + M3 + M6
    M5 = (A11 + A12) B22
    M6 = (A21 - A11) (B11 + B12)
    M7 = (A12 - A22) (B21 + B22)

Only sums are stored, in a thread's scratch: those of A once for each tile of rows and chunk, those of B by the micro-kernel
that reads them first, one panel, which the product's other tiles read. Parts of B in fewer bits are widened there in the same
way. Products of tiles wait there until those of a quarter are complete. The first two products need no sums of A, so they are
the ones that bring A from where it was written.
K goes in blocks, so that what a block's products read stays in the second-level cache, and sums are short.

What is added must be alike (`strassen_pieces.emit_sums`, `alike_panels`): where it is not, tiles are computed as the definition
has them, and so are panels without a partner. A matrix of few rows is given to the kernel of `gemm`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from intarsia.codegen.builder.kernel_body import Cell, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, tiled_rows
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import chunk_place
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import ARGUMENTS, GemmSpec, Operand, argument_count
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import matrix_args as plain_args
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import Gemm
from intarsia.providers.cpu.kernels.matmul.strassen_pieces import SUMMING, SUMS, emit_sums

_K_BLOCK = 768
_CHUNK_NBYTES = 9 << 17  # of sums of A and of products
_NEAR_NBYTES = 24 << 10  # of a part of B in fewer bits that stays in the first-level cache, which it would not if widened
_MOST_TILES = 62  # of a chunk: each has a bit of a word
THREAD_NBYTES = 3 << 19  # of a thread's sums
_MORE = "summing summed plain chunk block alike tail piece seven tiles".split()  # behind the arguments of `gemm`
_CALLED = ("p", "i", "i")
# Of each product: which sum of A, or -1 - the half of its rows and steps (A11, A22); B's parts (B11, B21, B12, B22) and how
# they are added (0: only the first); which quarter (C11, C12, C21, C22) has all its products then (-1: none).
_PRODUCTS = (
    (-1, 2, 3, -1, -1),  # M3
    (-2, 1, 0, -1, -1),  # M4
    (0, 0, 3, 1, -1),  # M1
    (1, 0, 0, 0, 2),  # M2
    (3, 3, 0, 0, 1),  # M5
    (2, 0, 2, 1, 3),  # M6
    (4, 1, 3, 1, 0),  # M7
)
_NOTHING = len(_PRODUCTS)
# Of each quarter: the products of which the first three are added and the last is subtracted.
_QUARTERS = ((2, 1, 6, 4), (0, 4, _NOTHING, _NOTHING), (3, 1, _NOTHING, _NOTHING), (2, 0, 5, 3))
_UNSUMMED = 2  # products at the beginning that need no sum of A
_ENTRY, _TERMS = len(_PRODUCTS[0]), len(_QUARTERS[0])
_TAPS = 1  # of the micro-kernel, which the table begins with
TABLE = np.array([0, *(x for row in (*_PRODUCTS, *_QUARTERS) for x in row)], np.int64)


def saved(m: int, n: int, k: int, threads: int, tile: Tile) -> float:
    """Which part of a product's time is saved, by estimate; below 0: none.

    An eighth of the pairs' multiplications, less the sums of A and of B, and what each block's products cost in memory. Fitted
    to an AMD EPYC (Zen 4).
    """
    pairs = n // (2 * tile.width)
    if not takes(m, tile) or k % 2 or not pairs:
        return -1.0
    tiles, chunk = cut(m, n, k, threads, tile)
    chunks = -(-tiles // chunk)
    return pairs * 2 * tile.width / n / 8 - _sums_cost(m, chunks, n, threads) - 14 / block_steps(k)


def takes(m: int, tile: Tile) -> bool:
    """Whether halves of so many rows are divided into tiles that the summing micro-kernel takes."""
    return m > 2 * tile.rows and _half(m) // _tiles(m, tile) >= tiled_rows(tile)


def _half(m: int) -> int:
    return (m + 1) // 2


def _tiles(m: int, tile: Tile) -> int:
    """The fewest tiles of half of the rows."""
    return -(-_half(m) // tile.rows)


def block_steps(k: int) -> int:
    """Steps of a block of K: even parts, halves of whole vectors."""
    return -(-k // (-(-k // _K_BLOCK) * 32)) * 32


def _sum_row_nbytes(k: int) -> int:
    """Bytes between rows of a block's sums, which do not all meet in one set of a cache."""
    return -(-(block_steps(k) // 2) // 16) * 64 + 64


def _sums_cost(m: int, chunks: int, n: int, threads: int) -> float:
    """Which part of a product's time is spent on sums: those of A each thread makes that comes to a chunk, those of B are made
    for each chunk."""
    makers = 1 if chunks % threads == 0 else 1 + (threads - 1) / chunks
    return 9 * makers / n + 3.2 * chunks / m


def cut(m: int, n: int, k: int, threads: int, tile: Tile) -> tuple[int, int]:
    """Tiles that a half of the rows has, and those of a chunk: even numbers, as many as memory allows, or as make chunks for
    each thread, where that costs less; then each thread has as many tiles, if these do not get too low."""
    tiles = _tiles(m, tile)
    fit = min(_MOST_TILES, max(4, _CHUNK_NBYTES // _slot_nbytes(k, tile)))
    fewest = -(-tiles // fit)
    own = -(-fewest // threads) * threads
    chunks = min((fewest, own), key=lambda x: _sums_cost(m, x, n, threads))
    chunk = -(-tiles // chunks)
    return (chunk * chunks if _half(m) // (chunk * chunks) >= tiled_rows(tile) else tiles), chunk


def _slot_nbytes(k: int, tile: Tile) -> int:
    """Bytes that a tile of a chunk needs: sums of A, and products."""
    return -(-k // block_steps(k)) * tile.rows * SUMS * _sum_row_nbytes(k) + len(_PRODUCTS) * tile.nbytes


def scratch_nbytes(m: int, n: int, k: int, threads: int, tile: Tile) -> int:
    """Bytes of a thread's `THREAD_NBYTES` that it needs."""
    b_sums = block_steps(k) // 2 * tile.width * tile.itemsize
    return cut(m, n, k, threads, tile)[1] * _slot_nbytes(k, tile) + b_sums


def matrix_args(
    spec: GemmSpec,
    target: Target,
    *,
    micro: Address,
    summing: Address,
    summed: Address,
    plain: Address,
    seven: int,
    a: Address,
    b: Address,
    c: Address,
    m: int,
    n: int,
    k: int,
    lda: int | None = None,
    ldc: int | None = None,
    table: Address,
    alike: Address,
    scratch: Address,
    claims: Address = 0,
    threads: int = 1,
    operands: Sequence[Operand] = (),
) -> list[Argument]:
    """The kernel's arguments for C[M, N] = A[M, K] B[K, N] of packed B.

    Args:
        lda, ldc: bytes between rows where these are not dense.
        micro, summing: the addresses of `micro_text` and `summing_micro_text` for B as it is stored.
        summed, plain: those of `micro_text` for sums of B, and of the kernel of `gemm` of the same spec, which computes all of
            it for more threads than `seven`.
        table, alike: the addresses of `TABLE` and `alike_panels(B)`.
        scratch: that of `THREAD_NBYTES` bytes for each of `seven` threads; no other kernel needs to know where it lies.
        claims, threads, operands: see `gemm_kernel.matrix_args`.
    """
    tile = spec.tile
    assert tile is not None
    args = plain_args(
        spec, target, micro=micro, a=a, b=b, c=c, m=m, n=n, k=k, lda=lda, ldc=ldc, taps=table, scratch=scratch, claims=claims,
        threads=threads, operands=operands,
    )  # fmt: skip
    if not seven:
        return [*args, summing, summed, plain, 0, 0, alike, 0, 1, 0, 1]
    args[ARGUMENTS["scratch_nbytes"]] = THREAD_NBYTES
    tiles, chunk = cut(m, n, k, threads, tile)
    groups = -(-n // tile.width) - n // (2 * tile.width)
    products = tile.rows * tile.width * k * 7 // 2
    tail = pieces.tail(tiles * groups, products, threads if claims else 1)
    return [*args, summing, summed, plain, chunk, block_steps(k), alike, *tail, seven, tiles]


@functools.lru_cache(maxsize=256)
def kernel_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec of FLOAT, packed B and a tile; it takes the arguments that `matrix_args` lists."""
    return Strassen(spec, target).text()


class Strassen(Gemm):
    """Writes one kernel. Its units are pairs of tiles of rows by pairs of panels, or by a panel without a partner."""

    def text(self) -> KernelText:
        body, tile = self.body, self.tile
        self.sum_rows = emit_sums(self.module, tile)
        self.read_arguments()
        args, tid, count = body.args
        for index, name in enumerate(_MORE, argument_count(len(self.finish.kinds))):
            pointer = name in ("summing", "summed", "plain", "alike")
            self.v[name] = body.load_pointer(args, index) if pointer else body.load_i64(args, index)
        with body.either(body.less(self.v["seven"], count)) as (few, many):
            with few:
                body.call_pointer(self.v["plain"], _CALLED, [args, tid, count])
            with many:
                self._prepare()
                claiming.emit_shares(body, body.mul(self.v["tiles"], self.v["panels"]), self.v, self._units)
        body.b.ret_void()
        return self.module.text("strassen", self.effort)

    def _prepare(self) -> None:
        """Values derived from the arguments, and the places of sums in scratch memory."""
        body, v, tile = self.body, self.v, self.tile
        half = body.div(body.add(v["m"], 1), 2)
        self.second = body.sub(v["m"], half)  # where the lower half begins
        self.shared = body.sub(half, self.second)  # its rows that the upper half has, too
        v["rows"], v["extra"] = body.div(half, v["tiles"]), body.rem(half, v["tiles"])
        self.pairs = body.div(v["n"], 2 * tile.width)
        v["panels"] = body.sub(v["panels"], self.pairs)
        self.blocks = body.div(body.add(v["k"], body.sub(v["block"], 1)), v["block"])
        self.row_nbytes = tile.width * tile.itemsize  # of sums of B, and of tiles
        self.b_row_nbytes = tile.width * self.spec.b_itemsize
        lanes = body.div(body.add(body.div(v["block"], 2), tile.lanes - 1), tile.lanes)
        self.lds = body.add(body.mul(lanes, tile.lanes * tile.itemsize), 64)
        self.tile_sums = body.mul(self.lds, tile.rows)
        self.sum_nbytes = body.mul(self.tile_sums, v["chunk"])
        self.sums = body.at(v["scratch"], body.mul(body.args[1], v["scratch_nbytes"]))
        self.b_sums = body.at(self.sums, body.mul(body.mul(self.sum_nbytes, SUMS), self.blocks))
        self.c_sums = body.at(self.b_sums, body.mul(body.div(v["block"], 2), self.row_nbytes))
        self.beside, self.nothing = body.alloca(tile.nbytes), body.alloca(tile.nbytes)
        body.fill(self.nothing, body.i(tile.nbytes))
        self.terms: list[Value] = []  # tiles that make a quarter
        self.chunk_there = body.cell(-1, "chunk_there")
        self.there, self.safe = body.cell(0, "there"), body.cell(0, "safe")  # a bit for each tile of the chunk

    def _units(self, unit: Value, last: Value, taken: Value) -> Value:
        """Tiles by one pair of panels, or one panel, from `unit` on; returns how many."""
        body, v = self.body, self.v
        chunk, first_tile, tiles, group, start = chunk_place(body, v, unit)
        count = body.cell(body.min(body.sub(tiles, start), body.sub(last, unit)), "count")
        first = body.add(first_tile, start)
        is_pair = body.less(group, self.pairs)
        added, begun = body.cell(0, "added"), body.cell(0, "begun")
        with body.when(is_pair):
            with body.when(body.b.icmp_signed("!=", self.chunk_there.get(), chunk)):
                self.chunk_there.set(chunk)
                self.there.set(0)
            with body.when(body.equal(body.load_i64(v["alike"], group), 1)):
                begun.set(self._begin(group, first, start, count.get()))
                added.set(self._bit(self.safe, start))
                count.set(self._run(start, count.get(), added.get()))
        with body.either(body.equal(added.get(), 1)) as (seven, plain):
            with seven, body.loop(0, self.blocks) as block:
                done = body.select(body.equal(block, 0), begun.get(), 0)
                self._products(group, block, (first, start, count.get()), done)
            with plain:
                panel = body.add(group, body.select(is_pair, group, self.pairs))
                self._plainly(panel, body.select(is_pair, 2, 1), first, count.get())
        return count.get()

    def _bit(self, cell: Cell, slot: Value) -> Value:
        return self.body.b.and_(self.body.b.lshr(cell.get(), slot), self.body.i(1))

    def _run(self, start: Value, count: Value, kind: Value) -> Value:
        """How many tiles from `start` on are all safe or all not."""
        body = self.body
        found = body.cell(1, "found")
        going = body.cell(1, "going")
        with body.repeat_while(lambda: body.equal(going.get(), 1)):
            same = body.equal(self._bit(self.safe, body.add(start, found.get())), kind)
            more = body.b.and_(body.less(found.get(), count), same)
            found.add(body.select(more, 1, 0))
            going.set(body.select(more, 1, 0))
        return found.get()

    def _rows_of(self, index: Value) -> tuple[Value, Value]:
        """A tile's first row in its half, and how many it has."""
        body, v = self.body, self.v
        row = body.add(body.mul(index, v["rows"]), body.min(index, v["extra"]))
        return row, body.add(v["rows"], body.select(body.less(index, v["extra"]), 1, 0))

    def _block(self, block: Value) -> tuple[Value, Value]:
        """The first step of a block of K, and half of its steps."""
        body, v = self.body, self.v
        at = body.mul(block, v["block"])
        return at, body.div(body.min(v["block"], body.sub(v["k"], at)), 2)

    def _begin(self, pair: Value, first: Value, start: Value, count: Value) -> Value:
        """Where sums of A are missing, the products of the first block that need none, which meanwhile fetch A from wherever it
        was written, and then the sums; returns how many products are done."""
        body = self.body
        wanted = body.b.shl(body.sub(body.b.shl(body.i(1), count), 1), start)
        missing = body.b.icmp_signed("!=", body.b.and_(self.there.get(), wanted), wanted)
        with body.when(missing):
            self._products(pair, body.i(0), (first, start, count), body.i(0), fresh=True)
            self._make_sums(first, start, count)
        return body.select(missing, _UNSUMMED, 0)

    def _make_sums(self, first: Value, start: Value, count: Value) -> None:
        """The sums of A of tiles that this thread has not made since it came to the chunk."""
        body, v = self.body, self.v
        safe = body.cell(1, "alike")
        with body.loop(0, count) as number:
            slot = body.add(start, number)
            with body.when(body.equal(self._bit(self.there, slot), 0)):
                row, rows = self._rows_of(body.add(first, number))
                safe.set(1)
                with body.loop(0, self.blocks) as block:
                    at, steps = self._block(block)
                    right = body.mul(steps, self.tile.itemsize)
                    upper = body.at(v["a"], body.mul(row, v["lda"]), body.mul(at, self.tile.itemsize))
                    lower = body.at(upper, body.mul(self.second, v["lda"]))
                    quarters = [upper, body.at(upper, right), lower, body.at(lower, right)]
                    out = body.at(self.sums, body.mul(self._sum(block, 0), self.sum_nbytes), body.mul(slot, self.tile_sums))
                    call = [*quarters, v["lda"], steps, rows, out, self.lds, self.sum_nbytes, safe.address]
                    body.b.call(self.sum_rows, call)
                bit = body.b.shl(body.i(1), slot)
                self.there.set(body.b.or_(self.there.get(), bit))
                others = body.b.and_(self.safe.get(), body.b.xor(bit, body.i(-1)))
                self.safe.set(body.b.or_(others, body.b.shl(safe.get(), slot)))

    def _sum(self, block: Value, which: Value | int) -> Value:
        return self.body.add(self.body.mul(block, SUMS), which)

    def _products(self, pair: Value, block: Value, tiles: tuple[Value, Value, Value], done: Value, fresh: bool = False) -> None:
        """The products of a block of K by a pair of panels from number `done` on, one after the other for all tiles; `fresh`:
        those that need no sums of A, which fetch A."""
        body, v = self.body, self.v
        first, start, count = tiles
        at, steps = self._block(block)
        part = body.mul(steps, self.b_row_nbytes)
        one = body.at(v["b"], body.mul(body.mul(pair, 2), v["panel_nbytes"]), body.mul(at, self.b_row_nbytes))
        other = body.at(one, v["panel_nbytes"])
        ends = body.equal(body.add(block, 1), self.blocks)
        behind = body.sub(body.mul(v["panel_nbytes"], 2), body.mul(at, self.b_row_nbytes))
        to_next = body.select(ends, behind, body.mul(part, 2))
        goes_on = body.b.or_(body.less(body.add(pair, 1), self.pairs), body.b.not_(ends))
        onto = body.select(body.equal(block, 0), 0, 1)

        def part_of(index: Value) -> Value:
            base = body.b.select(body.less(index, 2), one, other)
            return body.at(base, body.mul(body.b.and_(index, body.i(1)), part))

        with body.loop(done, _UNSUMMED if fresh else len(_PRODUCTS)) as product:
            entry = body.at(v["taps"], 8 * _TAPS, body.mul(product, 8 * _ENTRY))
            which, b0, b1, sign, quarter = (body.load_i64(entry, i) for i in range(_ENTRY))
            # Meanwhile the next block is fetched: of its first panel by four products, of the other by three.
            early = body.less(product, 4)
            calls = body.mul(count, body.select(early, 4, 3))
            pace = body.select(goes_on, body.div(body.add(2 * self.b_row_nbytes, body.sub(calls, 1)), calls), 0)
            each = body.mul(pace, steps)
            before = body.mul(body.sub(product, body.select(early, 0, 4)), count)
            ahead = body.at(body.b.select(early, one, other), to_next, body.mul(before, each))
            made = body.b.not_(body.equal(sign, 0))
            if self.spec.stored is not None:
                widened = body.b.and_(body.less(1, count), body.less(_NEAR_NBYTES, part))  # once, for all tiles
                made = body.b.or_(made, widened)
            b = (part_of(b0), part_of(b1), body.b.select(made, self.b_sums, part_of(b0)))
            with body.loop(0, count) as number:
                row, rows = self._rows_of(body.add(first, number))
                slot = body.add(start, number)
                a = self._factor(which, block, at, steps, row, slot)
                makes = body.b.and_(body.equal(number, 0), made)
                fetch = (body.at(ahead, body.mul(number, each)), pace)
                if fresh:
                    line = body.mul(body.add(row, body.select(body.equal(product, 0), 0, self.second)), v["lda"])
                    fetch = (body.at(v["a"], line), body.div(body.mul(rows, v["lda"]), steps))
                finishes = body.b.and_(ends, body.less(-1, quarter))
                with body.when(finishes):
                    self._fetch(*self._end(pair, quarter, row, rows)[:3])
                self._multiply(a, b, steps, fetch, (made, makes, sign), rows, (self._tile_of(slot, product), onto))
                if not fresh:
                    with body.when(finishes):
                        self._finish_quarter(pair, quarter, row, rows, slot)

    def _factor(
        self, which: Value, block: Value, at: Value, steps: Value, row: Value, slot: Value
    ) -> tuple[Value, Value]:  # fmt: skip
        """Where a product's part of A begins, and the bytes between its rows."""
        body, v = self.body, self.v
        is_sum, upper = body.less(-1, which), body.equal(which, -1)
        summed = body.at(self.sums, body.mul(self._sum(block, which), self.sum_nbytes), body.mul(slot, self.tile_sums))
        line = body.mul(body.add(row, body.select(upper, 0, self.second)), v["lda"])
        column = body.mul(body.add(at, body.select(upper, 0, steps)), self.tile.itemsize)
        return body.b.select(is_sum, summed, body.at(v["a"], line, column)), body.select(is_sum, self.lds, v["lda"])

    def _tile_of(self, slot: Value, product: Value) -> Value:
        place = self.body.add(self.body.mul(slot, len(_PRODUCTS)), product)
        return self.body.at(self.c_sums, self.body.mul(place, self.tile.nbytes))

    def _multiply(
        self, a: tuple[Value, Value], b: tuple[Value, Value, Value], steps: Value, fetch: tuple[Value, Value],
        sums: tuple[Value, Value, Value], rows: Value, out: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """One product of a tile; `sums`: whether B is a sum, or was widened, whether that is to be made, and its sign; `out`:
        where the product goes, and whether it is added there."""
        body, v = self.body, self.v
        made, makes, sign = sums
        with body.either(makes) as (summing, plain):
            with summing:
                call = [*a, b[0], b[1], self.b_sums, self.b_row_nbytes, steps, *out, *fetch, rows, sign]
                body.call_pointer(v["summing"], SUMMING, call)
            with plain:
                ldb = body.select(made, self.row_nbytes, self.b_row_nbytes)
                call = [*a, b[2], ldb, steps, v["taps"], 1, *out, *fetch, rows, self.tile.vectors]
                body.call_pointer(body.b.select(made, v["summed"], v["micro"]), PARAMETERS, call)

    def _end(self, pair: Value, quarter: Value, row: Value, rows: Value) -> tuple[Value, list[Value], Value, Value]:
        """`_place` of a quarter of a pair of tiles by a pair of panels."""
        body = self.body
        panel = body.add(body.mul(pair, 2), body.b.and_(quarter, body.i(1)))
        return self._place(panel, body.less(1, quarter), row, rows)

    def _place(self, panel: Value, is_lower: Value, row: Value, rows: Value) -> tuple[Value, list[Value], Value, Value]:
        """Where a tile is stored, its operands, how many rows, and how many are left out before them: a row that both halves
        have is stored by the upper one."""
        body, v, tile = self.body, self.v, self.tile
        left_out = body.select(body.b.and_(is_lower, body.equal(row, 0)), self.shared, 0)
        row = body.add(body.add(row, left_out), body.select(is_lower, self.second, 0))
        column = body.mul(panel, tile.width)
        c = body.at(v["c"], body.mul(row, v["ldc"]), body.mul(column, self.finish.itemsize))
        places = []
        for kind, dtype, operand in zip(self.finish.kinds, self.finish.dtypes, self.operands, strict=True):
            along = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            down = body.mul(row, operand[1]) if kind in ("row", "full") else 0
            places.append(body.at(operand[0], along, down))
        return c, places, body.sub(rows, left_out), left_out

    def _finish_quarter(self, pair: Value, quarter: Value, row: Value, rows: Value, slot: Value) -> None:
        """The epilogue of a quarter, of which all products are there."""
        body, tile = self.body, self.tile
        self.columns, self.vectors = body.i(tile.width), body.i(tile.vectors)
        c, places, rows, left_out = self._end(pair, quarter, row, rows)
        entry = body.at(self.v["taps"], 8 * (_TAPS + _ENTRY * len(_PRODUCTS)), body.mul(quarter, 8 * _TERMS))
        skipped = body.mul(left_out, self.row_nbytes)
        for number in range(_TERMS):
            product = body.load_i64(entry, number)
            nothing = body.equal(product, _NOTHING)
            self.terms.append(body.at(body.b.select(nothing, self.nothing, self._tile_of(slot, product)), skipped))
        self._rows_whole(c, places, rows)
        self.terms = []

    def _sums(self, at: Value) -> Value:
        if not self.terms:
            return super()._sums(at)
        body, b = self.body, self.body.b
        first, second, third, last = (body.load(body.at(x, at), self.spec.dtype, self.tile.lanes) for x in self.terms)
        return b.fsub(b.fadd(b.fadd(first, second), third), last)

    def _store(self, place: tuple[Value, list[Value], Value, Value]) -> None:
        """The epilogue of a tile that was computed as the definition has it, at its `_place`."""
        body, tile = self.body, self.tile
        c, places, rows, left_out = place
        self.buffer = body.at(self.beside, body.mul(left_out, body.mul(self.vectors, tile.lanes * tile.itemsize)))
        with body.either(body.equal(self.columns, tile.width)) as (full, partial):
            with full:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)

    def _plainly(self, panel: Value, panels: Value, first: Value, count: Value) -> None:
        """Tiles of both halves by some panels, as the definition has it."""
        body, v, tile = self.body, self.v, self.tile
        with body.loop(0, panels) as which:
            at = body.add(panel, which)
            self.columns = body.min(body.sub(v["n"], body.mul(at, tile.width)), tile.width)
            self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
            b, ldb = body.at(v["b"], body.mul(at, v["panel_nbytes"])), body.mul(self.vectors, tile.lanes * self.spec.b_itemsize)
            pace = body.div(body.add(ldb, body.sub(body.mul(count, 2), 1)), body.mul(count, 2))
            ahead = body.at(b, body.mul(panels, v["panel_nbytes"]))
            with body.loop(0, body.mul(count, 2)) as number:
                row, rows = self._rows_of(body.add(first, body.div(number, 2)))
                is_lower = body.equal(body.rem(number, 2), 1)
                a = body.at(v["a"], body.mul(body.add(row, body.select(is_lower, self.second, 0)), v["lda"]))
                fetch = body.at(ahead, body.mul(body.mul(number, v["k"]), pace))
                place = self._place(at, is_lower, row, rows)
                self._fetch(*place[:3])
                call = [a, v["lda"], b, ldb, v["k"], v["taps"], 1, self.beside, 0, fetch, pace, rows, self.vectors]
                body.call_pointer(v["micro"], PARAMETERS, call)
                self._store(place)
