"""Floats of 16, 8 and 4 bits: how their bits are numbers."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Format:
    """A float of 1 sign bit, `exponent` and `mantissa` bits.

    Attributes:
        bias: of the exponent.
        largest: bits of the largest finite number.
        infinity: bits of infinity, None where there is none.
        nan: bits of a NaN; None where there is none. With `unsigned_zero` it is the pattern of -0, the only NaN.
        saturates: numbers that are too large (infinities too, unless there is one) become the largest.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    unsigned_zero: bool = False
    saturates: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)


FORMATS: Mapping[DType, Format] = {
    DType.FLOAT16: Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, saturates=False),
    DType.BFLOAT16: Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, saturates=False),
    DType.FLOAT8E4M3FN: Format(4, 3, 7, 0x7E, None, 0x7F),
    DType.FLOAT8E4M3FNUZ: Format(4, 3, 8, 0x7F, None, 0x80, unsigned_zero=True),
    DType.FLOAT8E5M2: Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    DType.FLOAT8E5M2FNUZ: Format(5, 2, 16, 0x7F, None, 0x80, unsigned_zero=True),
    DType.FLOAT4E2M1: Format(2, 1, 1, 0x7, None, None),
}
