"""com.microsoft: MultiHeadAttention, GroupQueryAttention, Attention with packed weights, RotaryEmbedding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Dim, dim_max, floordiv
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention_masks import MaskedScores
from intarsia.ops.contrib.quantized_kv_cache import quantised_cache
from intarsia.ops.contrib.shared_kv_cache import all_tokens, appended, filled, from_beams
from intarsia.ops.framework.operands import OMITTED, dim, widened
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, rotate, split_heads
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Tensor = k.Tensor


@op("RotaryEmbedding", since=1, domain=DOMAIN)
def rotary_embedding(
    input: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """`is_packed_batching` and `scale` count for nothing, as in onnxruntime's kernels."""
    if input.rank == 4:
        x = input
    elif num_heads:
        x = split_heads(input, num_heads)
    else:
        x = split_heads(input, floordiv(input.shape[2], cos_cache.shape[1] * 2))
    batch, steps = x.shape[0], x.shape[2]
    positions = k.cast(position_ids, DType.INT64)
    if positions.rank == 1:
        positions = k.iota((batch, steps), 1) + positions
    out = rotate_at(x, positions, cos_cache, sin_cache, bool(interleaved), rotary_embedding_dim)
    return merge_heads(out) if input.rank == 3 else out


def rotate_at(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, width: int = 0) -> Tensor:
    """`positions` [batch, sequence] into the caches [length, half]."""
    turned = [k.expand_dims(k.take(cache, positions, 0), [1]) for cache in (cos, sin)]
    return rotate(x, turned[0], turned[1], interleaved, width)


@op("MultiHeadAttention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def multi_head_attention(
    query: Tensor, key: Tensor | None = None, value: Tensor | None = None, bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None, attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, past_sequence_length: np.ndarray | None = None, cache_indirection: Tensor | None = None,
    *, mask_filter_value: float = -10000.0, num_heads: int, scale: float = 0.0, unidirectional: int = 0, node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """With `past_sequence_length` past and present share memory: a cache with room for more tokens. Of one query per row, as a
    step of a search by beams has it, `cache_indirection` says from which beam each earlier token is."""
    q, *new = _projected(query, key, value, bias, num_heads)
    has_past = past_key is not None and past_value is not None
    shared = has_past and past_sequence_length is not None
    before: Dim = past_key.shape[2] if has_past and past_key is not None else 0
    if shared and past_sequence_length is not None:
        before = dim(past_sequence_length, "past_sequence_length")
    key4, value4 = all_tokens(new, (past_key, past_value) if has_past else (None, None), before if shared else None)
    presents = (key4, value4) if node.outputs > 1 else (None, None)
    if shared:
        key4, value4 = (filled(x, before, q.shape[2]) for x in (key4, value4))
        if cache_indirection is not None:
            key4, value4 = (_of_one_query(x, cache_indirection, q.shape[2]) for x in (key4, value4))
    queries, keys = q.shape[2], key4.shape[2]
    scores = MaskedScores((*q.shape[:3], keys), before, mask_filter_value, widened(q).dtype)
    allowed = tuple(frontier(queries, keys, k.size(before), bool(unidirectional), -1, -1))
    factor = scale or default_scale(q.shape[3], q.dtype)
    out, stages = attend(q, key4, value4, Scores(factor, 0.0, scores.bias(key_padding_mask, attention_bias), allowed))
    return merge_heads(k.cast(out, query.dtype)), *presents, k.cast(stages[2], query.dtype) if node.outputs > 3 else None


def _of_one_query(x: Tensor, source: Tensor, queries: Dim) -> Tensor:
    """Tokens from the beams that `source` names, where there is one query; more are a prompt, as onnxruntime takes it."""
    if isinstance(queries, int):
        return from_beams(x, source) if queries == 1 else x
    return k.select(k.equal(k.size(queries), 1), from_beams(x, source), x)


def _projected(
    query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as [batch, heads, sequence, size], from any of the packings."""
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


@op("Attention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def packed_attention(
    input: Tensor, weights: Tensor, bias: Tensor | None = None, mask_index: Tensor | None = None, past: Tensor | None = None,
    attention_bias: Tensor | None = None, past_sequence_length: np.ndarray | None = None, *, do_rotary: int = 0,
    mask_filter_value: float = -10000.0, num_heads: int, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None, rotary_embedding_dim: int = 0, scale: float = 0.0, unidirectional: int = 0,
    node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """`past_sequence_length` counts with `past_present_share_buffer` only, that with `past`, and `rotary_embedding_dim` with
    `do_rotary`."""
    if do_rotary:
        raise k.DefinitionError("do_rotary is 1; expected 0: write MultiHeadAttention after RotaryEmbedding, which has tables")
    batch, queries = input.shape[:2]
    flat = k.dot(k.reshape(widened(input), (batch * queries, input.shape[2])), widened(weights))
    if bias is not None:
        flat = flat + widened(bias)
    projection = Projection(k.reshape(flat, (batch, queries, weights.shape[1])), num_heads, qkv_hidden_sizes)
    choice = Choice(scale, mask_filter_value, bool(unidirectional), node.outputs > 1)
    if past is None:
        earlier = None
    else:
        earlier = Earlier(past, length_of(past_sequence_length) if past_present_share_buffer else None)
    return attend_projected(projection, mask_index, earlier, attention_bias, choice, input.dtype)


@op("DecoderMaskedSelfAttention", since=1, domain=DOMAIN, values=("past_sequence_length",))
def decoder_masked_self_attention(
    input: Tensor, weights: Tensor, bias: Tensor, mask_index: Tensor | None = None, past: Tensor = OMITTED,
    attention_bias: Tensor | None = None, past_sequence_length: np.ndarray = OMITTED, beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None, *, do_rotary: int = 0, mask_filter_value: float = -10000.0, num_heads: int,
    past_present_share_buffer: int = 0, scale: float = 0.0,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Attention of one token over a cache [2, batch, heads, capacity, size], of whose beams `cache_indirection` [batch, beams,
    capacity] says from which one each earlier token is."""
    if do_rotary:
        raise k.DefinitionError("do_rotary is 1; expected 0: turn queries and keys before DecoderMaskedMultiHeadAttention")
    batch, queries = input.shape[:2]
    flat = k.dot(k.reshape(widened(input), (batch * queries, input.shape[2])), widened(weights)) + widened(bias)
    projection = Projection(k.reshape(flat, (batch, queries, weights.shape[1])), num_heads, None)
    earlier = Earlier(past, length_of(past_sequence_length) if past_present_share_buffer else None, cache_indirection)
    choice = Choice(scale, mask_filter_value, False, True)
    return attend_projected(projection, mask_index, earlier, attention_bias, choice, input.dtype)


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


@op("GroupQueryAttention", since=1, domain=DOMAIN, values=("total_sequence_length",))
def group_query_attention(
    query: Tensor, key: Tensor | None = None, value: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, seqlens_k: Tensor | None = None, total_sequence_length: np.ndarray | None = None,
    cos_cache: Tensor | None = None, sin_cache: Tensor | None = None, position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None, head_sink: Tensor | None = None,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None, q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None, query_seqlens: Tensor | None = None, *, causal: int = 1, do_rotary: int = 0,
    k_norm_epsilon: float | None = None, k_quant_type: str = "NONE", kv_cache_bit_width: int = 0, kv_num_heads: int,
    local_window_size: int = -1, num_heads: int, q_norm_epsilon: float | None = None, qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0, rotary_interleaved: int = 0, scale: float = 0.0, sliding_window_cache: int = 0,
    smooth_softmax: int = -1, softcap: float = 0.0, v_quant_type: str = "NONE", node: NodeContext,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Queries [batch, steps, heads * size] over the keys and values of `kv_num_heads` groups, which a cache keeps.

    `query_seqlens` says how many of the steps are tokens, where chunks are padded behind them. With `sliding_window_cache` the
    cache has the latest tokens only, in order (`SlidingCache`).
    """
    if query_seqlens is not None and (past_key is None or past_value is None or not causal):
        raise k.DefinitionError("GroupQueryAttention with query_seqlens needs past_key, past_value and causal 1")
    if k_quant_type != v_quant_type:
        raise k.DefinitionError(f"k_quant_type is {k_quant_type!r} and v_quant_type {v_quant_type!r}; expected the same")
    caches = None
    if k_quant_type != "NONE":
        caches = (
            quantised_cache(k_quant_type, kv_cache_bit_width, k_scale, past_key, "key"),
            quantised_cache(v_quant_type, kv_cache_bit_width, v_scale, past_value, "value"),
        )
    elif kv_cache_bit_width:
        raise k.DefinitionError(f"kv_cache_bit_width is {kv_cache_bit_width}; expected 0 where k_quant_type is 'NONE'")
    if seqlens_k is None or total_sequence_length is None:
        raise k.DefinitionError("GroupQueryAttention needs seqlens_k and total_sequence_length")
    for name, x in (("key", key), ("value", value)):
        if x is not None:
            k.require_equal(x.shape[0], query.shape[0], f"the batch of {name}, and of query")
            k.require_equal(x.shape[1], query.shape[1], f"the steps of {name}, and of query")
    inputs = GroupedInputs(
        num_heads, kv_num_heads, query, key, value, seqlens_k, dim(total_sequence_length, "total_sequence_length"), cos_cache,
        sin_cache, position_ids, bool(do_rotary), bool(rotary_interleaved),
        tuple(qk_norm_epsilon if e is None else e for e in (q_norm_epsilon, k_norm_epsilon)), query_seqlens,
        bool(sliding_window_cache),
    )  # fmt: skip
    both = q_norm_weight is not None and k_norm_weight is not None
    q = inputs.part(0, q_norm_weight if both else None)
    stored = (None, None) if caches is None else (caches[0].stored, caches[1].stored)
    pasts, weights = (past_key, past_value), (k_norm_weight if both else None, None)
    sliding = inputs.sliding(pasts, local_window_size, bool(causal) and not qk_output) if sliding_window_cache else None
    if sliding is None:
        pasts = pasts if past_key is not None and past_value is not None else (None, None)
        present = attended = [inputs.cache(1 + i, pasts[i], weights[i], stored[i]) for i in range(2)]
    else:
        attended = [sliding.joined(pasts[i], inputs.rows(1 + i, weights[i], stored[i])) for i in range(2)]
        present = [sliding.kept(t) for t in attended]
    key4, value4 = attended if caches is None else (cache.values(t) for cache, t in zip(caches, attended, strict=True))
    queries, keys = q.shape[2], key4.shape[2]
    allowed = inputs.allowed(queries, keys, bool(causal), local_window_size) if sliding is None else sliding.allowed(queries)
    sink = None
    if head_sink is not None:
        sink = k.reshape(widened(head_sink), (1, num_heads, 1, 1))
    elif smooth_softmax == 1:
        sink = k.scalar(0.0, DType.FLOAT)
    extra = attention_bias
    if extra is not None:
        extra = _over_keys(extra, keys) if sliding is None else sliding.over_keys(extra, queries)
    factor = scale or default_scale(q.shape[3], q.dtype)
    out, stages = attend(q, key4, value4, Scores(factor, softcap, extra, tuple(allowed), sink))
    shown = k.cast(stages[3 if qk_output == 2 else 2], query.dtype) if qk_output and node.outputs > 3 else None
    return merge_heads(k.cast(out, query.dtype)), *present, shown


@dataclass(frozen=True)
class GroupedInputs:
    """What GroupQueryAttention is given, and the parts that it attends with. Raises DefinitionError where rotation lacks its
    tables."""

    heads: int
    groups: int
    query: Tensor
    key: Tensor | None
    value: Tensor | None
    seqlens: Tensor
    total: Dim
    cos: Tensor | None
    sin: Tensor | None
    places: Tensor | None
    rotary: bool
    interleaved: bool
    epsilons: tuple[float, ...]  # of the norms of queries and keys
    counts: Tensor | None = None  # of tokens in this call's steps, where what is behind them is padding
    slides: bool = False

    @property
    def lengths(self) -> Tensor:
        """Tokens so far, [batch, 1, 1, 1]."""
        return k.reshape(k.cast(self.seqlens, DType.INT64) + 1, (self.query.shape[0], 1, 1, 1))

    @property
    def before(self) -> Tensor:
        """Where this call's keys start, [batch, 1, 1, 1]: in the first one at 0, however many of them are padding; in a later
        one behind those already there."""
        steps = k.size(self.query.shape[1])
        if self.counts is not None:
            return self.lengths - self._counted
        if self.slides:
            return k.maximum(self.lengths - steps, 0)
        return k.select(k.equal(k.size(self.total), steps), 0, self.lengths - steps)

    @property
    def _counted(self) -> Tensor:
        assert self.counts is not None
        return k.reshape(k.cast(self.counts, DType.INT64), (self.query.shape[0], 1, 1, 1))

    @property
    def new(self) -> Tensor:
        """How many of this call's steps are tokens, [batch, 1, 1, 1]."""
        return self._counted if self.counts is not None else k.minimum(self.lengths, k.size(self.query.shape[1]))

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
        x = grouped_parts(self.query, self.key, self.value, self.heads, self.groups)[which]
        if weight is not None:
            x = _rms_norm(x, weight, self.epsilons[which])
        if not self.rotary or which == 2:
            return x
        if self.cos is None or self.sin is None:
            raise k.DefinitionError("GroupQueryAttention with do_rotary needs cos_cache and sin_cache")
        batch, steps = x.shape[0], x.shape[2]
        places = self.places
        if places is None:
            places = k.iota((batch, steps), 1) + k.reshape(self.before, (batch, 1))
        return rotate_at(x, places, self.cos, self.sin, self.interleaved)

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


def grouped_parts(
    query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
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
