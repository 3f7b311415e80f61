"""Reductions in front of the last axis, of which several rows are taken at once, and vectors times matrices, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import normal, session_of

SHAPES = [(2, 7, 33), (3, 4, 5), (1, 130, 6), (2, 3, 1025), (2, 1, 9), (40, 6, 5000)]
VECTORS = {
    "bij,bi->bj": ((3, 7, 5), (3, 7)), "bij,bj->bi": ((3, 7, 5), (3, 5)), "bi,bij->bj": ((3, 7), (3, 7, 5)),
    "bj,bij->bi": ((3, 5), (3, 7, 5)), "ij,i->j": ((40, 30), (40,)), "i,ij->j": ((40,), (40, 30)), "ij,j->i": ((40, 30), (30,)),
    "i,i->": ((9,), (9,)), "bijk,bij->bk": ((2, 3, 4, 5), (2, 3, 4)), "bijk,bk->bij": ((2, 3, 4, 5), (2, 5)),
    "jbi,ib->bj": ((5, 3, 7), (7, 3)), "ib,jbi->jb": ((7, 3), (5, 3, 7)),
}  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_reduced(shape: tuple[int, ...], axis: int, is_open: bool) -> None:
    given = "n, m, k" if is_open else ", ".join(map(str, shape))
    session = session_of(
        f"""g (float[{given}] x) => (float[a, b, c] s, float[d, e, f] m, float[g, h, i] q) {{
            s = ReduceMean <axes = [{axis}]> (x) m = ReduceMax <axes = [{axis}]> (x) q = ReduceSumSquare <axes = [{axis}]> (x)
        }}"""
    )
    x = normal(*shape)
    exact = x.astype(np.float64)
    mean, largest, squares = session.run(None, {"x": x})
    np.testing.assert_allclose(mean, exact.mean(axis, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(largest, x.max(axis, keepdims=True))
    np.testing.assert_allclose(squares, (exact**2).sum(axis, keepdims=True), rtol=1e-5)
    x[0, 0, 2] = x[-1, -1, 4] = np.nan
    np.testing.assert_array_equal(session.run(None, {"x": x})[1], x.max(axis, keepdims=True))


@pytest.mark.parametrize("equation", VECTORS)
def test_einsum_of_vectors(equation: str) -> None:
    a, b = VECTORS[equation]
    out = ", ".join("pqrs"[i] for i in range(len(equation.split("->")[1])))
    session = session_of(
        f"g (float[{', '.join(map(str, a))}] x, float[{', '.join(map(str, b))}] v) => (float[{out}] y) "
        f'{{ y = Einsum <equation = "{equation}"> (x, v) }}'
    )
    x, v = normal(*a), normal(*b)
    expected = np.einsum(equation, x.astype(np.float64), v.astype(np.float64))
    np.testing.assert_allclose(session.run(None, {"x": x, "v": v})[0], expected, rtol=1e-4, atol=1e-5)
