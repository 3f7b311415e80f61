"""The recurrent product of one row, for `rnn_kernel`.

All it does is to read R, in every step again. Steps go through the panels forwards and backwards in turn: where R is as large
as the second-level cache or somewhat larger, a step begins with what the one before has left there.

Multiply-adds are idle more than half of that time. `row_and_tile` fills them with a tile of another product: the inputs of
steps to come (`kernels.recurrent.rnn_input_products`).
"""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import TILE_ROWS

_LINE = 64
_AHEAD = 6  # rows that are fetched before they are used, where loads have time: from the second-level cache
_AHEAD_OF_TILE = 16  # those of the tile, which come from farther away, and not again for `TILE_ROWS` steps
TOGETHER = 4  # panels that are read at a time: 8 accumulators hide the latency of an addition


def row_product(module: Module, dtype: DType, tile: Tile) -> Value:
    """An internal function: one row times panels.

    (ptr a, ptr b, i64 k, i64 panels, i64 panel_nbytes, ptr sums, i64 backwards): sums[panel][j] = sum over p < k of
    a[p] * b[panel][p][j]. `backwards` (1 or 0): which panels are first.
    """
    body = module.function("row_product", ("p", "p", "i", "i", "i", "p", "i"))
    a, b, depth, panels, panel_nbytes, sums, backwards = body.args
    row = tile.width * tile.itemsize
    whole = body.sub(panels, body.rem(panels, TOGETHER))
    for first, last, count, sets in ((body.i(0), whole, TOGETHER, 1), (whole, panels, 1, 4)):
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


def row_and_tile(module: Module, dtype: DType, tile: Tile) -> Value:
    """An internal function: one row times `TOGETHER` panels, and beside it part of a tile of `TILE_ROWS` rows by one panel.

    (ptr a, ptr b, i64 k, i64 panel_nbytes, ptr sums, ptr left, i64 left_pitch, ptr right, i64 depth, ptr out): sums as
    `row_product`'s; out[i][j] += sum over p < depth of left[i][p] * right[p][j], depth <= k.
    """
    body = module.function("row_and_tile", ("p", "p", "i", "i", "p", "p", "i", "p", "i", "p"))
    a, b, k, panel_nbytes, sums, left, left_pitch, right, depth, out = body.args
    row, lanes = tile.width * tile.itemsize, tile.lanes
    bases = [body.at(b, body.mul(panel_nbytes, j)) if j else b for j in range(TOGETHER)]
    lines = [body.at(left, body.mul(left_pitch, i)) if i else left for i in range(TILE_ROWS)]
    places = [(j, n * lanes * tile.itemsize) for j in range(TOGETHER) for n in range(tile.vectors)]
    cells = [body.at(out, i * lanes * tile.itemsize) for i in range(TILE_ROWS * tile.vectors)]
    totals = [body.zero(dtype, lanes)] * len(places)
    state = totals + [body.load(cell, dtype, lanes) for cell in cells]

    def row_step(p: Value) -> None:
        scalar, offset = body.broadcast(body.at(a, body.mul(p, tile.itemsize)), dtype, lanes), body.mul(p, row)
        for at, (j, inside) in enumerate(places):
            place = body.at(bases[j], offset, inside)
            body.prefetch(body.at(place, _AHEAD * row))
            weights = body.load(place, dtype, lanes)
            state[at] = body.fma(scalar, weights, state[at], dtype, lanes)

    with body.carry(0, depth, 1, state) as p:
        row_step(p)
        offset, at = body.at(right, body.mul(p, row)), len(places)
        for line in range(0, row, _LINE):
            body.prefetch(body.at(offset, _AHEAD_OF_TILE * row + line), locality=0)
        columns = [body.load(body.at(offset, n * lanes * tile.itemsize), dtype, lanes) for n in range(tile.vectors)]
        for line in lines:
            scalar = body.broadcast(body.at(line, body.mul(p, tile.itemsize)), dtype, lanes)
            for column in columns:
                state[at] = body.fma(scalar, column, state[at], dtype, lanes)
                at += 1
    for value, cell in zip(state[len(places) :], cells, strict=True):
        body.store(value, cell, dtype)
    del state[len(places) :]
    with body.carry(depth, k, 1, state) as p:
        row_step(p)
    for total, (j, inside) in zip(state, places, strict=True):
        body.store(total, body.at(sums, j * row + inside), dtype)
    body.b.ret_void()
    return body.function
