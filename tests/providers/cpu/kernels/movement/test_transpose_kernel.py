from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dims import symbol
from intarsia.providers.cpu.kernels.movement import interleave_kernel, transpose_kernel
from intarsia.providers.cpu.kernels.movement.transpose_kernel import Moved

CASES = [
    ((33, 50), (1, 0)), ((3, 70), (1, 0)), ((70, 3), (1, 0)), ((1, 1), (1, 0)), ((2, 9, 40), (0, 2, 1)), ((3, 5, 7), (2, 0, 1)),
    ((3, 5, 7), (2, 1, 0)), ((2, 3, 4, 20, 17), (0, 3, 1, 4, 2)), ((2, 3, 2, 3, 20), (4, 3, 2, 1, 0)), ((0, 5), (1, 0)),
    ((130, 260), (1, 0)),
]  # fmt: skip


def how_of(rank: int, perm: tuple[int, ...]) -> Moved:
    """What holds whatever the sizes are (no axis is known to be of size 1)."""
    how = transpose_kernel.moved([symbol(f"s{i}") for i in range(rank)], perm)
    assert how is not None
    return how


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize(("shape", "perm"), CASES, ids=str)
def test_against_numpy(shape: tuple[int, ...], perm: tuple[int, ...], kind: str, threads: int) -> None:
    x = np.random.default_rng(0).integers(0, np.iinfo(kind).max, shape, np.dtype(kind))
    y, whole = t.guarded(tuple(shape[p] for p in perm), np.dtype(kind).type)
    itemsize = x.dtype.itemsize
    args = transpose_kernel.transpose_args(
        t.host(), itemsize, shape, perm, how_of(len(perm), perm), x=x.ctypes.data, y=y.ctypes.data
    )
    t.run(transpose_kernel.kernel_text(itemsize, t.host()), args, threads)
    t.check_margin(whole)
    np.testing.assert_array_equal(y, x.transpose(perm))


FEW_CASES = [
    ((3, 5000), (1, 0)), ((5000, 3), (1, 0)), ((4, 3, 300), (0, 2, 1)), ((50, 2, 70), (0, 2, 1)), ((50, 70, 2), (0, 2, 1)),
    ((2, 4, 67), (0, 2, 1)), ((2, 3, 100), (2, 0, 1)), ((100, 2, 3), (1, 2, 0)), ((2, 3, 5, 2, 70), (2, 1, 0, 4, 3)),
    ((2, 3, 5, 70, 2), (2, 1, 0, 4, 3)), ((0, 2, 64), (0, 2, 1)), ((7, 8, 64), (0, 2, 1)), ((1000, 7), (1, 0)),
    ((5, 6, 131), (0, 2, 1)), ((2, 2049), (1, 0)), ((8200, 4), (1, 0)), ((1, 3, 1, 64), (0, 3, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize(("shape", "perm"), FEW_CASES, ids=str)
def test_few_rows_against_numpy(shape: tuple[int, ...], perm: tuple[int, ...], kind: str, threads: int) -> None:
    x = np.random.default_rng(0).integers(0, np.iinfo(kind).max, shape, np.dtype(kind))
    y, whole = t.guarded(tuple(shape[p] for p in perm), np.dtype(kind).type)
    how = transpose_kernel.moved(shape, perm)
    assert how is not None
    spec = interleave_kernel.interleave(shape, perm, how, x.dtype.itemsize)
    assert spec is not None
    args = interleave_kernel.interleave_args(spec, shape, perm, how, x=x.ctypes.data, y=y.ctypes.data)
    t.run(interleave_kernel.kernel_text(spec, t.host()), args, threads)
    t.check_margin(whole)
    np.testing.assert_array_equal(y, x.transpose(perm))


@pytest.mark.parametrize(
    ("shape", "perm", "wanted"),
    [
        ((1, 3, 224, 224), (0, 2, 3, 1), interleave_kernel.Interleave(3, 4, True)),
        ((1, 224, 224, 3), (0, 3, 1, 2), interleave_kernel.Interleave(3, 4, False)),
        ((784, 2, 58), (0, 2, 1), interleave_kernel.Interleave(2, 4, True)),
        ((784, 58, 2), (0, 2, 1), interleave_kernel.Interleave(2, 4, False)),
        ((16, 9, 500), (0, 2, 1), None),  # squares do
        ((3, 40, 500), (2, 1, 0), None),  # what is between
        ((500, 3, 7), (0, 2, 1), None),  # short rows
    ],
)
def test_which_have_few_rows(
    shape: tuple[int, ...], perm: tuple[int, ...], wanted: interleave_kernel.Interleave | None
) -> None:
    how = transpose_kernel.moved(shape, perm)
    assert how is not None
    assert interleave_kernel.interleave(shape, perm, how, 4) == wanted


def test_axes_are_merged() -> None:
    n = symbol("n")
    assert transpose_kernel.moved((n, 64, 56, 56), (0, 2, 3, 1)) == Moved((1,), (2, 3), ((0,),))
    assert transpose_kernel.moved((1, 56, 56, 64), (0, 3, 1, 2)) == Moved((1, 2), (3,), ())
    assert transpose_kernel.moved((2, 1, 30, 1, 40), (0, 4, 1, 3, 2)) == Moved((2,), (4,), ((0,),))


def test_what_it_leaves_to_loops() -> None:
    assert transpose_kernel.moved((n := symbol("n"), 12, 128, 64), (0, 2, 1, 3)) is None
    assert transpose_kernel.moved((n, 30, 1), (0, 2, 1)) is None
    assert transpose_kernel.moved((1, 1), (1, 0)) is None
    assert transpose_kernel.moved(tuple(symbol(f"s{i}") for i in range(8)), (7, 5, 3, 1, 6, 4, 2, 0)) is None


def test_itemsize_is_checked() -> None:
    with pytest.raises(ValueError, match=r"itemsize is one of 1, 2, 4, 8; got 16"):
        transpose_kernel.kernel_text(16, t.host())
