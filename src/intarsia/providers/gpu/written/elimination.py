"""Determinants: elimination with pivots, a step for each column."""

from __future__ import annotations

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
