"""The micro-kernels of byte products: uint8 or int8 rows times int8 columns, summed exactly in int32.

They have the signature and the geometry of `microkernel`, with groups of four bytes instead of elements: A's rows are
bytes along k, B is packed as [groups of k][columns][4] and `k` counts groups. A's last group may be shorter:
`taps[ntaps]` holds how many bytes of it exist (1 to 4), of which no more are read; B is zero there.

A signed A is read as a + 128 (bits flipped), so its products are too large by 128 times the sum of B's column, which
callers subtract as they do for zero points. Sums wrap around modulo 2^32 like the int32 that ONNX defines.

vpdpbusd where the CPU has it. Otherwise bytes are widened to 16 bits, even and odd ones separately, and multiplied by pmaddwd,
which cannot saturate there; constant weights are multiplied faster on such CPUs (`saturation_free_order`, `widened_int16`). On
ARM64 usdot (i8mm), or sdot (dotprod) of a - 128, to which 128 times the sum of B's four is added; without these, and on other
architectures, 32-bit products.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.elementwise.element_types import I8, I16, I32
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.broadcast_a import Numbers, steps_at_once
from intarsia.providers.cpu.kernels.common.microkernel import Micro, dispatched
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import GROUP, SUMS

FLIP = 0x80808080 - (1 << 32)  # a word that makes signed bytes unsigned ones, 128 larger
_UNROLL = 2  # steps at once of four vectors


@functools.cache
def byte_tile(target: Target) -> Tile:
    """The register tile, in groups of B's bytes and int32 sums."""
    return tile_of(SUMS, target)


@cached_text
def byte_micro_text(a: DType, target: Target, tile: Tile | None = None) -> KernelText:
    """The micro-kernels for rows of type `a` (UINT8 or INT8); `tile`: where it is not `byte_tile(target)`."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _ByteMicro(body, a, target, tile.lanes, rows, vectors).emit()

    return dispatched(f"micro_{a.name.lower()}", tile or byte_tile(target), target, variant)


class _ByteMicro(Micro):
    def __init__(self, body: Body, a: DType, target: Target, lanes: int, rows: int, vectors: int) -> None:
        super().__init__(body, SUMS, lanes, rows, vectors)
        self.flipped = a is DType.INT8
        self.unroll = max(self.unroll, steps_at_once(target, lanes))
        # as in `blocked_k_microkernel`: of more steps with fewer vectors LLVM would load the broadcasts early, and spill
        if vectors == 4:
            self.unroll = max(self.unroll, _UNROLL)
        self.dot = ByteDot(body, target, lanes)
        self.column_sums = vectors if self.dot.kind == "sdot" else 0

    def _finished(self, sums: Value, column: Value | None) -> Value:
        return sums if column is None else self.body.b.add(sums, self.dot.lifted(column))

    def _sum(self, x: Value, y: Value) -> Value:
        return self.body.b.add(x, y)

    def _along(self, state: list[Value], ldb: Value, pace: Value, k: Value) -> None:
        body, b = self.body, self.body.b
        taps, ntaps = body.args[5:7]
        last = body.load_i64(body.at(taps, body.mul(ntaps, 8)))
        complete = body.sub(k, body.b.zext(body.less(last, GROUP), ir_builder.IntType(64)))
        whole = b.and_(complete, body.i(-self.unroll))
        with body.carry(0, whole, self.unroll, state):
            self._steps(state, ldb, pace, self.unroll)
        if self.unroll > 1:
            with body.carry(whole, complete, 1, state):
                self._steps(state, ldb, pace, 1)
        self.last = last
        with body.carry(complete, k, 1, state):
            self._steps(state, ldb, pace, 1, partial=True)

    def _steps(self, state: list[Value], ldb: Value, pace: Value, count: int, partial: bool = False) -> None:
        body = self.body
        lda = body.args[1]
        ahead, pb, a = state[-3:]
        bases = [body.at(a, body.mul(lda, i)) if i else a for i in range(0, self.rows, 3)]
        cells, vector_bytes = self.rows * self.vectors, self.lanes * self.itemsize
        numbers = Numbers(body, self.lanes, count, self._groups, self._partial if partial else self._group)
        for u in range(count):
            loaded = [body.load(body.at(pb, j * vector_bytes), SUMS, self.lanes) for j in range(self.vectors)]
            columns = [[x] if self.column_sums else self.dot.signed(x) for x in loaded]
            for j in range(self.column_sums):
                state[cells * self.sets + j] = self.dot.summed(state[cells * self.sets + j], loaded[j])
            for i in range(self.rows):
                row = body.at(bases[i // 3], body.mul(lda, i % 3) if i % 3 else 0, u * GROUP)
                multiplier = self.dot.unsigned(numbers.of(i, u, row))
                for j in range(self.vectors):
                    at = u % self.sets * cells + i * self.vectors + j
                    state[at] = self.dot.add(state[at], multiplier, columns[j])
            for j in range(0, self.vectors * vector_bytes if self.fetches else 0, 64):
                body.prefetch(body.at(ahead, j), 2)
            pb, ahead = body.at(pb, ldb), body.at(ahead, pace)
        state[-3:] = [ahead, pb, body.at(a, count * GROUP)]

    def _groups(self, row: Value) -> Value:
        """Groups of as many steps as a vector has lanes."""
        body = self.body
        groups = body.b.load(row, typ=body.vector_type(SUMS, self.lanes), align=1)
        return body.b.xor(groups, body.constant(FLIP, SUMS, self.lanes)) if self.flipped else groups

    def _group(self, row: Value) -> Value:
        """A step's group in all lanes."""
        return self._repeated(self.body.b.load(row, typ=I32, align=1))

    def _partial(self, row: Value) -> Value:
        return self._repeated(self._partial_group(row))

    def _repeated(self, group: Value) -> Value:
        return self.body.splat(self.body.b.xor(group, ir_builder.Constant(I32, FLIP)) if self.flipped else group, self.lanes)

    def _partial_group(self, row: Value) -> Value:
        """The bytes that exist, then repetitions of the last one, which meet zeros of B."""
        body, b = self.body, self.body.b
        group = None
        for i in range(GROUP - 1):
            place = body.at(row, body.min(i, body.sub(self.last, 1))) if i else row
            byte = b.shl(b.zext(b.load(place, typ=ir_builder.IntType(8)), I32), ir_builder.Constant(I32, 8 * i))
            group = byte if group is None else b.or_(group, byte)
        return group


class ByteDot:
    """sums + (four unsigned bytes) . (four signed bytes), lane by lane; operands are prepared once and used often."""

    def __init__(self, body: Body, target: Target, lanes: int) -> None:
        self.body, self.lanes, self.bits = body, lanes, lanes * 32
        self.kind = self.kind_of(target, lanes)

    @classmethod
    def kind_of(cls, target: Target, lanes: int) -> str:
        """The instruction that `add` is: "vpdpbusd", "pmaddwd", "usdot", "sdot", or "" for none of them."""
        bits = lanes * 32
        if target.arch == "aarch64" and bits == 128:
            return "usdot" if target.has("i8mm") else "sdot" if target.has("dotprod") else ""
        vnni = target.has("avx512vnni") if bits == 512 else target.has("avxvnni") or (
            target.has("avx512vnni") and target.has("avx512vl")
        )  # fmt: skip
        x86 = target.arch == "x86_64"
        return "vpdpbusd" if x86 and vnni and bits >= 128 else "pmaddwd" if x86 and cls._multiplies(target, bits) else ""

    @staticmethod
    def _multiplies(target: Target, bits: int) -> bool:
        return bits == 128 or (bits == 256 and target.has("avx2")) or (bits == 512 and target.has("avx512bw"))

    def unsigned(self, x: Value) -> list[Value]:
        b = self.body.b
        if self.kind in ("vpdpbusd", "usdot"):
            return [x]
        if self.kind == "sdot":
            return [b.xor(x, self._splat32(FLIP))]
        if self.kind == "pmaddwd":
            words = self._words(x)
            return [b.and_(words, self._splat16(255)), b.lshr(words, self._splat16(8))]
        return [b.and_(b.lshr(x, self._splat32(8 * i)), self._splat32(255)) for i in range(GROUP)]

    def signed(self, x: Value) -> list[Value]:
        b = self.body.b
        if self.kind in ("vpdpbusd", "usdot"):
            return [x]
        if self.kind == "sdot":
            return [x, self.lifted(self.summed(self._splat32(0), x))]
        if self.kind == "pmaddwd":
            words, eight = self._words(x), self._splat16(8)
            return [b.ashr(b.shl(words, eight), eight), b.ashr(words, eight)]
        top = self._splat32(24)
        return [b.ashr(b.shl(x, self._splat32(24 - 8 * i)), top) for i in range(GROUP)]

    def add(self, sums: Value, unsigned: list[Value], signed: list[Value]) -> Value:
        b = self.body.b
        if self.kind == "vpdpbusd":
            kind = ir_builder.VectorType(I32, self.lanes)
            function = self._declare(f"llvm.x86.avx512.vpdpbusd.{self.bits}", kind, [kind] * 3)
            return b.call(function, [sums, unsigned[0], signed[0]])
        if self.kind == "usdot":
            return self._dotted(sums, unsigned[0], signed[0])
        if self.kind == "sdot":
            return self._dotted(b.add(sums, signed[1]) if len(signed) > 1 else sums, signed[0], unsigned[0])
        if self.kind == "pmaddwd":
            name = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}[self.bits]
            words, kind = ir_builder.VectorType(I16, 2 * self.lanes), ir_builder.VectorType(I32, self.lanes)
            function = self._declare(f"llvm.x86.{name}", kind, [words, words])
            pairs = [b.call(function, [x, y]) for x, y in zip(unsigned, signed, strict=True)]
            return b.add(sums, b.add(*pairs))
        for x, y in zip(unsigned, signed, strict=True):
            sums = b.add(sums, b.mul(x, y))
        return sums

    def summed(self, sums: Value, signed: Value) -> Value:
        """sums + 64 times the sum of four signed bytes, by sdot."""
        return self._dotted(sums, signed, self._splat32(0x40404040))

    def lifted(self, summed: Value) -> Value:
        """128 times what 64 times was `summed`."""
        return self.body.b.add(summed, summed)

    def _dotted(self, sums: Value, x: Value, y: Value) -> Value:
        """ARM64's instruction of that name; what all lanes share is the last operand, or the first of usdot (sudot)."""
        words, packed = ir_builder.VectorType(I32, self.lanes), ir_builder.VectorType(I8, 4 * self.lanes)
        function = self._declare(f"llvm.aarch64.neon.{self.kind}.v4i32.v16i8", words, [words, packed, packed])
        return self.body.b.call(function, [sums, self.body.b.bitcast(x, packed), self.body.b.bitcast(y, packed)])

    def _words(self, x: Value) -> Value:
        return self.body.b.bitcast(x, ir_builder.VectorType(I16, 2 * self.lanes))

    def _splat16(self, value: int) -> Value:
        return ir_builder.Constant(ir_builder.VectorType(I16, 2 * self.lanes), [value] * (2 * self.lanes))

    def _splat32(self, value: int) -> Value:
        return ir_builder.Constant(ir_builder.VectorType(I32, self.lanes), [value] * self.lanes)

    def _declare(self, name: str, result: ir_builder.Type, parameters: list[ir_builder.Type]) -> ir_builder.Function:
        module = self.body.module.ir
        found = module.globals.get(name)
        return found if found is not None else ir_builder.Function(module, ir_builder.FunctionType(result, parameters), name)
