"""Quantised models in QOperator form, rewritten for vendors: no operator of com.microsoft is left, and the numbers stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.graph.save import to_model_bytes
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rule import Rule, RuleSet
from intarsia.providers.vendor import legalization_rules
from intarsia.providers.vendor.legalize import legalize
from intarsia.providers.vendor.qoperator_rules import (
    OPERATORS,
    QGEMM_TO_GEMM,
    QGEMM_TO_INTEGERS,
    QLINEAR_TO_QDQ,
    QOPERATOR_RULES,
)

RNG = np.random.default_rng(5)
U8, I8 = np.uint8, np.int8
TO_INTEGERS = (*QOPERATOR_RULES, QGEMM_TO_INTEGERS)
TO_QDQ = (*QOPERATOR_RULES, QGEMM_TO_GEMM, *QLINEAR_TO_QDQ)


def data(kind: Any, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(kind)


def f32(*values: float) -> np.ndarray:
    return np.float32(values) if len(values) > 1 else np.float32(values[0])


S1, S2, S3 = f32(0.02), f32(0.05), f32(0.04)
IMAGE, LAST = data(U8, 1, 3, 5, 6), data(U8, 1, 5, 6, 3)
POOL = {"kernel_shape": [2, 2], "strides": [2, 1], "pads": [0, 1, 0, 1]}
A, B = data(U8, 4, 6), data(I8, 6, 5)
COLUMNS = np.float32([0.01, 0.02, 0.03, 0.04, 0.05])

# operator, inputs ("" where one is left out; the first is data, and so are those in DATA), attributes
CASES: list[tuple[str, Sequence[Any], dict[str, Any]]] = [
    ("QLinearAdd", [A, S1, U8(120), data(U8, 4, 6), S2, U8(3), f32(0.07), U8(9)], {}),
    ("QLinearAdd", [data(I8, 4, 6), S1, I8(-7), data(I8, 6), S2, I8(3), f32(0.07), I8(0)], {}),
    ("QLinearMul", [A, S1, U8(120), data(U8, 4, 1), S2, U8(3), f32(0.2), U8(9)], {}),
    ("QLinearSigmoid", [A, S1, U8(120), f32(1 / 256), U8(0)], {}),
    ("QLinearSigmoid", [data(I8, 4, 6), S1, I8(5), f32(1 / 256), I8(-128)], {}),
    ("QLinearLeakyRelu", [A, S1, U8(120), S2, U8(100)], {"alpha": 0.2}),
    ("QLinearAveragePool", [IMAGE, S1, U8(120), S2, U8(100)], POOL),
    ("QLinearAveragePool", [IMAGE, S1, U8(120), S2, U8(100)], {**POOL, "count_include_pad": 1}),
    ("QLinearAveragePool", [LAST, S1, U8(120), S2, U8(100)], {**POOL, "channels_last": 1}),
    ("QLinearGlobalAveragePool", [IMAGE, S1, U8(120), S2, U8(100)], {"channels_last": 0}),
    ("QLinearGlobalAveragePool", [LAST, S1, U8(120), S2, U8(100)], {"channels_last": 1}),
    ("QLinearConcat", [S2, U8(100), A, S1, U8(120), data(U8, 4, 3), S3, U8(90)], {"axis": 1}),
    ("QLinearConv", [LAST, S1, U8(120), data(I8, 4, 3, 2, 2), S2, I8(0), f32(0.5), U8(128)],
     {"channels_last": 1, "pads": [1, 0, 1, 0]}),
    ("QLinearConv", [IMAGE, S1, U8(120), data(I8, 4, 3, 2, 2), S2, I8(0), f32(0.5), U8(128),
                     data(np.int32, 4) // (1 << 20)], {"channels_last": 0}),
    ("QLinearReduceMean", [IMAGE, S1, U8(120), S2, U8(100)], {"axes": [1, 3], "keepdims": 1}),
    ("QLinearReduceMean", [A, S1, U8(120), S2, U8(100)], {"axes": [-1], "keepdims": 0}),
    ("QLinearSoftmax", [A, S2, U8(120), f32(1 / 256), U8(0)], {"opset": 13, "axis": 0}),
    ("QLinearSoftmax", [data(U8, 2, 3, 4), S2, U8(120), f32(1 / 256), U8(0)], {"opset": 11, "axis": 1}),
    ("QLinearWhere", [np.array([True, False, True, True, False, True]), A, S1, U8(120), data(U8, 4, 6), S2, U8(7), S3, U8(99)],
     {}),
    ("QGemm", [A, S1, U8(120), B, S2, I8(0), data(np.int32, 5) // (1 << 18), f32(0.5), U8(128)], {}),
    ("QGemm", [data(U8, 6, 4), S1, U8(120), data(I8, 5, 6), COLUMNS, np.zeros(5, I8), "", f32(0.5), U8(128)],
     {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("QGemm", [A, S1, U8(120), B, S2, I8(3), data(np.int32, 1, 5) // (1 << 18)], {"alpha": 2.0}),  # of real numbers
]  # fmt: skip


def model(op: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> bytes:
    """The node with its first tensor as input, the others constants."""
    names = ["" if isinstance(a, str) else f"i{k}" for k, a in enumerate(inputs)]
    first = next(k for k, a in enumerate(inputs) if isinstance(a, np.ndarray) and a.ndim)
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    constants = [
        numpy_helper.from_array(np.asarray(a), n)
        for k, (a, n) in enumerate(zip(inputs, names, strict=True))
        if n and k != first
    ]
    kind = helper.np_dtype_to_tensor_dtype(inputs[first].dtype)
    given = helper.make_tensor_value_info(names[first], kind, inputs[first].shape)
    graph = helper.make_graph([node], "g", [given], [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()


def rewritten(data: bytes, rules: Sequence[Rule]) -> Graph:
    graph = infer(load(data), registry()).graph
    own = RuleSet(GraphOptimizationLevel.ORT_ENABLE_BASIC, tuple(rules))
    return legalize(graph, (own, legalization_rules.RULES)).graph  # what vendors have with them: Softmax of older versions


def run(made: bytes, feed: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(made, providers=["ReferenceExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: feed})[0])


def by_onnxruntime(proto: bytes, feed: np.ndarray) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime (extra: test)")
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: feed})[0])


@pytest.mark.parametrize("rules", [TO_INTEGERS, TO_QDQ], ids=["integers", "dequantised"])
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)])
def test_as_onnxruntime_has_it(op: str, inputs: Sequence[Any], attributes: dict[str, Any], rules: Sequence[Rule]) -> None:
    """Halves between two steps may go another way: sums are rounded in another order."""
    proto = model(op, inputs, attributes)
    feed = next(a for a in inputs if isinstance(a, np.ndarray) and a.ndim)
    wanted = run(proto, feed) if op == "QLinearReduceMean" else by_onnxruntime(proto, feed)  # which that one has not
    graph = rewritten(proto, rules)
    assert not [n.qualified_op for n in graph.nodes if n.domain], graph
    found = run(to_model_bytes(graph), feed)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if wanted.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        return
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert (found == wanted).mean() > 0.9


def test_every_operator_has_a_case() -> None:
    assert {case[0] for case in CASES} == OPERATORS


def test_zero_points_that_are_left_out_are_of_the_results_type() -> None:
    """QuantizeLinear without one would give uint8."""
    proto = model("QLinearSigmoid", [data(I8, 4), S1, I8(5), f32(1 / 128)], {})
    found = run(to_model_bytes(rewritten(proto, TO_QDQ)), np.int8([-128, 0, 5, 127]))
    assert found.dtype == I8


def test_scales_that_only_a_run_knows_are_left() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (uint8[2, 3] a, float s) => (float[2, 4] y)
        <uint8 z = {3}, float t = {0.5}, int8 w = {0}, int8[3, 4] b = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
        { y = com.microsoft.QGemm(a, s, z, b, t, w) }"""
    for rules in (TO_INTEGERS, TO_QDQ):
        graph = rewritten(onnx.parser.parse_model(text).SerializeToString(), rules)
        assert [n.op_type for n in graph.nodes] == ["QGemm"]
