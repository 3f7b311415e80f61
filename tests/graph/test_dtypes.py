"""Element types as text: messages have NumPy's names, `repr` has the member."""

from __future__ import annotations

import json
import pickle

import numpy as np
import onnx
import pytest

from intarsia.graph.dtypes import DType


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_text_of_an_element_type(dtype: DType) -> None:
    expected = {DType.UNDEFINED: "undefined", DType.STRING: "str"}.get(dtype) or str(dtype.numpy)
    assert str(dtype) == f"{dtype}" == f"{dtype!s}" == "%s" % dtype == expected  # noqa: UP031 # the log's way
    assert f"{dtype:>16}|" == expected.rjust(16) + "|"
    assert repr(dtype) == f"<DType.{dtype.name}: {int(dtype)}>"


def test_texts_of_element_types_differ() -> None:
    assert len({str(dtype) for dtype in DType}) == len(DType)


@pytest.mark.parametrize("dtype", list(DType), ids=lambda d: d.name)
def test_as_data_an_element_type_is_its_number(dtype: DType) -> None:
    assert json.loads(json.dumps({"type": dtype})) == {"type": int(dtype)}
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert hash(dtype) == hash(int(dtype))


def test_names_are_those_of_numpy_and_onnx() -> None:
    names = {d: str(d) for d in (DType.FLOAT, DType.DOUBLE, DType.INT64, DType.BOOL, DType.BFLOAT16, DType.FLOAT4E2M1)}
    assert list(names.values()) == ["float32", "float64", "int64", "bool", "bfloat16", "float4_e2m1fn"]
    for dtype in (DType.FLOAT, DType.DOUBLE, DType.UINT8, DType.FLOAT16, DType.COMPLEX64):
        assert np.dtype(str(dtype)) == onnx.helper.tensor_dtype_to_np_dtype(int(dtype))
