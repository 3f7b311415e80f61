"""Loops whose sizes change from trip to trip, bound for many trips at once: `dynamic_loop`, `dynamic_loop_run`,
`plan.trip_table`."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia.errors import InvalidGraph, OutOfMemory
from intarsia.graph.dims import evaluate, floordiv, symbol
from intarsia.graph.many_sizes import evaluate_many
from intarsia.providers.cpu.executable import LoopStep
from intarsia.providers.cpu.program.loops import dynamic_loop_run

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
X = np.float32([1, -2, 3, -4])
TRUE = "c = Constant<value = bool {1}>()"
# A cache that is read by attention: each trip appends a row, and the next row is what attention makes of the cache.
ATTENDING = f"""g (float[1, D] q, float[L, D] k0, int64 n) => (float[M, D] k, float[1, D] last, float[T, 1, D] rows) {{ {TRUE}
    k, last, rows = Loop(n, c, k0, q) <body = b (int64 i, bool ci, float[P, D] kp, float[1, D] t)
        => (bool co, float[Q, D] kn, float[1, D] tn, float[1, D] row)
    {{ co = Identity(ci)  kn = Concat<axis = 0>(kp, t)  kt = Transpose<perm = [1, 0]>(kn)  s = MatMul(t, kt)  p = Softmax(s)
       o = MatMul(p, kn)  tn = Tanh(o)  row = Neg(tn) }}> }}"""


def session(text: str, provider: str = "CPUExecutionProvider", **options: Any) -> ort.InferenceSession:
    made = ort.SessionOptions()
    for name, value in options.items():
        setattr(made, name, value)
    return ort.InferenceSession(onnx.parser.parse_model(f"{HEADER} {text}").SerializeToString(), made, providers=[provider])


def loops(made: ort.InferenceSession) -> list[dynamic_loop_run.LoopProgram]:
    (program,) = made._model.programs
    return list(program.loops.values())


def attended(q: np.ndarray, k: np.ndarray, trips: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loop of `ATTENDING` in float64."""
    t, k, rows = q.astype(np.float64), k.astype(np.float64), []
    for _ in range(trips):
        k = np.concatenate([k, t])
        s = t @ k.T
        p = np.exp(s - s.max())
        t = np.tanh(p / p.sum() @ k)
        rows.append(-t)
    return k, t, np.array(rows).reshape(trips, 1, k.shape[1])


def attending_feed(length: int, trips: int, width: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((n, width)).astype(np.float32) for n in (1, length))
    return {"q": q, "k0": k, "n": np.array(trips)}


def check_attending(made: ort.InferenceSession, feed: dict[str, np.ndarray]) -> None:
    expected = attended(feed["q"], feed["k0"], max(0, int(feed["n"])))
    for got, want in zip(made.run(None, feed), expected, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_a_cache_that_is_read() -> None:
    made = session(ATTENDING)
    (node,) = (n for n in made.explain().nodes if not n.body)
    assert (node.op, node.kind) == ("Loop", "compiled")
    for length, trips in [(3, 40), (3, 40), (0, 5), (7, 1), (3, 0), (3, -2), (3, 200), (2, 3)]:
        check_attending(made, attending_feed(length, trips))
    assert isinstance(made._model.programs[0].executable.units[0], LoopStep)


def test_no_trip_is_run_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a trip was left to Python")

    monkeypatch.setattr(dynamic_loop_run.LoopProgram, "_one_trip", refuse)
    check_attending(session(ATTENDING), attending_feed(5, 100))


# A growing loop inside a growing loop: four rows a trip, of which a row of each is stacked.
NESTED = f"""g (float[1, D] q, float[L, D] k0, int64 n) => (float[M, D] k, float[1, D] last, float[T, F, 1, D] rows)
    <int64 four = {{4}}> {{ {TRUE}
    k, last, rows = Loop(n, c, k0, q) <body = b (int64 i, bool ci, float[P, D] kp, float[1, D] t)
        => (bool co, float[Q, D] kn, float[1, D] tn, float[F, 1, D] inner)
    {{ co = Identity(ci)
       kn, tn, inner = Loop(four, ci, kp, t) <body = b2 (int64 j, bool cj, float[U, D] ka, float[1, D] ta)
           => (bool ck, float[V, D] kb, float[1, D] tb, float[1, D] row)
       {{ ck = Identity(cj)  kb = Concat<axis = 0>(ka, ta)  kt = Transpose<perm = [1, 0]>(kb)  s = MatMul(ta, kt)
          p = Softmax(s)  o = MatMul(p, kb)  tb = Tanh(o)  row = Neg(tb) }}> }}> }}"""


def test_a_growing_loop_inside_one() -> None:
    made = session(NESTED)
    (node,) = (n for n in made.explain().nodes if not n.body)
    assert (node.op, node.kind) == ("Loop", "compiled")
    assert isinstance(made._model.programs[0].executable.units[0], LoopStep)
    for length, trips in [(3, 10), (3, 10), (0, 2), (7, 0), (2, 40)]:
        feed = attending_feed(length, trips)
        k, last, rows = attended(feed["q"], feed["k0"], 4 * trips)
        expected = (k, last, rows.reshape(trips, 4, 1, -1) if trips else np.zeros((0, 4, 1, 16)))
        for got, want in zip(made.run(None, feed), expected, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("inside", ["n, ci", "many, ci", "four, other"])
def test_inner_loops_that_stay_loops(inside: str) -> None:
    """Their number of trips is known in a run only, or large, or a condition ends them."""
    text = NESTED.replace("four, ci", inside).replace("<int64 four = {4}>", "<int64 four = {4}, int64 many = {70}>")
    text = text.replace(
        "co = Identity(ci)", "co = Identity(ci)  three = Constant<value = int64 {30}>()  other = Less(i, three)"
    )
    made = session(text)
    feed = attending_feed(3, 4)
    k, last, _ = attended(feed["q"], feed["k0"], {"n": 16, "m": 280, "f": 16}[inside[0]])
    got = made.run(None, feed)
    np.testing.assert_allclose(got[0], k, atol=2e-5)
    np.testing.assert_allclose(got[1], last, atol=2e-5)


def test_trips_that_python_runs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a batch does not take: trip by trip by the body's program."""
    monkeypatch.setattr(dynamic_loop_run.LoopProgram, "_batch", lambda *_: False)
    check_attending(session(ATTENDING), attending_feed(5, 20))


def test_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_loop_run, "_BATCH_NBYTES", 1)
    check_attending(session(ATTENDING), attending_feed(2, 9))


def test_batches_are_kept_within_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(ATTENDING)
    (loop,) = loops(made)
    check_attending(made, attending_feed(2, 30))
    kept = loop._retained_nbytes
    assert kept == sum(b.batch.nbytes for free in loop._batches.values() for b in free) > 0
    monkeypatch.setattr(dynamic_loop_run, "_RETAINED_NBYTES", 2 * kept)
    for length in range(3, 9):
        check_attending(made, attending_feed(length, 30))
    assert loop._retained_nbytes <= 2 * kept
    assert loop.trim() > 0
    assert not loop._batches
    check_attending(made, attending_feed(2, 30))


def test_a_condition_ends_it_early() -> None:
    text = """g (float[4] x, int64 n, float top, bool c) => (float[M] y, float[T] sums) {
        y, sums = Loop(n, c, x) <body = b (int64 i, bool ci, float[P] p) => (bool co, float[Q] p2, float s)
        { p2 = Concat<axis = 0>(p, x)  a = Abs(p2)  s = ReduceSum<keepdims = 0>(a)  co = Less(s, top) }> }"""
    made = session(text)
    for top in (15.0, 1.0, 500.0, 5000.0):
        for c in (True, False):
            y, sums = made.run(None, {"x": X, "n": np.array(2**62), "top": np.array(top, np.float32), "c": np.array(c)})
            trips = int(np.ceil((top - 10) / 10)) if top > 20 else 1
            trips = max(1, trips) * c
            np.testing.assert_allclose(sums, 10.0 * np.arange(2, trips + 2))
            np.testing.assert_array_equal(y, np.tile(X, trips + 1))


def test_no_count() -> None:
    text = """g (float[4] x, int64 last) => (float[M] y) { c = Constant<value = bool {1}>()
        y = Loop("", c, x) <body = b (int64 i, bool ci, float[P] p) => (bool co, float[Q] p2)
        { p2 = Concat<axis = 0>(p, x)  co = Less(i, last) }> }"""
    made = session(text)
    for last in (-1, 0, 1, 100):
        assert made.run(None, {"x": X, "last": np.array(last)})[0].size == 4 * (max(last, 0) + 2)


def test_rows_of_unknown_number_stay_native() -> None:
    text = """g (float[4] x, float top) => (float[4] y, float[K, 4] ys) { c = Constant<value = bool {1}>()
        y, ys = Loop("", c, x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] a2, float[4] s)
        { a2 = Add(a, a)  s = Neg(a)  m = ReduceMax<keepdims = 0>(a2)  co = Less(m, top) }> }"""
    made = session(text)
    assert [n.kind for n in made.explain().nodes if n.op == "Loop"] == ["compiled"]
    y, ys = made.run(None, {"x": X, "top": np.array(1e9, np.float32)})
    assert len(ys) == 29
    np.testing.assert_array_equal(ys, -X * 2.0 ** np.arange(29)[:, None])
    np.testing.assert_array_equal(y, X * 2.0**29)


@pytest.mark.parametrize(
    "position", ["e0 = Reshape(i, one)  e = Add(e0, one)  k2 = Identity(k)", "e = Identity(k)  k2 = Add(k, one)"]
)
def test_sizes_by_the_number_of_the_trip(position: str) -> None:
    """A position that a slice ends at: the trip's number, or a carried integer."""
    text = f"""g (float[N] x, int64 n) => (float[T] sums, int64[1] kl, float[M] y) {{ {TRUE}
        z = Constant<value = int64[1] {{0}}>()  one = Constant<value = int64[1] {{1}}>()  none = Slice(x, z, z)
        kl, y, sums = Loop(n, c, one, none) <body = b (int64 i, bool ci, int64[1] k, float[P] p)
            => (bool co, int64[1] k2, float[Q] p2, float s)
        {{ co = Identity(ci)  {position}  part = Slice(x, z, e)  s = ReduceSum<keepdims = 0>(part)
           p2 = Concat<axis = 0>(p, part) }}> }}"""
    made = session(text)
    assert {n.kind for n in made.explain().nodes if n.op == "Loop"} == {"compiled"}
    x = np.arange(1, 6, dtype=np.float32)
    for n in (3, 0, 5, 8):
        sums, _, y = made.run(None, {"x": x, "n": np.array(n)})
        np.testing.assert_allclose(sums, [x[: k + 1].sum() for k in range(n)])
        np.testing.assert_array_equal(y, np.concatenate([x[:0], *(x[: k + 1] for k in range(n))]))


def test_values_that_change_places_while_they_grow() -> None:
    text = f"""g (float[A] x, float[B] w, int64 n) => (float[P] y, float[Q] z) {{ {TRUE}
        y, z = Loop(n, c, x, w) <body = b (int64 i, bool ci, float[C] a, float[D] b) => (bool co, float[D] b2, float[E] a2)
        {{ co = Identity(ci)  b2 = Identity(b)  a2 = Concat<axis = 0>(a, b) }}> }}"""
    made = session(text)
    for n in range(7):
        a, b = [1.0], [2.0, 3.0]
        for _ in range(n):
            a, b = b, a + b
        y, z = made.run(None, {"x": np.float32([1]), "w": np.float32([2, 3]), "n": np.array(n)})
        np.testing.assert_array_equal(y, a)
        np.testing.assert_array_equal(z, b)


def test_a_scan_that_grows() -> None:
    text = """g (float[2] s, float[T, 2] x) => (float[N] s2, float[T] y) {
        s2, y = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
            body = b (float[K] a, float[2] r) => (float[L] a2, float o)
        { a2 = Concat<axis = 0>(a, r)  o = ReduceSum<keepdims = 0>(a2) }>(s, x) }"""
    made = session(text)
    assert [n.kind for n in made.explain().nodes if not n.body] == ["compiled"]
    for length in (5, 1, 0, 33):
        x = np.arange(2 * length, dtype=np.float32).reshape(length, 2)
        s2, y = made.run(None, {"s": np.float32([1, 2]), "x": x})
        np.testing.assert_array_equal(s2, [1, 2, *x[::-1].ravel()])
        np.testing.assert_allclose(y, (3 + np.cumsum(x[::-1].sum(1)))[::-1])


def test_scan_inputs_of_different_lengths() -> None:
    text = """g (float[2] s, float[T, 2] x, float[U, 2] z) => (float[N] s2) {
        s2 = Scan<num_scan_inputs = 2, body = b (float[K] a, float[2] r, float[2] t) => (float[L] a2)
        { a2 = Concat<axis = 0>(a, r, t) }>(s, x, z) }"""
    feed = {"s": np.float32([1, 2]), "x": np.zeros((3, 2), np.float32), "z": np.zeros((4, 2), np.float32)}
    with pytest.raises(InvalidGraph, match=r"Scan\): scan inputs have lengths \[3, 4\]; expected one length"):
        session(text).run(None, feed)


def test_rows_must_have_one_shape() -> None:
    text = f"""g (float[4] x, int64 n) => (float[P] y, float[K, J] r) {{ {TRUE}
        y, r = Loop(n, c, x) <body = b (int64 i, bool ci, float[C] a) => (bool co, float[E] a2, float[E] q)
        {{ co = Identity(ci)  a2 = Concat<axis = 0>(a, x)  q = Neg(a2) }}> }}"""
    made = session(text)
    assert made.run(None, {"x": X, "n": np.array(1)})[1].shape == (1, 8)
    with pytest.raises(ort.Fail, match=r"rows of shapes \[8\] and \[12\] cannot be stacked into 'r'"):
        made.run(None, {"x": X, "n": np.array(3)})


def test_more_rows_than_memory() -> None:
    text = f"""g (float[4] x, int64 n) => (float[4] y, float[K, 4] r) {{ {TRUE}  one = Constant<value = int64[1] {{1}}>()
        y, z, r = Loop(n, c, x, x) <body = b (int64 i, bool ci, float[4] a, float[J] j)
            => (bool co, float[4] a2, float[L] j2, float[4] q)
        {{ co = Identity(ci)  a2 = Identity(a)  q = Neg(a)  e = Exp(j)  j2 = Concat<axis = 0>(e, x) }}> }}"""
    with pytest.raises(OutOfMemory, match=r"needs 2\^65 bytes or more, which the system does not give"):
        session(text).run(None, {"x": X, "n": np.array(2**61)})


def test_an_index_out_of_range_in_a_trip() -> None:
    text = f"""g (float[4] x, int64 n) => (float[P] y, float[K] r) {{ {TRUE}
        y, r = Loop(n, c, x) <body = b (int64 i, bool ci, float[C] a) => (bool co, float[E] a2, float q)
        {{ co = Identity(ci)  q = Gather(x, i)  e = Neg(a)  a2 = Concat<axis = 0>(e, x) }}> }}"""
    made = session(text)
    feed = {"x": X, "n": np.array(4)}
    expected = made.run(None, feed)
    with pytest.raises(ort.InvalidArgument, match=r"\(Gather\): an index is out of range"):
        made.run(None, {"x": X, "n": np.array(5)})
    for got, want in zip(made.run(None, feed), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_sizes_that_do_not_fit_together_are_the_bodys_error() -> None:
    text = f"""g (float[4] x, int64 n) => (float[P] y) {{ {TRUE}
        y = Loop(n, c, x) <body = b (int64 i, bool ci, float[C] a) => (bool co, float[E] a2)
        {{ co = Identity(ci)  s = Add(a, x)  a2 = Concat<axis = 0>(s, x) }}> }}"""
    made = session(text)
    assert made.run(None, {"x": X, "n": np.array(1)})[0].size == 8
    with pytest.raises(ort.InvalidArgument, match="broadcast"):
        made.run(None, {"x": X, "n": np.array(2)})


def test_a_growing_loop_is_stopped() -> None:
    text = f"""g (float[64, 64] x) => (float[M, 64] y) {{ {TRUE}
        y = Loop("", c, x) <body = b (int64 i, bool ci, float[P, 64] p) => (bool co, float[Q, 64] p2)
        {{ co = Identity(ci)  m = MatMul(x, x)  t = Tanh(m)  s = ReduceSum<keepdims = 1>(p, axis)  one = Exp(s)
           h = Softmax(t)  d = Mul(h, one)  p2 = Concat<axis = 0>(p, d) }}> }}""".replace(
        TRUE, TRUE + " axis = Constant<value = int64[1] {0}>()"
    )
    made = session(text)
    options = ort.RunOptions()
    stopper = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    stopper.start()
    with pytest.raises(ort.Fail, match="terminate flag"):
        made.run(None, {"x": np.zeros((64, 64), np.float32)}, options)
    stopper.join()


def test_memory_between_runs_is_given_back() -> None:
    made = session(ATTENDING)
    (loop,) = loops(made)
    check_attending(made, attending_feed(5, 20))
    assert loop.lessee.strip() >= loop.lessee.block_nbytes > 0
    assert loop.lessee.strip() == 0
    check_attending(made, attending_feed(5, 20))


def test_results_belong_to_the_caller() -> None:
    """Carried values are given as they lie in the loop's own memory, but no two of them in the same, and never an input."""
    text = f"""g (float[L] x, int64 n) => (float[M] a, float[M] b, float[L] y) {{ {TRUE}
        a, b, y = Loop(n, c, x, x, x) <body = s (int64 i, bool ci, float[P] u, float[P] v, float[L] w)
            => (bool co, float[Q] r, float[Q] r2, float[L] w2)
        {{ co = Identity(ci)  r = Concat<axis = 0>(u, v)  r2 = Identity(r)  w2 = Identity(w) }}> }}"""
    made = session(text)
    for trips in (0, 1, 3, 9):
        x = np.arange(40, dtype=np.float32)
        a, b, y = made.run(None, {"x": x, "n": np.array(trips)})
        again = made.run(None, {"x": -x, "n": np.array(trips)})
        arrays = [a, b, y, *again]
        for i, one in enumerate(arrays):
            assert one.flags.writeable
            assert not any(np.shares_memory(one, other) for other in [x, *arrays[:i]])
        for got in (a, b):
            np.testing.assert_array_equal(got, np.tile(x, 2**trips))
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(again[0], -a)


def test_more_trips_than_in_the_run_before() -> None:
    """A loop that its condition ends begins with as many trips as it made last."""
    text = f"""g (float[L] x, int64 most) => (float[M] y, float[T, 1] rows) {{ {TRUE}
        y, rows = Loop(, c, x) <body = b (int64 i, bool ci, float[P] a) => (bool co, float[Q] a2, float[1] row)
        {{ one = Constant<value = float[1] {{1}}>()  a2 = Concat<axis = 0>(a, one)  row = Neg(one)  co = Less(i, most) }}> }}"""
    made = session(text)
    for most in (3, 90, 700, 5, 90):
        y, rows = made.run(None, {"x": X, "most": np.array(most)})
        np.testing.assert_array_equal(y, np.concatenate([X, np.ones(most + 1, np.float32)]))
        np.testing.assert_array_equal(rows, -np.ones((most + 1, 1), np.float32))


def test_threads_at_once() -> None:
    made = session(ATTENDING, intra_op_num_threads=2)
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in range(6):
                check_attending(made, attending_feed(2 + (seed + n) % 3, 20, seed=seed))
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_on_all_threads() -> None:
    made = session(ATTENDING, intra_op_num_threads=3)
    check_attending(made, attending_feed(600, 12, width=96))


def test_without_a_compiler_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    first = session(ATTENDING)
    (program,) = first._model.programs
    from intarsia.providers.cpu.program.serialize import restore, save

    saved = save(program)
    data = b"".join(bytes(p) for p in saved.parts)
    block = np.empty(len(data) + 64, np.uint8)
    block = block[-block.ctypes.data % 64 :][: len(data)]
    block[:] = np.frombuffer(data, np.uint8)
    again = restore(saved.head, block, program.context)
    assert again is not None
    feed = attending_feed(4, 12)
    for got, want in zip(
        again.run([feed[n] for n in again.inputs]), program.run([feed[n] for n in program.inputs]), strict=True
    ):
        np.testing.assert_array_equal(got, want)
    _, executable, *_ = pickle.loads(pickle.loads(saved.head)[0])  # made above
    assert executable.units[0].body.constants == {}
    check_attending(first, feed)


def test_it_is_one_entry_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = session(ATTENDING, enable_profiling=True)
    check_attending(made, attending_feed(4, 12))
    assert '"Loop' in Path(made.end_profiling()).read_text(encoding="utf-8")


def test_the_body_is_shown() -> None:
    made = session(ATTENDING)
    (program,) = made._model.programs
    text = program.describe("kernels")
    assert text.startswith("loop     Loop -> k, last, rows")
    assert "Softmax" in text
    assert "define void" in program.describe("source")


def test_one_size_of_all_caches() -> None:
    """Lengths that begin alike and grow alike are one symbol: scores and mask need no broadcast."""
    text = f"""g (float[L, 2] k0, float[L] m0, float[1, 2] q, float[1] o, int64 n) => (float[A, 2] k, float[B] m) {{ {TRUE}
        k, m = Loop(n, c, k0, m0) <body = b (int64 i, bool ci, float[P, 2] kp, float[R] mp)
            => (bool co, float[Q, 2] kn, float[S] mn)
        {{ co = Identity(ci)  t = Transpose<perm = [1, 0]>(kp)  s0 = MatMul(q, t)  s = Add(s0, mp)  p = Softmax(s)
           v = MatMul(p, kp)  kn = Concat<axis = 0>(kp, v)  mn = Concat<axis = 0>(mp, o) }}> }}"""
    made = session(text)
    (loop,) = loops(made)
    shapes = [c.shape[0] for c in loop.step.carried]
    assert shapes[0] == shapes[1]
    assert all(c.kind != "broadcast" for c in loop.segment.constraints)


def test_sizes_for_many_environments() -> None:
    n, m = symbol("n"), symbol("m")
    sizes = [n + 1, n * m, floordiv(n, 3), 7, n * n - m]
    envs = {"n": np.array([1, 2, 2**40], object), "m": np.array([5, 6, 7], object)}
    found = evaluate_many(sizes, envs)
    for i in range(3):
        env = {name: int(column[i]) for name, column in envs.items()}
        assert [x if isinstance(x, int) else x[i] for x in found] == [evaluate(d, env) for d in sizes]
    with pytest.raises(KeyError):
        evaluate_many([symbol("other")], envs)
    with pytest.raises(ZeroDivisionError):
        evaluate_many([floordiv(n, m - 6)], envs)


def test_a_condition_ends_a_loop_of_convolutions() -> None:
    """Steps that read tables, whose trips only a run counts: bound together, and bound once for the same sizes."""
    rng = np.random.default_rng(5)
    text = f"""g (float[1, 16, L] x, float most) => (float[1, 16, L] y, float[T, 1, 16, L] rows) {{ {TRUE}
        y, rows = Loop("", c, x) <body = b (int64 i, bool ci, float[1, 16, P] a)
            => (bool co, float[1, 16, Q] t, float[1, 16, R] r) {{
            v = Conv<pads = [2, 2]>(a, w)  t = Tanh(v)  r = Identity(t)  n = Cast<to = 1>(i)  co = Less(n, most) }}> }}"""
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    weights = (0.1 * rng.standard_normal((16, 16, 5))).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    plain = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for length, most in ((50, 20), (50, 3), (81, 20), (50, 20)):
        feeds = {"x": rng.standard_normal((1, 16, length)).astype(np.float32), "most": np.array(most, np.float32)}
        for found, wanted in zip(made.run(None, feeds), plain.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, atol=2e-5)
    (loop,) = loops(made)
    assert not loop._alone
    assert len(loop._frames) == 1
