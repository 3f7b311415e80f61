"""Operand types of NNAPI as its header numbers them, and real numbers as the bytes of a quantised tensor and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOAT32, INT32, UINT32, TENSOR_FLOAT32, TENSOR_INT32, TENSOR_QUANT8_ASYMM, BOOL, TENSOR_QUANT16_SYMM = range(8)
TENSOR_FLOAT16, TENSOR_BOOL8, FLOAT16, TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_QUANT16_ASYMM = range(8, 13)
TENSOR_QUANT8_SYMM, TENSOR_QUANT8_ASYMM_SIGNED, MODEL = range(13, 16)

NAMES = {
    number: name for name, number in globals().items()
    if isinstance(number, int) and name.isupper() and not name.startswith("_")
}  # fmt: skip
SCALARS = frozenset((FLOAT32, INT32, UINT32, BOOL, FLOAT16))
NUMPY: dict[int, Any] = {
    FLOAT32: np.float32, INT32: np.int32, UINT32: np.uint32, TENSOR_FLOAT32: np.float32, TENSOR_INT32: np.int32,
    TENSOR_QUANT8_ASYMM: np.uint8, BOOL: np.bool_, TENSOR_QUANT16_SYMM: np.int16, TENSOR_FLOAT16: np.float16,
    TENSOR_BOOL8: np.bool_, FLOAT16: np.float16, TENSOR_QUANT8_SYMM_PER_CHANNEL: np.int8, TENSOR_QUANT16_ASYMM: np.uint16,
    TENSOR_QUANT8_SYMM: np.int8, TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
}  # fmt: skip
QUANTIZED = frozenset(
    (TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_SYMM, TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_QUANT16_ASYMM, TENSOR_QUANT8_SYMM,
     TENSOR_QUANT8_ASYMM_SIGNED)
)  # fmt: skip
SINCE = {
    FLOAT32: 27, INT32: 27, UINT32: 27, TENSOR_FLOAT32: 27, TENSOR_INT32: 27, TENSOR_QUANT8_ASYMM: 27, BOOL: 29,
    TENSOR_QUANT16_SYMM: 29, TENSOR_FLOAT16: 29, TENSOR_BOOL8: 29, FLOAT16: 29, TENSOR_QUANT8_SYMM_PER_CHANNEL: 29,
    TENSOR_QUANT16_ASYMM: 29, TENSOR_QUANT8_SYMM: 29, TENSOR_QUANT8_ASYMM_SIGNED: 30, MODEL: 30,
}  # fmt: skip
"""The feature level from which each operand type exists."""


@dataclass
class Operand:
    """As `addOperand` was given it; a dimension of 0, and no dimensions, mean that it is not known."""

    type: int
    dims: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    channel_dim: int = 0
    channel_scales: Sequence[float] = ()
    value: Any = None
    omitted: bool = False
    pointer: tuple[int, int] | None = None  # address and bytes of a value that the caller keeps alive
    lent: dict[str, Any] = field(default_factory=dict)

    @property
    def scalar(self) -> bool:
        return self.type in SCALARS

    def nbytes(self, dims: Sequence[int] | None = None) -> int:
        shape = self.dims if dims is None else dims
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(NUMPY[self.type]).itemsize

    def scales(self, rank: int) -> Any:
        """The scale, or one for each index of the channels' dimension, ready to be multiplied with the tensor."""
        if self.type != TENSOR_QUANT8_SYMM_PER_CHANNEL:
            return float(self.scale)
        shape = [1] * rank
        shape[self.channel_dim] = -1
        return np.asarray(self.channel_scales, np.float64).reshape(shape)


def real(stored: np.ndarray, operand: Operand) -> np.ndarray:
    """What the elements of a quantised tensor stand for, in float64."""
    return (stored.astype(np.float64) - operand.zero_point) * operand.scales(stored.ndim)


def half_away(x: np.ndarray) -> np.ndarray:
    """To the nearest whole number, halves away from zero, as C's `round`."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def stored(x: np.ndarray, operand: Operand) -> np.ndarray:
    """Real numbers as elements of the operand's type; quantised ones are rounded, and saturate."""
    kind = NUMPY[operand.type]
    if operand.type in QUANTIZED:
        limits = np.iinfo(kind)
        steps = half_away(np.asarray(x, np.float64) / operand.scales(np.ndim(x))) + operand.zero_point
        return np.clip(steps, limits.min, limits.max).astype(kind)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(kind)
