"""Parts of GroupQueryAttention that providers use inside, never a model: turned queries, rows of keys and values, the caches
that these go into and the attention over them, for which the CPU provider has kernels."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import dim_max
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention.grouped_query_attention import GroupedHeads, GroupedInputs, Turning, grouped_inputs
from intarsia.ops.contrib.attention.shared_kv_cache import appended
from intarsia.ops.framework.operands import dim
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, split_heads
from intarsia.ops.nn.attention_operands import PlacedRotaryTables, QueryKeyValue, SequenceLengths
from intarsia.primitives import lang as k

DOMAIN = "intarsia.grouped"
Tensor = k.Tensor
_VALUES = ("total_sequence_length",)


@dataclass(frozen=True)
class PartAttributes(ParameterGroup):
    """How queries, keys or values are made of what GroupQueryAttention is given."""

    num_heads: int
    kv_num_heads: int
    do_rotary: int
    rotary_interleaved: int
    norm_epsilon: float

    @property
    def heads(self) -> GroupedHeads:
        return GroupedHeads(self.num_heads, self.kv_num_heads)

    @property
    def turning(self) -> Turning:
        return Turning(bool(self.do_rotary), bool(self.rotary_interleaved), (self.norm_epsilon, self.norm_epsilon))


@op("GroupedQuery", 1, domain=DOMAIN, values=_VALUES)
def grouped_query(
    qkv: QueryKeyValue, lengths: SequenceLengths, tables: PlacedRotaryTables, norm_weight: Tensor | None = None, *,
    attributes: PartAttributes,
) -> Tensor:  # fmt: skip
    """The queries of a GroupQueryAttention, [batch, steps, heads * size]."""
    given = grouped_inputs(qkv, lengths, tables, attributes.heads, attributes.turning)
    return merge_heads(given.part(0, norm_weight))


@op("GroupedRows", 1, domain=DOMAIN, values=_VALUES)
def grouped_rows(
    qkv: QueryKeyValue, lengths: SequenceLengths, tables: PlacedRotaryTables, norm_weight: Tensor | None = None, *,
    attributes: PartAttributes, which: int,
) -> Tensor:  # fmt: skip
    """Its own keys (`which` 1) or values (2), [batch, groups, steps, size]."""
    given = grouped_inputs(qkv, lengths, tables, attributes.heads, attributes.turning)
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
    total = dim(total_sequence_length, "total_sequence_length")
    turning = Turning(rotary=False, interleaved=False, epsilons=())
    given = GroupedInputs(QueryKeyValue(query), seqlens_k, total, PlacedRotaryTables(), GroupedHeads(1, 1), turning)
    return k.reshape(given.before + k.size(query.shape[1]), (query.shape[0],))


@dataclass(frozen=True)
class OverCacheAttributes(ParameterGroup):
    """Which keys of a cache a query sees, and how its scores are made."""

    num_heads: int
    causal: int
    left: int
    scale: float
    softcap: float


@op("GroupedAttention", 1, domain=DOMAIN)
def grouped_attention(Q: Tensor, K: Tensor, V: Tensor, lengths: Tensor, *, attributes: OverCacheAttributes) -> Tensor:
    """Q [batch, steps, heads * size] over K and V [batch, groups, capacity, size], whose last `lengths` - steps + 1, ... keys a
    query may see, and where `left` is not negative so many before its own; [batch, steps, heads * size]."""
    q, keys = split_heads(Q, attributes.num_heads), K.shape[2]
    queries = q.shape[2]
    valid = k.reshape(lengths, (lengths.shape[0], 1, 1, 1))
    allowed = [k.iota((1, 1, 1, keys), 3) < valid]
    allowed += frontier(queries, keys, valid - k.size(queries), bool(attributes.causal), attributes.left, -1)
    factor = attributes.scale or default_scale(q.shape[3], q.dtype)
    out, _ = attend(q, K, V, Scores(factor, attributes.softcap, None, tuple(allowed), None))
    return merge_heads(k.cast(out, Q.dtype))
