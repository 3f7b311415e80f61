"""The size of elements in memory."""

from __future__ import annotations

from intarsia.graph.dtypes import DType


def itemsize(dtype: DType) -> int:
    """Bytes of one element in memory."""
    return max(1, dtype.bits // 8)
