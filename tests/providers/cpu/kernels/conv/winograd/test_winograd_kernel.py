from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from intarsia.providers.cpu.kernels.conv.window_products import WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Threads

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t
from conv_reference import reference

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.conv import window_products
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import row_taps
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.conv.winograd import (
    bfloat16 as winograd_bfloat16,
)
from intarsia.providers.cpu.kernels.conv.winograd import (
    cost_model as winograd_cost,
)
from intarsia.providers.cpu.kernels.conv.winograd import (
    kernel as winograd_kernel,
)
from intarsia.providers.cpu.kernels.conv.winograd import spec as winograd_plan
from intarsia.providers.cpu.kernels.conv.winograd.spec import WinogradSpec


def square(
    batch: int, height: int, width: int, channels: int, filters: int, pads: tuple[int, int, int, int] = (1, 1, 1, 1)
) -> ConvShape:
    return ConvShape(batch, (height, width), channels, filters, (3, 3), (1, 1), (1, 1), pads)


SHAPES = [
    square(1, 7, 7, 16, 32),
    square(2, 9, 14, 20, 40),
    square(1, 1, 1, 3, 5),
    square(1, 28, 30, 33, 70),
    square(2, 12, 12, 16, 16, (0, 0, 0, 0)),
    square(1, 6, 5, 8, 33, (2, 0, 1, 3)),
    ConvShape(2, (11, 14), 20, 40, (3, 3), (1, 1), (2, 3), (2, 3, 2, 3)),
    ConvShape(1, (9, 8), 16, 33, (3, 3), (1, 1), (2, 2), (1, 0, 3, 5)),
    ConvShape(1, (5, 13), 16, 16, (3, 3), (1, 1), (6, 12), (6, 12, 6, 12)),
    ConvShape(2, (4, 9, 14), 16, 40, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    ConvShape(1, (5, 7, 6), 32, 33, (2, 3, 3), (2, 1, 1), (3, 2, 1), (2, 2, 0, 1, 1, 2)),
    ConvShape(1, (1, 8, 8), 48, 16, (5, 3, 3), (1, 1, 1), (1, 1, 1), (2, 1, 1, 2, 1, 1)),
    ConvShape(1, (7, 9), 48, 48, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    ConvShape(2, (14, 13), 40, 72, (3, 3), (1, 1), (1, 2), (1, 2, 1, 2), 2),
    ConvShape(1, (5, 6), 21 * 16, 21 * 17, (3, 3), (1, 1), (1, 1), (1, 0, 1, 1), 21),
]


def convolve(
    s: ConvShape, x: np.ndarray, w: np.ndarray, spec: WinogradSpec, nthreads: int, planned: int,
    target: Target | None = None, **more: object,
) -> np.ndarray:  # fmt: skip
    target = target or t.host()
    tile, taps = winograd_plan.winograd_tile(spec, t.host()), row_taps(DType.FLOAT, t.host())
    if spec.pairs:
        text, packed = winograd_bfloat16.micro_text(t.host(), tile), winograd_bfloat16.pack_weights(w, tile, in_pairs)
    else:
        text, packed = stepped_micro_text(DType.FLOAT, t.host(), tile), winograd_plan.pack_weights(w, spec, tile, s.group)
    micro = t.address(text)
    scratch = aligned_zeros((nthreads * winograd_plan.scratch_nbytes(spec, target, s, planned) + 64,), np.uint8)
    scratch[-64:] = 55
    y, whole = t.guarded((s.batch, *s.output, s.filters))
    claims = np.zeros(1, np.int64)
    places = x.ctypes.data, y.ctypes.data, packed.ctypes.data
    data = WindowOperands(*places, micro=micro, taps=taps.ctypes.data, **more)  # type: ignore[arg-type]
    args = winograd_plan.winograd_args(spec, target, s, data, Threads(planned, claims.ctypes.data, scratch.ctypes.data))
    kernel_text = (winograd_bfloat16 if spec.pairs else winograd_kernel).kernel_text
    t.run(kernel_text(spec, t.host()), args, nthreads)
    assert claims[0] == 0, "the count of claims is left for the next run"
    t.check_margin(whole)
    assert (scratch[-64:] == 55).all()
    return y


@pytest.mark.parametrize("nthreads", [2, 3])
def test_blocks_are_claimed(nthreads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache so small that a block is a few tiles."""
    monkeypatch.setattr(winograd_plan, "_SCRATCH_NBYTES", 1 << 18)
    monkeypatch.setattr(winograd_plan, "_L2_NBYTES", 1 << 16)
    winograd_plan._layout.cache_clear()
    try:
        s, rng = square(1, 40, 61, 16, 32), np.random.default_rng(5)
        x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels, *s.kernel)
        np.testing.assert_allclose(convolve(s, x, w, WinogradSpec(4), nthreads, nthreads), reference(x, w, s), atol=1e-3)
    finally:
        winograd_plan._layout.cache_clear()


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_winograd(s: ConvShape, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels // s.group, *s.kernel)
    expected = reference(x, w, s)
    for nthreads in t.THREADS:
        for planned in (1, nthreads):
            for columns in (None, 16 * 3, 16 * 2):
                tile = columns and blocked_tile(columns, None, DType.FLOAT, t.host())
                y = convolve(s, x, w, WinogradSpec(outputs, tile=tile or None), nthreads, planned)
                np.testing.assert_allclose(y, expected, atol=1e-3 if outputs == 4 else 1e-4)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_epilogue(s: ConvShape, outputs: int, heavy: bool) -> None:
    rng = np.random.default_rng(1)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels // s.group, *s.kernel)
    w *= np.float32(0.1)
    bias, residual, factor = t.random(rng, s.filters), t.random(rng, s.batch, *s.output, s.filters), t.random(rng, 1)
    a, b, r, f = (lang.input(i, DType.FLOAT, ()) for i in range(4))
    kinds = ("column", "full", "scalar")
    root = (a + b + r) * f
    expected = (reference(x, w, s) + bias + residual) * factor
    if heavy:
        root, expected = lang.tanh(root) + lang.exp(root), np.tanh(expected) + np.exp(expected)
    spec = WinogradSpec(outputs, Epilogue(root, kinds, (DType.FLOAT,) * 3))
    operands = [
        window_products.conv_operand(kind, DType.FLOAT, array.ctypes.data, s, t.host())
        for kind, array in zip(kinds, (bias, residual, factor), strict=True)
    ]
    np.testing.assert_allclose(convolve(s, x, w, spec, 2, 2, operands=operands), expected, rtol=1e-3, atol=1e-3)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="outputs of a Winograd tile are 2 or 4; got 3"):
        WinogradSpec(3)
    row = Epilogue(lang.input(0, DType.FLOAT, ()) + lang.input(1, DType.FLOAT, ()), ("row",), (DType.FLOAT,))
    with pytest.raises(ValueError, match="takes operands of kind column, full or scalar; got 'row'"):
        WinogradSpec(4, row)


def test_where_it_applies() -> None:
    assert winograd_cost.is_applicable(SHAPES[0])
    assert not winograd_cost.is_applicable(ConvShape(1, (7, 7), 8, 8, (3, 3), (2, 2), (1, 1), (1,) * 4))
    assert not winograd_cost.is_applicable(replace(square(1, 7, 7, 8, 8), group=2)), "few channels of a group"
    assert winograd_cost.is_applicable(replace(square(1, 7, 7, 32, 32), group=2))
    assert not winograd_cost.is_applicable(replace(SHAPES[9], group=2))


@pytest.mark.parametrize(
    ("size", "channels", "filters", "outputs"),
    [
        (56, 64, 64, 4), (28, 128, 128, 4), (14, 256, 256, 2), (7, 512, 512, None), (7, 160, 320, None), (224, 3, 64, None),
        (224, 64, 64, 4), (112, 32, 64, 4),
    ],
)  # fmt: skip
def test_choice_as_measured(size: int, channels: int, filters: int, outputs: int | None) -> None:
    assert winograd_cost.prefers_winograd(square(1, size, size, channels, filters)) == outputs


@pytest.mark.parametrize(
    ("size", "channels", "filters", "outputs"),
    [
        (56, 64, 64, 4), (14, 256, 256, 2), (16, 256, 256, 4), (16, 512, 512, 4), (7, 512, 512, None),
        (224, 3, 64, None), (112, 3, 64, None), (112, 32, 64, 4),
    ],
)  # fmt: skip
def test_choice_with_a_small_second_level_cache(size: int, channels: int, filters: int, outputs: int | None) -> None:
    assert winograd_cost.prefers_winograd(square(1, size, size, channels, filters), 16, 1 << 20) == outputs


def test_blocks_fit_a_small_second_level_cache() -> None:
    """Weights of 2.25 MiB: few large blocks where they stream slowly, blocks of 1.5 MiB where the third level is near."""
    host = t.host()
    s, spec = square(1, 112, 112, 128, 128), WinogradSpec(4, tile=blocked_tile(128, None, DType.FLOAT, host))
    large, small = (winograd_plan.scratch_nbytes(spec, replace(host, l2_nbytes=n << 20), s, 1) for n in (2, 1))
    assert small <= 2 << 20 < large
    few = square(1, 28, 28, 128, 128)
    assert winograd_plan.scratch_nbytes(spec, replace(host, l2_nbytes=1 << 20), few, 1) > 1 << 20, (
        "one block: weights are read once"
    )


@pytest.mark.parametrize("l2_nbytes", [1 << 14, 1 << 20, 2 << 20])
def test_any_second_level_cache(l2_nbytes: int) -> None:
    s, rng = square(1, 30, 41, 80, 96), np.random.default_rng(7)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels, *s.kernel)
    target = replace(t.host(), l2_nbytes=l2_nbytes)
    np.testing.assert_allclose(convolve(s, x, w, WinogradSpec(4), 2, 2, target=target), reference(x, w, s), atol=1e-3)


def test_no_choice_where_it_does_not_apply() -> None:
    assert winograd_cost.prefers_winograd(ConvShape(1, (56, 56), 64, 64, (3, 3), (2, 2), (1, 1), (1,) * 4)) is None


def test_choice_knows_what_lies_outside() -> None:
    """A window much wider than the image is mostly border, which direct sums leave out and Winograd does not."""
    narrow, wide = (ConvShape(1, (32, 32), 512, 128, (3, 3), (1, 1), (d, d), (d,) * 4) for d in (1, 18))
    assert winograd_cost.prefers_winograd(narrow) == 4
    assert winograd_cost.prefers_winograd(wide) is None


def in_pairs(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers.astype(ml_dtypes.bfloat16).view(np.uint16))


def rounded(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def small_filtering(x: np.ndarray, w: np.ndarray, s: ConvShape) -> np.ndarray:
    """F(2x2, 3x3) of one phase, its factors rounded to bfloat16 and the rest in float64 (matrices: Lavin and Gray, 4.1)."""
    bt = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    at = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)
    (height, width), (top, left, bottom, right) = s.output, s.pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom + height % 2), (left, right + width % 2), (0, 0)))
    filters = rounded(np.einsum("ia,mcab,jb->ijcm", g, w.astype(np.float64), g))
    y = np.zeros((s.batch, height + 1, width + 1, s.filters))
    for i in range(0, height, 2):
        for j in range(0, width, 2):
            tile = rounded(np.einsum("ia,nabc,jb->nijc", bt, padded[:, i : i + 4, j : j + 4], bt))
            y[:, i : i + 2, j : j + 2] = np.einsum("ia,nabm,jb->nijm", at, np.einsum("nabc,abcm->nabm", tile, filters), at)
    return y[:, :height, :width]


@pytest.mark.skipif(not t.host().has_pairs, reason="this CPU does not multiply pairs of bfloat16")
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("s", [s for s in SHAPES if s.channels % 2 == 0 and s.dilations == (1, 1) and s.group == 1], ids=str)
def test_products_of_pairs(s: ConvShape, nthreads: int) -> None:
    rng = np.random.default_rng(7)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels, *s.kernel)
    exact = small_filtering(x, w, s)
    found = convolve(s, x, w, WinogradSpec(2, pairs=True), nthreads, nthreads)
    # An intermediate sum may be rounded to the neighbouring bfloat16 where float32 and float64 are on different sides.
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 3e-4


@pytest.mark.skipif(not t.host().has_pairs, reason="this CPU does not multiply pairs of bfloat16")
def test_dilated_products_of_pairs() -> None:
    s, rng = ConvShape(2, (11, 14), 20, 40, (3, 3), (1, 1), (2, 3), (2, 3, 2, 3)), np.random.default_rng(8)
    x, w = t.random(rng, s.batch, *s.spatial, s.channels), t.random(rng, s.filters, s.channels, *s.kernel)
    exact = reference(x, w, s)
    found = convolve(s, x, w, WinogradSpec(2, pairs=True), 2, 2)
    assert np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()) < 6e-3


def test_when_pairs_are_preferred() -> None:
    """Where products are most of the time; not of few channels, of words that are not whole, or in volumes."""
    small_l2 = 1 << 20
    assert winograd_cost.prefers_pairs(square(1, 14, 14, 256, 256), 16, small_l2)
    assert winograd_cost.prefers_pairs(square(1, 28, 28, 128, 128), 16, small_l2)
    assert not winograd_cost.prefers_pairs(square(1, 56, 56, 17, 64), 16, small_l2)
    assert not winograd_cost.prefers_pairs(SHAPES[11], 16, small_l2)
    assert not winograd_cost.prefers_pairs(replace(square(1, 28, 28, 256, 256), group=2), 16, small_l2)
