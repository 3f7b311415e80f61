"""Sizes that only a run knows: errors, and several data-dependent sizes through one session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia as ort


def _session(nodes: list[Any], inputs: dict[str, list[Any]]) -> ort.InferenceSession:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_sizes_that_do_not_broadcast_name_the_node() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Mul", ["s", "c"], ["y"], name="scale")]
    session = _session(nodes, {"a": ["n"], "b": ["m"], "c": ["k"]})
    feed = {n: np.ones(size, np.float32) for n, size in (("a", 3), ("b", 1), ("c", 3))}
    assert session.run(None, feed)[0].tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(
        ort.InvalidArgument,
        match=r"node .*: (dimensions 3 and 4 do not broadcast|a dimension of size)",
    ):
        session.run(None, feed | {"c": np.ones(4, np.float32)})


def test_sizes_from_data_change_from_run_to_run() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Transpose", ["i"], ["t"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "t"], ["v"]), helper.make_node("Exp", ["v"], ["e"]),
        helper.make_node("Mul", ["e", "v"], ["y"]),
    ]  # fmt: skip
    session = _session(nodes, {"x": ["n"]})
    for count in (3, 1, 5, 0, 2, 4, 6, 3, 1, 5):
        x = np.zeros(8, np.float32)
        x[:count] = np.arange(1, count + 1)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x[:count]) * x[:count], rtol=1e-5)


@pytest.mark.parametrize("then", ["Transpose", "Exp", "Softmax"])
def test_a_view_that_does_not_fit_in_this_run(then: str) -> None:
    nodes = [
        helper.make_node("Constant", [], ["t"], value_ints=[-1, 3]), helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "t"], ["r"]), helper.make_node(then, ["r"], ["y"]),
    ]  # fmt: skip
    session = _session(nodes, {"x": ["n", 4]})
    assert session.run(None, {"x": np.ones((3, 4), np.float32)})[0].size == 12
    with pytest.raises(ort.InvalidArgument, match=r"reshape \[n, 4\] to .*: its elements: got 8, expected 6, with n = 2"):
        session.run(None, {"x": np.ones((2, 4), np.float32)})
