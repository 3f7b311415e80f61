"""com.microsoft: MultiHeadAttention, Attention with packed weights, RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import Dim, floordiv
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.attention.attention_masks import MaskedScores
from intarsia.ops.contrib.attention.shared_kv_cache import all_tokens, filled, from_beams
from intarsia.ops.framework.operands import OMITTED, dim, widened
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.nn.attention import Scores, attend, default_scale, frontier, merge_heads, rotate, split_heads
from intarsia.ops.nn.attention_operands import (
    AttentionAttributes,
    PastKeyValue,
    QueryKeyValue,
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
    caches, (key, value) = (new, new) if earlier is None else earlier.joined(new)
    keys = key.shape[2]
    scores = MaskedScores((*q.shape[:3], keys), before, choice.penalty, q.dtype)
    allowed = tuple(frontier(q.shape[2], keys, k.size(before), choice.causal, -1, -1))
    factor = choice.scale or default_scale(q.shape[3], q.dtype)
    out, _ = attend(q, key, value, Scores(factor, 0.0, scores.bias(mask, bias), allowed))
    present = k.cast(k.concat([k.expand_dims(t, [0]) for t in caches], 0), dtype) if choice.wants_present else None
    return merge_heads(k.cast(out, dtype)), present
