"""Convolutions of com.microsoft in standard operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from intarsia import GraphOptimizationLevel, InferenceSession, SessionOptions
from intarsia.graph.load import load
from intarsia.passes import optimize

RNG = np.random.default_rng(3)


def model(
    op: str, feeds: list[np.ndarray | None], constants: dict[int, np.ndarray], out: int, **attributes: Any
) -> onnx.ModelProto:
    names = [f"x{i}" if x is not None or i in constants else "" for i, x in enumerate(feeds)]
    node = oh.make_node(op, names, ["y"], domain="com.microsoft", name="conv", **attributes)
    inputs = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, (n, x) in enumerate(zip(names, feeds, strict=True)) if x is not None and i not in constants
    ]  # fmt: skip
    graph = oh.make_graph(
        [node], "g", inputs, [oh.make_tensor_value_info("y", out, None)],
        [onnx.numpy_helper.from_array(v, f"x{i}") for i, v in constants.items()],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8)


def compare(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], operators: dict[str, int]) -> None:
    """The rules write `operators`, and the result is that of the definition."""
    graph = optimize(load(proto), GraphOptimizationLevel.ORT_ENABLE_BASIC).graph
    assert Counter(n.op_type for n in graph.nodes) == operators
    assert not any(n.domain for n in graph.nodes)
    plain = SessionOptions()
    plain.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = InferenceSession(proto.SerializeToString(), plain, providers=["ReferenceExecutionProvider"]).run(None, feeds)[0]
    found = InferenceSession(proto.SerializeToString()).run(None, feeds)[0]
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    else:
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


ACTIVATIONS = [
    ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("LeakyRelu", []), ("Clip", [-0.5, 1.0]),
    ("HardSigmoid", [0.3, 0.4]),
]  # fmt: skip


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
@pytest.mark.parametrize("last", [False, True])
def test_fused_convolution(activation: str, parameters: list[float], last: bool) -> None:
    x = RNG.standard_normal((1, 6, 5, 4) if last else (1, 4, 6, 5)).astype(np.float32)
    z = RNG.standard_normal((1, 6, 5, 8) if last else (1, 8, 6, 5)).astype(np.float32)
    constants = {1: RNG.standard_normal((8, 2, 3, 3)).astype(np.float32), 2: RNG.standard_normal(8).astype(np.float32)}
    attributes: dict[str, Any] = {"activation": activation, "group": 2, "pads": [1] * 4}
    if parameters:
        attributes["activation_params"] = parameters
    proto = model("NhwcFusedConv" if last else "FusedConv", [x, None, None, z], constants, 1, **attributes)
    compare(proto, {"x0": x, "x3": z}, {"Conv": 1, "Add": 1, activation: 1} | ({"Transpose": 2} if last else {}))


def test_channels_last_convolution() -> None:
    x = RNG.standard_normal((1, 6, 5, 4)).astype(np.float32)
    proto = model("NhwcConv", [x, None], {1: RNG.standard_normal((8, 4, 3, 3)).astype(np.float32)}, 1, strides=[2, 1])
    compare(proto, {"x0": x}, {"Conv": 1, "Transpose": 2})


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_convolution(last: int) -> None:
    x = RNG.integers(0, 256, (1, 6, 5, 4) if last else (1, 4, 6, 5)).astype(np.uint8)
    constants = {
        1: np.float32(0.02), 2: np.uint8(120), 3: RNG.integers(-128, 128, (8, 4, 3, 3)).astype(np.int8), 4: np.float32(0.03),
        5: np.int8(0), 6: np.float32(0.5), 7: np.uint8(100),
    }  # fmt: skip
    proto = model("QLinearConv", [x, *[None] * 7], constants, 2, channels_last=last)
    compare(proto, {"x0": x}, {"QLinearConv": 1} | ({"Transpose": 2} if last else {}))


def test_an_unknown_activation_stays() -> None:
    x = RNG.standard_normal((1, 4, 6, 5)).astype(np.float32)
    weight = {1: RNG.standard_normal((8, 4, 3, 3)).astype(np.float32)}
    proto = model("FusedConv", [x, None], weight, 1, activation="Softplus")
    assert [n.op_type for n in optimize(load(proto), GraphOptimizationLevel.ORT_ENABLE_ALL).graph.nodes] == ["FusedConv"]


@pytest.mark.parametrize("alike", [True, False])
def test_quantised_concat(alike: bool) -> None:
    """Parts that are quantised as the output is are joined as they are; else the definition requantises them."""
    x, z = (RNG.integers(0, 255, shape, np.uint8) for shape in ((2, 3), (2, 4)))
    scale, zero, other = np.array(0.1, np.float32), np.array(7, np.uint8), np.array(0.1 if alike else 0.2, np.float32)
    constants = {0: scale, 1: zero, 3: scale, 4: zero, 6: other, 7: zero}
    operands = [scale, zero, x, scale, zero, z, other, zero]
    proto = model("QLinearConcat", operands, constants, onnx.TensorProto.UINT8, axis=1)
    feeds = {"x2": x, "x5": z}
    if alike:
        compare(proto, feeds, {"Concat": 1})
        np.testing.assert_array_equal(
            InferenceSession(proto.SerializeToString()).run(None, feeds)[0], np.concatenate([x, z], 1)
        )
    else:
        graph = optimize(load(proto), GraphOptimizationLevel.ORT_ENABLE_BASIC).graph
        assert [n.op_type for n in graph.nodes] == ["QLinearConcat"]
