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


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_with_sizes_that_only_a_run_knows(batch: int) -> None:
    """A sequence that begins with a tensor, of rows that are as long as an input, and a condition from around the loop."""
    text = f"""{HEADER} g (float[n, 4] x, float[n] h) => (float[k, n] y, float[n] last) <int64[1] axes = {{1}}> {{
        on = Constant<value = bool {{1}}>()  count = Shape<start = 1, end = 2>(x)
        begin = SequenceConstruct(h)
        last, all = Loop (count, on, h, begin) <body = b (int64 i, bool c, float[a] old, seq(float[a]) rows) =>
            (bool go, float[q] new, seq(float[q]) more) {{
            column = Gather<axis = 1>(x, i)  sum = Add(column, old)  new = Tanh(sum)
            go = Identity(on)  more = SequenceInsert(rows, new) }}>
        y = ConcatFromSequence<axis = 0, new_axis = 1>(all) }}"""
    rng = np.random.default_rng(3)
    feeds = {"x": rng.normal(size=(batch, 4)).astype(np.float32), "h": rng.normal(size=batch).astype(np.float32)}
    session = same(text, feeds)
    assert not [n for n in session.explain().nodes if n.kind == "host"]
    y, last = session.run(None, feeds)
    assert y.shape == (5, batch)
    np.testing.assert_array_equal(y[-1], last)


def test_rows_whose_sizes_an_iteration_decides_stay_a_sequence() -> None:
    text = f"""{HEADER} g (int64 M, float[n] x) => (float[k] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
        empty = SequenceEmpty<dtype = 1>()
        all = Loop (M, "", empty) <body = b (int64 i, bool c, seq(float[a]) rows) => (bool go, seq(float[q]) more) {{
            go = Identity(c)  at = Reshape(i, one)  end = Add(at, one)  part = Slice(x, zero, end)
            more = SequenceInsert(rows, part) }}>
        y = ConcatFromSequence<axis = 0>(all) }}"""
    model = onnx.parser.parse_model(text)
    assert "collect_rows" not in [entry.rule for entry in optimize(load(model)).log]
    options = ort.SessionOptions()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.arange(4, dtype=np.float32)
    found = session.run(None, {"M": np.array(3), "x": x})[0]
    np.testing.assert_array_equal(found, [0, 0, 1, 0, 1, 2])
