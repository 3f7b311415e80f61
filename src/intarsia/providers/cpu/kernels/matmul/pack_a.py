"""Packed A of a matrix product, in the order in which micro-kernels read it: [block of K][tile of rows][k][row of the tile].

Blocks have `k_block` steps, the last what remains; tiles have as even numbers of rows as there can be. Nothing is padded, so
block b begins at element b * k_block * m and, in it, the tile that begins with row r at element r times the block's steps.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.pack_b import transposed
from intarsia.providers.cpu.kernels.common.tiles import Tile

_BLOCK_NBYTES = 512  # of one row of A: with panels of 48 columns a block of B is half of a first-level cache


def k_block(k: int, tile: Tile, nbytes: int = _BLOCK_NBYTES) -> int:
    """Steps of a block: even parts of K of at most 128 float32 (or `nbytes` bytes), whole vectors."""
    most = nbytes // tile.itemsize
    even = math.ceil(k / max(1, math.ceil(k / most)))
    return max(1, min(k, math.ceil(even / tile.lanes) * tile.lanes))


@functools.cache
def pack_tiles_text(dtype: DType, tile: Tile, target: Target) -> KernelText:
    """The step that packs; see `pack_tiles_args`."""
    module = Module(target)
    pack = _emit_tiles(module, dtype, tile)
    body = module.kernel()
    args, tid, nthreads = body.args
    source, ld, packed = body.load_pointer(args, 0), body.load_i64(args, 1), body.load_pointer(args, 2)
    m, k, block, tiles = (body.load_i64(args, i) for i in range(3, 7))
    each = _tiles_at_once(tile)
    groups = body.div(body.add(tiles, each - 1), each)
    blocks = body.div(body.add(k, body.sub(block, 1)), block)
    rows, extra = body.div(m, body.max(tiles, 1)), body.rem(m, body.max(tiles, 1))
    first, last = body.share(body.mul(groups, blocks), tid, nthreads)
    with body.loop(first, last) as unit:
        group, at = body.div(unit, blocks), body.rem(unit, blocks)
        start = body.mul(at, block)
        count = body.min(block, body.sub(k, start))
        number = body.mul(group, each)
        row = body.add(body.mul(number, rows), body.min(number, extra))
        out = body.at(packed, body.mul(body.add(body.mul(start, m), body.mul(row, count)), tile.itemsize))
        origin = body.at(source, body.mul(row, ld), body.mul(start, tile.itemsize))
        left = body.sub(tiles, number)
        sizes = []
        for i in range(each):
            full = body.add(rows, body.select(body.less(body.add(number, i), extra), 1, 0))
            sizes.append(body.select(body.less(i, left), full, 0))
        body.b.call(pack, [origin, ld, count, out, *sizes])
    body.b.ret_void()
    return module.text("pack_tiles")


def pack_tiles_args(source: Address, ld_nbytes: int, packed: Address, m: int, k: int, tile: Tile) -> list[Argument]:
    """The step's arguments: addresses, bytes between rows of the source, sizes (m = 0: nothing to do)."""
    return [source, ld_nbytes, packed, m, k, k_block(k, tile), -(-m // tile.rows)]


def _tiles_at_once(tile: Tile) -> int:
    return max(1, tile.lanes // tile.rows)


def _emit_tiles(module: Module, dtype: DType, tile: Tile) -> Any:
    """An internal function: (ptr source, i64 ld, i64 k, ptr out, i64 rows of each tile ...) packs neighbouring tiles."""
    each = _tiles_at_once(tile)
    body = module.function("tiles", ("p", "i", "i", "p", *["i"] * each))
    source, ld, k, out, *sizes = body.args
    lanes, item = tile.lanes, tile.itemsize
    total = sizes[0]
    for size in sizes[1:]:
        total = body.add(total, size)
    lines = max(1, -(-tile.rows // lanes)) * lanes
    rows = [body.at(source, body.mul(body.min(body.i(i), body.sub(total, 1)), ld)) for i in range(lines)]
    whole = body.mul(body.div(k, lanes), lanes)
    iota = ir_builder.Constant(ir_builder.VectorType(ir_builder.IntType(32), lanes), list(range(lanes)))
    pieces = []  # (first line, mask, where in `out` lane 0 would be, bytes between steps)
    if each > 1:
        before: Value = body.i(0)
        for size in sizes:
            low, high = body.add(before, 0), body.add(before, size)
            narrow = [body.splat(body.b.trunc(x, ir_builder.IntType(32)), lanes) for x in (low, high)]
            mask = body.b.and_(body.b.icmp_signed("<=", narrow[0], iota), body.b.icmp_signed("<", iota, narrow[1]))
            base = body.at(out, body.mul(body.sub(body.mul(low, k), low), item))
            pieces.append((0, mask, base, body.mul(size, item)))
            before = high
    else:
        for line in range(0, lines, lanes):
            mask = body.mask(body.sub(sizes[0], line), lanes)
            pieces.append((line, mask, body.at(out, line * item), body.mul(sizes[0], item)))
    with body.loop(0, whole, lanes) as p:
        for line in range(0, lines, lanes):
            block = [body.load(body.at(row, body.mul(p, item)), dtype, lanes) for row in rows[line : line + lanes]]
            block = transposed(body, block)
            for at, mask, base, step in pieces:
                if at == line:
                    for i, value in enumerate(block):
                        body.store_masked(value, body.at(base, body.mul(body.add(p, i), step)), mask, dtype)
    _rest(body, dtype, tile, whole)
    body.b.ret_void()
    return body.function


def _rest(body: Body, dtype: DType, tile: Tile, whole: Value) -> None:
    """The last steps, fewer than a vector, element by element."""
    source, ld, k, out, *sizes = body.args
    before: Value = body.i(0)
    for size in sizes:
        target = body.at(out, body.mul(body.mul(before, k), tile.itemsize))
        with body.loop(whole, k) as p, body.loop(0, size) as i:
            row = body.at(source, body.mul(body.add(before, i), ld), body.mul(p, tile.itemsize))
            value = body.load(row, dtype, 1)
            body.store(value, body.at(target, body.mul(body.add(body.mul(p, size), i), tile.itemsize)), dtype)
        before = body.add(before, size)
