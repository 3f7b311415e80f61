"""Branches of small steps side by side: the same results as one after the other, in memory of their own, where allowed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import ExecutionMode, InferenceSession, SessionOptions
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.parallel_branches import SideBySide, Window, extended, fit, rearranged, scratch_life, windows
from intarsia.plan.segment import Segment
from intarsia.plan.step import Jump, Step

WIDTH = 96


def step(reads: str, writes: str) -> Step:
    return Step(cast("Any", None), tuple(reads.split()), tuple(writes.split()), cast("Any", None))


def found(steps: Sequence[Step], work: float = 4.0, threads: int = 2, most: int = 0, serial: Any = None) -> tuple[Window, ...]:
    flags = [True] * len(steps) if serial is None else serial
    return windows(steps, {"w": None}, flags, [work] * len(steps), threads, SideBySide(most))


def chains(count: int, length: int) -> list[Step]:
    """Chains that begin at x, and one step that all end in."""
    made = [step(f"{f'v{c}_{i - 1}' if i else 'x'} w", f"v{c}_{i}") for c in range(count) for i in range(length)]
    return [*made, step(" ".join(f"v{c}_{length - 1}" for c in range(count)), "y")]


def check(steps: Sequence[Step], window: Window) -> None:
    """Every step once; what it needs is done before, in an earlier phase or by the same thread."""
    place: dict[int, tuple[int, int]] = {}
    for number, phase in enumerate(window.phases):
        for i, thread in phase:
            for j, earlier in itertools.product([i], range(window.first, i)):
                a, b = steps[earlier], steps[j]
                if set(a.writes) & {*b.reads, *b.writes} or set(a.reads) & set(b.writes):
                    assert earlier in place
                    assert place[earlier][0] < number or place[earlier][1] == thread
            place[i] = (number, thread)
    assert sorted(place) == list(range(window.first, window.end))


class TestWindows:
    def test_two_towers(self) -> None:
        steps = chains(2, 4)
        (window,) = found(steps)
        check(steps, window)
        first, last = window.phases
        assert [t for _, t in first] == [0] * 4 + [1] * 4
        assert last == ((8, -1),)

    def test_more_branches_than_threads_are_dealt_by_cost(self) -> None:
        steps = chains(7, 3)
        (window,) = found(steps, threads=3)
        check(steps, window)
        counts = [sum(t == n for _, t in window.phases[0]) for n in range(3)]
        assert counts == [9, 6, 6]

    def test_a_fork_comes_first_and_a_join_last(self) -> None:
        steps = [step("x w", "h"), *(step("h w", f"a{i}") for i in range(6)), step("a0 a1 a2 a3 a4 a5", "y")]
        (window,) = found(steps)
        check(steps, window)
        assert window.phases[0] == ((0, -1),)
        assert len(window.phases[1]) == 6
        assert window.phases[2] == ((7, -1),)

    def test_branches_after_a_join_go_side_by_side_again(self) -> None:
        steps = chains(2, 4)
        again = [step("y w" if i % 4 == 0 else f"z{i - 1} w", f"z{i}") for i in range(8)]
        steps = [*steps, *again]
        (window,) = found(steps)
        check(steps, window)
        assert [len(phase) for phase in window.phases] == [8, 1, 8]

    def test_what_is_written_again_waits(self) -> None:
        steps = [step("x", "a"), step("a", "p"), step("x", "b"), step("b", "a"), step("a", "q")]
        for window in found(steps, work=20.0):
            check(steps, window)

    @pytest.mark.parametrize("seed", range(20))
    def test_any_order_of_dependencies(self, seed: int) -> None:
        r = np.random.default_rng(seed)
        steps = []
        for i in range(60):
            reads = {f"v{j}" for j in r.integers(max(0, i - 12), i, r.integers(1, 3))} if i and r.random() < 0.8 else {"x"}
            steps.append(step(" ".join(sorted(reads)), f"v{i if r.random() < 0.9 or not i else r.integers(0, i)}"))
        for window in found(steps):
            check(steps, window)

    def test_none_where_it_does_not_pay_or_is_not_allowed(self) -> None:
        assert not found(chains(2, 4), work=0.01)
        assert windows(chains(2, 4), {}, [True] * 9, [0.3] * 9, 2, SideBySide(eager=True))
        assert not found(chains(2, 4), threads=1)
        assert not found(chains(2, 4), most=1)
        assert not found(chains(1, 9))
        assert not found(chains(2, 4), serial=[i % 2 == 0 for i in range(9)])

    def test_none_in_loops(self) -> None:
        steps = [*chains(2, 4), Jump(-3)]
        assert not windows(steps, {}, [True] * 10, [4.0] * 10, 2, SideBySide())

    def test_what_a_window_touches_lives_for_all_of_it(self) -> None:
        window = (Window(3, 8, ()),)
        assert extended({"a": (0, 2), "b": (1, 4), "c": (4, 5), "d": (6, 9), "e": (8, 9), "f": (0, 20)}, window) == {
            "a": (0, 2), "b": (1, 7), "c": (3, 7), "d": (3, 9), "e": (8, 9), "f": (0, 20),
        }  # fmt: skip
        assert (scratch_life(5, window), scratch_life(8, window)) == ((3, 7), (8, 8))
        assert fit(window, [False] * 3 + [True] * 5)
        assert not fit(window, [True] * 7 + [False])

    def test_rows_of_a_table(self) -> None:
        table = np.array([[10 * i, 10 * i + 1, 1, 0] for i in range(6)], np.int64)
        window = Window(1, 5, (((1, 0), (3, 1), (4, 0)), ((2, -1),)))
        words = rearranged(table, (window,), 7)
        assert table[[0, 4, 5]].tolist() == [[0, 1, 1, 0], [20, 21, 1, 0], [50, 51, 1, 0]]
        assert table[1:4, 0].tolist() == [7, 7, 7]
        assert table[1:4, 2].tolist() == [2, 2, 0]
        assert words[:3].tolist() == [[10, 11, 0], [30, 31, 1], [40, 41, 0]]
        assert table[1:4, 1].tolist() == [words.ctypes.data + 24 * i for i in range(3)]


# --- models ---


def ensemble(count: int, depth: int, batch: int | str = 1) -> bytes:
    """Members that meet in a mean; each with a residual sum inside."""
    r = np.random.default_rng(0)
    nodes, weights = [], {}
    for i in range(count):
        last = "x"
        for d in range(depth):
            weights[f"w{i}_{d}"] = (r.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
            nodes.append(helper.make_node("MatMul", [last, f"w{i}_{d}"], [f"m{i}_{d}"]))
            nodes.append(helper.make_node("Softmax", [f"m{i}_{d}"], [f"s{i}_{d}"]))
            nodes.append(helper.make_node("Add", [f"s{i}_{d}", last], [f"a{i}_{d}"]))
            last = f"a{i}_{d}"
    nodes.append(helper.make_node("Mean", [f"a{i}_{depth - 1}" for i in range(count)], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, WIDTH])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    return made


def expected(model: bytes, x: np.ndarray, count: int, depth: int) -> np.ndarray:
    weights = {t.name: numpy_helper.to_array(t).astype("f8") for t in onnx.load_from_string(model).graph.initializer}
    ends = []
    for i in range(count):
        a = x.astype("f8")
        for d in range(depth):
            e = np.exp(a @ weights[f"w{i}_{d}"])
            a = a + e / e.sum(1, keepdims=True)
        ends.append(a)
    return np.asarray(np.mean(ends, axis=0))


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[BoundSegment]:
    """What was bound, in order."""
    kept: list[BoundSegment] = []
    bind = Segment.bind

    def noted(self: Segment, env: Any, threads: int) -> BoundSegment:
        kept.append(bind(self, env, threads))
        return kept[-1]

    monkeypatch.setattr(Segment, "bind", noted)
    return kept


def session(model: bytes, threads: int = 2, **settings: Any) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    for name, value in settings.items():
        setattr(options, name, value)
    return InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_results_are_the_same(threads: int, bound: list[BoundSegment]) -> None:
    model = ensemble(6, 3)
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    found, alone = session(model, threads), session(model, threads, inter_op_num_threads=1)
    for _ in range(50):
        y = found.run(None, {"x": x})[0]
    assert bool(bound[0].windows) == (threads > 1)
    np.testing.assert_allclose(y, expected(model, x, 6, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(y, alone.run(None, {"x": x})[0])
    assert not bound[-1].windows


def test_sizes_for_which_steps_are_large_go_one_after_the_other(bound: list[BoundSegment]) -> None:
    model = ensemble(4, 3, "n")
    found = session(model)
    r = np.random.default_rng(2)
    for n in (1, 2, 300, 1, 3, 301, 2):
        x = r.standard_normal((n, WIDTH)).astype(np.float32)
        np.testing.assert_allclose(found.run(None, {"x": x})[0], expected(model, x, 4, 3), rtol=1e-5, atol=1e-6)
    assert {bool(b.windows) for b in bound} == {True, False}


def test_the_mode_asks_for_them_where_little_is_spared(bound: list[BoundSegment]) -> None:
    lines = [f"{n}m = Mul(x, {n})  {n}0 = Softmax({n}m)  {n}1 = CumSum({n}0, zero)  {n}2 = Softmax({n}1)" for n in "abcd"]
    weights = ", ".join(f"float {n} = {{{i}.5}}" for i, n in enumerate("abcd"))
    text = f"""g (float[2, 40] x) => (float[2, 40] y) <int64 zero = {{0}}, {weights}> {{
        {" ".join(lines)}  y = Mean(a2, b2, c2, d2) }}"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString()
    x = np.random.default_rng(3).standard_normal((2, 40)).astype(np.float32)
    plain = session(model).run(None, {"x": x})[0]
    eager = session(model, execution_mode=ExecutionMode.ORT_PARALLEL).run(None, {"x": x})[0]
    np.testing.assert_array_equal(plain, eager)
    assert not bound[0].windows
    assert bound[-1].windows


def test_sessions_of_one_model_each_have_what_they_allow(bound: list[BoundSegment]) -> None:
    model = ensemble(6, 3, "n")
    x = np.zeros((1, WIDTH), np.float32)
    for most in (0, 1, 0, 1):
        found = session(model, inter_op_num_threads=most)
        for n in (1, 2, 3, 2, 1):
            found.run(None, {"x": x.repeat(n, 0)})
        assert bool(bound[-1].windows) == (most == 0)


def test_profiles_show_steps_one_by_one(bound: list[BoundSegment]) -> None:
    model = ensemble(6, 3)
    x = np.zeros((1, WIDTH), np.float32)
    found = session(model)
    first = found.run(None, {"x": x})[0]
    assert bound[0].windows
    assert "gemm" in str(found.profile({"x": x}, runs=2, roofline=False))
    np.testing.assert_array_equal(first, found.run(None, {"x": x})[0])


def test_many_callers_at_once(bound: list[BoundSegment]) -> None:
    model = ensemble(6, 3)
    found = session(model)
    r = np.random.default_rng(4)
    inputs = [r.standard_normal((1, WIDTH)).astype(np.float32) for _ in range(4)]
    answers = [expected(model, x, 6, 3) for x in inputs]
    wrong: list[int] = []

    def run(n: int) -> None:
        made = [found.run(None, {"x": inputs[n]})[0] for _ in range(100)]
        wrong.extend(n for y in made if not np.allclose(y, answers[n], rtol=1e-5, atol=1e-6))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bound[0].windows
    assert not wrong
