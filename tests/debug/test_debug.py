"""Taps, the first value that is not finite, where providers part, and smaller models that still fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx.parser
import pytest
from typer.testing import CliRunner

import intarsia as ort
from intarsia.debug import compare_providers, first_nonfinite, reduce_model
from intarsia.debug.compare import difference
from intarsia.debug.reduce import providers_differ
from intarsia.ep.node_program import NodeProgram
from intarsia.ep.provider import CompileContext
from intarsia.graph.model import Graph, Node
from intarsia.providers.reference import ReferenceExecutionProvider, evaluate
from intarsia.providers.registry import register_execution_provider, unregister_execution_provider

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
X = np.float32([[1, -2, 3], [0.5, 4, -1]])


def model(text: str) -> bytes:
    return onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString()


CHAIN = model("""g (float[N, 3] x) => (float[N, 3] y, float[N, 3] e) {
    [first] a = Abs(x)  [second] b = Sqrt(a)  [third] c = Tanh(b)
    [fourth] d = Mul(c, a)  [fifth] e = Exp(d)  [sixth] y = Neg(e) }""")


def _tanh_and_half(node: Node, operands: Sequence[Any]) -> list[Any]:
    return [np.tanh(operands[0]) + np.float32(0.5)]


@pytest.fixture
def broken_tanh() -> Iterator[str]:
    """A provider whose Tanh is wrong."""

    class BrokenTanhExecutionProvider(ReferenceExecutionProvider):
        name: ClassVar[str] = "BrokenTanhExecutionProvider"

        def compile(self, graph: Graph, context: CompileContext) -> NodeProgram:
            functions = [_tanh_and_half if node.op_type == "Tanh" else evaluate for node in graph.nodes]
            constants = {name: constant.numpy() for name, constant in graph.constants.items()}
            return NodeProgram(graph, functions, constants, self.name)

    register_execution_provider(BrokenTanhExecutionProvider, replace=True)
    yield BrokenTanhExecutionProvider.name
    unregister_execution_provider(BrokenTanhExecutionProvider.name)


@pytest.mark.parametrize("provider", [CPU, REFERENCE])
def test_taps_by_value_node_and_pattern(provider: str) -> None:
    session = ort.InferenceSession(CHAIN, providers=[provider])
    plain = session.run(None, {"x": X})
    tapped = session.run(None, {"x": X}, taps=["b", "third", "f*th"])
    assert list(tapped.taps) == ["b", "c", "d", "e"]
    for found, expected in zip(tapped, plain, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(tapped.taps["c"], np.tanh(np.sqrt(np.abs(X))), rtol=1e-6)
    np.testing.assert_array_equal(tapped.taps["e"], plain[1])
    only = session.run(["e"], {"x": X}, taps=["a"])
    assert len(only) == 1
    np.testing.assert_array_equal(only.taps["a"], np.abs(X))


def test_a_tap_that_names_nothing() -> None:
    session = ort.InferenceSession(CHAIN)
    with pytest.raises(ort.InvalidArgument, match="no value and no node of the model matches 'sixt'; did you mean 'sixth'"):
        session.run(None, {"x": X}, taps=["sixt"])
    with pytest.raises(ort.InvalidArgument, match=r"write \['a'\]"):
        session.run(None, {"x": X}, taps="a")


def test_hooks_see_values_of_every_run() -> None:
    session = ort.InferenceSession(CHAIN)
    seen: list[tuple[str, float]] = []
    remove = session.add_hook(["b", "fourth"], lambda name, value: seen.append((name, float(value.max()))))
    results = session.run(["y"], {"x": X})
    assert type(results) is list
    assert [name for name, _ in seen] == ["b", "d"]
    assert seen[0][1] == 2.0
    session.run(None, {"x": X * 4}, ort.RunOptions())
    assert seen[2][1] == 4.0
    remove()
    session.run(None, {"x": X})
    assert len(seen) == 4
    with pytest.raises(ort.InvalidArgument, match="no value and no node of the model matches 'zzz'"):
        session.add_hook(["zzz"], print)


def test_the_first_value_that_is_not_finite() -> None:
    session = ort.InferenceSession(
        model("g (float[N, 3] x) => (float[N, 3] y) { [e] a = Exp(x)  [l] b = Log(x)  [s] c = Add(a, b)  [m] y = Softmax(c) }")
    )
    found = first_nonfinite(session, {"x": X})
    assert found is not None
    assert (found.value, found.node, found.op, found.nans, found.infinities, found.index) == ("b", "l", "Log", 2, 0, (0, 1))
    assert found.inputs == {"x": (-2.0, 4.0)}
    assert "node 'l' (Log): value 'b' has 2 NaN and 0 infinite elements, the first at [0, 1]" in str(found)
    assert first_nonfinite(session, {"x": np.abs(X)}) is None
    spoilt = first_nonfinite(session, {"x": X * np.inf})
    assert spoilt is not None
    assert str(spoilt).startswith("the model's input: value 'x' has")


@pytest.mark.parametrize("mode", ["ignore", "warn", "error"])
def test_the_guard_of_a_session(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.nonfinite", mode)
    session = ort.InferenceSession(model("g (float[N, 3] x) => (float[N, 3] y) { [root] a = Sqrt(x)  y = Mul(a, a) }"), options)
    assert np.isfinite(session.run(None, {"x": np.abs(X)})[0]).all()
    if mode == "error":
        with pytest.raises(ort.Fail, match=r"an output is not finite: node 'root' \(Sqrt\)"):
            session.run(None, {"x": X})
        return
    with caplog.at_level("WARNING"):
        assert np.isnan(session.run(None, {"x": X})[0]).any()
    assert ("node 'root' (Sqrt)" in caplog.text) == (mode == "warn")
    with pytest.raises(ort.InvalidArgument, match="expected one of ignore,warn,error, got 'yes'"):
        options.add_session_config_entry("session.nonfinite", "yes")


def test_providers_that_agree() -> None:
    found = compare_providers(CHAIN, [CPU, REFERENCE], {"x": X})
    assert found.equal
    assert str(found) == f"{CPU} and {REFERENCE} agree"
    with pytest.raises(ort.InvalidArgument, match="expected two providers"):
        compare_providers(CHAIN, [CPU], {"x": X})


def test_the_first_node_that_differs(broken_tanh: str) -> None:
    found = compare_providers(CHAIN, [broken_tanh, REFERENCE], {"x": X})
    assert not found.equal
    assert (found.node, found.op) == ("third", "Tanh")
    assert found.difference is not None
    assert found.difference.value == "c"
    assert not found.fused_only
    assert "first at node 'third' (Tanh): 'c' differs by 0.5" in str(found)


def test_a_smaller_model_that_still_fails(broken_tanh: str, tmp_path: Path) -> None:
    found = reduce_model(CHAIN, {"x": X}, providers_differ([broken_tanh, REFERENCE]))
    assert (found.nodes, found.of) == (1, 6)
    assert list(found.feed) == ["b"]
    np.testing.assert_allclose(found.feed["b"], np.sqrt(np.abs(X)), rtol=1e-6)
    found.save(tmp_path / "small.onnx")
    small = onnx.load(str(tmp_path / "small.onnx"))
    assert [n.op_type for n in small.graph.node] == ["Tanh"]
    with np.load(tmp_path / "small.npz") as arrays:
        assert list(arrays) == ["in_b"]
    with pytest.raises(ort.InvalidArgument, match="does not fail for the whole model"):
        reduce_model(CHAIN, {"x": X}, providers_differ([CPU, REFERENCE]))


def test_a_reduction_keeps_all_nodes_that_matter() -> None:
    """The failure here needs two nodes that are not neighbours."""

    def fails(data: bytes, _feed: object) -> bool:
        ops = [n.op_type for n in onnx.load_from_string(data).graph.node]
        return "Sqrt" in ops and "Exp" in ops

    found = reduce_model(CHAIN, {"x": X}, fails)
    assert [n.op_type for n in onnx.load_from_string(found.model).graph.node] == ["Sqrt", "Exp"]
    session = ort.InferenceSession(found.model)
    assert all(np.isfinite(y).all() for y in session.run(None, found.feed))


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        (np.float32([1, 2]), np.float32([1, 2.00001]), False),
        (np.float32([1, 2]), np.float32([1, 2.1]), True),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), False),
        (np.float32([np.nan]), np.float32([0]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), True),
        (np.float32([1]), np.float64([1]), True),
        (np.float32([1]), np.float32([[1]]), True),
        (np.int64([1]), np.int64([2]), True),
        (np.array(["a"], object), np.array(["b"], object), True),
        ([np.float32(1)], [np.float32(1)], False),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), False),
    ],
)
def test_differences(left: Any, right: Any, apart: bool) -> None:
    assert (difference("v", left, right, 1e-4, 1e-6) is not None) == apart


def test_commands(broken_tanh: str, tmp_path: Path) -> None:
    from intarsia.cli.app import app

    path = tmp_path / "chain.onnx"
    path.write_bytes(CHAIN)
    run = CliRunner().invoke
    agreeing = run(app, ["compare", str(path), "-d", "N=2"])
    assert agreeing.exit_code == 0, agreeing.output
    pair = f"{broken_tanh},{REFERENCE}"
    parting = run(app, ["compare", str(path), "-p", pair, "-d", "N=2", "-i", "x=@random:1:2"])
    assert parting.exit_code == 1
    assert "first at node 'third' (Tanh)" in parting.output
    small = tmp_path / "small.onnx"
    reduced = run(app, ["reduce", str(path), "-o", str(small), "-p", pair, "-d", "N=2", "-i", "x=@random:1:2"])
    assert reduced.exit_code == 0, reduced.output
    assert "1 of 6 nodes" in reduced.output
    assert small.exists()
    assert "expected two" in str(run(app, ["compare", str(path), "-p", CPU]).exception)
