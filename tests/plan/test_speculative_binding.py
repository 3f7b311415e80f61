"""Sizes that go on step by step are bound ahead: the same results as each bound by itself, and few bindings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import InferenceSession, SessionOptions
from intarsia.errors import InvalidArgument
from intarsia.plan import microbatch
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.plan.state import State
from intarsia.plan.traced_binding import NotedFrame
from intarsia.providers.cpu.program.calls.speculative_binding import Ahead
from intarsia.providers.cpu.program.cpu_program import CpuProgram

CACHE = """g (float[1, 1, 16] x, float[1, 2, p, 8] a, float[1, 2, p, 8] b)
    => (float[1, 1, 16] y, float[1, 2, q, 8] k, float[1, 2, q, 8] v) {
    r = Reshape(x, heads)  t = Transpose<perm=[0, 2, 1, 3]>(r)  k = Concat<axis=2>(a, t)  v = Concat<axis=2>(b, t)
    g = Transpose<perm=[0, 1, 3, 2]>(k)  s = MatMul(t, g)  p = Softmax<axis=-1>(s)  o = MatMul(p, v)
    u = Transpose<perm=[0, 2, 1, 3]>(o)  y = Reshape(u, whole) }"""
MODELS: dict[str, tuple[str, Callable[[int], dict[str, tuple[int, ...]]]]] = {
    "products": (
        """g (float[n, m] x) => (float[n, k] y) { t = Transpose<perm=[1, 0]>(x)  a = MatMul(x, t)
        b = Softmax<axis=-1>(a)  c = MatMul(b, x)  d = MatMul(c, t)  y = Add(d, a) }""",
        lambda n: {"x": (n, 7)},
    ),
    "both sizes": (
        "g (float[n, m] x) => (float[m, n] y) { e = Exp(x) y = Transpose<perm=[1, 0]>(e) }",
        lambda n: {"x": (n, 2 * n)},
    ),
    "views": (
        "g (float[n, m] x) => (float[k] y, float[n, m] z) { z = Exp(x)  y = Reshape(z, flat) }",
        lambda n: {"x": (n, 5)},
    ),
    "dense": (
        "g (float[n, 64] x) => (float[n, 640] y) { a = MatMul(x, dw)  b = Gelu(a)  y = MatMul(b, dv) }",
        lambda n: {"x": (n, 64)},
    ),
    "pictures": (
        """g (float[n, 4, m, 8] x) => (float[n, 4, p, q] y) { c = Conv<pads=[1, 1, 1, 1]>(x, w)  r = Relu(c)
        p = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(r)  y = Add(p, x) }""",
        lambda n: {"x": (2, 4, n, 8)},
    ),
    "cache": (CACHE, lambda n: {"x": (1, 1, 16), "a": (1, 2, n, 8), "b": (1, 2, n, 8)}),
    "unchanged": (
        "g (float[n, m] x) => (float[n, m] y, float[n] z) { y = Identity(x)  z = ReduceSum<keepdims=0>(x, one) }",
        lambda n: {"x": (n, 3)},
    ),
}  # fmt: skip
CONSTANTS = {
    "flat": np.array([-1]), "heads": np.array([1, 1, 2, 8]), "whole": np.array([1, 1, 16]), "one": np.array([1]),
    "zero": np.array([0]), "table": np.arange(20, dtype="f4"),
    "w64": np.random.default_rng(2).standard_normal((64, 64)).astype("f4") / 8,
    "w": np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("f4"),
    "dw": np.random.default_rng(3).standard_normal((64, 640)).astype("f4"),
    "dv": np.random.default_rng(4).standard_normal((640, 640)).astype("f4"),
}  # fmt: skip


def session(text: str, threads: int = 2) -> InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> {text}')
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in CONSTANTS.items() if n in used)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feed(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {n: np.random.default_rng(sum(s)).standard_normal(s).astype("f4") for n, s in shapes.items()}


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often segments were bound by themselves, and ahead."""
    found = {"alone": 0, "ahead": 0}
    alone, ahead = Segment.bind, Segment.found_ahead

    def bind(self: Segment, env: dict[str, int], threads: int) -> BoundSegment:
        found["alone"] += 1
        return alone(self, env, threads)

    def bind_ahead(self: Segment, envs: list[dict[str, int]], threads: int) -> list[BoundSegment]:
        made = ahead(self, envs, threads)
        found["ahead"] += bool(made)
        return made

    monkeypatch.setattr(Segment, "bind", bind)
    monkeypatch.setattr(Segment, "found_ahead", bind_ahead)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_an_exact_binding(
    name: str, threads: int, bindings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, shapes = MODELS[name]
    lengths = [*range(2, 60), 5, 200, 9, *range(100, 10, -3), 4, *range(90, 140)]
    found = session(text, threads)
    results = [found.run(None, feed(shapes(n))) for n in lengths]
    if name not in ("dense", "pictures"):  # other addresses by size
        assert bindings["ahead"] >= 3
        assert bindings["alone"] < 30 < len(lengths)
    monkeypatch.setattr(Segment, "bind", Segment.bind_exactly)
    monkeypatch.setattr(Ahead, "plan", lambda *_: None)
    exact = session(text, threads)
    for n, ours in zip(lengths, results, strict=True):
        for a, b in zip(ours, exact.run(None, feed(shapes(n))), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_lengths_at_random(name: str, bindings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    text, shapes = MODELS[name]
    lengths = [int(n) for n in np.random.default_rng(5).permutation(np.arange(2, 230))]
    found = session(text)
    results = [found.run(None, feed(shapes(n))) for n in lengths]
    assert bindings["ahead"] <= 4
    monkeypatch.setattr(Segment, "bind", Segment.bind_exactly)
    monkeypatch.setattr(Ahead, "plan", lambda *_: None)
    exact = session(text)
    for n, ours in zip(lengths, results, strict=True):
        for a, b in zip(ours, exact.run(None, feed(shapes(n))), strict=True):
            np.testing.assert_array_equal(a, b)


def test_lengths_far_apart_are_bound_alone(bindings: dict[str, int]) -> None:
    found = session(MODELS["products"][0])
    for n in (100, 2000, 700, 1300, 301, 1603, 904, 2207):
        found.run(None, feed({"x": (n, 3)}))
    assert bindings == {"alone": 8, "ahead": 0}


def test_two_sizes_at_random_are_bound_alone(bindings: dict[str, int]) -> None:
    found = session(MODELS["products"][0])
    rng = np.random.default_rng(6)
    for _ in range(40):
        n, m = rng.integers(2, 40, 2)
        found.run(None, feed({"x": (int(n), int(m))}))
    assert bindings["ahead"] == 0


@pytest.mark.parametrize("name", ["products", "views", "cache"])
def test_words_are_those_of_a_binding_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, shapes = MODELS[name]
    programs: list[CpuProgram] = []
    run = CpuProgram.run
    monkeypatch.setattr(CpuProgram, "run", lambda self, *given: programs.append(self) or run(self, *given))
    found = session(text)
    for n in (3, 5):
        found.run(None, feed(shapes(n)))
    ((segment,),) = [p.executable.segments() for p in programs[-1:]]
    env = {} if name == "cache" else {"m": 7 if name == "products" else 5}
    symbol = "p" if name == "cache" else "n"
    envs = [{**env, symbol: n} for n in range(40, 72)]
    ahead = segment.bind_ahead(envs, 2)
    assert len(ahead) == len(envs)
    state = ahead[0].acquire()
    for i in (0, 31, 7, 8):
        ahead[0].release(state)
        state = ahead[i].acquire()
        frame = NotedFrame(segment, 2, envs[0])
        alone = frame.bind(envs[i])
        assert alone is not None
        bound = BoundSegment.of(segment, alone, envs[i])
        other = State(bound)
        others = [frame.outline.leased[:, 0], frame.outline.patches[:, 0]]  # addresses of the state's, and of a run's arrays
        kept = np.setdiff1d(np.arange(alone.used), np.concatenate(others))
        np.testing.assert_array_equal(state.args[kept], other.args[kept])
        np.testing.assert_array_equal(state.table[:, [0, 2, 3]], other.table[:, [0, 2, 3]])
        assert (ahead[i].outputs, ahead[i].shapes) == (bound.outputs, bound.shapes)
    assert len(ahead[0]._states) == 1  # it went from one to the next


def test_a_series_ends_before_sizes_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[CpuProgram] = []
    run = CpuProgram.run
    monkeypatch.setattr(CpuProgram, "run", lambda self, *given: programs.append(self) or run(self, *given))
    text, shapes = MODELS["products"]
    found = session(text)
    for n in (3, 5):
        found.run(None, feed(shapes(n)))
    (segment,) = programs[-1].executable.segments()
    frame = NotedFrame(segment, 2, {"n": 5, "m": 7})
    sizes = [5, 6, 900, 7, 1 << 40, 8]
    series = frame.bind_series([{"n": n, "m": 7} for n in sizes])
    assert len(series) == 4
    for n, ours in zip(sizes, series, strict=False):
        alone = frame.bind({"n": n, "m": 7})
        assert alone is not None
        assert (ours.outputs, ours.used, ours.sized_nbytes) == (alone.outputs, alone.used, alone.sized_nbytes)
        assert ours.serial.tolist() == alone.serial.tolist()
    assert frame.bind_series([{"n": 1 << 70, "m": 7}]) == []


def test_sizes_that_do_not_fit_are_said_when_they_come(bindings: dict[str, int]) -> None:
    found = session("g (float[n] x) => (float[n] y) { s = Shape(x)  t = Slice(table, zero, s)  y = Add(x, t) }")
    for n in range(2, 21):
        np.testing.assert_array_equal(found.run(None, {"x": np.ones(n, "f4")})[0], 1 + np.arange(n, dtype="f4"))
    assert bindings["ahead"]
    with pytest.raises(InvalidArgument, match=r"broadcast|equal"):
        found.run(None, {"x": np.ones(21, "f4")})


def test_other_sizes_than_those_foreseen(bindings: dict[str, int]) -> None:
    found = session("g (float[n] x, float[m] z) => (float[n] y) { a = Exp(x)  y = Add(a, z) }")
    twenty = np.ones(20, "f4")
    for n in range(2, 12):
        found.run(None, {"x": np.ones(n, "f4"), "z": np.ones(n, "f4")})
    assert bindings["ahead"]
    with pytest.raises(InvalidArgument, match=r"broadcast|equal"):
        found.run(None, {"x": np.ones(12, "f4"), "z": twenty})
    assert found.run(None, {"x": np.zeros(20, "f4"), "z": twenty})[0].tolist() == [2.0] * 20


def test_downwards_ends_at_zero(bindings: dict[str, int]) -> None:
    found = session("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    for n in (12, 9, 6, 3, 0):
        assert found.run(None, {"x": np.zeros(n, "f4")})[0].tolist() == [1.0] * n
    assert bindings["ahead"]


def test_threads_that_grow_each_on_its_own(bindings: dict[str, int]) -> None:
    text, shapes = MODELS["products"]
    found, exact = session(text), session(text, 1)
    wrong: list[int] = []

    def grow(first: int) -> None:
        for n in range(first, first + 60):
            f = feed(shapes(n))
            y = found.run(None, f)[0]
            x = f["x"].astype("f8")
            a = x @ x.T
            b = np.exp(a - a.max(1, keepdims=True))
            if not np.allclose(y, (b / b.sum(1, keepdims=True)) @ x @ x.T + a, atol=1e-3):
                wrong.append(n)

    threads = [threading.Thread(target=grow, args=(first,)) for first in (2, 30, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert exact


def test_a_batch_that_grows_is_seldom_looked_at_for_parts(bindings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def bound_parts(bound: BoundSegment, rows: Any, env: dict[str, int], *threads: int) -> None:
        looked.append(env["n"])

    monkeypatch.setattr(microbatch, "bound_parts", bound_parts)
    found = session(
        "g (float[b, n, 64] x) => (float[b, n, 64] y) { a = MatMul(x, w64)  p = Softmax<axis=-1>(a)  y = MatMul(p, w64) }", 1
    )
    lengths = range(20_000, 20_020)
    x = np.random.default_rng(1).standard_normal((2, lengths[-1], 64)).astype("f4")
    results = [found.run(None, {"x": np.ascontiguousarray(x[:, :n])})[0] for n in lengths]
    assert len(looked) == 1
    assert bindings["ahead"]
    for n, y in zip(lengths, results, strict=True):
        np.testing.assert_allclose(y, results[-1][:, :n], rtol=1e-4, atol=1e-5)
    found.run(None, {"x": np.tile(x, (1, 2, 1))})
    assert looked == [lengths[0], 2 * lengths[-1]]


def test_memory_is_that_of_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    text, shapes = MODELS["products"]
    found = session(text)
    states: list[State] = []
    first = State.__init__
    monkeypatch.setattr(State, "__init__", lambda self, *given: states.append(self) or first(self, *given))
    for n in range(100, 160):
        found.run(None, feed(shapes(n)))
    assert len(states) <= 6  # two alone, one for each part bound ahead
