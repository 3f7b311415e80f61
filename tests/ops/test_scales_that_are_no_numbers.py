"""Sums of bytes with scales, biases and residuals that are NaN, infinite or huge: the CPU's kernels as the definitions.

Bytes take NaN for the lowest number, activations keep it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import intarsia
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue

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
SUMS = "i = MatMulInteger(a, w, z, z) d = Cast<to=1>(i)"
TEXTS |= {  # primitives that make NaN of sums
    "a logarithm": ("uint8[n,4] a", "int8[n,3]", f"{SUMS} e = Log(d) y = QuantizeLinear(e, s, low)"),
    "a logarithm of QDQ": (
        "uint8[n,4] a", "int8[n,3]", """t = DequantizeLinear(a, one, z) v = DequantizeLinear(w, one, z) d = MatMul(t, v)
        e = Log(d) y = QuantizeLinear(e, s, low)""",
    ),
    "a root": ("uint8[n,4] a", "float[n,3]", f"{SUMS} e = Sqrt(d) t = Mul(e, s) y = Relu(t)"),
    "a quotient by sums": ("uint8[n,4] a", "int8[n,3]", f"{SUMS} e = Div(d, d) y = QuantizeLinear(e, s, low)"),
}  # fmt: skip


# Scales of convolutions are constants; QGemm multiplies its bias by the scale beforehand, and infinity less infinity is NaN.
CASES = [
    (name, known, scale) for name in TEXTS for known in (True, False) for scale in SCALES
    if (name != "QLinearConv" or known) and (name != "QGemm" or not np.isinf(scale))
]  # fmt: skip


def model_of(name: str, known: bool, scale: float) -> bytes:
    """`known`: the scale is a constant."""
    given, result, nodes = TEXTS[name]
    declared = f"{given}, float s" if not known else given
    text = f"""{HEAD} g ({declared}) => ({result} y) <float one = {{0.5}}, uint8 z = {{3}}, int8 low = {{-5}},
        int32[3] c = {{0, 5, -5}},
        uint8[4,3] w = {{1, 2, 3, 3, 3, 3, 200, 7, 3, 4, 9, 0}}, int64[4] four = {{0, 4, 1, 1}}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    weights = np.array([1, 2, 3, 3, 3, 3, 200, 7, 3, 4, 9, 0], np.uint8).reshape(4, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(weights.T).reshape(3, 4, 1, 1), "f"))
    if known:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(scale), "s"))
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(("name", "known", "scale"), CASES)
def test_sums_of_bytes(name: str, known: bool, scale: float) -> None:
    model = model_of(name, known, scale)
    feeds: dict[str, Any] = {"a": A} if known else {"a": A, "s": np.float32(scale)}
    cpu, reference = (
        intarsia.InferenceSession(model, providers=[provider]).run(None, feeds)[0]
        for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider")
    )
    np.testing.assert_allclose(cpu.astype(np.float64), reference.astype(np.float64), rtol=1e-5, atol=cpu.dtype != np.float32)
    if np.isnan(scale) and cpu.dtype != np.int8:
        assert (reference == 0).all() if cpu.dtype == np.uint8 else np.isnan(reference).all()


@pytest.mark.parametrize(("name", "scale", "tame"), [
    ("QLinearMatMul", np.nan, False), ("QLinearMatMul", 1e30, False), ("QLinearMatMul, of the output", 0.02, True),
    ("QLinearMatMul, of the output", 0.0, False), ("a quotient", 0.02, True), ("a quotient", np.inf, False),
    ("QGemm", 0.02, True), ("a logarithm", 0.02, False), ("a logarithm of QDQ", 0.02, False), ("a root", 0.02, False),
    ("a quotient by sums", 0.02, False),
])  # fmt: skip
def test_numbers_that_make_no_nan_cost_nothing(name: str, scale: float, tame: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels look for NaN only where a constant may make one; bounds of bytes, 0 among them, divide nothing."""
    made: list[bool] = []

    def epilogue(root: Any, kinds: Any, dtypes: Any, tame: bool) -> Epilogue:
        made.append(tame)
        return Epilogue(root, kinds, dtypes, tame)

    monkeypatch.setattr("intarsia.providers.cpu.lowering.lower.Epilogue", epilogue)
    intarsia.InferenceSession(model_of(name, known=True, scale=scale), providers=["CPUExecutionProvider"])
    assert made
    assert all(made) == tame
