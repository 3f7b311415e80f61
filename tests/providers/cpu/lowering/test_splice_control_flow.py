"""If, Loop and Scan as native steps: equal to the reference provider, which walks bodies one iteration at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia.plan.segment import Segment
from intarsia.providers.cpu.program.cpu_program import CpuProgram

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
X = np.float32([1, -2, 3, -4])
TRUE = "c = Constant<value = bool {1}>()"
HALF = "h = Constant<value = float[1] {0.5}>()"


def session(text: str, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    return ort.InferenceSession(onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString(), providers=[provider])


def units(made: ort.InferenceSession) -> list[str]:
    (program,) = made._model.programs
    return [type(u).__name__ for u in program.executable.units]


def check(text: str, *feeds: dict[str, Any], native: bool = True) -> ort.InferenceSession:
    """Equal on both providers for all feeds; as one native segment if `native`, else with a step in Python."""
    made, reference = session(text), session(text, "ReferenceExecutionProvider")
    for feed in feeds:
        for found, expected in zip(made.run(None, feed), reference.run(None, feed), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (units(made) == ["Segment"]) == native
    return made


def trips(*counts: int) -> list[dict[str, Any]]:
    return [{"x": X, "n": np.array(count)} for count in counts]


def test_carried_values_and_stacked_outputs() -> None:
    text = f"""g (float[4] x, int64 n) => (float[4] y, float[K, 4] ys, int64[K] seen) {{ {TRUE}
        y, ys, seen = Loop(n, c, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2, float[4] s, int64 j)
        {{ co = Identity(ci)  {HALF} a1 = Mul(a, h)  a2 = Neg(a1)  s = Exp(a2)  j = Identity(i) }}> }}"""
    made = check(text, *trips(5, 0, 1, 300, -3))
    rows = {(n.kind, n.provider) for n in made.explain().nodes if n.op == "Loop"}
    assert rows == {("compiled", "CPUExecutionProvider")}


def test_the_number_of_the_iteration_may_have_an_axis() -> None:
    text = f"""g (int64[2] x, int64 n) => (int64[2] y, int64[K, 3] rows) {{ {TRUE}
        y, rows = Loop(n, c, x) <body = b (int64[1] i, bool ci, int64[2] a) => (bool co, int64[2] a2, int64[3] r)
        {{ co = Identity(ci)  a2 = Add(a, i)  r = Concat<axis = -1>(a2, i) }}> }}"""
    made = check(text, *({"x": np.array([5, 7]), "n": np.array(n)} for n in (0, 1, 4)))
    y, rows = made.run(None, {"x": np.array([5, 7]), "n": np.array(3)})
    assert (y.tolist(), rows.tolist()) == ([8, 10], [[5, 7, 0], [6, 8, 1], [8, 10, 2]])


def test_a_condition_ends_the_loop() -> None:
    text = """g (float[4] x, int64 n, bool c) => (float[4] y) {
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2)
        { a2 = Add(a, a)  m = ReduceMax<keepdims = 0>(a2)  lim = Constant<value = float {100.0}>()  co = Less(m, lim) }> }"""
    check(text, *({**feed, "c": np.array(c)} for feed in trips(3, 1000, 0) for c in (True, False)))


def test_no_trip_count_and_no_condition() -> None:
    body = """y = Loop(%s, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2)
        { one = Constant<value = int64 {1}>()  k = Add(i, one)  f = Cast<to = 1>(k)  a2 = Add(a, f)
          seven = Constant<value = int64 {7}>()  co = Less(k, seven) }> }"""
    check(f"g (float[4] x) => (float[4] y) {{ {TRUE} " + body % '"", c', {"x": X})
    check("g (float[4] x, int64 n) => (float[4] y) { " + body % 'n, ""', *trips(9, 2))


def test_values_that_change_places() -> None:
    text = f"""g (float[4] x, float[4] z, int64 n) => (float[4] y, float[4] w, float[4] v) {{ {TRUE}
        y, w, v = Loop(n, c, x, z, x) <body = b (int64 i, bool ci, float[4] p, float[4] q, float[4] r)
            => (bool co, float[4] q2, float[4] p2, float[4] r2)
        {{ co = Identity(ci)  q2 = Identity(q)  p2 = Identity(p)  r2 = Add(r, p) }}> }}"""
    check(text, *({**feed, "z": X[::-1].copy()} for feed in trips(0, 1, 2, 7)))


def test_memory_is_not_shared_with_the_next_iteration() -> None:
    """What is computed before the loop and read inside it stays, whatever the body's own values need."""
    text = f"""g (float[4] x, int64 n) => (float[4] y, float[4] late) {{ {TRUE}
        before = Exp(x)  early = Sqrt(before)
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2)
        {{ co = Identity(ci)  {HALF} p = Softmax(a)  q = Softmax(p)  s = Mul(q, early)  t = Softmax(s)  a2 = Add(t, before) }}>
        late = Neg(early) }}"""
    check(text, *trips(1, 20))


def test_large_values_on_all_threads() -> None:
    rng = np.random.default_rng(0)
    text = f"""g (float[N, 64] x, float[64, 64] w, int64 n) => (float[N, 64] y, float[K, N, 64] ys) {{ {TRUE}
        y, ys = Loop(n, c, x) <body = b (int64 i, bool ci, float[N, 64] a) => (bool co, float[N, 64] a2, float[N, 64] s)
        {{ co = Identity(ci)  a1 = MatMul(a, w)  a2 = Tanh(a1)  s = Relu(a2) }}> }}"""
    w = (rng.standard_normal((64, 64)) * 0.1).astype(np.float32)
    made = session(text)
    for rows in (1000, 3, 0):
        x = rng.standard_normal((rows, 64)).astype(np.float32)
        y, ys = made.run(None, {"x": x, "w": w, "n": np.array(4)})
        expected = x.astype(np.float64)
        for k in range(4):
            expected = np.tanh(expected @ w)
            np.testing.assert_allclose(ys[k], np.maximum(expected, 0), atol=1e-5)
        np.testing.assert_allclose(y, expected, atol=1e-5)
    assert units(made) == ["Segment"]


@pytest.mark.parametrize("c", [True, False])
def test_branches(c: bool) -> None:
    text = """g (bool c, float[N] x) => (float[N] y, float[N] z, float[N] w) {
        e = Exp(x)
        y, w = If(c) <then_branch = t () => (float[N] a, float[N] k) { a = Neg(e)  k = Identity(x) },
                      else_branch = f () => (float[N] b, float[N] l) { b1 = Abs(x)  b = Sqrt(b1)  l = Mul(b, e) }>
        z = Exp(y) }"""
    check(text, {"c": np.array(c), "x": X}, {"c": np.array(c), "x": np.linspace(0, 1, 50_000, dtype=np.float32)})


def test_branches_inside_loops_inside_loops() -> None:
    text = f"""g (float[2, 300] x, int64 n) => (float[2, 300] y) {{ {TRUE}
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[2, 300] a) => (bool co, float[2, 300] a2) {{ co = Identity(ci)
            two = Constant<value = int64 {{2}}>()  one = Constant<value = int64 {{1}}>()  r = Mod(i, two)  even = Equal(r, one)
            a1 = If(even) <then_branch = t () => (float[2, 300] u) {{ u = Neg(a) }},
                           else_branch = e () => (float[2, 300] v) {{ v = Abs(a) }}>
            m = Constant<value = int64 {{3}}>()  t = Constant<value = bool {{1}}>()
            a2 = Loop(m, t, a1) <body = b2 (int64 j, bool cj, float[2, 300] p) => (bool cq, float[2, 300] p2)
            {{ cq = Identity(cj)  hh = Constant<value = float[1] {{1.01}}>()  p2 = Mul(p, hh) }}> }}> }}"""
    x = np.random.default_rng(1).standard_normal((2, 300)).astype(np.float32)
    check(text, *({"x": x, "n": np.array(n)} for n in (0, 1, 2, 11)))


@pytest.mark.parametrize("directions", ["", ", scan_input_directions = [1, 0]", ", scan_output_directions = [1, 0]"])
def test_scan(directions: str) -> None:
    text = f"""g (float[2] s, float[T, 2] x, float[T] f) => (float[2] last, float[T, 2] ys, float[T] fs) {{
        last, ys, fs = Scan <num_scan_inputs = 2{directions}, body = b (float[2] p, float[2] xi, float fi)
            => (float[2] p2, float[2] o, float fo)
        {{ m = Mul(xi, fi)  p2 = Add(p, m)  o = Neg(p2)  fo = Add(fi, fi) }}> (s, x, f) }}"""
    rng = np.random.default_rng(2)
    made = None
    for length in (5, 1, 0, 64):
        feed = {
            "s": np.float32([1, 2]), "x": rng.random((length, 2), np.float32), "f": rng.random(length, np.float32),
        }  # fmt: skip
        made = check(text, feed)
    assert made is not None


def test_what_needs_python_still_runs() -> None:
    differing = """g (bool c, float[4] x) => (float[N] y) {
        two = Constant<value = int64[1] {2}>()  z = Constant<value = int64[1] {0}>()
        y = If(c) <then_branch = t () => (float[4] a) { a = Neg(x) },
                   else_branch = e () => (float[2] b) { b = Slice(x, z, two) }> }"""
    check(differing, *({"x": X, "c": np.array(c)} for c in (True, False)), native=False)


def test_rows_of_carried_values_are_those_of_the_trip() -> None:
    """A carried value that is a row too is written as it was when the trip began, whatever comes in its place."""
    text = f"""g (float[4] x, int64 n) => (int64 last, int64[K] seen) {{ {TRUE} first = Constant<value = int64 {{-7}}>()
        last, seen = Loop(n, c, first) <body = b (int64 i, bool ci, int64 a) => (bool co, int64 a2, int64 s)
        {{ co = Identity(ci)  a2 = Identity(i)  s = Identity(a) }}> }}"""
    made = check(text, *({"x": X, "n": np.array(n)} for n in (0, 1, 5)))
    np.testing.assert_array_equal(made.run(None, {"x": X, "n": np.array(4)})[1], [-7, 0, 1, 2])


def test_maps_of_elements_of_many_shapes() -> None:
    """Elements alike take the plan of the one before; others, and other ranks, have their own."""
    text = """g (seq(float) s, seq(float) t, float[3] w) => (seq(float) y) {
        y = SequenceMap<body = b (float e, float f, float[3] v) => (float r)
        { m = Mul(e, v)  a = Add(m, f)  r = Identity(a) }>(s, t, w) }"""
    made = session(text)
    rng = np.random.default_rng(0)
    w = np.float32([1, 2, 3])
    shapes = [(3,), (3,), (2, 3), (3,), (1, 2, 3), (1, 2, 3), (5, 3), (0, 3), (5, 3)]
    for _ in range(2):
        s, t = ([rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(2))
        (found,) = made.run(None, {"s": s, "t": t, "w": w})
        for a, e, f in zip(found, s, t, strict=True):
            np.testing.assert_allclose(a, e * w + f, rtol=1e-6, atol=1e-6)
    assert made.run(None, {"s": [], "t": [], "w": w}) == [[]]
    with pytest.raises(ort.InvalidGraph, match="sequences of 1 and 2 elements are mapped together"):
        made.run(None, {"s": s[:1], "t": t[:2], "w": w})


def test_branches_of_different_sizes_alone() -> None:
    """An If that is a whole program: one of its branches, bound once for each combination of sizes."""
    text = """g (bool c, float[N] x, float[K] w) => (float[R] z, float[S] y) {
        y, z = If(c) <then_branch = t () => (float[N] a, float[1] a2) { a = Neg(x)  a2 = ReduceSum(w) },
                      else_branch = e () => (float[K] b, float[N] b2) { b = Exp(w)  b2 = Identity(x) }> }"""
    made = session(text)
    options = ort.RunOptions()
    for n, count in ((3, 5), (7, 2), (3, 5), (0, 4)):
        x, w = np.arange(n, dtype=np.float32), np.linspace(0, 1, count, dtype=np.float32)
        for c in (True, False, True):
            feed = {"c": np.array(c), "x": x, "w": w}
            expected = (w.sum(keepdims=True), -x) if c else (x, np.exp(w))
            for run_options in (None, options):
                for got, want in zip(made.run(None, feed, run_options), expected, strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-6)
                    assert not np.shares_memory(got, x)
    with pytest.raises(ort.InvalidGraph, match=r"cond has shape \[2\]; expected one element"):
        session(text.replace("bool c,", "bool[M] c,")).run(None, {"c": np.zeros(2, bool), "x": x, "w": w})


SCALED = """g (seq(float) s, seq(int64) t, float[3] w) => (seq(float) y, seq(float) z) {
    y, z = SequenceMap<body = b (float e, int64 f, float[3] v) => (float r, float r2)
    { m = Mul(e, v)  r = Gather<axis = 0>(m, f)  r2 = ReduceSum(m) }>(s, t, w) }"""


def mapped_feed(lengths: Sequence[int], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    s = [rng.standard_normal((n, 3)).astype(np.float32) for n in lengths]
    return {"s": s, "t": [rng.integers(0, n, 2) for n in lengths], "w": np.float32([1, 2, 3])}


def check_mapped(made: ort.InferenceSession, feed: dict[str, Any]) -> list[Any]:
    y, z = made.run(None, feed)
    for e, f, a, b in zip(feed["s"], feed["t"], y, z, strict=True):
        np.testing.assert_allclose(a, (e * feed["w"])[f], rtol=1e-6)
        np.testing.assert_allclose(b, (e * feed["w"]).sum(keepdims=True), rtol=1e-4, atol=1e-5)
    return [*y, *z]


def test_a_map_over_sizes_that_come_again_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(SCALED)
    feeds = [mapped_feed(lengths) for lengths in ([2, 5, 1, 7, 5], [3] * 40, [4])]
    for feed in feeds:
        check_mapped(made, feed)
    calls: list[int] = []
    once = CpuProgram.run_segment
    monkeypatch.setattr(CpuProgram, "run_segment", lambda *args: calls.append(1) or once(*args))
    kept = [check_mapped(made, feed) for feed in feeds]
    again = check_mapped(made, mapped_feed([3] * 40, seed=1))
    assert not calls
    assert not any(np.shares_memory(a, b) for a, b in zip(kept[1], again, strict=True))
    check_mapped(made, mapped_feed([9, 8]))
    assert calls
    assert made._model.programs[0].trim() > 0
    for feed in feeds * 2:
        check_mapped(made, feed)


def test_a_map_over_new_sizes_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(SCALED)
    check_mapped(made, mapped_feed([2]))

    def refuse(*_: object) -> None:
        raise AssertionError("an element was left to Python")

    monkeypatch.setattr(CpuProgram, "run_segment", refuse)
    for lengths in ([2, 5, 1, 7, 5], range(1, 40), [3] * 9):
        check_mapped(made, mapped_feed(list(lengths)))


def test_a_map_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.cpu.program.loops import sequence_map

    monkeypatch.setattr(sequence_map, "_MOST_NBYTES", 4 * sequence_map._STEP_NBYTES)
    made = session(SCALED)
    for _ in range(3):
        check_mapped(made, mapped_feed([2, 5, 1, 7, 5, 2, 2, 2, 2, 3, 1]))


def test_a_map_says_what_is_wrong() -> None:
    made = session(SCALED)
    feed = mapped_feed([2, 5, 1])
    for _ in range(2):
        check_mapped(made, feed)
    wrong = {**feed, "t": [*feed["t"][:2], np.array([0, 9])]}
    for _ in range(2):
        with pytest.raises(ort.InvalidArgument, match="out of range"):
            made.run(None, wrong)
    for _ in range(3):
        with pytest.raises(ort.InvalidArgument, match="3"):
            made.run(None, {**feed, "w": np.ones(4, np.float32)})
    check_mapped(made, feed)


def test_an_endless_map_is_stopped() -> None:
    text = """g (seq(float[N, N]) s) => (seq(float[N, N]) y) {
        y = SequenceMap<body = b (float[N, N] e) => (float[N, N] r)
        { m = MatMul(e, e)  p = Exp(m)  q = MatMul(p, p)  r = Erf(q) }>(s) }"""
    made = session(text)
    feed = {"s": [np.zeros((64, 64), np.float32)] * 2000}
    made.run(None, feed)
    made.run(None, feed)
    options = ort.RunOptions()
    stopper = threading.Timer(0.02, lambda: setattr(options, "terminate", True))
    stopper.start()

    def without_end() -> None:
        for _ in range(1000):
            made.run(None, feed, options)

    with pytest.raises(ort.Fail, match="terminate flag"):
        without_end()
    stopper.join()
    np.testing.assert_allclose(made.run(None, {"s": feed["s"][:2]})[0][1], np.ones((64, 64)), rtol=1e-6)


def test_bodies_that_python_runs_take_views() -> None:
    """SequenceMap gives its body what lies in the sequence: here columns of a matrix."""
    text = """g (float[3, 4] x) => (float[N, M] y) {
        s = SplitToSequence<axis = 1, keepdims = 1>(x)
        t = SequenceMap<body = b (float[3, 1] e) => (float[3, 1] f) { f = Neg(e) }>(s)
        y = ConcatFromSequence<axis = 1>(t) }"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(session(text).run(None, {"x": x})[0], -x)


def test_bodies_that_python_runs_capture_views() -> None:
    """`flat` is the memory of x under another shape, also for a branch whose sizes only a run knows."""
    text = """g (int64[1,4] x, int32[4] m, bool c) => (int64[K] y) {
        neg = Constant<value = int64[1] {-1}>()  flat = Reshape(x, neg)
        y = If(c) <then_branch = t () => (int64[J] a) { n = NonZero(m)  i = Reshape(n, neg)  a = Gather(flat, i) },
                   else_branch = e () => (int64[4] b) { b = Neg(flat) }> }"""
    x = np.int64([[7, 5, 3, 2]])
    masks = ([0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1])
    feeds = [{"x": x, "m": np.int32(mask), "c": np.array(c)} for mask in masks for c in (True, False)]
    check(text, *feeds, native=False)


def test_sizes_that_only_a_run_knows_end_the_segment_before_the_loop() -> None:
    text = f"""g (float[N] x, int64 n) => (float[M] y) {{ {TRUE}
        i = NonZero(x)  zero = Constant<value = int64[1] {{0}}>()  j = Squeeze(i, zero)  v = Gather(x, j)
        y = Loop(n, c, v) <body = b (int64 t, bool ci, float[M] a) => (bool co, float[M] a2)
        {{ co = Identity(ci)  a2 = Add(a, a) }}> }}"""
    made = session(text)
    for x in (X, np.float32([0, 0, 5]), np.zeros(3, np.float32)):
        np.testing.assert_array_equal(made.run(None, {"x": x, "n": np.array(3)})[0], x[x != 0] * 8)
    assert all(u == "Segment" for u in units(made)[-1:])


def test_an_endless_loop_is_stopped() -> None:
    text = f"""g (float[4] x) => (float[4] y) {{ {TRUE}
        y = Loop("", c, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2)
        {{ co = Identity(ci)  a2 = Neg(a) }}> }}"""
    made = session(text)
    assert units(made) == ["Segment"]
    options = ort.RunOptions()

    def stop() -> None:
        time.sleep(0.1)
        options.terminate = True

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(ort.Fail, match="terminate flag"):
        made.run(None, {"x": X}, options)
    stopper.join()


def test_a_loop_is_one_entry_of_a_profile(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"""g (float[4] x, int64 n) => (float[4] y) {{ {TRUE} e = Exp(x)
        z = Loop(n, c, e) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2)
        {{ co = Identity(ci)  a1 = Softmax(a)  a2 = Neg(a1) }}>  y = Softmax(z) }}"""
    options = ort.SessionOptions()
    options.enable_profiling = True
    made = ort.InferenceSession(onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString(), options)
    made.run(None, {"x": X, "n": np.array(50)})
    assert made.end_profiling()
    spans = {s for u in made._model.programs[0].executable.units if isinstance(u, Segment) for s in u.spans()}
    assert max(last - first for first, last in spans) > 3
