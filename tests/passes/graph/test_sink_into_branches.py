"""If in a loop whose branches give different sizes: what sees the difference goes into the branches."""

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import intarsia
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.passes import optimize

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y, float[k] s) '
CONSTANTS = """<int64 trips = {6}, bool yes = {1}, int64[1] none = {0}, int64[1] one = {1}, int64[1] three = {3},
 int64[2] flat = {1, -1}, float low = {-0.1}, int64[1] far = {1000}>"""
SLICED = "then_branch = t () => (float[a, b] u) { u = Slice(v, none, three, none) }"
WHOLE = "else_branch = e () => (float[c, d] w) { w = Identity(v) }"


def _model(after: str, other: str = WHOLE):
    body = f"""<body = b (int64 i, bool c, float[n, 4] v) => (bool again, float[n, 4] o, float m) {{
        again = Identity(c) mean = ReduceMean<keepdims = 0>(v) up = Greater(mean, low)
        z = If(up) <{SLICED}, {other}> {after} m = ReduceMax<keepdims = 0>(o) }}>"""
    return onnx.parser.parse_model(f"{HEAD} {CONSTANTS} {{ y, s = Loop(trips, yes, x) {body} }}")


def _same(session, model, x):
    for found, expected in zip(session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        # onnx's evaluator gives stacked scalars an axis of their own
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-5, atol=1e-5)


AGREE = {
    "a sum": "q = ReduceMean<axes = [0], keepdims = 1>(z) t = Sub(v, q) o = Tanh(t)",
    "two steps": "p = Neg(z) h = Mul(p, p) q = ReduceSum<keepdims = 1>(h, none) t = Sub(v, q) o = Tanh(t)",
    "its size": "d = Shape<end = 1>(z) f = Cast<to = 1>(d) r = Mul(f, low) t = Add(v, r) o = Tanh(t)",
    "with something computed behind it": """g = Exp(v) j = ReduceMax<axes = [0], keepdims = 1>(g) p = Add(z, j)
        q = ReduceMean<axes = [0], keepdims = 1>(p) t = Sub(v, q) o = Tanh(t)""",
}


def _sunk(model) -> Graph:
    result = optimize(load(model.SerializeToString()))
    assert {e.rule: e.times for e in result.log}.get("sink_into_branches") == 1
    return result.graph


@pytest.mark.parametrize("name", AGREE)
@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
def test_sizes_agree_again(name, shift):
    model = _model(AGREE[name])
    _sunk(model)
    data = model.SerializeToString()
    session = intarsia.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert "runs a subgraph" not in str(session.explain())
    for n in (5, 9):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32) + np.float32(shift)
        _same(session, model, x)


def test_what_is_carried_in_different_sizes_stays():
    model = _model("o = Identity(z)")
    result = optimize(load(model.SerializeToString()))
    assert "sink_into_branches" not in {e.rule for e in result.log}
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32) + 1
    _same(session, model, x)


def test_it_can_be_disabled():
    data = load(_model(AGREE["a sum"]).SerializeToString())
    result = optimize(data, disabled=frozenset(("sink_into_branches",)))
    assert "sink_into_branches" not in {e.rule for e in result.log}
    assert "sink_into_branches" not in {e.rule for e in optimize(data, limit=0).log}


def test_a_row_that_goes_from_the_front_to_the_end_keeps_the_size():
    turned = """else_branch = e () => (float[c, d] w) { p = Slice(v, one, far, none) q = Slice(v, none, one, none)
        w = Concat<axis = 0>(p, q) }"""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) {CONSTANTS} {{
        y = Loop(trips, yes, x) <body = b (int64 i, bool c, float[n, 4] v) => (bool again, float[n, 4] o) {{ again = Identity(c)
        mean = ReduceMean<keepdims = 0>(v) up = Greater(mean, low)
        o = If(up) <then_branch = t () => (float[a, b] u) {{ m = Tanh(v) u = Sub(m, yesf) }}, {turned}> }}> }}"""
    text = text.replace("bool yes = {1}", "bool yes = {1}, float yesf = {0.3}").replace("{1000}", "{9223372036854775807}")
    model = onnx.parser.parse_model(text)
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert "runs a subgraph" not in str(session.explain())
    for n in (1, 6):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        _same(session, model, x)
