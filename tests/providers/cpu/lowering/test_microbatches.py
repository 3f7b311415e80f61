"""A batch that goes through a model in parts: the same results as all of it at once, in less memory."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import LEVELS, check, model_of, normal, session_of

import intarsia as ort
from intarsia.plan import microbatch, microbatch_cost
from intarsia.plan.microbatch import BoundParts
from intarsia.plan.microbatch_cost import Stretch
from intarsia.providers.cpu.program.cpu_program import CpuProgram


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches so small that parts of a row pay."""
    monkeypatch.setattr(microbatch_cost, "CACHE_NBYTES", 512)
    for name in ("_WEIGHTS", "_STEP", "_CROSSING", "_LEAST"):
        monkeypatch.setattr(microbatch_cost, name, 0.0)


def made(session: ort.InferenceSession) -> list[BoundParts]:
    """Of all plans that a session has, the segments that go in parts."""
    found = (unit for program in session._model.programs for plan in program._plans.values() for unit in plan.units)
    return [unit for unit in found if isinstance(unit, BoundParts)]


def whole(text: str, constants: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the model gives where its batch is never parted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuProgram, "in_parts", lambda self, bound, env: bound)
        found: list[np.ndarray] = session_of(text, constants).run(None, dict(feeds))
        return found


W = {
    "w": normal(8, 4, 3, 3), "v": normal(8, 8, 1, 1), "u": normal(8, 1, 3, 3), "bias": normal(8), "dense": normal(200, 16),
    "e": normal(16, 16), "table": normal(50, 16), "two": np.array([2]), "one": np.array([1]), "zero": np.array([0]),
    "flat": np.array([0, -1]), "merged": np.array([-1, 16]), "parted": np.array([0, 5, 4, 4]), "back": np.array([-1, 5, 16]),
    "ones": np.ones(16, "f4"), "last": np.array([-1]), "halves": np.array([8, 8]), "ends": np.array([12]),
    "class": normal(1, 1, 16), "eight": normal(8), "sixteen": np.array([1, 1, 16]),
}  # fmt: skip
PICTURES = {"x": (4, 9, 9)}
LINES = {"x": (5, 16)}
Sizes = Mapping[str, tuple[int, ...]]
ROWWISE: dict[str, tuple[str, Sizes]] = {
    "convolutions": ("""g (float[n, 4, 9, 9] x) => (float[n, 8, 9, 9] y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w, bias)  r = Relu(a)  c = Conv(r, v)  s = Clip(c, zerof, six)
        k = Conv<group=8, pads=[1, 1, 1, 1]>(s, u)  l = Conv(k, v)  f = Add(l, c)  y = HardSwish(f) }""", PICTURES),
    "pooled and classified": ("""g (float[n, 4, 9, 9] x) => (float[n, 16] y, float[n, 8, 5, 5] p) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  r = Relu(a)  p = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(r)
        f = Reshape(p, flat)  m = MatMul(f, dense)  y = Softmax<axis=-1>(m) }""", PICTURES),
    "shuffled": ("""g (float[n, 4, 9, 9] x) => (float[n, 8, 9, 9] y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  n0 = Shape<start=0, end=1>(a)  s = Concat<axis=0>(n0, groups)  t = Reshape(a, s)
        p = Transpose<perm=[0, 2, 1, 3, 4]>(t)  o = Concat<axis=0>(n0, maps)  q = Reshape(p, o)
        l, r = Split<axis=1>(q)  h = Sigmoid(l)  y = Concat<axis=1>(h, r) }""", PICTURES),
    "attention": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        q = MatMul(x, e)  k = MatMul(x, e)  qs = Reshape(q, parted)  ks = Reshape(k, parted)
        qt = Transpose<perm=[0, 2, 1, 3]>(qs)  kt = Transpose<perm=[0, 2, 3, 1]>(ks)  s = MatMul(qt, kt)
        p = Softmax<axis=-1>(s)  c = MatMul(p, qt)  t = Transpose<perm=[0, 2, 1, 3]>(c)  f = Reshape(t, back)
        o = MatMul(f, e)  r = Add(o, x)  y = LayerNormalization<axis=-1>(r, ones, ones) }""", LINES),
    "merged rows": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        m = Reshape(x, merged)  a = Gemm(m, e, ones)  h = Gelu_(a)  c = Gemm(h, e)  y = Reshape(c, back) }""".replace(
        "Gelu_", "Erf"), LINES),
    "looked up": ("""g (int64[n, 5] i) => (float[n, 5, 16] y, float[n] z) {
        t = Gather(table, i)  m = MatMul(t, e)  y = Tanh(m)  z = ReduceMean<axes=[1, 2], keepdims=0>(y) }""", {"i": (5,)}),
    "two inputs": ("""g (float[n, 5, 16] x, float[n, 1, 16] s, float[5, 16] t) => (float[n, 5, 16] y) {
        a = Mul(x, s)  k = Add(a, t)  m = MatMul(k, e)  y = MatMul(m, e) }""", {"x": (5, 16), "s": (1, 16)}),
    "a token in front": ("""g (float[n, 5, 16] x) => (float[n, 6, 16] y) {
        n0 = Shape<start=0, end=1>(x)  o = Concat<axis=0>(n0, one, sixteenth)  k = Expand(class, o)
        c = Concat<axis=1>(k, x)  m = MatMul(c, e)  y = Relu(m) }""", LINES),
    "normalized in inference": ("""g (float[n, 4, 9, 9] x) => (float[n, 8, 9, 9] y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  t = Relu(a)
        y = BatchNormalization(t, eight, eight, eight, positive) }""", PICTURES),
    "along other axes": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y, int64[n, 5, 1] z) {
        m = MatMul(x, e)  c = CumSum(m, one)  z = ArgMax<axis=2>(c)  y = Softmax<axis=1>(c) }""", LINES),
    "an output without rows": ("""g (float[n, 5, 16] x, float[5, 16] t) => (float[n, 5, 16] y, float[5, 16] z) {
        z = MatMul(t, e)  a = MatMul(x, e)  y = Add(a, z) }""", LINES),
}  # fmt: skip
W |= {
    "zerof": np.float32(0), "six": np.float32(6), "groups": np.array([2, 4, 9, 9]), "maps": np.array([8, 9, 9]),
    "sixteenth": np.array([16]), "positive": np.abs(normal(8)) + 1,
}  # fmt: skip
MIXED: dict[str, tuple[str, Sizes, bool]] = {  # whether some steps still go in parts
    "normalized in training": ("""g (float[n, 4, 9, 9] x) => (float[n, 8, 9, 9] y, float[8] rm, float[8] rv) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  t = Relu(a)  c = Conv(t, v)
        y, rm, rv = BatchNormalization<training_mode=1>(c, eight, eight, eight, positive) }""", PICTURES, True),
    "a mean over the batch": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        a = MatMul(x, e)  b = Relu(a)  m = ReduceMean<axes=[0]>(b)  d = Sub(b, m)  f = MatMul(d, e)  y = MatMul(f, e) }""",
        LINES, True),
    "the batch in the rows of a product": ("""g (float[n, 5, 16] x) => (float[n, m] y) {
        a = MatMul(x, e)  b = Relu(a)  f = Reshape(b, flat)  t = Transpose<perm=[1, 0]>(f)  y = MatMul(f, t) }""",
        LINES, True),
    "rows gathered": ("""g (float[n, 5, 16] x) => (float[2, 5, 16] y) {
        a = MatMul(x, e)  b = Relu(a)  c = MatMul(b, e)  y = Gather<axis=0>(c, halves_) }""".replace("halves_", "picked"),
        LINES, True),
    "turned round": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        a = MatMul(x, e)  r = Slice(a, last, least, zero, last)  y = MatMul(r, e) }""", LINES, True),
    "how many": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y, int64[1] z) {
        z = Shape<start=0, end=1>(x)  f = Cast<to=1>(z)  a = MatMul(x, e)  c = MatMul(a, e)  k = MatMul(c, e)
        y = Div(k, f) }""", LINES, True),
    "the number of each": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        s = Shape(x)  k = Gather(s, zeroth)  r = Range(zeroth, k, oneth)  f = Cast<to=1>(r)  g3 = Unsqueeze(f, behind)
        a = MatMul(x, e)  c = MatMul(a, e)  k2 = MatMul(c, e)  y = Add(k2, g3) }""", LINES, True),
    "rows behind": ("""g (float[5, n, 16] x) => (float[5, n, 16] y) { a = MatMul(x, e)  b = Relu(a)  y = MatMul(b, e) }""",
        {"x": (-5, 16)}, False),
    "merged the other way": ("""g (float[n, 5, 16] x) => (float[5, m, 16] y) {
        a = MatMul(x, e)  b = Relu(a)  c = MatMul(b, e)  f = Reshape(c, five)  y = Softmax<axis=0>(f) }""", LINES, True),
    "drawn": ("""g (float[n, 5, 16] x) => (float[n, 5, 16] y) {
        a = MatMul(x, e)  c = MatMul(a, e)  b = Relu(c)  q = RandomUniformLike<seed=3.0>(b)  y = Add(b, q) }""", LINES, True),
}  # fmt: skip
W |= {
    "picked": np.array([1, 0]), "least": np.array([-(1 << 40)]), "zeroth": np.array(0), "oneth": np.array(1),
    "behind": np.array([1, 2]), "five": np.array([5, -1, 16]),
}  # fmt: skip


def feeds_of(sizes: Sizes, count: int, text: str) -> dict[str, np.ndarray]:
    r = np.random.default_rng(count)
    found: dict[str, np.ndarray] = {}
    for name, shape in sizes.items():
        full = (5, count, 16) if shape[0] < 0 else (count, *shape)
        found[name] = r.integers(0, 50, full) if name == "i" else r.standard_normal(full).astype(np.float32)
    if "float[5, 16] t" in text:
        found["t"] = normal(5, 16)
    return found


def used(text: str) -> dict[str, np.ndarray]:
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in text.partition("{")[2]).split())
    return {n: a for n, a in W.items() if n in words}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ROWWISE)
def test_parts_give_what_the_whole_does(name: str) -> None:
    text, sizes = ROWWISE[name]
    session = session_of(text, used(text))
    for count in (7, 1, 2, 5, 0, 3, 16):
        feeds = feeds_of(sizes, count, text)
        for found, expected in zip(session.run(None, feeds), whole(text, used(text), feeds), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert {7, 5, 16} <= {bound.count for bound in made(session)}
    for bound in made(session):
        covered = [(p.first, b, b + p.rows) for p in bound.passes for b in p.begins]
        for first in {f for f, _, _ in covered}:
            spans = [(b, e) for f, b, e in covered if f == first]
            assert spans[0][0] == 0
            assert spans[-1][1] == bound.count
            assert all(e == b for (_, e), (b, _) in itertools.pairwise(spans))
    check(text, *(feeds_of(sizes, count, text) for count in (6, 9)), constants=used(text), rtol=3e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", MIXED)
def test_steps_that_mix_rows_take_all_of_them(name: str) -> None:
    text, sizes, some = MIXED[name]
    session = session_of(text, used(text))
    for count in (7, 2, 16):
        feeds = feeds_of(sizes, count, text)
        for found, expected in zip(session.run(None, feeds), whole(text, used(text), feeds), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert bool(made(session)) == some
    for bound in made(session):
        assert any(p.rows < bound.count for p in bound.passes)
        assert any(p.rows == bound.count for p in bound.passes)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_whole_stretches_need_less_memory(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text, sizes = ROWWISE["convolutions"]
    monkeypatch.setattr(microbatch, "chosen", lambda rows, count, traffic, threads: [Stretch(0, len(traffic.work), 2)])
    monkeypatch.setattr(microbatch_cost, "CACHE_NBYTES", 1)
    session = session_of(text, used(text), threads=threads)
    feeds = feeds_of(sizes, 9, text)
    (y,) = session.run(None, feeds)
    np.testing.assert_allclose(y, whole(text, used(text), feeds)[0], rtol=2e-5, atol=2e-5)
    (bound,) = made(session)
    assert [(p.rows, list(p.begins)) for p in bound.passes] == [(2, [0, 2, 4, 6]), (1, [8])]
    assert not bound.between
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuProgram, "in_parts", lambda self, bound, env: bound)
        other = session_of(text, used(text), threads=threads)
        other.run(None, feeds)
    (plan,) = other._model.programs[0]._plans.values()
    assert bound.arena_nbytes * 3 < plan.single.arena_nbytes
    report = session.memory_report({"x": (9, *sizes["x"])})
    assert f"{bound.arena_nbytes / 2**20:.3f}" in str(report)


@pytest.mark.parametrize("text", [
    """g (float[n, 4, 9, 9] x) => (float[n, 8, 9, 9] y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  b = Relu(a)  c = Conv(b, v)  d = Sigmoid(c)  f = Concat<axis=1>(b, d)
        y = Conv(f, p) }""",
    """g (float[n, 4, 9, 9] x) => (float[n, 16, 9, 9] f, float[n, 8, 9, 9] y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)  b = Relu(a)  c = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b)
        d = Conv(c, v)  f = Concat<axis=1>(b, d)  y = Conv(f, p) }""",
])  # fmt: skip
@pytest.mark.parametrize("borders", [(), (1,), (2,), (1, 2), (1, 2, 3)])
def test_stretches_that_part_a_concatenation(text: str, borders: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """What one stretch wrote of it is there when the next writes the rest."""
    constants = used(text) | {"p": normal(8, 16, 1, 1)}

    def stretches(rows: microbatch_cost.Rows, count: int, traffic: microbatch_cost.Traffic, threads: int) -> list[Stretch]:
        ends = [*(b for b in borders if b < len(rows.steps)), len(rows.steps)]
        return [Stretch(first, end, 2 + i % 2) for i, (first, end) in enumerate(itertools.pairwise([0, *ends]))]

    monkeypatch.setattr(microbatch, "chosen", stretches)
    monkeypatch.setattr(microbatch_cost, "CACHE_NBYTES", 1)
    session = session_of(text, constants)
    feeds = feeds_of(PICTURES, 7, text)
    for found, expected in zip(session.run(None, feeds), whole(text, constants, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    (bound,) = made(session)
    assert len(bound.segment.steps) > max(borders, default=0)


def test_small_batches_and_one_row_stay_whole() -> None:
    text, sizes = ROWWISE["convolutions"]
    session = session_of(text, used(text))
    for count in (1, 2, 8):
        session.run(None, feeds_of(sizes, count, text))
    assert not made(session)


@pytest.mark.usefixtures("small")
def test_one_row_of_much_stays_whole() -> None:
    text, sizes = ROWWISE["convolutions"]
    session = session_of(text, used(text))
    session.run(None, feeds_of(sizes, 1, text))
    assert not made(session)


def traffic(activations: list[float], weights: list[float], work: float = 0.0) -> microbatch_cost.Traffic:
    """Of a batch of 64 rows, in MiB; nothing crosses."""
    steps = len(activations)
    return microbatch_cost.Traffic(
        np.array(activations) * 2**20, np.array(weights) * 2**20, np.zeros(steps), np.full(steps, work / steps)
    )


def known(steps: int, mixing: tuple[int, ...] = ()) -> microbatch_cost.Rows:
    return microbatch_cost.Rows("n", tuple(i not in mixing for i in range(steps)), frozenset(), frozenset())


def test_activations_that_fit_into_the_caches_decide() -> None:
    found = microbatch_cost.chosen(known(6), 64, traffic([200.0] * 6, [0.1] * 6), 2)
    assert found == [Stretch(0, 6, 2)]  # 8 MiB of two threads hold two rows of 3.1 MiB
    assert microbatch_cost.chosen(known(6), 64, traffic([7.0] * 6, [0.1] * 6), 2) is None
    more = microbatch_cost.chosen(known(6), 64, traffic([200.0] * 6, [0.1] * 6), 16)
    assert more is not None
    assert more[0].rows > 2, "more threads have more cache, and want more work"


def test_weights_decide_against_parts() -> None:
    assert microbatch_cost.chosen(known(3), 64, traffic([16.0] * 3, [400.0, 60.0, 40.0]), 2) is None
    found = microbatch_cost.chosen(known(4), 64, traffic([200.0, 200.0, 12.0, 12.0], [0.1, 0.1, 400.0, 60.0]), 2)
    assert found == [Stretch(0, 2, 2), Stretch(2, 4, 64)]


def test_long_computations_are_not_parted_for_little() -> None:
    moved = traffic([200.0] * 6, [0.1] * 6, work=3e6)
    assert microbatch_cost.chosen(known(6), 64, moved, 2) is None


def test_steps_that_mix_are_chosen_whole() -> None:
    found = microbatch_cost.chosen(known(6, (2,)), 64, traffic([200.0] * 6, [0.1] * 6), 2)
    assert found == [Stretch(0, 2, 2), Stretch(2, 3, 64), Stretch(3, 6, 2)]


@pytest.mark.parametrize("count", [2, 3, 5, 7, 31, 64, 100])
def test_parts_are_even(count: int) -> None:
    found = microbatch_cost.candidates(count)
    assert found[-1] == count
    assert found == sorted(set(found))
    for size in found:
        assert -(-count // size) * size - count < -(-count // size), "the last part lacks less than a row each"


@pytest.mark.usefixtures("small")
def test_bound_memory_is_read_and_written_part_by_part() -> None:
    text, sizes = ROWWISE["pooled and classified"]
    session = session_of(text, used(text))
    feeds = feeds_of(sizes, 7, text)
    expected = session.run(None, feeds)
    assert made(session)
    binding = session.io_binding()
    x = feeds["x"].copy()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    targets = [np.full_like(e, np.nan) for e in expected]
    for name, target in zip(("y", "p"), targets, strict=True):
        binding.bind_output(name, "cpu", 0, np.float32, target.shape, target.ctypes.data)
    for scale in (1.0, 2.0, 1.0):
        x[:] = feeds["x"] * np.float32(scale)
        session.run_with_iobinding(binding)
        for target, value in zip(targets, session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(target, value)
    for target, value in zip(targets, expected, strict=True):
        np.testing.assert_array_equal(target, value)


@pytest.mark.usefixtures("small")
def test_faults_of_any_part_are_reported() -> None:
    text, sizes = ROWWISE["looked up"]
    session = session_of(text, used(text))
    feeds = feeds_of(sizes, 7, text)
    good = session.run(None, feeds)
    assert made(session)
    for row in (0, 3, 6):
        bad = feeds["i"].copy()
        bad[row, 2] = 50
        with pytest.raises(ort.InvalidArgument, match="out of range"):
            session.run(None, {"i": bad})
        np.testing.assert_array_equal(session.run(None, feeds)[0], good[0])


@pytest.mark.usefixtures("small")
def test_a_run_that_is_stopped_leaves_the_next_one_right() -> None:
    text, sizes = ROWWISE["convolutions"]
    session = session_of(text, used(text))
    feeds = feeds_of(sizes, 16, text)
    (expected,) = session.run(None, feeds)
    assert made(session)
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(ort.Fail, match="terminate"):
        session.run(None, feeds, options)
    np.testing.assert_array_equal(session.run(None, feeds, ort.RunOptions())[0], expected)


@pytest.mark.usefixtures("small")
def test_runs_at_the_same_time() -> None:
    text, sizes = ROWWISE["convolutions"]
    session = session_of(text, used(text))
    given = [feeds_of(sizes, count, text) for count in (7, 16, 7)]
    expected = [session.run(None, f)[0] for f in given]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(20) if not np.array_equal(session.run(None, given[i])[0], expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("small")
def test_memory_comes_back_and_is_taken_again() -> None:
    text, sizes = ROWWISE["convolutions"]
    session = session_of(text, used(text))
    feeds = feeds_of(sizes, 7, text)
    (expected,) = session.run(None, feeds)
    (bound,) = made(session)
    assert (bound.blocks, bound.idle) == (1, 1)
    assert bound.strip() == bound.arena_nbytes
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    assert bound.trim() == bound.arena_nbytes
    assert bound.blocks == 0
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


@pytest.mark.usefixtures("small")
def test_profiles_and_plans_show_parts(tmp_path: Path) -> None:
    text, sizes = ROWWISE["convolutions"]
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    options.graph_optimization_level = LEVELS[0]
    session = ort.InferenceSession(model_of(text, used(text)).SerializeToString(), options)
    session.run(None, feeds_of(sizes, 7, text))
    (bound,) = made(session)
    events = [e for e in json.loads(Path(session.end_profiling()).read_text()) if e["cat"] == "Node"]
    assert len(events) == sum(len(p.begins) * len(p.bound.segment.steps) for p in bound.passes)
    assert all(e["dur"] >= 0 for e in events)
    described = session._model.programs[0].describe("plan")
    assert "rows at a time" in described


@pytest.mark.usefixtures("small")
def test_equal_bits_for_any_number_of_threads() -> None:
    text, sizes = ROWWISE["attention"]
    feeds = feeds_of(sizes, 7, text)
    found = []
    for threads in (1, 2, 5):
        options = ort.SessionOptions()
        options.use_deterministic_compute, options.intra_op_num_threads = True, threads
        session = ort.InferenceSession(model_of(text, used(text)).SerializeToString(), options)
        found.append(session.run(None, feeds)[0])
        (bound,) = made(session)
        assert [p.rows for p in bound.passes] == [p.rows for p in made(session)[0].passes]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.usefixtures("small")
def test_what_is_known_of_rows_is_kept_in_the_cache() -> None:
    text, sizes = ROWWISE["convolutions"]
    feeds = feeds_of(sizes, 7, text)
    first, second = (session_of(text, used(text)) for _ in range(2))
    np.testing.assert_array_equal(first.run(None, feeds)[0], second.run(None, feeds)[0])
    assert made(first)
    assert made(second)


@pytest.mark.usefixtures("small")
def test_growing_batches_are_not_bound_whole_ahead() -> None:
    text, sizes = ROWWISE["merged rows"]
    session = session_of(text, used(text))
    for count in range(4, 16):
        feeds = feeds_of(sizes, count, text)
        np.testing.assert_allclose(session.run(None, feeds)[0], whole(text, used(text), feeds)[0], rtol=2e-5, atol=2e-5)
    assert {bound.count for bound in made(session)} == set(range(4, 16))
