from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import attention_kernels
import template_kernels as t
from attention_kernels import operands, reference

from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.attention import few_queries_kernel, many_queries_kernel
from intarsia.providers.cpu.kernels.attention.attention_arguments import AttentionSpec

# batch, heads, kv heads, queries, keys, head size, head size of V
SIZES = [
    (1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 3, 5, 8, 8), (2, 3, 3, 17, 33, 16, 16), (1, 4, 2, 29, 31, 20, 37),
    (1, 2, 1, 64, 64, 64, 64),
    (2, 6, 3, 1, 130, 64, 64), (1, 3, 1, 2, 70, 33, 48), (1, 2, 2, 40, 15, 5, 3), (1, 1, 1, 31, 1100, 16, 24),
    (1, 2, 1, 150, 700, 12, 70), (1, 4, 2, 3, 1100, 20, 16), (2, 6, 2, 1, 600, 24, 24), (1, 1, 1, 5, 600, 40, 8),
    (1, 1, 1, 104, 129, 64, 64), (1, 2, 2, 53, 140, 64, 32), (1, 1, 1, 8, 257, 20, 32),
]  # fmt: skip


Attend = Callable[..., np.ndarray]


@pytest.fixture(params=["rows", "lanes"])
def attend(request: pytest.FixtureRequest) -> Attend:
    """Both kernels, whatever the number of queries."""
    return functools.partial(attention_kernels.attend, kernel=request.param)


def close(actual: np.ndarray, expected: np.ndarray, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=atol)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention(attend: Attend, size: tuple[int, ...], joined: bool) -> None:
    q, k, v = operands(size, joined)
    for nthreads in t.THREADS:
        close(attend(q, k, v, nthreads=nthreads, joined=joined), reference(q, k, v, 0.3))


@pytest.mark.parametrize("size", SIZES)
def test_causal_with_offset(attend: Attend, size: tuple[int, ...]) -> None:
    q, k, v = operands(size)
    queries, keys = size[3:5]
    for offset in (0, max(0, keys - queries), -2):
        seen = np.arange(keys) <= np.arange(queries)[:, None] + offset
        expected = reference(q, k, v, 0.3, np.where(seen, 0, -np.inf))
        for nthreads in (1, 3):
            close(attend(q, k, v, AttentionSpec(bounded=True), nthreads=nthreads, offset=offset, right=0), expected)


# As above, with heads of an even number, a vector of float32 at least; odd numbers of keys, heads of V of any size.
PAIRED = [
    (1, 1, 1, 1, 1, 16, 1), (2, 3, 3, 17, 33, 16, 16), (1, 4, 2, 29, 31, 20, 37), (1, 2, 2, 64, 64, 64, 64),
    (1, 2, 1, 150, 701, 18, 70), (1, 2, 1, 97, 65, 80, 80),
]  # fmt: skip


def as_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.skipif(not t.host().has_pairs, reason="this CPU has no products of pairs of bfloat16 in vectors")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", PAIRED)
def test_pairs_of_bfloat16(size: tuple[int, ...], causal: bool) -> None:
    """Operands are rounded to bfloat16 beforehand, so that scaled keys and powers are what is rounded besides."""
    q, k, v = map(as_bfloat16, operands(size))
    seen = np.arange(size[4]) <= np.arange(size[3])[:, None] + 3 if causal else np.ones((size[3], size[4]), bool)
    expected = reference(q, k, v, 0.3, np.where(seen, 0, -np.inf))
    bound = reference(q, k, np.abs(v), 0.3, np.where(seen, 0, -np.inf)) * 2**-6 + 1e-6
    more = {"offset": 3, "right": 0} if causal else {}
    for nthreads in (1, 3):
        out = attention_kernels.attend(
            q, k, v, AttentionSpec(bounded=causal, pairs=True), nthreads=nthreads, kernel="lanes", **more
        )
        assert (np.abs(out - expected) <= bound).all(), np.abs((out - expected) / bound).max()


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 2), (40, 0), (600, 1)])
@pytest.mark.parametrize("size", SIZES[2:])
def test_windows(attend: Attend, size: tuple[int, ...], left: int, right: int) -> None:
    q, k, v = operands(size)
    distance = np.arange(size[4]) - np.arange(size[3])[:, None] - 5
    bias = np.where((distance >= -left) & (distance <= right), 0, -np.inf)
    out = attend(q, k, v, AttentionSpec(bounded=True), offset=5, left=left, right=right, nthreads=2)
    close(out, reference(q, k, v, 0.3, bias))


@pytest.mark.parametrize("full", [(1, 1, 1), (1, 0, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)])
@pytest.mark.parametrize("size", SIZES)
def test_masks_broadcast(attend: Attend, size: tuple[int, ...], full: tuple[int, int, int]) -> None:
    q, k, v = operands(size)
    batch, many, _, queries, keys, _, _ = size
    rng = np.random.default_rng(3)
    shape = tuple(n if whole else 1 for n, whole in zip((batch, many, queries), full, strict=True))
    added = t.random(rng, *shape, keys)
    close(attend(q, k, v, AttentionSpec("float"), mask=added, nthreads=2), reference(q, k, v, 0.3, added))
    seen = rng.random((*shape, keys)) < 0.6
    close(attend(q, k, v, AttentionSpec("bool"), mask=seen, nthreads=3), reference(q, k, v, 0.3, np.where(seen, 0, -np.inf)))


@pytest.mark.parametrize("lowest", [-np.inf, -1e9, float(np.finfo(np.float32).min)])
def test_rows_without_keys(attend: Attend, lowest: float) -> None:
    """Scores that are all -infinity give zeros, all equally low ones the mean."""
    q, k, v = operands((1, 2, 2, 9, 40, 16, 16))
    added = np.full((1, 1, 9, 40), lowest, np.float32)
    added[0, 0, 4] = 0
    out = attend(q, k, v, AttentionSpec("float"), mask=added)
    close(out[:, :, 4], reference(q, k, v, 0.3)[:, :, 4])
    hidden = np.zeros_like(out[:, :, 0]) if np.isneginf(lowest) else v.mean(2)
    np.testing.assert_allclose(out[:, :, 0], hidden, atol=2e-2 if lowest == -1e9 else 1e-6)
    assert np.isnan(attend(q * -np.inf, np.abs(k), v)).all()


def test_a_hidden_block_of_keys_leaves_nothing(attend: Attend) -> None:
    q, k, v = operands((1, 1, 1, 20, 1500, 16, 16))
    for lowest in (-np.inf, float(np.finfo(np.float32).min)):
        added = np.zeros((1, 1, 1, 1500), np.float32)
        added[..., :700] = lowest
        close(attend(q, k, v, AttentionSpec("float"), mask=added), reference(q, k, v, 0.3, added.astype(np.float64)))


def test_nan_stays_in_its_row(attend: Attend) -> None:
    q, k, v = operands((1, 1, 1, 20, 600, 16, 16))
    q[0, 0, 3, 5] = np.nan
    out = attend(q, k, v)
    assert np.isnan(out[0, 0, 3]).all()
    assert np.isfinite(np.delete(out, 3, 2)).all()


@pytest.mark.parametrize("scale", [-0.5, 0.0, 4.0])
def test_scale_and_soft_cap(attend: Attend, scale: float) -> None:
    q, k, v = operands((1, 2, 1, 30, 50, 24, 24))
    close(attend(q, k, v, scale=scale), reference(q, k, v, scale), atol=2e-6 * max(1, scale))
    expected = reference(q, k, v, scale, softcap=2.5)
    close(attend(q, k, v, AttentionSpec(softcap=True), scale=scale, softcap=2.5), expected)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("trailing", [False, True])
def test_numbers_of_keys(attend: Attend, dtype: DType, trailing: bool) -> None:
    q, k, v = operands((3, 4, 2, 5, 40, 16, 16))
    lengths = np.array([39, 6, 20], dtype.numpy)
    count = lengths.astype(int)[:, None, None, None] + 1
    place, row = np.arange(40), np.arange(5)[:, None]
    seen = (place < count) & (place <= row + (count - 5 if trailing else 2))
    spec = AttentionSpec(bounded=True, lengths=dtype, trailing=trailing)
    out = attend(q, k, v, spec, lengths=lengths, more=1, right=0, offset=2, nthreads=3)
    close(out, reference(q, k, v, 0.3, np.where(seen, 0, -np.inf)))


def test_heads_as_rows_of_one_query() -> None:
    """Heads that share keys may be given as rows at one position (`step` 0)."""
    q, k, v = operands((2, 6, 2, 1, 50, 16, 16))
    rows = q.reshape(2, 2, 3, 16)
    out = attention_kernels.attend(rows, k, v, AttentionSpec(bounded=True), offset=20, step=0, right=0)
    close(out.reshape(2, 6, 1, 16), reference(q, k, v, 0.3, np.where(np.arange(50) <= 20, 0, -np.inf)))


def test_operands_at_the_end_of_memory_are_not_read_beyond(attend: Attend) -> None:
    """Operands that end with their page, before one that cannot be read."""
    mmap = pytest.importorskip("mmap", reason="needs pages")
    ctypes = pytest.importorskip("ctypes")
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mprotect"):
        pytest.skip("no mprotect on this system")

    def at_end(x: np.ndarray) -> np.ndarray:
        page = mmap.PAGESIZE
        pages = -(-x.nbytes // page)
        area = mmap.mmap(-1, (pages + 1) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        assert libc.mprotect(ctypes.c_void_p(start + pages * page), page, 0) == 0
        keep.append(area)
        out = np.frombuffer(area, x.dtype, x.size, pages * page - x.nbytes).reshape(x.shape)
        out[...] = x
        return out

    keep: list[object] = []
    for size in SIZES:
        q, k, v = (at_end(x) for x in operands(size))
        added = at_end(np.zeros((1, 1, size[3], size[4]), np.float32))
        seen = at_end(np.ones((1, 1, size[3], size[4]), bool))
        expected = reference(q, k, v, 0.3)
        close(attend(q, k, v, AttentionSpec("float"), mask=added), expected)
        close(attend(q, k, v, AttentionSpec("bool"), mask=seen), expected)


def test_torch_agrees(attend: Attend) -> None:
    torch = pytest.importorskip("torch", reason="an independent implementation")
    q, k, v = operands((2, 3, 3, 45, 45, 64, 64))
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True, scale=0.3)
    close(attend(q, k, v, AttentionSpec(bounded=True), right=0), expected.numpy())


@pytest.mark.parametrize("queries", [1, 15, 16, 17, 47, 48, 49, 100])
def test_one_key(attend: Attend, queries: int) -> None:
    q, k, v = operands((1, 2, 1, queries, 1, 16, 20))
    close(attend(q, k, v, nthreads=2), np.broadcast_to(v, (1, 2, queries, 20)))


def test_scores_that_rise_and_fall(attend: Attend) -> None:
    """Later keys of far higher scores, some queries' only: what was summed before them counts for nothing."""
    q, k, v = operands((1, 1, 1, 50, 400, 16, 24))
    k = k * np.linspace(0.01, 40, 400, dtype=np.float32)[:, None]
    k[0, 0, 200:] *= -0.5
    close(attend(q, k, v), reference(q, k, v, 0.3))


@pytest.mark.parametrize("size", [3e3, 3e5, 3e9])
@pytest.mark.parametrize("queries", [20, 50])
def test_scores_that_no_float_divides(attend: Attend, queries: int, size: float) -> None:
    """Above 2^22 scores in units of log2(e) are whole numbers themselves; keys that are equal share their power."""
    q, k, v = operands((1, 1, 1, queries, 200, 16, 24))
    q, k = np.ones_like(q) * np.float32(size), np.sign(k)
    k[0, 0, ::3], k[0, 0, 150:] = 1, 1
    close(attend(q, k, v, scale=1.0), reference(q, k, v, 1.0))
    close(attend(-q, k, v, scale=1.0), reference(-q, k, v, 1.0))


def test_infinite_scores(attend: Attend) -> None:
    """A query with an infinite score is NaN, as the definition's difference of infinities; others are not touched."""
    q, k, v = operands((1, 1, 1, 20, 300, 16, 16))
    q[0, 0, 3], k[0, 0, :, 0] = 0, np.abs(k[0, 0, :, 0])
    q[0, 0, 3, 0] = np.inf
    out = attend(q, k, v)
    assert np.isnan(out[0, 0, 3]).all()
    close(np.delete(out, 3, 2), reference(np.delete(q, 3, 2), k, v, 0.3))


def test_sizes_that_are_no_whole_vectors(attend: Attend) -> None:
    for size in ((1, 1, 1, 33, 19, 3, 1), (1, 1, 1, 20, 200, 17, 33), (2, 2, 1, 51, 129, 80, 72), (1, 1, 1, 95, 64, 40, 96)):
        q, k, v = operands(size)
        close(attend(q, k, v, nthreads=3), reference(q, k, v, 0.3))


@pytest.mark.parametrize("module", [few_queries_kernel, many_queries_kernel])
def test_kernels_are_the_same_text_each_time(module: object) -> None:
    first = module.kernel_text(AttentionSpec("bool", bounded=True), t.host())
    module.kernel_text.cache_clear()
    assert module.kernel_text(AttentionSpec("bool", bounded=True), t.host()) == first
