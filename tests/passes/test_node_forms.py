"""Nodes in other versions of their operators, beside ONNX's own reference where both can be run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import intarsia as ort
from intarsia.graph.model import Node
from intarsia.passes.node_forms import as_version

SAME: list[tuple[str, int, int, int, dict[str, Any]]] = [
    ("Sin", 22, 7, 1, {}), ("Transpose", 25, 24, 1, {"perm": [1, 0]}), ("Flatten", 25, 21, 1, {"axis": 1}),
    ("AveragePool", 1, 7, 1, {"kernel_shape": [2]}), ("MaxPool", 22, 12, 1, {"kernel_shape": [2], "dilations": [1]}),
    ("Add", 6, 7, 2, {"broadcast": 1}), ("Add", 1, 14, 2, {"broadcast": 0, "consumed_inputs": [0, 0]}),
    ("Gemm", 6, 13, 3, {"broadcast": 1, "transA": 1}), ("Pad", 25, 13, 2, {"mode": "reflect"}), ("Max", 6, 8, 2, {}),
    ("ScatterElements", 18, 16, 3, {"reduction": "add"}),
]  # fmt: skip
OTHERS: list[tuple[str, int, int, int, dict[str, Any]]] = [
    ("Add", 6, 7, 2, {"broadcast": 1, "axis": 0}), ("Softmax", 13, 11, 1, {}), ("Pad", 19, 18, 2, {"mode": "wrap"}),
    ("Pad", 18, 13, 4, {}), ("ScatterElements", 18, 16, 3, {"reduction": "max"}), ("MaxPool", 10, 8, 1, {"dilations": [2]}),
    ("PRelu", 6, 7, 2, {}), ("Clip", 6, 11, 1, {"min": 0.0}), ("Reshape", 14, 13, 2, {"allowzero": 1}), ("Sin", 22, 6, 1, {}),
]  # fmt: skip


def node(op: str, version: int, inputs: int, attributes: dict[str, Any]) -> Node:
    return Node(op, [f"x{i}" for i in range(inputs)], ["y"], dict(attributes), version=version)


@pytest.mark.parametrize(("op", "version", "other", "inputs", "attributes"), SAME)
def test_same(op: str, version: int, other: int, inputs: int, attributes: dict[str, Any]) -> None:
    found = as_version(node(op, version, inputs, attributes), other)
    assert found is not None
    assert (found.version, found.inputs, found.outputs) == (other, [f"x{i}" for i in range(inputs)], ["y"])
    assert found.attributes == {k: v for k, v in attributes.items() if k not in ("broadcast", "consumed_inputs")}


@pytest.mark.parametrize(("op", "version", "other", "inputs", "attributes"), OTHERS)
def test_not_the_same(op: str, version: int, other: int, inputs: int, attributes: dict[str, Any]) -> None:
    assert as_version(node(op, version, inputs, attributes), other) is None


def test_its_own_version() -> None:
    own = node("Softmax", 13, 1, {"axis": 0})
    assert as_version(own, 13) is own


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest", None])
def test_modes_of_grid_sample(mode: str | None) -> None:
    """Version 20 renamed them: ONNX's own reference for the new version, Intarsia for the old one."""
    attributes = {"padding_mode": "border", **({"mode": mode} if mode else {})}
    made = as_version(node("GridSample", 20, 2, attributes), 16)
    assert made is not None
    rng = np.random.default_rng(4)
    feed = {"x0": rng.random((1, 2, 3, 4), np.float32), "x1": rng.random((1, 2, 2, 2), np.float32) * 2 - 1}
    expected = ReferenceEvaluator(model(20, attributes)).run(None, feed)[0]
    old = ort.InferenceSession(model(16, made.attributes).SerializeToString(), providers=["ReferenceExecutionProvider"])
    np.testing.assert_allclose(old.run(None, feed)[0], expected, rtol=1e-5, atol=1e-6)


def model(opset: int, attributes: dict[str, Any]) -> Any:
    shapes = {"x0": [1, 2, 3, 4], "x1": [1, 2, 2, 2], "y": [1, 2, 2, 2]}
    values = [oh.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = oh.make_graph([oh.make_node("GridSample", ["x0", "x1"], ["y"], **attributes)], "g", values[:2], values[2:])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)
