"""C[m, n] = epilogue(sum over p of A[m, p] * B[p, n]) for packed B, and A that is packed too (`pack_a`) or lies in rows.

A unit of work is one register tile of C, in the order chunk of tiles, panel of B, tile. Every share has a contiguous
range of the first units; the last ones (the tail) are claimed piece by piece, since cores are not equally fast: a neighbour
may use the other half of one. K is divided twice:

- Blocks of about 128 steps (`pack_a.k_block`): one block of a panel of B stays in the first-level cache while all tiles of
  the chunk stream past it; their sums wait in a strip of the thread's scratch.
- Parts of at most about a thousand steps, each a call of its own (a step of the plan), so that A's part, a panel of B and the
  next one fit into the second-level cache together. Sums wait in a buffer that all threads share.

A B that is stored in 16 bits is widened block by block into the thread's scratch, where many rows share the work.

Rows of fewer than four tiles are multiplied where they lie; those of one tile over all of K at once: B, read once, is what
limits them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

from intarsia.codegen.builder.kernel_body import Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.trace import least, most
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile, tile_of
from intarsia.providers.cpu.kernels.common.units import TILE_UNITS, WORDS_IN_TIME
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import A_RESIDENT_NBYTES, GemmSpec, Operand
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import Gemm
from intarsia.providers.cpu.kernels.matmul.pack_a import k_block

_PART_NBYTES = 5 << 10  # of a row of A: more is cut
_TILE_PART_NBYTES = 12 << 10  # the same for tiles, to which sums in memory cost more than products do
_TILE_BLOCK_NBYTES = 768  # of a row of A: with panels of 32 columns a block of B is half of a first-level cache
_AHEAD_NBYTES = 4096  # how far before its use B is fetched where it is used once
_PIECE_PRODUCTS = 1_200_000  # multiply-adds of a piece: some 20 microseconds
_MOST_PIECES = 12  # for each thread: the tail is not cut where a long step is computed in slices
FIELDS = (
    "micro a lda b c ldc m n taps scratch scratch_nbytes tiles rows extra chunk panels panel_nbytes first k total block packed "
    "partial claims tail piece packed_micro packed_a"
).split()


def least_packed_rows(tile: Tile) -> int:
    """From how many rows on A is packed: where there are tiles enough to use each of B's lines again."""
    return 4 * tile.rows


def packs(rows: int, tile: Tile) -> bool:
    """Whether so many rows of A are packed."""
    return rows >= least_packed_rows(tile)


def tiles_pay(n: int, k: int, spec: GemmSpec, target: Target) -> bool:
    """Whether an A of K columns is worth packing for a B of `n` columns: it costs what 20 columns cost."""
    tile = product_tile(n, spec.dtype, target)
    return n >= 4 * tile.width and k >= 2 * tile.lanes


def block_steps(k: int, tile: Tile, unit: str = "") -> int:
    """Steps of a block of K; see `GemmSpec.unit`."""
    return k_block(k, tile, _TILE_BLOCK_NBYTES) if unit in TILE_UNITS else k_block(k, tile)


def _part_nbytes(unit: str) -> int:
    return _TILE_PART_NBYTES if unit in TILE_UNITS else _PART_NBYTES


def parts(k: int, tile: Tile, unit: str = "") -> list[tuple[int, int]]:
    """(first, steps) of the parts of K: whole blocks each."""
    block = block_steps(k, tile, unit)
    count = max(1, -(-(k * tile.itemsize) // _part_nbytes(unit)))
    blocks = -(-k // block)
    edges = [min(k, blocks * i // count * block) for i in range(count)] + [k]
    return [(low, high - low) for low, high in pairwise(edges) if high > low]


def partial_elements(m: Dim, n: int, tile: Tile) -> Dim:
    """Elements of the buffer for sums between parts of K; as many as `m` needs at most."""
    return -(-n // tile.width) * tile.width * (m + tile.rows)


def tiled_args(
    spec: GemmSpec,
    target: Target,
    *,
    micro: tuple[Address, Address],
    a: tuple[Address, Address],
    b: Address,
    c: Address,
    m: int,
    n: int,
    k: int,
    taps: Address,
    scratch: Address,
    part: tuple[int, int],
    partial: Address = 0,
    claims: Address,
    threads: int = 1,
    operands: Sequence[Operand] = (),
) -> list[Argument]:
    """The kernel's arguments for dense C[M, N] = A[M, K] B[K, N].

    Args:
        micro: the addresses of `micro_text`, and of `tiled_micro_text` for an A that is packed (`packs(m, tile)`).
        a: A's first row, and where it is packed.
        taps: the address of one int64 0.
        scratch: that of `tiled_scratch_nbytes` bytes for every thread.
        part: first step and number of steps of this call; where A is not packed, the first call does all.
        partial: the buffer for sums between parts, where there are several.
        claims: the address of an int64 0 for this call alone, which is 0 again when all shares are done.
        threads: for how many threads work is divided; any number may call the kernel.
    """
    tile = spec.tile or tile_of(spec.dtype, target)
    size = tile.itemsize
    out_size = itemsize(spec.epilogue.dtype if spec.epilogue else spec.dtype)
    packed = spec.halves or bool(spec.unit) or packs(m, tile)
    tiles, panels = -(-m // tile.rows), -(-n // tile.width)
    panel_nbytes = tile.width * (4 + 2 * k if spec.halves else k * spec.b_itemsize)
    first, steps = part
    if not packed:
        tiles, first, steps = (0 if first else tiles), 0, k
    args = [
        micro[0], a[0], k * size, b, c, n * out_size, m, n, taps, scratch, tiled_scratch_nbytes(spec, target, m, k), tiles,
        m // most(1, tiles), m % most(1, tiles), _chunk(tiles, m, steps * size), panels, panel_nbytes, first, steps, k,
        block_steps(k, tile, spec.unit) if tiles > 1 or spec.halves or spec.unit else max(1, k), int(packed), partial, claims,
        *_tail(tiles * panels, tile, steps / WORDS_IN_TIME[spec.unit], threads), micro[1], a[1],
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


def _tail(units: int, tile: Tile, steps: float, threads: int) -> tuple[int, int]:
    """How many units are claimed in pieces, and the units of a piece."""
    piece = max(1, round(_PIECE_PRODUCTS / (tile.rows * tile.width * max(1, steps))))
    if threads == 1 or units < 8 * threads * piece:
        return 0, piece
    return least(units * 3 // 8, _MOST_PIECES * threads * piece), piece


def tiled_scratch_nbytes(spec: GemmSpec, target: Target, m: int, k: int) -> int:
    """Bytes of scratch a thread needs: a strip of tiles, and behind it a block of B that is stored in 16 bits."""
    tile = spec.tile or tile_of(spec.dtype, target)
    tiles = -(-m // tile.rows)
    widened = k_block(k, tile) * tile.width * tile.itemsize if spec.stored is not None else 0
    strip: int = most(1, _chunk(tiles, m, min(k * tile.itemsize, _part_nbytes(spec.unit)))) * tile.nbytes
    return strip + widened


def _chunk(tiles: int, m: int, row_nbytes: int) -> int:
    """Tiles that share a pass over B: those whose rows stay in the second-level cache."""
    chunks = least(most(1, tiles), most(1, -(-(row_nbytes * m) // A_RESIDENT_NBYTES)))
    found: int = most(1, -(-tiles // chunks))
    return found


@functools.lru_cache(maxsize=256)
def tiled_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec; it takes the arguments that `tiled_args` lists."""
    return TiledGemm(spec, target).text()


class TiledGemm(Gemm):
    fields = FIELDS
    pointers = ("micro", "a", "b", "c", "taps", "scratch", "partial", "claims", "packed_micro", "packed_a")

    def __init__(self, spec: GemmSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.widen = self.pack

    def _widens(self) -> bool:
        return self.spec.stored is not None  # the micro-kernel of packed A reads float32

    def text(self) -> KernelText:
        body = self.body
        _, tid, nthreads = body.args
        self.read_arguments()
        v = self.v
        self._enter()
        packed = body.less(0, v["packed"])
        for name in ("micro", "a"):
            v[name] = body.b.select(packed, v[f"packed_{name}"], v[name])
        self.scratch = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
        self.begins = body.equal(v["first"], 0)
        self.ends = body.equal(body.add(v["first"], v["k"]), v["total"])
        self.whole = body.b.and_(self.begins, self.ends)
        self.units = body.mul(v["tiles"], v["panels"])
        self.tail = body.sub(self.units, v["tail"])
        first, last = body.share(self.tail, tid, nthreads)
        pieces = body.div(body.add(v["tail"], body.sub(v["piece"], 1)), v["piece"])
        unit, end, number = body.cell(first, "unit"), body.cell(last, "end"), body.cell(0, "number")
        going = body.cell(1, "going")
        with body.repeat_while(lambda: body.equal(going.get(), 1)):
            with body.repeat_while(lambda: body.less(unit.get(), end.get())):
                unit.add(self._part(unit.get(), end.get()))
            mine = body.b.atomic_rmw("add", v["claims"], body.i(1), "monotonic")
            number.set(mine)
            start = body.add(self.tail, body.mul(mine, v["piece"]))
            unit.set(start)
            end.set(body.min(self.units, body.add(start, v["piece"])))
            going.set(body.select(body.less(mine, pieces), 1, 0))
        # Each of the callers has claimed one piece that is not there; the last to do so leaves the count as it was.
        with body.when(body.equal(number.get(), body.sub(body.add(pieces, nthreads), 1))):
            body.b.store(body.i(0), v["claims"], align=8)
        self._leave()
        body.b.ret_void()
        return self.module.text("gemm_tiles", self.effort)

    def _enter(self) -> None:
        """Writes the code before a share of work."""

    def _leave(self) -> None:
        """Writes the code after a share of work."""

    def _rows_of(self, tile: Value) -> tuple[Value, Value]:
        """A register tile's first row, and how many it has: as even numbers as there can be."""
        body, v = self.body, self.v
        row = body.add(body.mul(tile, v["rows"]), body.min(tile, v["extra"]))
        return row, body.add(v["rows"], body.select(body.less(tile, v["extra"]), 1, 0))

    def _following(self, after: Value, last: Value) -> Value:
        """The panel that the caller is likely to need after the units up to `after` of a range up to `last`."""
        body, v = self.body, self.v
        beyond = body.select(body.less(self.tail, last), body.add(last, v["piece"]), self.tail)
        unit = body.min(body.select(body.less(after, last), after, beyond), body.sub(self.units, 1))
        inside = body.rem(unit, body.mul(v["chunk"], v["panels"]))
        first = body.mul(body.div(unit, body.mul(v["chunk"], v["panels"])), v["chunk"])
        return body.div(inside, body.min(v["chunk"], body.sub(v["tiles"], first)))

    def _part(self, unit: Value, last: Value) -> Value:
        """The tiles of one panel from `unit` on; returns how many."""
        body, v, tile = self.body, self.v, self.tile
        chunk_units = body.mul(v["chunk"], v["panels"])
        chunk, inside = body.div(unit, chunk_units), body.rem(unit, chunk_units)
        first_tile = body.mul(chunk, v["chunk"])
        tiles = body.min(v["chunk"], body.sub(v["tiles"], first_tile))
        panel, start = body.div(inside, tiles), body.rem(inside, tiles)
        count = body.min(body.sub(tiles, start), body.sub(last, unit))
        column = body.mul(panel, tile.width)
        self.columns = body.min(body.sub(v["n"], column), tile.width)
        self._find_b(v["b"], panel)
        self.c = body.at(v["c"], body.mul(column, self.finish.itemsize))
        self.places = []
        for kind, dtype, operand in zip(self.finish.kinds, self.finish.dtypes, self.operands, strict=True):
            offset = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            self.places.append(body.at(operand[0], offset))
        first_tile = body.add(first_tile, start)
        slot = body.add(body.mul(panel, v["tiles"]), first_tile)
        self.sums = body.b.select(self.whole, self.scratch, body.at(v["partial"], body.mul(slot, tile.nbytes)))
        self.pace = body.div(body.add(self.ldb, body.sub(count, 1)), count)
        offset = body.mul(v["first"], self.ldb)
        self.following = body.at(v["b"], body.mul(self._following(body.add(unit, count), last), v["panel_nbytes"]), offset)
        self._blocks(first_tile, count)
        return count

    def _find_b(self, b: Value, panel: Value) -> None:
        """Sets `vectors`, `ldb`, and `b`, where this call's steps of a panel begin."""
        body, v, tile = self.body, self.v, self.tile
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        self.ldb = body.mul(self.vectors, tile.lanes * self.spec.b_itemsize)
        self.b = body.at(b, body.mul(panel, v["panel_nbytes"]), body.mul(v["first"], self.ldb))

    def _blocks(self, first_tile: Value, count: Value) -> None:
        body, v = self.body, self.v
        with body.loop(0, v["k"], v["block"]) as at:
            steps = body.min(v["block"], body.sub(v["k"], at))
            accumulate = body.select(body.b.and_(self.begins, body.equal(at, 0)), 0, 1)
            final = body.b.and_(self.ends, body.equal(body.add(at, steps), v["k"]))
            b = body.at(self.b, body.mul(at, self.ldb))
            # Fetched meanwhile: the next block, at the end that of the next panel; where each line is used once, what follows.
            more = body.less(body.add(at, steps), v["k"])
            ahead = body.b.select(more, body.at(b, body.mul(steps, self.ldb)), self.following)
            ahead = body.b.select(body.equal(v["tiles"], 1), body.at(b, _AHEAD_NBYTES), ahead)
            part = body.mul(steps, self.pace)
            self._begin_block(b, at, steps)
            with body.loop(0, count) as number:
                row, rows = self._rows_of(body.add(first_tile, number))
                self.buffer = body.at(self.sums, body.mul(number, self.tile.nbytes))
                self._multiply(row, rows, accumulate, body.at(ahead, body.mul(number, part)))
                with body.when(final):
                    self._finish_tile(row, rows)

    def _begin_block(self, b: Value, at: Value, steps: Value) -> None:
        """Sets where the micro-kernel finds A and B of the `steps` steps from `at` on; `b`: where they lie in packed B."""
        body, v, item = self.body, self.v, self.tile.itemsize
        is_packed = body.equal(v["packed"], 1)
        before = body.select(is_packed, body.mul(body.add(v["first"], at), v["m"]), at)
        self.block_steps, self.block_a = steps, body.at(v["a"], body.mul(before, item))
        self.row_nbytes = body.select(is_packed, body.mul(steps, item), v["lda"])
        self.block_b, self.block_ldb = self._widened(b, steps, is_packed)

    def _multiply(self, row: Value, rows: Value, accumulate: Value, ahead: Value) -> None:
        """The micro-kernel for one tile, from row `row` on."""
        body, v = self.body, self.v
        body.call_pointer(
            v["micro"], PARAMETERS,
            [
                body.at(self.block_a, body.mul(row, self.row_nbytes)), v["lda"], self.block_b, self.block_ldb,
                self.block_steps, v["taps"], 1, self.buffer, accumulate, ahead, self.pace, rows, self.vectors,
            ],
        )  # fmt: skip

    def _widened(self, b: Value, steps: Value, many: Value) -> tuple[Value, Value]:
        """Where the micro-kernel finds `steps` rows of B, and the bytes between them: where `many` rows of A are to meet one
        that is stored in 16 bits, in scratch."""
        body, v, tile = self.body, self.v, self.tile
        if self.widen is None:
            return b, self.ldb
        own = body.mul(v["block"], tile.width * tile.itemsize)
        place = body.at(v["scratch"], body.sub(body.mul(body.add(body.args[1], 1), v["scratch_nbytes"]), own))
        with body.when(many):
            body.b.call(self.widen, [b, place, body.mul(steps, self.vectors)])
        ldb = body.mul(self.vectors, tile.lanes * tile.itemsize)
        return body.b.select(many, place, b), body.select(many, ldb, self.ldb)

    def _finish_tile(self, row: Value, rows: Value) -> None:
        body = self.body
        c = body.at(self.c, body.mul(row, self.v["ldc"]))
        places = [
            body.at(base, body.mul(row, operand[1])) if kind in ("row", "full") else base
            for kind, base, operand in zip(self.finish.kinds, self.places, self.operands, strict=True)
        ]
        with body.either(body.equal(self.columns, self.tile.width)) as (whole, partial):
            with whole:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)
