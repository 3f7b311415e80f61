"""Softmax, LogSoftmax and Hardmax of old operator sets whose axis is the rank: every element is a row."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import intarsia as ort


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize(("op", "value", "of_nan"), [("Softmax", 1, np.nan), ("LogSoftmax", 0, np.nan), ("Hardmax", 1, 1)])
@pytest.mark.parametrize("opset", [9, 11])
def test_every_element_is_a_row(op: str, value: float, of_nan: float, opset: int, provider: str) -> None:
    text = f'<ir_version: 6, opset_import: ["" : {opset}]> g (float[2, 3] x) => (float y) {{ y = {op}<axis = 2>(x) }}'
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    (y,) = session.run(None, {"x": np.array([[1, 2, 3], [np.nan, -5, 1e30]], np.float32)})
    np.testing.assert_array_equal(y, np.array([[value] * 3, [of_nan, value, value]], np.float32))
