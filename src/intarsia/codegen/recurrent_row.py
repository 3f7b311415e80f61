"""The recurrent product of one row, for `recurrent_kernel`.

All it does is to read R, in every step again. Steps go through the panels forwards and backwards in turn: where R is as large
as the second-level cache or somewhat larger, a step begins with what the one before has left there.
"""

from __future__ import annotations

from intarsia.codegen.body import Body, Module, Value
from intarsia.codegen.microkernel import Tile
from intarsia.graph.dtypes import DType

_TOGETHER = 4  # panels that are read at a time: 8 accumulators hide the latency of an addition


def row_product(module: Module, dtype: DType, tile: Tile) -> Value:
    """An internal function: one row times panels.

    (ptr a, ptr b, i64 k, i64 panels, i64 panel_nbytes, ptr sums, i64 backwards): sums[panel][j] = sum over p < k of
    a[p] * b[panel][p][j]. `backwards` (1 or 0): which panels are first.
    """
    body = module.function("row_product", ("p", "p", "i", "i", "i", "p", "i"))
    a, b, depth, panels, panel_nbytes, sums, backwards = body.args
    row = tile.width * tile.itemsize
    whole = body.sub(panels, body.rem(panels, _TOGETHER))
    for first, last, count, sets in ((body.i(0), whole, _TOGETHER, 1), (whole, panels, 1, 4)):
        with body.loop(first, last, count) as i:
            mirrored = body.sub(body.sub(body.add(first, last), count), i)
            panel = body.select(body.equal(backwards, 0), i, mirrored)
            origin = body.at(b, body.mul(panel, panel_nbytes))
            bases = [body.at(origin, body.mul(panel_nbytes, j)) if j else origin for j in range(count)]
            totals = _dot_row(body, a, bases, depth, dtype, tile, sets)
            out = body.at(sums, body.mul(panel, row))
            for j, total in enumerate(totals):
                body.store(total, body.at(out, j * tile.lanes * tile.itemsize), dtype)
    body.b.ret_void()
    return body.function


def _dot_row(body: Body, a: Value, bases: list[Value], depth: Value, dtype: DType, tile: Tile, sets: int) -> list[Value]:
    """Sums of `a[p] * base[p][j]`, for all vectors of all bases, in `sets` sets of accumulators that alternate along p."""
    row, vector_bytes = tile.width * tile.itemsize, tile.lanes * tile.itemsize
    cells = len(bases) * tile.vectors
    state = [body.zero(dtype, tile.lanes)] * (cells * sets)
    unroll = max(2, sets)

    def steps(p: Value, count: int) -> None:
        for u in range(count):
            index = body.add(p, u)
            scalar = body.broadcast(body.at(a, body.mul(index, tile.itemsize)), dtype, tile.lanes)
            offset = body.mul(index, row)
            for j in range(cells):
                place = body.at(bases[j // tile.vectors], offset, j % tile.vectors * vector_bytes)
                at = u % sets * cells + j
                state[at] = body.fma(scalar, body.load(place, dtype, tile.lanes), state[at], dtype, tile.lanes)

    whole = body.sub(depth, body.rem(depth, unroll))
    with body.carry(0, whole, unroll, state) as p:
        steps(p, unroll)
    with body.carry(whole, depth, 1, state) as p:
        steps(p, 1)
    totals = state[:cells]
    for s in range(1, sets):
        totals = [body.b.fadd(x, y) for x, y in zip(totals, state[s * cells : (s + 1) * cells], strict=True)]
    return totals
