"""Operators that do not exist: all of them in one error when a model is loaded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.defs
import onnx.parser
import pytest

import intarsia
from intarsia.errors import NotImplemented
from intarsia.graph.load import load
from intarsia.ops import builtin
from intarsia.ops.framework.missing_operators import KNOWN_OPSETS, missing_operators
from intarsia.ops.framework.registry import Registry

Make = Callable[..., onnx.ModelProto]

MANY = """g (bool c, float[3] x) => (y) {
    [first] a = my.Zork (x)
    b = Rely (a)
    d = com.microsoft.SkipLayerNormalisation (b)
    [second] e = my.Zork (d)
    y = If (c) <then_branch = t () => (float[3] p) { [inside] p = my.Bar (e) },
                else_branch = f () => (float[3] q) { q = Neg (e) }>
}"""


def test_all_are_named_at_once(make_model: Make) -> None:
    with pytest.raises(NotImplemented) as caught:
        intarsia.InferenceSession(make_model(MANY))
    lines = str(caught.value).splitlines()
    assert lines[0] == "the model needs 4 operators that do not exist here:"
    assert lines[1:-1] == [
        "  my::Zork (version 1), nodes 'first', 'second'",
        "  ai.onnx::Rely (version 20), node 'Rely_1'; did you mean ai.onnx::Relu?",
        (
            "  com.microsoft::SkipLayerNormalisation (version 1), node 'SkipLayerNormalisation_2'; "
            "did you mean com.microsoft::SkipLayerNormalization?"
        ),
        "  my::Bar (version 1), node 'inside'",
    ]
    assert lines[-1].startswith("add an operator with @intarsia.op (tensor primitives) or @intarsia.host_op (a NumPy function)")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "y = other.Foo (x)",
            r"other::Foo \(domain 'other' is not imported\), node 'Foo_0'; add onnx.helper.make_opsetid.*, and",
        ),
        (
            "y = my.own.Scaler (x)",
            r"my.own::Scaler \(domain .my.own. is not imported\)",
        ),
        ("y = my.Gelu (x)", "my::Gelu .*; did you mean ai.onnx::Gelu?|my::Gelu .*; did you mean com.microsoft::Gelu?"),
        ("y = gelu (x)", "ai.onnx::gelu .*; did you mean ai.onnx::Gelu?"),
        (
            "y = RMSNormalization (x, x)",
            r"RMSNormalization \(version 20\).*; it is defined from version 23 on: convert the model",
        ),
        ("y = my.F1 (x) a = my.F1 (x) b = my.F1 (x) c = my.F1 (x)", "nodes 'F1_0', 'F1_1', 'F1_2' and 1 more"),
    ],
)
def test_what_may_have_been_meant(make_model: Make, body: str, message: str) -> None:
    with pytest.raises(NotImplemented, match=message):
        intarsia.InferenceSession(make_model(f"g (float[3] x) => (y) {{ {body} }}"))


def test_functions_are_looked_into_and_count_as_operators(make_model: Make) -> None:
    text = """g (float[3] x) => (y) { y = f.Twice (x) }
    <domain: "f", opset_import: ["": 20, "my": 1]> Twice (v) => (w) { [inner] w = my.Zork (v) }"""
    model = make_model(text, '<ir_version: 10, opset_import: ["": 20, "f": 1]>')
    (missing,) = missing_operators(load(model), builtin())
    assert (missing.domain, missing.op_type, missing.nodes) == ("my", "Zork", ("inner",))


def test_operators_that_onnx_writes_out_are_not_missing(make_model: Make) -> None:
    fewer = Registry({key: r for key, r in builtin().records.items() if key != ("", "Gelu")})
    graph = load(make_model("g (float[3] x) => (y) { y = Gelu (x) }"))
    assert not missing_operators(graph, fewer)


def test_a_model_from_the_future_is_refused(make_model: Make) -> None:
    model = make_model("g (float[3] x) => (y) { y = Neg (x) }")
    model.opset_import[0].version = 99
    with pytest.raises(
        NotImplemented, match=r"version 99 of the operator set ai.onnx is not known here, the newest is \d+: export"
    ):
        intarsia.InferenceSession(model)
    model.opset_import[0].version = 0
    with pytest.raises(NotImplemented, match=r"version 0 of the operator set ai.onnx is no version; expected 1 or more$"):
        intarsia.InferenceSession(model)


def test_an_own_operator_set_may_have_version_0(make_model: Make) -> None:
    model = make_model("g (float[2] x) => (float[2] y) { y = my.Twice (x) }")
    text = '<opset_import: ["" : 17], domain: "my"> Twice (a) => (b) { b = Add (a, a) }'
    model.functions.append(onnx.parser.parse_function(text))
    next(i for i in model.opset_import if i.domain == "my").version = 0
    session = intarsia.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    assert session.run(None, {"x": np.float32([1, 2])})[0].tolist() == [2, 4]
    next(i for i in model.opset_import if i.domain == "my").version = -1
    with pytest.raises(NotImplemented, match=r"version -1 of the operator set my is no version; expected 0 or more$"):
        intarsia.InferenceSession(model)


def test_the_known_opsets_are_onnxs() -> None:
    newest: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        newest[schema.domain] = max(newest.get(schema.domain, 0), schema.since_version)
    known = {domain: version for domain, version in KNOWN_OPSETS.items() if domain in newest}
    assert all(known[domain] >= newest[domain] for domain in known)
    assert known[""] >= onnx.defs.onnx_opset_version()


def test_attributes_of_another_kind_are_a_typed_error(make_model: Make) -> None:
    model = make_model('g (float[3] x) => (y) { [joined] y = Concat <axis = "last"> (x, x) }')
    message = r"node 'joined' \(Concat\): attribute 'axis' is 'last'; expected an integer"
    with pytest.raises(intarsia.InvalidGraph, match=message):
        intarsia.InferenceSession(model)
