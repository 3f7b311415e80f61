"""Small models of floats for the tests of quantisation, and readers of their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feed = dict[str, np.ndarray]


class Reader:
    """Gives feeds, once."""

    def __init__(self, feeds: list[Feed]) -> None:
        self.left: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.left, None)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto], stored: Mapping[str, np.ndarray], shapes: Mapping[str, Any], opset: int = 17
) -> onnx.ModelProto:
    """`shapes`: of the input "x" and of the outputs."""
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    inputs = [value for name, value in values.items() if name == "x"]
    outputs = [value for name, value in values.items() if name != "x"]
    tensors = [numpy_helper.from_array(a, name) for name, a in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 21 else 10)


def convolutions(opset: int = 17) -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv with a residual sum, mean over pixels, Gemm."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "p1"], ["s"], "sum"),
        helper.make_node("GlobalAveragePool", ["s"], ["a"], "mean"),
        helper.make_node("Flatten", ["a"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "classes", transB=1),
    ]
    stored = {
        "w1": numbers(1, 8, 3, 3, 3), "b1": numbers(2, 8), "w2": numbers(3, 8, 8, 3, 3) / 8, "b2": numbers(4, 8),
        "w3": numbers(5, 4, 8), "b3": numbers(6, 4),
    }  # fmt: skip
    return model(nodes, stored, {"x": ["n", 3, 8, 8], "y": ["n", 4]}, opset)


def products(opset: int = 17) -> onnx.ModelProto:
    """MatMul, Add, LayerNormalization by hand where the opset has none, and a MatMul of two computed values."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], "up"),
        helper.make_node("Add", ["m1", "b1"], ["a1"], "bias"),
        helper.make_node("Transpose", ["a1"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a1", "t"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "a1"], ["mixed"], "mix"),
        helper.make_node("MatMul", ["mixed", "w2"], ["y"], "down"),
    ]
    stored = {"w1": numbers(1, 16, 32) / 4, "b1": numbers(2, 32), "w2": numbers(3, 32, 16) / 4}
    return model(nodes, stored, {"x": ["n", 5, 16], "y": ["n", 5, 16]}, opset)


def image_feeds(count: int = 6) -> list[Feed]:
    return [{"x": numbers(i, 2, 3, 8, 8)} for i in range(count)]


def token_feeds(count: int = 6) -> list[Feed]:
    return [{"x": numbers(i, 2, 5, 16)} for i in range(count)]


def saved(made: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(made, path)
    return path


def operators(made: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in made.graph.node]


def stored(made: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
