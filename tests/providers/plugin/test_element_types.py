"""Numbers of element types in onnxruntime's C interface."""

from __future__ import annotations

import pytest

from intarsia.errors import NotImplemented
from intarsia.graph.dtypes import DType
from intarsia.providers.plugin.interface.element_types import element_number, element_type


def test_numbers_part_from_onnx_behind_float4() -> None:
    """onnxruntime_c_api.h: UINT2 and INT2 came before FLOAT8E8M0, which ONNX has in front of them."""
    assert [element_number(t) for t in (DType.FLOAT, DType.STRING, DType.FLOAT4E2M1)] == [1, 8, 23]
    assert [element_number(t) for t in (DType.UINT2, DType.INT2, DType.FLOAT8E8M0)] == [24, 25, 26]
    assert element_number(DType.FLOAT6E2M3) == 0
    for number in range(1, 27):
        assert element_number(element_type(number)) == number


def test_a_number_that_is_not_known() -> None:
    with pytest.raises(NotImplemented, match="element type 27 is not known to this version"):
        element_type(27)
