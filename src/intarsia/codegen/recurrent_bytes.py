"""The recurrent product of one row by weights of 8 bits, for `recurrent`: both by exact sums of bytes.

The row is given 16 bits by its own largest number, h = (256 u + l - 32768) s with bytes u and l, and both are multiplied by
the weights (q - z) t of a column: s t (256 (U - 128 C) + L - z N), where U and L are the products, C is the column's sum of
q, and N the sum of the row's 16-bit numbers. So the state keeps four more digits than 8 bits would leave it.
"""

from __future__ import annotations

import numpy as np

from intarsia.codegen import ir
from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.byte_kernel import GROUP, SUMS, ByteDot, groups
from intarsia.codegen.byte_pack import pack_bytes
from intarsia.codegen.emit import Emitter
from intarsia.codegen.microkernel import Tile
from intarsia.codegen.pack import aligned_zeros
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

_F32 = DType.FLOAT
_MOST = 32767.0
_TOGETHER = 2  # panels at a time: 8 sums hide the latency of a product
_FLOAT, _I32 = ir.FloatType(), ir.IntType(32)


def packed_words(hidden: int, columns: int) -> int:
    """32-bit words of one direction: panels, then sums, factors and zero points of the columns."""
    return (groups(hidden) + 3) * columns


def pack_byte_weights(numbers: np.ndarray, factors: np.ndarray, zeros: np.ndarray, tile: Tile) -> np.ndarray:
    """int32 [directions, packed_words]: of int8 numbers [directions, hidden, columns], float factors and zero points."""
    directions, hidden, columns = numbers.shape
    out = aligned_zeros((directions, packed_words(hidden, columns)), np.dtype(np.int32))
    size = groups(hidden) * columns
    for i in range(directions):
        out[i, :size] = pack_bytes(numbers[i][None], tile).reshape(-1)
        sums = numbers[i].sum(axis=0, dtype=np.int32)
        others = [sums, *(np.broadcast_to(x[i], columns).astype(np.float32).view(np.int32) for x in (factors, zeros))]
        out[i, size:] = np.concatenate(others)
    return out


def spare_nbytes(padded: int) -> int:
    """What the product keeps of a row of `padded` numbers: two bytes for each."""
    return -(-2 * padded // 64) * 64


def byte_row_product(module: Module, target: Target, tile: Tile) -> Value:
    """An internal function (ptr a, ptr weights, i64 hidden, i64 blocks, i64 panels, i64 panel_pitch, ptr sums, ptr spare).

    a: `blocks` vectors of floats; sums[panel_pitch * panel] is written for all panels.
    """
    return _RowProduct(module, target, tile).function()


class _RowProduct:
    def __init__(self, module: Module, target: Target, tile: Tile) -> None:
        self.tile, self.lanes = tile, tile.lanes
        self.body: Body = module.function("byte_row_product", ("p", "p", "i", "i", "i", "i", "p", "p"))
        self.dot = ByteDot(self.body, target, tile.lanes)
        self.e = Emitter(self.body.b, tile.lanes)

    def function(self) -> Value:
        body = self.body
        a, weights, hidden, blocks, panels, pitch, sums, spare = body.args
        lower = body.at(spare, body.mul(blocks, self.lanes))
        scale, total = self._split(a, blocks, spare, lower)
        depth = body.div(body.add(hidden, GROUP - 1), GROUP)
        panel_nbytes = body.mul(depth, self.tile.width * 4)
        column_nbytes = body.mul(panels, self.tile.width * 4)
        self.tables = [body.at(weights, body.mul(panels, panel_nbytes), body.mul(column_nbytes, i)) for i in range(3)]
        whole = body.sub(panels, body.rem(panels, _TOGETHER))
        for first, last, count in ((body.i(0), whole, _TOGETHER), (whole, panels, 1)):
            with body.loop(first, last, count) as panel:
                bases = [body.at(weights, body.mul(body.add(panel, j), panel_nbytes)) for j in range(count)]
                found = self._dots(bases, spare, lower, depth)
                for j in range(count):
                    at = body.at(sums, body.mul(body.add(panel, j), pitch))
                    self._finish(found[j], body.add(panel, j), scale, total, at)
        body.b.ret_void()
        return body.function

    def _split(self, a: Value, blocks: Value, upper: Value, lower: Value) -> tuple[Value, Value]:
        """The row as bytes; returns its factor (NaN where a number is) and the sum of its 16-bit numbers, in all lanes."""
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        none = body.zero(_F32, lanes)
        state = [none, none]
        with body.carry(0, blocks, 1, state) as i:
            x = body.load(body.at(a, body.mul(i, lanes * 4)), _F32, lanes)
            size = e.intrinsic("fabs", [x])
            larger = b.select(b.fcmp_ordered(">", size, state[0]), size, state[0])
            state[:] = [larger, b.fadd(state[1], b.fmul(x, none))]
        largest = b.fadd(self._across(state[0], "largest"), self._across(state[1], "sum"))
        used = b.fcmp_ordered(">", largest, ir.Constant(_FLOAT, 0.0))
        inverse = b.select(used, b.fdiv(ir.Constant(_FLOAT, _MOST), largest), ir.Constant(_FLOAT, 0.0))
        many = body.splat(inverse, lanes)
        count: list[Value] = [ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)]
        with body.carry(0, blocks, 1, count) as i:
            x = body.load(body.at(a, body.mul(i, lanes * 4)), _F32, lanes)
            scaled = e.intrinsic("rint", [b.fmul(x, many)])
            number = b.fptosi(scaled, e.shaped(_I32))
            lifted = b.add(number, e.constant(32768, _I32))
            for value, place in ((b.lshr(lifted, e.constant(8, _I32)), upper), (lifted, lower)):
                body.store(b.trunc(value, e.shaped(ir.IntType(8))), body.at(place, body.mul(i, lanes)), DType.UINT8)
            count[0] = b.add(count[0], number)
        total = self._across(b.sitofp(count[0], e.shaped(_FLOAT)), "sum")
        return body.splat(b.fmul(largest, ir.Constant(_FLOAT, 1 / _MOST)), lanes), body.splat(total, lanes)

    def _across(self, x: Value, how: str) -> Value:
        """The sum or the largest of a vector's elements."""
        body, b, lanes = self.body, self.body.b, self.lanes
        while lanes > 1:
            lanes //= 2
            other = body.shuffle(x, x, [i + lanes for i in range(lanes)])
            x = body.shuffle(x, x, list(range(lanes)))
            x = b.fadd(x, other) if how == "sum" else b.select(b.fcmp_ordered(">", x, other), x, other)
        return b.extract_element(x, body.const32(0))

    def _dots(self, bases: list[Value], upper: Value, lower: Value, depth: Value) -> list[list[tuple[Value, Value]]]:
        """For every vector of every panel, the products of both bytes."""
        body, lanes, vectors = self.body, self.lanes, self.tile.vectors
        cells = len(bases) * vectors
        state = [body.zero(SUMS, lanes)] * (2 * cells)
        with body.carry(0, depth, 1, state) as g:
            at = body.mul(g, GROUP)
            factors = [
                self.dot.unsigned(body.splat(body.b.load(body.at(p, at), typ=_I32, align=1), lanes)) for p in (upper, lower)
            ]
            offset = body.mul(g, self.tile.width * 4)
            for i in range(cells):
                place = body.at(bases[i // vectors], offset, i % vectors * lanes * 4)
                column = self.dot.signed(body.load(place, SUMS, lanes))
                for j, factor in enumerate(factors):
                    state[2 * i + j] = self.dot.add(state[2 * i + j], factor, column)
        pairs = list(zip(state[::2], state[1::2], strict=True))
        return [pairs[i : i + vectors] for i in range(0, cells, vectors)]

    def _finish(self, found: list[tuple[Value, Value]], panel: Value, scale: Value, total: Value, sums: Value) -> None:
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        for i, (upper, lower) in enumerate(found):
            offset = body.add(body.mul(panel, self.tile.width * 4), i * lanes * 4)
            column = body.load(body.at(self.tables[0], offset), SUMS, lanes)
            factor, zero = (body.load(body.at(t, offset), _F32, lanes) for t in self.tables[1:])
            high = b.sub(upper, b.shl(column, e.constant(7, _I32)))
            both = [b.sitofp(x, e.shaped(_FLOAT)) for x in (high, lower)]
            value = body.fma(both[0], e.constant(256.0, _FLOAT), both[1], _F32, lanes)
            value = b.fsub(value, b.fmul(zero, total))
            body.store(b.fmul(value, b.fmul(factor, scale)), body.at(sums, i * lanes * 4), _F32)
