"""com.microsoft: attention over sequences without padding, with shared caches, blocks or windows of keys."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import Dim, floordiv, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention.attention import Projection, check_widths, length_of, rotate_at
from intarsia.ops.contrib.attention.attention_masks import MaskedScores
from intarsia.ops.contrib.attention.grouped_query_attention import grouped_parts
from intarsia.ops.contrib.attention.shared_kv_cache import all_tokens, appended, filled, from_beams
from intarsia.ops.framework.operands import widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op, op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, split_heads
from intarsia.ops.nn.attention_operands import AttentionAttributes, PastKeyValue, QueryKeyValue, RotaryTables
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


# --- padding --------------------------------------------------------------------------------------------------------


def _restored(x: Tensor, cumulative: Tensor, steps: Dim) -> Tensor:
    """Packed tokens [tokens, width] as [batch, steps, width]; rows of padding repeat some token."""
    batch = cumulative.shape[0] - 1
    starts = k.cast(k.strided_slice(cumulative, (0,), (1,), (batch,)), DType.INT64)
    place = k.reshape(starts, (batch, 1)) + k.iota((1, steps), 1)
    return k.take(x, k.minimum(place, k.size(x.shape[0] - 1)), 0)


def _lengths(cumulative: Tensor) -> Tensor:
    batch = cumulative.shape[0] - 1
    ends, starts = (k.strided_slice(cumulative, (at,), (1,), (batch,)) for at in (1, 0))
    return k.cast(ends - starts, DType.INT64)


def _packed(x: Tensor, token_offset: Tensor, tokens: Dim) -> Tensor:
    """The rows of [batch, steps, width] that are tokens, [tokens, width]."""
    flat = k.reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))
    offsets = k.reshape(token_offset, (token_offset.shape[0] * token_offset.shape[1],))
    return k.take(flat, k.cast(k.strided_slice(offsets, (0,), (1,), (tokens,)), DType.INT64), 0)


@dataclass(frozen=True)
class PackedTokens(ParameterGroup):
    """Where tokens and then padding lay, [batch, steps], and the sum of the lengths before each sequence, [batch + 1]."""

    token_offset: Tensor
    cumulative_sequence_length: Tensor


def _attend_packed(parts: list[Tensor], where: PackedTokens, bias: Tensor | None, heads: int, scale: float | None) -> Tensor:
    """Attention within each sequence of packed queries, keys and values [tokens, width]."""
    token_offset, cumulative = where.token_offset, where.cumulative_sequence_length
    steps, tokens = token_offset.shape[1], parts[0].shape[0]
    q, key, value = (split_heads(_restored(x, cumulative, steps), heads) for x in parts)
    lengths = k.reshape(_lengths(cumulative), (cumulative.shape[0] - 1, 1, 1, 1))
    allowed = k.iota((1, 1, 1, steps), 3) < lengths
    factor = scale or default_scale(q.shape[3], q.dtype)
    out, _ = attend(q, key, value, Scores(factor, 0.0, bias, (allowed,)))
    return k.cast(_packed(merge_heads(out), token_offset, tokens), parts[0].dtype)


@dataclass(frozen=True)
class PackedProjectionAttributes(ParameterGroup):
    """Heads, the widths of queries, keys and values side by side, and a scale other than 1 / sqrt(head size)."""

    num_heads: int
    qkv_hidden_sizes: list[int] | None = None
    scale: float | None = None


@dataclass(frozen=True)
class OptionalScaleAttributes(AttentionAttributes):
    """Those of attention, without a scale by default."""

    scale: float | None = None  # type: ignore[assignment]


@op("PackedAttention", 1, domain=DOMAIN)
def packed_attention(
    input: Tensor, weights: Tensor, bias: Tensor, where: PackedTokens, attention_bias: Tensor | None = None, *,
    attributes: PackedProjectionAttributes,
) -> Tensor:  # fmt: skip
    """Attention of com.microsoft for tokens [tokens, width] of several sequences, laid end to end."""
    projected = k.cast(k.dot(widened(input), widened(weights)) + widened(bias), input.dtype)
    total = projected.shape[1]
    check_widths(attributes.qkv_hidden_sizes)
    sizes = attributes.qkv_hidden_sizes
    widths: list[Dim] = [int(n) for n in sizes] if sizes else [floordiv(total, 3)] * 3
    starts: list[Dim] = [0, widths[0], widths[0] + widths[1]]
    parts = [k.strided_slice(projected, (0, at), (1, 1), (projected.shape[0], n)) for at, n in zip(starts, widths, strict=True)]
    return _attend_packed(parts, where, attention_bias, attributes.num_heads, attributes.scale)


@op("PackedMultiHeadAttention", 1, domain=DOMAIN)
def packed_multi_head_attention(
    qkv: QueryKeyValue, bias: Tensor | None, where: PackedTokens, attention_bias: Tensor | None = None, *,
    attributes: OptionalScaleAttributes,
) -> Tensor:  # fmt: skip
    """`query` may hold all three as [tokens, heads, 3, size]."""
    query, key, value = qkv.query, qkv.key, qkv.value
    if query.rank == 4:
        tokens, heads, _, size = query.shape
        parts = [
            k.reshape(k.strided_slice(query, (0, 0, i, 0), (1,) * 4, (tokens, heads, 1, size)), (tokens, heads * size))
            for i in range(3)
        ]
    elif key is None or value is None:
        raise k.DefinitionError("PackedMultiHeadAttention of a query [tokens, width] needs key and value")
    else:
        parts = [query, key, value]
    if bias is not None:
        start: Dim = 0
        for i, x in enumerate(parts):
            parts[i] = x + k.strided_slice(bias, (start,), (1,), (x.shape[1],))
            start = start + x.shape[1]
    return _attend_packed(parts, where, attention_bias, attributes.num_heads, attributes.scale)


def _remove_types(input: TensorType, sequence_token_count: TensorType) -> tuple[TensorType, ...]:
    if input.shape is None:
        return TensorType(input.dtype), TensorType(DType.INT32), TensorType(DType.INT32), TensorType(DType.INT32, (1,))
    batch, steps, width = input.shape
    return (
        TensorType(input.dtype, (fresh_symbol("tokens"), width)), TensorType(DType.INT32, (batch, steps)),
        TensorType(DType.INT32, (batch + 1,)), TensorType(DType.INT32, (1,)),
    )  # fmt: skip


@host_op("RemovePadding", 1, domain=DOMAIN, infer=_remove_types, reason="the number of tokens depends on data")
def remove_padding(input: np.ndarray, sequence_token_count: np.ndarray) -> tuple[np.ndarray, ...]:
    """Tokens [tokens, width]; where tokens and then padding lay, [batch, steps]; cumulative lengths; the longest."""
    batch, steps, width = input.shape
    lengths = sequence_token_count.reshape(-1).astype(np.int64)
    if len(lengths) != batch or (lengths < 0).any() or (lengths > steps).any():
        raise k.DefinitionError(f"sequence_token_count is {lengths.tolist()}; expected {batch} numbers from 0 to {steps}")
    is_token = np.arange(steps) < lengths[:, None]
    offsets = np.concatenate([np.flatnonzero(is_token), np.flatnonzero(~is_token)]).astype(np.int32)
    cumulative = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    longest = np.array([lengths.max(initial=0)], np.int32)
    return input.reshape(-1, width)[is_token.reshape(-1)], offsets.reshape(batch, steps), cumulative, longest


@op("RestorePadding", 1, domain=DOMAIN)
def restore_padding(input: Tensor, token_offset: Tensor) -> Tensor:
    """What RemovePadding packed, with zeros for padding."""
    batch, steps = token_offset.shape
    tokens, width = input.shape
    offsets = k.strided_slice(k.reshape(token_offset, (batch * steps,)), (0,), (1,), (tokens,))
    where = k.reshape(k.cast(offsets, DType.INT64), (tokens, 1))
    out = k.scatter(k.full((batch * steps, width), 0, input.dtype), [where, k.iota((1, width), 1)], input)
    return k.reshape(out, (batch, steps, width))


# --- caches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WidthBeamCache(PastKeyValue):
    """A cache, how many of its rows are tokens, the number of beams, and from which beam each token is."""

    past_sequence_length: np.ndarray | None = None
    beam_width: Tensor | None = None
    cache_indirection: Tensor | None = None


@dataclass(frozen=True)
class MaskedHeadsAttributes(OptionalScaleAttributes):
    """Attributes of DecoderMaskedMultiHeadAttention."""

    output_qk: int | None = None
    past_present_share_buffer: int | None = None


@op("DecoderMaskedMultiHeadAttention", 1, domain=DOMAIN, values=("past_sequence_length",))
def decoder_masked_multi_head_attention(
    qkv: QueryKeyValue, mask_index: Tensor | None, attention_bias: Tensor | None, cache: WidthBeamCache,
    bias: Tensor | None = None, *, attributes: MaskedHeadsAttributes, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """One token's attention over a cache; over another sequence's keys and values where `key` has rank 4.

    A shared cache has room for more tokens than `past_sequence_length`. `cache_indirection` [batch, beams, capacity] says from
    which beam of the same sequence a beam has each earlier token.
    """
    heads = attributes.num_heads
    if qkv.key is None or qkv.value is None:
        parts = [merge_heads(p) for p in Projection(qkv.query, heads, None).parts()]
    else:
        parts = [qkv.query, qkv.key, qkv.value]
    if bias is not None:
        start: Dim = 0
        for i, x in enumerate(parts):
            if x.rank == 3:
                parts[i] = x + k.strided_slice(bias, (start,), (1,), (x.shape[2],))
            start = start + (x.shape[2] if x.rank == 3 else x.shape[1] * x.shape[3])
    q = split_heads(parts[0], heads)
    before: Dim = 0
    if parts[1].rank == 4:  # cross attention
        keys, values, presents = parts[1], parts[2], (parts[1], parts[2])
    else:
        new, past = [split_heads(x, heads) for x in parts[1:]], cache.pair
        shared = bool(attributes.past_present_share_buffer) and past[0] is not None
        if past[0] is not None:
            before = length_of(cache.past_sequence_length) if shared else past[0].shape[2]
        keys, values = all_tokens(new, past, before if shared else None)
        presents = (keys, values)
        if shared:
            keys, values = (filled(x, before, new[0].shape[2]) for x in (keys, values))
        if cache.cache_indirection is not None:
            keys, values = (from_beams(x, cache.cache_indirection) for x in (keys, values))
    scores = MaskedScores((*q.shape[:3], keys.shape[2]), before, attributes.mask_filter_value, widened(q).dtype)
    factor = attributes.scale or default_scale(q.shape[3], q.dtype)
    out, stages = attend(q, keys, values, Scores(factor, 0.0, scores.bias(mask_index, attention_bias)))
    shown = k.cast(stages[2], DType.FLOAT) if node.outputs > 3 and attributes.output_qk else None
    return merge_heads(k.cast(out, qkv.query.dtype)), *(presents if node.outputs > 1 else (None, None)), shown


@dataclass(frozen=True)
class BlockSparseCache(ParameterGroup):
    """A shared cache, its layouts of blocks as compressed rows, and how many tokens there are."""

    past_key: Tensor
    past_value: Tensor
    block_row_indices: Tensor
    block_col_indices: Tensor
    total_sequence_length: Tensor
    key_total_sequence_lengths: Tensor


@dataclass(frozen=True)
class SparseAttributes(ParameterGroup):
    """Attributes of SparseAttention."""

    kv_num_heads: int
    num_heads: int
    sparse_block_size: int
    do_rotary: int | None = None
    rotary_interleaved: int | None = None
    scale: float | None = None


@op("SparseAttention", 1, domain=DOMAIN)
def sparse_attention(
    qkv: QueryKeyValue, cache: BlockSparseCache, tables: RotaryTables, *, attributes: SparseAttributes
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention over a shared cache, in which every head sees only the blocks of keys of its layout."""
    num_heads = attributes.num_heads
    q, key4, value4 = grouped_parts(qkv, num_heads, attributes.kv_num_heads)
    batch, steps = q.shape[0], q.shape[2]
    lengths = k.reshape(k.cast(cache.key_total_sequence_lengths, DType.INT64), (batch, 1, 1, 1))
    prompt = k.equal(k.cast(k.reshape(cache.total_sequence_length, (1, 1, 1, 1)), DType.INT64), k.size(steps))
    before = k.select(prompt, 0, lengths - k.size(steps))  # sequences of a prompt are padded on the right
    if attributes.do_rotary:
        cos, sin = tables.cos_cache, tables.sin_cache
        if cos is None or sin is None:
            raise k.DefinitionError("do_rotary needs cos_cache and sin_cache")
        places = k.iota((batch, steps), 1) + k.reshape(before, (batch, 1))
        q, key4 = (rotate_at(x, places, cos, sin, bool(attributes.rotary_interleaved)) for x in (q, key4))
    capacity, joined = cache.past_key.shape[2], ((cache.past_key, key4), (cache.past_value, value4))
    key4, value4 = (appended(old, new, before, capacity) for old, new in joined)
    seen = _layout(cache.block_row_indices, cache.block_col_indices)
    position = k.iota((1, 1, steps, 1), 2) + before
    place = k.iota((1, 1, 1, capacity), 3)
    last = k.size(seen.shape[1] - 1)
    layout = k.binary("mod", k.iota((1, num_heads, 1, 1), 1), k.size(seen.shape[0]))
    blocks = [k.minimum(k.binary("div", x, attributes.sparse_block_size), last) for x in (position, place)]
    allowed = (k.index(seen, [layout, *blocks]) > 0, place < lengths, *frontier(steps, capacity, before, True, -1, -1))
    factor = attributes.scale or default_scale(q.shape[3], q.dtype)
    out, _ = attend(q, key4, value4, Scores(factor, 0.0, None, allowed))
    return merge_heads(k.cast(out, qkv.query.dtype)), key4, value4


def _layout(rows: Tensor, columns: Tensor) -> Tensor:
    """Which blocks a layout sees, [layouts, blocks, blocks] of 0 and 1, from compressed rows [layouts, blocks + 1]."""
    layouts, blocks, entries = rows.shape[0], rows.shape[1] - 1, columns.shape[1]
    ends = k.strided_slice(rows, (0, 1), (1, 1), (layouts, blocks))
    number = k.iota((1, 1, entries), 2, rows.dtype)
    row = k.reduce_sum(k.cast(k.expand_dims(ends, [2]) <= number, DType.INT64), [1])  # rows that end before the entry
    inside = row < k.size(blocks)
    where = [k.iota((layouts, 1), 0), k.select(inside, row, 0), k.maximum(k.cast(columns, DType.INT64), 0)]
    return k.scatter(k.full((layouts, blocks, blocks), 0, DType.INT32), where, k.cast(inside, DType.INT32), "max")


# --- windows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GlobalTokens(ParameterGroup):
    """Weights of the tokens that attend to all, and which ones these are."""

    global_weight: Tensor
    global_bias: Tensor
    global_: Tensor


@op("LongformerAttention", 1, domain=DOMAIN)
def longformer_attention(
    input: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, everywhere: GlobalTokens, *, num_heads: int, window: int
) -> Tensor:
    """Tokens attend to those at most `window` away and to global ones; global tokens attend to all, by weights of their own."""
    batch, steps = input.shape[:2]
    both = (weight, bias), (everywhere.global_weight, everywhere.global_bias)
    local, globally = ([split_heads(x, num_heads) for x in _projected(input, w, b)] for w, b in both)
    keys_mask = k.reshape(k.cast(mask, local[0].dtype), (batch, 1, 1, steps))
    is_global = k.not_equal(everywhere.global_, 0)
    near = k.absolute(k.iota((1, 1, steps, 1), 2) - k.iota((1, 1, 1, steps), 3)) <= window
    allowed = near | k.reshape(is_global, (batch, 1, 1, steps))
    factor = default_scale(local[0].shape[3], local[0].dtype)
    nearby, _ = attend(local[0], local[1], local[2], Scores(factor, 0.0, keys_mask, (allowed,)))
    whole, _ = attend(globally[0], globally[1], globally[2], Scores(factor, 0.0, keys_mask))
    out = k.select(k.reshape(is_global, (batch, 1, steps, 1)), whole, nearby)
    return k.cast(merge_heads(out), input.dtype)


def _projected(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """Queries, keys and values side by side in x weight + bias, [batch, sequence, width] each."""
    flat = k.dot(widened(x), widened(weight)) + widened(bias)
    width = floordiv(weight.shape[1], 3)
    starts: list[Dim] = [0, width, width * 2]
    return [k.strided_slice(flat, (0, 0, at), (1, 1, 1), (*flat.shape[:2], width)) for at in starts]
