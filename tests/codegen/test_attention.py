from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen import attention, attention_plan, pack
from intarsia.codegen.attention_plan import AttentionShape, AttentionSpec, Heads, attention_args
from intarsia.graph.dtypes import DType

TAPS = np.array(attention_plan.taps(t.host()), np.int64)
PLAIN = AttentionSpec()
# batch, heads, kv heads, queries, keys, head size, head size of V
SIZES = [
    (1, 1, 1, 1, 1, 1, 1), (1, 2, 2, 3, 5, 8, 8), (2, 3, 3, 17, 33, 16, 16), (1, 4, 2, 29, 31, 20, 37),
    (1, 2, 1, 64, 64, 64, 64),
    (2, 6, 3, 1, 130, 64, 64), (1, 3, 1, 2, 70, 33, 48), (1, 2, 2, 40, 15, 5, 3), (1, 1, 1, 31, 1100, 16, 24),
    (1, 2, 1, 150, 700, 12, 70), (1, 4, 2, 3, 1100, 20, 16), (2, 6, 2, 1, 600, 24, 24), (1, 1, 1, 5, 600, 40, 8),
]  # fmt: skip


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, bias: object = 0.0, softcap: float = 0.0
) -> np.ndarray:
    """softmax(scale q k^T + bias) v in float64; rows of -infinity become zeros."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    scores = scores + bias
    highest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def heads(x: np.ndarray) -> Heads:
    return Heads(x.ctypes.data, *(s if n > 1 else 0 for n, s in zip(x.shape[:3], x.strides, strict=False)))


def operands(size: tuple[int, ...], joined: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K and V [batch, heads, rows, size]; `joined`: views of [batch, rows, heads, size]."""
    batch, many, few, queries, keys, width, vwidth = size
    rng = np.random.default_rng(sum(size))
    shapes = ((many, queries, width), (few, keys, width), (few, keys, vwidth))
    if joined:
        q, k, v = (t.random(rng, batch, s, h, d).transpose(0, 2, 1, 3) for h, s, d in shapes)
    else:
        q, k, v = (t.random(rng, batch, h, s, d) for h, s, d in shapes)
    return q, k, v


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, spec: AttentionSpec = PLAIN, *, nthreads: int = 1,
    joined: bool = False, mask: np.ndarray | None = None, scale: float = 0.3, **more: object,
) -> np.ndarray:  # fmt: skip
    """The kernel's result, its scratch filled with NaN before, the memory around the output checked."""
    batch, many, queries, width = q.shape
    shape = AttentionShape(batch, many, k.shape[1], queries, k.shape[2], width, v.shape[3])
    laid = (batch, queries, many, v.shape[3]) if joined else (batch, many, queries, v.shape[3])
    memory, whole = t.guarded(laid)
    out = memory.transpose(0, 2, 1, 3) if joined else memory
    scratch = pack.aligned_zeros((attention_plan.scratch_nbytes(shape, t.host(), nthreads) + 64,), np.uint8)
    scratch[:] = 0xFF
    args = attention_args(
        spec, t.host(), shape, nthreads, micro=t.micro(), pack=t.address(attention.pack_text(t.host())), q=heads(q), k=heads(k),
        v=heads(v), out=heads(out), mask=None if mask is None else heads(mask), scale=scale, taps=TAPS.ctypes.data,
        scratch=scratch.ctypes.data, **more,
    )  # fmt: skip
    t.run(attention.kernel_text(spec, t.host()), args, nthreads)
    t.check_margin(whole)
    assert (scratch[-64:] == 0xFF).all(), "written behind the scratch"
    return out


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention(size: tuple[int, ...], joined: bool) -> None:
    q, k, v = operands(size, joined)
    for nthreads in t.THREADS:
        close(attend(q, k, v, nthreads=nthreads, joined=joined), reference(q, k, v, 0.3))


@pytest.mark.parametrize("size", SIZES)
def test_causal_with_offset(size: tuple[int, ...]) -> None:
    q, k, v = operands(size)
    queries, keys = size[3:5]
    for offset in (0, max(0, keys - queries), -2):
        seen = np.arange(keys) <= np.arange(queries)[:, None] + offset
        expected = reference(q, k, v, 0.3, np.where(seen, 0, -np.inf))
        for nthreads in (1, 3):
            close(attend(q, k, v, AttentionSpec(bounded=True), nthreads=nthreads, offset=offset, right=0), expected)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 2), (40, 0), (600, 1)])
@pytest.mark.parametrize("size", SIZES[2:])
def test_windows(size: tuple[int, ...], left: int, right: int) -> None:
    q, k, v = operands(size)
    distance = np.arange(size[4]) - np.arange(size[3])[:, None] - 5
    bias = np.where((distance >= -left) & (distance <= right), 0, -np.inf)
    out = attend(q, k, v, AttentionSpec(bounded=True), offset=5, left=left, right=right, nthreads=2)
    close(out, reference(q, k, v, 0.3, bias))


@pytest.mark.parametrize("full", [(1, 1, 1), (1, 0, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)])
@pytest.mark.parametrize("size", SIZES)
def test_masks_broadcast(size: tuple[int, ...], full: tuple[int, int, int]) -> None:
    q, k, v = operands(size)
    batch, many, _, queries, keys, _, _ = size
    rng = np.random.default_rng(3)
    shape = tuple(n if whole else 1 for n, whole in zip((batch, many, queries), full, strict=True))
    added = t.random(rng, *shape, keys)
    close(attend(q, k, v, AttentionSpec("float"), mask=added, nthreads=2), reference(q, k, v, 0.3, added))
    seen = rng.random((*shape, keys)) < 0.6
    close(attend(q, k, v, AttentionSpec("bool"), mask=seen, nthreads=3), reference(q, k, v, 0.3, np.where(seen, 0, -np.inf)))


@pytest.mark.parametrize("lowest", [-np.inf, -1e9, float(np.finfo(np.float32).min)])
def test_rows_without_keys(lowest: float) -> None:
    """Scores that are all -infinity give zeros, all equally low ones the mean."""
    q, k, v = operands((1, 2, 2, 9, 40, 16, 16))
    added = np.full((1, 1, 9, 40), lowest, np.float32)
    added[0, 0, 4] = 0
    out = attend(q, k, v, AttentionSpec("float"), mask=added)
    close(out[:, :, 4], reference(q, k, v, 0.3)[:, :, 4])
    hidden = np.zeros_like(out[:, :, 0]) if np.isneginf(lowest) else v.mean(2)
    np.testing.assert_allclose(out[:, :, 0], hidden, atol=2e-2 if lowest == -1e9 else 1e-6)
    assert np.isnan(attend(q * -np.inf, np.abs(k), v)).all()


def test_a_hidden_block_of_keys_leaves_nothing() -> None:
    q, k, v = operands((1, 1, 1, 20, 1500, 16, 16))
    for lowest in (-np.inf, float(np.finfo(np.float32).min)):
        added = np.zeros((1, 1, 1, 1500), np.float32)
        added[..., :700] = lowest
        close(attend(q, k, v, AttentionSpec("float"), mask=added), reference(q, k, v, 0.3, added.astype(np.float64)))


def test_nan_stays_in_its_row() -> None:
    q, k, v = operands((1, 1, 1, 20, 600, 16, 16))
    q[0, 0, 3, 5] = np.nan
    out = attend(q, k, v)
    assert np.isnan(out[0, 0, 3]).all()
    assert np.isfinite(np.delete(out, 3, 2)).all()


@pytest.mark.parametrize("scale", [-0.5, 0.0, 4.0])
def test_scale_and_soft_cap(scale: float) -> None:
    q, k, v = operands((1, 2, 1, 30, 50, 24, 24))
    close(attend(q, k, v, scale=scale), reference(q, k, v, scale))
    expected = reference(q, k, v, scale, softcap=2.5)
    close(attend(q, k, v, AttentionSpec(softcap=True), scale=scale, softcap=2.5), expected)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("trailing", [False, True])
def test_numbers_of_keys(dtype: DType, trailing: bool) -> None:
    q, k, v = operands((3, 4, 2, 5, 40, 16, 16))
    lengths = np.array([39, 6, 20], dtype.numpy)
    count = lengths.astype(int)[:, None, None, None] + 1
    place, row = np.arange(40), np.arange(5)[:, None]
    seen = (place < count) & (place <= row + (count - 5 if trailing else 2))
    spec = AttentionSpec(bounded=True, lengths=dtype, trailing=trailing)
    out = attend(q, k, v, spec, lengths=lengths.ctypes.data, more=1, right=0, offset=2, nthreads=3)
    close(out, reference(q, k, v, 0.3, np.where(seen, 0, -np.inf)))


def test_heads_as_rows_of_one_query() -> None:
    """Heads that share keys may be given as rows at one position (`step` 0)."""
    q, k, v = operands((2, 6, 2, 1, 50, 16, 16))
    rows = q.reshape(2, 2, 3, 16)
    out = attend(rows, k, v, AttentionSpec(bounded=True), offset=20, step=0, right=0)
    close(out.reshape(2, 6, 1, 16), reference(q, k, v, 0.3, np.where(np.arange(50) <= 20, 0, -np.inf)))


def test_operands_at_the_end_of_memory_are_not_read_beyond() -> None:
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


def test_torch_agrees() -> None:
    torch = pytest.importorskip("torch", reason="an independent implementation")
    q, k, v = operands((2, 3, 3, 45, 45, 64, 64))
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True, scale=0.3)
    close(attend(q, k, v, AttentionSpec(bounded=True), right=0), expected.numpy())


def test_kernels_are_the_same_text_each_time() -> None:
    first = attention.kernel_text(AttentionSpec("bool", bounded=True), t.host())
    attention.kernel_text.cache_clear()
    assert attention.kernel_text(AttentionSpec("bool", bounded=True), t.host()) == first
