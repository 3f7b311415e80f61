"""Sums of bytes with scales, biases and residuals that are NaN, infinite or huge: the CPU's kernels as the definitions.

Bytes take NaN for the lowest number, activations keep it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import intarsia

SCALES = (np.nan, -np.nan, np.inf, -np.inf, 0.0, 1e30, 1e-30, -0.02, 0.02)
HEAD = '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]> '
A = np.array([[1, 2, 3, 250], [7, 0, 0, 1]], np.uint8)
TEXTS = {
    "QLinearMatMul": ("uint8[n,4] a", "uint8[n,3]", "y = QLinearMatMul(a, one, z, w, s, z, one, z)"),
    "QLinearMatMul, of the input": ("uint8[n,4] a", "uint8[n,3]", "y = QLinearMatMul(a, s, z, w, one, z, one, z)"),
    "QLinearMatMul, of the output": ("uint8[n,4] a", "uint8[n,3]", "y = QLinearMatMul(a, one, z, w, one, z, s, z)"),
    "QGemm": ("uint8[n,4] a", "uint8[n,3]", "y = com.microsoft.QGemm(a, one, z, w, s, z, c, one, z)"),
    "QLinearConv": ("uint8[n,4] a", "uint8[n,3,1,1]", "b = Reshape(a, four) y = QLinearConv(b, s, z, f, one, z, one, z, c)"),
    "a factor": ("uint8[n,4] a", "float[n,3]", "i = MatMulInteger(a, w, z, z) d = Cast<to=1>(i) e = Mul(d, s) y = Relu(e)"),
    "a bias": ("uint8[n,4] a", "float[n,3]", "i = MatMulInteger(a, w, z, z) d = Cast<to=1>(i) e = Add(d, s) y = Relu(e)"),
    "a quotient": ("uint8[n,4] a", "uint8[n,3]", "i = MatMulInteger(a, w, z, z) d = Cast<to=1>(i) y = QuantizeLinear(d, s, z)"),
}


# Scales of convolutions are constants; QGemm multiplies its bias by the scale beforehand, and infinity less infinity is NaN.
CASES = [
    (name, known, scale) for name in TEXTS for known in (True, False) for scale in SCALES
    if (name != "QLinearConv" or known) and (name != "QGemm" or not np.isinf(scale))
]  # fmt: skip


@pytest.mark.parametrize(("name", "known", "scale"), CASES)
def test_sums_of_bytes(name: str, known: bool, scale: float) -> None:
    given, result, nodes = TEXTS[name]
    declared = f"{given}, float s" if not known else given
    text = f"""{HEAD} g ({declared}) => ({result} y) <float one = {{0.5}}, uint8 z = {{3}}, int32[3] c = {{0, 5, -5}},
        uint8[4,3] w = {{1, 2, 3, 3, 3, 3, 200, 7, 3, 4, 9, 0}}, int64[4] four = {{0, 4, 1, 1}}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    weights = np.array([1, 2, 3, 3, 3, 3, 200, 7, 3, 4, 9, 0], np.uint8).reshape(4, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(weights.T).reshape(3, 4, 1, 1), "f"))
    if known:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(scale), "s"))
    feeds: dict[str, Any] = {"a": A} if known else {"a": A, "s": np.float32(scale)}
    cpu, reference = (
        intarsia.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)[0]
        for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider")
    )
    np.testing.assert_allclose(cpu.astype(np.float64), reference.astype(np.float64), rtol=1e-5, atol=cpu.dtype == np.uint8)
    if np.isnan(scale):
        assert (reference == 0).all() if cpu.dtype == np.uint8 else np.isnan(reference).all()
