"""Inner names that hide outer ones, as ONNX allows inputs and initializers of subgraphs (Paddle names loops' inputs so)."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import intarsia as ort

PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]


def value(name: str, kind: int = TensorProto.FLOAT, *sizes: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, sizes)


def loop(carried: str, *nodes: onnx.NodeProto, constants: tuple[onnx.TensorProto, ...] = ()) -> onnx.NodeProto:
    """y = three trips from x; the body's state is called `carried` and its new value "new"."""
    inputs = [value("i", TensorProto.INT64), value("on", TensorProto.BOOL), value(carried, TensorProto.FLOAT, 2)]
    outputs = [value("on_out", TensorProto.BOOL), value("new", TensorProto.FLOAT, 2)]
    body = helper.make_graph([helper.make_node("Identity", ["on"], ["on_out"]), *nodes], "body", inputs, outputs, constants)
    return helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)


def run(provider: str, *nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> np.ndarray:
    """The output "z" for x = [1, 2]; "trips" is 3."""
    trips = helper.make_tensor("trips", TensorProto.INT64, [], [3])
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, 2)], [value("z", TensorProto.FLOAT, 2)], [trips])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=[provider])
    (found,) = session.run(None, {"x": np.array([1, 2], np.float32)})
    return np.asarray(found)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_input_of_a_body_hides_a_value(provider: str) -> None:
    after = helper.make_node("Sub", ["y", "x"], ["z"])  # the outer x
    assert run(provider, loop("x", helper.make_node("Add", ["x", "x"], ["new"])), after).tolist() == [7, 14]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_constant_of_a_body_hides_a_value(provider: str) -> None:
    ten = helper.make_tensor("x", TensorProto.FLOAT, [2], [10, 20])
    after = helper.make_node("Sub", ["y", "x"], ["z"])
    added = loop("s", helper.make_node("Add", ["s", "x"], ["new"]), constants=(ten,))
    assert run(provider, added, after).tolist() == [30, 60]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_name_that_the_outer_graph_writes_later(provider: str) -> None:
    inner = [helper.make_node("Add", ["s", "s"], ["z"]), helper.make_node("Identity", ["z"], ["new"])]
    assert run(provider, loop("s", *inner), helper.make_node("Neg", ["y"], ["z"])).tolist() == [-8, -16]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_body_in_a_body_reads_the_value_of_its_own_name(provider: str) -> None:
    two = helper.make_tensor("x", TensorProto.FLOAT, [2], [2, 2])
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Mul", ["s", "x"], ["t"])], "then", [], [value("t", TensorProto.FLOAT, 2)], [two]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Identity", ["x"], ["e"])], "else", [], [value("e", TensorProto.FLOAT, 2)]
        ),
    }
    body = loop("s", helper.make_node("If", ["on"], ["new"], **branches))
    assert run(provider, body, helper.make_node("Identity", ["y"], ["z"])).tolist() == [8, 16]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_in_a_function(provider: str) -> None:
    nodes = [
        helper.make_node("Constant", [], ["trips"], value=helper.make_tensor("t", TensorProto.INT64, [], [3])),
        loop("x", helper.make_node("Add", ["x", "x"], ["new"])),
    ]
    function = helper.make_function("own", "Eight", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)])
    assert run(provider, helper.make_node("Eight", ["x"], ["z"], domain="own"), functions=(function,)).tolist() == [8, 16]


def negation() -> onnx.GraphProto:
    """A branch that negates "p"; its names are also those of values around calls of functions that have it."""
    nodes = [helper.make_node("Neg", ["p"], ["x"]), helper.make_node("Identity", ["x"], ["trips"])]
    return helper.make_graph(nodes, "negation", [], [value("trips", TensorProto.FLOAT, 2)])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_names_in_a_function_are_its_own(provider: str, calls: int) -> None:
    """Also in subgraphs of its nodes, written by nodes, and in subgraphs of those. scikit-learn's KNNImputer comes so."""
    true = helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    inner = helper.make_node("If", ["true"], ["y"], then_branch=negation(), else_branch=negation())
    zero = helper.make_node("Add", ["y", "p"], ["z"])
    outer = helper.make_graph([inner, zero], "outer", [], [value("z", TensorProto.FLOAT, 2)])
    nodes = [true, helper.make_node("If", ["true"], ["zero"], then_branch=outer, else_branch=negation())]
    ends = [helper.make_node("Sub", ["zero", "p"], ["o"])]  # 0 - p
    function = helper.make_function("own", "Negated", ["p"], ["o"], [*nodes, *ends], [helper.make_opsetid("", 17)])
    names = ["x", *(f"y.{i}.x" for i in range(calls - 1)), "z"]  # as names are made from a call's output
    given = [helper.make_node("Negated", [a], [b], domain="own") for a, b in itertools.pairwise(names)]
    assert run(provider, *given, functions=(function,)).tolist() == [(-1) ** calls, 2 * (-1) ** calls]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_function_called_in_a_body(provider: str) -> None:
    nodes = [helper.make_node("Neg", ["p"], ["x"]), helper.make_node("Add", ["x", "x"], ["o"])]
    function = helper.make_function("own", "Twice", ["p"], ["o"], nodes, [helper.make_opsetid("", 17)])
    body = loop("s", helper.make_node("Twice", ["s"], ["new"], domain="own"))
    found = run(provider, body, helper.make_node("Twice", ["y"], ["z"], domain="own"), functions=(function,))
    assert found.tolist() == [16, 32]
