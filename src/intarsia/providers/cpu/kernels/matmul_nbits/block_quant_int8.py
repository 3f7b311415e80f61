"""C = epilogue(A B) with A in bytes and weights of 4 or 8 bits that stay packed, both in blocks along k with a scale for each.

For products whose model allows it (MatMulNBits with `accuracy_level` 4). Every block of a row of A becomes signed bytes q, to
the nearest, a = s q with s = max |a| / 127. By weights w = t (u - z), u unsigned, a block gives s t (sum of q u - z sum of q):
these sums exactly; blocks are added in float32, in one order whatever the number of rows. A panel of B is one stream, which is
read as fast as it comes: fetching it ahead by instructions took a third more time.

Quantised A is int8 (the same in int16: `block_quant_avx2`) [m][blocks * size], zeros behind K, and float32 [m][blocks][2]: s,
and
c = s times the sum of q (times minus the middle of u's range, where that is the zero point of all). Packed B is, in the panels
of `pack`, a column of 32-bit rows for each block: t, -z t where there are zero points, and words: four numbers of 8 bits, or
eight of 4, the first four in the low halves of the bytes.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.ep.capability import Support
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common import pieces
from intarsia.providers.cpu.kernels.common import work_stealing as claiming
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.microkernel import PARAMETERS, dispatched
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand
from intarsia.providers.cpu.kernels.matmul.gemm_kernel import Gemm
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot
from intarsia.providers.cpu.kernels.matmul_nbits import block_quant_avx2
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, BlockMicro

_I32 = ir_builder.IntType(32)
_F32 = DType.FLOAT
_LEAST_SCALE = 2.0**-100  # largest elements below this count as zeros: their inverse might be infinite
_LARGEST_BLOCK = 1 << 15  # sums stay below 2^31
_FIELDS = "micro a lda b c ldc m n scales lds blocks tiles rows extra panels panel_nbytes claims tail piece".split()


def takes(form: BlockFormat, target: Target) -> Support:
    """Whether the kernels are for such blocks and such a CPU."""
    multiplies = _dots(target) if target.vector_bytes == 64 else target.vector_bytes == 32
    if target.arch != "x86_64" or not multiplies:
        return Support.no("the CPU has neither VNNI nor AVX2 alone")
    if form.table:
        return Support.no("its weights are codes of numbers")
    if form.size % 16 or form.size > _LARGEST_BLOCK:
        return Support.no(f"its blocks are of {form.size} numbers, not of a multiple of 16 up to {_LARGEST_BLOCK}")
    return Support.yes()


def _dots(target: Target) -> bool:
    """Whether the CPU multiplies four bytes at once; `block_quant_avx2` is for those that do not."""
    return target.has("avx512vnni" if target.vector_bytes == 64 else "avxvnni")


def row_dtype(form: BlockFormat, target: Target) -> DType:
    """The type of a row's numbers."""
    return DType.INT8 if _dots(target) or block_quant_avx2.row_bits(form) == 8 else DType.INT16


def block_tile(target: Target) -> Tile:
    """Rows by vectors of sums: as integers of a block, and, where VNNI leaves registers, as floats of all before."""
    if target.vector_bytes == 64:
        return Tile(6, 2, 16, 4)
    return Tile(2 if _dots(target) else 4, 2, 8, 4)


def pack_byte_blocks(
    words: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, form: BlockFormat, target: Target
) -> np.ndarray:
    """Pack unsigned numbers for the kernel: int32, as `pack_matrix` gives it.

    Args:
        words: uint32 [N, blocks, words of a block], numbers from the lowest bits up.
        scales: [N, blocks].
        zeros: zero points [N, blocks] where `form.zeros`.
    """
    if form.bits == 4:
        words = _spread(words) | _spread(words >> np.uint32(16)) << np.uint32(4)
    elif row_dtype(form, target) is DType.INT16:
        words = block_quant_avx2.swapped(words)
    parts = [scales.astype(np.float32).view(np.uint32)[:, :, None]]
    if form.zeros:
        assert zeros is not None
        offsets = (-zeros.astype(np.float64) * scales.astype(np.float64)).astype(np.float32)
        parts.append(offsets.view(np.uint32)[:, :, None])
    rows = np.concatenate([*parts, words], 2).reshape(len(words), -1)
    return pack_matrix(rows.T.view(np.int32), block_tile(target))


def _spread(halves: np.ndarray) -> np.ndarray:
    """Numbers of 4 bits, the four lowest of a word, as its bytes."""
    pairs = halves & np.uint32(0xFFFF)
    pairs = (pairs | pairs << np.uint32(8)) & np.uint32(0x00FF00FF)
    spread: np.ndarray = (pairs | pairs << np.uint32(4)) & np.uint32(0x0F0F0F0F)
    return spread


# --- A ------------------------------------------------------------------------------------------------------------


@functools.cache
def quantize_rows_text(form: BlockFormat, target: Target) -> KernelText:
    """Arguments: A (float[m, k]), its bytes, its scales, m, k."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    source, numbers, scales = (body.load_pointer(args, i) for i in range(3))
    m, k = body.load_i64(args, 3), body.load_i64(args, 4)
    blocks = body.div(body.add(k, form.size - 1), form.size)
    first, last = body.share(body.mul(m, blocks), tid, nthreads)
    block, number_nbytes = _Block(body, form), row_dtype(form, target).bits // 8
    with body.loop(first, last) as unit:
        row, start = body.div(unit, blocks), body.mul(body.rem(unit, blocks), form.size)
        place = body.at(source, body.mul(body.add(body.mul(row, k), start), 4))
        left = body.min(form.size, body.sub(k, start))
        with body.either(body.equal(left, form.size)) as (whole, rest):
            for branch, count in ((whole, None), (rest, left)):
                with branch:
                    out = body.at(numbers, body.mul(unit, form.size * number_nbytes))
                    block.emit(place, out, body.at(scales, body.mul(unit, 8)), count)
    body.b.ret_void()
    return module.text("quantize_rows")


class _Block:
    """Writes what quantises one block of a row."""

    def __init__(self, body: Body, form: BlockFormat) -> None:
        self.body, self.form = body, form
        self.lanes = body.module.lanes(_F32)
        self.ints, self.floats = ir_builder.VectorType(_I32, self.lanes), body.vector_type(_F32, self.lanes)

    def emit(self, source: Value, numbers: Value, scales: Value, count: Value | None) -> None:
        """`count`: how many numbers there are, where not all."""
        body, b, form, lanes = self.body, self.body.b, self.form, self.lanes
        number = row_dtype(form, body.module.target)
        # The largest as bits, without signs: NaN is larger than all numbers, and makes the scale NaN.
        largest: list[Value] = [body.zero(DType.INT32, lanes)]
        unsigned = ir_builder.Constant(self.ints, [0x7FFFFFFF] * lanes)
        with body.carry(0, form.size, lanes, largest) as at:
            bits = b.and_(b.bitcast(self._load(source, at, count), self.ints), unsigned)
            largest[0] = b.select(b.icmp_signed(">", bits, largest[0]), bits, largest[0])
        most = b.bitcast(self._across("umax", largest[0]), ir_builder.FloatType())
        scale = b.fmul(most, ir_builder.Constant(ir_builder.FloatType(), 1 / 127))
        inverse = b.fdiv(ir_builder.Constant(ir_builder.FloatType(), 127.0), most)
        small = b.fcmp_ordered("<", most, ir_builder.Constant(ir_builder.FloatType(), _LEAST_SCALE))
        factor = body.splat(b.select(small, ir_builder.Constant(ir_builder.FloatType(), 0.0), inverse), lanes)
        sums: list[Value] = [body.zero(DType.INT32, lanes)]
        nearest = body.intrinsic(f"llvm.rint.v{lanes}f32", self.floats, [self.floats])
        with body.carry(0, form.size, lanes, sums) as at:
            scaled = b.call(nearest, [b.fmul(self._load(source, at, count), factor)])
            q = b.fptosi(scaled, self.ints)
            sums[0] = b.add(sums[0], q)
            short = b.trunc(q, ir_builder.VectorType(ir_builder.IntType(number.bits), lanes))
            b.store(short, body.at(numbers, body.mul(at, number.bits // 8)), align=1)
        total = b.fmul(b.sitofp(self._across("add", sums[0]), ir_builder.FloatType()), scale)
        if not form.zeros:
            total = b.fmul(total, ir_builder.Constant(ir_builder.FloatType(), -float(1 << (form.bits - 1))))
        b.store(scale, scales, align=4)
        b.store(total, body.at(scales, 4), align=4)

    def _load(self, source: Value, at: Value, count: Value | None) -> Value:
        body = self.body
        place = body.at(source, body.mul(at, 4))
        if count is None:
            return body.load(place, _F32, self.lanes)
        return body.load_masked(place, body.mask(body.sub(count, at), self.lanes), _F32, self.lanes)

    def _across(self, kind: str, x: Value) -> Value:
        return self.body.b.call(self.body.intrinsic(f"llvm.vector.reduce.{kind}.v{self.lanes}i32", _I32, [self.ints]), [x])


# --- the product --------------------------------------------------------------------------------------------------


@cached_text
def block_micro_text(form: BlockFormat, target: Target) -> KernelText:
    """The micro-kernels: as `microkernel.PARAMETERS` says, for bytes of A, rows `lda` apart; `k` counts blocks, `taps` and
    `ntaps` are the scales of A's first row and the bytes between rows of these; `ahead` and `pace` are ignored."""

    micro = _Micro if _dots(target) else block_quant_avx2.ShortMicro

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        micro(body, form, tile.lanes, rows, vectors).emit()

    kind = f"{form.bits}_{form.size}" + "z" * form.zeros
    return dispatched(f"micro_blocks{kind}", block_tile(target), target, variant)


class _Micro(BlockMicro):
    def __init__(self, body: Body, form: BlockFormat, lanes: int, rows: int, vectors: int) -> None:
        super().__init__(body, form, lanes, rows, vectors)
        self.sets = 2 if self.cells <= 4 else 1  # of integer sums, to hide the latency
        self.unroll = math.gcd(self.words, 4)
        self.dot = ByteDot(body, body.module.target, lanes)

    def _block(self, state: list[Value]) -> None:
        body, b, form, lanes = self.body, self.body.b, self.form, self.lanes
        lds, panel = body.args[6], state[-3]
        sums = [body.zero(DType.INT32, lanes)] * (self.cells * self.sets)
        sums += [body.at(panel, form.head * self.row_nbytes), state[-2]]
        with body.carry(0, self.words, self.unroll, sums):
            for u in range(self.unroll):
                self._word(sums, u)
        heads = [
            [body.load(body.at(panel, h * self.row_nbytes + j * lanes * 4), _F32, lanes) for j in range(self.vectors)]
            for h in range(form.head)
        ]
        for i in range(self.rows):
            place = body.at(state[-1], body.mul(lds, i)) if i else state[-1]
            scale, shift = body.broadcast(place, _F32, lanes), body.broadcast(body.at(place, 4), _F32, lanes)
            for j in range(self.vectors):
                at = i * self.vectors + j
                total = sums[at] if self.sets == 1 else b.add(sums[at], sums[self.cells + at])
                found = b.sitofp(total, body.vector_type(_F32, lanes))
                if form.zeros:
                    found = b.fmul(found, scale)
                    state[at] = body.fma(shift, heads[1][j], state[at], _F32, lanes)
                else:
                    found = body.fma(found, scale, shift, _F32, lanes)
                state[at] = body.fma(found, heads[0][j], state[at], _F32, lanes)
        state[-3:] = [*sums[-2:], body.at(state[-1], 8)]

    def _word(self, sums: list[Value], number: int) -> None:
        """One row of words: a product for each four numbers in a word."""
        body, form, lanes = self.body, self.form, self.lanes
        lda, (pb, a) = body.args[1], sums[-2:]
        words = [body.load(body.at(pb, j * lanes * 4), DType.INT32, lanes) for j in range(self.vectors)]
        bases = [body.at(a, body.mul(lda, i)) if i else a for i in range(0, self.rows, 3)]
        for part in range(form.each // 4):
            numbers = [self.dot.unsigned(self._numbers(word, part)) for word in words]
            for i in range(self.rows):
                row = body.at(bases[i // 3], body.mul(lda, i % 3) if i % 3 else 0, 4 * part)
                four = self.dot.signed(body.splat(body.b.load(row, typ=_I32, align=4), lanes))
                for j in range(self.vectors):
                    at = (number + part) % self.sets * self.cells + i * self.vectors + j
                    sums[at] = self.dot.add(sums[at], numbers[j], four)
        sums[-2:] = [body.at(pb, self.row_nbytes), body.at(a, form.each)]

    def _numbers(self, word: Value, part: int) -> Value:
        """Four unsigned bytes of each word."""
        if self.form.bits == 8:
            return word
        b, kind = self.body.b, ir_builder.VectorType(_I32, self.lanes)
        moved = b.lshr(word, ir_builder.Constant(kind, [4] * self.lanes)) if part else word
        return b.and_(moved, ir_builder.Constant(kind, [0x0F0F0F0F] * self.lanes))


@dataclass(frozen=True)
class Factors:
    """Operands of the kernel: the micro-kernel, A's bytes and their scales, packed B, C and the bytes between its rows."""

    micro: Address
    a: Address
    scales: Address
    b: Address
    c: Address
    ldc: int


def block_args(
    form: BlockFormat, target: Target, factors: Factors, sizes: tuple[int, int, int], operands: list[Operand], claims: Address,
    threads: int,
) -> list[Argument]:  # fmt: skip
    """The arguments of `block_text`'s kernel; `sizes`: C's rows and columns, and A's columns."""
    m, n, k = sizes
    tile = block_tile(target)
    blocks, panels = -(-k // form.size), -(-n // tile.width)
    tiles = -(-m // tile.rows)
    depth = blocks * form.size
    row_nbytes = depth * row_dtype(form, target).bits // 8
    panel_nbytes = blocks * (form.head + form.size // form.each) * tile.width * 4
    each, more = m // max(1, tiles), m % max(1, tiles)
    args = [
        factors.micro, factors.a, row_nbytes, factors.b, factors.c, factors.ldc, m, n, factors.scales, blocks * 8, blocks,
        tiles, each, more, panels, panel_nbytes, claims,
        *pieces.tail(tiles * panels, tile.rows * tile.width * depth // 4, threads),
    ]  # fmt: skip
    for operand in operands:
        args.extend(operand)
    return args


@functools.lru_cache(maxsize=256)
def block_text(spec: GemmSpec, target: Target) -> KernelText:
    """The kernel of a spec (of FLOAT, its tile `block_tile`); its arguments are `block_args`."""
    return _BlockGemm(spec, target).text()


class _BlockGemm(Gemm):
    """Units are a register tile each, in the order panel of B, tile: a panel stays in a cache while all rows go past it."""

    fields = _FIELDS
    pointers = ("micro", "a", "b", "c", "scales", "claims")

    def text(self) -> KernelText:
        body = self.body
        self.read_arguments()
        self.buffer = body.alloca(self.tile.nbytes)
        claiming.emit_shares(body, body.mul(self.v["tiles"], self.v["panels"]), self.v, self._units)
        body.b.ret_void()
        return self.module.text("gemm_blocks")

    def _units(self, unit: Value, last: Value, taken: Value) -> Value:
        body, v, tile = self.body, self.v, self.tile
        panel, start = body.div(unit, v["tiles"]), body.rem(unit, v["tiles"])
        count = body.min(body.sub(v["tiles"], start), body.sub(last, unit))
        column = body.mul(panel, tile.width)
        self.columns = body.min(body.sub(v["n"], column), tile.width)
        self.vectors = body.div(body.add(self.columns, tile.lanes - 1), tile.lanes)
        b = body.at(v["b"], body.mul(panel, v["panel_nbytes"]))
        with body.loop(0, count) as number:
            at = body.add(start, number)
            row = body.add(body.mul(at, v["rows"]), body.min(at, v["extra"]))
            rows = body.add(v["rows"], body.select(body.less(at, v["extra"]), 1, 0))
            a, scales = (body.at(v[x], body.mul(row, v[step])) for x, step in (("a", "lda"), ("scales", "lds")))
            body.call_pointer(
                v["micro"],
                PARAMETERS,
                [a, v["lda"], b, 0, v["blocks"], scales, v["lds"], self.buffer, 0, b, 0, rows, self.vectors],
            )
            self._finished(row, rows, column)
        return count

    def _finished(self, row: Value, rows: Value, column: Value) -> None:
        body, finish = self.body, self.finish
        c = body.at(self.v["c"], body.mul(row, self.v["ldc"]), body.mul(column, finish.itemsize))
        places = []
        for kind, dtype, operand in zip(finish.kinds, finish.dtypes, self.operands, strict=True):
            along = body.mul(column, itemsize(dtype)) if kind in ("column", "full") else 0
            down = body.mul(row, operand[1]) if kind in ("row", "full") else 0
            places.append(body.at(operand[0], along, down))
        with body.either(body.equal(self.columns, self.tile.width)) as (whole, partial):
            with whole:
                self._rows_whole(c, places, rows)
            with partial:
                self._rows_partial(c, places, rows)
