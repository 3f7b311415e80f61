"""Products of bytes as words of two 16-bit integers, summed exactly in int32: for CPUs that do not multiply bytes by fours.

VPMADDUBSW, which multiplies bytes, gives sums of two products in 16 bits and saturates: 255 * 127 * 2 is twice as large as they
can hold. VPMADDWD multiplies words and cannot, and does as many multiplications in a cycle as VPMADDUBSW with what has to widen
its sums. So A is widened once, by a step of its own that also subtracts the zero point (so that no sum has to be corrected for
it) and surrounds images with zeros; B stays in bytes, of which a panel becomes words in scratch, for all rows that meet it.

A's rows are int16, two neighbours a word, at any address; K is filled up with zeros of B, and what A has there does not matter.
B is packed as [words of k][columns][2] in the panels of `pack`.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.element_types import I16
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.microkernel import Micro, dispatched
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot

_STEPS = 4  # of a loop of the micro-kernel
_VECTORS = 4  # widened in one round


def takes(target: Target) -> bool:
    """Whether constant weights are multiplied so: AVX2's registers, and no instruction for four bytes."""
    return target.vector_bytes == 32 and ByteDot.kind_of(target, target.vector_bytes // 4) == "pmaddwd"


def word_tile(target: Target) -> Tile:
    """12 of 16 registers hold sums, two a row of B, one a word of A and one products."""
    return Tile(6, 2, target.vector_bytes // 4, 4)


@cached_text
def word_micro_text(target: Target, tile: Tile, many: bool = True) -> KernelText:
    """The micro-kernels: as `microkernel.PARAMETERS` says, `k` in words; B is words for `many` rows (`gemm_kernel.many_rows`),
    else pairs of bytes."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _WordMicro(body, tile.lanes, rows, vectors, many).emit()

    return dispatched("micro_words" if many else "micro_byte_pairs", tile, target, variant)


class _WordMicro(Micro):
    def __init__(self, body: Body, lanes: int, rows: int, vectors: int, many: bool) -> None:
        super().__init__(body, SUMS, lanes, rows, vectors)
        self.unroll, self.fetches, self.many = max(self.unroll, _STEPS), False, many
        self.column_nbytes = lanes * (4 if many else 2)

    def _columns(self, pb: Value) -> list[Value]:
        if self.many:
            return super()._columns(pb)
        body, count = self.body, 2 * self.lanes
        pairs = [body.load(body.at(pb, j * self.column_nbytes), DType.INT8, count) for j in range(self.vectors)]
        wide = [body.b.sext(x, ir_builder.VectorType(I16, count)) for x in pairs]
        return [body.b.bitcast(x, body.vector_type(SUMS, self.lanes)) for x in wide]

    def _sum(self, x: Value, y: Value) -> Value:
        return self.body.b.add(x, y)

    def _next(self, pb: Value, ldb: Value, ahead: Value, pace: Value) -> tuple[Value, Value]:
        """Panels are dense, and the processor sees by itself that they are read in order."""
        return self.body.at(pb, self.vectors * self.column_nbytes), ahead

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        return added_products(self.body, sums, scalar, column)


def added_products(body: Body, sums: Value, x: Value, y: Value) -> Value:
    """sums + x . y of the two integers in each word (VPMADDWD)."""
    # Opaque, or LLVM would add the products of several steps first, and spill them.
    return body.opaque(body.b.add(sums, _products(body, x, y)))


def _products(body: Body, x: Value, y: Value) -> Value:
    lanes = x.type.count
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
    halves = ir_builder.VectorType(I16, 2 * lanes)
    function = body.intrinsic(f"llvm.x86.{name}", ir_builder.VectorType(ir_builder.IntType(32), lanes), [halves, halves])
    return body.b.call(function, [body.b.bitcast(x, halves), body.b.bitcast(y, halves)])


# --- A as words ---------------------------------------------------------------------------------------------------


@functools.cache
def widen_text(dtype: DType, target: Target) -> KernelText:
    """The step that writes an image of bytes less a zero point as int16, with a border of zeros; see `widen_args`."""
    return _Widening(dtype, target).text()


def widen_args(shape: ConvShape, source: Address, out: Address, number: Address) -> list[Argument]:
    """The step's arguments: addresses of the input, of its copy (dense [N, *shape.padded, C]) and of the zero point."""
    s = shape.as_3d()
    return [source, out, number, s.batch, *s.spatial, s.channels, *s.pads[:3], *s.padded]


_FIELDS = ("source out number batch planes height width channels plane0 line0 column0 out_planes out_height out_width").split()


class _Widening:
    def __init__(self, dtype: DType, target: Target) -> None:
        self.dtype, self.lanes = dtype, target.vector_bytes // 2
        self.module = Module(target)
        self.body = self.module.kernel()

    def text(self) -> KernelText:
        body, b = self.body, self.body.b
        args, tid, nthreads = body.args
        load, pointer = body.load_i64, body.load_pointer
        v = {name: pointer(args, i) if i < 3 else load(args, i) for i, name in enumerate(_FIELDS)}
        self.zero = self._wide(body.broadcast(v["number"], self.dtype, self.lanes))
        count, out_count = (body.mul(v[width], v["channels"]) for width in ("width", "out_width"))
        before = body.mul(v["column0"], v["channels"])
        after = body.sub(body.sub(out_count, before), count)
        lines = body.mul(v["out_planes"], v["out_height"])
        first, last = body.share(body.mul(v["batch"], lines), tid, nthreads)
        with body.loop(first, last) as unit:
            out = body.at(v["out"], body.mul(unit, body.mul(out_count, 2)))
            image, within = body.div(unit, lines), body.rem(unit, lines)
            plane = body.sub(body.div(within, v["out_height"]), v["plane0"])
            line = body.sub(body.rem(within, v["out_height"]), v["line0"])
            inside = b.and_(b.icmp_unsigned("<", plane, v["planes"]), b.icmp_unsigned("<", line, v["height"]))
            with body.either(inside) as (copied, empty):
                with copied:
                    row = body.add(body.mul(body.add(body.mul(image, v["planes"]), plane), v["height"]), line)
                    begin = body.at(out, body.mul(before, 2))
                    body.fill(out, body.mul(before, 2))
                    self._line(body.at(v["source"], body.mul(row, count)), begin, count)
                    body.fill(body.at(begin, body.mul(count, 2)), body.mul(after, 2))
                with empty:
                    body.fill(out, body.mul(out_count, 2))
        b.ret_void()
        return self.module.text("widen_bytes")

    def _line(self, source: Value, out: Value, count: Value) -> None:
        """Whole vectors, the last of which may overlap the one before it; or numbers one by one, where there are few."""
        body, lanes = self.body, self.lanes
        many, whole = lanes * _VECTORS, body.b.and_(count, body.i(-lanes * _VECTORS))
        with body.loop(0, whole, many) as at:
            for i in range(0, many, lanes):
                self._vector(source, out, body.add(at, i))
        with body.either(body.less(count, lanes)) as (few, rest):
            with few, body.loop(0, count) as at:
                value = self._wide(body.load(body.at(source, at), self.dtype, 1), 1)
                zero = body.b.extract_element(self.zero, ir_builder.Constant(ir_builder.IntType(32), 0))
                body.b.store(body.b.sub(value, zero), body.at(out, body.mul(at, 2)), align=2)
            with rest, body.loop(whole, count, lanes) as at:
                self._vector(source, out, body.min(at, body.sub(count, lanes)))

    def _vector(self, source: Value, out: Value, at: Value) -> None:
        body = self.body
        value = self._wide(body.load(body.at(source, at), self.dtype, self.lanes))
        body.b.store(body.b.sub(value, self.zero), body.at(out, body.mul(at, 2)), align=2)

    def _wide(self, value: Value, lanes: int = 0) -> Value:
        return Emitter(self.body.b, lanes or self.lanes).cast(value, self.dtype, DType.INT16)
