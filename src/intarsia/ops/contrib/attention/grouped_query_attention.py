"""com.microsoft: GroupQueryAttention, its caches of all tokens and of a window, and the parts that it attends with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from intarsia.graph.dims import Dim, dim_max
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention.attention import rotate_at
from intarsia.ops.contrib.attention.quantized_kv_cache import QuantisedCache, quantised_cache
from intarsia.ops.contrib.attention.shared_kv_cache import appended
from intarsia.ops.framework.operands import dim, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, split_heads
from intarsia.ops.nn.attention_operands import (
    PastKeyValue,
    PlacedRotaryTables,
    QueryKeyValue,
    SequenceLengths,
)
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


@dataclass(frozen=True)
class GroupedCache(PastKeyValue):
    """Keys and values of earlier calls, and how many tokens there are with this one's."""

    seqlens_k: Tensor | None = None
    total_sequence_length: np.ndarray | None = None

    @property
    def lengths(self) -> SequenceLengths:
        return SequenceLengths(self.seqlens_k, self.total_sequence_length)


@dataclass(frozen=True)
class GroupedOptions(ParameterGroup):
    """Inputs of GroupQueryAttention that few models have: additions to the scores, a cache in integers, norms, padding."""

    attention_bias: Tensor | None = None
    head_sink: Tensor | None = None
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    q_norm_weight: Tensor | None = None
    k_norm_weight: Tensor | None = None
    query_seqlens: Tensor | None = None

    @property
    def norm_weights(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Of queries and keys, both or neither."""
        if self.q_norm_weight is None or self.k_norm_weight is None:
            return None, None
        return self.q_norm_weight, self.k_norm_weight


@dataclass(frozen=True)
class GroupedAttributes(ParameterGroup):
    """Attributes of GroupQueryAttention."""

    kv_num_heads: int
    num_heads: int
    causal: int = 1
    do_rotary: int = 0
    k_norm_epsilon: float | None = None
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = -1
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Of the norms of queries and keys."""
        return tuple(self.qk_norm_epsilon if e is None else e for e in (self.q_norm_epsilon, self.k_norm_epsilon))


@op("GroupQueryAttention", since=1, domain=DOMAIN, values=("total_sequence_length",))
def group_query_attention(
    qkv: QueryKeyValue, cache: GroupedCache, tables: PlacedRotaryTables, options: GroupedOptions, *,
    attributes: GroupedAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Queries [batch, steps, heads * size] over the keys and values of `kv_num_heads` groups, which a cache keeps.

    `query_seqlens` says how many of the steps are tokens, where chunks are padded behind them. With `sliding_window_cache` the
    cache has the latest tokens only, in order (`SlidingCache`).
    """
    causal, window, sink = bool(attributes.causal), attributes.local_window_size, options.head_sink
    if options.query_seqlens is not None and (cache.pair[0] is None or not causal):
        raise k.DefinitionError("GroupQueryAttention with query_seqlens needs past_key, past_value and causal 1")
    caches = _quantised_caches(attributes, options, cache)
    _check_steps(qkv)
    inputs = grouped_inputs(
        qkv, cache.lengths, tables, GroupedHeads(attributes.num_heads, attributes.kv_num_heads),
        Turning(bool(attributes.do_rotary), bool(attributes.rotary_interleaved), attributes.epsilons),
    )  # fmt: skip
    inputs = replace(inputs, counts=options.query_seqlens, slides=bool(attributes.sliding_window_cache))
    q = inputs.part(0, options.norm_weights[0])
    stored = (None, None) if caches is None else (caches[0].stored, caches[1].stored)
    pasts, weights = (cache.past_key, cache.past_value), (options.norm_weights[1], None)
    sliding = inputs.sliding(pasts, window, causal and not attributes.qk_output) if inputs.slides else None
    if sliding is None:
        pasts = cache.pair
        present = attended = [inputs.cache(1 + i, pasts[i], weights[i], stored[i]) for i in range(2)]
    else:
        attended = [sliding.joined(pasts[i], inputs.rows(1 + i, weights[i], stored[i])) for i in range(2)]
        present = [sliding.retained(t) for t in attended]
    key4, value4 = attended if caches is None else (cache.values(t) for cache, t in zip(caches, attended, strict=True))
    queries, keys = q.shape[2], key4.shape[2]
    allowed = inputs.allowed(queries, keys, causal, window) if sliding is None else sliding.allowed(queries)
    if sink is not None:
        sink = k.reshape(widened(sink), (1, attributes.num_heads, 1, 1))
    elif attributes.smooth_softmax == 1:
        sink = k.scalar(0.0, DType.FLOAT)
    extra = options.attention_bias
    if extra is not None:
        extra = _over_keys(extra, keys) if sliding is None else sliding.over_keys(extra, queries)
    factor, shown, dtype = attributes.scale or default_scale(q.shape[3], q.dtype), attributes.qk_output, qkv.query.dtype
    out, stages = attend(q, key4, value4, Scores(factor, attributes.softcap, extra, tuple(allowed), sink))
    stage = k.cast(stages[3 if shown == 2 else 2], dtype) if shown and node.outputs > 3 else None
    return merge_heads(k.cast(out, dtype)), *present, stage


def _quantised_caches(
    attributes: GroupedAttributes, options: GroupedOptions, cache: GroupedCache
) -> tuple[QuantisedCache, QuantisedCache] | None:
    """How the caches of keys and of values are stored; None where they are not in integers."""
    kinds, bits = (attributes.k_quant_type, attributes.v_quant_type), attributes.kv_cache_bit_width
    if kinds[0] != kinds[1]:
        raise k.DefinitionError(f"k_quant_type is {kinds[0]!r} and v_quant_type {kinds[1]!r}; expected the same")
    if kinds[0] != "NONE":
        return (
            quantised_cache(kinds[0], bits, options.k_scale, cache.past_key, "key"),
            quantised_cache(kinds[1], bits, options.v_scale, cache.past_value, "value"),
        )
    if bits:
        raise k.DefinitionError(f"kv_cache_bit_width is {bits}; expected 0 where k_quant_type is 'NONE'")
    return None


def _check_steps(qkv: QueryKeyValue) -> None:
    for name, x in (("key", qkv.key), ("value", qkv.value)):
        if x is not None:
            k.require_equal(x.shape[0], qkv.query.shape[0], f"the batch of {name}, and of query")
            k.require_equal(x.shape[1], qkv.query.shape[1], f"the steps of {name}, and of query")


@dataclass(frozen=True)
class GroupedHeads:
    """How many heads queries have, and how many groups of them share a head of keys and values."""

    heads: int
    groups: int


@dataclass(frozen=True)
class Turning:
    """Whether and how queries and keys are turned by their places, and the epsilons of their norms."""

    rotary: bool
    interleaved: bool
    epsilons: tuple[float, ...]


def grouped_inputs(
    qkv: QueryKeyValue, lengths: SequenceLengths, tables: PlacedRotaryTables, heads: GroupedHeads, turning: Turning
) -> GroupedInputs:
    """The parts that GroupQueryAttention attends with. Raises DefinitionError where the lengths are missing."""
    if lengths.seqlens_k is None or lengths.total_sequence_length is None:
        raise k.DefinitionError("GroupQueryAttention needs seqlens_k and total_sequence_length")
    total = dim(lengths.total_sequence_length, "total_sequence_length")
    return GroupedInputs(qkv, lengths.seqlens_k, total, tables, heads, turning)


@dataclass(frozen=True)
class GroupedInputs:
    """What GroupQueryAttention is given, and the parts that it attends with. Raises DefinitionError where rotation lacks its
    tables."""

    qkv: QueryKeyValue
    seqlens: Tensor
    total: Dim
    tables: PlacedRotaryTables
    heads: GroupedHeads
    turning: Turning
    counts: Tensor | None = None  # of tokens in this call's steps, where what is behind them is padding
    slides: bool = False

    @property
    def lengths(self) -> Tensor:
        """Tokens so far, [batch, 1, 1, 1]."""
        return k.reshape(k.cast(self.seqlens, DType.INT64) + 1, (self.qkv.query.shape[0], 1, 1, 1))

    @property
    def before(self) -> Tensor:
        """Where this call's keys start, [batch, 1, 1, 1]: in the first one at 0, however many of them are padding; in a later
        one behind those already there."""
        steps = k.size(self.qkv.query.shape[1])
        if self.counts is not None:
            return self.lengths - self._counted
        if self.slides:
            return k.maximum(self.lengths - steps, 0)
        return k.select(k.equal(k.size(self.total), steps), 0, self.lengths - steps)

    @property
    def _counted(self) -> Tensor:
        assert self.counts is not None
        return k.reshape(k.cast(self.counts, DType.INT64), (self.qkv.query.shape[0], 1, 1, 1))

    @property
    def new(self) -> Tensor:
        """How many of this call's steps are tokens, [batch, 1, 1, 1]."""
        return self._counted if self.counts is not None else k.minimum(self.lengths, k.size(self.qkv.query.shape[1]))

    def allowed(self, queries: Dim, keys: Dim, causal: bool, window: int) -> list[Tensor]:
        """Masks over the keys of a cache that has all tokens."""
        before = self.before
        end = self.lengths if self.counts is not None else k.maximum(self.lengths, before + k.size(queries))
        left = window - 1 if window > 0 else -1
        return [k.iota((1, 1, 1, keys), 3) < end, *frontier(queries, keys, before, causal, left, -1)]

    def sliding(self, pasts: tuple[Tensor | None, Tensor | None], window: int, possible: bool) -> SlidingCache:
        """The cache's window; `possible`: whether it goes with what else is requested."""
        past = pasts[0]
        if past is None or pasts[1] is None or window <= 0 or not possible:
            raise k.DefinitionError(
                "GroupQueryAttention with sliding_window_cache needs past_key, past_value, causal 1, qk_output 0 and a "
                f"local_window_size above 0, got {window}"
            )
        capacity = past.shape[2]
        k.require_least(
            capacity, window, f"past_key has room for {capacity} tokens; expected local_window_size, {window}, at least"
        )
        return SlidingCache(capacity, window, self.lengths, self.before, self.new)

    def part(self, which: int, weight: Tensor | None = None) -> Tensor:
        """The query (0), keys (1) or values (2) of this call, [batch, heads, steps, size]; the first two normalised by `weight`
        and turned by their places."""
        x = grouped_parts(self.qkv, self.heads.heads, self.heads.groups)[which]
        if weight is not None:
            x = _rms_norm(x, weight, self.turning.epsilons[which])
        if not self.turning.rotary or which == 2:
            return x
        if self.tables.cos_cache is None or self.tables.sin_cache is None:
            raise k.DefinitionError("GroupQueryAttention with do_rotary needs cos_cache and sin_cache")
        batch, steps = x.shape[0], x.shape[2]
        places = self.tables.position_ids
        if places is None:
            places = k.iota((batch, steps), 1) + k.reshape(self.before, (batch, 1))
        return rotate_at(x, places, self.tables.cos_cache, self.tables.sin_cache, self.turning.interleaved)

    def cache(
        self, which: int, past: Tensor | None, weight: Tensor | None = None, stored: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """All keys (1) or values (2), those of earlier calls before those of this one, which `stored` makes rows of a cache."""
        new = self.rows(which, weight, stored)
        if past is None:
            return new
        count = None if self.counts is None else self._counted
        return appended(past, new, self.before, dim_max(past.shape[2], self.total), count)

    def rows(self, which: int, weight: Tensor | None, stored: Callable[[Tensor], Tensor] | None) -> Tensor:
        """This call's keys (1) or values (2), as a cache has them."""
        new = self.part(which, weight)
        return new if stored is None else stored(new)


@dataclass(frozen=True)
class SlidingCache:
    """A cache with room for `capacity` tokens, whose first rows are the latest ones in order; the others are not specified.

    Every query sees `window` of them. When the cache is full, those that no query needs make room all at once, so how many
    there are follows from the number of tokens so far alone. Tensors are int64 [batch, 1, 1, 1]: tokens after this call,
    before it, and those of this call.
    """

    capacity: Dim
    window: int
    lengths: Tensor
    before: Tensor
    new: Tensor

    def _first(self, tokens: Tensor) -> Tensor:
        """The token in row 0, once there were so many."""
        room = k.size(self.capacity)
        spare = room - (self.window - 1)
        return (k.maximum(tokens - room, 0) + (spare - 1)) / spare * spare

    def joined(self, past: Tensor | None, new: Tensor) -> Tensor:
        """What this call attends over: the cache before it, then its own rows."""
        assert past is not None
        return k.concat([past, new], 2)

    def _tokens(self, queries: Dim) -> tuple[Tensor, Tensor]:
        """Which token each row of `joined` is, [batch, 1, 1, rows], and whether it is one."""
        place = k.iota((1, 1, 1, self.capacity + queries), 3)
        own = place - k.size(self.capacity)
        held, is_new = self._first(self.before) + place, own >= 0
        real = k.select(is_new, own < self.new, held < self.before)
        return k.select(is_new, self.before + own, held), real

    def allowed(self, queries: Dim) -> list[Tensor]:
        """Masks over the rows of `joined`."""
        token, real = self._tokens(queries)
        query = self.before + k.iota((1, 1, queries, 1), 2)
        return [real, token <= query, token > query - self.window]

    def over_keys(self, bias: Tensor, queries: Dim) -> Tensor:
        """A bias for every token there was, [.., queries, tokens], as one over the rows of `joined`."""
        last = bias.shape[3]
        if last == 1:
            return bias
        token = _between(self._tokens(queries)[0], 0, k.size(last) - 1)
        at = [k.iota([bias.shape[i] if j == i else 1 for j in range(4)], i) for i in range(3)]
        return k.index(bias, [*at, token])

    def retained(self, joined: Tensor) -> Tensor:
        """The cache after this call."""
        shape = (*joined.shape[:2], self.capacity, joined.shape[3])
        token = self._first(self.lengths) + k.iota(shape, 2)
        held = token - self._first(self.before)
        source = k.select(token >= self.before, token - self.before + k.size(self.capacity), held)
        source = _between(source, 0, k.size(joined.shape[2]) - 1)
        return k.index(joined, [k.iota(shape, 0), k.iota(shape, 1), source, k.iota(shape, 3)])


def grouped_parts(qkv: QueryKeyValue, heads: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = qkv.query, qkv.key, qkv.value
    if key is not None and value is not None:
        return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)
    whole = split_heads(query, heads + 2 * groups)
    parts = []
    for start, count in ((0, heads), (heads, groups), (heads + groups, groups)):
        parts.append(k.strided_slice(whole, (0, start, 0, 0), (1,) * 4, (whole.shape[0], count, *whole.shape[2:])))
    return parts[0], parts[1], parts[2]


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = widened(x)
    mean = k.reduce_mean(wide * wide, [x.rank - 1], keepdims=True)
    return k.cast(wide / k.sqrt(mean + epsilon) * widened(weight), x.dtype)


def _between(x: Tensor, low: int, high: Tensor) -> Tensor:
    return k.minimum(k.maximum(x, low), high)


def _over_keys(bias: Tensor, keys: Dim) -> Tensor:
    """A bias over the tokens so far, lengthened to the cache's capacity."""
    last = bias.shape[3]
    if last == keys or last == 1:
        return bias
    return k.pad(bias, (0, 0, 0, 0), (0, 0, 0, dim_max(keys - last, 0)), -math.inf)
