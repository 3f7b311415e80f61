"""Quantised tensors stay bytes where they are moved, and chains of nodes between them become tables."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from test_qdq_to_integer import Builder

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.providers.cpu.lowering.lower import lower_graph


def compiled(model: bytes, **config: str) -> tuple[list[str], dict[str, DType]]:
    """The labels of a model's steps, and the element types of what they write."""
    lowered = lower_graph(load(model), registry(), Target.host(), config)
    (unit,) = lowered.executable.units
    return [s.label for s in unit.steps], {n: unit.buffers[n].dtype for s in unit.steps for n in s.writes}


def check(model: bytes, x: np.ndarray, step: float, *, exact: bool = False) -> None:
    """The CPU provider within one step of the definition, and almost everywhere equal to it."""
    results = [ort.InferenceSession(model, providers=[p]).run(None, {"x": x}) for p in PROVIDERS]
    for actual, expected in zip(*results, strict=True):
        assert np.abs(actual - expected).max() <= (0 if exact else step * 1.001)
        assert np.mean(np.abs(actual - expected) > step / 2) < 0.02


PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
rng = np.random.default_rng(11)


@pytest.mark.parametrize("signed", [True, False])
def test_a_chain_between_bytes_is_a_table(signed: bool) -> None:
    b = Builder(signed)
    x = b.pair("x", 0.05, 120)
    gate = b.pair(b.add("Sigmoid", [x], "gate"), 1 / 256, 0)
    y = b.pair(b.add("Mul", [x, gate], "silu"), 0.03, 10)
    z = b.pair(b.add("Tanh", [y], "tanh"), 1 / 127, 128)
    model = b.model({"x": [1, 16, 40, 40]}, b.add("Relu", [z], "out"))
    labels, _ = compiled(model)
    assert [label for label in labels if "table" in label] == ["by a table"], labels
    assert not any("Sigmoid" in label or "Tanh" in label for label in labels)
    check(model, rng.normal(size=(1, 16, 40, 40)).astype(np.float32) * 4, 1 / 127, exact=True)


def test_small_tensors_and_other_operands_are_computed() -> None:
    b = Builder(False)
    x = b.pair("x", 0.05, 120)
    y = b.pair(b.add("Sigmoid", [x], "gate"), 1 / 256, 0)
    slopes = b.constant("slopes", rng.random((16, 1, 1)).astype(np.float32))
    z = b.pair(b.add("Exp", [b.add("Mul", [y, slopes], "scaled")], "exp"), 0.02, 0)
    model = b.model({"x": [1, 16, 4, 4]}, z)
    assert not any(label == "by a table" for label in compiled(model)[0])
    check(model, rng.normal(size=(1, 16, 4, 4)).astype(np.float32), 0.02)


def test_a_table_is_not_made_of_pairs_that_stay() -> None:
    b = Builder(False)
    y = b.pair(b.add("Sigmoid", [b.pair("x", 0.05, 120)], "gate"), 1 / 256, 0)
    model = b.model({"x": [1, 16, 40, 40]}, b.add("Neg", [y], "out"))
    assert not any("table" in label for label in compiled(model, **{"session.disable_quant_qdq": "1"})[0])


def forked(signed: bool) -> bytes:
    """Concat of tensors with scales of their own, one of which is also pooled; Split with scales behind; Slice."""
    b = Builder(signed)
    x = b.pair("x", 0.05, 120)
    wide = b.pair(b.add("Conv", [x, b.weights("w", (16, 8, 1, 1), 0)], "c"), 0.03, 128)
    pooled = b.pair(b.add("MaxPool", [wide], "m", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]), 0.02, 100)
    both = b.pair(b.add("Concat", [wide, pooled], "cat", axis=1), 0.035, 120)
    b.constant("sizes", np.array([8, 24], np.int64))
    b.nodes.append(helper.make_node("Split", [both, "sizes"], ["low", "high"], axis=1))
    low, high = b.pair("low", 0.035, 120), b.pair("high", 0.04, 130)
    b.add("Conv", [high, b.weights("v", (8, 24, 1, 1), 0)], "d")
    total = b.pair(b.add("Add", [b.pair("d", 0.03, 128), low], "total"), 0.05, 128)
    return b.model({"x": [1, 8, 20, 20]}, b.add("Relu", [total], "y"))


@pytest.mark.parametrize("signed", [True, False])
def test_only_bytes_are_moved(signed: bool) -> None:
    model = forked(signed)
    labels, types = compiled(model)
    floats = [name for name, dtype in types.items() if dtype is DType.FLOAT]
    assert len(floats) <= 3, (labels, floats)  # an addend, the output, and its transpose
    assert any(label.startswith("max pool") for label in labels)
    check(model, rng.normal(size=(1, 8, 20, 20)).astype(np.float32) * 3, 0.1)  # two quantised convolutions in turn


def test_bytes_quantised_alike_are_the_same_bytes() -> None:
    b = Builder(False)
    x = b.pair("x", 0.05, 120)
    t = b.pair(b.add("Transpose", [x], "t", perm=[0, 2, 1]), 0.05, 120)
    b.constant("shape", np.array([0, -1], np.int64))
    flat = b.pair(b.add("Reshape", [t, "shape"], "flat"), 0.05, 120)
    model = b.model({"x": [4, 6, 5]}, flat)
    labels, _ = compiled(model)
    assert sum("Quant" in label and "Dequant" not in label for label in labels) == 1, labels
    check(model, rng.normal(size=(4, 6, 5)).astype(np.float32) * 3, 0.05, exact=True)


@pytest.mark.parametrize("scale", [0.0, 1e-38])
def test_scales_without_a_reciprocal(scale: float) -> None:
    b = Builder(False)
    x = b.pair("x", scale, 3)
    t = b.pair(b.add("Transpose", [x], "t", perm=[1, 0]), scale, 3)
    model = b.model({"x": [3, 5]}, t)
    x_ = rng.normal(size=(3, 5)).astype(np.float32)
    results = [ort.InferenceSession(model, providers=[p]).run(None, {"x": x_})[0] for p in PROVIDERS]
    assert np.array_equal(*results, equal_nan=True)


def test_bytes_of_the_model_are_left_as_they_are() -> None:
    """A quantised output, and a dequantised one that others read, keep their names and types."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Concat", ["d", "d"], ["c"], axis=0),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["out"]),
        helper.make_node("Exp", ["d"], ["e"]),
    ]
    outputs = [("out", TensorProto.UINT8), ("d", TensorProto.FLOAT), ("e", TensorProto.FLOAT), ("q", TensorProto.UINT8)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.uint8(100), "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    x = rng.normal(size=50).astype(np.float32) * 9
    results = [ort.InferenceSession(model, providers=[p]).run(None, {"x": x}) for p in PROVIDERS]
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
