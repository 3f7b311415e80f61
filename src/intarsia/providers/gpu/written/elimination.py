"""Determinants and inverses: elimination with pivots, a step for each column."""

from __future__ import annotations

from intarsia.codegen.clike.steps import stored
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.kernel import lang as k
from intarsia.kernel.lang import Tensor
from intarsia.providers.gpu.written.registry import device_op

MOST_ROWS = 64


@device_op("Det")
def det(X: Tensor) -> Tensor:
    """Determinants of [*, M, M]: [*]."""
    n = X.shape[-1]
    if not isinstance(n, int) or X.shape[-2] != n:
        raise k.SymbolicValueError("the size of its matrices is known only at run time")
    if n > MOST_ROWS:
        raise k.DefinitionError(f"matrices of {n} rows; elimination on a device is written out for at most {MOST_ROWS}")
    batch = product(X.shape[:-2])
    wide = DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT
    a = k.reshape(k.cast(X, wide), (batch, n, n))
    out = k.full((batch,), 1.0, wide)
    for left in range(n, 0, -1):
        column = k.reshape(k.strided_slice(a, [0, 0, 0], [1, 1, 1], (batch, left, 1)), (batch, left))
        pivot = k.arg_reduce(k.absolute(column), "max", 1)
        places = [k.iota((batch, left, left), axis) for axis in range(3)]
        chosen = k.broadcast(k.reshape(pivot, (batch, 1, 1)), (batch, left, left))
        source = k.select(k.equal(places[1], 0), chosen, k.select(k.equal(places[1], chosen), 0, places[1]))
        swapped = k.index(a, [places[0], source, places[2]])
        head = k.strided_slice(swapped, [0, 0, 0], [1, 1, 1], (batch, 1, 1))
        value = k.reshape(head, (batch,))
        out = out * k.select(k.equal(pivot, 0), value, k.neg(value))
        if left > 1:
            inner = (batch, left - 1, left - 1)
            factors = k.strided_slice(swapped, [0, 1, 0], [1, 1, 1], (batch, left - 1, 1))
            factors = factors / k.select(k.equal(head, 0.0), 1.0, head)
            row = k.strided_slice(swapped, [0, 0, 1], [1, 1, 1], (batch, 1, left - 1))
            a = k.strided_slice(swapped, [0, 1, 1], [1, 1, 1], inner) - factors * row
    return k.cast(k.reshape(out, X.shape[:-2]), X.dtype)


@device_op("Inverse")
def inverse(X: Tensor) -> Tensor:
    """Inverses of [*, M, M]: the identity beside each matrix goes through the steps that make the matrix the identity. Of a
    singular matrix the elements are infinite or NaN."""
    n = X.shape[-1]
    if not isinstance(n, int) or not isinstance(X.shape[-2], int):
        raise k.SymbolicValueError("the size of its matrices is known only at run time")
    if X.shape[-2] != n or n > MOST_ROWS:
        raise k.DefinitionError(f"X is {X!r}; expected square matrices, of at most {MOST_ROWS} rows on a device")
    batch = product(X.shape[:-2])
    wide = DType.DOUBLE if X.dtype is DType.DOUBLE else DType.FLOAT
    shape = (batch, n, 2 * n)
    places = [k.iota(shape, axis) for axis in range(3)]
    unit = k.cast(k.equal(k.iota((batch, n, n), 1), k.iota((batch, n, n), 2)), wide)
    a = k.concat([k.reshape(k.cast(X, wide), (batch, n, n)), unit], 2)
    for step in range(n):
        column = k.absolute(k.reshape(k.strided_slice(a, [0, 0, step], [1, 1, 1], (batch, n, 1)), (batch, n)))
        left = k.select(k.iota((batch, n), 1) < step, -1.0, column)
        chosen = k.broadcast(k.reshape(k.arg_reduce(left, "max", 1), (batch, 1, 1)), shape)
        swapped = k.select(k.equal(places[1], chosen), step, places[1])
        source = k.select(k.equal(places[1], step), chosen, swapped)
        a = stored(k.index(a, [places[0], source, places[2]]))
        pivot = k.strided_slice(a, [0, step, step], [1, 1, 1], (batch, 1, 1))
        row = k.strided_slice(a, [0, step, 0], [1, 1, 1], (batch, 1, 2 * n)) / pivot
        factors = k.strided_slice(a, [0, 0, step], [1, 1, 1], (batch, n, 1))
        a = stored(k.select(k.equal(places[1], step), k.broadcast(row, shape), a - factors * row))
    made = k.strided_slice(a, [0, 0, n], [1, 1, 1], (batch, n, n))
    return k.cast(k.reshape(made, X.shape), X.dtype)
