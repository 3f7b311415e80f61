"""C = epilogue(A B) with products and short sums in float16 (AVX512-FP16: twice the multiply-adds of float32), B constant.

A is packed as by `pack_a` and rounded to float16, each row of a block of K times a power of two that brings its largest
number into [64, 128); B's columns likewise into [1, 2). So the sums of a block, of at most 128 products, stay below 2^15, and
small weights and large activations keep their digits. At a block's end its sums are widened, scaled back and added in float32.

Packed A is float32 [blocks][m], what the rows' numbers were divided by, then float16 [block][tile][k][row of the tile]; a
panel of B is float32 [columns], likewise, then float16 [K][columns].
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, dispatched
from intarsia.providers.cpu.kernels.common.pack_b import transposed
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile, product_tile
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.pack_a import k_block
from intarsia.providers.cpu.kernels.matmul.packed_a_kernel import TiledGemm

_HALF, _FLOAT = DType.FLOAT16, DType.FLOAT
_LANES = 16  # of float32
_TOP = 6  # a row's largest number is in [2^6, 2^7)


def half_tile(n: int, target: Target) -> Tile:
    """The register tile of a product with `n` columns: vectors of 32 float16."""
    return product_tile(n, _HALF, target)


def sums_tile(tile: Tile) -> Tile:
    """The same tile as sums in float32."""
    return Tile(tile.rows, 2 * tile.vectors, tile.lanes // 2, 4)


def pack_half_weights(b: np.ndarray, tile: Tile) -> np.ndarray | None:
    """Panels of float32 [K, N], as uint16; None where a number is infinite or NaN."""
    (k, n), width = b.shape, tile.width
    highest = np.abs(b).max(0, initial=0)
    if not np.isfinite(highest).all():
        return None
    scale = np.exp2(np.floor(np.log2(np.maximum(highest, np.finfo(np.float32).tiny), dtype=np.float64)))
    scale = np.where(highest > 0, scale, 1).astype(np.float32)
    halves = (b / scale).astype(np.float16).view(np.uint16)
    padded = -(-n // tile.lanes) * tile.lanes
    out = aligned_zeros(((k + 2) * padded,), np.dtype(np.uint16))
    for first in range(0, padded, width):
        columns = min(width, padded - first)
        panel = out[(k + 2) * first : (k + 2) * (first + columns)]
        count = min(columns, n - first)
        panel[: 2 * columns].view(np.float32)[:count] = scale[first : first + count]
        panel[2 * columns :].reshape(k, columns)[:, :count] = halves[:, first : first + count]
    return out


def packed_columns(k: int, tile: Tile) -> int:
    """float16 numbers of packed A for each row."""
    return k + 2 * -(-k // k_block(k, sums_tile(tile)))


# --- packing A ----------------------------------------------------------------------------------------------------


@functools.cache
def pack_halves_text(tile: Tile, target: Target) -> KernelText:
    """The step that packs A for register tiles `tile`; see `pack_halves_args`."""
    module = Module(target)
    pack = _emit_halves(module, tile.rows)
    body = module.kernel()
    args, tid, nthreads = body.args
    source, ld, packed = body.load_pointer(args, 0), body.load_i64(args, 1), body.load_pointer(args, 2)
    m, k, block, tiles = (body.load_i64(args, i) for i in range(3, 7))
    blocks = body.div(body.add(k, body.sub(block, 1)), block)
    rows, extra = body.div(m, body.max(tiles, 1)), body.rem(m, body.max(tiles, 1))
    data = body.at(packed, body.mul(body.mul(blocks, m), 4))
    first, last = body.share(body.mul(tiles, blocks), tid, nthreads)
    with body.loop(first, last) as unit:
        number, at = body.div(unit, blocks), body.rem(unit, blocks)
        start = body.mul(at, block)
        count = body.min(block, body.sub(k, start))
        row = body.add(body.mul(number, rows), body.min(number, extra))
        size = body.add(rows, body.select(body.less(number, extra), 1, 0))
        out = body.at(data, body.mul(body.add(body.mul(start, m), body.mul(row, count)), 2))
        scales = body.at(packed, body.mul(body.add(body.mul(at, m), row), 4))
        origin = body.at(source, body.mul(row, ld), body.mul(start, 4))
        body.b.call(pack, [origin, ld, count, out, scales, size])
    body.b.ret_void()
    return module.text("pack_halves")


def pack_halves_args(source: Address, ld_nbytes: int, packed: Address, m: int, k: int, tile: Tile) -> list[Argument]:
    """The step's arguments: addresses, bytes between rows of the source, sizes."""
    return [source, ld_nbytes, packed, m, k, k_block(k, sums_tile(tile)), -(-m // tile.rows)]


def _emit_halves(module: Module, tile_rows: int) -> Value:
    """An internal function: (ptr source, i64 ld, i64 k, ptr out, ptr scales, i64 rows) packs a block of one tile."""
    body = module.function("halves", ("p", "i", "i", "p", "p", "i"))
    source, ld, k, out, scales, size = body.args
    lines = [body.at(source, body.mul(body.min(body.i(i), body.sub(size, 1)), ld)) for i in range(_LANES)]
    whole = body.b.and_(k, body.i(-_LANES))
    mask = body.mask(size, _LANES)
    multiplier, divisor = _scales(body, lines[:tile_rows], whole, k)
    body.store_masked(divisor, scales, mask, _FLOAT)
    spilled = body.alloca(4 * _LANES)
    body.store(multiplier, spilled, _FLOAT)
    emitter, step = Emitter(body.b, _LANES), body.mul(size, 2)
    with body.loop(0, whole, _LANES) as p:
        block = transposed(body, [body.load(body.at(line, body.mul(p, 4)), _FLOAT, _LANES) for line in lines])
        for i, value in enumerate(block):
            half = emitter.to_storage(body.b.fmul(value, multiplier), _HALF)
            body.store_masked(half, body.at(out, body.mul(body.add(p, i), step)), mask, _HALF)
    one = Emitter(body.b)
    with body.loop(whole, k) as p, body.loop(0, size) as i:
        value = body.load(body.at(source, body.mul(i, ld), body.mul(p, 4)), _FLOAT, 1)
        scaled = body.b.fmul(value, body.load(body.at(spilled, body.mul(i, 4)), _FLOAT, 1))
        body.store(one.to_storage(scaled, _HALF), body.at(out, body.mul(p, step), body.mul(i, 2)), _HALF)
    body.b.ret_void()
    return body.function


def _scales(body: Body, lines: list[Value], whole: Value, k: Value) -> tuple[Value, Value]:
    """Powers of two for each row (lanes): what its numbers are multiplied by, and one divided by it."""
    b, words = body.b, ir_builder.VectorType(ir_builder.IntType(32), _LANES)

    def number(value: int) -> Value:
        return ir_builder.Constant(words, [value] * _LANES)

    def magnitude(x: Value) -> Value:
        return b.and_(b.bitcast(x, words), number(0x7FFFFFFF))

    def larger(x: Value, y: Value) -> Value:  # NaN has the largest bits of all
        return b.select(b.icmp_unsigned("<", x, y), y, x)

    state = [ir_builder.Constant(words, [0] * _LANES)] * len(lines)
    with body.carry(0, whole, _LANES, state) as p:
        state[:] = [
            larger(x, magnitude(body.load(body.at(line, body.mul(p, 4)), _FLOAT, _LANES)))
            for x, line in zip(state, lines, strict=True)
        ]
    rest, offset = body.mask(body.sub(k, whole), _LANES), body.mul(whole, 4)
    found = [
        larger(x, magnitude(body.load_masked(body.at(line, offset), rest, _FLOAT, _LANES)))
        for x, line in zip(state, lines, strict=True)
    ]
    columns = transposed(body, found + [found[0]] * (_LANES - len(found)))
    while len(columns) > 1:
        columns = [larger(x, y) for x, y in zip(columns[::2], columns[1::2], strict=True)]
    exponent = b.lshr(columns[0], number(23))
    # 2^(254 + top - exponent - 127); what would not be a normal number, or has none as its inverse, is cut off.
    field = b.sub(number(254 + _TOP), exponent)
    field = b.select(b.icmp_signed("<", number(253), field), number(253), field)
    powers = [b.bitcast(b.shl(f, number(23)), body.vector_type(_FLOAT, _LANES)) for f in (field, b.sub(number(254), field))]
    return powers[0], powers[1]


# --- the product --------------------------------------------------------------------------------------------------


@cached_text
def half_micro_text(tile: Tile, target: Target) -> KernelText:
    """The micro-kernels: as `microkernel.PARAMETERS` says, but for one block of packed A and B.

    `lda` is the address of the rows' scales, `taps` that of the columns'; `tile` is float32 [rows][vectors * 32].
    """

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _HalfMicro(body, rows, vectors).emit()

    return dispatched("micro_halves", tile, target, variant)


class _HalfMicro:
    def __init__(self, body: Body, rows: int, vectors: int) -> None:
        self.body, self.rows, self.vectors, self.lanes = body, rows, vectors, 2 * _LANES

    def emit(self) -> None:
        body = self.body
        a, scales, pb, ldb, k, columns, _, tile, accumulate, ahead, pace = body.args
        cells = self.rows * self.vectors
        # A broadcast of 16 bits costs a shuffle, unless the multiply-add does it: each vector reads by an address of its own.
        own = [a, *(body.opaque(a) for _ in range(1, self.vectors))]
        state = [body.zero(_HALF, self.lanes)] * cells + [ahead, pb, *own]
        whole = body.b.and_(k, body.i(-2))
        with body.carry(0, whole, 2, state):
            self._steps(state, ldb, pace, 2)
        with body.carry(whole, k, 1, state):
            self._steps(state, ldb, pace, 1)
        rows = body.pointer(scales)
        with body.either(body.equal(accumulate, 0)) as (begins, goes_on):
            with begins:
                self._add(state, rows, columns, tile, False)
            with goes_on:
                self._add(state, rows, columns, tile, True)
        body.b.ret_void()

    def _steps(self, state: list[Value], ldb: Value, pace: Value, count: int) -> None:
        body, cells = self.body, self.rows * self.vectors
        ahead, pb, *own = state[cells:]
        for u in range(count):
            for j in range(self.vectors):
                column = body.load(body.at(pb, j * 2 * self.lanes), _HALF, self.lanes)
                for i in range(self.rows):
                    scalar = body.broadcast(body.at(own[j], 2 * (u * self.rows + i)), _HALF, self.lanes)
                    at = i * self.vectors + j
                    state[at] = body.fma(scalar, column, state[at], _HALF, self.lanes)
            body.prefetch(ahead, 2)
            pb, ahead = body.at(pb, ldb), body.at(ahead, pace)
        state[cells:] = [ahead, pb, *(body.at(p, 2 * count * self.rows) for p in own)]

    def _add(self, state: list[Value], rows: Value, columns: Value, tile: Value, accumulate: bool) -> None:
        """The block's sums, scaled back, into the tile or on top of it."""
        body = self.body
        wide = Emitter(body.b, _LANES)
        for j in range(self.vectors):
            for part in range(2):
                at = j * self.lanes + part * _LANES
                column = body.load(body.at(columns, 4 * at), _FLOAT, _LANES)
                for i in range(self.rows):
                    sums = state[i * self.vectors + j]
                    lanes = range(part * _LANES, (part + 1) * _LANES)
                    value = wide.from_storage(body.shuffle(sums, sums, lanes), _HALF)
                    scaled = body.b.fmul(value, body.broadcast(body.at(rows, 4 * i), _FLOAT, _LANES))
                    place = body.at(tile, 4 * (i * self.vectors * self.lanes + at))
                    if accumulate:
                        scaled = body.fma(scaled, column, body.load(place, _FLOAT, _LANES), _FLOAT, _LANES)
                    else:
                        scaled = body.b.fmul(scaled, column)
                    body.store(scaled, place, _FLOAT)


@functools.lru_cache(maxsize=256)
def half_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec with `halves`; its arguments are `packed_a_kernel.tiled_args`, `a` being packed A."""
    return _HalfGemm(spec, target).text()


class _HalfGemm(TiledGemm):
    def _find_b(self, b: Value, panel: Value) -> None:
        body, v = self.body, self.v
        lanes = 2 * self.tile.lanes
        wide = body.div(body.add(self.columns, lanes - 1), lanes)
        self.wide, self.vectors = wide, body.mul(wide, 2)
        self.ldb = body.mul(wide, 2 * lanes)
        self.column_scales = body.at(b, body.mul(panel, v["panel_nbytes"]))
        self.b = body.at(self.column_scales, body.mul(wide, 4 * lanes), body.mul(v["first"], self.ldb))

    def _begin_block(self, b: Value, at: Value, steps: Value) -> None:
        body, v = self.body, self.v
        blocks = body.div(body.add(v["total"], body.sub(v["block"], 1)), v["block"])
        before = body.add(v["first"], at)
        data = body.at(v["a"], body.mul(body.mul(blocks, v["m"]), 4))
        self.block_steps, self.block_b = steps, b
        self.block_a = body.at(data, body.mul(body.mul(before, v["m"]), 2))
        self.row_scales = body.at(v["a"], body.mul(body.mul(body.div(before, v["block"]), v["m"]), 4))

    def _multiply(self, row: Value, rows: Value, accumulate: Value, ahead: Value) -> None:
        body = self.body
        scales = body.b.ptrtoint(body.at(self.row_scales, body.mul(row, 4)), ir_builder.IntType(64))
        body.call_pointer(
            self.v["micro"], PARAMETERS,
            [
                body.at(self.block_a, body.mul(body.mul(row, self.block_steps), 2)), scales, self.block_b, self.ldb,
                self.block_steps, self.column_scales, 1, self.buffer, accumulate, ahead, self.pace, rows, self.wide,
            ],
        )  # fmt: skip
