"""Scores of a few queries by keys where they lie, for attention without packed keys.

Rows of Q are padded with zeros, scores lie as the micro-kernel lays them: register tiles of `rows` by `tile.width` keys.
"""

from __future__ import annotations

import functools
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.tiles import Tile

_ROWS = 4  # of queries that share a key once it is loaded
PARAMETERS = ("p", "i", "p", "i", "i", "i", "i", "i", "i", "p")  # q, its rows' bytes, k, its rows' bytes, size, sizes, scores
_F32 = DType.FLOAT
_QUARTER = 4  # lanes of 128 bits


def emit_dots(module: Module, tile: Tile) -> Any:
    """An internal function: (ptr q, i64 q_width, ptr k, i64 k_row, i64 size, i64 rows, i64 full, i64 rest, i64 rest_vectors,
    ptr scores).

    A function of its own, because LLVM's passes take long over deep nests of loops.
    """
    ways = [_several(module, tile, rows) for rows in range(1, _ROWS + 1)]
    body = module.function("dots", PARAMETERS)
    q, q_width, k, k_row, size, rows, *others = body.args
    with body.loop(0, rows, _ROWS) as first:
        left = body.min(body.sub(rows, first), _ROWS)
        for count, way in enumerate(ways, 1):
            with body.when(body.equal(left, count)):
                body.b.call(way, [body.at(q, body.mul(first, q_width)), q_width, k, k_row, size, first, *others])
    body.b.ret_void()
    return body.function


def _several(module: Module, tile: Tile, rows: int) -> Any:
    """The function for so many rows from one of the tile's on: four keys at a time, or two where registers are few."""
    body = module.function(f"dots_{rows}", PARAMETERS)
    q_rows, q_width, k, k_row, size, first, full, rest, rest_vectors, scores = body.args
    lanes, keys = tile.lanes, 4 if rows <= 2 or module.target.vector_registers == 32 else 2
    whole = body.mul(body.div(size, lanes), lanes)
    tail = body.mask(body.sub(size, whole), lanes)
    count = body.add(body.mul(full, tile.width), rest)
    queries = [body.at(q_rows, body.mul(q_width, i)) for i in range(rows)]
    with body.loop(0, count, keys) as j:
        lines = [body.at(k, body.mul(body.min(body.add(j, i), body.sub(count, 1)), k_row)) for i in range(keys)]
        sums = [body.zero(_F32, lanes)] * (rows * keys)

        def step(d: Value, mask: Value | None, lines: list[Value] = lines, sums: list[Value] = sums) -> None:
            def load(line: Value) -> Value:
                place = body.at(line, body.mul(d, 4))
                return body.load(place, _F32, lanes) if mask is None else body.load_masked(place, mask, _F32, lanes)

            columns = [load(line) for line in lines]
            for i, query in enumerate(queries):
                x = load(query)
                for c, column in enumerate(columns):
                    sums[i * keys + c] = body.fma(x, column, sums[i * keys + c], _F32, lanes)

        with body.carry(0, whole, lanes, sums) as d:
            step(d, None)
        with body.carry(whole, size, lanes, sums) as d:
            step(d, tail)
        panel = body.div(j, tile.width)
        width = body.select(body.less(panel, full), tile.width * 4, body.mul(rest_vectors, lanes * 4))
        place = body.at(scores, body.mul(panel, tile.nbytes), body.mul(body.rem(j, tile.width), 4))
        for i, total in enumerate(_totals(body, sums, keys)):
            body.store(total, body.at(place, body.mul(width, body.add(first, i))), _F32)
    body.b.ret_void()
    return body.function


def _totals(body: Body, sums: list[Value], each: int) -> list[Value]:
    """Sums over the lanes of vectors, `each` of them in a vector."""
    found: list[Value] = []
    for first in range(0, len(sums), _QUARTER):
        four = [sums[min(first + i, len(sums) - 1)] for i in range(_QUARTER)]
        total = _neighbours(body, _neighbours(body, four[0], four[1]), _neighbours(body, four[2], four[3]))
        lanes = total.type.count
        total = functools.reduce(
            body.b.fadd, [body.shuffle(total, total, range(i, i + _QUARTER)) for i in range(0, lanes, _QUARTER)]
        )
        found += [body.shuffle(total, total, range(i, i + each)) for i in range(0, _QUARTER, each)]
    return found[: len(sums) // each]


def _neighbours(body: Body, a: Value, b: Value) -> Value:
    """In each 128 bits, the sums of two neighbours of `a`, then of `b` (VHADDPS)."""
    lanes = a.type.count
    even = [low + i for low in range(0, lanes, _QUARTER) for i in (0, 2, lanes, lanes + 2)]
    return body.b.fadd(body.shuffle(a, b, even), body.shuffle(a, b, [i + 1 for i in even]))
