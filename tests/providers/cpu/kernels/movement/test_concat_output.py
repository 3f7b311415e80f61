"""Concat into outputs of a program: the same whether results are so large that they pass by the caches or not."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia
from intarsia.providers.cpu.kernels.attention import attention_calls
from intarsia.providers.cpu.kernels.movement import concat_output

MODELS = {
    "last axis": ("float[n, 3] a, float[n, 5] b", "float[n, 8] y", "y = Concat<axis=1>(a, b)", [(4, 3), (4, 5)], 1),
    "in the middle": (
        "float[1, 8, p, 64] a, float[1, 8, q, 64] b", "float[1, 8, r, 64] y", "y = Concat<axis=2>(a, b)",
        [(1, 8, 200, 64), (1, 8, 1, 64)], 2,
    ),
    "read again": (
        "float[2, n, 4] a, float[2, m, 4] b", "float[2, k, 4] y, float[2, k, 4] z",
        "y = Concat<axis=1>(a, b) z = Relu(y)", [(2, 3, 4), (2, 70, 4)], 1,
    ),
    "the same twice": ("double[n, 3] a, double[n, 3] b", "double[n, 9] y", "y = Concat<axis=1>(a, b, a)", [(5, 3), (5, 3)], 1),
}  # fmt: skip


def model(inputs: str, outputs: str, nodes: str) -> bytes:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    made: bytes = onnx.parser.parse_model(text).SerializeToString()
    return made


BOTH_WAYS = pytest.mark.parametrize("least", [0, 1 << 40], ids=["past the caches", "through them"])


@BOTH_WAYS
@pytest.mark.parametrize("name", MODELS)
def test_concat_into_outputs(name: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concat_output, "streamed_nbytes", lambda *_: least)
    inputs, outputs, nodes, shapes, axis = MODELS[name]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float64 if "double" in inputs else np.float32) for s in shapes)
    found = intarsia.InferenceSession(model(inputs, outputs, nodes), providers=["CPUExecutionProvider"])
    y, *others = found.run(None, {"a": a, "b": b})
    expected = np.concatenate([a, b, a] if "twice" in name else [a, b], axis)
    np.testing.assert_array_equal(y, expected)
    for z in others:
        np.testing.assert_array_equal(z, np.maximum(expected, 0))


@BOTH_WAYS
def test_caches_of_attention(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_calls, "streamed_nbytes", lambda *_: least)
    heads, past, width = 4, 33, 16
    row, cache = (1, 1, heads * width), (1, heads, "p", width)
    shapes = {"a": row, "b": row, "c": row, "pk": cache, "pv": cache}
    given = ["a", "b", "c", "", "pk", "pv"]
    node = helper.make_node("Attention", given, ["y", "k", "v"], q_num_heads=heads, kv_num_heads=heads)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ykv"]
    made = helper.make_model(
        helper.make_graph([node], "g", values, results), opset_imports=[helper.make_opsetid("", 23)], ir_version=10
    )
    found = intarsia.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal([past if d == "p" else d for d in s]).astype("f4") for n, s in shapes.items()}
    y, keys, values_ = found.run(None, feeds)
    for joined_, before, new in ((keys, "pk", "b"), (values_, "pv", "c")):
        np.testing.assert_array_equal(joined_, np.concatenate([feeds[before], feeds[new].reshape(1, heads, 1, width)], 2))
    scores = np.einsum("hd,hkd->hk", feeds["a"].reshape(heads, width).astype("f8"), keys[0]) / np.sqrt(width)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = np.einsum("hk,hkd->hd", weights / weights.sum(1, keepdims=True), values_[0])
    np.testing.assert_allclose(y.reshape(heads, width), expected, rtol=2e-5, atol=2e-6)
