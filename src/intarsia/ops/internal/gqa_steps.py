"""Parts of GroupQueryAttention that providers use inside, never a model: turned queries, rows of keys and values, the caches
that these go into and the attention over them, for which the CPU provider has kernels."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import dim_max
from intarsia.ops.contrib.attention import GroupedInputs
from intarsia.ops.contrib.shared_kv_cache import appended
from intarsia.ops.framework.operands import dim
from intarsia.ops.framework.registry import op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, split_heads
from intarsia.primitives import lang as k

DOMAIN = "intarsia.grouped"
Tensor = k.Tensor
_VALUES = ("total_sequence_length",)


@op("GroupedQuery", 1, domain=DOMAIN, values=_VALUES)
def grouped_query(
    query: Tensor, key: Tensor | None = None, value: Tensor | None = None, seqlens_k: Tensor | None = None,
    total_sequence_length: np.ndarray | None = None, cos_cache: Tensor | None = None, sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None, norm_weight: Tensor | None = None, *, num_heads: int, kv_num_heads: int, do_rotary: int,
    rotary_interleaved: int, norm_epsilon: float,
) -> Tensor:  # fmt: skip
    """The queries of a GroupQueryAttention, [batch, steps, heads * size]."""
    given = _given(
        num_heads, kv_num_heads, query, key, value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids,
        do_rotary, rotary_interleaved, norm_epsilon,
    )  # fmt: skip
    return merge_heads(given.part(0, norm_weight))


@op("GroupedRows", 1, domain=DOMAIN, values=_VALUES)
def grouped_rows(
    query: Tensor, key: Tensor | None = None, value: Tensor | None = None, seqlens_k: Tensor | None = None,
    total_sequence_length: np.ndarray | None = None, cos_cache: Tensor | None = None, sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None, norm_weight: Tensor | None = None, *, num_heads: int, kv_num_heads: int, do_rotary: int,
    rotary_interleaved: int, norm_epsilon: float, which: int,
) -> Tensor:  # fmt: skip
    """Its own keys (`which` 1) or values (2), [batch, groups, steps, size]."""
    given = _given(
        num_heads, kv_num_heads, query, key, value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids,
        do_rotary, rotary_interleaved, norm_epsilon,
    )  # fmt: skip
    return given.rows(which, norm_weight, None)


@op("GroupedCache", 1, domain=DOMAIN, values=_VALUES)
def grouped_cache(rows: Tensor, past: Tensor, lengths: Tensor, total_sequence_length: np.ndarray) -> Tensor:
    """All its keys or values, [batch, groups, capacity, size]: those of `past`, and `rows` [batch, groups, steps, size] where
    they end at `lengths` [batch]."""
    before = k.reshape(lengths, (lengths.shape[0], 1, 1, 1)) - k.size(rows.shape[2])
    return appended(past, rows, before, dim_max(past.shape[2], dim(total_sequence_length, "total_sequence_length")))


@op("GroupedLengths", 1, domain=DOMAIN, values=_VALUES)
def grouped_lengths(query: Tensor, seqlens_k: Tensor, total_sequence_length: np.ndarray) -> Tensor:
    """How many keys the last query of each batch entry is behind, itself among them, int64 [batch]."""
    given = _given(1, 1, query, None, None, seqlens_k, total_sequence_length, None, None, None, 0, 0, 0.0)
    return k.reshape(given.before + k.size(query.shape[1]), (query.shape[0],))


@op("GroupedAttention", 1, domain=DOMAIN)
def grouped_attention(
    Q: Tensor, K: Tensor, V: Tensor, lengths: Tensor, *, num_heads: int, causal: int, left: int, scale: float, softcap: float
) -> Tensor:
    """Q [batch, steps, heads * size] over K and V [batch, groups, capacity, size], whose last `lengths` - steps + 1, ... keys a
    query may see, and where `left` is not negative so many before its own; [batch, steps, heads * size]."""
    q, keys = split_heads(Q, num_heads), K.shape[2]
    queries = q.shape[2]
    valid = k.reshape(lengths, (lengths.shape[0], 1, 1, 1))
    allowed = [k.iota((1, 1, 1, keys), 3) < valid]
    allowed += frontier(queries, keys, valid - k.size(queries), bool(causal), left, -1)
    out, _ = attend(q, K, V, Scores(scale or default_scale(q.shape[3], q.dtype), softcap, None, tuple(allowed), None))
    return merge_heads(k.cast(out, Q.dtype))


def _given(
    heads: int, groups: int, query: Tensor, key: Tensor | None, value: Tensor | None, seqlens: Tensor | None,
    total: np.ndarray | None, cos: Tensor | None, sin: Tensor | None, places: Tensor | None, rotary: int, interleaved: int,
    epsilon: float,
) -> GroupedInputs:  # fmt: skip
    if seqlens is None or total is None:
        raise k.DefinitionError("GroupQueryAttention needs seqlens_k and total_sequence_length")
    length = dim(total, "total_sequence_length")
    return GroupedInputs(
        heads, groups, query, key, value, seqlens, length, cos, sin, places, bool(rotary), bool(interleaved), (epsilon, epsilon)
    )
