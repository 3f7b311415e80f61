"""com.microsoft: MultiHeadAttention, GroupQueryAttention, Attention with packed weights, RotaryEmbedding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from intarsia.graph.dims import Dim, dim_max, floordiv
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention_masks import MaskedScores
from intarsia.ops.contrib.quantized_kv_cache import QuantisedCache, quantised_cache
from intarsia.ops.contrib.shared_kv_cache import all_tokens, appended, filled, from_beams
from intarsia.ops.framework.operands import OMITTED, dim, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, rotate, split_heads
from intarsia.ops.nn.attention_operands import (
    AttentionAttributes,
    PastKeyValue,
    PlacedRotaryTables,
    QueryKeyValue,
    SequenceLengths,
)
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


@dataclass(frozen=True)
class RotaryAttributes(ParameterGroup):
    """How a rotation reads its input. `is_packed_batching` and `scale` count for nothing, as in onnxruntime's kernels."""

    interleaved: int = 0
    is_packed_batching: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0


@op("RotaryEmbedding", since=1, domain=DOMAIN)
def rotary_embedding(
    input: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, attributes: RotaryAttributes
) -> Tensor:
    if input.rank == 4:
        x = input
    elif attributes.num_heads:
        x = split_heads(input, attributes.num_heads)
    else:
        x = split_heads(input, floordiv(input.shape[2], cos_cache.shape[1] * 2))
    batch, steps = x.shape[0], x.shape[2]
    positions = k.cast(position_ids, DType.INT64)
    if positions.rank == 1:
        positions = k.iota((batch, steps), 1) + positions
    out = rotate_at(x, positions, cos_cache, sin_cache, bool(attributes.interleaved), attributes.rotary_embedding_dim)
    return merge_heads(out) if input.rank == 3 else out


def rotate_at(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, width: int = 0) -> Tensor:
    """`positions` [batch, sequence] into the caches [length, half]."""
    turned = [k.expand_dims(k.take(cache, positions, 0), [1]) for cache in (cos, sin)]
    return rotate(x, turned[0], turned[1], interleaved, width)


@dataclass(frozen=True)
class Masks(ParameterGroup):
    """Which keys are tokens, and what is added to the scores."""

    key_padding_mask: Tensor | None = None
    attention_bias: Tensor | None = None


@dataclass(frozen=True)
class BeamCache(PastKeyValue):
    """A cache, how many of its rows are tokens, and from which beam each of these is."""

    past_sequence_length: np.ndarray | None = None
    cache_indirection: Tensor | None = None


@dataclass(frozen=True)
class CausalAttributes(AttentionAttributes):
    """Those of an attention that may hide later keys."""

    unidirectional: int = 0


@op("MultiHeadAttention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def multi_head_attention(
    qkv: QueryKeyValue, bias: Tensor | None, masks: Masks, cache: BeamCache, *, attributes: CausalAttributes,
    node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """With `past_sequence_length` past and present share memory: a cache with room for more tokens. Of one query per row, as a
    step of a search by beams has it, `cache_indirection` says from which beam each earlier token is."""
    q, *new = _projected(qkv, bias, attributes.num_heads)
    past, length = cache.pair, cache.past_sequence_length
    shared = past[0] is not None and length is not None
    before: Dim = past[0].shape[2] if past[0] is not None else 0
    if shared and length is not None:
        before = dim(length, "past_sequence_length")
    key4, value4 = all_tokens(new, past, before if shared else None)
    presents = (key4, value4) if node.outputs > 1 else (None, None)
    if shared:
        key4, value4 = (filled(x, before, q.shape[2]) for x in (key4, value4))
        if cache.cache_indirection is not None:
            key4, value4 = (_of_one_query(x, cache.cache_indirection, q.shape[2]) for x in (key4, value4))
    queries, keys, dtype = q.shape[2], key4.shape[2], qkv.query.dtype
    scores = MaskedScores((*q.shape[:3], keys), before, attributes.mask_filter_value, widened(q).dtype)
    allowed = tuple(frontier(queries, keys, k.size(before), bool(attributes.unidirectional), -1, -1))
    factor = attributes.scale or default_scale(q.shape[3], q.dtype)
    bias4 = scores.bias(masks.key_padding_mask, masks.attention_bias)
    out, stages = attend(q, key4, value4, Scores(factor, 0.0, bias4, allowed))
    return merge_heads(k.cast(out, dtype)), *presents, k.cast(stages[2], dtype) if node.outputs > 3 else None


def _of_one_query(x: Tensor, source: Tensor, queries: Dim) -> Tensor:
    """Tokens from the beams that `source` names, where there is one query; more are a prompt, as onnxruntime takes it."""
    if isinstance(queries, int):
        return from_beams(x, source) if queries == 1 else x
    return k.select(k.equal(k.size(queries), 1), from_beams(x, source), x)


def _projected(qkv: QueryKeyValue, bias: Tensor | None, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as [batch, heads, sequence, size], from any of the packings."""
    query, key, value = qkv.query, qkv.key, qkv.value
    if query.rank == 5:
        return _unpacked(query, 0), _unpacked(query, 1), _unpacked(query, 2)
    width = query.shape[2]
    q = split_heads(_biased(query, bias, 0, width), heads)
    if key is None:
        raise k.DefinitionError("MultiHeadAttention of a 3-D query needs key")
    if key.rank == 5:
        return q, _unpacked(key, 0), _unpacked(key, 1)
    if value is None:
        raise k.DefinitionError("MultiHeadAttention of a key that is not packed needs value")
    if key.rank == 4:  # keys and values of a cross attention, already split
        return q, key, value
    key4 = split_heads(_biased(key, bias, width, width), heads)
    return q, key4, split_heads(_biased(value, bias, width * 2, value.shape[2]), heads)


def _unpacked(x: Tensor, which: int) -> Tensor:
    """[batch, sequence, heads, parts, size] -> part `which` as [batch, heads, sequence, size]."""
    part = k.strided_slice(x, (0, 0, 0, which, 0), (1,) * 5, (*x.shape[:3], 1, x.shape[4]))
    return k.transpose(k.reshape(part, (*x.shape[:3], x.shape[4])), (0, 2, 1, 3))


def _biased(x: Tensor, bias: Tensor | None, start: Dim, count: Dim) -> Tensor:
    return x if bias is None else x + k.strided_slice(bias, (start,), (1,), (count,))


@dataclass(frozen=True)
class PackedPast(ParameterGroup):
    """Keys and values of earlier calls in one tensor, what is added to the scores, and how many rows of the first count."""

    past: Tensor | None = None
    attention_bias: Tensor | None = None
    past_sequence_length: np.ndarray | None = None

    def length(self, shared: int | None) -> Dim | None:
        """How many tokens a shared cache has; None where it is not shared. Raises DefinitionError as `length_of`."""
        return length_of(self.past_sequence_length) if shared else None


@dataclass(frozen=True)
class PackedAttributes(CausalAttributes):
    """Attributes of Attention; `rotary_embedding_dim` counts with `do_rotary` only, and that is refused."""

    do_rotary: int = 0
    past_present_share_buffer: int = 0
    qkv_hidden_sizes: Sequence[int] | None = None
    rotary_embedding_dim: int = 0


@op("Attention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def packed_attention(
    input: Tensor, weights: Tensor, bias: Tensor | None, mask_index: Tensor | None, earlier: PackedPast, *,
    attributes: PackedAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """`past_sequence_length` counts with `past_present_share_buffer` only, and that with `past`."""
    if attributes.do_rotary:
        raise k.DefinitionError("do_rotary is 1; expected 0: write MultiHeadAttention after RotaryEmbedding, which has tables")
    batch, queries = input.shape[:2]
    flat = k.dot(k.reshape(widened(input), (batch * queries, input.shape[2])), widened(weights))
    if bias is not None:
        flat = flat + widened(bias)
    widths = attributes.qkv_hidden_sizes
    projection = Projection(k.reshape(flat, (batch, queries, weights.shape[1])), attributes.num_heads, widths)
    choice = Choice(attributes.scale, attributes.mask_filter_value, bool(attributes.unidirectional), node.outputs > 1)
    cache = None
    if earlier.past is not None:
        cache = Earlier(earlier.past, earlier.length(attributes.past_present_share_buffer))
    return attend_projected(projection, mask_index, cache, earlier.attention_bias, choice, input.dtype)


@dataclass(frozen=True)
class PackedBeams(PackedPast):
    """A cache of beams, which there always is."""

    past: Tensor = OMITTED
    past_sequence_length: np.ndarray = OMITTED
    beam_width: Tensor | None = None
    cache_indirection: Tensor | None = None


@dataclass(frozen=True)
class MaskedAttributes(AttentionAttributes):
    """Attributes of DecoderMaskedSelfAttention."""

    do_rotary: int = 0
    past_present_share_buffer: int = 0


@op("DecoderMaskedSelfAttention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def decoder_masked_self_attention(
    input: Tensor, weights: Tensor, bias: Tensor, mask_index: Tensor | None, beams: PackedBeams, *, attributes: MaskedAttributes
) -> tuple[Tensor | None, ...]:
    """Attention of one token over a cache [2, batch, heads, capacity, size], of whose beams `cache_indirection` [batch, beams,
    capacity] says from which one each earlier token is."""
    if attributes.do_rotary:
        raise k.DefinitionError("do_rotary is 1; expected 0: turn queries and keys before DecoderMaskedMultiHeadAttention")
    batch, queries = input.shape[:2]
    flat = k.dot(k.reshape(widened(input), (batch * queries, input.shape[2])), widened(weights)) + widened(bias)
    projection = Projection(k.reshape(flat, (batch, queries, weights.shape[1])), attributes.num_heads, None)
    earlier = Earlier(beams.past, beams.length(attributes.past_present_share_buffer), beams.cache_indirection)
    choice = Choice(attributes.scale, attributes.mask_filter_value, False, True)
    return attend_projected(projection, mask_index, earlier, beams.attention_bias, choice, input.dtype)


def check_widths(qkv_hidden_sizes: Sequence[int] | None) -> None:
    """Raise DefinitionError unless there are three, or none."""
    if qkv_hidden_sizes and (len(qkv_hidden_sizes) != 3 or min(qkv_hidden_sizes) < 1):
        raise k.DefinitionError(f"qkv_hidden_sizes is {list(qkv_hidden_sizes)}; expected three sizes of at least 1")


@dataclass(frozen=True)
class Projection:
    """Queries, keys and values side by side, [batch, sequence, width]; `widths` of the three, thirds if None."""

    values: Tensor
    heads: int
    widths: Sequence[int] | None

    def parts(self) -> list[Tensor]:
        """The three as [batch, heads, sequence, size]."""
        x = self.values
        check_widths(self.widths)
        widths: list[Dim] = [int(n) for n in self.widths] if self.widths else [floordiv(x.shape[2], 3)] * 3
        starts: list[Dim] = [0, widths[0], widths[0] + widths[1]]
        return [
            split_heads(k.strided_slice(x, (0, 0, at), (1, 1, 1), (*x.shape[:2], n)), self.heads)
            for at, n in zip(starts, widths, strict=True)
        ]


@dataclass(frozen=True)
class Choice:
    """How Attention works: scale (0: by head size), what is added to scores of padding, later keys hidden, present wanted."""

    scale: float
    penalty: float
    causal: bool
    wants_present: bool


@dataclass(frozen=True)
class Earlier:
    """Keys and values of earlier calls, [2, batch, heads, rows, size].

    Attributes:
        length: how many rows count, where the cache has room for more (None: all, and new ones go behind them).
        beams: from which beam each token is (`from_beams`).
    """

    past: Tensor
    length: Dim | None = None
    beams: Tensor | None = None

    @property
    def before(self) -> Dim:
        return self.past.shape[3] if self.length is None else self.length

    def joined(self, new: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values after this call, and those that it attends to."""
        shape = self.past.shape[1:]
        old = [k.reshape(k.strided_slice(widened(self.past), (i, 0, 0, 0, 0), (1,) * 5, (1, *shape)), shape) for i in (0, 1)]
        present = all_tokens(new, old, self.length)
        attended = present
        if self.length is not None:
            attended = [filled(x, self.length, new[0].shape[2]) for x in present]
        if self.beams is not None:
            attended = [from_beams(x, self.beams) for x in attended]
        return present, attended


def length_of(past_sequence_length: np.ndarray | None) -> Dim:
    """How many tokens a shared cache has. Raises DefinitionError where the input is missing."""
    if past_sequence_length is None:
        raise k.DefinitionError("past_present_share_buffer needs past_sequence_length")
    return dim(past_sequence_length, "past_sequence_length")


def attend_projected(
    projection: Projection, mask: Tensor | None, earlier: Earlier | None, bias: Tensor | None, choice: Choice, dtype: DType
) -> tuple[Tensor | None, ...]:
    """The attention of com.microsoft's Attention, [batch, sequence, width], and its keys and values [2, batch, heads, ...]."""
    q, *new = projection.parts()
    before = 0 if earlier is None else earlier.before
    kept, (key, value) = (new, new) if earlier is None else earlier.joined(new)
    keys = key.shape[2]
    scores = MaskedScores((*q.shape[:3], keys), before, choice.penalty, q.dtype)
    allowed = tuple(frontier(q.shape[2], keys, k.size(before), choice.causal, -1, -1))
    factor = choice.scale or default_scale(q.shape[3], q.dtype)
    out, _ = attend(q, key, value, Scores(factor, 0.0, scores.bias(mask, bias), allowed))
    present = k.cast(k.concat([k.expand_dims(t, [0]) for t in kept], 0), dtype) if choice.wants_present else None
    return merge_heads(k.cast(out, dtype)), present


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
        present = [sliding.kept(t) for t in attended]
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
        """The cache's window; `possible`: whether it goes with what else is asked for."""
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

    def kept(self, joined: Tensor) -> Tensor:
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
