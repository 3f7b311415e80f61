"""Models and pages that the tests of this folder share."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort

WIDTH = 8


def layers(count: int, width: int = WIDTH) -> onnx.ModelProto:
    """Layers that are named as PyTorch's exporter names them, 13 nodes each, and a mask that all of them read."""
    nodes: list[onnx.NodeProto] = []
    weights = [numpy_helper.from_array(np.eye(width, dtype=np.float32), "w"), numpy_helper.from_array(np.float32(0.5), "half")]

    def add(op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"{name}_output_0"], name=name, **attributes))
        return f"{name}_output_0"

    x = "x"
    for i in range(count):
        layer = f"/model/layers.{i}"
        heads = [add("MatMul", [x, "w"], f"{layer}/attention/{part}_proj/MatMul") for part in "qkv"]
        k = add("Transpose", [heads[1]], f"{layer}/attention/Transpose", perm=[1, 0])
        scores = add("MatMul", [heads[0], k], f"{layer}/attention/MatMul")
        masked = add("Add", [scores, "mask"], f"{layer}/attention/Add")
        mixed = add("MatMul", [add("Softmax", [masked], f"{layer}/attention/Softmax"), heads[2]], f"{layer}/attention/MatMul_1")
        x = add("Add", [x, mixed], f"{layer}/Add")
        hidden = add("MatMul", [x, "w"], f"{layer}/mlp/up_proj/MatMul")
        small = add("Mul", [add("Relu", [hidden], f"{layer}/mlp/act/Relu"), "half"], f"{layer}/mlp/Mul")
        x = add("Add", [x, small], f"{layer}/Add_1")
    nodes.append(helper.make_node("Identity", [x], ["y"], name="/Identity"))
    tensor = helper.make_tensor_value_info
    inputs = [tensor("x", TensorProto.FLOAT, ["n", width]), tensor("mask", TensorProto.FLOAT, ["n", "n"])]
    graph = helper.make_graph(nodes, "g", inputs, [tensor("y", TensorProto.FLOAT, ["n", width])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def flat(count: int) -> onnx.ModelProto:
    """A chain without names."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [tensor("x", TensorProto.FLOAT, [2])], [tensor("y", TensorProto.FLOAT, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(rows: int = 3, width: int = WIDTH) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, width), np.float32), "mask": np.zeros((rows, rows), np.float32)}


def session_of(model: onnx.ModelProto, providers: list[Any] | None = None) -> ort.InferenceSession:
    """With every node of the model as it is."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=providers or ["CPUExecutionProvider"])


@pytest.fixture
def data_of() -> Callable[[str], dict[str, Any]]:
    """The data in a page."""

    def read(page: str) -> dict[str, Any]:
        (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        found: dict[str, Any] = json.loads(text)
        return found

    return read


@pytest.fixture(scope="session")
def three_layers() -> ort.InferenceSession:
    return session_of(layers(3))
