"""Linear algebra beyond products: determinants and inverses, by elimination with pivots. Kernels that call nobody take a step
for each column."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.registry import host_op
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.run_status import MATRIX_IS_SINGULAR

MICROSOFT = "com.microsoft"
MOST_ROWS = 64  # of matrices whose elimination is written out


def _det_type(X: TensorType) -> TensorType:
    if X.shape is None:
        return TensorType(X.dtype)
    if len(X.shape) < 2:
        raise k.DefinitionError(f"X has rank {len(X.shape)}; expected square matrices [*, M, M]")
    m, n = X.shape[-2:]
    k.require_equal(m, n, f"X holds matrices of {m} x {n}; expected square ones")
    return TensorType(X.dtype, X.shape[:-2])


def det_in_steps(X: Tensor) -> Tensor:
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


@host_op(
    "Det", (11, 22), infer=_det_type, reason="elimination with pivots: rows are exchanged as data says", primitives=det_in_steps
)
def det(X: np.ndarray) -> np.ndarray:
    """Determinants of [*, M, M]: [*]. Half types are computed in float32."""
    wide = X if DType.of(X.dtype) in (DType.FLOAT, DType.DOUBLE) else X.astype(np.float32)
    return np.asarray(np.linalg.det(wide)).astype(X.dtype)


def inverse_in_steps(X: Tensor) -> Tensor:
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
        a = k.stored(k.index(a, [places[0], source, places[2]]))
        pivot = k.strided_slice(a, [0, step, step], [1, 1, 1], (batch, 1, 1))
        row = k.strided_slice(a, [0, step, 0], [1, 1, 1], (batch, 1, 2 * n)) / pivot
        factors = k.strided_slice(a, [0, 0, step], [1, 1, 1], (batch, n, 1))
        a = k.stored(k.select(k.equal(places[1], step), k.broadcast(row, shape), a - factors * row))
    made = k.strided_slice(a, [0, 0, n], [1, 1, 1], (batch, n, n))
    return k.cast(k.reshape(made, X.shape), X.dtype)


@host_op("Inverse", 1, domain=MICROSOFT, infer=lambda X: X, reason="its matrices are not square, or not of floats",
         primitives=inverse_in_steps)  # fmt: skip
def inverse(X: np.ndarray) -> np.ndarray:
    """Inverses of [*, M, M]; float16 is computed in float32."""
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise k.DefinitionError(f"X has shape {list(X.shape)}; expected square matrices [*, M, M]")
    try:
        return np.linalg.inv(X.astype(np.promote_types(X.dtype, np.float32))).astype(X.dtype)
    except np.linalg.LinAlgError:
        raise k.DefinitionError(MATRIX_IS_SINGULAR) from None
