from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common import pack_b
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand, matrix_args

SIZES = [
    (1, 1, 1),
    (1, 37, 64),
    (2, 16, 5),
    (3, 33, 7),
    (5, 96, 17),
    (13, 31, 40),
    (14, 32, 64),
    (15, 64, 3),
    (29, 50, 129),
    (64, 100, 70),
]


def product(spec: GemmSpec, a: np.ndarray, b: np.ndarray, c: np.ndarray, nthreads: int = 1, **more: object) -> None:
    """C = A B for [M, K], [K, N] of any layout that the spec names."""
    (m, k), n = a.shape, b.shape[1]
    source = {
        "packed": lambda: pack_matrix(b, t.tile(spec.dtype)),
        "rows": lambda: b,
        "columns": lambda: t.at_page_end(b.T),
    }
    memory = source[spec.b_layout]()
    scratch = aligned_zeros((nthreads, max(1, gemm_arguments.scratch_nbytes(spec, t.host(), k))), np.uint8)
    args = matrix_args(
        spec, t.host(), micro=t.micro(spec.dtype), a=a.ctypes.data, b=memory.ctypes.data, c=c.ctypes.data, m=m, n=n, k=k,
        taps=t.ZERO_TAP.ctypes.data, scratch=scratch.ctypes.data, **more,
    )  # fmt: skip
    t.run(gemm_kernel.kernel_text(spec, t.host()), args, nthreads)


@pytest.mark.parametrize("layout", gemm_arguments.B_LAYOUTS)
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_product(m: int, n: int, k: int, dtype: DType, layout: str) -> None:
    rng = np.random.default_rng(m * n + k)
    a, b = t.random(rng, m, k, dtype=dtype.numpy), t.random(rng, k, n, dtype=dtype.numpy)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for nthreads in t.THREADS:
        c, whole = t.guarded((m, n), dtype.numpy)
        product(GemmSpec(dtype, layout), a, b, c, nthreads)
        np.testing.assert_allclose(c, expected, rtol=0, atol=(1e-5 if dtype is DType.FLOAT else 1e-13) * (k + 1) ** 0.5)
        t.check_margin(whole)


@pytest.mark.parametrize("m", range(1, 31))
def test_every_number_of_rows(m: int) -> None:
    rng = np.random.default_rng(m)
    a, b = t.random(rng, m, 9), t.random(rng, 9, 48)
    c, whole = t.guarded((m, 48))
    product(GemmSpec(), a, b, c, 2)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-4)
    t.check_margin(whole)


@pytest.mark.parametrize("m", [1, 2])
def test_weights_that_no_second_level_cache_holds(m: int) -> None:
    """Few rows have a way of their own for others."""
    rng = np.random.default_rng(m)
    target = replace(t.host(), l2_nbytes=1 << 12)
    a, b = t.random(rng, m, 70), t.random(rng, 70, 100)
    c, whole = t.guarded((m, 100))
    memory, spec = pack_matrix(b, t.tile()), GemmSpec()
    places = {"a": a.ctypes.data, "b": memory.ctypes.data, "c": c.ctypes.data, "taps": t.ZERO_TAP.ctypes.data}
    args = matrix_args(spec, target, micro=t.micro(), m=m, n=100, k=70, **places)
    t.run(gemm_kernel.kernel_text(spec, target), args, 2)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-4)
    t.check_margin(whole)


@pytest.mark.parametrize("nthreads", t.THREADS)
def test_chunks_of_a(nthreads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_arguments, "A_RESIDENT_NBYTES", 4 * 40 * 33)
    rng = np.random.default_rng(0)
    a, b = t.random(rng, 200, 40), t.random(rng, 40, 100)
    c, _ = t.guarded((200, 100))
    product(GemmSpec(), a, b, c, nthreads)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 40, 8), (17, 75, 20), (30, 64, 33)])
@pytest.mark.parametrize("layout", gemm_arguments.B_LAYOUTS)
def test_every_kind_of_epilogue_operand(m: int, n: int, k: int, layout: str) -> None:
    rng = np.random.default_rng(1)
    a, b = t.random(rng, m, k), t.random(rng, k, n)
    column, row, full, scalar = t.random(rng, n), t.random(rng, m), t.random(rng, m, n), t.random(rng, 1)
    c, whole = t.guarded((m, n), np.float16)
    operands = [
        Operand(column.ctypes.data), Operand(row.ctypes.data, 4), Operand(full.ctypes.data, 4 * n), Operand(scalar.ctypes.data)
    ]  # fmt: skip
    product(GemmSpec(DType.FLOAT, layout, t.every_kind()), a, b, c, 3, operands=operands)
    expected = t.every_kind_numpy(a.astype(np.float64) @ b, column, row[:, None], full, float(scalar[0]))
    np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-2)
    t.check_margin(whole)


def test_batches_broadcast_and_strided_matrices() -> None:
    """[2, 3, 5, 7] x [3, 7, 20] with A as columns of a wider array and C inside another."""
    rng = np.random.default_rng(2)
    wide, b = t.random(rng, 2, 5, 3, 7), t.random(rng, 3, 7, 20)
    c = np.full((2, 3, 5, 24), 77, np.float32)
    memory = pack_matrix(b, t.tile())
    args = matrix_args(
        GemmSpec(), t.host(), micro=t.micro(), a=wide.ctypes.data, b=memory.ctypes.data, c=c[..., 2:].ctypes.data, m=5, n=20,
        k=7, lda=wide.strides[1], ldc=c.strides[2], batch=(2, 3), a_batch=(wide.strides[0], wide.strides[2]),
        b_batch=(0, memory.strides[0]), c_batch=c.strides[:2], taps=t.ZERO_TAP.ctypes.data,
    )  # fmt: skip
    t.run(gemm_kernel.kernel_text(GemmSpec(), t.host()), args, 5)
    np.testing.assert_allclose(c[..., 2:22], wide.transpose(0, 2, 1, 3).astype(np.float64) @ b, atol=1e-5)
    assert (c[..., :2] == 77).all()
    assert (c[..., 22:] == 77).all()


def test_residual_may_be_the_output() -> None:
    """C = C + A B, in place."""
    from intarsia.primitives import lang
    from intarsia.providers.cpu.kernels.common.epilogue import Epilogue

    rng = np.random.default_rng(3)
    a, b, c = t.random(rng, 31, 12), t.random(rng, 12, 45), t.random(rng, 31, 45)
    expected = c + a.astype(np.float64) @ b
    x, r = (lang.input(i, DType.FLOAT, ()) for i in range(2))
    spec = GemmSpec(epilogue=Epilogue(x + r, ("full",), (DType.FLOAT,)))
    product(spec, a, b, c, 2, operands=[Operand(c.ctypes.data, c.strides[0])])
    np.testing.assert_allclose(c, expected, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (17, 40), (32, 64), (50, 33), (7, 100)])
def test_packing_as_a_step_equals_packing_in_numpy(k: int, n: int, dtype: DType, transposed: bool) -> None:
    rng = np.random.default_rng(4)
    b = t.random(rng, 3, k, n, dtype=dtype.numpy)
    expected = pack_matrix(b, t.tile(dtype))
    source = t.at_page_end(b.swapaxes(1, 2)) if transposed else b
    for nthreads in t.THREADS:
        out = aligned_zeros(expected.shape, dtype.numpy)
        args = [source.ctypes.data, source.strides[1], out.ctypes.data, k, n, 3, source.strides[0]]
        t.run(pack_b.pack_text(pack_b.PackSpec(dtype, transposed), t.host()), args, nthreads)
        marks = pack_matrix(np.broadcast_to(np.arange(1, n + 1), (3, k, n)).astype(dtype.numpy), t.tile(dtype)) > 0
        np.testing.assert_array_equal(out[marks], expected[marks])


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match="b_layout is one of packed, rows, columns, blocks; got 'diagonal'"):
        GemmSpec(b_layout="diagonal")


@pytest.mark.parametrize("layout", gemm_arguments.B_LAYOUTS)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 3), (5, 0, 3), (0, 0, 0), (17, 40, 0)])
def test_empty(m: int, n: int, k: int, layout: str) -> None:
    c, whole = t.guarded((m, n))
    product(GemmSpec(b_layout=layout), np.zeros((m, k), np.float32), np.zeros((k, n), np.float32), c, 2)
    assert not c.any()
    t.check_margin(whole)


def test_blocks_need_a_format() -> None:
    with pytest.raises(ValueError, match="b_layout 'blocks' goes with a format of blocks; got 'blocks' and None"):
        GemmSpec(DType.FLOAT, "blocks")
