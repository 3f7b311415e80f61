"""Weights that a model stores quantised are packed as the numbers they stand for."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import intarsia as ort


def quantised_convolution(per_channel: bool) -> bytes:
    rng = np.random.default_rng(3)
    constants = {
        "wq": rng.integers(-128, 127, (6, 4, 3, 3), np.int8),
        "ws": (rng.random(6 if per_channel else ()) * 0.02 + 0.01).astype(np.float32),
        "wz": np.zeros(6, np.int8) if per_channel else np.int8(3),
        "s": np.float32(0.05),
        "z": np.uint8(128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["w"], axis=0),
        helper.make_node("Conv", ["xf", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("per_channel", [True, False])
def test_convolution_by_quantised_weights_is_one_kernel_and_right(per_channel: bool) -> None:
    model = quantised_convolution(per_channel)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    x = np.random.default_rng(1).normal(size=(2, 4, 9, 9)).astype(np.float32)
    actual, expected = session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0]
    assert np.abs(actual - expected).max() <= np.float32(0.05) * 1.001  # one step, where a sum falls on a rounding edge
    assert np.mean(actual != expected) < 0.01
    kernels = {n["op"]: n["kernel"] for n in session.explain().to_dict()["nodes"]}
    assert kernels["Conv"].startswith("ConvInteger+Rescale+Relu+Requantize")


def quantised_recurrence(extra_output: bool) -> onnx.ModelProto:
    """An LSTM whose gates a quantiser met in PyTorch's order: stored, dequantised, reordered, and quantised once more."""
    rng, hidden, width = np.random.default_rng(5), 4, 3
    rows = {"i": (0, 4), "o": (12, 16), "f": (4, 8), "c": (8, 12)}
    constants = {
        "wq": rng.integers(-128, 127, (4 * hidden, width), np.int8),
        "rq": rng.integers(-128, 127, (4 * hidden, hidden), np.int8),
        "s": np.float32(0.01), "z": np.int8(0), "s2": np.float32(0.013), "z2": np.int8(3), "axes": np.array([0]),
    } | {f"{k}{e}": np.array([v[e]]) for k, v in rows.items() for e in (0, 1)}  # fmt: skip
    nodes = []
    for w in "wr":
        nodes.append(helper.make_node("DequantizeLinear", [f"{w}q", "s", "z"], [f"{w}f"]))
        nodes += [helper.make_node("Slice", [f"{w}f", f"{k}0", f"{k}1", "axes"], [f"{w}_{k}"]) for k in rows]
        nodes.append(helper.make_node("Concat", [f"{w}_{k}" for k in rows], [f"{w}c"], axis=0))
        nodes.append(helper.make_node("Unsqueeze", [f"{w}c", "axes"], [f"{w}u"]))
        nodes.append(helper.make_node("QuantizeLinear", [f"{w}u", "s2", "z2"], [f"{w}again"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{w}again", "s2", "z2"], [f"{w}real"]))
    nodes.append(helper.make_node("LSTM", ["x", "wreal", "rreal"], ["", "y"], hidden_size=hidden))
    outputs = ["y", *(["wagain"] if extra_output else [])]
    graph = helper.make_graph(
        nodes,
        "recurrence",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "b", width])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT if n == "y" else TensorProto.INT8, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("extra_output", [True, False])
def test_weights_that_were_quantised_behind_other_nodes_are_constants(extra_output: bool) -> None:
    model = quantised_recurrence(extra_output)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for steps, batch in ((5, 2), (1, 3)):
        x = np.random.default_rng(steps).normal(size=(steps, batch, 3)).astype(np.float32)
        expected = ReferenceEvaluator(model).run(None, {"x": x})
        actual = session.run(None, {"x": x})
        np.testing.assert_allclose(actual[0], np.reshape(expected[0], actual[0].shape), rtol=1e-5, atol=1e-6)
        if extra_output:
            np.testing.assert_array_equal(actual[1], expected[1])
    nodes = session.explain().to_dict()["nodes"]
    assert [n["kind"] for n in nodes if n["op"] == "LSTM"] == ["compiled"]
    assert not [n["op"] for n in nodes if n["kind"] == "host"]


def test_a_small_stored_weight_is_not_spread_when_the_model_is_compiled() -> None:
    from intarsia.codegen.llvm.target import Target
    from intarsia.graph.load import load
    from intarsia.ops import registry
    from intarsia.ops.framework.infer import infer
    from intarsia.providers.cpu.legalize.dequantize_weights import dequantize_weights
    from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

    constants = {"q": np.int8([1, 2]), "s": np.float32(0.5), "wide": np.zeros((1 << 18, 2), np.float32)}
    constants["q2"] = np.zeros((1 << 9, 1), np.int8)
    constants["q3"] = np.zeros((1, 1 << 11), np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["a"]),
        helper.make_node("Add", ["wide", "a"], ["b"]),  # as large as what it is made of: a constant
        helper.make_node("DequantizeLinear", ["q2", "s"], ["c"]),
        helper.make_node("DequantizeLinear", ["q3", "s"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["e"]),  # 4 MiB made of 10 KiB
        helper.make_node("Mul", ["x", "e"], ["y"]),
        helper.make_node("Mul", ["x2", "b"], ["y2"]),
    ]
    graph = helper.make_graph(
        nodes,
        "spread",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "x2")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "y2")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    env = LegalizeEnv(registry(), Target.host(), {})
    found = dequantize_weights(infer(load(model.SerializeToString()), registry()), env)
    assert found is not None
    assert [n.outputs[0] for n in found.nodes] == ["e", "y", "y2"]
    np.testing.assert_array_equal(found.constants["b"].numpy(), np.broadcast_to(np.float32([0.5, 1]), (1 << 18, 2)))
