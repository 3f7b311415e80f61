"""New sizes of a segment that was bound before: the same words as an exact binding has, and the same results."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import InferenceSession, SessionOptions
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import symbol
from intarsia.graph.tape import MOST_WAYS
from intarsia.plan.argument_tables import Table
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.plan.state import State
from intarsia.plan.step import Argument, Sizes, Step
from intarsia.plan.symbolic_binding import _LAYOUTS
from intarsia.plan.traced_binding import NotedFrame
from intarsia.providers.cpu.program.cpu_program import CpuProgram

LOOP = """g (float[n, 4] x) => (float[n, 4] y) {
    three = Constant<value = int64 {3}>()  yes = Constant<value = bool {1}>()
    y = Loop(three, yes, x) <body = b (int64 i, bool d, float[n, 4] a) => (bool e, float[n, 4] c) {
        e = Identity(d)  s = Softmax<axis=0>(a)  c = Add(s, a) }> }"""
MODELS = {
    "products": """g (float[n, m] x) => (float[n, k] y) { t = Transpose<perm=[1, 0]>(x)  a = MatMul(x, t)
        b = Softmax<axis=-1>(a)  c = MatMul(b, x)  d = MatMul(c, t)  y = Add(d, a) }""",
    "rows": """g (float[n, m] x) => (float[n] y, float[k] z) { s = Softmax<axis=-1>(x)  r = ReduceSum<keepdims=0>(s, one)
        t = Transpose<perm=[1, 0]>(x)  y = Exp(r)  f = Reshape(t, flat)  z = CumSum(f, zero) }""",
    "dense": "g (float[n, 64] x) => (float[n, 640] y) { a = MatMul(x, dw)  b = Gelu(a)  y = MatMul(b, dv) }",
    "pictures": """g (float[n, 4, m, 8] x) => (float[n, 4, p, q] y) { c = Conv<pads=[1, 1, 1, 1]>(x, w)  r = Relu(c)
        p = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(r)  y = Add(p, x) }""",
    "steps": "g (float[n, 1, 8] x) => (float[n, 1, 1, 8] y) { y, h = GRU<hidden_size=8>(x, gw, gr) }",
    "sizes": """g (float[n, m] x) => (float[p, q] y) { s = Shape(x)  h = Div(s, two)  a = Slice(x, zeros, h)
        y = Concat<axis=0>(a, a) }""",
    "waves": "g (float[n, 16, m] x) => (float[n, 32, m] y) { c = Conv<pads=[2, 2]>(x, cw)  y = Relu(c) }",
    "loop": LOOP,
    "texts": "g (float[n, m] x) => (float[n, m] y) { a = Relu(x)  s = Cast<to=8>(a)  b = Cast<to=1>(s)  y = Softmax(b) }",
}
CONSTANTS = {
    "one": np.array([1]), "zero": np.array(0), "flat": np.array([-1]), "two": np.array([2, 2]), "zeros": np.array([0, 0]),
    "w": np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("f4"),
    "cw": np.random.default_rng(5).standard_normal((32, 16, 5)).astype("f4"),
    "dw": np.random.default_rng(3).standard_normal((64, 640)).astype("f4"),
    "dv": np.random.default_rng(4).standard_normal((640, 640)).astype("f4"),
    "gw": np.random.default_rng(1).standard_normal((1, 24, 8)).astype("f4"),
    "gr": np.random.default_rng(2).standard_normal((1, 24, 8)).astype("f4"),
}  # fmt: skip


def proto(text: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> {text}')
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in CONSTANTS.items() if n in used)
    return model.SerializeToString()


def session(text: str, threads: int = 2) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(proto(text), options, providers=["CPUExecutionProvider"])


def feed(name: str, n: int, m: int) -> dict[str, np.ndarray]:
    shape = {"pictures": (n, 4, m, 8), "steps": (n, 1, 8), "waves": (n, 16, m), "loop": (n, 4), "dense": (n, 64)}.get(
        name, (n, m)
    )
    return {"x": np.random.default_rng(n * 100 + m).standard_normal(shape).astype("f4")}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_an_exact_binding(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(3, 5), (4, 5), (1, 1), (70, 33), (71, 33), (72, 40), (2, 2), (300, 64), (301, 64), (5, 0)]
    sizes = [s for s in sizes if (name != "pictures" or s[0] < 80) and (s[1] or name not in ("pictures", "waves"))]
    found = session(MODELS[name], threads)
    results = [found.run(None, feed(name, *s)) for s in sizes]
    monkeypatch.setattr(Segment, "bind", Segment.bind_exactly)
    for s, ours in zip(sizes, results, strict=True):
        for a, b in zip(ours, session(MODELS[name], threads).run(None, feed(name, *s)), strict=True):
            np.testing.assert_array_equal(a, b)


def run_segments(name: str) -> tuple[InferenceSession, list[Segment]]:
    """A session of a model after two runs, and the native segments of its program."""
    gc.collect()
    before = {id(p): p for p in gc.get_objects() if type(p) is CpuProgram}  # which stay, and their numbers theirs
    found = session(MODELS[name])
    for s in ((3, 5), (9, 6)):
        found.run(None, feed(name, *s))
    programs = [p for p in gc.get_objects() if type(p) is CpuProgram and id(p) not in before]
    return found, [s for p in programs for s in p.executable.segments()]


def words(bound: BoundSegment) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """What a new state has."""
    return words_in(State(bound), bound)


def words_in(state: State, bound: BoundSegment) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """With addresses of its own memory as offsets, those of the arena as 0."""
    start = state.args.ctypes.data
    count = len(state.args) if bound._found is None else bound._found.frame.outline.count
    args = state.args[:count].copy()
    args[state._leased] = 0
    low, high = state.status.ctypes.data, state.status.ctypes.data + state.status.nbytes
    args = np.where((args >= low) & (args < high), args - low, args)
    low, high = state.claims.ctypes.data, state.claims.ctypes.data + state.claims.nbytes
    args = np.where((args >= low) & (args < high), args - low, args)
    table, patches = state.table.copy(), state.patches.copy()
    table[:, 1] -= start
    patches[:, 0] -= start
    return args.tolist(), table.tolist(), patches.tolist()


def test_words_are_those_of_an_exact_binding() -> None:
    compared = 0
    for name in ("products", "rows", "steps", "dense", "loop"):
        found, native = run_segments(name)
        for segment in native:
            frame = NotedFrame(segment, 2, {"n": 3, "m": 5})
            for n, m in ((3, 5), (64, 5), (65, 7), (1, 1), (900, 33)):
                rebound = frame.bind({"n": n, "m": m})
                if rebound is None:
                    continue
                exact = segment.bind_exactly({"n": n, "m": m}, 2)
                ours = BoundSegment.of(segment, rebound, {"n": n, "m": m})
                assert (ours.outputs, ours.long, ours.sliced) == (exact.outputs, exact.long, exact.sliced)
                assert ours.shapes == exact.shapes
                assert (ours.workspace_nbytes, ours.checked, list(ours.serial)) == (
                    exact.workspace_nbytes, exact.checked, list(exact.serial),
                )  # fmt: skip
                assert words(ours) == words(exact)
                compared += 1
        assert found
    assert compared >= 15


@pytest.mark.parametrize("name", ["products", "rows", "steps", "dense", "loop", "waves"])
def test_a_state_that_was_of_other_sizes_has_the_same_words(name: str) -> None:
    """Only words are written that are others than before."""
    found, native = run_segments(name)
    for segment in native:
        frame = NotedFrame(segment, 2, {"n": 3, "m": 5})
        state: State | None = None
        for n, m in ((3, 5), (4, 5), (5, 5), (64, 5), (65, 7), (3, 5), (1, 1), (900, 33), (4, 6), (4, 6)):
            rebound = frame.bind({"n": n, "m": m})
            if rebound is None:
                continue
            bound = BoundSegment.of(segment, rebound, {"n": n, "m": m})
            if state is None or not state.become(rebound, bound.long):
                state = State(bound)
            ours, new = words_in(state, bound), State(bound)
            moved = np.array(new.args) - new.args.ctypes.data == np.array(state.args[: len(new.args)]) - state.args.ctypes.data
            expected = words_in(new, bound)
            same = np.array(ours[0]) == np.array(expected[0])
            assert (same | moved[: len(same)]).all()  # the same, or as far from the words' beginning
            assert ours[1:] == expected[1:]
            tables = slice(frame.outline.count, rebound.used)
            np.testing.assert_array_equal(state.args[tables], new.args[tables])
    assert found


def test_tables_lie_among_the_words() -> None:
    """Those that the tape writes: they move with the words, and have room for more."""
    found, (segment,) = run_segments("waves")
    frame = NotedFrame(segment, 2, {"n": 2, "m": 40})
    for m in (64, 3, 900, 40):
        rebound = frame.bind({"n": 2, "m": m})
        assert rebound is not None
        assert rebound.used > frame.outline.count
        assert not rebound.held
        bound = BoundSegment.of(segment, rebound, {"n": 2, "m": m})
        state, exact = State(bound), State(segment.bind_exactly({"n": 2, "m": m}, 2))
        low = state.args.ctypes.data
        (place,) = [int(w) for w in state.args[: frame.outline.count] if low <= w < low + state.args.nbytes]
        tables = [a.array for args in segment.bind_exactly({"n": 2, "m": m}, 2).arguments for a in args if type(a) is Table]
        at = (place - low) // 8
        np.testing.assert_array_equal(state.args[at : rebound.used], tables[0])
        assert len(exact.args) == frame.outline.count
    assert found


def test_tables_that_python_makes_are_kept() -> None:
    """What a step takes by the address of a table lives as long as what is bound to it."""
    text = "g (float[2, n, 1] x) => (float[2, n, 2] y) { one = Constant<value_int=1>() y = DFT(x, , one) }"
    found = session(text)
    results = []
    for n in (6, 10, 14, 30, 10):
        x = np.random.default_rng(n).standard_normal((2, n, 1)).astype("f4")
        results.append((found.run(None, {"x": x})[0], np.fft.fft(x[..., 0])))
        gc.collect()
    for ours, expected in results:
        np.testing.assert_allclose(ours[..., 0] + 1j * ours[..., 1], expected, atol=1e-4)


def test_ways_that_are_too_many_are_asked_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function whose numbers follow from a size in no other way than by the size itself."""
    (found, (segment,)) = run_segments("rows")
    step = next(s for s in segment.steps if isinstance(s, Step))
    plain = step.arguments

    def arguments(size: Sizes, threads: int) -> Sequence[Argument]:
        given = plain(size, threads)
        return [*given[:-1], given[-1] + 0 * len(range(size(symbol("n"))))]  # type: ignore[operator]

    monkeypatch.setattr(step, "arguments", arguments)
    frame = NotedFrame(segment, 2, {"n": 3, "m": 5})
    for n in range(3, 2 * MOST_WAYS):
        rebound = frame.bind({"n": n, "m": 5})
        assert rebound is not None
        exact = segment.bind_exactly({"n": n, "m": 5}, 2)
        assert words(BoundSegment.of(segment, rebound, {"n": n, "m": 5})) == words(exact)
    assert [a.section.ways for a in frame._queries] == [MOST_WAYS]
    assert found


def test_the_number_of_layouts_and_states_does_not_grow() -> None:
    found, (segment,) = run_segments("products")
    rng = np.random.default_rng(0)
    for n in rng.permutation(np.arange(2, 200)):
        found.run(None, feed("products", int(n), 7))
    (frame,) = segment._frames[2]
    assert all(len(layouts) <= _LAYOUTS for layouts in frame._layouts.values())
    assert len(frame._plain.states) == 1
    rows = len(frame.outline.code)
    for n in rng.permutation(np.arange(2, 200)):
        found.run(None, feed("products", int(n), 8))
    assert len(frame.outline.code) == rows


def test_threads_that_bind_at_the_same_time() -> None:
    found = session(MODELS["pictures"])
    sizes = [(2, int(m)) for m in np.random.default_rng(1).permutation(np.arange(3, 60))]
    expected = {m: session(MODELS["pictures"], 1).run(None, feed("pictures", n, m))[0] for n, m in sizes[:8]}
    wrong: list[int] = []

    def work(first: int) -> None:
        for n, m in sizes[first::3]:
            y = found.run(None, feed("pictures", n, m))[0]
            if m in expected and not np.allclose(y, expected[m], atol=1e-5):
                wrong.append(m)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_first_plan_while_another_thread_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = {id(p): p for p in gc.get_objects() if type(p) is CpuProgram}  # which stay, and their numbers theirs
    found, bind = session(MODELS["texts"]), Segment.bind

    def interrupted(self: Segment, *args: Any) -> BoundSegment:
        monkeypatch.setattr(Segment, "bind", bind)
        other = threading.Thread(target=found.run, args=(None, feed("texts", 5, 3)))
        other.start()
        other.join()
        return bind(self, *args)

    monkeypatch.setattr(Segment, "bind", interrupted)
    y = found.run(None, feed("texts", 2, 7))[0]
    np.testing.assert_allclose(y.sum(-1), [1, 1], rtol=1e-6)
    (program,) = [p for p in gc.get_objects() if type(p) is CpuProgram and id(p) not in before]
    units = [unit for plan in program._plans.values() for unit in plan.units]
    assert len(units) == 2 * len(program.executable.units)
    assert not [unit for unit in units if isinstance(unit, Segment)]


def test_a_layout_serves_sizes_that_grow_and_is_not_kept_for_small_ones() -> None:
    found, (segment,) = run_segments("products")
    frame = NotedFrame(segment, 2, {"n": 9, "m": 6})
    totals = [frame.bind({"n": n, "m": 64}).arena_nbytes for n in range(500, 530)]  # type: ignore[union-attr]
    assert len(set(totals)) <= 2
    assert all(a <= b for a, b in pairwise(totals))
    exact = segment.bind_exactly({"n": 500, "m": 64}, 2).arena_nbytes
    assert exact <= totals[0] <= exact * 1.2
    assert frame.bind({"n": 8, "m": 6}).arena_nbytes < totals[0] / 50  # type: ignore[union-attr]
    assert found


def test_what_does_not_fit_is_said_by_the_exact_binding() -> None:
    text = "g (float[n] x, float[m] z) => (float[n] y) { a = Exp(x)  y = Add(a, z) }"
    found = session(text)
    for n in (2, 3, 4):
        found.run(None, {"x": np.ones(n, "f4"), "z": np.ones(n, "f4")})
    with pytest.raises(InvalidArgument, match=r"broadcast|equal"):
        found.run(None, {"x": np.ones(5, "f4"), "z": np.ones(6, "f4")})
    assert found.run(None, {"x": np.zeros(5, "f4"), "z": np.ones(5, "f4")})[0].tolist() == [2.0] * 5
