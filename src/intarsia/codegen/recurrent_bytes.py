"""The recurrent product of rows by weights of 8 bits, for `recurrent`: exact sums of bytes, as DynamicQuantizeLSTM has them.

Before every step the state is quantised anew: one scale and zero point for all rows (`state_range`), as `DynamicQuantizeLinear`
has them. With levels u of a row and z their zero point, and weights (q - y) t of a column, a sum is
s t (U - z C - y N), where U is the sum of u q, C that of the column's q, and N that of the row's u - z.
"""

from __future__ import annotations

from collections.abc import Callable

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
_TOGETHER = 4  # panels at a time: as many sums hide the latency of a product
_HEADER = 64  # bytes for the scale, what is divided by (1 where that is 0), and the zero point
_LEVELS = 255.0
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
    """What a step keeps: scales and zero point, and a byte for each of a row's `padded` numbers."""
    return _HEADER + -(-padded // 64) * 64


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
    one, zero, most = (ir.Constant(_FLOAT, x) for x in (1.0, 0.0, _LEVELS))
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


def _limited(b: ir.IRBuilder, x: Value, low: Value, high: Value) -> Value:
    """x within bounds; the lower one for NaN."""
    x = b.select(b.fcmp_ordered(">", x, low), x, low)
    return b.select(b.fcmp_ordered("<", x, high), x, high)


def byte_row_product(module: Module, target: Target, tile: Tile) -> Value:
    """An internal function (ptr a, ptr weights, i64 hidden, i64 blocks, i64 panels, i64 panel_pitch, ptr sums, ptr spare).

    a: `blocks` vectors of floats; sums[panel_pitch * panel] is written for all panels; spare: as `state_range` left it.
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
        levels = body.at(spare, _HEADER)
        scale, safe, self.zero = (body.broadcast(body.at(spare, 4 * i), _F32, self.lanes) for i in range(3))
        self.point = body.b.fptosi(self.zero, self.e.shaped(_I32))
        total = self._quantize(a, blocks, levels, safe)
        depth = body.div(body.add(hidden, GROUP - 1), GROUP)
        panel_nbytes = body.mul(depth, self.tile.width * 4)
        column_nbytes = body.mul(panels, self.tile.width * 4)
        self.tables = [body.at(weights, body.mul(panels, panel_nbytes), body.mul(column_nbytes, i)) for i in range(3)]
        whole = body.sub(panels, body.rem(panels, _TOGETHER))
        for first, last, count in ((body.i(0), whole, _TOGETHER), (whole, panels, 1)):
            with body.loop(first, last, count) as panel:
                bases = [body.at(weights, body.mul(body.add(panel, j), panel_nbytes)) for j in range(count)]
                found = self._dots(bases, levels, depth)
                for j in range(count):
                    at = body.at(sums, body.mul(body.add(panel, j), pitch))
                    self._finish(found[j], body.add(panel, j), scale, total, at)
        body.b.ret_void()
        return body.function

    def _quantize(self, a: Value, blocks: Value, levels: Value, safe: Value) -> Value:
        """The row as bytes; returns the sum of its levels less the zero point, in all lanes."""
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        low, high = e.constant(0.0, _FLOAT), e.constant(_LEVELS, _FLOAT)
        count: list[Value] = [ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)]
        with body.carry(0, blocks, 1, count) as i:
            x = body.load(body.at(a, body.mul(i, lanes * 4)), _F32, lanes)
            ratio = e.intrinsic("roundeven", [b.fdiv(x, safe)])
            level = b.fptosi(_limited(b, b.fadd(ratio, self.zero), low, high), e.shaped(_I32))
            body.store(b.trunc(level, e.shaped(ir.IntType(8))), body.at(levels, body.mul(i, lanes)), DType.UINT8)
            count[0] = b.add(count[0], b.sub(level, self.point))
        total, left = count[0], lanes
        while left > 1:
            left //= 2
            other = body.shuffle(total, total, [i + left for i in range(left)])
            total = b.add(body.shuffle(total, total, list(range(left))), other)
        return body.splat(b.extract_element(total, body.const32(0)), lanes)

    def _dots(self, bases: list[Value], levels: Value, depth: Value) -> list[list[Value]]:
        """For every vector of every panel, the product."""
        body, lanes, vectors = self.body, self.lanes, self.tile.vectors
        cells = len(bases) * vectors
        state = [body.zero(SUMS, lanes)] * cells
        with body.carry(0, depth, 1, state) as g:
            row = body.b.load(body.at(levels, body.mul(g, GROUP)), typ=_I32, align=1)
            factor = self.dot.unsigned(body.splat(row, lanes))
            offset = body.mul(g, self.tile.width * 4)
            for i in range(cells):
                place = body.at(bases[i // vectors], offset, i % vectors * lanes * 4)
                state[i] = self.dot.add(state[i], factor, self.dot.signed(body.load(place, SUMS, lanes)))
        return [state[i : i + vectors] for i in range(0, cells, vectors)]

    def _finish(self, found: list[Value], panel: Value, scale: Value, total: Value, sums: Value) -> None:
        body, b, e, lanes = self.body, self.body.b, self.e, self.lanes
        for i, product in enumerate(found):
            offset = body.add(body.mul(panel, self.tile.width * 4), i * lanes * 4)
            column = body.load(body.at(self.tables[0], offset), SUMS, lanes)
            factor, zero = (body.load(body.at(t, offset), _F32, lanes) for t in self.tables[1:])
            whole = b.sub(product, b.mul(self.point, column))
            whole = b.sub(whole, b.mul(b.fptosi(zero, e.shaped(_I32)), total))
            value = b.fmul(b.sitofp(whole, e.shaped(_FLOAT)), b.fmul(factor, scale))
            body.store(value, body.at(sums, i * lanes * 4), _F32)
