"""The reference provider against NumPy in float64, control flow included."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from intarsia.ep.provider import CompileContext, Program
from intarsia.graph.load import load
from intarsia.graph.model import Graph, Node
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.providers.reference import ReferenceExecutionProvider


def compiled(text: str) -> Program:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    graph = infer(load(model.SerializeToString()), registry()).graph
    return ReferenceExecutionProvider().compile(graph, CompileContext())


def test_runs_definitions() -> None:
    program = compiled("g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}> { a = Mul(x, w)  y = Tanh(a) }")
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(program.run([x])[0], np.tanh(x.astype(np.float64) * [1, 2, 3]), rtol=1e-6)
    assert [r.kernel for r in program.nodes()] == ["Mul", "Tanh"]


def test_results_share_no_memory() -> None:
    program = compiled(
        "g (float[2] x) => (float[2] y, float[2] z, float[2] v) <float[2] w = {1, 2}> { "
        "y = Identity(x)  z = Identity(w)  v = Identity(y) }"
    )
    x = np.float32([5, 6])
    results = program.run([x])
    for array in results:
        array[:] = 0
    assert x.tolist() == [5, 6]
    assert [r.tolist() for r in program.run([x])] == [[5, 6], [1, 2], [5, 6]]


def test_optional_inputs() -> None:
    program = compiled("g (float[3] x) => (float[3] y) <float high = {2}> { y = Clip(x, , high) }")
    assert program.run([np.float32([1, 2, 3])])[0].tolist() == [1, 2, 2]


def test_control_flow_with_captured_values() -> None:
    if registry().find("", "If", 17) is None:
        pytest.skip("If has no definition yet")
    program = compiled("""g (bool c, float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
        a = Add(x, w)
        y = If (c) <
            then_branch = t () => (float[3] p) { p = Neg(a) },
            else_branch = e () => (float[3] q) <float[3] u = {1, 1, 1}> { b = Add(a, u)  q = Mul(b, x) }
        >
    }""")
    x = np.float32([1, 2, 3])
    assert program.run([np.array(True), x])[0].tolist() == [-2, -4, -6]
    assert program.run([np.array(False), x])[0].tolist() == [3, 10, 21]


def test_unknown_operators_are_refused_with_a_reason() -> None:
    provider = ReferenceExecutionProvider()
    found = provider.supports(Node("Frobnicate", ["x"], ["y"], domain="my.domain", version=3), Graph())
    assert (found.code, found.reason) == ("no-kernel", "my.domain::Frobnicate version 3 has no definition")
    body = Graph(name="body", nodes=[Node("Frobnicate", [], ["y"])])
    found = provider.supports(Node("Relu", ["x"], ["y"], {"then_branch": body}, version=14), Graph())
    assert found.reason == "its subgraph 'body': Frobnicate version 0 has no definition"


def test_intermediates_are_freed_after_their_last_use() -> None:
    program = compiled("g (float[3] x) => (float[3] y) { a = Exp(x)  b = Neg(a)  y = Abs(b) }")
    assert [freed for *_, freed in program._steps] == [["x"], ["a"], ["b"]]  # type: ignore[attr-defined]
