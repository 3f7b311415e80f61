"""Programs of one unit or none: views, constants, copies, inputs that a kernel does not read, and host operators alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import check, normal, session_of

import intarsia as ort
from intarsia.errors import IntarsiaError, InvalidArgument, InvalidGraph
from intarsia.graph.dims import evaluate


def test_views_of_inputs_are_copies_of_another_shape() -> None:
    session = session_of(
        "g (float[n, 6] x) => (float[m, k] y, float[n, 6] z) <int64[2] s = {-1, 4}> { y = Reshape(x, s) z = Identity(x) }"
    )
    for rows in (2, 4, 60_000, 2):
        x = normal(rows, 6)
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x.reshape(-1, 4))
        np.testing.assert_array_equal(z, x)
        y[:] = 0
        assert np.array_equal(z, x) and x.any()
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=r"cannot reshape \[n, 6\] to .*: got 18, expected 16, with n = 3"):
            session.run(None, {"x": normal(3, 6)})


def test_constants_belong_to_the_caller() -> None:
    session = session_of(
        "g (float[2, 3] x) => (int64[2] s, float[3] w) <float[3] c = {1, 2, 3}> { s = Shape(x) w = Identity(c) }"
    )
    s, w = session.run(None, {"x": normal(2, 3)})
    s[:], w[:] = 9, 9
    s, w = session.run(None, {"x": normal(2, 3)})
    assert s.tolist() == [2, 3]
    assert w.tolist() == [1, 2, 3]


def test_outputs_in_another_order_and_inputs_that_are_not_read() -> None:
    text = "g (float[n] a, float[n] b, float[n] c) => (float[n, 1] y, float[n] c2, float[n] z) <int64[2] s = {-1, 1}> {"
    check(
        text + "z = Exp(c) t = Add(a, c) y = Reshape(t, s) c2 = Identity(c) }", {"a": normal(5), "b": normal(5), "c": normal(5)}
    )
    check("g (float[n, m] x) => (float[n, m] y) { y = EyeLike(x) }", {"x": normal(3, 4)}, {"x": normal(1, 2)})


def test_a_host_operator_alone() -> None:
    text = 'g (string[n] x) => (string[n] y) { y = StringNormalizer <case_change_action = "UPPER"> (x) }'
    session = session_of(text)
    for words in (["a", "b c"], ["d"]):
        found = session.run(None, {"x": np.array(words, object)})[0]
        assert found.tolist() == [w.upper() for w in words]
    text = "g (int64 bins, int64 length, int64 rate, float low, float high) => (float[n, m] y) {"
    session = session_of(text + "y = MelWeightMatrix(bins, length, rate, low, high) }")
    feed = {"bins": np.array(8), "length": np.array(64), "rate": np.array(8000), "low": np.array(0, np.float32)}
    first = session.run(None, {**feed, "high": np.array(4000, np.float32)})[0]
    expected = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(session.run(None, {**feed, "high": np.array(4000, np.float32)})[0], expected)
    options = ort.RunOptions()
    np.testing.assert_array_equal(session.run(None, {**feed, "high": np.array(4000, np.float32)}, options)[0], expected)


def test_a_host_operator_alone_says_what_is_wrong() -> None:
    session = session_of("g (float a, float b, float c) => (float[n] y) { y = Range(a, b, c) }")
    for _ in range(2):
        with pytest.raises(InvalidGraph, match="the step of Range must not be 0"):
            session.run(None, {name: np.array(0, np.float32) for name in "abc"})
    assert session.run(None, {n: np.array(v, np.float32) for n, v in zip("abc", (0, 3, 1), strict=True)})[0].tolist() == [
        0,
        1,
        2,
    ]


def test_long_ranges_are_made_in_blocks() -> None:
    text = "g ({0} a, {0} b, {0} c) => ({0}[n] y) {{ y = Range(a, b, c) }}"
    for kind, dtype in (("float", np.float32), ("int64", np.int64), ("int32", np.int32), ("double", np.float64)):
        for start, limit, delta in ((0, 40_000, 1), (7, 100_000, 3), (50_000, -20, -2)):
            feed = {n: np.array(v, dtype) for n, v in zip("abc", (start, limit, delta), strict=True)}
            found = session_of(text.format(kind)).run(None, feed)[0]
            np.testing.assert_array_equal(found, np.arange(start, limit, delta).astype(dtype))


def test_definitions_of_strings_are_traced_once_and_still_say_what_is_wrong() -> None:
    session = session_of("g (string[n] x, string[n] z) => (bool[n] y) { y = Equal(x, z) }")
    for left, right in ((["a", "b"], ["a", "c"]), (["q", "c"], ["q", "c"]), (["a"], ["b"]), ([], [])):
        feed = {"x": np.array(left, object), "z": np.array(right, object)}
        assert session.run(None, feed)[0].tolist() == [a == b for a, b in zip(left, right, strict=True)]
    session = session_of("g (string[n] x) => (float[n] y) { y = Cast <to = 1> (x) }")
    assert session.run(None, {"x": np.array(["1.5", "-2"], object)})[0].tolist() == [1.5, -2.0]
    for _ in range(2):
        with pytest.raises(IntarsiaError, match="word"):
            session.run(None, {"x": np.array(["1.5", "word"], object)})
    assert session.run(None, {"x": np.array(["3", "4"], object)})[0].tolist() == [3.0, 4.0]


SEQUENCE = [normal(2, 3), normal(2, 3), normal(4, 3)]


def separate(results: list[Any], *others: Any) -> bool:
    """Whether no two arrays of results, and none of them and of `others`, share memory."""
    mine, theirs = [[a for v in values for a in (v if isinstance(v, list) else [v])] for values in (results, others)]
    pairs = [(a, b) for i, a in enumerate(mine) for b in (*mine[i + 1 :], *theirs)]
    return not any(np.shares_memory(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("y = SequenceAt(s, i)", "float[a, b] y"),
        ("y = SequenceAt(s, i) z = SequenceAt(s, i)", "float[a, b] y, float[c, d] z"),
        ("y = SequenceErase(s, i)", "seq(float[a, b]) y"),
        ("y = Identity(s)", "seq(float[a, b]) y"),
        ("y = SequenceInsert(s, x)", "seq(float[a, b]) y"),
        ("y = SequenceConstruct(x, x)", "seq(float[a, b]) y"),
        ("y = SequenceConstruct(w, w)", "seq(float[a, b]) y"),
        ("y = SplitToSequence<axis = 1>(x, i)", "seq(float[a, b]) y"),
        ("y = SplitToSequence(x, i) z = SequenceAt(y, i)", "seq(float[a, b]) y, float[c, d] z"),
        ("e = Exp(x) y = SequenceConstruct(e, x) z = Identity(e)", "seq(float[a, b]) y, float[c, d] z"),
    ],
)
def test_results_of_host_operators_belong_to_the_caller(nodes: str, outputs: str) -> None:
    session = session_of(f"g (seq(float[m, k]) s, float[2, 3] x, int64 i) => ({outputs}) {{ {nodes} }}", {"w": normal(2, 3)})
    x, feed = normal(2, 3), {"s": SEQUENCE, "i": np.array(1)}
    for _ in range(3):
        results = session.run(None, {**feed, "x": x})
        assert separate(results, SEQUENCE[0], SEQUENCE[1], SEQUENCE[2], x)
        expected = [[a.copy() for a in (v if isinstance(v, list) else [v])] for v in results]
        for value in results:
            for array in value if isinstance(value, list) else [value]:
                assert array.flags.c_contiguous
                array[...] = 7
        again = session.run(None, {**feed, "x": x})
        for value, known in zip(again, expected, strict=True):
            for array, other in zip(value if isinstance(value, list) else [value], known, strict=True):
                np.testing.assert_array_equal(array, other)
        with_options = session.run(None, {**feed, "x": x}, ort.RunOptions())
        assert separate(with_options, *again)


def test_constants_of_bodies_belong_to_the_model() -> None:
    body = "{0} () => (seq(float[2]) {1}) {{ c = Constant<value = float[2] {{1, 2}}>() {1} = SequenceConstruct(c) }}"
    branches = f"then_branch = {body.format('t', 'yt')}, else_branch = {body.format('e', 'ye')}"
    session = session_of(f"g (bool c) => (seq(float[2]) y) {{ y = If<{branches}>(c) }}")
    for _ in range(3):
        (found,) = session.run(None, {"c": np.array(True)})
        assert found[0].tolist() == [1, 2]
        found[0][:] = 9


def test_native_steps_between_host_operators() -> None:
    session = session_of("""g (string[n, m] w, float[k] x) => (float[k, 1] y, bool[r] z, string[r] u)
        <int64[1] s = {-1}, int64[2] c = {-1, 1}, int64 i = {0}> {
        f = Reshape(w, s)  u = StringNormalizer <case_change_action = "LOWER"> (f)  z = Equal(u, f)
        e = Exp(x)  q = SequenceConstruct(e, x)  a = SequenceAt(q, i)  y = Reshape(a, c) }""")
    for words in ([["a", "B"], ["c", "D"]], [["X", "y"]], [["X", "y"]]):
        w, x = np.array(words, object), normal(4)
        y, z, u = session.run(None, {"w": w, "x": x})
        np.testing.assert_allclose(y, np.exp(x).reshape(-1, 1), rtol=1e-5)
        assert u.tolist() == [s.lower() for s in w.reshape(-1)]
        assert z.tolist() == [s == s.lower() for s in w.reshape(-1)]


def test_stopping_between_host_operators() -> None:
    session = session_of("g (seq(float[a]) s, int64 i) => (float[a] y) { t = SequenceErase(s, i) y = SequenceAt(t, i) }")
    feed = {"s": [normal(2), normal(2)], "i": np.array(0)}
    options = ort.RunOptions()
    np.testing.assert_array_equal(session.run(None, feed, options)[0], feed["s"][1])
    options.terminate = True
    with pytest.raises(IntarsiaError, match="terminate flag"):
        session.run(None, feed, options)


def test_an_error_of_a_host_operator_names_the_node() -> None:
    session = session_of("g (seq(float[a]) s, int64 i) => (float[a] y) { y = SequenceAt(s, i) }")
    for _ in range(2):
        with pytest.raises(InvalidGraph, match=r"SequenceAt.*position 5 is out of range for a sequence of 1 elements"):
            session.run(None, {"s": [normal(2)], "i": np.array(5)})
    session = session_of("g (seq(float[a]) s) => (float[a, b] y) { y = ConcatFromSequence <axis = 0, new_axis = 1> (s) }")
    with pytest.raises(InvalidGraph, match=r"elements of shapes \[2\], \[3\] cannot be stacked"):
        session.run(None, {"s": [normal(2), normal(3)]})


def test_definitions_are_traced_for_each_combination_of_shapes() -> None:
    session = session_of("g (seq(string[n]) s, int64 i, int64 j) => (bool[n] y) {"
                         " a = SequenceAt(s, i) b = SequenceAt(s, j) y = Equal(a, b) }")  # fmt: skip
    words = [np.array(list(text), object) for text in ("abc", "abd", "x", "y", "x", "")]
    for i, j in ((0, 1), (2, 3), (2, 4), (0, 2), (5, 5), (1, 0)):
        feed = {"s": words, "i": np.array(i), "j": np.array(j)}
        np.testing.assert_array_equal(session.run(None, feed)[0], words[i] == words[j])
    with pytest.raises(IntarsiaError, match="Equal"):
        session.run(None, {"s": words, "i": np.array(0), "j": np.array(5)})


@pytest.mark.parametrize("expression", ["ReduceMax <axes = [1]> (x)", "ReduceMax <axes = [0]> (x)", "ArgMax <axis = 1> (x)"])
def test_reductions_of_open_sizes_are_shared_by_what_they_read(expression: str) -> None:
    """A reduction has few results, but many elements to take in: sizes decide whether threads share it."""
    kind = "int64" if expression.startswith("ArgMax") else "float"
    session = session_of(f"g (float[n, m] x) => ({kind}[a, b] y) {{ y = {expression} }}")
    (program,) = session._model.programs  # type: ignore[union-attr]
    (step,) = [step for segment in program.executable.segments() for step in segment.steps]

    def is_serial(n: int, m: int) -> bool:
        found: bool = step.serial(lambda d: evaluate(d, {"n": n, "m": m}))
        return found

    assert is_serial(8, 16)
    assert not is_serial(512, 1024)
    x = normal(300, 500)
    numpy = {"ReduceMax <axes = [1]> (x)": x.max(1, keepdims=True), "ReduceMax <axes = [0]> (x)": x.max(0, keepdims=True)}
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], numpy.get(expression, x.argmax(1)[:, None]))
