"""com.microsoft: tokens and n-grams: Tokenizer, WordConvEmbedding, NGramRepeatBlock, BifurcationDetector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.ops.framework.registry import host_op, op
from intarsia.ops.text.re2_match import Pattern
from intarsia.ops.text.strings import expression
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import object_array

DOMAIN = "com.microsoft"
Tensor = k.Tensor
_LONGEST = 1 << 20  # tokens that an input of unknown length has at most
_START, _END = "\x02", "\x03"


def _tokens_type(X: TensorType) -> TensorType:
    return TensorType(DType.STRING, None if X.shape is None else (*X.shape, fresh_symbol("tokens")))


@host_op("Tokenizer", 1, domain=DOMAIN, infer=_tokens_type, reason="strings are Python objects on the host")
def tokenizer(
    X: np.ndarray, *, mark: int, mincharnum: int, pad_value: str, separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> np.ndarray:  # fmt: skip
    """Tokens of each string of [C] or [N, C] along a new last axis, padded to the longest row by `pad_value`.

    They are the longest matches of `tokenexp`, or what is left between the longest ones of one separator after the other. Where
    a separator matches an empty string, as onnxruntime has it, the character behind is left out.
    """
    if X.ndim not in (1, 2):
        raise k.DefinitionError(f"X has shape {list(X.shape)}; expected [C] or [N, C]")
    if (separators is None) == (tokenexp is None):
        raise k.DefinitionError("Tokenizer needs exactly one of separators and tokenexp")
    if mincharnum < 1:
        raise k.DefinitionError(f"mincharnum is {mincharnum}; expected at least 1")
    if X.size == 0:
        return np.empty((0,) if X.ndim == 1 else (len(X), 0), object)
    split = _splitter(separators, tokenexp, mincharnum)
    rows = [split(str(s)) for s in X.ravel().tolist()]
    longest = max(map(len, rows))
    if not longest:
        return np.empty((*X.shape, 0), object)
    if mark:
        rows = [[_START, *row, _END] for row in rows]
    width = longest + 2 * bool(mark)
    padded = [row if len(row) == width else row + [pad_value] * (width - len(row)) for row in rows]
    return object_array(itertools.chain.from_iterable(padded), (*X.shape, width))


def _splitter(separators: Sequence[str] | None, tokenexp: str | None, shortest: int) -> Callable[[str], list[str]]:
    if tokenexp is not None and tokenexp != ".":
        matches = expression(tokenexp).longest_matches
        return lambda text: [text[start:end] for start, end in matches(text) if end - start >= shortest]
    if tokenexp == "." or list(separators or ()) == [""]:
        if shortest > 1:
            raise k.DefinitionError(f"mincharnum is {shortest}; tokens of single characters are never as long")
        return list
    patterns = [expression(separator) for separator in separators or ()]

    def split(text: str) -> list[str]:
        pieces = [text]
        for pattern in patterns:
            pieces = [piece for whole in pieces for piece in _between(pattern, whole) if len(piece) >= shortest]
        return pieces

    return split


def _between(separator: Pattern, text: str) -> Iterator[str]:
    begin = 0
    for start, end in separator.longest_matches(text):
        yield text[begin:start]
        begin = max(end, start + 1)
    yield text[begin:]


@op("WordConvEmbedding", 1, domain=DOMAIN)
def word_conv_embedding(
    Sequence: Tensor, W: Tensor, B: Tensor, C: Tensor, *, char_embedding_size: int | None = None,
    conv_window_size: int | None = None, embedding_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Words [.., characters] (0: none) -> [.., filters]: the largest tanh of a convolution over each word's characters.

    W is [filters, 1, window, character embedding], B [filters], C [characters, character embedding].
    """
    filters, _, window, width = W.shape
    for what, given, found in (
        ("char_embedding_size", char_embedding_size, width), ("conv_window_size", conv_window_size, window),
        ("embedding_size", embedding_size, filters),
    ):  # fmt: skip
        if given is not None:
            k.require_equal(found, given, f"{what} is {given}; the weights have {found}")
    letters = k.take(C, k.cast(Sequence, DType.INT64), 0)
    axis = Sequence.rank - 1
    k.require_least(Sequence.shape[axis], window, "the characters of each word, which a window of the convolution covers")
    view = k.windows(letters, [axis], [window], [1], [1])  # [.., places, width, window]
    places = view.shape[axis]
    columns = k.reshape(
        k.transpose(view, (*range(axis + 1), axis + 2, axis + 1)), (*Sequence.shape[:-1], places, window * width)
    )
    values = k.tanh(k.dot(columns, k.transpose(k.reshape(W, (filters, window * width)), (1, 0))) + B)
    letters_given = k.reduce_sum(k.cast(k.not_equal(Sequence, 0), DType.INT64), [axis], keepdims=True)
    whole = k.iota((*(1,) * axis, places), axis) <= k.maximum(letters_given - k.size(window), 0)
    best = k.reduce_max(k.select(k.expand_dims(whole, [-1]), values, -math.inf), [axis])
    return k.select(k.broadcast(letters_given > 0, best.shape), best, 0.0)


@op("NGramRepeatBlock", 1, domain=DOMAIN)
def ngram_repeat_block(input_ids: Tensor, scores: Tensor, *, ngram_size: int) -> Tensor:
    """Scores [batch, vocabulary], -infinity for tokens that would end an n-gram which `input_ids` [batch, length] has."""
    if ngram_size < 1:
        raise k.DefinitionError(f"ngram_size is {ngram_size}; expected at least 1")
    length = input_ids.shape[1]
    if ngram_size > (length if isinstance(length, int) else _LONGEST):
        return scores  # none fits
    batch, before = input_ids.shape[0], ngram_size - 1
    padded = k.pad(input_ids, (0, before), (0, 0), -1)  # so that there is a window for every token, and for short inputs
    grams = k.windows(padded, [1], [ngram_size], [1], [1])
    count: Dim = grams.shape[1]
    tail = k.strided_slice(k.pad(input_ids, (0, before), (0, 0), -2), (0, count), (1, 1), (batch, before))
    heads = k.strided_slice(grams, (0, 0, 0), (1, 1, 1), (batch, count, before))
    repeats = k.reduce(k.equal(heads, k.expand_dims(tail, [1])), "all", [2])
    last = k.reshape(k.strided_slice(grams, (0, 0, before), (1, 1, 1), (batch, count, 1)), (batch, count))
    barred = k.select(repeats, k.scalar(-math.inf, scores.dtype), math.inf)
    return k.scatter(scores, [k.iota((batch, 1), 0), k.wrap_indices(last, scores.shape[1])], barred, "min")


def _bifurcation_types(
    src_tokens: TensorType, cur_tokens: TensorType, *rest: TensorType | None, max_ngram_size: int = 3, min_ngram_size: int = 1
) -> tuple[TensorType, ...]:  # fmt: skip
    if not 1 <= min_ngram_size <= max_ngram_size:
        given = f"min_ngram_size is {min_ngram_size}, max_ngram_size {max_ngram_size}"
        raise k.DefinitionError(f"{given}; expected a shortest suffix of at least 1 token, and a longest one of at least that")
    return TensorType(DType.INT64, (fresh_symbol("tokens"),)), TensorType(DType.INT64, ())


@host_op("BifurcationDetector", 1, domain=DOMAIN, infer=_bifurcation_types, reason="how many tokens there are depends on data")
def bifurcation_detector(
    src_tokens: np.ndarray, cur_tokens: np.ndarray, prev_suffix_match_idx: np.ndarray, pred_tokens: np.ndarray | None = None, *,
    max_ngram_size: int = 3, min_ngram_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Decoded tokens with those predicted up to the first that is not in the source, and where their suffix lies there.

    `pred_tokens` are the predictions for the source's tokens from `prev_suffix_match_idx` on and one more.
    """
    tokens, source = cur_tokens.reshape(-1), src_tokens.reshape(-1)
    if pred_tokens is not None:
        start = int(np.asarray(prev_suffix_match_idx).reshape(-1)[0])
        expected = source[start:]
        predicted = pred_tokens.reshape(-1)
        if len(predicted) != len(expected) + 1:
            raise k.DefinitionError(
                f"pred_tokens has {len(predicted)} tokens; expected {len(expected) + 1}, as the source has {len(expected)} "
                f"from {start} on"
            )
        differs = np.flatnonzero(predicted[:-1] != expected)
        agreed = int(differs[0]) if len(differs) else len(expected)
        tokens = np.concatenate([tokens, predicted[: agreed + 1]])
    return tokens, np.array(_suffix_match(source, tokens, min_ngram_size, max_ngram_size), np.int64)


def _suffix_match(source: np.ndarray, tokens: np.ndarray, shortest: int, longest: int) -> int:
    """Where the source goes on after the only place at which it has the last n tokens, or -1; n grows from `shortest`."""
    found = -1
    for n in range(shortest, longest + 1):
        if n > len(tokens) or n > len(source):
            break
        suffix = tokens[len(tokens) - n :]
        starts = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(source, n) == suffix).all(1))
        if not len(starts):
            break
        if starts[0] + n >= len(source):
            break
        found = int(starts[0]) + n
        if len(starts) == 1:
            return found
        found = -1
    return found
