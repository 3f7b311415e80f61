"""Micro-kernels for sums in K blocks of some 128 steps, so that a block of B stays in the first-level cache.

    void micro(ptr a, i64 lda, ptr b, i64 near, i64 rest, ptr taps, i64 ntaps, ptr tile, i64 accumulate, ptr ahead, i64 pace,
               i64 rows, i64 vectors)

computes, for i < rows and j < vectors * lanes,

    tile[i][j] (+)= sum over t < ntaps, p < STEPS of a[taps[t] + i * lda + p] * b[(t * STEPS + p) * vectors * lanes + j]
                  + sum over p < rest of a[taps[ntaps] + i * lda + p] * b[(ntaps * STEPS + p) * vectors * lanes + j]

or, where `accumulate` is the address of a register epilogue's record (of tiles that are nearly whole), applies that to the
sums and stores them in C. `lda`, `near`, `pace` and the table `taps` are in bytes. Each tap fetches into the first-level cache
what lies `near` bytes behind half of its rows (behind the others in the next tap: a tap is half a cache line of float32), and
into the second-level cache the lines of one step of B at `ahead`, which then moves by `pace`.
"""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.broadcast_a import Numbers, steps_at_once
from intarsia.providers.cpu.kernels.common.microkernel import EVERY, Met, dispatched, tiled_rows
from intarsia.providers.cpu.kernels.common.register_epilogue import accumulates, emit_ending
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

STEPS = 8  # along the sum in one tap
# Of many steps at once LLVM loads the broadcasts early, and spills accumulators; with four vectors it does not.
_ROOMY = 24  # accumulators, of 32 registers, that leave room for two steps
_FEW_HALVES = 17  # of many columns, half a vector is a small part
_LOAD_COST = 0.25  # of a load beside multiply-adds, two of which take 1: they share a core with its other half's


def blocked_tile(n: int, rows: int | None, dtype: DType, target: Target, *, halves: bool = False) -> Tile:
    """The register tile for `n` columns and lines of `rows` rows (None: many): the fewest loads for each multiply-add.

    `halves`: half vectors may be taken, where half a vector would be left over and costs as much as it seems to.
    """
    basic = tile_of(dtype, target)
    if basic.rows != 14:
        return basic
    half = basic.lanes // 2
    if (
        halves
        and target.halves_vectors
        and dtype is not DType.INT32
        and n <= _FEW_HALVES * half
        and 0 < n % basic.lanes <= half
    ):
        return Tile(8, 3, half, basic.itemsize)
    vectors = -(-n // basic.lanes)
    if vectors <= basic.vectors:  # no other is better, and they share one micro-kernel
        return basic
    if vectors % 4 == 0:  # where another is a little better for these rows, threads would get unequal numbers of panels
        return Tile(6, 4, basic.lanes, basic.itemsize)

    def cost(tile: Tile) -> float:
        count = -(-rows // tile.rows) if rows else 1
        height = rows / count if rows else tile.rows
        widths = [tile.vectors] * (vectors // tile.vectors) + ([vectors % tile.vectors] if vectors % tile.vectors else [])
        total = sum(height * width / 2 + _LOAD_COST * (height + width) for width in widths)
        return total * count / (rows or height)

    return min((Tile(r, v, basic.lanes, basic.itemsize) for r, v in ((6, 4), (8, 3), (14, 2))), key=cost)


@cached_text
def stepped_micro_text(dtype: DType, target: Target, tile: Tile, met: Met = EVERY) -> KernelText:
    """The micro-kernels of `dtype` (FLOAT or DOUBLE) for `tile` as one function; see the module's text for its signature, and
    `microkernel.micro_text`."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        Stepped(body, dtype, tile.lanes, rows, vectors, ends=rows >= tiled_rows(tile)).emit()

    return dispatched(f"micro_steps_{dtype.name.lower()}", tile, target, variant, met=met)


def holds_places(target: Target) -> bool:
    """Whether a tap's steps are written out, from addresses that LLVM knows nothing of: else it adds up that of each row anew
    for every two steps. With 16 registers loads stay where they are, and no sum is spilled."""
    return target.is_avx2


class Stepped:
    """One variant; the fewest rows have several sets of accumulators to hide the latency. `ends`: records are taken."""

    def __init__(self, body: Body, dtype: DType, lanes: int, rows: int, vectors: int, ends: bool = False) -> None:
        self.ends = ends
        self.body, self.dtype, self.lanes, self.rows, self.vectors = body, dtype, lanes, rows, vectors
        self.itemsize = dtype.bits // 8
        self.cells = rows * vectors
        self.holds = holds_places(body.module.target)
        self.unroll = 1 if self.cells > _ROOMY else STEPS if vectors == 4 or self.holds else 2
        self.unroll = max(self.unroll, steps_at_once(body.module.target, lanes))
        self.sets = 1 if body.module.target.ordered else min(self.unroll, max(1, 8 // self.cells))

    def emit(self) -> None:
        body, b = self.body, self.body.b
        a, lda, pb, near, rest, taps, ntaps, tile, accumulate, ahead, pace = body.args
        vector_bytes = self.lanes * self.itemsize
        state = [body.zero(self.dtype, self.lanes)] * self.cells * self.sets
        half = (self.rows + 1) // 2
        skip = body.mul(lda, half)
        self.bases = [body.at(a, body.mul(lda, i)) if i else a for i in range(0, self.rows, 3)]
        state += [ahead, pb, body.i(0)]
        with body.carry(0, ntaps, 1, state) as t:
            ahead, pb, toggle = state[-3:]
            point = body.load_i64(taps, t)
            for row in self._rows(body.add(point, body.add(near, toggle)), half):
                body.prefetch(row)
            for j in range(0, self.vectors * vector_bytes, 64):
                body.prefetch(body.at(ahead, j), 2)
            state[-3:] = [body.at(ahead, pace), pb, body.sub(skip, toggle)]
            with body.carry(0, STEPS, self.unroll, state) as p:
                pb = state[-2]
                self._steps(state, self._rows(body.add(point, body.mul(p, self.itemsize)), self.rows), pb, self.unroll)
                state[-2] = body.at(pb, self.unroll * self.vectors * vector_bytes)
        with body.carry(0, rest, 1, state) as p:
            pb = state[-2]
            point = body.add(body.load_i64(taps, ntaps), body.mul(p, self.itemsize))
            self._steps(state, self._rows(point, self.rows), pb, 1)
            state[-2] = body.at(pb, self.vectors * vector_bytes)
        sums = []
        for index in range(self.cells):
            parts = state[index : self.cells * self.sets : self.cells]
            while len(parts) > 1:
                parts = [self._sum(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            sums += parts
        if not self.ends:
            self._store(sums, tile, accumulate)
            b.ret_void()
            return
        with body.either(body.less(1, accumulate)) as (ends, stays):
            with ends:
                record, finished = body.pointer(accumulate), list(sums)
                self._add(finished, tile, accumulates(body, record))
                rows = [finished[i : i + self.vectors] for i in range(0, self.cells, self.vectors)]
                emit_ending(body, record, rows, self.dtype, self.lanes)
            with stays:
                self._store(sums, tile, accumulate)
        b.ret_void()

    def _store(self, sums: list[Value], tile: Value, accumulate: Value) -> None:
        self._add(sums, tile, accumulate)
        for index, value in enumerate(sums):
            self.body.b.store(value, self.body.at(tile, index * self.lanes * self.itemsize))

    def _add(self, sums: list[Value], tile: Value, accumulate: Value) -> None:
        """The blocks' sums before, if `accumulate` is 1; at the end: the errors of a block's sums then do not grow with the
        number of blocks."""
        body = self.body
        with body.carry_if(accumulate, sums):
            vector, nbytes = body.vector_type(self.dtype, self.lanes), self.lanes * self.itemsize
            sums[:] = [self._sum(body.b.load(body.at(tile, i * nbytes), typ=vector), x) for i, x in enumerate(sums)]

    def _rows(self, offset: Value, count: int) -> list[Value]:
        """The addresses `offset` behind the first `count` rows; base, base + lda and base + 2 lda fit x86's addressing."""
        body, lda = self.body, self.body.args[1]
        bases = [body.at(base, offset) for base in self.bases[: -(-count // 3)]]
        if self.holds:
            bases = [body.opaque(base) for base in bases]
        return [body.at(bases[i // 3], body.mul(lda, i % 3) if i % 3 else 0) for i in range(count)]

    def _steps(self, state: list[Value], rows: list[Value], pb: Value, count: int) -> None:
        body, vector_bytes = self.body, self.lanes * self.itemsize
        numbers = Numbers.of_type(body, self.dtype, self.lanes, count)
        for u in range(count):
            columns = [
                body.load(body.at(pb, (u * self.vectors + j) * vector_bytes), self.dtype, self.lanes)
                for j in range(self.vectors)
            ]
            for i, row in enumerate(rows):
                scalar = numbers.of(i, u, body.at(row, u * self.itemsize))
                for j in range(self.vectors):
                    at = u % self.sets * self.cells + i * self.vectors + j
                    state[at] = self._multiplied(scalar, columns[j], state[at])

    def _sum(self, x: Value, y: Value) -> Value:
        return self.body.b.fadd(x, y)

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        return self.body.fma(scalar, column, sums, self.dtype, self.lanes)
