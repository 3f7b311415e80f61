"""ONNXTensorElementDataType: onnxruntime's numbers of element types, which part from ONNX's behind FLOAT4E2M1."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia.errors import NotImplemented
from intarsia.graph.dtypes import DType

_NUMBERS: Mapping[DType, int] = {
    **{dtype: int(dtype) for dtype in DType if dtype <= DType.FLOAT4E2M1},
    DType.UINT2: 24, DType.INT2: 25, DType.FLOAT8E8M0: 26,
}  # fmt: skip
_TYPES: Mapping[int, DType] = {number: dtype for dtype, number in _NUMBERS.items()}


def element_number(dtype: DType) -> int:
    """onnxruntime's number of an element type; 0 (undefined) of one that it has not."""
    return _NUMBERS.get(dtype, 0)


def element_type(number: int) -> DType:
    """The element type of one of onnxruntime's numbers.

    Raises:
        NotImplemented: a type that is newer than this version.
    """
    found = _TYPES.get(number)
    if found is None:
        raise NotImplemented(f"element type {number} is not known to this version of intarsia")
    return found
