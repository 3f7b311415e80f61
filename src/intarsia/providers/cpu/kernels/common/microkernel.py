"""Register-tile micro-kernels of all matrix products, as one function for each element type and target.

    void micro(ptr a, i64 lda, ptr b, i64 ldb, i64 k, ptr taps, i64 ntaps, ptr tile, i64 accumulate, ptr ahead, i64 pace,
               i64 rows, i64 vectors)

computes, for i < rows (1..MR) and j < vectors * lanes (vectors 1..NV),

    tile[i][j] (+)= sum over t < ntaps, p < k of a[taps[t] + i * lda + p] * b[(t * k + p) * ldb + j]

with all strides and the table `taps` in bytes and `tile` a dense, vector-aligned [rows][vectors * lanes] array. A is read in
place (its rows must be contiguous along p), B along vectors. Every step fetches the cache lines at `ahead` (B's width of
them), which then moves by `pace` bytes: what is to be multiplied next, from memory into the second-level cache; with a
`pace` of 0 few rows fetch nothing where that is of use (`Micro.emit`). The products are accumulated in registers. Kernels
take the function's address as an argument, so it is compiled once and every product, convolution and Winograd kernel stays
small.

With B `stored` as 16-bit floats or bytes its columns are widened when they are loaded: half the bytes or a quarter, which is
what limits few rows.

`tiled_micro_text` is the same for an A that was packed (`kernels.matmul.pack_a`): a[p][i] dense, `lda` ignored. One stream of
addresses instead of `rows`, and no two lines of A in one set of the cache, whatever the distance between rows was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.broadcast_a import Numbers, steps_at_once
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of

PARAMETERS = ("p", "i", "p", "i", "i", "p", "i", "p", "i", "p", "i", "i", "i")
_VARIANT_PARAMETERS = PARAMETERS[:-2]
STORED = (DType.FLOAT16, DType.BFLOAT16, DType.INT8)  # what B's elements may be instead of FLOAT
_FEW_ROWS = 2  # that wait for B, not for multiply-adds
_STEPS_BY_ROWS = 2  # the last ones
_MANY_CELLS = 12  # of a tile whose sums are stored row by row
_AHEAD_OF_A = 2048  # how far before its use packed A is fetched; 512 is too near for a line in another core's cache


@dataclass(frozen=True)
class Met:
    """Which tiles a micro-kernel meets: code for all is long, and most of it is never called.

    Attributes:
        heights: their rows, where they are known; () for any. Others are right, but slow.
        widths: their vectors, where they are known; () for any. There are no others.
    """

    heights: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()


EVERY = Met()


def met_of(tile: Tile, rows: Dim | None, columns: Dim) -> Met:
    """The tiles of so many rows (None: any), which are divided evenly, by panels of so many columns."""
    return Met(() if rows is None else _heights(tile, rows), _widths(tile, columns))


def _widths(tile: Tile, columns: Dim) -> tuple[int, ...]:
    """Those of whole panels and of the last one."""
    if not isinstance(columns, int):
        return ()
    whole, left = divmod(-(-columns // tile.lanes), tile.vectors)
    return (left,) * (left > 0) + (tile.vectors,) * (whole > 0)


def _heights(tile: Tile, rows: Dim) -> tuple[int, ...]:
    known = rows if isinstance(rows, int) else math.gcd(*rows.terms.values())  # else none, or so many at least
    if known <= 0:
        return ()
    count = -(-known // tile.rows)
    low = known // count if isinstance(rows, int) else known * tile.rows // (known + tile.rows - 1)
    for least in (tile.rows * 10 // 11, tiled_rows(tile)):  # few kinds, so that layers and models have them in common
        if low >= least:
            return tuple(range(least, tile.rows + 1))
    return tuple(range(low, low + 1 + (known % count > 0))) if isinstance(rows, int) else ()


@cached_text
def micro_text(
    dtype: DType, target: Target, tile: Tile | None = None, stored: DType | None = None, met: Met = EVERY
) -> KernelText:  # fmt: skip
    """The micro-kernels of `dtype` (FLOAT or DOUBLE) as one function; see the module's text for its signature.

    Args:
        tile: where it is not `tile_of(dtype, target)`.
        stored: the type of B's elements (`STORED`) where it is not `dtype`.
        met: which tiles it is called for.
    """

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        Micro(body, dtype, tile.lanes, rows, vectors, stored).emit()

    suffix = f"_{stored.name.lower()}" if stored is not None else ""
    return dispatched(f"micro_{dtype.name.lower()}{suffix}", tile or tile_of(dtype, target), target, variant, met=met)


def tiled_rows(tile: Tile) -> int:
    """Fewest rows of a tile where 4 * tile.rows rows or more are divided evenly: those of `tiled_micro_text`."""
    return tile.rows * 4 // 5


@cached_text
def tiled_micro_text(dtype: DType, target: Target, tile: Tile) -> KernelText:
    """As `micro_text` for packed A, of `tiled_rows(tile)` rows and more, one tap."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        TiledMicro(body, dtype, tile.lanes, rows, vectors).emit()

    return dispatched(f"micro_tiles_{dtype.name.lower()}", tile, target, variant, tiled_rows(tile))


def dispatched(
    prefix: str, tile: Tile, target: Target, emit: Callable[[Body, Tile, int, int], None], least: int = 1, met: Met = EVERY
) -> KernelText:
    """One function of the variants that `emitter` writes for tiles that are `met`, of `least` rows and more. Other numbers of
    rows go row by row. What `emitter` writes follows from the prefix, the tile and the target: each variant is a module of its
    own, which micro-kernels have in common."""
    module = Module(target)
    heights = sorted({1, *met.heights}) if met.heights else range(least, tile.rows + 1)
    variants = {
        (rows, vectors): module.part(_variant(prefix, tile, target, emit, rows, vectors), _VARIANT_PARAMETERS)
        for vectors in met.widths or range(1, tile.vectors + 1)
        for rows in heights
    }
    entry = module.function(SYMBOL_PLACEHOLDER, PARAMETERS, internal=False)
    _dispatch(entry, variants, tile, by_rows=bool(met.heights))
    return module.text(prefix, Effort.CODE)


def _variant(
    prefix: str, tile: Tile, target: Target, emit: Callable[[Body, Tile, int, int], None], rows: int, vectors: int
) -> KernelText:
    """The module for tiles of so many rows and vectors, packed: texts of all are some megabytes."""
    key = (prefix, tile, target, rows, vectors)
    if key not in _variants:
        body = Module(target).function(SYMBOL_PLACEHOLDER, _VARIANT_PARAMETERS, internal=False)
        emit(body, tile, rows, vectors)
        _variants[key] = body.module.text(f"{prefix}_{rows}x{vectors}", Effort.CODE).packed()
    return _variants[key]


_variants: dict[tuple[str, Tile, Target, int, int], KernelText] = {}


def switched(entry: Body, case: Value, functions: Mapping[int, Any], arguments: Sequence[Value]) -> None:
    """Call the function of a case, and return; what comes next is for other cases."""
    b = entry.b
    others = b.append_basic_block("others")
    switch = b.switch(case, others)
    for number, function in functions.items():
        block = b.append_basic_block(f"case_{number}")
        switch.add_case(number, block)
        b.position_at_end(block)
        b.call(function, arguments, tail=True)
        b.ret_void()
    b.position_at_end(others)


def _dispatch(entry: Body, variants: dict[tuple[int, int], Any], tile: Tile, by_rows: bool) -> None:
    b = entry.b
    *shared, rows, vectors = entry.args
    case = entry.add(entry.mul(entry.sub(vectors, 1), tile.rows), rows)
    switched(entry, case, {(v - 1) * tile.rows + r: function for (r, v), function in variants.items()}, shared)
    if by_rows:
        a, lda, *between, place, accumulate, ahead, pace = shared
        row_nbytes = entry.mul(vectors, tile.lanes * tile.itemsize)
        with entry.loop(0, rows) as i:
            row, sums = entry.at(a, entry.mul(lda, i)), entry.at(place, entry.mul(row_nbytes, i))
            b.call(entry.function, [row, lda, *between, sums, accumulate, ahead, pace, entry.i(1), vectors])
    b.ret_void()


def load_wide(body: Body, pointer: Value, stored: DType, lanes: int) -> Value:
    """A vector of numbers that are stored as floats of their own type, or as one of `STORED` for FLOAT."""
    value = body.load(pointer, stored, lanes)
    if stored is DType.INT8:
        return body.b.sitofp(value, body.vector_type(DType.FLOAT, lanes))
    return body.emitter(lanes).from_storage(value, stored)


class Micro:
    """One variant. Few rows are unrolled along k, the fewest with several sets of accumulators to hide the latency."""

    column_sums = 0  # vectors of sums behind the accumulators, which all rows have in common

    def __init__(
        self, body: Body, dtype: DType, lanes: int, rows: int, vectors: int, stored: DType | None = None
    ) -> None:  # fmt: skip
        self.body, self.dtype, self.lanes, self.rows, self.vectors = body, dtype, lanes, rows, vectors
        self.itemsize = self.step_nbytes = dtype.bits // 8
        self.stored = stored or dtype
        self.column_nbytes = lanes * (self.stored.bits // 8)
        self.unroll = max(4 if rows * vectors < 8 else 1, steps_at_once(body.module.target, lanes))
        self.fetches = True
        self.sets = 1 if body.module.target.ordered else min(self.unroll, max(1, 8 // (rows * vectors)))

    def emit(self) -> None:
        """Where vectors are halved, what is fetched takes a quarter of what the second-level cache delivers to few rows: there
        they have a way for a B that lies in it."""
        body = self.body
        if self.rows <= _FEW_ROWS and body.module.target.halves_vectors:
            with body.either(body.equal(body.args[-1], 0)) as (near, far):
                for way, self.fetches in ((near, False), (far, True)):
                    with way:
                        self._emit()
        elif self.ends_by_rows:
            with body.either(body.less(0, body.args[4])) as (some, none):
                with some:
                    self._emit_to_rows()
                with none:
                    self._emit_nothing()
        else:
            self._emit()
        body.b.ret_void()

    @property
    def ends_by_rows(self) -> bool:
        """Whether the last steps go row by row, each row's sums being stored before the next row's.

        Stores of 64 bytes side by side hold up the multiply-adds behind them (Zen 4: for 60 cycles of the 800 to 1,600 that a
        tile takes in attention). Rows that convert their columns would do that once for each.
        """
        floats = self.dtype is self.stored and self.dtype is not DType.INT32
        return floats and self.lanes * self.itemsize == 64 and self.rows * self.vectors >= _MANY_CELLS

    def _emit_to_rows(self) -> None:
        body = self.body
        a, _, pb, ldb, k, _, _, tile, accumulate, ahead, pace = body.args
        last = body.min(k, _STEPS_BY_ROWS)
        state = [*self._zeros(), ahead, pb, a]
        self._but_last(state, last)
        ahead, pb, a = state[-3:]
        for step in range(_STEPS_BY_ROWS):
            self._fetch(body.at(ahead, body.mul(pace, step)))
        for i in range(self.rows):
            row = [*state[i * self.vectors : (i + 1) * self.vectors], pb, self._row(a, i)]
            self._step_of_row(row, ldb)
            with body.carry(1, last, 1, row):
                self._step_of_row(row, ldb)
            self._store_row(i, row[:-2], tile, accumulate)

    def _zeros(self) -> list[Value]:
        return [self.body.zero(self.dtype, self.lanes)] * (self.rows * self.vectors)

    def _but_last(self, state: list[Value], last: Value) -> None:
        """All steps but the last ones."""
        body = self.body
        a, _, _, ldb, k, taps, ntaps, _, _, _, pace = body.args
        with body.carry(0, ntaps, 1, state) as t:
            left = body.select(body.equal(t, body.sub(ntaps, 1)), last, 0)
            state[-1] = body.at(a, body.load_i64(taps, t))
            self._along(state, ldb, pace, body.sub(k, left))

    def _emit_nothing(self) -> None:
        """Sums without a step."""
        body = self.body
        *_, tile, accumulate, _, _ = body.args
        vectors = body.select(body.equal(accumulate, 0), self.rows * self.vectors, 0)
        with body.loop(0, vectors) as i:
            body.b.store(body.zero(self.dtype, self.lanes), body.at(tile, body.mul(i, self.lanes * self.itemsize)))

    def _step_of_row(self, row: list[Value], ldb: Value) -> None:
        """One step of a row: its sums, the addresses of B and of A."""
        body, (*sums, pb, a) = self.body, row
        scalar = self._numbers(1).of(0, 0, a)
        products = [self._multiplied(scalar, column, x) for column, x in zip(self._columns(pb), sums, strict=True)]
        row[:] = [*products, body.at(pb, ldb), body.at(a, self.step_nbytes)]

    def _store_row(self, i: int, sums: list[Value], tile: Value, accumulate: Value) -> None:
        b, vector = self.body.b, self.body.vector_type(self.dtype, self.lanes)
        places = [self._tile(tile, i * self.vectors + j) for j in range(self.vectors)]
        with self.body.carry(0, accumulate, 1, sums):
            sums[:] = [self._sum(b.load(place, typ=vector), x) for place, x in zip(places, sums, strict=True)]
        for place, x in zip(places, sums, strict=True):
            b.store(x, place)

    def _row(self, a: Value, i: int) -> Value:
        """Where row `i` of A is, the first being at `a`."""
        return self.body.at(a, self.body.mul(self.body.args[1], i))

    def _emit(self) -> None:
        body, b = self.body, self.body.b
        a, _, pb, ldb, k, taps, ntaps, tile, accumulate, ahead, pace = body.args
        cells = self.rows * self.vectors
        state = [body.zero(self.dtype, self.lanes)] * cells * self.sets
        state += [body.zero(self.dtype, self.lanes)] * self.column_sums + [ahead, pb]
        with body.carry(0, ntaps, 1, state) as t:
            state.append(body.at(a, body.load_i64(taps, t)))
            self._along(state, ldb, pace, k)
            state.pop()
        sums = []
        for index in range(cells):
            parts = state[index : cells * self.sets : cells]
            while len(parts) > 1:
                parts = [self._sum(x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            column = state[cells * self.sets + index % self.vectors] if self.column_sums else None
            sums.append(self._finished(parts[0], column))
        # Added at the end, not begun with: the errors of a block's sums then do not grow with the number of blocks.
        with body.carry_if(accumulate, sums):
            vector = body.vector_type(self.dtype, self.lanes)
            sums[:] = [self._sum(b.load(self._tile(tile, i), typ=vector), x) for i, x in enumerate(sums)]
        for index, value in enumerate(sums):
            b.store(value, self._tile(tile, index))

    def _finished(self, sums: Value, column: Value | None) -> Value:
        """The value to store, from sums of products and those of a column (`column_sums`)."""
        return sums

    def _sum(self, x: Value, y: Value) -> Value:
        return self.body.b.fadd(x, y)

    def _along(self, state: list[Value], ldb: Value, pace: Value, k: Value) -> None:
        """`k` steps of one tap."""
        body = self.body
        whole = body.b.and_(k, body.i(-self.unroll))
        with body.carry(0, whole, self.unroll, state):
            self._steps(state, ldb, pace, self.unroll)
        if self.unroll > 1:
            with body.carry(whole, k, 1, state):
                self._steps(state, ldb, pace, 1)

    def _tile(self, tile: Value, index: int) -> Value:
        return self.body.at(tile, index * self.lanes * self.itemsize)

    def _columns(self, pb: Value) -> list[Value]:
        """The vectors of one row of B."""
        places = [self.body.at(pb, j * self.column_nbytes) for j in range(self.vectors)]
        return [load_wide(self.body, place, self.stored, self.lanes) for place in places]

    def _numbers(self, count: int) -> Numbers:
        """Of A: those of some steps of a row, or of all rows in a step."""
        return Numbers.of_type(self.body, self.dtype, self.lanes, count)

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        return self.body.fma(scalar, column, sums, self.dtype, self.lanes)

    def _steps(self, state: list[Value], ldb: Value, pace: Value, count: int) -> None:
        """`count` steps along k; the state is the sets of accumulators and the addresses to fetch, of B and of A."""
        body = self.body
        lda = body.args[1]
        ahead, pb, a = state[-3:]
        # Addresses a, a + lda, a + 2 lda of every third row fit x86's base + index * scale: 14 rows need 5 registers.
        bases = [body.at(a, body.mul(lda, i)) if i else a for i in range(0, self.rows, 3)]
        cells = self.rows * self.vectors
        numbers = self._numbers(count)
        for u in range(count):
            columns = self._columns(pb)
            for i in range(self.rows):
                row = body.at(bases[i // 3], body.mul(lda, i % 3) if i % 3 else 0, u * self.itemsize)
                scalar = numbers.of(i, u, row)
                for j in range(self.vectors):
                    at = u % self.sets * cells + i * self.vectors + j
                    state[at] = self._multiplied(scalar, columns[j], state[at])
            if self.fetches:
                self._fetch(ahead)
            pb, ahead = self._next(pb, ldb, ahead, pace)
        state[-3:] = [ahead, pb, body.at(a, count * self.itemsize)]

    def _next(self, pb: Value, ldb: Value, ahead: Value, pace: Value) -> tuple[Value, Value]:
        """Where a step's row of B is and what it fetches, of those before it."""
        return self.body.at(pb, ldb), self.body.at(ahead, pace)

    def _fetch(self, ahead: Value) -> None:
        """Loads of a step."""
        for j in range(0, self.vectors * self.column_nbytes, 64):
            self.body.prefetch(self.body.at(ahead, j), 2)


class TiledMicro(Micro):
    """One variant for packed A: two steps a round, which fetch two lines at `ahead`, and one of A, which another core may have
    packed."""

    def __init__(self, body: Body, dtype: DType, lanes: int, rows: int, vectors: int) -> None:
        super().__init__(body, dtype, lanes, rows, vectors)
        self.unroll, self.sets, self.step_nbytes = 2, 1, rows * self.itemsize

    def _but_last(self, state: list[Value], last: Value) -> None:
        body = self.body
        a, _, _, ldb, k, taps, _, _, _, _, pace = body.args
        state[-1] = body.at(a, body.load_i64(taps, 0))
        self._along(state, ldb, pace, body.sub(k, last))

    def _row(self, a: Value, i: int) -> Value:
        return self.body.at(a, i * self.itemsize)

    def _steps(self, state: list[Value], ldb: Value, pace: Value, count: int) -> None:
        body = self.body
        ahead, pb, a = state[-3:]
        numbers = self._numbers(self.rows)
        for u in range(count):
            columns = self._columns(pb)
            for i in range(self.rows):
                scalar = numbers.of(u, i, body.at(a, u * self.step_nbytes + i * self.itemsize))
                for j in range(self.vectors):
                    at = i * self.vectors + j
                    state[at] = self._multiplied(scalar, columns[j], state[at])
            self._fetch(ahead)
            if u == 0:
                body.prefetch(body.at(a, _AHEAD_OF_A), 3)
            pb, ahead = body.at(pb, ldb), body.at(ahead, pace)
        state[-3:] = [ahead, pb, body.at(a, count * self.step_nbytes)]

    def _fetch(self, ahead: Value) -> None:
        self.body.prefetch(ahead, 2)
