"""Programs of one unit or none: views, constants, copies, inputs that a kernel does not read, and host operators alone."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import check, normal, session_of

import intarsia as ort
from intarsia.errors import IntarsiaError, InvalidArgument, InvalidGraph


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
        with pytest.raises(InvalidArgument, match=r"cannot be reshaped|must equal"):
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
