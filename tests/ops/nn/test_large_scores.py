"""Softmax and its like of scores that are products: the largest less itself is 0, however large it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import intarsia

X = np.array([[3, 5, 7], [1, 2, 9], [11, 11, 11], [-3, -5, -7], [0, 0, 0]], np.float32)
PRODUCT = "d = Mul(x, s)"
MODELS = {  # nodes, and the result for float64 scores d
    "Softmax": f"{PRODUCT} y = Softmax<axis=-1>(d)",
    "LogSoftmax": f"{PRODUCT} y = LogSoftmax<axis=-1>(d)",
    "of bytes": "b = Cast<to=3>(x) d = DequantizeLinear(b, s, zero) y = Softmax<axis=-1>(d)",
    "written out": f"{PRODUCT} m = ReduceMax<keepdims=1>(d, last) t = Sub(d, m) e = Exp(t) a = ReduceSum<keepdims=1>(e, last) "
    "y = Div(e, a)",
    "the least": f"{PRODUCT} n = Neg(d) m = ReduceMin<keepdims=1>(n, last) t = Sub(m, n) e = Exp(t) "
    "a = ReduceSum<keepdims=1>(e, last) y = Div(e, a)",
    "ReduceLogSumExp": f"{PRODUCT} y = ReduceLogSumExp<keepdims=1>(d, last)",
}


def expected(name: str, d: np.ndarray) -> np.ndarray:
    shifted = d - d.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, keepdims=True)
    if name == "ReduceLogSumExp":
        return np.log(total) + d.max(1, keepdims=True)
    return shifted - np.log(total) if name == "LogSoftmax" else np.exp(shifted) / total


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [0.3, 1.1e8, 1.23e10, 1.23e30])
def test_scores(provider: str, name: str, scale: float) -> None:
    zero = 3
    text = f"""<ir_version: 10, opset_import: ["": 20]> g (float[N,3] x, float s) => (float[N,K] y)
        <int64[1] last = {{1}}, int8 zero = {{{zero}}}> {{ {MODELS[name]} }}"""
    session = intarsia.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    d = (X - (zero if name == "of bytes" else 0)) * np.float32(scale)
    (y,) = session.run(None, {"x": X, "s": np.float32(scale)})
    np.testing.assert_allclose(y, expected(name, d.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_selections_of_one_value_again_and_again(provider: str) -> None:
    """What is subtracted is looked at; each of these has two ways to the one before it, a hundred times."""
    chain = "".join(f"v{i + 1} = Where(c, v{i}, v{i}) " for i in range(100))
    text = f"""<ir_version: 10, opset_import: ["": 20]> g (float[N] v0, bool[N] c, float[N] x) => (float[N] y)
        {{ {chain} y = Sub(x, v100) }}"""
    options = intarsia.SessionOptions()
    options.graph_optimization_level = intarsia.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = intarsia.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options, [provider])
    (y,) = session.run(None, {"v0": np.float32([1, 2]), "c": np.array([True, False]), "x": np.float32([7, 7])})
    np.testing.assert_array_equal(y, [6, 5])
