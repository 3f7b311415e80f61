"""Products by VPMADDUBSW whose order of weights proves that nothing saturates, and by words of 16 bits: every bit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv import implicit_gemm
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.matmul import gemm_arguments, gemm_kernel
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul_int8 import saturation_free_order, widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_tile
from intarsia.providers.cpu.kernels.matmul_int8.pack_int8 import pack_byte_pairs

TILE = Tile(4, 2, 8, 4)
here = pytest.mark.skipif(not widened_int16.takes(t.host()), reason="kernels are for AVX2 without VNNI")
SIZES = [(1, 4, 1), (2, 16, 5), (3, 33, 7), (5, 97, 18), (13, 31, 40), (14, 258, 67), (29, 130, 129)]


def weights(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """int8 weights: of the largest numbers, in all orders of signs, or some that are usual."""
    rng = np.random.default_rng(3)
    if kind == "normal":
        return np.clip(np.rint(rng.normal(0, 24, shape)), -128, 127).astype(np.int8)
    if kind == "small":
        return rng.integers(-16, 17, shape).astype(np.int8)
    choice = {"largest": [127], "least": [-128], "extreme": [-128, 127], "mixed": [-128, -64, 0, 1, 64, 127]}[kind]
    return rng.choice(np.array(choice, np.int8), shape)


KINDS = ["normal", "small", "largest", "least", "extreme", "mixed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "n"), [(4, 16), (7, 16), (64, 3), (258, 16)])
def test_what_meets_in_16_bits_fits(kind: str, k: int, n: int) -> None:
    """The rows are the weights, some of them in two parts, and neighbours together are at most 128 of either sign."""
    b = weights(kind, (2, k, n))
    found = saturation_free_order.ordered(b, 16)
    first = 0
    for values, count, twos in zip(b, found.counts[0], found.neighbours[0], strict=True):
        places, rows = found.places[first : first + count], found.rows[first : first + count].astype(np.int64)
        sums = np.zeros((k, 16), np.int64)
        for place, row in zip(places, rows, strict=True):
            sums[place : place + 4] += row
        np.testing.assert_array_equal(sums[:, :n], values)
        np.testing.assert_array_equal(sums[:, n:], 0)
        together = rows[:twos].reshape(-1, 2, 2, 2, 16)
        for sign in (1, -1):
            assert np.maximum(sign * rows, 0).reshape(-1, 2, 2, 16).sum(2).max(initial=0) <= 128
            assert np.maximum(sign * together, 0).sum((1, 3)).max(initial=0) <= 128
        first += count
    assert first == len(found.rows)


def test_which_weights() -> None:
    """Usual ones, of which few are near the largest; not those that would have to be cut in two."""
    assert saturation_free_order.pays(weights("normal", (1, 768, 64)), TILE)
    assert saturation_free_order.pays(weights("small", (3, 192, 64)), TILE)
    assert not saturation_free_order.pays(weights("extreme", (1, 768, 64)), TILE)
    assert not saturation_free_order.pays(weights("small", (1, 3, 64)), TILE), "less than a group"


def factor(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Random numbers, and rows of the largest and of the least, at the end of a page."""
    info = np.iinfo(dtype)
    a = np.random.default_rng(4).integers(info.min, info.max + 1, shape).astype(dtype)
    a[-1], a[0] = info.max, info.min
    a[shape[0] // 2] = np.where(np.arange(shape[1]) % 2, info.max, info.min)
    return t.at_page_end(a)


@here
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_ordered_products(m: int, k: int, n: int, kind: str, dtype: type) -> None:
    a, b = factor((m, k), dtype), weights(kind, (1, k, n))
    packed = saturation_free_order.pack_ordered(b, byte_tile(t.host()))
    micro = t.address(saturation_free_order.ordered_micro_text(DType.of(a.dtype), t.host(), byte_tile(t.host())))
    spec, taps = GemmSpec(SUMS), np.zeros(2, np.int64)
    c, whole = t.guarded((m, n), np.int32)
    args = gemm_arguments.matrix_args(
        spec, t.host(), micro=micro, a=a.ctypes.data, b=packed.ctypes.data, c=c.ctypes.data, m=m, n=n, k=k,
        taps=taps.ctypes.data, panel_nbytes=packed.shape[1],
    )  # fmt: skip
    t.run(gemm_kernel.kernel_text(spec, t.host()), args, 2)
    t.check_margin(whole)
    lift = 128 if dtype is np.int8 else 0
    np.testing.assert_array_equal(c, (a.astype(np.int64) + lift) @ b[0].astype(np.int64))


@here
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [*SIZES, (3, 1, 20), (7, 3, 8)])
def test_products_of_words(m: int, k: int, n: int, kind: str) -> None:
    rng, b = np.random.default_rng(5), weights(kind, (1, k, n))
    a = rng.integers(-255, 256, (m, k)).astype(np.int16)
    a[-1], a[0] = 255, -255
    tile = widened_int16.word_tile(t.host())
    spec, taps = GemmSpec(SUMS, tile=tile, stored=DType.INT8), np.zeros(1, np.int64)
    many = gemm_arguments.many_rows(m, tile)
    packed, micro = pack_byte_pairs(b, tile), t.address(widened_int16.word_micro_text(t.host(), tile, many))
    scratch = aligned_zeros((2 * gemm_arguments.scratch_nbytes(spec, t.host(), spec.steps(k)),), np.dtype(np.uint8))
    c, whole = t.guarded((m, n), np.int32)
    rows = np.zeros(m * k + 1, np.int16)  # a last word may have a number more
    rows[: m * k], rows[m * k] = a.reshape(-1), 32767
    args = gemm_arguments.matrix_args(
        spec, t.host(), micro=micro, a=rows.ctypes.data, b=packed.ctypes.data, c=c.ctypes.data, m=m, n=n, k=k,
        taps=taps.ctypes.data, scratch=scratch.ctypes.data,
    )  # fmt: skip
    t.run(gemm_kernel.kernel_text(spec, t.host()), args, 2)
    t.check_margin(whole)
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b[0].astype(np.int64))


@here
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("channels", "pads"), [(3, (1, 2, 0, 1)), (1, (0, 0, 0, 0)), (16, (1, 1, 1, 1)), (40, (0, 3, 0, 0))])
def test_an_image_is_widened(channels: int, pads: tuple[int, ...], dtype: type) -> None:
    shape = ConvShape(2, (5, 7), channels, 1, (1, 1), (1, 1), (1, 1), pads)
    x = factor((2 * 5 * 7, channels), dtype)
    zero = np.array([np.iinfo(dtype).min + 100], dtype)
    out, whole = t.guarded((2, *shape.padded, channels), np.int16)
    t.run(
        widened_int16.widen_text(DType.of(x.dtype), t.host()),
        widened_int16.widen_args(shape, x.ctypes.data, out.ctypes.data, zero.ctypes.data), 3,
    )  # fmt: skip
    t.check_margin(whole)
    wide = x.astype(np.int16).reshape(2, 5, 7, channels) - int(zero[0])
    np.testing.assert_array_equal(out, np.pad(wide, [(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)]))


def test_a_matrix_of_windows() -> None:
    """[taps, K, filters]: a line of the kernel is a tap where its pixels lie together."""
    w = np.arange(2 * 3 * 2 * 4, dtype=np.int8).reshape(2, 3, 2, 4)
    np.testing.assert_array_equal(implicit_gemm.byte_matrix(w, True)[1, :, 0].reshape(4, 3), w[0, :, 1].T)
    np.testing.assert_array_equal(implicit_gemm.byte_matrix(w, False)[5, :, 1], w[1, :, 1, 1])
