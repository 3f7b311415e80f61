"""Costs of nodes in explanations, suggestions of refusals, and tables that fit a terminal."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.ep.capability import Support
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.partition import cost
from intarsia.reports.explain import SUGGESTIONS, Refusal

TEXT = """g (float[3] x) => (float[3] y) <float[3] v = {2, 2, 2}> { a = Mul(x, v)  b = Neg(a)  y = Add(a, b) }"""


@pytest.fixture
def plain() -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return made


def test_costs_are_of_the_node(make_session, plain) -> None:
    text = """g (float[2,3] x) => (float[2,5] y) <float[3,5] w = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}> { y = MatMul(x, w) }"""
    (node,) = make_session(text, plain).explain().nodes
    assert (node.flop, node.nbytes, node.estimated) == (2 * 2 * 3 * 5, 4 * (6 + 15 + 10), False)
    assert (node.inputs, node.outputs) == (("x", "w"), ("y",))


def test_a_providers_suggestion_comes_before_the_codes() -> None:
    assert Refusal.of(Support.no("no such device", code="device", suggestion="plug it in")).suggestion == "plug it in"
    assert Refusal.of(Support.no("not worth it", code="island")).suggestion == SUGGESTIONS["island"]
    assert Refusal.of(Support.no("odd", code="of-its-own")).suggestion == ""


def graph_of(node: onnx.NodeProto, shapes: dict[str, list[int | str]]) -> Graph:
    tensor = onnx.helper.make_tensor_value_info
    values = {n: tensor(n, 1, s) for n, s in shapes.items()}
    inputs = [values[n] for n in node.input if n]
    graph = onnx.helper.make_graph([node], "g", inputs, [values[n] for n in node.output])
    return load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize(
    ("operator", "attributes", "inputs", "output", "expected"),
    [
        ("Gemm", {"transA": 1}, [[4, 2], [4, 3]], [2, 3], 2 * 2 * 3 * 4),
        ("Conv", {}, [[1, 4, 8, 8], [6, 4, 3, 3]], [1, 6, 6, 6], 2 * 6 * 36 * 4 * 9),
        ("ConvTranspose", {}, [[1, 4, 5, 5], [4, 6, 3, 3]], [1, 6, 7, 7], 2 * 4 * 25 * 6 * 9),
        ("LSTM", {"hidden_size": 4}, [[7, 2, 3], [1, 16, 3], [1, 16, 4]], [7, 1, 2, 4], 2 * 7 * 2 * (16 * 3 + 16 * 4)),
        ("Einsum", {"equation": "bij,bjk->bik"}, [[2, 3, 4], [2, 4, 5]], [2, 3, 5], 2 * 2 * 3 * 4 * 5),
        ("Add", {}, [[2, 3], [2, 3]], [2, 3], 6),
    ],
)
def test_operations_of_an_operator(operator: str, attributes: dict, inputs: list, output: list, expected: int) -> None:
    names = [f"x{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(operator, names, ["y"], **attributes)
    graph = graph_of(node, {**dict(zip(names, inputs, strict=True)), "y": output})
    assert cost.flop(graph, graph.nodes[0]) == expected


def test_symbols_take_the_sizes_given() -> None:
    graph = graph_of(onnx.helper.make_node("Neg", ["x"], ["y"]), {"x": ["n", 3], "y": ["n", 3]})
    assert cost.flop(graph, graph.nodes[0]) == 3 * cost.ASSUMED_SIZE
    assert cost.flop(graph, graph.nodes[0], {"n": 5}) == 15
    assert cost.is_estimated(graph, "x")
    assert not cost.is_estimated(graph, "x", {"n": 5})
    assert cost.moved_nbytes(graph, graph.nodes[0], {"n": 5}) == 2 * 15 * np.dtype(np.float32).itemsize


class TestTables:
    def test_a_table_that_fits_a_terminal(self, make_session) -> None:
        found = make_session(TEXT).explain()
        narrow = found.format(60)
        table, _, below = narrow.partition("\n\n")
        assert max(map(len, table.splitlines())) <= 75
        reasons = {line for line in below.splitlines() if line.startswith("[")}
        assert all(re.match(r"\[\d+\] (1 node|\d+ nodes): ", line) for line in reasons)
        assert str(found) == found.format()

    def test_the_first_rows(self, make_session) -> None:
        found = make_session(TEXT).explain()
        assert f"the first 1 of {len(found.nodes)} nodes" in found.format(top=1)
