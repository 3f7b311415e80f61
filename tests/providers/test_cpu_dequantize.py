"""Weights that a model stores quantised are packed as the numbers they stand for."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from onnx import TensorProto, helper, numpy_helper

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
