"""Bindings that earlier processes kept: the words of an exact binding, without the segment's steps."""

from __future__ import annotations

import gc
import pickle
import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import InferenceSession
from intarsia.plan.binding_cache import BindingCache
from intarsia.plan.parallel_branches import SideBySide
from intarsia.plan.segment import Segment
from intarsia.plan.state import State
from intarsia.providers.cpu.program.cpu_program import CpuProgram

MODELS = {
    "products": """g (float[n, m] x) => (float[n, k] y) { t = Transpose<perm=[1, 0]>(x)  a = MatMul(x, t)
        b = Softmax<axis=-1>(a)  c = MatMul(b, x)  d = MatMul(c, t)  y = Add(d, a) }""",
    "picks": """g (float[n, m] x) => (float[n, k] y) <int64[2] i = {0, -1}> { p = Gather<axis=1>(x, i)  e = Exp(p)
        s = ReduceSum<keepdims=1>(e)  y = Div(e, s) }""",
    "ends": """g (float[n, m] x) => (float[a, b] y) <int64[4] p = {0, 1, 1, 0}> { q = Pad(x, p)  y = Relu(q) }""",
    "branches": """g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  b = Neg(x)  c = Softmax<axis=0>(a)
        d = Softmax<axis=0>(b)  y = Add(c, d) }""",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))


def segments(text: str) -> tuple[InferenceSession, list[Segment]]:
    gc.collect()
    before = {id(p): p for p in gc.get_objects() if type(p) is CpuProgram}  # which stay, and their numbers theirs
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString()
    session = InferenceSession(model, providers=["CPUExecutionProvider"])
    programs = [p for p in gc.get_objects() if type(p) is CpuProgram and id(p) not in before]
    return session, [s for p in programs for s in p.executable.segments()]


def again(segment: Segment) -> Segment:
    """The segment as another process has it."""
    found: Segment = pickle.loads(pickle.dumps(segment))
    found.constants, found.addresses = segment.constants, segment.addresses
    found.cached = BindingCache("a segment")
    return found


def words(state: State) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """What a state has, with addresses of its own memory as offsets."""
    args = state.args.copy()
    args[state._leased] -= state._base
    for own in (state.status, state.claims):
        inside = (args >= own.ctypes.data) & (args < own.ctypes.data + own.nbytes)
        args = np.where(inside, args - own.ctypes.data, args)
    table, patches = state.table.copy(), state.patches.copy()
    table[:, 1] -= state.args.ctypes.data
    patches[:, 0] -= state.args.ctypes.data
    return args.tolist(), table.tolist(), patches.tolist()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_next_process_has_the_same_words(name: str, threads: int) -> None:
    session, found = segments(MODELS[name])
    assert found
    for segment in found:
        env = {"n": 3, "m": 4}
        first, second = again(segment), again(segment)
        exact = first.bind(env, threads)
        restored = second.bind(env, threads)
        assert ("steps" in vars(first), "steps" in vars(second)) == (True, False)
        assert words(State(restored)) == words(State(exact))
        assert (restored.outputs, restored.arena_nbytes, restored.checked) == (exact.outputs, exact.arena_nbytes, exact.checked)
        assert (restored.windows, restored.long, restored.sliced) == (exact.windows, exact.long, exact.sliced)
        assert (list(restored.serial), restored.unset) == (list(exact.serial), exact.unset)
        assert "steps" not in vars(second)
        assert (restored.shapes, restored.offsets) == (exact.shapes, exact.offsets)
    del session


def test_other_sizes_threads_and_permissions_are_other_bindings() -> None:
    _session, (segment,) = segments(MODELS["products"])
    again(segment).bind({"n": 3, "m": 4}, 2)
    for env, threads in (({"n": 4, "m": 4}, 2), ({"n": 3, "m": 4}, 1)):
        other = again(segment)
        other.bind(env, threads)
        assert "steps" in vars(other)
    other = again(segment)
    other.allow(SideBySide(most=1))
    other.bind({"n": 3, "m": 4}, 2)
    assert "steps" in vars(other)


def test_a_process_keeps_the_first_binding_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no frame for all sizes."""
    monkeypatch.setattr(BindingCache, "keep_frame", lambda *_: None)
    _session, (segment,) = segments(MODELS["products"])
    first = again(segment)
    for n in (3, 5, 6):
        first.bind({"n": n, "m": 4}, 2)
    second = again(segment)
    second.bind({"n": 3, "m": 4}, 2)
    assert "steps" not in vars(second)
    second.bind({"n": 5, "m": 4}, 2)  # one that it has to make
    assert "steps" in vars(second)
    third = again(segment)
    for n in (3, 5):
        third.bind({"n": n, "m": 4}, 2)
    assert "steps" not in vars(third)
    third.bind({"n": 6, "m": 4}, 2)
    assert "steps" in vars(third)


def test_threads_that_bind_at_once() -> None:
    _session, (segment,) = segments(MODELS["products"])
    again(segment).bind({"n": 3, "m": 4}, 2)
    for n in (3, 4):  # one that is kept, and one that is not
        shared, start = again(segment), threading.Barrier(4)
        found: list[State] = []

        def bind(shared: Segment, start: threading.Barrier, found: list[State], n: int) -> None:
            start.wait()
            found.append(State(shared.bind({"n": n, "m": 4}, 2)))

        threads = [threading.Thread(target=bind, args=(shared, start, found, n)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        if n == 3:
            assert [words(state) for state in found] == [words(State(segment.bind_exactly({"n": 3, "m": 4}, 2)))] * 4


def test_what_a_process_shares_is_not_kept() -> None:
    """Nodes without a seed draw from one stream, which lies in memory that kernels change."""
    _session, found = segments("g (float[n, m] x) => (float[n, m] y) { r = RandomNormalLike(x)  y = Add(r, x) }")
    for _ in range(2):
        for segment in found:
            other = again(segment)
            other.bind({"n": 3, "m": 4}, 2)
            assert "steps" in vars(other)
