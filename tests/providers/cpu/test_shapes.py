"""The CPU provider on models whose shapes, views and values only a run knows; several threads; what outputs share."""

from __future__ import annotations

import threading

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import CPU, check, kinds, normal, session_of

import intarsia as ort
from intarsia.errors import InvalidArgument
from intarsia.providers.cpu.program.cpu_program import PLAN_LIMIT

INT = np.int64


def ints(*values: int) -> np.ndarray:
    return np.array(values, INT)


DATA_DEPENDENT = {
    "nonzero_gather": (
        """g (float[n] x, float[m, 3] w) => (float[k, 3] y) <int64[2] shape = {-1, 3}, int64[1] one = {-1}> {
            z = NonZero(x)  i = Reshape(z, one)  r = Gather(w, i)  s = Add(r, r)  y = Reshape(s, shape) }""",
        [{"x": np.array(v, np.float32), "w": normal(4, 3)} for v in ([1, 0, 2, 0], [0, 0, 0, 0], [1, 1, 1, 1])],
    ),
    "range_of_a_computed_limit": (
        """g (float[n] x) => (int64[k] y, float[k] z) <int64 zero = {0}, int64 one = {1}, int64 last = {0}> {
            m = ReduceMax <keepdims = 0> (x)  i = Cast <to = 7> (m)  y = Range(zero, i, one)
            f = Cast <to = 1> (y)  z = Mul(f, m) }""",
        [{"x": np.array(v, np.float32)} for v in ([1, 5, 2], [0], [-3, -1], [9, 1])],
    ),
    "slice_with_computed_ends": (
        """g (float[n, 4] x, int64[1] begin, int64[1] end) => (float[k, 4] y) <int64[1] axis = {0}> {
            e = Add(end, begin)  s = Slice(x, begin, e, axis)  y = Exp(s) }""",
        [{"x": normal(7, 4), "begin": ints(a), "end": ints(b)} for a, b in ((0, 3), (2, 2), (5, 100), (-3, 2), (6, -6))],
    ),
    "expand_to_a_computed_shape": (
        """g (float[n, 1] x, int64[2] shape) => (float[a, b] y) {
            s = Add(shape, shape)  e = Expand(x, s)  y = Mul(e, e) }""",
        [{"x": normal(1, 1), "shape": ints(2, 3)}, {"x": normal(4, 1), "shape": ints(2, 1)}, {"x": normal(1, 1),
        "shape": ints(0, 3)}],
    ),
    "shape_arithmetic": (
        """g (float[n, m] x) => (float[m, n] y, int64[2] s) <int64[1] zero = {0}, int64[1] one = {1}> {
            s = Shape(x)  a = Gather(s, zero)  b = Gather(s, one)  t = Concat <axis = 0> (b, a)  y = Reshape(x, t) }""",
        [{"x": normal(*s)} for s in ((2, 3), (1, 5), (4, 4))],
    ),
    "size_from_data_then_more": (
        """g (float[n] x) => (float[k] y) <float half = {0.5}> {
            m = Greater(x, half)  c = Compress(x, m)  d = Exp(c)  t = Neg(d)  u = Unique <sorted = 1> (t)  y = Abs(u) }""",
        [{"x": np.array(v, np.float32)} for v in ([1, 0, 2, 2], [0, 0], [3])],
    ),
    "tile_and_pad_by_inputs": (
        """g (float[n, 2] x, int64[2] times, int64[4] pads) => (float[a, b] y) {
            t = Tile(x, times)  p = Pad(t, pads)  y = Add(p, p) }""",
        [{"x": normal(2, 2), "times": ints(1, 2), "pads": ints(0, 1, 2, 0)}, {"x": normal(1, 2), "times": ints(3, 1),
        "pads": ints(1, 0, 0, -1)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DATA_DEPENDENT))
def test_shapes_that_depend_on_data(name: str) -> None:
    text, feeds = DATA_DEPENDENT[name]
    check(text, *feeds)


CONTROL = {
    "if_with_captured_values": (
        """g (bool c, float[n] x, float[n] w) => (float[n] y) {
            s = Mul(x, w)
            t = If (c) <then_branch = a () => (float[n] p) { e = Exp(s)  p = Add(e, w) },
                else_branch = b () => (float[n] q) { q = Neg(s) }>
            y = Add(t, s) }""",
        [{"c": np.array(c), "x": normal(n), "w": normal(n, seed=1)} for c in (True, False) for n in (3, 5)],
    ),
    "loop_with_captured_values": (
        """g (int64 times, float[n] x, float[n] w) => (float[n] y, float[k, n] all) <bool go = {1}> {
            y, all = Loop (times, go, x) <body = b (int64 i, bool c, float[n] v) => (bool d, float[n] u, float[n] out) {
                m = Mul(v, w)  f = Cast <to = 1> (i)  u = Add(m, f)  out = Neg(u)  d = Identity(c) }> }""",
        [{"times": np.array(t), "x": normal(n), "w": normal(n, seed=1)} for t, n in ((3, 4), (2, 2), (1, 1))],
    ),
    "scan_with_captured_values": (
        """g (float[n] x, float[t, n] xs, float[n] w) => (float[n] last, float[t, n] ys) {
            last, ys = Scan (x, xs) <num_scan_inputs = 1, body = b (float[n] v, float[n] e) => (float[n] u, float[n] out) {
                m = Mul(v, w)  u = Add(m, e)  out = Exp(u) }> }""",
        [{"x": normal(n), "xs": normal(t, n), "w": normal(n, seed=1)} for t, n in ((4, 3), (1, 2))],
    ),
    "nested": (
        """g (int64 times, float[n] x) => (float[n] y) <bool go = {1}, int64 two = {2}> {
            w = Exp(x)
            y = Loop (times, go, x) <body = b (int64 i, bool c, float[n] v) => (bool d, float[n] u) {
                even = Less(i, two)
                u = If (even) <then_branch = p () => (float[n] r) { r = Add(v, w) },
                    else_branch = q () => (float[n] s) { s = Sub(v, w) }>
                d = Identity(c) }> }""",
        [{"times": np.array(4), "x": normal(3)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CONTROL))
def test_control_flow_bodies_are_compiled(name: str) -> None:
    text, feeds = CONTROL[name]
    check(text, *feeds)


VIEWS = {
    "output_is_an_input": "g (float[n] x) => (float[n] y) { y = Identity(x) }",
    "output_is_a_constant": "g (float[n] x) => (float[2] y, float[n] z) <float[2] c = {1, 2}> { y = Identity(c)  z = Neg(x) }",
    "output_is_a_reshaped_input": "g (float[n] x) => (float[n, 1] y) <int64[1] a = {1}> { y = Unsqueeze(x, a) }",
    "the_same_value_twice": "g (float[n] x) => (float[n] y, float[n] z) { y = Exp(x)  z = Identity(y) }",
    "a_value_and_its_reshape": """g (float[n] x) => (float[n] y, float[1, n] z, float[n] w) <int64[1] a = {0}> {
        y = Exp(x)  z = Unsqueeze(y, a)  w = Neg(z0)  z0 = Identity(y) }""".replace(
        "w = Neg(z0)  z0 = Identity(y)", "z0 = Identity(y)  w = Neg(z0)"
    ),
    "a_chain_with_an_output_inside": "g (float[n] x) => (float[n] a, float[n] c) { a = Exp(x)  b = Neg(a)  c = Abs(b) }",
}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_outputs_share_no_memory(name: str) -> None:
    """With inputs, constants, each other, or an earlier run."""
    session = check(VIEWS[name], {"x": normal(3)}, {"x": normal(1)}, {"x": normal(0)})
    x = normal(4)
    first, second = session.run(None, {"x": x}), session.run(None, {"x": x})
    kept = [a.copy() for a in second]
    arrays = [x, *first, *second]
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[:i])
    for a in first:
        a += 1
    for a, b in zip(session.run(None, {"x": x}), kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_reshapes_are_views() -> None:
    session = check(
        "g (float[2, n] x) => (float[k] y) <int64[1] s = {-1}> { e = Exp(x)  r = Reshape(e, s)  y = Neg(r) }",
        {"x": normal(2, 3)},
    )
    assert "view" in kinds(session).values()


def test_several_threads_run_one_session_with_different_shapes() -> None:
    session = session_of(
        """g (float[n, 8] x, float[8, m] w) => (float[n, m] y, float[n] z) { p = MatMul(x, w)  y = Relu(p)
            z = ReduceSum <keepdims = 0> (x, a) }"""
        .replace("=> (float[n, m] y, float[n] z)", "=> (float[n, m] y, float[n] z) <int64[1] a = {1}>")
    )  # fmt: skip
    failures: list[str] = []

    def work(seed: int) -> None:
        for i in range(40):
            x, w = normal(1 + (seed + i) % 7, 8, seed=seed), normal(8, 1 + (seed * i) % 5, seed=i)
            y, z = session.run(None, {"x": x, "w": w})
            if not np.allclose(y, np.maximum(x @ w, 0), atol=1e-5) or not np.allclose(z, x.sum(1), atol=1e-5):
                failures.append(f"{x.shape} {w.shape}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def program_of(session: ort.InferenceSession):
    (program,) = session._model.programs
    return program


def test_plans_are_kept_up_to_a_limit() -> None:
    session = session_of("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    for n in range(PLAN_LIMIT + 5):  # sizes of which none follow from others: these are bound ahead
        assert session.run(None, {"x": np.zeros(n * n, np.float32)})[0].shape == (n * n,)
    assert len(program_of(session)._plans) == PLAN_LIMIT
    for n in range(3 * PLAN_LIMIT):
        session.run(None, {"x": np.zeros(n, np.float32)})
    assert len(program_of(session)._plans) <= PLAN_LIMIT


# --- errors ----------------------------------------------------------------------------------------------------------


MISMATCHED = {
    "add": ("g (float[a, 3] x, float[b, 3] y) => (float[c, 3] z) { z = Add(x, y) }", {"x": normal(2, 3), "y": normal(4, 3)}),
    "matmul": (
        "g (float[a, b] x, float[c, d] y) => (float[a, d] z) { z = MatMul(x, y) }",
        {"x": normal(2, 3), "y": normal(4, 5)},
    ),
    "gemm": (
        "g (float[a, b] x, float[d, c] y) => (float[a, d] z) { z = Gemm <transB = 1> (x, y) }",
        {"x": normal(2, 3), "y": normal(4, 5)},
    ),
    "concat": (
        "g (float[a, 3] x, float[b, 2] y) => (float[a, 5] z) { z = Concat <axis = 1> (x, y) }",
        {"x": normal(4, 3), "y": normal(2, 2)},
    ),
    "where": (
        "g (bool[a] c, float[b] x, float[b] y) => (float[d] z) { z = Where(c, x, y) }",
        {"c": np.ones(3, bool), "x": normal(2), "y": normal(2)},
    ),
    "reshape": ("g (float[a] x) => (float[2, 3] z) <int64[2] s = {2, 3}> { e = Exp(x)  z = Reshape(e, s) }", {"x": normal(5)}),
}


FITS = {
    "add": r"node 'Add_0' \(Add\): dimensions 2 and 4 do not broadcast",
    "matmul": r"\(MatMul\): the inner dimensions of a matrix product: got 3, expected 4, with b = 3, c = 4",
    "gemm": r"\(Gemm\): the inner dimensions of a matrix product: got 3, expected 5, with b = 3, c = 5",
    "concat": r"\(Concat\): axis 0 of concatenated tensors: got 2, expected 4, with a = 4, b = 2",
    "where": r"\(Where\): dimensions 3 and 2 do not broadcast",
    "reshape": r"\(Reshape\): cannot reshape \[a\] to \[2, 3\]: its elements: got 5, expected 6, with a = 5",
}


@pytest.mark.parametrize("name", sorted(MISMATCHED))
def test_sizes_that_do_not_fit(name: str) -> None:
    text, feeds = MISMATCHED[name]
    with pytest.raises(InvalidArgument, match=FITS[name]):
        session_of(text).run(None, feeds)


def test_channels_that_do_not_fit() -> None:
    text = "g (float[n, c, h, w] x) => (float[n, 2, h, w] y) { y = Conv <kernel_shape = [1, 1]> (x, f) }"
    session = session_of(text, {"f": normal(2, 3, 1, 1)})
    assert session.run(None, {"x": normal(1, 3, 4, 4)})[0].shape == (1, 2, 4, 4)
    with pytest.raises(InvalidArgument, match="X has c channels; W and group = 1 need 3: got 2, expected 3, with c = 2"):
        session.run(None, {"x": normal(1, 2, 4, 4)})


@pytest.mark.parametrize("index", [3, -4, 2**40])
def test_an_index_out_of_range_names_the_node(index: int) -> None:
    session = session_of("g (float[n, 2] x, int64[k] i) => (float[k, 2] y) { g = Gather(x, i)  y = Exp(g) }")
    with pytest.raises(InvalidArgument, match=rf"Gather.*an index is out of range: {index} at .1. of .i.; expected -3 to 2"):
        session.run(None, {"x": normal(3, 2), "i": ints(0, index)})
    np.testing.assert_allclose(session.run(None, {"x": normal(3, 2), "i": ints(-1)})[0], np.exp(normal(3, 2)[-1:]), rtol=1e-6)


def test_wrong_rank_in_a_program() -> None:
    session = session_of("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    with pytest.raises(InvalidArgument, match=r"input 'x' has rank 2 \(shape \[2, 3\]\); expected rank 1"):
        program_of(session).run([normal(2, 3)])


def test_types_without_code_run_on_the_host() -> None:
    """Complex numbers and strings are not compiled; NumPy computes them and `explain` says why."""
    session = check(
        "g (string[n] x, string[n] y) => (bool[n] z) { e = Equal(x, y)  z = Not(e) }",
        {"x": np.array(["a", "b"], object), "y": np.array(["a", "c"], object)},
    )
    assert "host" in kinds(session).values()
    assert any("not compiled" in n.note for n in session.explain().nodes)
    assert session.get_providers()[0] == CPU


def test_a_branch_on_whether_anything_was_found() -> None:
    """The number of elements that NonZero finds may be 0: the branch is taken when the model runs."""
    text = """g (float[n] x) => (int64 y) <int64 zero = {0}, int64 many = {7}, int64[1] axis = {0}> {
        z = NonZero(x)  s = Size(z)  c = Equal(s, zero)
        y = If (c) <then_branch = a () => (int64 p) { p = Identity(many) },
            else_branch = b () => (int64 q) { q = Identity(s) }> }"""
    check(text, {"x": np.zeros(3, np.float32)}, {"x": np.ones(3, np.float32)})


def test_bodies_that_carry_sequences() -> None:
    text = """g (int64 times, float[n] x) => (float[k, n] y) <bool go = {1}> {
        empty = SequenceEmpty()
        all = Loop (times, go, empty) <body = b (int64 i, bool c, seq(float[n]) before) => (bool d, seq(float[n]) after) {
            f = Cast <to = 1> (i)  v = Mul(x, f)  after = SequenceInsert(before, v)  d = Identity(c) }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (all) }"""
    check(text, {"times": np.array(3), "x": normal(4)}, {"times": np.array(1), "x": normal(2)})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("x", ["2, 3, 5, 6", "n, 3, h, w", "n, c, h, 6"])
def test_borders_as_numpy_makes_them(mode: str, x: str) -> None:
    pads = np.array([0, 1, 2, 1, 0, 0, 3, 4], np.int64)
    session = session_of(f'g (float[{x}] x) => (float[a, b, c2, d] y) {{ y = Pad <mode = "{mode}"> (x, p) }}', {"p": pads})
    for shape in ((2, 3, 5, 6),) if "n" not in x else ((2, 3, 5, 6), (1, 3, 17, 6), (0, 3, 5, 6)):
        given = normal(*shape)
        expected = np.pad(given, list(zip(pads[:4], pads[4:], strict=True)), mode=mode)
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], expected)
