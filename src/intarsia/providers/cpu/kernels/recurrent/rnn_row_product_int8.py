"""The recurrent product of rows by weights of 8 bits, for `recurrent`: exact sums of bytes, as DynamicQuantizeLSTM has them.

Before every step the state is quantised anew: one scale and zero point for all rows (`state_range`), as `DynamicQuantizeLinear`
has them. With levels u of a row and z their zero point, and weights (q - y) t of a column, a sum is
s t (U - z C - y N), where U is the sum of u q, C that of the column's q, and N that of the row's u - z.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import GROUP, SUMS, groups
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import pack_bytes

_F32 = DType.FLOAT
_TOGETHER = 4  # panels at a time of one row: as many sums hide the latency of a product
_ROWS = 4  # that are multiplied by the same weights
_HEADER = 64  # bytes for the scale, what is divided by (1 where that is 0), and the zero point; and of a row, for its sum
_LEVELS = 255.0
_FLOAT, _I32 = ir_builder.FloatType(), ir_builder.IntType(32)


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


def row_nbytes(padded: int) -> int:
    """Of a row's `padded` numbers as bytes, behind their sum."""
    return _HEADER + -(-padded // 64) * 64


def spare_nbytes(padded: int, rows: int) -> int:
    """Values that a step retains: scales and zero point, and the rows as bytes."""
    return _HEADER + rows * row_nbytes(padded)


def state_range(body: Body, tile: Tile, rows: Value, row: Callable[[Value], tuple[Value, Value]], spare: Value) -> None:
    """The least and the largest number of all rows, and 0, as the scale and zero point in `spare`. `row(i)` gives the address
    of a row and how many vectors of it count. NaN does not."""
    b, lanes = body.b, tile.lanes
    state = [body.zero(_F32, lanes)] * 2
    with body.carry(0, rows, 1, state) as i:
        address, blocks = row(i)
        inner = list(state)
        with body.carry(0, blocks, 1, inner) as j:
            x = body.load(body.at(address, body.mul(j, lanes * 4)), _F32, lanes)
            inner[:] = [b.select(b.fcmp_ordered(o, x, best), x, best) for o, best in zip("<>", inner, strict=True)]
        state[:] = inner
    low, high = (_across(body, best, o, lanes) for o, best in zip("<>", state, strict=True))
    one, zero, most = (ir_builder.Constant(_FLOAT, x) for x in (1.0, 0.0, _LEVELS))
    scale = b.fdiv(b.fsub(high, low), most)
    safe = b.select(b.fcmp_ordered("==", scale, zero), one, scale)
    point = _limited(b, b.fdiv(b.fneg(low), safe), zero, most)
    for place, value in enumerate((scale, safe, Emitter(b).intrinsic("roundeven", [point]))):
        body.store(value, body.at(spare, 4 * place), _F32)


def _across(body: Body, x: Value, order: str, lanes: int) -> Value:
    b = body.b
    while lanes > 1:
        lanes //= 2
        other = body.shuffle(x, x, [i + lanes for i in range(lanes)])
        x = body.shuffle(x, x, list(range(lanes)))
        x = b.select(b.fcmp_ordered(order, x, other), x, other)
    return b.extract_element(x, body.const32(0))


def _limited(b: ir_builder.IRBuilder, x: Value, low: Value, high: Value) -> Value:
    """x within bounds; the lower one for NaN."""
    x = b.select(b.fcmp_ordered(">", x, low), x, low)
    return b.select(b.fcmp_ordered("<", x, high), x, high)


def byte_product(module: Module, target: Target, tile: Tile) -> Value:
    """An internal function (ptr a, i64 a_pitch, i64 rows, ptr weights, i64 hidden, i64 blocks, i64 panels, i64 panel_pitch,
    i64 row_pitch, ptr sums, ptr spare).

    a: rows of `blocks` vectors of floats; sums[panel_pitch * panel + row_pitch * row] is written for all of both; spare: as
    `state_range` left it.
    """
    return _Product(module, target, tile).function()


class _Product:
    def __init__(self, module: Module, target: Target, tile: Tile) -> None:
        self.tile, self.lanes = tile, tile.lanes
        self.panels_of_rows = 1 if target.is_avx2 else 2  # 8 sums, or 16 of 32 registers
        self.body: Body = module.function("byte_product", ("p", "i", "i", "p", "i", "i", "i", "i", "i", "p", "p"))
        self.dot = ByteDot(self.body, target, tile.lanes)
        self.e = Emitter(self.body.b, tile.lanes)

    def function(self) -> Value:
        body = self.body
        a, a_pitch, rows, weights, hidden, blocks, self.panels, self.panel_pitch, self.row_pitch, self.sums, spare = body.args
        self.scale, safe, self.zero = (body.broadcast(body.at(spare, 4 * i), _F32, self.lanes) for i in range(3))
        self.point = body.b.fptosi(self.zero, self.e.shaped(_I32))
        self.bytes = body.at(spare, _HEADER)
        padded = body.mul(body.div(body.add(body.mul(blocks, self.lanes), 63), 64), 64)
        self.bytes_pitch = body.add(padded, _HEADER)
        with body.loop(0, rows) as i:
            self._quantize(body.at(a, body.mul(i, a_pitch)), blocks, body.at(self.bytes, body.mul(i, self.bytes_pitch)), safe)
        self.depth = body.div(body.add(hidden, GROUP - 1), GROUP)
        self.panel_nbytes = body.mul(self.depth, self.tile.width * 4)
        self.weights, column_nbytes = weights, body.mul(self.panels, self.tile.width * 4)
        self.tables = [body.at(weights, body.mul(self.panels, self.panel_nbytes), body.mul(column_nbytes, i)) for i in range(3)]
        several = body.sub(rows, body.rem(rows, _ROWS))
        for first, last, count, together in ((body.i(0), several, _ROWS, self.panels_of_rows), (several, rows, 1, _TOGETHER)):
            with body.loop(first, last, count) as row:
                self._rows(row, count, together)
        body.b.ret_void()
        return body.function

    def _rows(self, row: Value, rows: int, together: int) -> None:
        """All panels of some rows."""
        body = self.body
        quantized = [body.at(self.bytes, body.mul(body.add(row, i), self.bytes_pitch)) for i in range(rows)]
        totals = [body.splat(body.b.load(q, typ=_I32, align=4), self.lanes) for q in quantized]
        levels = [body.at(q, _HEADER) for q in quantized]
        whole = body.sub(self.panels, body.rem(self.panels, together))
        for first, last, count in ((body.i(0), whole, together), (whole, self.panels, 1)):
            with body.loop(first, last, count) as panel:
                bases = [body.at(self.weights, body.mul(body.add(panel, j), self.panel_nbytes)) for j in range(count)]
                found = self._dots(bases, levels)
                for i, j in itertools.product(range(rows), range(count)):
                    number = body.add(panel, j)
                    out = body.at(self.sums, body.mul(number, self.panel_pitch), body.mul(body.add(row, i), self.row_pitch))
                    self._finish(found[i][j], number, totals[i], out)

    def _quantize(self, a: Value, blocks: Value, out: Value, safe: Value) -> None:
        """A row as bytes, behind the sum of its levels less the zero point."""
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        low, high = e.constant(0.0, _FLOAT), e.constant(_LEVELS, _FLOAT)
        count: list[Value] = [ir_builder.Constant(ir_builder.VectorType(_I32, lanes), [0] * lanes)]
        with body.carry(0, blocks, 1, count) as i:
            x = body.load(body.at(a, body.mul(i, lanes * 4)), _F32, lanes)
            ratio = e.intrinsic("roundeven", [b.fdiv(x, safe)])
            level = b.fptosi(_limited(b, b.fadd(ratio, self.zero), low, high), e.shaped(_I32))
            body.store(b.trunc(level, e.shaped(ir_builder.IntType(8))), body.at(out, _HEADER, body.mul(i, lanes)), DType.UINT8)
            count[0] = b.add(count[0], b.sub(level, self.point))
        total, left = count[0], lanes
        while left > 1:
            left //= 2
            other = body.shuffle(total, total, [i + left for i in range(left)])
            total = b.add(body.shuffle(total, total, list(range(left))), other)
        b.store(b.extract_element(total, body.const32(0)), out, align=4)

    def _dots(self, bases: list[Value], rows: list[Value]) -> list[list[list[Value]]]:
        """For every row and panel, the products of the panel's vectors."""
        body, lanes, vectors = self.body, self.lanes, self.tile.vectors
        cells = len(bases) * vectors
        state = [body.zero(SUMS, lanes)] * (cells * len(rows))
        with body.carry(0, self.depth, 1, state) as g:
            at = body.mul(g, GROUP)
            words = [body.b.load(body.at(row, at), typ=_I32, align=1) for row in rows]
            factors = [self.dot.unsigned(body.splat(word, lanes)) for word in words]
            offset = body.mul(g, self.tile.width * 4)
            for i in range(cells):
                place = body.at(bases[i // vectors], offset, i % vectors * lanes * 4)
                column = self.dot.signed(body.load(place, SUMS, lanes))
                for j, factor in enumerate(factors):
                    state[j * cells + i] = self.dot.add(state[j * cells + i], factor, column)
        return [[state[at : at + vectors] for at in range(j * cells, (j + 1) * cells, vectors)] for j in range(len(rows))]

    def _finish(self, found: list[Value], panel: Value, total: Value, sums: Value) -> None:
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        for i, product in enumerate(found):
            offset = body.add(body.mul(panel, self.tile.width * 4), i * lanes * 4)
            column = body.load(body.at(self.tables[0], offset), SUMS, lanes)
            factor, zero = (body.load(body.at(t, offset), _F32, lanes) for t in self.tables[1:])
            whole = b.sub(product, b.mul(self.point, column))
            whole = b.sub(whole, b.mul(b.fptosi(zero, e.shaped(_I32)), total))
            value = b.fmul(b.sitofp(whole, e.shaped(_FLOAT)), b.fmul(factor, self.scale))
            body.store(value, body.at(sums, i * lanes * 4), _F32)
