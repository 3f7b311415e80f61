"""Sums of products of bytes: four of them along k at once."""

from __future__ import annotations

from intarsia.graph.dtypes import DType

SUMS = DType.INT32
GROUP = 4  # bytes of k that one step multiplies
BYTES = (DType.UINT8, DType.INT8)


def groups(k: int) -> int:
    """How many groups K bytes fill."""
    return -(-k // GROUP)


def last_group(k: int) -> int:
    """Bytes of the last group: what `taps[ntaps]` holds."""
    return (k - 1) % GROUP + 1 if k else GROUP
