"""C = epilogue(A B) with A and B of 32-bit words: pairs of bfloat16 summed in float32, or four bytes summed in int32.

One template, as for float32 (`packed_a_kernel`: blocks and parts of k, chunks of tiles, claimed pieces), with k counted in
words and A always packed in strips of rows that have the height of a register tile. What differs is the unit that multiplies:

- "avx512_bf16": VDPBF16PS, the products of a pair into vectors of 16 sums; register tiles as of float32.
- "amx": tiles of 16 x 16 sums, two by two of them, so that four loads of tiles serve four products.
- "amx_emulated": the same with AMX's operations in plain code (`amx`), for tests on CPUs without them.

VDPBF16PS and TDPBF16PS take numbers below 2^-126 as zeros and give none; TDPBF16PS sums even and odd elements separately.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.amx import (
    BFLOAT16,
    ROWS,
    SIGNED,
    STATE_NBYTES,
    TILE_NBYTES,
    UNSIGNED,
    WHOLE,
    TileUnit,
    configuration,
)
from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.broadcast_a import Numbers
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, Micro, TiledMicro, dispatched, tiled_rows
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile
from intarsia.providers.cpu.kernels.common.units import EMULATED, VECTORS
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.packed_a_kernel import TiledGemm
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_NBYTES, LINE_WORDS

_STRIPS = 2  # of 16 rows and of 16 columns: a register tile's
_KINDS = {DType.FLOAT: BFLOAT16, DType.INT8: SIGNED, DType.UINT8: UNSIGNED}


def word_tile(n: int, unit: str, target: Target) -> Tile:
    """The register tile of a product with `n` columns."""
    return product_tile(n, DType.FLOAT, target) if unit == VECTORS else Tile(_STRIPS * ROWS, _STRIPS, ROWS, 4)


def strip_rows(tile: Tile, unit: str) -> int:
    """Rows of a strip of packed A."""
    return tile.rows if unit == VECTORS else ROWS


@cached_text
def word_micro_text(source: DType, tile: Tile, unit: str, target: Target) -> KernelText:
    """The micro-kernels of one unit, for A of FLOAT (as bfloat16), UINT8 or INT8 and B of bfloat16 or int8.

    As `microkernel.PARAMETERS` says, with `k` in words, whole lines; `lda`: bytes from a strip of A to the next; `taps`: the
    state of emulated tiles. Tiles take `rows` as a number of strips.
    """
    if unit != VECTORS:
        return _tile_micro_text(_KINDS[source], unit, target)

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _PairMicro(body, tile.rows, rows, vectors).emit()

    return dispatched("micro_pairs", tile, target, variant)


class _PairMicro:
    """One variant of VDPBF16PS: a word of A, broadcast by the multiplication itself, and vectors of words of B."""

    unroll = 4

    def __init__(self, body: Body, strip: int, rows: int, vectors: int) -> None:
        self.body, self.strip, self.rows, self.vectors = body, strip, rows, vectors

    def emit(self) -> None:
        body, cells = self.body, self.rows * self.vectors
        a, _, pb, ldb, k, _, _, tile, accumulate, ahead, pace = body.args
        state = [body.zero(DType.FLOAT, LINE_WORDS)] * cells
        with body.carry(0, accumulate, 1, state):
            state[:] = [body.load(body.at(tile, i * LINE_NBYTES), DType.FLOAT, LINE_WORDS) for i in range(cells)]
        state += [ahead, pb, a]
        with body.carry(0, k, LINE_WORDS, state):
            with body.carry(0, LINE_WORDS, self.unroll, state):
                self._steps(state, ldb, pace)
            state[-1] = body.at(state[-1], (self.strip - 1) * LINE_NBYTES)
        for i in range(cells):
            body.store(state[i], body.at(tile, i * LINE_NBYTES), DType.FLOAT)
        body.b.ret_void()

    def _steps(self, state: list[Value], ldb: Value, pace: Value) -> None:
        body = self.body
        ahead, pb, a = state[-3:]
        for u in range(self.unroll):
            columns = [body.load(body.at(pb, j * LINE_NBYTES), DType.INT32, LINE_WORDS) for j in range(self.vectors)]
            for i in range(self.rows):
                word = body.broadcast(body.at(a, i * LINE_NBYTES + 4 * u), DType.INT32, LINE_WORDS)
                for j in range(self.vectors):
                    at = i * self.vectors + j
                    state[at] = pair_products(body, state[at], columns[j], word)
            body.prefetch(ahead, 2)
            pb, ahead = body.at(pb, ldb), body.at(ahead, pace)
        state[-3:] = [ahead, pb, body.at(a, 4 * self.unroll)]


@cached_text
def tiled_pairs_text(tile: Tile, target: Target) -> KernelText:
    """As `microkernel.tiled_micro_text`, by VDPBF16PS: elements of packed A and of B are words of two bfloat16."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _TiledPairs(body, DType.FLOAT, tile.lanes, rows, vectors).emit()

    return dispatched("micro_tiled_pairs", tile, target, variant, tiled_rows(tile))


@cached_text
def pair_rows_text(tile: Tile, target: Target) -> KernelText:
    """As `microkernel.micro_text` of FLOAT, by VDPBF16PS: elements of A, in rows, and of B are words of two bfloat16."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _PairRows(body, DType.FLOAT, tile.lanes, rows, vectors).emit()

    return dispatched("micro_pair_rows", tile, target, variant)


class _Words(Micro):
    """A micro-kernel of float32 as one of words."""

    def _columns(self, pb: Value) -> list[Value]:
        return [self.body.load(self.body.at(pb, j * LINE_NBYTES), DType.INT32, LINE_WORDS) for j in range(self.vectors)]

    def _numbers(self, count: int) -> Numbers:
        return Numbers.of_type(self.body, DType.INT32, LINE_WORDS, count)

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        return pair_products(self.body, sums, column, scalar)


class _PairRows(_Words):
    pass


class _TiledPairs(_Words, TiledMicro):
    pass


def pair_products(body: Body, sums: Value, x: Value, y: Value) -> Value:
    """VDPBF16PS of 16 words; `y` may be broadcast from memory."""
    floats, pairs = (
        ir_builder.VectorType(ir_builder.FloatType(), LINE_WORDS),
        ir_builder.VectorType(ir_builder.BFloatType(), 2 * LINE_WORDS),
    )
    function = body.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", floats, [floats, pairs, pairs])
    return body.b.call(function, [sums, body.b.bitcast(x, pairs), body.b.bitcast(y, pairs)])


def _tile_micro_text(kind: str, unit: str, target: Target) -> KernelText:
    def variant(body: Body, tile: Tile, strips: int, vectors: int) -> None:
        _TileMicro(body, kind, unit, strips, vectors).emit()

    return dispatched(f"micro_{kind}_{unit}", Tile(_STRIPS, _STRIPS, ROWS, 4), target, variant)


class _TileMicro:
    """One variant of tiles: sums in tiles 0 to 3, strips of A in 4 and 5, columns of B in 6 and 7."""

    def __init__(self, body: Body, kind: str, unit: str, strips: int, vectors: int) -> None:
        self.body, self.kind, self.strips, self.vectors = body, kind, strips, vectors
        self.tiles = TileUnit(body, body.args[5] if unit == EMULATED else None)

    def emit(self) -> None:
        body, tiles = self.body, self.tiles
        a, lda, pb, ldb, k, _, _, tile, accumulate, ahead, pace = body.args
        row_nbytes = self.vectors * LINE_NBYTES
        cells = [(s, j) for s in range(self.strips) for j in range(self.vectors)]
        with body.either(body.equal(accumulate, 0)) as (begins, goes_on):
            with begins:
                for s, j in cells:
                    tiles.zero(s * _STRIPS + j)
            with goes_on:
                for s, j in cells:
                    tiles.load(s * _STRIPS + j, body.at(tile, s * ROWS * row_nbytes + j * LINE_NBYTES), row_nbytes)
        state = [a, pb, ahead]
        with body.carry(0, k, LINE_WORDS, state):
            self._line(state, lda, ldb, pace)
        for s, j in cells:
            tiles.store(s * _STRIPS + j, body.at(tile, s * ROWS * row_nbytes + j * LINE_NBYTES), row_nbytes)
        body.b.ret_void()

    def _line(self, state: list[Value], lda: Value, ldb: Value, pace: Value) -> None:
        """One line of words: a product for each of the tiles of sums, as soon as its factors are there."""
        body, tiles = self.body, self.tiles
        a, pb, ahead = state
        loaded: set[int] = set()
        for s in range(self.strips):
            tiles.load(4 + s, body.at(a, lda) if s else a, LINE_NBYTES)
            for j in range(self.vectors):
                if j not in loaded:
                    tiles.load(6 + j, body.at(pb, j * LINE_NBYTES), ldb)
                    loaded.add(j)
                tiles.multiply(self.kind, s * _STRIPS + j, 4 + s, 6 + j)
        for _ in range(LINE_WORDS):
            for j in range(1 if self.strips > 1 else self.vectors):  # one strip: no other tile fetches a part
                body.prefetch(body.at(ahead, j * LINE_NBYTES), 2)
            ahead = body.at(ahead, pace)
        state[:] = [body.at(a, TILE_NBYTES), body.at(pb, body.mul(ldb, LINE_WORDS)), ahead]


@functools.lru_cache(maxsize=256)
def word_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec with a `unit`; its arguments are `packed_a_kernel.tiled_args`, `a` being packed A, `k` in words."""
    return _WordGemm(spec, target).text()


class _WordGemm(TiledGemm):
    """Register tiles of `tile.rows` rows, the last as many as there are."""

    def __init__(self, spec: GemmSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.strip = strip_rows(self.tile, spec.unit)
        self.tiles: TileUnit | None = None
        if spec.unit != VECTORS:
            self.tiles = TileUnit(self.body, self.body.alloca(STATE_NBYTES) if spec.unit == EMULATED else None)

    def _enter(self) -> None:
        if self.tiles is not None:
            self.tiles.configure(configuration(WHOLE))

    def _leave(self) -> None:
        if self.tiles is not None:
            self.tiles.release()

    def _rows_of(self, tile: Value) -> tuple[Value, Value]:
        body, most = self.body, self.tile.rows
        row = body.mul(tile, most)
        return row, body.min(most, body.sub(self.v["m"], row))

    def _begin_block(self, b: Value, at: Value, steps: Value) -> None:
        body, v = self.body, self.v
        strips = body.div(body.add(v["m"], self.strip - 1), self.strip)
        before = body.mul(body.mul(body.add(v["first"], at), strips), 4 * self.strip)
        self.block_steps, self.block_b = steps, b
        self.block_a = body.at(v["a"], before)

    def _multiply(self, row: Value, rows: Value, accumulate: Value, ahead: Value) -> None:
        body = self.body
        strip_nbytes = body.mul(self.block_steps, 4 * self.strip)
        a = body.at(self.block_a, body.mul(body.div(row, self.strip), strip_nbytes))
        state = self.tiles.state if self.tiles is not None and self.tiles.state is not None else self.v["taps"]
        count = rows if self.tiles is None else body.div(body.add(rows, ROWS - 1), ROWS)
        body.call_pointer(
            self.v["micro"], PARAMETERS,
            [
                a, strip_nbytes, self.block_b, self.ldb, self.block_steps, state, 1, self.buffer, accumulate, ahead, self.pace,
                count, self.vectors,
            ],
        )  # fmt: skip
