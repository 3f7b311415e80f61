"""Euclidean distances between the rows of two matrices, by a register tile of sums of squared differences.

|a|^2 - 2 ab + |b|^2 by a matrix product would be half the work, but loses the digits of rows that are close to each other,
which are those that are looked for. Work is divided into units, one tile each, in the order panel of B, tile of A; a thread
packs each panel of its share once.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.pack_b import emit_pack_columns
from intarsia.providers.cpu.kernels.common.tiles import tile_of

_BLOCK = 64  # features whose squares are summed before they join the rest: fewer digits are lost over many features
DTYPES = frozenset((DType.FLOAT, DType.DOUBLE))


def scratch_nbytes(features: int, dtype: DType, target: Target) -> int:
    """Of a thread: a panel of B."""
    return -(-features * tile_of(dtype, target).width * dtype.bits // 512) * 64


@functools.cache
def kernel_text(dtype: DType, root: bool, target: Target) -> KernelText:
    """Arguments: a [m, features], b [n, features], y [m, n], scratch, m, n, features; `root`: not the squares."""
    return _Distances(dtype, root, target).text()


class _Distances:
    def __init__(self, dtype: DType, root: bool, target: Target) -> None:
        self.dtype, self.root, self.module = dtype, root, Module(target)
        tile = tile_of(dtype, target)
        self.lanes, self.vectors, self.width, self.itemsize = tile.lanes, tile.vectors, tile.width, tile.itemsize
        self.rows = 6 if tile.rows * tile.vectors >= 24 else 4  # each vector of a tile takes registers for its difference, too
        self.pack = emit_pack_columns(self.module, dtype).function
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        self.a, b, self.y, scratch = (body.load_pointer(args, i) for i in range(4))
        self.m, self.n, self.features = (body.load_i64(args, i) for i in (4, 5, 6))
        self.pitch = body.mul(self.features, self.itemsize)
        panel_nbytes = body.mul(self.pitch, self.width)
        self.panel = body.at(scratch, body.mul(tid, body.mul(body.div(body.add(panel_nbytes, 63), 64), 64)))
        tiles = body.div(body.add(self.m, self.rows - 1), self.rows)
        panels = body.div(body.add(self.n, self.width - 1), self.width)
        first, last = body.share(body.mul(tiles, panels), tid, nthreads)
        unit = body.cell(first, "unit")
        with body.repeat_while(lambda: body.less(unit.get(), last)):
            at = unit.get()
            number, start = body.div(at, tiles), body.rem(at, tiles)
            count = body.min(body.sub(tiles, start), body.sub(last, at))
            self.column = body.mul(number, self.width)
            self.columns = body.min(body.sub(self.n, self.column), self.width)
            source = body.at(b, body.mul(self.column, self.pitch))
            body.b.call(self.pack, [source, self.pitch, self.features, self.columns, self.panel, body.i(self.vectors)])
            with body.loop(start, body.add(start, count)) as tile:
                self._rows(body.mul(tile, self.rows))
            unit.add(count)
        body.b.ret_void()
        return self.module.text("distances")

    def _rows(self, row: Value) -> None:
        body = self.body
        left = body.sub(self.m, row)
        with body.either(body.less(left, self.rows)) as (few, whole):
            with few, body.loop(row, self.m) as one:
                self._tile(one, 1)
            with whole:
                self._tile(row, self.rows)

    def _tile(self, row: Value, rows: int) -> None:
        body, dtype, lanes = self.body, self.dtype, self.lanes
        lines = [body.at(self.a, body.mul(body.add(row, r), self.pitch)) for r in range(rows)]
        totals = [body.zero(dtype, lanes) for _ in range(rows * self.vectors)]
        with body.carry(0, self.features, _BLOCK, totals) as start:
            sums = [body.zero(dtype, lanes) for _ in totals]
            with body.carry(start, body.min(body.add(start, _BLOCK), self.features), 1, sums) as p:
                sums[:] = self._added(lines, p, sums)
            totals[:] = [body.b.fadd(total, x) for total, x in zip(totals, sums, strict=True)]
        if self.root:
            totals = [Emitter(body.b, lanes).intrinsic("sqrt", [x]) for x in totals]
        for r in range(rows):
            out = body.at(self.y, body.mul(body.add(body.mul(body.add(row, r), self.n), self.column), self.itemsize))
            self._store(out, totals[r * self.vectors : (r + 1) * self.vectors])

    def _added(self, lines: list[Value], p: Value, sums: list[Value]) -> list[Value]:
        """The sums and the squares of feature p's differences."""
        body, dtype, lanes = self.body, self.dtype, self.lanes
        place = body.at(self.panel, body.mul(p, self.width * self.itemsize))
        right = [body.load(body.at(place, v * lanes * self.itemsize), dtype, lanes) for v in range(self.vectors)]
        found = []
        for r, line in enumerate(lines):
            left = body.broadcast(body.at(line, body.mul(p, self.itemsize)), dtype, lanes)
            for v, x in enumerate(right):
                difference = body.b.fsub(left, x)
                found.append(body.fma(difference, difference, sums[r * self.vectors + v], dtype, lanes))
        return found

    def _store(self, out: Value, values: list[Value]) -> None:
        body, lanes = self.body, self.lanes
        with body.either(body.less(self.columns, self.width)) as (partial, full):
            with full:
                for v, x in enumerate(values):
                    body.store(x, body.at(out, v * lanes * self.itemsize), self.dtype)
            with partial:
                for v, x in enumerate(values):
                    mask = body.mask(body.sub(self.columns, v * lanes), lanes)
                    body.store_masked(x, body.at(out, v * lanes * self.itemsize), mask, self.dtype)
