"""com.microsoft: hashes of n-grams of tokens, in batches and in sequences one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.ragged_sequences import Capture, spans_of
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.primitives import lang as k

DOMAIN = "com.microsoft"
Array = np.ndarray
_REASON = "where a sequence of the pack begins is data"


@dataclass(frozen=True)
class _Hashes:
    """What makes hashes of the n-grams, n from 2 to `longest`, that end at a token: n products joined by xor, then their
    remainder by every head's number of entries."""

    longest: int
    heads: int
    factors: Array
    entries: Array
    offsets: Array | None
    pad: int
    end: int | None
    resets: bool

    def __post_init__(self) -> None:
        if self.longest < 2 or self.heads < 1:
            raise k.DefinitionError(
                f"max_ngram_size is {self.longest}, n_head_per_ngram {self.heads}; expected at least 2 and 1"
            )
        wanted = (self.longest - 1) * self.heads
        if self.entries.size != wanted or self.factors.size < self.longest:
            raise k.DefinitionError(
                f"there are {self.entries.size} vocab_sizes and {self.factors.size} multipliers; expected {wanted} and "
                f"{self.longest} at least"
            )
        if (self.entries <= 0).any():
            raise k.DefinitionError("vocab_sizes has numbers that are not above 0")

    @property
    def missing(self) -> int:
        """What stands for a token before the first."""
        return self.pad if self.end is None else self.end

    def of(self, whole: Array, segments: Array | None) -> Array:
        """Hashes [steps, heads of all n] of the tokens behind the first `longest` - 1; `segments` of all tokens."""
        before, kind = self.longest - 1, whole.dtype
        place = np.arange(before, len(whole))
        begin = np.zeros(len(whole), np.int64)  # the first token that each may look back to
        if self.resets and self.end is not None:
            begin[1:] = np.where(whole[:-1] == self.end, np.arange(1, len(whole)), 0)
        if segments is not None:
            begin[1:] = np.maximum(begin[1:], np.where(segments[1:] != segments[:-1], np.arange(1, len(whole)), 0))
        begin = np.maximum.accumulate(begin)[before:]
        mixed = whole[place] * self.factors[0]
        found = []
        for n in range(1, self.longest):
            token = np.where(place - n >= begin, whole[place - n], np.array(self.missing, kind))
            mixed = mixed ^ (token * self.factors[n])
            found.append(mixed[:, None] % self.entries[(n - 1) * self.heads : n * self.heads])
        out = np.concatenate(found, 1)
        return out if self.offsets is None else out + self.offsets


@dataclass(frozen=True)
class HashTables(ParameterGroup):
    """Factors of the tokens, and the number of entries of each head."""

    multipliers: Array
    vocab_sizes: Array


@dataclass(frozen=True)
class HashContext(ParameterGroup):
    """Tokens of earlier calls, what is added to each head's hashes, the token that ends a text, and each token's segment."""

    past_ids: Array | None = None
    head_offsets: Array | None = None
    eos_token_id: Array | None = None
    segment_ids: Array | None = None


@dataclass(frozen=True)
class HashAttributes(ParameterGroup):
    """Sizes of the n-grams, hashes of each, and what stands before the first token."""

    max_ngram_size: int
    n_head_per_ngram: int
    pad_id: int
    reset_on_eos: int = 0


@dataclass(frozen=True)
class PackedHashAttributes(HashAttributes):
    """Those of hashes, and how many first steps of each sequence are handed on."""

    state_update_capacity: int = 0


def _hashed(x: Array, tables: HashTables, context: HashContext, attributes: HashAttributes) -> _Hashes:
    factors, entries = (a.reshape(-1).astype(x.dtype) for a in (tables.multipliers, tables.vocab_sizes))
    offsets, end = context.head_offsets, context.eos_token_id
    added, last = None if offsets is None else offsets.reshape(-1), None if end is None else int(end.reshape(-1)[0])
    return _Hashes(
        attributes.max_ngram_size, attributes.n_head_per_ngram, factors, entries, added, attributes.pad_id, last,
        bool(attributes.reset_on_eos),
    )  # fmt: skip


def _hash_types(
    input_ids: TensorType, *rest: TensorType | None, max_ngram_size: int, n_head_per_ngram: int, **_: object
) -> tuple[TensorType, TensorType]:
    shape, before = input_ids.shape, max_ngram_size - 1
    if shape is None:
        return input_ids, input_ids
    return TensorType(input_ids.dtype, (*shape, before * n_head_per_ngram)), TensorType(input_ids.dtype, (shape[0], before))


@host_op("NGramHashMapping", 1, domain=DOMAIN, infer=_hash_types, reason="its integers wrap around")
@np.errstate(over="ignore")
def ngram_hash_mapping(
    input_ids: Array, tables: HashTables, context: HashContext, *, attributes: HashAttributes
) -> tuple[Array, Array]:
    """Hashes [batch, steps, heads] of the n-grams that end at each token of input_ids [batch, steps], and the last tokens."""
    hashes, segment_ids = _hashed(input_ids, tables, context, attributes), context.segment_ids
    whole = np.concatenate([_past(context.past_ids, len(input_ids), hashes, input_ids), input_ids], 1)
    before = attributes.max_ngram_size - 1
    found = []
    for row, tokens in enumerate(whole):
        segments = None
        if segment_ids is not None:  # those of earlier calls are not known: they belong to the first one's
            segments = np.concatenate([np.repeat(segment_ids[row, :1], before), segment_ids[row]])
        found.append(hashes.of(tokens, segments))
    shape = (*input_ids.shape, before * attributes.n_head_per_ngram)
    return np.array(found, input_ids.dtype).reshape(shape), whole[:, whole.shape[1] - before :]


def _past(past: Array | None, batch: int, hashes: _Hashes, like: Array) -> Array:
    shape = (batch, hashes.longest - 1)
    if past is None:
        return np.full(shape, hashes.missing, like.dtype)
    if past.shape != shape:
        raise k.DefinitionError(f"past_ids is {list(past.shape)}; expected {list(shape)}")
    return past


def _packed_hash_types(
    input_ids: TensorType, multipliers: TensorType, vocab_sizes: TensorType, cumulative_sequence_length: TensorType,
    *rest: object, attributes: PackedHashAttributes,
) -> tuple[TensorType, ...]:  # fmt: skip
    bounds, before, kind = cumulative_sequence_length.shape, attributes.max_ngram_size - 1, input_ids.dtype
    batch = None if bounds is None else bounds[0] - 1
    hashes = None if input_ids.shape is None else (product(input_ids.shape), before * attributes.n_head_per_ngram)
    each: Sequence[Any] = ((batch, before), (batch, before), (batch, attributes.state_update_capacity, before))
    kinds = (kind, DType.INT32, kind)
    return TensorType(kind, hashes), *(TensorType(t, None if batch is None else s) for t, s in zip(kinds, each, strict=True))


@host_op("VarlenNGramHashMapping", 1, domain=DOMAIN, infer=_packed_hash_types, reason=_REASON)
@np.errstate(over="ignore")
def varlen_ngram_hash_mapping(
    input_ids: Array, tables: HashTables, cumulative_sequence_length: Array, context: HashContext,
    past_segment_ids: Array | None = None, capture_count: Array | None = None, *, attributes: PackedHashAttributes,
) -> tuple[Array, ...]:  # fmt: skip
    """NGramHashMapping of every sequence in input_ids [tokens]."""
    hashes, segment_ids = _hashed(input_ids, tables, context, attributes), context.segment_ids
    spans, before = spans_of(cumulative_sequence_length, len(input_ids)), attributes.max_ngram_size - 1
    capacity, pasts = attributes.state_update_capacity, _past(context.past_ids, len(spans), hashes, input_ids)
    capture = Capture(capacity, capture_count)
    out = np.empty((len(input_ids), before * attributes.n_head_per_ngram), input_ids.dtype)
    present, present_segments = np.empty_like(pasts), np.zeros(pasts.shape, np.int32)
    update = np.full((len(spans), capacity, before), attributes.pad_id, input_ids.dtype)
    for b, span in enumerate(spans):
        whole, steps = np.concatenate([pasts[b], input_ids[span]]), span.stop - span.start
        segments = None
        if segment_ids is not None:
            own = segment_ids[span]
            earlier = np.repeat(own[:1], before) if past_segment_ids is None else past_segment_ids[b]
            segments = np.concatenate([earlier, own])
            present_segments[b] = segments[steps:]
        out[span], present[b] = hashes.of(whole, segments), whole[steps:]
        for i in range(capture.of(b, steps)):
            update[b, i] = whole[i + 1 : i + 1 + before]
    return out, present, present_segments, update
