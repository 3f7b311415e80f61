"""The micro-kernels of `block_quant_int8` for AVX2 without VNNI: sums of 16 bits, or rows of 16 bits.

Weights of 4 bits are at most 15, rows' bytes at most 127: VPMADDUBSW gives two products' sum, at most 3810, and eight of those
fit 16 bits. So four words of eight numbers are added up in 16 bits and widened then: two instructions for four products of
eight columns, where float32 takes four. Weights of 8 bits would need more than 16 bits for two; they are widened, and so
are the rows when they are quantised: VPMADDWD, in half the time of float32. Packed words have their two middle bytes swapped
then, so that one mask and one shift make pairs of what lies side by side in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.matmul_nbits.block_quant_kernel import BlockFormat, BlockMicro

_F32 = DType.FLOAT
_I8, _I16, _I32 = ir_builder.IntType(8), ir_builder.IntType(16), ir_builder.IntType(32)
_WORDS = 4  # whose sums fit 16 bits


def row_bits(form: BlockFormat) -> int:
    """Bits of a number of a row."""
    return 8 if form.bits == 4 else 16


def swapped(words: np.ndarray) -> np.ndarray:
    """Words of four bytes with the middle ones in each other's place."""
    up, down = words & np.uint32(0xFF00), words >> np.uint32(8) & np.uint32(0xFF00)
    exchanged: np.ndarray = words & np.uint32(0xFF0000FF) | up << np.uint32(8) | down
    return exchanged


class ShortMicro(BlockMicro):
    """One variant, of `rows` by `vectors`."""

    def __init__(self, body: Body, form: BlockFormat, lanes: int, rows: int, vectors: int) -> None:
        super().__init__(body, form, lanes, rows, vectors)
        self.run = math.gcd(self.words, _WORDS)
        # A loop holds LLVM back from going through words row by row, with all of their numbers in the stack.
        self.unroll = 1 if rows > 1 else self.run if form.bits == 4 else math.gcd(self.words, 2 * _WORDS)
        self.word_nbytes = form.each * row_bits(form) // 8  # of a row, for a word of each column
        self.kinds = {n: ir_builder.VectorType(kind, lanes * 32 // n) for n, kind in ((8, _I8), (16, _I16), (32, _I32))}

    def _block(self, state: list[Value]) -> None:
        body, form = self.body, self.form
        panel, a, scales = state[-3:]
        sums = [body.zero(DType.INT32, self.lanes)] * self.cells
        sums += [body.at(panel, form.head * self.row_nbytes), a]
        if form.bits == 8:
            self._along(self.words, sums, self._word_of_bytes)
        elif self.words == self.run:
            self._run(sums)
        else:
            with body.carry(0, self.words, self.run, sums):
                self._run(sums)
        self._add(state, sums)
        state[-3:] = [*sums[-2:], body.at(scales, 8)]

    def _along(self, words: int, sums: list[Value], word: Callable[[list[Value]], None]) -> None:
        if words == self.unroll:
            for _ in range(words):
                word(sums)
            return
        with self.body.carry(0, words, self.unroll, sums):
            for _ in range(self.unroll):
                word(sums)

    def _run(self, sums: list[Value]) -> None:
        """Words whose sums fit 16 bits."""
        body = self.body
        zero, ones = (ir_builder.Constant(self.kinds[16], [value] * (2 * self.lanes)) for value in (0, 1))
        short = [zero] * self.cells + sums[-2:]
        self._along(self.run, short, self._word_of_nibbles)
        wide = [self._pairs(x, ones) for x in short[:-2]]
        sums[:] = [*(body.b.add(x, y) for x, y in zip(sums, wide, strict=False)), *short[-2:]]

    def _add(self, state: list[Value], sums: list[Value]) -> None:
        """A block's sums, times their scales, to those of all before."""
        body, form, lanes, lds = self.body, self.form, self.lanes, self.body.args[6]
        panel, _, scales = state[-3:]
        heads = [
            [body.load(body.at(panel, h * self.row_nbytes + j * lanes * 4), _F32, lanes) for j in range(self.vectors)]
            for h in range(form.head)
        ]
        for i in range(self.rows):
            place = body.at(scales, body.mul(lds, i)) if i else scales
            scale, shift = body.broadcast(place, _F32, lanes), body.broadcast(body.at(place, 4), _F32, lanes)
            for j in range(self.vectors):
                at = i * self.vectors + j
                found = body.b.sitofp(sums[at], body.vector_type(_F32, lanes))
                if form.zeros:
                    found = body.b.fmul(found, scale)
                    state[at] = body.fma(shift, heads[1][j], state[at], _F32, lanes)
                else:
                    found = body.fma(found, scale, shift, _F32, lanes)
                state[at] = body.fma(found, heads[0][j], state[at], _F32, lanes)

    def _word_of_nibbles(self, sums: list[Value]) -> None:
        """A row of words: the products of the low halves of their bytes, then of the high ones."""
        b, kind = self.body.b, self.kinds[32]
        mask, four = ir_builder.Constant(kind, [0x0F0F0F0F] * self.lanes), ir_builder.Constant(kind, [4] * self.lanes)
        product = self.body.intrinsic("llvm.x86.avx2.pmadd.ub.sw", self.kinds[16], [self.kinds[8]] * 2)
        words = self._loaded(sums[-2])
        for part in range(2):
            moved = [b.lshr(word, four) for word in words] if part else words
            numbers = [b.bitcast(b.and_(word, mask), self.kinds[8]) for word in moved]
            for i in range(self.rows):
                row = b.bitcast(self._broadcast(sums[-1], i, 4 * part), self.kinds[8])
                for j in range(self.vectors):
                    at = i * self.vectors + j
                    sums[at] = b.add(sums[at], b.call(product, [numbers[j], row]))
        self._next(sums)

    def _word_of_bytes(self, sums: list[Value]) -> None:
        """A row of words: the products of their even bytes, then of the odd ones."""
        b, kind = self.body.b, self.kinds[16]
        low, eight = (ir_builder.Constant(kind, [value] * (2 * self.lanes)) for value in (255, 8))
        words = [b.bitcast(word, kind) for word in self._loaded(sums[-2])]
        for part in range(2):
            numbers = [b.lshr(word, eight) if part else b.and_(word, low) for word in words]
            for i in range(self.rows):
                row = b.bitcast(self._broadcast(sums[-1], i, 4 * part), kind)
                for j in range(self.vectors):
                    at = i * self.vectors + j
                    sums[at] = b.add(sums[at], self._pairs(numbers[j], row))
        self._next(sums)

    def _next(self, sums: list[Value]) -> None:
        sums[-2:] = [self.body.at(sums[-2], self.row_nbytes), self.body.at(sums[-1], self.word_nbytes)]

    def _loaded(self, panel: Value) -> list[Value]:
        places = [self.body.at(panel, j * self.lanes * 4) for j in range(self.vectors)]
        return [self.body.load(place, DType.INT32, self.lanes) for place in places]

    def _broadcast(self, a: Value, i: int, offset: int) -> Value:
        """32 bits of row `i` in all lanes; addresses as in `microkernel`."""
        body, lda = self.body, self.body.args[1]
        base = body.at(a, body.mul(lda, i // 3 * 3)) if i > 2 else a
        row = body.at(base, body.mul(lda, i % 3) if i % 3 else 0, offset)
        return body.splat(body.b.load(row, typ=_I32, align=4), self.lanes)

    def _pairs(self, x: Value, y: Value) -> Value:
        """Products of 16 bits, two added."""
        product = self.body.intrinsic("llvm.x86.avx2.pmadd.wd", self.kinds[32], [self.kinds[16]] * 2)
        return self.body.b.call(product, [x, y])
