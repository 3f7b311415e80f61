"""What pages get to show: nodes, layers, bodies, values, times, and what comes before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.reports.explain import Explanation
from intarsia.reports.page.page_data import PageData, comparison_data
from intarsia.reports.profile_report import ProfileReport

from .conftest import feed, flat, layers, session_of

NAME, OP, PROVIDER, GROUP, REFUSALS, FLOP, TIME, PART_OF, BEFORE = 0, 1, 2, 7, 8, 11, 14, 15, 16
CPU = "CPUExecutionProvider"


def path(data: dict[str, Any], number: int) -> list[str]:
    parts: list[str] = []
    while number >= 0:
        parent, name, _ = data["groups"][number]
        parts.insert(0, data["strings"][name])
        number = parent
    return parts


def row_of(data: dict[str, Any], name: str) -> list[Any]:
    (found,) = (row for row in data["nodes"] if data["strings"][row[NAME]] == name)
    return found


def sum_of(data: dict[str, Any], column: int) -> float:
    return sum(row[column] or 0 for row in data["nodes"])


def sum_of_kernels(report: ProfileReport) -> float:
    return sum(kernel.milliseconds for kernel in report.kernels)


def test_a_row_per_node_with_its_reasons(make_session, example_plugin: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    text = "g (float[3] x) => (float[3] y) <float[3] v = {2, 2, 2}> { a = Mul(x, v)  b = Neg(a)  y = Add(a, b) }"
    providers = [(example_plugin, {"stride": 2}), CPU, "ReferenceExecutionProvider"]
    found = make_session(text, options, providers=providers).explain()
    data = PageData(found, None, None, "three").data()
    assert data["title"] == "Placement of three"
    assert len(data["nodes"]) == len(found.nodes)
    for row, node in zip(data["nodes"], found.nodes, strict=True):
        assert data["providers"][row[PROVIDER]] == node.provider
        texts = [[data["strings"][text] for text in data["refusals"][number]] for number in row[REFUSALS]]
        assert texts == [[name, no.code, no.reason, no.suggestion] for name, no in node.refusals.items()]
    assert data["steps"] == list(found.steps)


def test_layers_are_groups_and_edges_join_nodes(three_layers: ort.InferenceSession) -> None:
    data = PageData(three_layers.explain(), None, None, "").data()
    assert path(data, row_of(data, "/model/layers.1/mlp/act/Relu")[GROUP]) == ["model", "layers.1", "mlp", "act"]
    assert row_of(data, "/Identity")[GROUP] == -1
    names = [data["strings"][row[NAME]] for row in data["nodes"]]
    joined = {(names[a], names[b]) for a, b, _ in data["edges"]}
    assert ("/model/layers.0/attention/Softmax", "/model/layers.0/attention/MatMul_1") in joined
    assert ("/model/layers.0/Add_1", "/model/layers.1/attention/q_proj/MatMul") in joined
    (mask,) = (readers for value, readers in data["inputs"] if data["strings"][data["values"][value][0]] == "mask")
    assert {names[i] for i in mask} == {f"/model/layers.{i}/attention/Add" for i in range(3)}
    ((value, producer),) = data["outputs"]
    assert (data["strings"][data["values"][value][0]], names[producer]) == ("y", "/Identity")
    types = {data["strings"][name]: data["strings"][text] for name, text in data["values"]}
    assert types["mask"] == "float[n, n]" and types["w"] == "float[8, 8]"


def test_times_and_operations_are_of_the_sizes_that_ran(three_layers: ort.InferenceSession) -> None:
    report = three_layers.profile(feed(5), 3, roofline=False)
    data = PageData(three_layers.explain(), report, None, "").data()
    product = row_of(data, "/model/layers.0/attention/q_proj/MatMul")
    assert product[FLOP] == 2 * 5 * 8 * 8
    types = {data["strings"][name]: data["strings"][text] for name, text in data["values"]}
    assert types["mask"] == "float[5, 5]"
    assert sum_of(data, TIME) == pytest.approx(sum_of_kernels(report), rel=1e-3), "nothing is lost, nothing counts twice"
    shared = [row for row in data["nodes"] if row[PART_OF] >= 0]
    assert shared and all(row[TIME] is None and data["nodes"][row[PART_OF]][TIME] is not None for row in shared)
    assert data["profile"]["ms"] == pytest.approx(report.milliseconds, abs=1e-5)
    assert data["profile"]["before"] is None


def test_two_profiles_stand_beside_each_other(three_layers: ort.InferenceSession) -> None:
    before, after = (three_layers.profile(feed(), 2, roofline=False) for _ in range(2))
    data = PageData(three_layers.explain(), after, before, "").data()
    assert sum_of(data, BEFORE) == pytest.approx(sum_of_kernels(before), rel=1e-3)
    assert data["profile"]["before"] == pytest.approx(before.milliseconds, abs=1e-5)


def test_two_profiles_without_a_graph(three_layers: ort.InferenceSession) -> None:
    before = session_of(layers(1)).profile(feed(), 2, roofline=False)
    after = three_layers.profile(feed(), 2, roofline=False)
    data = comparison_data(Explanation((), (), ()), before, after, "model")
    assert data["picture"] is False
    assert sum_of(data, TIME) == pytest.approx(sum_of_kernels(after), rel=1e-3)
    assert sum_of(data, BEFORE) == pytest.approx(sum_of_kernels(before), rel=1e-3)


def test_nodes_in_bodies(make_session) -> None:
    text = """g (bool c, float[3] x) => (float[3] y) {
        a = Abs(x)
        [choice] y = If(c) <
            then_branch = t () => (float[3] p) { q = Neg(a) p = Exp(q) },
            else_branch = e () => (float[3] p) { q = Sqrt(a) p = Identity(q) }
        >
    }"""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = make_session(text, options, providers=[CPU])
    found = session.explain()
    inner = {node.op: node for node in found.nodes if node.body}
    branches = {"Neg": "then", "Exp": "then", "Sqrt": "else", "Identity": "else"}
    assert {op: node.body for op, node in inner.items()} == {op: (f"choice.{b}_branch",) for op, b in branches.items()}
    assert {node.kind for node in inner.values()} == {"body"}
    assert found.counts == {CPU: 2}, "nodes in bodies are run by theirs"
    assert "in choice.then_branch" in str(found) and "in bodies: 4" in str(found)
    data = PageData(found, None, None, "").data()
    ops = [data["strings"][row[OP]] for row in data["nodes"]]
    joined = {(ops[a], ops[b]) for a, b, _ in data["edges"]}
    assert {("Abs", "Neg"), ("Abs", "Sqrt"), ("Neg", "Exp"), ("Sqrt", "Identity"), ("Exp", "If"), ("Identity", "If")} <= joined
    assert ("Abs", "If") not in joined, "the branches read it, not the node"
    assert ("Neg", "Identity") not in joined, "both branches have a value q of their own"
    number = next(row[GROUP] for row in data["nodes"] if data["strings"][row[OP]] == "Neg")
    assert data["groups"][number][2] == 1 and path(data, number)[-1] == "choice.then_branch"


def test_bodies_of_loops(make_session) -> None:
    text = """g (int64 n, float[3] x) => (float[3] y) <bool t = {1}> {
        [loop] y = Loop(n, t, x) <
            body = b (int64 i, bool c, float[3] s) => (bool d, float[3] r) { d = Identity(c) r = Neg(s) }
        >
    }"""
    (inner,) = {node.body for node in make_session(text, providers=[CPU]).explain().nodes if node.op == "Neg"}
    assert inner == ("loop.body",)


@pytest.mark.parametrize("model", [layers(80), flat(10_000)], ids=["layers", "flat"])
def test_sizes_of_pages(model: onnx.ModelProto) -> None:
    page = session_of(model, ["ReferenceExecutionProvider"]).explain().to_html()
    assert len(page.encode()) < 3 << 20


def test_notebooks_show_tables(three_layers: ort.InferenceSession) -> None:
    report = three_layers.profile(feed(), 2, roofline=False)
    shown = [found._repr_html_() for found in (three_layers, three_layers.explain(), report, report.compare(report))]
    assert all("<script" not in text and "<table>" in text for text in shown)
    session, explanation, profile, comparison = shown
    assert "mask" in session and "nx8" in session and CPU in session
    assert "/model/layers.2/Add" in explanation and f"{CPU}: {len(three_layers.explain().nodes)}" in explanation
    assert "by operator" in profile and "MatMul" in profile and f"{report.milliseconds:.3f} ms" in profile
    assert "x1.00" in comparison and "+0.0000" in comparison


def test_notebooks_escape_names() -> None:
    tensor = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Neg", ["<b>"], ["y"], name="<i>")
    graph = onnx.helper.make_graph([node], "g", [tensor("<b>", 1, [2])], [tensor("y", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = session_of(model, ["ReferenceExecutionProvider"])
    for text in (session._repr_html_(), session.explain()._repr_html_()):
        assert "<b>" not in text.replace("<p><b>InferenceSession</b>", "") and "<i>" not in text
    assert np.array_equal(session.run(None, {"<b>": np.ones(2, np.float32)})[0], [-1, -1])
