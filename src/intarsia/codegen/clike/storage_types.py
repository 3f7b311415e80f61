"""In what a device computes and stores the elements of each ONNX type."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from intarsia.graph.dtypes import DType


class Kind(enum.Enum):
    """A type that values have while they are computed with."""

    BOOL = "bool"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    F32 = "f32"
    F64 = "f64"

    @property
    def is_float(self) -> bool:
        return self in (Kind.F32, Kind.F64)

    @property
    def is_signed(self) -> bool:
        return self in (Kind.I32, Kind.I64)

    @property
    def bits(self) -> int:
        return 64 if self in (Kind.I64, Kind.U64, Kind.F64) else 32


KINDS: Mapping[DType, Kind] = {
    DType.BOOL: Kind.BOOL, DType.FLOAT: Kind.F32, DType.FLOAT16: Kind.F32, DType.BFLOAT16: Kind.F32, DType.DOUBLE: Kind.F64,
    DType.INT2: Kind.I32, DType.INT4: Kind.I32, DType.INT8: Kind.I32, DType.INT16: Kind.I32, DType.INT32: Kind.I32,
    DType.UINT2: Kind.U32, DType.UINT4: Kind.U32, DType.UINT8: Kind.U32, DType.UINT16: Kind.U32, DType.UINT32: Kind.U32,
    DType.INT64: Kind.I64, DType.UINT64: Kind.U64, DType.FLOAT8E4M3FN: Kind.F32, DType.FLOAT8E4M3FNUZ: Kind.F32,
    DType.FLOAT8E5M2: Kind.F32, DType.FLOAT8E5M2FNUZ: Kind.F32, DType.FLOAT4E2M1: Kind.F32,
    DType.FLOAT8E8M0: Kind.F32,
}  # fmt: skip
"""The kind in which an element is computed: narrow floats as float32, rounded by every cast and store."""


SEVERAL_IN_A_BYTE = frozenset((DType.INT2, DType.UINT2, DType.INT4, DType.UINT4, DType.FLOAT4E2M1))
"""Types of which a byte of a device's memory holds several, the first one in its lowest bits, as ONNX keeps them."""


def stored_bits(dtype: DType) -> int:
    """Bits of one element in a device's memory: a byte for booleans; numbers of four and of two bits lie side by side."""
    return dtype.bits if dtype in SEVERAL_IN_A_BYTE else 8 * dtype.numpy.itemsize


def stored_nbytes(dtype: DType, count: int) -> int:
    """Bytes of so many elements in a device's memory."""
    return -(-count * stored_bits(dtype) // 8)


def is_narrow(dtype: DType) -> bool:
    """Whether an element takes less than 32 bits."""
    return stored_bits(dtype) < 32
