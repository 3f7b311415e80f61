"""Attention through cuDNN: what its call says of masks, lengths, groups of heads and caches, computed by an imitation.

Compared with float64 NumPy, or with what the operators' definitions give without a library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library_cuts import Offered, close, computed, drawn

from intarsia.codegen.clike import Cut
from intarsia.codegen.clike.mask_bands import band_of
from intarsia.codegen.clike.value_ranges import range_of
from intarsia.codegen.clike.vendor_libraries import select_calls
from intarsia.codegen.clike.vendor_libraries.calls import Attention
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.nn import attention
from intarsia.primitives import lang as k

sdpa = flat(attention.attention)  # with inputs and attributes by name
F, H, B = DType.FLOAT, DType.FLOAT16, DType.BFLOAT16


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest attention goes to a library, if it can."""
    monkeypatch.setattr(select_calls, "LEAST_FLOP", 0)


@given(
    st.sampled_from([H, B]), st.integers(1, 2), st.integers(1, 3), st.tuples(st.integers(2, 6), st.integers(2, 6)),
    st.tuples(st.sampled_from([8, 16]), st.sampled_from([8, 16])), st.booleans(), st.integers(0, 1 << 16),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_attention(
    dtype: DType, batch: int, heads: int, lengths: tuple[int, int], sizes: tuple[int, int], split: bool, seed: int
) -> None:
    shapes = {"q": (lengths[0], sizes[0]), "k": (lengths[1], sizes[0]), "v": (lengths[1], sizes[1])}
    arrays, leaves, wide = {}, [], []
    for i, (name, (length, size)) in enumerate(shapes.items()):
        a = drawn((batch, length, heads, size) if split else (batch, heads, length, size), dtype, seed + i)
        arrays[name] = a
        leaf = k.input(name, dtype, a.shape)
        leaves.append(k.transpose(leaf, (0, 2, 1, 3)) if split else leaf)
        wide.append((a.transpose(0, 2, 1, 3) if split else a).astype(np.float64))
    result, _ = attention.attend(*leaves, attention.Scores(scale=0.3))
    root = attention.merge_heads(k.cast(result, dtype))
    found, jobs = computed(root, arrays, Offered())
    scores = 0.3 * wide[0] @ wide[1].swapaxes(2, 3)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True)) @ wide[2]
    assert "attention" in [job.schedule for job in jobs]
    close(found, expected.transpose(0, 2, 1, 3).reshape(found.shape), dtype)


def masked_attention(arrays: Mapping[str, np.ndarray], scale: float, bias: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """In float64, heads of q in groups; rows that nothing is allowed for are zeros."""
    q, key, v = (arrays[n].astype(np.float64) for n in "qkv")
    key, v = (np.repeat(t, q.shape[1] // key.shape[1], 1) for t in (key, v))
    scores = np.where(allowed, scale * (q @ key.swapaxes(2, 3)) + bias, -np.inf)
    highest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(highest), 0, highest))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def attention_of(arrays: Mapping[str, np.ndarray], **attributes: object) -> k.Tensor:
    """ONNX's Attention of q, k, v, and of what else there is: a mask, lengths."""
    leaves = {n: k.input(n, DType.of(a.dtype), a.shape) for n, a in arrays.items()}
    more = [leaves.get(n) for n in ("mask", "past_key", "past_value", "nonpad")]
    result = sdpa(leaves["q"], leaves["k"], leaves["v"], *more, scale=0.3, node=Node(1), **attributes)
    assert result[0] is not None
    return result[0]


@dataclasses.dataclass
class Node:
    outputs: int


def heads_of(dtype: DType, batch: int, heads: int, groups: int, queries: int, keys: int, seed: int) -> dict[str, np.ndarray]:
    shapes = {"q": (batch, heads, queries, 8), "k": (batch, groups, keys, 8), "v": (batch, groups, keys, 16)}
    return {n: drawn(s, dtype, seed + i) for i, (n, s) in enumerate(shapes.items())}


def calls_of(jobs: list[Any]) -> list[Any]:
    return [job.kernel.call for job in jobs if job.kernel.call is not None]


@given(
    st.sampled_from([H, B]), st.integers(1, 2), st.sampled_from([(1, 1), (4, 2), (3, 1), (2, 2)]), st.integers(1, 6),
    st.integers(1, 9), st.sampled_from(["none", "bool", "bias"]), st.tuples(*[st.booleans()] * 3), st.booleans(),
    st.integers(-1, 4), st.integers(-1, 3), st.booleans(), st.integers(0, 1 << 16),
)  # fmt: skip
@settings(max_examples=250, deadline=None)
def test_attention_with_masks(
    dtype: DType, batch: int, grouping: tuple[int, int], queries: int, keys: int, mask: str, spread: tuple[bool, bool, bool],
    causal: bool, left: int, right: int, lengths: bool, seed: int,
) -> None:  # fmt: skip
    """Bias, masks of any broadcast shape, bands and lengths together, heads in groups; rows without any allowed key too."""
    draw = np.random.default_rng(seed)
    arrays = heads_of(dtype, batch, *grouping, queries, keys, seed)
    shape = tuple(1 if one else n for one, n in zip(spread, (batch, grouping[0], queries), strict=True))
    allowed, bias = np.ones((1, 1, queries, keys), bool), np.zeros(())
    if mask == "bool":
        arrays["mask"] = draw.random((*shape, keys)) < 0.6
        allowed = allowed & arrays["mask"]
    elif mask == "bias":
        bias = draw.standard_normal((*shape, keys))
        bias[draw.random(bias.shape) < 0.3] = -np.inf
        arrays["mask"] = bias.astype(dtype.numpy)
        bias = arrays["mask"].astype(np.float64)
    place, column = np.arange(queries)[:, None], np.arange(keys)
    if lengths:
        arrays["nonpad"] = draw.integers(0, keys + 1, batch)
        valid = arrays["nonpad"].reshape(batch, 1, 1, 1)
        allowed = allowed & (column < valid)
        place = place + valid - queries
    bands = [causal, left >= 0, right >= 0]
    for given_, kept in zip(bands, (column <= place, place - left <= column, column <= place + right), strict=True):
        allowed = allowed & kept if given_ else allowed
    root = attention_of(arrays, is_causal=int(causal), left_window_size=left, right_window_size=right)
    found, jobs = computed(root, arrays, Offered())
    (call,) = calls_of(jobs)
    assert isinstance(call, Attention) and (call.bias is not None) == (mask != "none")
    with np.errstate(invalid="ignore"):
        close(found, masked_attention(arrays, 0.3, bias, allowed), dtype)


def test_what_a_call_of_attention_says() -> None:
    """Bands are numbers in it, not memory; the result of rows that all have something to attend is left alone."""
    arrays = heads_of(H, 2, 4, 2, 5, 9, 1)
    _, jobs = computed(attention_of(arrays, is_causal=1), arrays, Offered())
    (call,) = calls_of(jobs)
    assert (call.right, call.left, call.bias, call.lengths, call.places) == (0, None, None, None, None)
    assert [job.schedule for job in jobs] == ["attention", "map"]  # and the result where this test wants it
    _, jobs = computed(attention_of(arrays, is_causal=1, left_window_size=3), arrays, Offered())
    (call,) = calls_of(jobs)
    assert (call.right, call.left) == (0, 3)
    offered = Offered()
    arrays["nonpad"] = np.array([3, 9])
    _, jobs = computed(attention_of(arrays, is_causal=1), arrays, offered)
    (call,) = calls_of(jobs)
    assert call.lengths is not None and call.places is not None and call.rows is not None
    assert offered.dnn.log == ["attend(lengths, right)"]


def test_keys_of_before_are_read_from_where_they_are_put_together() -> None:
    """A cache and new keys are one operand, made once for the call and for the next one's cache."""
    arrays = heads_of(H, 1, 4, 2, 2, 3, 1)
    past = {n: drawn((1, 2, 6, s), H, i) for i, (n, s) in enumerate((("past_key", 8), ("past_value", 16)))}
    given_ = {**arrays, **past}

    def both(cut: Cut) -> k.Tensor:
        leaves = {n: k.input(n, H, a.shape) for n, a in given_.items()}
        out, key, value, _ = sdpa(
            *(leaves[n] for n in "qkv"), None, leaves["past_key"], leaves["past_value"], is_causal=1, scale=0.3, node=Node(3)
        )
        for present in (key, value):
            assert present is not None
            cut.store(cut.settle(present))
        assert out is not None
        return out

    found, jobs = computed(both, given_, Offered())
    (call,) = calls_of(jobs)
    assert call.right == 6 and call.k.shape == (1, 2, 9, 8)
    assert [job.schedule for job in jobs].count("map") == 3  # two caches, and the result where this test wants it
    whole = {"q": arrays["q"], "k": np.concatenate([past["past_key"], arrays["k"]], 2),
             "v": np.concatenate([past["past_value"], arrays["v"]], 2)}  # fmt: skip
    allowed = np.arange(9) <= np.arange(2)[:, None] + 6
    close(found, masked_attention(whole, 0.3, np.zeros(()), allowed), H)


@given(st.booleans(), st.integers(1, 2), st.sampled_from([-1, 3]), st.booleans(), st.integers(0, 1 << 16))
@settings(max_examples=40, deadline=None)
def test_grouped_queries_of_a_cache(prompt: bool, batch: int, window: int, rotary: bool, seed: int) -> None:
    """com.microsoft's GroupQueryAttention, in its first call and in a later one, texts of different lengths."""
    from intarsia.ops.contrib.attention.grouped_query_attention import group_query_attention

    draw = np.random.default_rng(seed)
    steps, capacity, size = (4, 8, 8) if prompt else (1, 8, 8)
    tokens = draw.integers(1, steps + 1, batch) if prompt else draw.integers(2, capacity + 1, batch)
    total = steps if prompt else int(tokens.max())
    arrays = {
        "query": drawn((batch, steps, 4 * size), H, seed), "key": drawn((batch, steps, 2 * size), H, seed + 1),
        "value": drawn((batch, steps, 2 * size), H, seed + 2), "past_key": drawn((batch, 2, capacity, size), H, seed + 3),
        "past_value": drawn((batch, 2, capacity, size), H, seed + 4), "seqlens": (tokens - 1).astype(np.int32),
        "cos": drawn((capacity, size // 2), H, seed + 5), "sin": drawn((capacity, size // 2), H, seed + 6),
    }  # fmt: skip
    leaves = {n: k.input(n, DType.of(a.dtype), a.shape) for n, a in arrays.items()}
    given_ = [leaves[n] for n in ("query", "key", "value", "past_key", "past_value", "seqlens")]
    root = flat(group_query_attention)(
        *given_, np.array(total, np.int32), leaves["cos"], leaves["sin"], do_rotary=int(rotary), kv_num_heads=2, num_heads=4,
        local_window_size=window, node=Node(3),
    )[0]  # fmt: skip
    assert root is not None
    found, jobs = computed(root, arrays, Offered())
    (call,) = calls_of(jobs)
    assert call.k.shape[1] == 2 and call.right == 0 and call.lengths is not None
    plain, _ = computed(root, arrays, Offered(absent=frozenset({"cuDNN", "cuBLASLt"})))
    close(found, plain.astype(np.float64), H)


def test_the_same_mask_is_made_once_for_all_layers() -> None:
    arrays = {**heads_of(H, 1, 2, 2, 5, 7, 1), "mask": np.random.default_rng(0).random((1, 1, 5, 7)) < 0.7}

    def layers(cut: Cut) -> k.Tensor:
        leaves = {n: k.input(n, DType.of(a.dtype), a.shape) for n, a in arrays.items()}
        first, second = (
            sdpa(leaves["q"], leaves["k"], leaves["v"], leaves["mask"], scale=s, node=Node(1))[0]
            for s in (0.3, 0.5)
        )
        assert first is not None and second is not None
        one = cut.store(cut.settle(first))
        return one + cut.store(cut.settle(second))

    found, jobs = computed(layers, arrays, Offered())
    first, second = (masked_attention(arrays, s, np.zeros(()), arrays["mask"]) for s in (0.3, 0.5))
    close(found, first + second, H)
    bias = [job for job in jobs if job.kernel.call is None and job.reads == ("mask",)]
    assert len(bias) == 2 and len(calls_of(jobs)) == 2  # the bias, and whether a row has anything to attend


@pytest.mark.parametrize(("version", "masks", "wanted"), [
    (90700, {}, "no operation for attention; 9.13.0 or later has"),
    (91400, {"nonpad": np.array([3])}, "no operation for attention of some lengths; 9.15.0 or later has"),
    (92000, {"mask": np.ones((4, 4), bool)}, "no operation for attention with a bias or band; 9.21.0 or later has"),
])  # fmt: skip
def test_attention_that_cudnn_is_too_old_for_is_ours(version: int, masks: dict[str, np.ndarray], wanted: str) -> None:
    arrays = {**heads_of(H, 1, 2, 2, 4, 4, 0), **masks}
    offered = Offered()
    offered.dnn.version = version
    found, jobs = computed(attention_of(arrays), arrays, offered)
    assert "attention" not in [job.schedule for job in jobs]
    allowed = np.arange(4) < masks["nonpad"].reshape(1, 1, 1, 1) if "nonpad" in masks else np.ones((4, 4), bool)
    close(found, masked_attention(arrays, 0.3, np.zeros(()), allowed), H)
    assert wanted in " ".join(job.choice.reason for job in jobs if job.choice is not None)


def test_attention_that_is_capped_or_sinks_is_ours() -> None:
    """What cuDNN's operation has no words for here."""
    arrays = heads_of(H, 1, 2, 2, 4, 4, 0)
    q, key, v = (k.input(n, H, arrays[n].shape) for n in "qkv")
    sink = k.full((1, 2, 1, 1), 0.5, F)
    for scores in (attention.Scores(scale=0.3, softcap=2.0), attention.Scores(scale=0.3, sink=sink)):
        _, jobs = computed(k.cast(attention.attend(q, key, v, scores)[0], H), arrays, Offered())
        assert "attention" not in [job.schedule for job in jobs]


# --- bands ------------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["le", "lt"]), st.integers(-1, 1), st.integers(-1, 1), st.integers(-3, 3), st.integers(-3, 3),
    st.booleans(), st.integers(0, 1 << 16),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_bands_are_the_masks(op: str, row: int, column: int, first: int, second: int, texts: bool, seed: int) -> None:
    """Any comparison of sums of indices, numbers and a value for each text is the band that is found, or none is."""
    from library_cuts import _interpreted

    shape = (2, 1, 4, 5)
    base = np.random.default_rng(seed).integers(-3, 4, (2, 1, 1, 1))
    low, high = k.scalar(first, DType.INT64), k.scalar(second, DType.INT64)
    for axis, sign in ((2, row), (3, column)):
        low, high = (low + k.iota(shape, axis) if sign < 0 else low), (high + k.iota(shape, axis) if sign > 0 else high)
    high = high + k.input("n", DType.INT64, base.shape) if texts else high
    mask = k.broadcast(k.binary(op, low, high), shape)
    band = band_of(mask)
    kind = {(1, -1): "right", (-1, 1): "left", (0, -1): "length"}.get((row, column))
    assert (band is None) == (kind is None or texts and kind == "left")
    if band is None:
        return
    assert band.kind == kind
    start = 0 if band.base is None else _interpreted(band.base, {"n": base})
    r, c = np.arange(4)[:, None], np.arange(5)
    kept = {"right": r + start + band.shift >= c, "left": c + band.shift >= r + start, "length": start + band.shift > c}[
        band.kind
    ]
    np.testing.assert_array_equal(np.broadcast_to(kept, shape), _interpreted(mask, {"n": base}))


def test_masks_that_are_no_bands() -> None:
    i, j = (k.iota((1, 1, 4, 5), axis) for axis in (2, 3))
    heads = k.input("n", DType.INT64, (1, 3, 1, 1))
    masks = [
        k.binary("eq", i, j), k.binary("le", i * 2, j), k.binary("lt", i + j, 3), k.input("m", DType.BOOL, (4, 5)),
        k.binary("le", k.cast(i, F), k.cast(j, F)), k.binary("le", j, i + heads),
    ]  # fmt: skip
    for mask in masks:
        assert band_of(mask) is None


# --- ranges -----------------------------------------------------------------------------------------------------------


def test_a_mask_that_is_known_to_be_finite_is_added_as_it_is() -> None:
    """What exporters write: where(mask, 0, the least number). No copy of it is made, and no row is looked at."""
    arrays = {**heads_of(H, 2, 2, 2, 5, 8, 1), "m": np.random.default_rng(0).random((2, 1, 1, 8)) < 0.6}

    def masked(cut: Cut) -> k.Tensor:
        leaves = {n: k.input(n, DType.of(a.dtype), a.shape) for n, a in arrays.items()}
        bias = cut.store(cut.settle(k.select(leaves["m"], k.scalar(0.0, H), -65504.0)))
        made = sdpa(leaves["q"], leaves["k"], leaves["v"], bias, scale=0.3, node=Node(1))[0]
        assert made is not None
        return made

    found, jobs = computed(masked, arrays, Offered())
    assert [job.schedule for job in jobs] == ["map", "attention", "map"]
    close(found, masked_attention(arrays, 0.3, np.where(arrays["m"], 0.0, -65504.0), np.ones(1, bool)), H)


def test_ranges() -> None:
    m, x = k.input("m", DType.BOOL, (4,)), k.input("x", F, (4,))
    flag = k.cast(m, F)
    least = float(np.finfo(np.float32).min)
    for expression, wanted in (
        ((1.0 - flag) * -10000.0, (-10000.0, 0.0)), (k.select(m, 3.0, k.scalar(-2.0, F)), (-2.0, 3.0)),
        (k.maximum(flag - 5.0, -4.5), (-4.5, -4.0)), (k.reshape(k.minimum(flag, 0.5), (2, 2)), (0.0, 0.5)),
        (k.select(m, x, 1.0), (-1.0, 7.0)), (x + 1.0, (0.0, 8.0)), (k.exp(x), None), (k.input("y", F, (4,)) + 1.0, None),
        (k.select(m, k.scalar(0.0, F), -np.inf), None), (k.cast(k.select(m, k.scalar(0.0, F), least), H), None),
        (k.cast(k.input("i", DType.INT64, (4,)), F), None), (k.cast(m, DType.INT64), None),
    ):  # fmt: skip
        assert range_of(expression, {"x": (-1.0, 7.0)}) == wanted
