"""Frames that earlier processes kept: the same words as an exact binding has, for any sizes, without the segment's steps."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia
from intarsia import InferenceSession, SessionOptions
from intarsia.plan.binding_cache import BindingCache
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.plan.state import State
from intarsia.plan.symbolic_binding import Frame
from intarsia.plan.traced_binding import NotedFrame
from intarsia.providers.cpu.program.cpu_program import CpuProgram

MODELS = {
    "products": """g (float[n, m] x) => (float[n, k] y) { t = Transpose<perm=[1, 0]>(x)  a = MatMul(x, t)
        b = Softmax<axis=-1>(a)  c = MatMul(b, x)  d = MatMul(c, t)  y = Add(d, a) }""",
    "dense": "g (float[n, 64] x) => (float[n, 640] y) { a = MatMul(x, dw)  b = Gelu(a)  y = MatMul(b, dv) }",
    "steps": "g (float[n, 1, 8] x) => (float[n, 1, 1, 8] y) { y, h = GRU<hidden_size=8>(x, gw, gr) }",
    "waves": "g (float[n, 16, m] x) => (float[n, 32, m] y) { c = Conv<pads=[2, 2]>(x, cw)  y = Relu(c) }",
    "pictures": """g (float[n, 4, m, 8] x) => (float[n, 4, p, q] y) { c = Conv<pads=[1, 1, 1, 1]>(x, w)  r = Relu(c)
        p = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(r)  y = Add(p, x) }""",
    "loop": """g (float[n, 4] x) => (float[n, 4] y) {
        three = Constant<value = int64 {3}>()  yes = Constant<value = bool {1}>()
        y = Loop(three, yes, x) <body = b (int64 i, bool d, float[n, 4] a) => (bool e, float[n, 4] c) {
            e = Identity(d)  s = Softmax<axis=0>(a)  c = Add(s, a) }> }""",
}
_random = np.random.default_rng(0)
CONSTANTS: dict[str, np.ndarray] = {"row": np.array([1, 4])} | {
    name: _random.standard_normal(shape).astype("f4")
    for name, shape in {
        "w": (4, 4, 3, 3), "cw": (32, 16, 5), "dw": (64, 640), "dv": (640, 640), "gw": (1, 24, 8), "gr": (1, 24, 8),
    }.items()
}  # fmt: skip
SIZES = [(3, 5), (9, 6), (1, 1), (70, 33), (71, 33), (300, 64), (2, 7)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))


def proto(text: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> {text}')
    nodes = [*model.graph.node, *(n for node in model.graph.node for a in node.attribute for n in a.g.node)]
    used = {name for node in nodes for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in CONSTANTS.items() if n in used)
    return model.SerializeToString()


def segments(text: str, threads: int = 2) -> tuple[InferenceSession, list[Segment]]:
    gc.collect()
    before = {id(p): p for p in gc.get_objects() if type(p) is CpuProgram}  # which stay, and their numbers theirs
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(proto(text), options, providers=["CPUExecutionProvider"])
    programs = [p for p in gc.get_objects() if type(p) is CpuProgram and id(p) not in before]
    return session, [s for p in programs for s in p.executable.segments()]


def again(segment: Segment) -> Segment:
    """The segment as another process has it."""
    found: Segment = pickle.loads(pickle.dumps(segment))
    found.constants, found.addresses = segment.constants, segment.addresses
    found.cached = BindingCache("a segment")
    return found


def env_of(n: int, m: int) -> dict[str, int]:
    return {"n": n, "m": m}


def needs_steps(segment: Segment) -> bool:
    return "steps" in vars(segment)


def words(bound: BoundSegment) -> tuple[list[int], list[list[int]], list[list[int]], list[int]]:
    """What a new state has, with addresses of its own memory as offsets, those of the arena as 0; and the tables behind it."""
    state, found = State(bound), bound._found
    start = state.args.ctypes.data
    count = len(state.args) if found is None else found.frame.outline.count
    args = state.args[:count].copy()
    args[state._leased] = 0
    for own in (state.status, state.claims):
        inside = (args >= own.ctypes.data) & (args < own.ctypes.data + own.nbytes)
        args = np.where(inside, args - own.ctypes.data, args)
    inside = (args >= start) & (args < start + state.args.nbytes)
    table, patches = state.table.copy(), state.patches.copy()
    table[:, 1] -= start
    patches[:, 0] -= start
    tables = [] if found is None else state.args[count : found.used].tolist()
    return np.where(inside, args - start, args).tolist(), table.tolist(), patches.tolist(), tables


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_next_process_has_the_same_words(name: str, threads: int) -> None:
    session, found = segments(MODELS[name], threads)
    assert found
    for segment in found:
        first = again(segment)
        made = [first.bind(env_of(*s), threads) for s in (*SIZES, *SIZES)][len(SIZES) :]
        second = again(segment)
        for s, exact in zip(SIZES[1:], made[1:], strict=True):
            ours = second.bind(env_of(*s), threads)
            assert (ours._found is not None) == (exact._found is not None)
            assert words(ours) == words(exact)
            assert (ours.outputs, ours.arena_nbytes, ours.long) == (exact.outputs, exact.arena_nbytes, exact.long)
            assert (ours.checked, ours.unset, ours.count) == (exact.checked, exact.unset, exact.count)
            assert (ours.sliced, ours.windows, list(ours.serial)) == (exact.sliced, exact.windows, list(exact.serial))
        assert not needs_steps(second)
    del session


def test_a_kept_frame_serves_the_first_sizes_of_a_process_too() -> None:
    _session, (segment,) = segments(MODELS["products"])
    first = again(segment)
    for n in (3, 5, 6):
        first.bind(env_of(n, 4), 2)
    second = again(segment)
    assert second.bind(env_of(6, 4), 2)._found is not None
    assert not needs_steps(second)
    other = again(segment)
    other.bind(env_of(6, 4), 1)  # by another number of threads
    assert needs_steps(other)


def test_a_way_that_no_process_took_is_learned_beside_those_that_are_known() -> None:
    _session, (segment,) = segments(MODELS["dense"])
    small, large = [2, 3, 5], [150, 151]

    def bound(sizes: Sequence[int]) -> Segment:
        process = again(segment)
        for n in sizes:
            assert words(process.bind({"n": n}, 2)) == words(segment.bind({"n": n}, 2))
        return process

    segment.bind({"n": 1}, 2)
    bound(small)
    assert not needs_steps(bound(small))
    grown = bound(large)
    assert needs_steps(grown)
    (frame,) = grown._frames[2]
    assert type(frame) is NotedFrame
    assert {"n": 150} in frame.taught
    last = bound([*large, *small])
    assert not needs_steps(last)
    assert [type(frame) for frame in last._frames[2]] == [Frame]


def test_states_go_on_where_a_frame_is_made_anew() -> None:
    """Lengths that grow out of what earlier processes had, in one session."""
    options = SessionOptions()
    options.intra_op_num_threads = 2
    model = proto(MODELS["dense"])

    def run(lengths: Sequence[int]) -> list[np.ndarray]:
        session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [session.run(None, {"x": np.full((n, 64), n / 100, np.float32)})[0] for n in lengths]

    run(range(1, 5))
    gc.collect()
    ours = run(range(3, 160, 7))
    for n, y in zip(range(3, 160, 7), ours, strict=True):
        np.testing.assert_array_equal(y, run([n])[0])


def test_threads_that_bind_at_once() -> None:
    _session, (segment,) = segments(MODELS["dense"])
    first = again(segment)
    for n in (2, 3, 5):
        first.bind({"n": n}, 2)
    segment.bind({"n": 1}, 2)
    for n in (4, 150):  # one that the kept frame knows, and one that it does not
        shared, start = again(segment), threading.Barrier(4)
        found: list[object] = []

        def bind(shared: Segment, start: threading.Barrier, found: list[object], n: int) -> None:
            start.wait()
            found.append(words(shared.bind({"n": n}, 2)))

        threads = [threading.Thread(target=bind, args=(shared, start, found, n)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        exact = words(segment.bind_exactly({"n": n}, 2))
        assert [one[:3] for one in found] == [exact[:3]] * 4  # type: ignore[index]


def test_what_python_computes_for_all_sizes_is_not_kept() -> None:
    _session, found = segments("g (float[2, n, 1] x) => (float[2, n, 2] y) { one = Constant<value_int=1>() y = DFT(x, , one) }")
    for _ in range(2):
        for segment in found:
            other = again(segment)
            for n in (6, 10, 14):
                other.bind({"n": n}, 2)
            assert needs_steps(other)


def test_what_a_process_shares_is_not_kept() -> None:
    """Nodes without a seed draw from one stream, which lies in memory that kernels change."""
    _session, found = segments("g (float[n, m] x) => (float[n, m] y) { r = RandomNormalLike(x)  y = Add(r, x) }")
    for _ in range(2):
        for segment in found:
            other = again(segment)
            for n in (3, 4, 5):
                other.bind(env_of(n, 4), 2)
            assert needs_steps(other)


GROWING = """
import sys, numpy, intarsia
session = intarsia.InferenceSession({path!r}, providers=["CPUExecutionProvider"])
for n in range({first}, {first} + {runs}):
    y = session.run(None, {{"x": numpy.arange(4 * n, dtype=numpy.float32).reshape(n, 4)}})[0]
made_by = {{"intarsia.plan.binding_tracer", "intarsia.graph.tape", "intarsia.primitives.lang", "onnx"}}
print(sorted(made_by & set(sys.modules)), float(y.sum()))
"""


LAYERS = "g (float[n, 4] x) => (float[n, 4] y) { s = Softmax<axis=0>(x)  y = Add(s, x) }"
GROWING_LOOP = """g (float[n, 4] x) => (float[m, 4] y) {
    trips = Constant<value = int64 {9}>()  yes = Constant<value = bool {1}>()
    y = Loop(trips, yes, x) <body = b (int64 i, bool d, float[p, 4] a) => (bool e, float[q, 4] c) {
        e = Identity(d)  s = Softmax<axis=0>(a)  r = ReduceMax<keepdims=1>(s)  f = Expand(r, row)
        c = Concat<axis=0>(s, f) }> }"""


@pytest.mark.parametrize(("text", "runs"), [(LAYERS, 12), (GROWING_LOOP, 1)])
def test_a_new_process_imports_nothing_that_makes_kernels_for_lengths_that_grow(
    text: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTARSIA_PROGRAM_CACHE")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto(text))
    os.utime(path, (1e9, 1e9))
    environment = {**os.environ, "PYTHONPATH": str(Path(intarsia.__file__).parents[1])}

    def run(first: int) -> str:
        command = [sys.executable, "-c", GROWING.format(path=str(path), first=first, runs=runs)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    made = run(5)
    assert made.partition("]")[0] != "["
    assert run(5) == f"[]{made.partition(']')[2]}"
    assert run(9).startswith("[]")
