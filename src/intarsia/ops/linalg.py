"""Linear algebra beyond products: Det."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.kernel import lang as k
from intarsia.ops.registry import host_op


def _det_type(X: TensorType) -> TensorType:
    if X.shape is None:
        return TensorType(X.dtype)
    if len(X.shape) < 2:
        raise k.DefinitionError(f"X has rank {len(X.shape)}; expected square matrices [*, M, M]")
    m, n = X.shape[-2:]
    if isinstance(m, int) and isinstance(n, int) and m != n:
        raise k.DefinitionError(f"X holds matrices of {m} x {n}; expected square ones")
    return TensorType(X.dtype, X.shape[:-2])


@host_op("Det", (11, 22), infer=_det_type, reason="elimination with pivots: rows are exchanged as data says")
def det(X: np.ndarray) -> np.ndarray:
    """Determinants of [*, M, M]: [*]. Half types are computed in float32."""
    wide = X if DType.of(X.dtype) in (DType.FLOAT, DType.DOUBLE) else X.astype(np.float32)
    return np.asarray(np.linalg.det(wide)).astype(X.dtype)
