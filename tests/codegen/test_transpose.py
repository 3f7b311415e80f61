from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen import transpose
from intarsia.codegen.transpose import Moved
from intarsia.graph.dims import symbol

CASES = [
    ((33, 50), (1, 0)), ((3, 70), (1, 0)), ((70, 3), (1, 0)), ((1, 1), (1, 0)), ((2, 9, 40), (0, 2, 1)), ((3, 5, 7), (2, 0, 1)),
    ((3, 5, 7), (2, 1, 0)), ((2, 3, 4, 20, 17), (0, 3, 1, 4, 2)), ((2, 3, 2, 3, 20), (4, 3, 2, 1, 0)), ((0, 5), (1, 0)),
    ((130, 260), (1, 0)),
]  # fmt: skip


def how_of(rank: int, perm: tuple[int, ...]) -> Moved:
    """What holds whatever the sizes are (no axis is known to be of size 1)."""
    how = transpose.moved([symbol(f"s{i}") for i in range(rank)], perm)
    assert how is not None
    return how


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize(("shape", "perm"), CASES, ids=str)
def test_against_numpy(shape: tuple[int, ...], perm: tuple[int, ...], kind: str, threads: int) -> None:
    x = np.random.default_rng(0).integers(0, np.iinfo(kind).max, shape, np.dtype(kind))
    y, whole = t.guarded(tuple(shape[p] for p in perm), np.dtype(kind).type)
    itemsize = x.dtype.itemsize
    args = transpose.transpose_args(t.host(), itemsize, shape, perm, how_of(len(perm), perm), x=x.ctypes.data, y=y.ctypes.data)
    t.run(transpose.kernel_text(itemsize, t.host()), args, threads)
    t.check_margin(whole)
    np.testing.assert_array_equal(y, x.transpose(perm))


def test_axes_are_merged() -> None:
    n = symbol("n")
    assert transpose.moved((n, 64, 56, 56), (0, 2, 3, 1)) == Moved((1,), (2, 3), ((0,),))
    assert transpose.moved((1, 56, 56, 64), (0, 3, 1, 2)) == Moved((1, 2), (3,), ())
    assert transpose.moved((2, 1, 30, 1, 40), (0, 4, 1, 3, 2)) == Moved((2,), (4,), ((0,),))


def test_what_it_leaves_to_loops() -> None:
    assert transpose.moved((n := symbol("n"), 12, 128, 64), (0, 2, 1, 3)) is None
    assert transpose.moved((n, 30, 1), (0, 2, 1)) is None
    assert transpose.moved((1, 1), (1, 0)) is None
    assert transpose.moved(tuple(symbol(f"s{i}") for i in range(8)), (7, 5, 3, 1, 6, 4, 2, 0)) is None


def test_itemsize_is_checked() -> None:
    with pytest.raises(ValueError, match=r"itemsize is one of 1, 2, 4, 8; got 16"):
        transpose.kernel_text(16, t.host())
