"""What is in a model saved at ORT_ENABLE_BASIC: onnxruntime's tools look for these operators when they read it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import intarsia
from intarsia import GraphOptimizationLevel

RNG = np.random.default_rng(3)


def saved(text: str, path: Path, level: str = "ORT_ENABLE_BASIC", **constants: Any) -> onnx.ModelProto:
    """The model of a text in ONNX's form, as a session saves it, after a comparison of the two models' results."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items())
    options = intarsia.SessionOptions()
    options.graph_optimization_level = getattr(GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path / "saved.onnx")
    session = intarsia.InferenceSession(model.SerializeToString(), options, providers=["ReferenceExecutionProvider"])
    feeds = {v.name: drawn(v) for v in session.get_inputs()}
    again = intarsia.InferenceSession(options.optimized_model_filepath, providers=["CPUExecutionProvider"])
    for found, expected in zip(again.run(None, feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return onnx.load(options.optimized_model_filepath)


def drawn(value: Any) -> np.ndarray:
    sizes = {"B": 2, "S": 3}
    shape = [sizes.get(d, d) for d in value.shape]
    return RNG.integers(0, 2, shape) if value.type == "tensor(int64)" else RNG.normal(size=shape).astype(np.float32)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


HEADER = '<ir_version: 8, opset_import: ["": {}, "com.microsoft": 1]> '


def test_pairs_of_unsqueeze_stay(tmp_path: Path) -> None:
    text = """g (int64[B,S] mask, float[B,4,S,S] scores) => (float[B,4,S,S] y) {
        u = Unsqueeze(mask, a1)  v = Unsqueeze(u, a2)  c = Cast<to = 1>(v)  s = Sub(one, c)  m = Mul(s, big)
        a = Add(scores, m)  y = Softmax<axis = 3>(a) }"""
    given = {"a1": [1], "a2": [2], "one": np.float32(1), "big": np.float32(-1e4)}
    found = saved(HEADER.format(13) + text, tmp_path, **given)
    assert kinds(found) == ["Unsqueeze", "Unsqueeze", "Cast", "Sub", "Mul", "Add", "Softmax"]
    merged = saved(HEADER.format(13) + text, tmp_path, "ORT_ENABLE_EXTENDED", **given)
    assert "Unsqueeze" not in kinds(merged)


def test_pairs_of_unsqueeze_by_attribute_stay(tmp_path: Path) -> None:
    text = "g (float[B,S] x) => (float[B,1,1,S] y) { u = Unsqueeze<axes = [1]>(x)  v = Unsqueeze<axes = [2]>(u)  y = Relu(v) }"
    assert kinds(saved(HEADER.format(11) + text, tmp_path)) == ["Unsqueeze", "Unsqueeze", "Relu"]


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
@pytest.mark.parametrize("opset", [9, 11, 16, 17])
def test_layer_normalization_of_any_opset_stays(opset: int, level: str, tmp_path: Path) -> None:
    """Before 17 it is onnxruntime's own, in ONNX's domain, which its fusions write."""
    text = """g (float[B,S,16] x, float[B,S,16] z) => (float[B,S,16] y) {
        a = Add(x, z)  y = LayerNormalization<axis = -1>(a, g, b) }"""
    found = saved(HEADER.format(opset) + text, tmp_path, level, g=np.full(16, 1.5, np.float32), b=np.full(16, 0.5, np.float32))
    assert kinds(found) == ["Add", "LayerNormalization"]
    assert [(o.domain, o.version) for o in found.opset_import][:1] == [("", opset)]


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (13, "SimplifiedLayerNormalization<axis = -1>(a, g)"), (20, "SimplifiedLayerNormalization<axis = -1>(a, g)"),
        (9, "Affine<alpha = 2.0, beta = 0.5>(a)"), (6, "ScaledTanh<alpha = 2.0, beta = 0.5>(a)"), (9, "ThresholdedRelu(a)"),
        (8, "MeanVarianceNormalization(a)"),
    ],
)  # fmt: skip
def test_operators_that_onnx_has_no_schema_of_stay(opset: int, node: str, tmp_path: Path) -> None:
    text = HEADER.format(opset) + "g (float[B,S,16] x) => (float[B,S,16] y) { a = Relu(x)  y = " + node + " }"
    found = saved(text, tmp_path, g=np.full(16, 1.5, np.float32))
    assert kinds(found) == ["Relu", node.split("<")[0].split("(")[0]]


def test_neither_inputs_nor_outputs_nor_weights_are_in_value_info(tmp_path: Path) -> None:
    text = "g (float[B,S,16] x) => (y) { a = MatMul(x, w)  t = Relu(a)  y = Add(t, w2) }"
    weights = {"w": RNG.normal(size=(16, 4)).astype(np.float32), "w2": np.ones(4, np.float32)}
    found = saved(HEADER.format(17) + text, tmp_path, "ORT_ENABLE_EXTENDED", **weights)
    assert {v.name for v in found.graph.value_info} <= {"a", "t"}
    (y,) = found.graph.output
    assert [d.dim_param or d.dim_value for d in y.type.tensor_type.shape.dim] == ["B", "S", 4]


@pytest.mark.parametrize("declared", [[], ["a"], ["i", "t", "u"]])
def test_types_are_told_of_the_values_that_the_model_tells(declared: list[str], tmp_path: Path) -> None:
    """As onnxruntime does: its tools compare what they have fused with models that tell none."""
    text = """<float a, float i, float t, float u> { a = MatMul(x, w)  i = Identity(a)  t = Relu(i)
        y = If(c) <then_branch = b1 () => (float[B,4] p) <float u> { u = Neg(t)  p = Abs(u) },
                   else_branch = b2 () => (float[B,4] q) { q = Exp(t) }> }"""
    model = onnx.parser.parse_model(HEADER.format(17) + "g (float[B,16] x, bool c) => (float[B,4] y) " + text)
    branch = model.graph.node[-1].attribute[0].g
    for graph in (model.graph, branch):
        kept = [v for v in graph.value_info if v.name in declared]
        del graph.value_info[:]
        graph.value_info.extend(kept)
    model.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=(16, 4)).astype(np.float32), "w"))
    options = intarsia.SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    intarsia.InferenceSession(model.SerializeToString(), options, providers=["ReferenceExecutionProvider"])
    found = onnx.load(options.optimized_model_filepath).graph
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in found.value_info}
    assert shapes == {n: ["B", 4] for n in declared if n in ("a", "t")}
    (inner,) = (a.g for a in found.node[-1].attribute if a.name == "then_branch")
    assert [v.name for v in inner.value_info] == [n for n in declared if n == "u"]


def test_norms_that_were_not_trained_keep_scale_and_bias(tmp_path: Path) -> None:
    """Of random weights the scale is all ones and the bias all zeros: fusions look for Mul and Add."""
    text = """g (float[B,S,16] x) => (float[B,S,16] y) {
        m = ReduceMean<axes = [-1]>(x)  d = Sub(x, m)  p = Pow(d, two)  v = ReduceMean<axes = [-1]>(p)  e = Add(v, eps)
        s = Sqrt(e)  n = Div(d, s)  w = Mul(n, scale)  y = Add(w, bias) }"""
    given = {"two": np.float32(2), "eps": np.float32(1e-5), "scale": np.ones(16, np.float32), "bias": np.zeros(16, np.float32)}
    found = saved(HEADER.format(14) + text, tmp_path, **given)
    assert kinds(found) == ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]


def test_masks_that_say_nothing_stay(tmp_path: Path) -> None:
    """A causal mask of ones, and an Expand to the sizes that it has: transformers 5 exports masks so."""
    text = """g (int64[B,S] mask, float[B,4,S,S] scores) => (float[B,4,S,S] y) {
        shape = Shape(scores)  ones = ConstantOfShape<value = bool[1] {1}>(shape)  f = Cast<to = 9>(mask)
        r = Unsqueeze(f, a12)  b = And(ones, r)  e = Expand(b, shape)  w = Where(e, zero, low)  y = Add(scores, w) }"""
    given = {"a12": [1, 2], "zero": np.float32(0), "low": np.float32(-1e4)}
    found = kinds(saved(HEADER.format(13) + text, tmp_path, **given))
    assert {"And", "Expand", "Where"} <= set(found)
    assert "And" not in kinds(saved(HEADER.format(13) + text, tmp_path, "ORT_ENABLE_EXTENDED", **given))


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC"])
def test_onnxruntime_reads_what_is_saved(level: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the reader in question")
    text = HEADER.format(11) + (
        "g (float[B,S,16] x) => (float[B,S,16] y) { a = Relu(x)  y = LayerNormalization<axis = -1>(a, g, b) }"
    )
    found = saved(text, tmp_path, level, g=np.full(16, 1.5, np.float32), b=np.full(16, 0.5, np.float32))
    x = RNG.normal(size=(2, 3, 16)).astype(np.float32)
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    a = np.maximum(x, 0).astype(np.float64)
    expected = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * 1.5 + 0.5
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
