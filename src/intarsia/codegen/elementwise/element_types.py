"""The LLVM types of elements: in memory, and those in which they are computed."""

from __future__ import annotations

from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType

F32, F64 = ir_builder.FloatType(), ir_builder.DoubleType()
I1, I8, I16, I32, I64 = (ir_builder.IntType(n) for n in (1, 8, 16, 32, 64))
PTR = ir_builder.PointerType()

_INTEGER_BITS = {
    DType.INT8: 8, DType.INT16: 16, DType.INT32: 32, DType.INT64: 64,
    DType.UINT8: 8, DType.UINT16: 16, DType.UINT32: 32, DType.UINT64: 64,
}  # fmt: skip
_WIDE = {DType.FLOAT: F32, DType.DOUBLE: F64, DType.FLOAT16: F32, DType.BFLOAT16: F32, DType.BOOL: I1}
FEW_BIT_INTEGERS = frozenset((DType.INT4, DType.UINT4, DType.INT2, DType.UINT2))
FEW_BIT_FLOATS = frozenset((
    DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ, DType.FLOAT4E2M1,
))  # fmt: skip
NARROW = FEW_BIT_FLOATS | FEW_BIT_INTEGERS | {DType.FLOAT8E8M0}  # numbers become the last one in its operators' definitions

SUPPORTED_DTYPES = frozenset((*_INTEGER_BITS, *_WIDE))


def compute_type(dtype: DType) -> ir_builder.Type:
    """The LLVM type in which one element is computed."""
    if dtype in NARROW:
        return I8
    return _WIDE.get(dtype) or ir_builder.IntType(_INTEGER_BITS[dtype])


def storage_type(dtype: DType) -> ir_builder.Type:
    """The LLVM type of one element in memory."""
    if dtype is DType.BOOL:
        return I8
    if dtype is DType.FLOAT16:
        return ir_builder.HalfType()
    return I16 if dtype is DType.BFLOAT16 else compute_type(dtype)
