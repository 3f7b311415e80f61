"""Element types: ONNX's `TensorProto.DataType` numbers with their NumPy counterparts."""

from __future__ import annotations

import enum
from functools import cache, cached_property
from typing import Any

import numpy as np

MOST_BYTES = 1 << 47  # of a tensor: what a process can address


class DType(enum.IntEnum):
    """An ONNX element type; the value is the number in `TensorProto.DataType`."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    def __str__(self) -> str:
        """As NumPy says it: float32, not the number 1."""
        return "undefined" if self is DType.UNDEFINED else "str" if self is DType.STRING else self.numpy.name

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of one element in memory (ml_dtypes' for types NumPy lacks; object for strings)."""
        name = _NUMPY_NAMES[self]
        if name in _ML_DTYPES:
            import ml_dtypes

            found: np.dtype = np.dtype(getattr(ml_dtypes, name))
            return found
        return np.dtype(name)

    @cached_property
    def bits(self) -> int:
        """Bits of one element as ONNX stores it (4 for int4: two elements share a byte; 6 for float6)."""
        if self in (DType.UINT4, DType.INT4, DType.FLOAT4E2M1):
            return 4
        if self in (DType.UINT2, DType.INT2):
            return 2
        if self in (DType.FLOAT6E2M3, DType.FLOAT6E3M2):
            return 6
        if self in _ML_DTYPE_BITS:
            return _ML_DTYPE_BITS[self]
        return 8 * self.numpy.itemsize

    @cached_property
    def onnx_name(self) -> str:
        """ONNX's word for the type, as in `tensor(float)`."""
        return self.name.lower()

    @cached_property
    def is_floating(self) -> bool:
        return self in (DType.FLOAT, DType.FLOAT16, DType.DOUBLE, DType.BFLOAT16) or self.name.startswith("FLOAT")

    @cached_property
    def is_signed_integer(self) -> bool:
        return self in (DType.INT2, DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT64)

    @cached_property
    def is_unsigned_integer(self) -> bool:
        return self in (DType.UINT2, DType.UINT4, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64)

    @property
    def is_integer(self) -> bool:
        return self.is_signed_integer or self.is_unsigned_integer

    @property
    def is_complex(self) -> bool:
        return self in (DType.COMPLEX64, DType.COMPLEX128)

    @staticmethod
    def of(dtype: Any) -> DType:
        """The ONNX type of a NumPy dtype (or of anything `numpy.dtype` accepts).

        Raises:
            TypeError: NumPy's type has no ONNX counterpart.
        """
        if isinstance(dtype, DType):
            return dtype
        return _of(np.dtype(dtype))


_ML_DTYPES = {
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint4", "int4", "float4_e2m1fn",
    "float8_e8m0fnu", "uint2", "int2", "float6_e2m3fn", "float6_e3m2fn",
}  # fmt: skip

# Known without importing ml_dtypes, so that loading a model stays cheap.
_ML_DTYPE_BITS = {
    DType.BFLOAT16: 16, DType.FLOAT8E4M3FN: 8, DType.FLOAT8E4M3FNUZ: 8, DType.FLOAT8E5M2: 8, DType.FLOAT8E5M2FNUZ: 8,
    DType.FLOAT8E8M0: 8,
}  # fmt: skip

_NUMPY_NAMES = {
    DType.UNDEFINED: "V0", DType.FLOAT: "float32", DType.UINT8: "uint8", DType.INT8: "int8", DType.UINT16: "uint16",
    DType.INT16: "int16", DType.INT32: "int32", DType.INT64: "int64", DType.STRING: "object", DType.BOOL: "bool",
    DType.FLOAT16: "float16", DType.DOUBLE: "float64", DType.UINT32: "uint32", DType.UINT64: "uint64",
    DType.COMPLEX64: "complex64", DType.COMPLEX128: "complex128", DType.BFLOAT16: "bfloat16",
    DType.FLOAT8E4M3FN: "float8_e4m3fn", DType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz", DType.FLOAT8E5M2: "float8_e5m2",
    DType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz", DType.UINT4: "uint4", DType.INT4: "int4",
    DType.FLOAT4E2M1: "float4_e2m1fn", DType.FLOAT8E8M0: "float8_e8m0fnu", DType.UINT2: "uint2", DType.INT2: "int2",
    DType.FLOAT6E2M3: "float6_e2m3fn", DType.FLOAT6E3M2: "float6_e3m2fn",
}  # fmt: skip

_BY_NUMPY_NAME = {name: dtype for dtype, name in _NUMPY_NAMES.items() if dtype is not DType.UNDEFINED}


@cache
def _of(dtype: np.dtype) -> DType:
    if dtype.kind in "US":
        return DType.STRING
    found = _BY_NUMPY_NAME.get(dtype.name)
    if found is None:
        raise TypeError(f"NumPy dtype {dtype!r} has no ONNX element type")
    return found
