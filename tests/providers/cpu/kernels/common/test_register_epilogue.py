"""Sums that micro-kernels finish in registers: which epilogues these are, and results beside float64's."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.register_epilogue import Ending, ending_of, takes_residuals
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.conv import pointwise_kernel
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec, Operand

SUMS, BIAS = (k.input(i, DType.FLOAT, (1,)) for i in range(2))
BOUNDS = {
    "none": (-math.inf, math.inf), "relu": (0.0, math.inf), "relu6": (0.0, 6.0), "above": (-math.inf, -0.5), "one": (1.0, 1.0),
}  # fmt: skip


def bounded(low: float, high: float, root: k.Tensor = SUMS + BIAS) -> Epilogue:
    root = k.maximum(root, low) if low > -math.inf else root
    root = k.minimum(high, root) if high < math.inf else root
    return Epilogue(root, ("column",), (DType.FLOAT,))


def tiles(dtype: DType) -> list[Tile]:
    basic = tile_of(dtype, t.host())
    found = {blocked_tile(n * basic.lanes, None, dtype, t.host()) for n in range(1, 17)}
    if basic.rows == 14:
        found.add(Tile(8, 3, basic.lanes // 2, basic.itemsize))
    return sorted(found, key=lambda tile: (tile.rows, tile.lanes))


def product(
    spec: GemmSpec, a: np.ndarray, b: np.ndarray, bias: np.ndarray, threads: int, residual: np.ndarray | None = None
) -> np.ndarray:
    assert spec.tile is not None
    (m, depth), n = a.shape, b.shape[1]
    packed, taps = pack_matrix(b, spec.tile), pointwise_kernel.row_taps(spec.dtype, t.host())
    c, whole = t.guarded((m, n), a.dtype.type)
    claims, operands = np.zeros(1, np.int64), [Operand(bias.ctypes.data)]
    if residual is not None:
        operands.append(Operand(residual.ctypes.data, residual.strides[0]))
    args = pointwise_kernel.rows_args(
        spec, t.host(), micro=t.address(stepped_micro_text(spec.dtype, t.host(), spec.tile)), a=a.ctypes.data,
        b=packed.ctypes.data, c=c.ctypes.data, m=m, n=n, k=depth, taps=taps.ctypes.data, claims=claims.ctypes.data,
        operands=operands, threads=threads,
    )  # fmt: skip
    t.run(pointwise_kernel.rows_text(spec, t.host()), args, threads)
    t.check_margin(whole)
    return c


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("depth", [3, 16, 20, 150, 300])
def test_products(name: str, depth: int) -> None:
    rng = np.random.default_rng(0)
    epilogue = bounded(*BOUNDS[name])
    assert ending_of(epilogue, DType.FLOAT, t.host()) == Ending(0, *BOUNDS[name])
    for m, n in ((1, 16), (49, 70), (200, 96), (333, 24)):
        a, b, bias = t.random(rng, m, depth), t.random(rng, depth, n), t.random(rng, n)
        expected = np.clip(a.astype(np.float64) @ b + bias, *BOUNDS[name])
        for tile in tiles(DType.FLOAT):
            for threads in (1, 2):
                found = product(GemmSpec(epilogue=epilogue, tile=tile, ends=True), a, b, bias, threads)
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("depth", [8, 20, 300])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
def test_residuals(name: str, depth: int, first: bool) -> None:
    """A tensor of C's shape is added where micro-kernels take it; elsewhere the kernel adds it."""
    rng = np.random.default_rng(0)
    full = k.input(2, DType.FLOAT, (1,))
    shifted = bounded(*BOUNDS[name], full + (SUMS + BIAS) if first else SUMS + BIAS + full)
    epilogue = Epilogue(shifted.root, ("column", "full"), (DType.FLOAT,) * 2)
    found = ending_of(epilogue, DType.FLOAT, t.host())
    assert found == (Ending(0, *BOUNDS[name], residual=1) if takes_residuals(t.host()) else None)
    for m, n in ((1, 16), (49, 70), (200, 96), (333, 24)):
        a, b, bias, more = t.random(rng, m, depth), t.random(rng, depth, n), t.random(rng, n), t.random(rng, m, n)
        expected = np.clip(a.astype(np.float64) @ b + bias + more, *BOUNDS[name])
        for tile in tiles(DType.FLOAT):
            for threads in (1, 2):
                c = product(GemmSpec(epilogue=epilogue, tile=tile, ends=True), a, b, bias, threads, more)
                np.testing.assert_allclose(c, expected, rtol=1e-4, atol=2e-4)


def test_products_of_double() -> None:
    rng = np.random.default_rng(0)
    sums, shift = (k.input(i, DType.DOUBLE, (1,)) for i in range(2))
    epilogue = Epilogue(k.maximum(k.minimum(shift + sums, 2.5), 0.25), ("column",), (DType.DOUBLE,))
    a, b, bias = (rng.standard_normal(s) for s in ((60, 40), (40, 48), (48,)))
    for tile in tiles(DType.DOUBLE):
        found = product(GemmSpec(DType.DOUBLE, epilogue=epilogue, tile=tile, ends=True), a, b, bias, 2)
        np.testing.assert_allclose(found, np.clip(a @ b + bias, 0.25, 2.5), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", BOUNDS)
def test_nan_stays(name: str) -> None:
    a, b, bias = np.ones((40, 8), np.float32), np.ones((8, 48), np.float32), np.zeros(48, np.float32)
    a[3], bias[7] = np.nan, np.nan
    for tile in tiles(DType.FLOAT):
        found = product(GemmSpec(epilogue=bounded(*BOUNDS[name]), tile=tile, ends=True), a, b, bias, 1)
        wanted = np.zeros((40, 48), bool)
        wanted[3], wanted[:, 7] = True, True
        np.testing.assert_array_equal(np.isnan(found), wanted)


@pytest.mark.parametrize(
    "epilogue",
    [
        None,
        Epilogue(k.maximum(SUMS, 0.0)),
        Epilogue(SUMS + BIAS, ("full",), (DType.FLOAT,)),
        Epilogue(SUMS + (BIAS + k.input(2, DType.FLOAT, (1,))), ("column", "full"), (DType.FLOAT,) * 2),
        Epilogue(k.maximum(SUMS + BIAS, 0.0) * 2.0, ("column",), (DType.FLOAT,)),
        Epilogue(k.maximum(SUMS, BIAS), ("column",), (DType.FLOAT,)),
        Epilogue(SUMS + SUMS),
        Epilogue(k.cast(SUMS + BIAS, DType.FLOAT16), ("column",), (DType.FLOAT,)),
        Epilogue(SUMS + k.cast(k.input(1, DType.FLOAT16, (1,)), DType.FLOAT), ("column",), (DType.FLOAT16,)),
        Epilogue(k.maximum(SUMS + BIAS, math.nan), ("column",), (DType.FLOAT,)),
        Epilogue(k.minimum(k.maximum(SUMS + BIAS, 3.0), 2.0), ("column",), (DType.FLOAT,)),
    ],
    ids="none,no bias,residual alone,operands first,scaled,bound by column,twice,cast,half bias,nan,empty range".split(","),
)
def test_what_is_left_to_the_kernel(epilogue: Epilogue | None) -> None:
    assert ending_of(epilogue, DType.FLOAT, t.host()) is None
