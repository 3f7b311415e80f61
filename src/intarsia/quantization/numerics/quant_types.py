"""The element types that tensors are quantised to, and the formats of quantised models, under onnxruntime's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import ml_dtypes
import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType

_Member = TypeVar("_Member", bound=Enum)


def _named(kind: type[_Member], text: str) -> _Member:
    """The member of an enumeration that is called `text`."""
    if text not in kind.__members__:
        raise InvalidArgument(f"{kind.__name__}: expected one of {', '.join(kind.__members__)}, got {text!r}")
    return kind[text]


class QuantType(Enum):
    """An element type of quantised tensors; `tensor_type` is ONNX's number of it."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(t: str) -> QuantType:
        """The type of this name.

        Raises:
            InvalidArgument: no such type.
        """
        return _named(QuantType, t)

    @property
    def tensor_type(self) -> int:
        return int(DType[self.name.removeprefix("Q").upper()])


class QuantFormat(Enum):
    """Quantised operators, or float operators between pairs of QuantizeLinear and DequantizeLinear."""

    QOperator = 0
    QDQ = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(format: str) -> QuantFormat:
        """The format of this name.

        Raises:
            InvalidArgument: no such format.
        """
        return _named(QuantFormat, format)


class QuantizationMode(Enum):
    """Which operators replace those of a model: integer ones with dynamic ranges, or QLinear ones with calibrated ranges."""

    IntegerOps = 0
    QLinearOps = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(mode: str) -> QuantizationMode:
        """The mode of this name.

        Raises:
            InvalidArgument: no such mode.
        """
        return _named(QuantizationMode, mode)


class QuantizedValueType(Enum):
    """Whether a quantised value is computed or stored."""

    Input = 0
    Initializer = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(v: str) -> QuantizedValueType:
        """The kind of this name.

        Raises:
            InvalidArgument: no such kind.
        """
        return _named(QuantizedValueType, v)


@dataclass(frozen=True)
class IntegerType:
    """An integer type of quantised tensors.

    Attributes:
        number: ONNX's.
        dtype: NumPy's.
        low, high: its least and greatest value.
    """

    number: int
    dtype: np.dtype
    low: int
    high: int

    @property
    def signed(self) -> bool:
        return self.low < 0

    @property
    def bits(self) -> int:
        return (self.high - self.low).bit_length()

    def bounds(self, *, symmetric: bool = False, reduced: bool = False) -> tuple[int, int]:
        """The values that are used: all; as many on both sides of 0 (8 and 16 bits); or one bit less.

        Reduced ranges keep sums of products of CPUs without VNNI from saturating. Signed ones have both ends in 8 and 16 bits,
        as in onnxruntime.
        """
        if reduced:
            if not self.signed:
                return 0, self.high >> 1
            return self.low // 2, self.high // 2 if self.bits == 4 else -(self.low // 2)
        if symmetric and self.signed and self.bits > 4:
            return -self.high, self.high
        return self.low, self.high


INTEGER_TYPES: dict[int, IntegerType] = {
    kind.number: kind
    for kind in (
        IntegerType(DType.UINT8, np.dtype(np.uint8), 0, 255),
        IntegerType(DType.INT8, np.dtype(np.int8), -128, 127),
        IntegerType(DType.UINT16, np.dtype(np.uint16), 0, 65535),
        IntegerType(DType.INT16, np.dtype(np.int16), -32768, 32767),
        IntegerType(DType.UINT4, np.dtype(ml_dtypes.uint4), 0, 15),
        IntegerType(DType.INT4, np.dtype(ml_dtypes.int4), -8, 7),
    )
}
"""ONNX's number of an element type -> what it is; of those that weights and activations are quantised to."""

FLOAT8 = int(DType.FLOAT8E4M3FN)
FLOAT_TYPES = (int(DType.FLOAT), int(DType.FLOAT16))
"""The element types of tensors that can be quantised."""


def integer_type(number: int) -> IntegerType:
    """The integer type of ONNX's number.

    Raises:
        InvalidArgument: another type.
    """
    found = INTEGER_TYPES.get(int(number))
    if found is None:
        names = ", ".join(DType(n).name for n in INTEGER_TYPES)
        given = DType(number).name if number in set(DType) else number
        raise InvalidArgument(f"quantised tensors have one of the types {names}; got {given}")
    return found


def storage_dtype(number: int) -> np.dtype:
    """NumPy's type of a quantised tensor, float8 (E4M3FN) among them.

    Raises:
        InvalidArgument: another type.
    """
    return np.dtype(ml_dtypes.float8_e4m3fn) if number == FLOAT8 else integer_type(number).dtype


def type_number(kind: QuantType | int) -> int:
    """ONNX's number of a type that is given as QuantType or as that number."""
    return kind.tensor_type if isinstance(kind, QuantType) else int(kind)
