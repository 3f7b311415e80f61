"""Det by its kernel: sizes, exchanged rows, singular matrices, and matrices that are not square."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import kinds, normal, session_of

from intarsia.errors import InvalidArgument


@pytest.mark.parametrize(("kind", "dtype", "rtol"), [("float", "float32", 2e-4), ("double", "float64", 1e-10)])
def test_sizes(kind: str, dtype: str, rtol: float) -> None:
    session = session_of(f"g ({kind}[b, n, n] x) => ({kind}[b] y) {{ y = Det(x) }}")
    assert list(kinds(session).values()) == ["compiled"]
    for n in (1, 2, 3, 7, 16, 17, 40):
        x = normal(9, n, n).astype(dtype)
        exact = np.linalg.det(x.astype(np.float64))
        np.testing.assert_allclose(session.run(None, {"x": x})[0], exact, rtol=rtol, atol=rtol * np.abs(exact).max())


def test_exact_cases() -> None:
    session = session_of("g (float[b, n, n] x) => (float[b] y) { y = Det(x) }")
    x = np.array([[[0, 1], [1, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 3]], [[2, 0], [0, 3]]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [-1, 0, 0, 6])
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((3, 0, 0), np.float32)})[0], [1, 1, 1])


def test_one_matrix_without_batch_axes() -> None:
    session = session_of("g (float[3, 3] x) => (float y) { y = Det(x) }")
    (y,) = session.run(None, {"x": np.diag([1, 2, 3]).astype(np.float32)})
    assert (y.shape, y) == ((), 6)


def test_matrices_that_are_not_square() -> None:
    session = session_of("g (float[m, n] x) => (float y) { y = Det(x) }")
    with pytest.raises(InvalidArgument, match="Det"):
        session.run(None, {"x": normal(3, 4)})


INVERSES = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft": 1]>'


@pytest.mark.parametrize(
    ("kind", "dtype", "rtol"), [("float", "float32", 1e-4), ("double", "float64", 1e-11), ("float16", "float16", 4e-3)]
)
def test_inverses(kind: str, dtype: str, rtol: float) -> None:
    session = session_of(f"g ({kind}[b, n, n] x) => ({kind}[b, n, n] y) {{ y = com.microsoft.Inverse(x) }}", header=INVERSES)
    assert "host" not in kinds(session).values()
    for n in (0, 1, 2, 3, 7, 16, 17, 40):
        x = (normal(9, n, n) + 3 * np.eye(n)[:, ::-1]).astype(dtype)  # every pivot is found in another row
        exact = np.linalg.inv(x.astype(np.float64))
        (y,) = session.run(None, {"x": x})
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        spread = np.linalg.cond(x.astype(np.float64)).max(initial=1) if n else 1
        np.testing.assert_allclose(
            y.astype(np.float64), exact, rtol=0, atol=rtol * max(1, spread / 50) * np.abs(exact).max(initial=0)
        )


def test_inverses_without_batch_axes_and_of_permutations() -> None:
    session = session_of("g (float[4, 4] x) => (float[4, 4] y) { y = com.microsoft.Inverse(x) }", header=INVERSES)
    x = np.eye(4, dtype=np.float32)[[2, 0, 3, 1]] * 2
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.T / 4)


def test_singular_and_oblong_matrices() -> None:
    session = session_of("g (float[b, m, n] x) => (float[b, m, n] y) { y = com.microsoft.Inverse(x) }", header=INVERSES)
    with pytest.raises(InvalidArgument, match="a matrix of X cannot be inverted: it is singular"):
        session.run(None, {"x": np.array([[[1, 2], [2, 4]]], np.float32)})
    with pytest.raises(InvalidArgument, match="must equal"):
        session.run(None, {"x": normal(1, 3, 4)})
