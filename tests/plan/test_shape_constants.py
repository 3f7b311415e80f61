"""Values that depend on sizes alone: computed once for the same sizes, and never where they may differ from run to run."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia import InferenceSession, SessionOptions
from intarsia.plan.segment import Segment
from intarsia.plan.shape_constants import SizedValues
from intarsia.providers.cpu.program.cpu_program import CpuProgram

RNG = np.random.default_rng(3)
W = RNG.standard_normal((6, 5)).astype(np.float32)
# Relative positions: |i - j| for all rows, a product by weights of their sines, and the distances themselves.
POSITIONS = """g (float[b, n, 5] x) => (float[b, n, 5] y, float[b, n, n] d)
    <int64 zero = {0}, int64 one = {1}, int64[1] first = {1}, float[1, 6] f = {1.0, 2.0, 0.5, 0.25, 3.0, 0.125}> {
    s = Shape(x)  n1 = Gather(s, first)  nn = Squeeze(n1)  r = Range(zero, nn, one)  q = Cast<to = 1>(r)
    c = Unsqueeze(q, first)  a = Mul(c, f)  e = Sin(a)  p = MatMul(e, w)  y = Add(x, p)
    l = Unsqueeze(q, zeros)  m = Sub(c, l)  k = Abs(m)
    xt = Transpose<perm = [0, 2, 1]>(x)  z = MatMul(x, xt)  d = Sub(z, k) }"""


def model(text: str = POSITIONS) -> bytes:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1, np.int64), "zeros"))
    return bytes(made.SerializeToString())


def opened(text: str = POSITIONS, threads: int = 2, **entries: str) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return InferenceSession(model(text), options, providers=["CPUExecutionProvider"])


def program_of(session: InferenceSession) -> CpuProgram:
    held = session._model
    program = held.program if hasattr(held, "program") else held.programs[0]
    assert isinstance(program, CpuProgram)
    return program


def segment_of(session: InferenceSession) -> Segment:
    (segment,) = program_of(session).executable.segments()
    return segment


def values_of(session: InferenceSession) -> SizedValues:
    values = segment_of(session).values
    assert values is not None
    return values


def x_of(b: int, n: int) -> np.ndarray:
    return np.random.default_rng(b * 100 + n).standard_normal((b, n, 5)).astype(np.float32)


def expected(x: np.ndarray) -> list[np.ndarray]:
    n = np.arange(x.shape[1], dtype=np.float64)
    table = np.sin(n[:, None] * np.array([1.0, 2.0, 0.5, 0.25, 3.0, 0.125])) @ W.astype(np.float64)
    return [x + table, x.astype(np.float64) @ x.transpose(0, 2, 1) - np.abs(n[:, None] - n)]


def check(session: InferenceSession, b: int, n: int) -> None:
    x = x_of(b, n)
    for got, want in zip(session.run(None, {"x": x}), expected(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_second_run_keeps_and_the_third_reads(threads: int) -> None:
    session = opened(threads=threads)
    values = values_of(session)
    check(session, 2, 7)
    assert values.nbytes == 0
    check(session, 2, 7)
    assert values.nbytes > 0
    check(session, 2, 7)
    (kept,) = values._retained
    assert kept.array is not None
    kept.array.view(np.uint8)[:] = 0
    y, _ = session.run(None, {"x": x_of(2, 7)})
    np.testing.assert_array_equal(y, x_of(2, 7))  # the table, which is 0 now, was not computed again
    assert session.memory_report().providers[0].values_nbytes == values.nbytes


def test_sizes_that_come_once_leave_nothing() -> None:
    session = opened()
    for n in range(3, 40):
        check(session, 1, n)
    assert values_of(session).nbytes == 0


def test_other_batches_of_one_length_have_one_table() -> None:
    session = opened()
    for _ in range(3):
        for b in (1, 2, 3, 5):
            check(session, b, 9)
    assert len(values_of(session)._retained) == 1


def test_many_sizes_in_turn() -> None:
    session = opened()
    for _ in range(4):
        for n in (5, 17, 64, 31, 6):
            check(session, 2, n)
    assert len(values_of(session)._retained) == 5


def test_the_oldest_are_given_up() -> None:
    session = opened()
    values = values_of(session)
    check(session, 1, 24)
    check(session, 1, 24)
    most = values.most_nbytes = values.nbytes * 5 // 2
    for n in (20, 21, 22, 23, 20, 21, 22, 23):
        for _ in range(3):
            check(session, 1, n)
            assert values.nbytes <= most
    assert 0 < len(values._retained) < 4
    assert sum(p.trim() for p in [program_of(session)]) > 0
    assert values.nbytes == 0
    for _ in range(3):
        check(session, 1, 22)


def test_where_values_are_large_only_products_have_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia.plan.segment.MOST_MOVED", 4 * (16 * 5 + 16 * 16) - 1)
    session = opened()
    segment = segment_of(session)
    assert segment.sized is not None
    assert segment.products is not None
    assert set(segment.products.names) < set(segment.sized.names)
    for n in (16, 9, 16, 12, 9, 17, 18, 9, 17, 17, 16, 16):
        check(session, 2, n)
    every, products = segment.values_of_sizes()
    assert {v.known["n"] for v in every._retained} == {9}
    assert {v.known["n"] for v in products._retained} == {16, 17}
    products.most_nbytes = 1
    for _ in range(3):
        check(session, 3, 30)
    assert {v.known["n"] for v in products._retained} == {16, 17}


def test_batches_in_parts_compute_all() -> None:
    session = opened()
    segment = segment_of(session)
    plain = segment.without_sized()
    assert (plain.sized, plain.values, segment.without_sized()) == (None, None, plain)
    assert len(plain.lifetimes()) > len(segment.lifetimes())


def test_a_limit_of_memory_keeps_nothing() -> None:
    session = opened(session__memory_limit_mib="64")
    for _ in range(3):
        check(session, 2, 8)
    segment = segment_of(session)
    assert (segment.values, segment.sized) == (None, None)


def test_random_numbers_are_drawn_in_every_run() -> None:
    text = """g (float[n] x) => (float[n] y) <int64[1] three = {3}> {
        r = RandomNormal<shape = [3]>()  s = Exp(r)  t = ReduceSum<keepdims = 1>(s)  y = Add(x, t) }"""
    session = opened(text)
    runs = [session.run(None, {"x": np.zeros(4, np.float32)})[0] for _ in range(6)]
    assert len({r.tobytes() for r in runs}) == 6


def test_outputs_that_depend_on_sizes_alone_are_the_callers() -> None:
    text = """g (float[n, m] x) => (float[n, 5] p, float[n, 5] y) <int64 zero = {0}, int64 one = {1}, int64[1] first = {1}> {
        s = Shape(x)  n1 = Gather(s, zeros)  n2 = Squeeze(n1)  r = Range(zero, n2, one)  q = Cast<to = 1>(r)
        c = Unsqueeze(q, first)  e = Sin(c)  f = Expand(e, six)  p = MatMul(f, w)  v = ReduceMean<axes = [1], keepdims = 1>(x)
        y = Add(p, v) } """.replace("first = {1}>", "first = {1}, int64[2] six = {1, 6}>")
    session = opened(text)
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    want = np.repeat(np.sin(np.arange(4.0))[:, None], 6, 1) @ W
    for _ in range(4):
        p, y = session.run(None, {"x": x})
        np.testing.assert_allclose(p, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, want + x.mean(1, keepdims=True), rtol=1e-5, atol=1e-6)
        p[:] = 7  # theirs to write into


def test_bound_calls_keep_and_read_them() -> None:
    session = opened()
    x = x_of(2, 11)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    outputs = [np.zeros((2, 11, 5), np.float32), np.zeros((2, 11, 11), np.float32)]
    for name, array in zip("yd", outputs, strict=True):
        binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    for _ in range(5):
        for array in outputs:
            array[:] = 0
        session.run_with_iobinding(binding)
        for got, want in zip(outputs, expected(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert values_of(session).nbytes > 0


def test_a_fault_keeps_nothing() -> None:
    text = """g (float[n, m] x, int64[k] i) => (float[k, 5] y) <int64 zero = {0}, int64 one = {1}, int64[1] first = {1}> {
        s = Shape(x)  n1 = Gather(s, zeros)  n2 = Squeeze(n1)  r = Range(zero, n2, one)  q = Cast<to = 1>(r)
        c = Unsqueeze(q, first)  e = Sin(c)  f = Expand(e, six)  p = MatMul(f, w)  y = Gather<axis = 0>(p, i) }
        """.replace("first = {1}>", "first = {1}, int64[2] six = {1, 6}>")
    session = opened(text)
    x, bad, good = np.zeros((4, 2), np.float32), np.array([9]), np.array([2])
    want = np.repeat(np.sin(np.arange(4.0))[:, None], 6, 1) @ W
    for _ in range(3):
        with pytest.raises(Exception, match="out of range"):
            session.run(None, {"x": x, "i": bad})
    assert values_of(session).nbytes == 0
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x, "i": good})[0], want[[2]], rtol=1e-5, atol=1e-6)


def test_a_profile_leaves_out_what_is_not_computed() -> None:
    profile = opened().profile({"x": x_of(2, 30)}, runs=4)
    names = {entry.name for entry in profile.by_operator()}
    assert "Add" in names
    assert "Range" not in names


@pytest.mark.parametrize("threads", [1, 2])
def test_the_next_process_begins_with_the_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(3):
        session = opened(threads=threads)
        for n in (12, 12, 12, 5, 12, 5, 5):
            check(session, 2, n)
        assert values_of(session).nbytes > 0
        del session


def test_threads_share_and_compute_side_by_side() -> None:
    session = opened()
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(150):
                check(session, int(rng.integers(1, 3)), int(rng.integers(20, 26)))
        except BaseException as error:
            failed.append(error)
            raise

    values_of(session).most_nbytes = 4_000
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_branches_side_by_side_have_them_too() -> None:
    """Small chains that two threads take, with tables of sizes in between."""
    chain = "  ".join(
        f"a{i} = Add(v{i}, t)  b{i} = MatMul(a{i}, u)  c{i} = Tanh(b{i})  d{i} = MatMul(c{i}, u)  e{i} = Sin(d{i})"
        for i in range(4)
    )
    text = f"""g (float[n, 5] x) => (float[n, 5] y) <int64 zero = {{0}}, int64 one = {{1}}, int64[1] first = {{1}},
        float v = {{0.5}}> {{
        s = Shape(x)  n1 = Gather(s, zeros)  n2 = Squeeze(n1)  r = Range(zero, n2, one)  q = Cast<to = 1>(r)
        c = Unsqueeze(q, first)  t = Sin(c)  u0 = Transpose(w)  u = MatMul(u0, w)
        v0 = Exp(x)  v1 = Neg(x)  v2 = Abs(x)  v3 = Mul(x, v)  {chain}
        f = Add(e0, e1)  g = Add(e2, e3)  y = Add(f, g) }}"""
    session = opened(text)
    x = RNG.standard_normal((40, 5)).astype(np.float32)
    first = session.run(None, {"x": x})[0]
    for _ in range(30):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], first)
