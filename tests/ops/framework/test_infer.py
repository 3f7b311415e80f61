"""Type inference by tracing: shapes, values that are known early, why nodes stay unknown, errors."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.errors import Fail, InvalidGraph, NotImplemented
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import fresh_shape, infer

N = symbol("n")


def graph_of(*nodes: Node, opset: int = 17, **constants: np.ndarray) -> Graph:
    """Over `x` float[n, 3], `i` int64[2], `s` string[n] and `u` of unknown rank."""
    types = {
        "x": TensorType(DType.FLOAT, (N, 3)), "i": TensorType(DType.INT64, (2,)), "s": TensorType(DType.STRING, (N,)),
        "u": TensorType(DType.FLOAT, None), "many": TensorType(DType.INT64, (99,)),
    }  # fmt: skip
    inputs = [Value(n, t) for n, t in types.items()]
    made = {n: Constant.of(n, a) for n, a in constants.items()}
    return Graph("g", inputs, [Value(nodes[-1].outputs[0])], list(nodes), made, types, {"": opset, "com.nobody": 1})


def test_shapes_are_the_definitions_shapes() -> None:
    found = infer(graph_of(Node("Transpose", ["x"], ["t"]), Node("MatMul", ["x", "t"], ["y"])), registry())
    assert found.types["y"] == TensorType(DType.FLOAT, (N, N))
    assert [n.version for n in found.graph.nodes] == [13, 13]


def test_shape_arithmetic_is_followed() -> None:
    nodes = [
        Node("Shape", ["x"], ["d"]), Node("Gather", ["d", "zero"], ["n"]), Node("Mul", ["n", "two"], ["m"]),
        Node("Concat", ["m", "rest"], ["t"], {"axis": 0}), Node("Expand", ["x1", "t"], ["y"]),
    ]  # fmt: skip
    constants = {"zero": np.array([0]), "two": np.array([2]), "rest": np.array([4]), "x1": np.ones((1, 1), np.float32)}
    found = infer(graph_of(*nodes, **constants), registry())
    assert found.values["t"].tolist() == [N * 2, 4]
    assert found.types["y"] == TensorType(DType.FLOAT, (N * 2, 4))


def test_elements_that_only_a_run_knows_get_names() -> None:
    found = infer(graph_of(Node("Reshape", ["x", "i"], ["y"])), registry())
    assert len(found.types["y"].shape) == 2
    assert [str(v) for v in found.values["i"]] == ["i[0]", "i[1]"]
    assert {s for d in found.types["y"].shape for s in d.symbols} >= {"i[0]", "i[1]"}


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (Node("Reshape", ["x", "many"], ["y"]), "its input 'shape' .'many'. is known only at run time"),
        (Node("Exp", ["u"], ["y"]), "the rank of an input is known only at run time"),
        (Node("Exp", ["nothing"], ["y"]), "the type of its input 'nothing' is known only at run time"),
    ],
)
def test_why_a_node_stays_unknown(node: Node, why: str) -> None:
    import re

    found = infer(graph_of(node), registry())
    assert re.fullmatch(why, found.unknown["y"])


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        (
            Node("Frobnicate", ["x"], ["y"], {}, "com.nobody", "here"),
            NotImplemented,
            r"com.nobody::Frobnicate \(opset 1\) of node 'here'",
        ),
        (
            Node("Add", ["x", "i"], ["y"], name="here"),
            InvalidGraph,
            r"node 'here' \(Add\): input 1 'i' is int64 where input 0 'x' is float: T must be one type",
        ),
        (Node("Exp", ["x", "x"], ["y"], name="here"), InvalidGraph, "takes at most 1 inputs, got 2"),
        (Node("Add", ["x"], ["y"]), InvalidGraph, "required input 'B' is missing"),
        (Node("Concat", ["x", "x"], ["y"]), InvalidGraph, "required attribute 'axis' is missing"),
        (Node("Exp", ["x"], ["y"], {"power": 2}), InvalidGraph, "attribute 'power' is not known to version 13 of the operator"),
    ],
)
def test_errors(node: Node, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        infer(graph_of(node), registry())


def test_unknown_operators_may_stay_unknown() -> None:
    found = infer(graph_of(Node("Frobnicate", ["x"], ["y"], {}, "com.nobody")), registry(), strict=False)
    assert "y" not in found.types


def test_private_attributes_and_hints_are_ignored() -> None:
    found = infer(graph_of(Node("Exp", ["x"], ["y"], {"_mine": 1, "consumed_inputs": [0]})), registry())
    assert found.types["y"].shape == (N, 3)


def test_types_of_host_operators() -> None:
    found = infer(graph_of(Node("NonZero", ["x"], ["y"])), registry())
    assert (found.types["y"].dtype, found.types["y"].shape[0]) == (DType.INT64, 2)
    assert found.types["y"].shape[1].symbols


def test_fresh_sizes_are_all_different() -> None:
    assert len({*fresh_shape(3, "x"), *fresh_shape(3, "x")}) == 6


def test_evaluating_a_node() -> None:
    x = np.array([[1.0, 2]], np.float32)
    (found,) = evaluate_node(Node("Transpose", ["x"], ["y"]), [x], registry())
    np.testing.assert_array_equal(found, x.T)
    assert found.flags.c_contiguous
    values, none = evaluate_node(Node("MaxPool", ["x"], ["y", ""], {"kernel_shape": [2]}), [x[None]], registry())
    assert (values.tolist(), none) == ([[[2]]], None)


@pytest.mark.parametrize(
    ("node", "inputs", "error", "message"),
    [
        (
            Node("Frob", ["x"], ["y"], name="here"),
            [np.ones(2)],
            NotImplemented,
            "operator Frob version 0 of node 'here' is not implemented",
        ),
        (
            Node("MatMul", ["x", "y"], ["z"], name="here"),
            [np.ones((2, 3)), np.ones((2, 3))],
            InvalidGraph,
            r"node 'here' \(MatMul\): inner",
        ),
        (
            Node("Gather", ["x", "i"], ["z"], name="here"),
            [np.ones(2), np.array([5])],
            Fail,
            r"failed on inputs of shapes \(2,\), \(1,\)",
        ),
    ],
)
def test_errors_of_evaluation(node: Node, inputs: list[np.ndarray], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate_node(node, inputs, registry())
