"""Parts of products by Strassen's seven multiplications (`strassen`): a micro-kernel that adds two parts of B as it reads them,
sums of A with the test that they may be taken, and which columns of B may be added."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import Micro, switched, tiled_rows
from intarsia.providers.cpu.kernels.common.tiles import Tile

SUMMING = ("p", "i", "p", "p", "p", "i", "i", "p", "i", "p", "i", "i", "i")
SUMS = 5  # of A
_SIGNS = 3
_STORED_AHEAD = 8  # rows of a panel: how far before its use a line for sums of B is fetched
_ROW_RATIO = 3.0  # of the norms of two rows of A that are added
_COLUMN_RATIO = 8.0  # of two columns of B
_LOOKED_AT = 1 << 18  # elements at once, of 8 bytes
_SHARE = 0.25  # of a row's sum of squares that its largest square, or that of the other row, may be


@cache
def summing_micro_text(target: Target, tile: Tile, stored: DType | None = None) -> KernelText:
    """The micro-kernel of float32 for a B that is the sum or difference of two parts, for `tiled_rows` rows or more:

    (ptr a, i64 lda, ptr b, ptr other, ptr sums, i64 ldb, i64 k, ptr tile, i64 accumulate, ptr ahead, i64 pace, i64 rows,
    i64 sign)

    As `micro_text` for b + other (sign 1) or b - other (-1), which it also writes to `sums`, in rows as they are multiplied.

    Args:
        stored: the type of the parts' elements (`microkernel.STORED`) where these are widened when they are read; there is a
            sign 0, too, for b alone.
    """
    module = Module(target)
    variants = {}
    for sign, name in ((1, "plus"), (-1, "minus"), (0, "wide"))[: 2 if stored is None else 3]:
        for rows in range(tiled_rows(tile), tile.rows + 1):
            body = module.function(f"{name}_{rows}", SUMMING[:-2])
            _SummingMicro(body, DType.FLOAT, tile.lanes, rows, tile.vectors, stored).emit_summing(sign)
            variants[_SIGNS * rows + sign] = body.function
    entry = module.function("__SYMBOL__", SUMMING, internal=False)
    switched(entry, entry.add(entry.mul(entry.args[-2], _SIGNS), entry.args[-1]), variants, entry.args[:-2])
    entry.b.ret_void()
    suffix = f"_{stored.name.lower()}" if stored is not None else ""
    return module.text(f"micro_summing{suffix}", Effort.CODE)


class _SummingMicro(Micro):
    """One variant. Additions and stores pass beside the multiply-adds where a CPU has units of their own for them."""

    def emit_summing(self, sign: int) -> None:
        body, b = self.body, self.body.b
        a, lda, pb, other, sums, ldb, k, tile, accumulate, ahead, pace = body.args
        cells = self.rows * self.vectors
        vector, sum_nbytes = body.vector_type(self.dtype, self.lanes), self.lanes * self.itemsize
        row_nbytes = self.vectors * sum_nbytes
        state = [body.zero(self.dtype, self.lanes)] * cells
        state += [ahead, pb, other, sums, a]
        with body.carry(0, k, 1, state):
            ahead, pb, other, sums, a = state[cells:]
            columns = self._columns(pb)
            if sign:
                add = b.fadd if sign > 0 else b.fsub
                columns = [add(x, y) for x, y in zip(columns, self._columns(other), strict=True)]
            for j, column in enumerate(columns):
                body.store(column, body.at(sums, j * sum_nbytes), self.dtype)
                body.prefetch(body.at(sums, row_nbytes * _STORED_AHEAD + j * sum_nbytes), write=True)
            bases = [body.at(a, body.mul(lda, i)) if i else a for i in range(0, self.rows, 3)]
            for i in range(self.rows):
                row = body.at(bases[i // 3], body.mul(lda, i % 3) if i % 3 else 0)
                scalar = body.broadcast(row, self.dtype, self.lanes)
                for j in range(self.vectors):
                    cell = i * self.vectors + j
                    state[cell] = body.fma(scalar, columns[j], state[cell], self.dtype, self.lanes)
            for j in range(0, self.vectors * self.column_nbytes, 64):
                body.prefetch(body.at(ahead, j), 2)
            following = [body.at(pb, ldb), body.at(other, ldb), body.at(sums, row_nbytes)]
            state[cells:] = [body.at(ahead, pace), *following, body.at(a, self.itemsize)]
        found = state[:cells]
        with body.carry_if(accumulate, found):
            found[:] = [self._sum(b.load(self._tile(tile, i), typ=vector), x) for i, x in enumerate(found)]
        for index, value in enumerate(found):
            b.store(value, self._tile(tile, index))
        b.ret_void()


def emit_sums(module: Module, tile: Tile) -> Any:
    """An internal function: the five sums of a tile's rows of A, and whether they may be taken.

    (ptr a11, a12, a21, a22, i64 lda, i64 steps of each, i64 rows, ptr out, i64 bytes between its rows, i64 bytes between
    its sums, ptr safe): sets `safe` to 0 where two rows that are added differ much in size, or one element is much of a row:
    rounding errors of the sums are those of the larger one, and what is not finite would spread. Padding of the sums' rows may
    be written.
    """
    body = module.function("sums", ("p", "p", "p", "p", "i", "i", "i", "p", "i", "i", "p"))
    *quarters, lda, steps, rows, out, ldo, piece_stride, safe = body.args
    lanes, b, dtype = tile.lanes, body.b, DType.FLOAT
    with body.loop(0, rows) as i:
        state = [body.zero(dtype, lanes)] * 3  # squares: of the upper row, of the lower row; the largest
        upper, lower = (body.at(quarters[x], body.mul(i, lda)) for x in (0, 2))
        right = [b.sub(b.ptrtoint(quarters[x + 1], body.i(0).type), b.ptrtoint(quarters[x], body.i(0).type)) for x in (0, 2)]
        place = body.at(out, body.mul(i, ldo))
        with body.carry(0, steps, lanes, state) as p:
            mask, at = body.mask(body.sub(steps, p), lanes), body.mul(p, tile.itemsize)
            places = (upper, body.at(upper, right[0]), lower, body.at(lower, right[1]))
            a11, a12, a21, a22 = (body.load_masked(body.at(x, at), mask, dtype, lanes) for x in places)
            made = (b.fadd(a11, a22), b.fadd(a21, a22), b.fsub(a21, a11), b.fadd(a11, a12), b.fsub(a12, a22))
            for number, value in enumerate(made):
                body.store(value, body.at(place, body.mul(piece_stride, number), at), dtype)
            for x, row in ((a11, 0), (a12, 0), (a21, 1), (a22, 1)):
                square = b.fmul(x, x)
                state[row] = b.fadd(state[row], square)
                state[2] = b.select(b.fcmp_ordered(">", square, state[2]), square, state[2])
        with body.when(b.not_(_alike(body, state, lanes))):
            b.store(body.i(0), safe)
    b.ret_void()
    return body.function


def _alike(body: Body, state: list[Value], lanes: int) -> Value:
    """Whether two rows may be added, by their squares; not where these are not finite."""
    b, one = body.b, body.vector_type(DType.FLOAT, 1)
    vector = body.vector_type(DType.FLOAT, lanes)
    add = body.intrinsic(f"llvm.vector.reduce.fadd.v{lanes}f32", one, [one, vector])
    greatest = body.intrinsic(f"llvm.vector.reduce.fmax.v{lanes}f32", one, [vector])
    upper, lower = (b.call(add, [body.constant(0.0, DType.FLOAT, 1), x]) for x in state[:2])
    most = b.call(greatest, [state[2]])
    less = b.select(b.fcmp_ordered("<", upper, lower), upper, lower)
    more = b.select(b.fcmp_ordered("<", upper, lower), lower, upper)
    near = b.fcmp_ordered("<", more, b.fmul(less, body.constant(_ROW_RATIO**2, DType.FLOAT, 1)))
    return b.and_(near, b.fcmp_ordered("<", most, b.fmul(less, body.constant(_SHARE, DType.FLOAT, 1))))


def alike_panels(matrix: np.ndarray, tile: Tile) -> np.ndarray:
    """For each pair of full panels of a [K, N] matrix: 1 where its columns may be added, by the rule of `emit_sums`, else 0."""
    n = matrix.shape[1]
    pairs = n // (2 * tile.width)
    squares, largest = np.zeros(n), np.zeros(n)
    axis = int(matrix.strides[0] < matrix.strides[1])  # whose pieces lie in one place
    together = max(1, _LOOKED_AT // max(1, matrix.shape[1 - axis]))  # a table of words has too many to look at all at once
    for first in range(0, matrix.shape[axis], together):
        part = slice(first, first + together)
        piece, columns = (matrix[:, part], part) if axis else (matrix[part], slice(None))
        numbers = np.square(piece, dtype=np.float64)
        squares[columns] += numbers.sum(0)
        largest[columns] = np.maximum(largest[columns], numbers.max(0, initial=0))
    sums = squares[: pairs * 2 * tile.width].reshape(pairs, 2, tile.width)
    most = largest[: pairs * 2 * tile.width].reshape(pairs, 2, tile.width).max(1)
    less, more = sums.min(1), sums.max(1)
    alike = (more < _COLUMN_RATIO**2 * less) & (most < _SHARE * less)
    return np.ascontiguousarray(alike.all(1), np.int64) if pairs else np.zeros(1, np.int64)
