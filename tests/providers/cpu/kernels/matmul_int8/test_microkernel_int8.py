from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.llvm.jit import get_engine
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, matrix_args
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS, last_group
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_micro_text, byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import (
    BytePackSpec,
    byte_pack_args,
    byte_pack_text,
    byte_packed_nbytes,
    pack_bytes,
)

SIZES = [
    (1, 1, 1),
    (1, 37, 64),
    (2, 16, 5),
    (3, 33, 7),
    (5, 96, 18),
    (13, 31, 40),
    (14, 32, 67),
    (15, 64, 3),
    (29, 50, 129),
    (64, 100, 70),
]


def random_bytes(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    values.reshape(-1)[:2] = info.min, info.max
    return t.at_page_end(values)


def product(a: np.ndarray, packed: np.ndarray, n: int, nthreads: int) -> np.ndarray:
    m, k = a.shape
    c, whole = t.guarded((m, n), np.int32)
    taps = np.array([0, last_group(k)], np.int64)
    spec = GemmSpec(SUMS)
    text = byte_micro_text(DType.of(a.dtype), t.host())
    micro = get_engine(t.host()).load([text])[text.symbol]
    args = matrix_args(
        spec,
        t.host(),
        micro=micro,
        a=a.ctypes.data,
        b=packed.ctypes.data,
        c=c.ctypes.data,
        m=m,
        n=n,
        k=k,
        taps=taps.ctypes.data,
    )
    t.run(gemm_kernel.kernel_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    return c


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sums_are_exact(m: int, n: int, k: int, dtype: type) -> None:
    rng = np.random.default_rng(m * n + k)
    a, b = random_bytes(rng, (m, max(k, 2)), np.dtype(dtype))[:, :k], random_bytes(rng, (max(k, 2), n), np.dtype(np.int8))[:k]
    a = t.at_page_end(np.ascontiguousarray(a))
    packed = pack_bytes(b[None], byte_tile(t.host()))
    offset = 128 if dtype is np.int8 else 0
    expected = (a.astype(np.int64) + offset) @ b.astype(np.int64)
    for nthreads in t.THREADS:
        np.testing.assert_array_equal(product(a, packed, n, nthreads), expected)


@pytest.mark.parametrize("m", range(1, 16))
def test_every_number_of_rows_at_the_ends_of_the_range(m: int) -> None:
    """All factors as large as they get: what saturates anywhere on the way shows."""
    for value in (-128, 127):
        a, b = np.full((m, 258), 255, np.uint8), np.full((258, 20), value, np.int8)
        packed = pack_bytes(b[None], byte_tile(t.host()))
        np.testing.assert_array_equal(product(a, packed, 20, 1), np.full((m, 20), 258 * 255 * value))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("k", "n"), [(1, 2), (4, 16), (7, 33), (64, 64), (18, 100)])
def test_packing_at_run_time(k: int, n: int, dtype: type) -> None:
    rng = np.random.default_rng(k * n)
    tile = byte_tile(t.host())
    b = random_bytes(rng, (3, k, n), np.dtype(dtype))
    signed = (b.astype(np.int16) - (128 if dtype is np.uint8 else 0)).astype(np.int8)
    expected = pack_bytes(signed[:, None], tile)
    for nthreads in t.THREADS:
        packed = aligned_zeros((3, byte_packed_nbytes(k, n, tile) // 4), np.dtype(np.int32))
        packed += 77
        sums, whole = t.guarded((3, n), np.int32)
        args = byte_pack_args(b.ctypes.data, n, packed.ctypes.data, sums.ctypes.data, k, n, 3, k * n)
        t.run(byte_pack_text(BytePackSpec(DType.of(b.dtype)), t.host()), args, nthreads)
        np.testing.assert_array_equal(packed, expected)
        np.testing.assert_array_equal(sums, signed.sum(1, dtype=np.int32))
        t.check_margin(whole)


def test_only_packed_b_is_taken() -> None:
    with pytest.raises(ValueError, match="products of bytes need a packed B; got b_layout 'rows'"):
        GemmSpec(SUMS, "rows")
