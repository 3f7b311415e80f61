"""Loops that only make a tensor or a sequence longer: stacked outputs, the same results, and no call of Python in each trip."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.passes.optimizer import optimize

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def concat(axis: int, row: str = "float[1, 4]", start: str = "float[a, b]") -> str:
    return f"""{HEADER} g (int64 M, bool c, {row} x, {start} s) => (float[p, q] y, {row} last) {{
        y, last = Loop (M, c, s, x) <body = b (int64 i, bool on, float[u, v] old, {row} cell) =>
            (bool go, float[w, z] new, {row} next) {{
            go = Identity(on)  next = Tanh(cell)  row = Mul(next, cell)  new = Concat<axis = {axis}>(old, row) }}> }}"""


def sequence(axis: int, new_axis: int) -> str:
    return f"""{HEADER} g (int64 M, bool c, float[2, 3] x) => (float[p, q] y) {{
        empty = SequenceEmpty<dtype = 1>()
        all, last = Loop (M, c, empty, x) <body = b (int64 i, bool on, seq(float[2, 3]) old, float[2, 3] cell) =>
            (bool go, seq(float[2, 3]) new, float[2, 3] next) {{
            go = Identity(on)  next = Tanh(cell)  new = SequenceInsert(old, next) }}>
        y = ConcatFromSequence<axis = {axis}, new_axis = {new_axis}>(all) }}"""


def same(text: str, feeds: dict[str, np.ndarray]) -> ort.InferenceSession:
    """Plain, optimised, and by the reference provider; the rule fires."""
    model = onnx.parser.parse_model(text)
    assert "collect_rows" in [entry.rule for entry in optimize(load(model)).log]
    results = []
    for level, provider in ((LEVELS[0], "Reference"), (LEVELS[0], "CPU"), (LEVELS[1], "CPU")):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model.SerializeToString(), options, providers=[f"{provider}ExecutionProvider"])
        results.append(session.run(None, feeds))
    for found in results[1:]:
        for f, e in zip(found, results[0], strict=True):
            assert f.shape == e.shape
            np.testing.assert_allclose(f, e, rtol=1e-5)
    return session


def native(text: str, feeds: dict[str, np.ndarray]) -> None:
    """Where only the count ends the loop, nothing of it runs on the host."""
    session = same(text.replace("bool c, ", "").replace("(M, c, ", '(M, "", '), {n: x for n, x in feeds.items() if n != "c"})
    assert not [n for n in session.explain().nodes if n.kind == "host"]


@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int, trips: int) -> None:
    start = np.full((3, 4) if axis == 0 else (1, 2), 7, np.float32)
    feeds = {"M": np.array(trips), "c": np.array(True), "x": np.arange(4, dtype=np.float32).reshape(1, 4), "s": start}
    same(concat(axis), feeds)
    native(concat(axis), feeds)


def test_the_condition_ends_the_loop() -> None:
    text = concat(0).replace("go = Identity(on)", "t = ReduceMax<keepdims = 0>(cell)  go = Greater(t, limit)")
    text = text.replace("float[a, b] s)", "float[a, b] s, float limit)")
    for limit in (0.5, 10.0):
        feeds = {"M": np.array(9), "c": np.array(True), "x": np.ones((1, 4), np.float32), "s": np.zeros((2, 4), np.float32)}
        same(text, {**feeds, "limit": np.array(limit, np.float32)})


@pytest.mark.parametrize(("axis", "new_axis"), [(0, 0), (1, 0), (-1, 0), (0, 1), (1, 1), (2, 1), (-1, 1)])
def test_sequences(axis: int, new_axis: int) -> None:
    feeds = {"M": np.array(4), "c": np.array(True), "x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    same(sequence(axis, new_axis), feeds)
    native(sequence(axis, new_axis), feeds)


def test_rows_from_outside_and_other_rows() -> None:
    text = concat(0).replace("row = Mul(next, cell)  new = Concat<axis = 0>(old, row)", "new = Concat<axis = 0>(old, x)")
    text = text.replace("float[1, 4] next)", "float[1, 4] next, float[1, 4] k)").replace("y, last =", "y, last, ks =")
    text = text.replace("float[1, 4] last)", "float[1, 4] last, float[t, 1, 4] ks)").replace(
        "(old, x) }>", "(old, x)  k = Neg(next) }>"
    )
    feeds = {"M": np.array(3), "c": np.array(True), "x": np.ones((1, 4), np.float32), "s": np.zeros((2, 4), np.float32)}
    same(text, feeds)
    native(text, feeds)


def test_two_that_grow() -> None:
    """Each is taken in turn; the other carried values keep their places."""
    text = f"""{HEADER} g (int64 M, float[1, 4] x) => (float[p, 4] y, float[1, 4] last, float[1, q] z) {{
        y, last, z = Loop (M, "", x, x, x) <body = b (int64 i, bool on, float[u, 4] old, float[1, 4] cell, float[1, w] far) =>
            (bool go, float[v, 4] new, float[1, 4] next, float[1, r] farther) {{
            go = Identity(on)  next = Tanh(cell)  new = Concat<axis = 0>(old, next)  half = Neg(next)
            farther = Concat<axis = 1>(far, half) }}> }}"""
    feeds = {"M": np.array(3), "x": np.ones((1, 4), np.float32)}
    session = same(text, feeds)
    assert not [n for n in session.explain().nodes if n.kind == "host"]


UNTOUCHED = {
    "the body reads it": concat(0).replace("row = Mul(next, cell)", "m = ReduceMean<axes = [0]>(old)  row = Add(m, cell)"),
    "rows of any size": concat(0, row="float[r, 4]"),
    "prepended": concat(0).replace("(old, row)", "(row, old)"),
    "twice": concat(0).replace("(old, row)", "(old, old)"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNTOUCHED)
def test_what_is_left_alone(case: str) -> None:
    graph = load(onnx.parser.parse_model(UNTOUCHED[case]))
    assert "collect_rows" not in [entry.rule for entry in optimize(graph).log]
