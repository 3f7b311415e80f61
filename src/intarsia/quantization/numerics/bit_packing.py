"""Values of four bits in bytes, two in each, the first in the low half: as ONNX stores INT4 and UINT4."""

from __future__ import annotations

import numpy as np


def packed_4bit(values: np.ndarray) -> np.ndarray:
    """uint8 [ceil(size / 2)] of values of 4 or 8 bits in their order; a last value alone has 0 beside it."""
    low = np.ascontiguousarray(values).reshape(-1).view(np.uint8) & 0xF
    if low.size % 2:
        low = np.append(low, np.uint8(0))
    found: np.ndarray = low[0::2] | low[1::2] << 4
    return found


def unpacked_4bit(data: np.ndarray, count: int, *, signed: bool) -> np.ndarray:
    """int8 or uint8 [count] of such bytes."""
    found = np.empty(data.size * 2, np.uint8)
    found[0::2], found[1::2] = data & 0xF, data >> 4
    found = found[:count]
    return ((found ^ 8).astype(np.int8) - 8) if signed else found
