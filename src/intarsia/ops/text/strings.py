"""Strings, n-gram counts, encoded images."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from intarsia.graph.broadcasting import broadcast_shapes
from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.text.re2_match import Pattern, compiled
from intarsia.ops.text.re2_syntax import PatternError
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import object_array

_REASON = "strings are Python objects on the host"


_WORTH_SORTING_OUT = 16  # strings, from which on it is looked whether most of them occur more than once


def _repeated(items: list[str]) -> dict[str, int] | None:
    """The different strings, numbered, where most of many occur more than once; then work is done once for each of them."""
    if len(items) < _WORTH_SORTING_OUT:
        return None
    different = set(items)
    return dict(zip(different, range(len(different)), strict=True)) if 2 * len(different) <= len(items) else None


def _concat_type(X: TensorType, Y: TensorType) -> TensorType:
    return TensorType(DType.STRING, None if X.shape is None or Y.shape is None else broadcast_shapes(X.shape, Y.shape))


@host_op("StringConcat", since=20, infer=_concat_type, reason=_REASON)
def string_concat(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Element-wise, with broadcasting."""
    return np.asarray(X.astype(object) + Y.astype(object), object)


def _split_type(X: TensorType) -> tuple[TensorType, TensorType]:
    shape = None if X.shape is None else (*X.shape, fresh_symbol("pieces"))
    return TensorType(DType.STRING, shape), TensorType(DType.INT64, X.shape)


@host_op("StringSplit", since=20, infer=_split_type, reason=_REASON)
def string_split(X: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of each string along a new last axis, padded with empty strings, and how many there are."""
    items, separator, limit = X.ravel().tolist(), delimiter or None, -1 if maxsplit is None else maxsplit
    numbers = _repeated(items)
    pieces = [s.split(separator, limit) for s in (items if numbers is None else numbers)]
    counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
    widths = set(map(len, pieces))
    width = max(widths, default=0)
    if len(widths) > 1:
        pieces = [row + [""] * (width - len(row)) for row in pieces]
    table = object_array(chain.from_iterable(pieces), (len(pieces), width))
    if numbers is not None:
        rows = np.fromiter(map(numbers.__getitem__, items), np.intp, len(items))
        table, counts = table[rows], counts[rows]
    return table.reshape(*X.shape, width), counts.reshape(X.shape)


def _match_type(X: TensorType, *, pattern: str) -> TensorType:
    expression(pattern)
    return TensorType(DType.BOOL, X.shape)


def expression(pattern: str) -> Pattern:
    """`re2.compiled`, whose errors are those of definitions."""
    try:
        return compiled(pattern)
    except PatternError as error:
        raise k.DefinitionError(str(error)) from None


def _matcher(pattern: str) -> Callable[[np.ndarray], np.ndarray]:
    match = expression(pattern).fullmatch

    def matches(X: np.ndarray) -> np.ndarray:
        items = X.ravel().tolist()
        numbers = _repeated(items)
        if numbers is None:
            return np.fromiter(map(match, items), np.bool_, len(items)).reshape(X.shape)
        matched = {s: bool(match(s)) for s in numbers}
        return np.fromiter(map(matched.__getitem__, items), np.bool_, len(items)).reshape(X.shape)

    return matches


@host_op(
    "RegexFullMatch", since=20, infer=_match_type, reason=_REASON, bind=lambda *, pattern: _matcher(pattern)
)  # fmt: skip
def regex_full_match(X: np.ndarray, *, pattern: str) -> np.ndarray:
    """Whether the whole string matches `pattern`, in RE2's syntax (see `re2`)."""
    return _matcher(pattern)(X)


_CHANGES: dict[str, Callable[[str], str] | None] = {"NONE": None, "LOWER": str.lower, "UPPER": str.upper}


def _normalizer_type(X: TensorType) -> TensorType:
    if X.shape is None:
        return TensorType(DType.STRING)
    return TensorType(DType.STRING, (*X.shape[:-1], fresh_symbol("kept")))


@host_op("StringNormalizer", since=10, infer=_normalizer_type, reason=_REASON)
def string_normalizer(
    X: np.ndarray, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "",
    stopwords: Sequence[str] | None = None,
) -> np.ndarray:  # fmt: skip
    """Strings of a [C] or [1, C] tensor without stop words, in lower or upper case."""
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[0] != 1):
        raise k.DefinitionError(f"X has shape {list(X.shape)}; expected [C] or [1, C]")
    if case_change_action not in _CHANGES:
        raise k.DefinitionError(f"case_change_action is {case_change_action!r}; expected NONE, LOWER or UPPER")
    words = X.ravel().tolist()
    if stopwords:
        fold: Callable[[str], str] = str if is_case_sensitive else str.lower
        dropped = {fold(w) for w in stopwords}
        words = [s for s in words if fold(s) not in dropped]
    words = words or [""]
    change = _CHANGES[case_change_action]
    return object_array(words if change is None else map(change, words), (*X.shape[:-1], len(words)))


@dataclass(frozen=True)
class NGramAttributes(ParameterGroup):
    """A pool of n-grams, where each counts and with which weight, and which n-grams of a row are looked for."""

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: Sequence[int]
    ngram_indexes: Sequence[int]
    pool_int64s: Sequence[int] | None = None
    pool_strings: Sequence[str] | None = None
    weights: Sequence[float] | None = None

    @property
    def width(self) -> int:
        """Places of a row's counts."""
        return max(self.ngram_indexes, default=-1) + 1

    def weight(self, at: int) -> float:
        """Of the n-gram of this number."""
        return self.weights[at] if self.weights and self.mode != "TF" else 1.0


def checked_ngrams(attributes: NGramAttributes) -> dict[tuple[Any, ...], int]:
    """`ngrams_of` the pool. Raises DefinitionError where the attributes do not fit together."""
    mode, weights, ngram_indexes = attributes.mode, attributes.weights, attributes.ngram_indexes
    min_gram_length, max_gram_length = attributes.min_gram_length, attributes.max_gram_length
    if mode not in ("TF", "IDF", "TFIDF"):
        raise k.DefinitionError(f"mode is {mode!r}; expected TF, IDF or TFIDF")
    pool: Sequence[Any] | None = attributes.pool_strings or attributes.pool_int64s
    if not pool:
        raise k.DefinitionError("TfIdfVectorizer needs pool_strings or pool_int64s")
    if not 1 <= min_gram_length <= max_gram_length:
        given = f"min_gram_length is {min_gram_length}, max_gram_length {max_gram_length}"
        raise k.DefinitionError(f"{given}; expected a shortest length of at least 1, and a longest one of at least that")
    if attributes.max_skip_count < 0:
        raise k.DefinitionError(f"max_skip_count is {attributes.max_skip_count}; expected at least 0")
    table = ngrams_of(pool, attributes.ngram_counts)
    least = min(ngram_indexes, default=0)
    if len(ngram_indexes) < len(table) or least < 0:
        given = f"{len(ngram_indexes)} ngram_indexes from {least} on"
        raise k.DefinitionError(f"{given}; expected one of at least 0 for each of {len(table)} n-grams")
    if weights and len(weights) != len(ngram_indexes):
        raise k.DefinitionError(f"{len(weights)} weights; expected one for each of {len(ngram_indexes)} ngram_indexes, or none")
    return table


def _tfidf_type(X: TensorType, *, attributes: NGramAttributes) -> TensorType:
    checked_ngrams(attributes)
    shape: tuple[Dim, ...] | None = None if X.shape is None else (*X.shape[:-1], attributes.width)
    return TensorType(DType.FLOAT, shape)


@host_op(
    "TfIdfVectorizer",
    since=9,
    infer=_tfidf_type,
    reason="its numbers are not int32 or int64, or n-grams have a place in common in mode IDF",
)
def tf_idf_vectorizer(X: np.ndarray, *, attributes: NGramAttributes) -> np.ndarray:
    """Counts of the pool's n-grams in each row (TF), 0 or 1 by weight (IDF), or counts by weight (TFIDF)."""
    table, binary = checked_ngrams(attributes), attributes.mode == "IDF"
    lengths = attributes.min_gram_length, attributes.max_gram_length, attributes.max_skip_count
    out = np.zeros((*X.shape[:-1], attributes.width), np.float32)
    rows = math.prod(X.shape[:-1])
    for row, target in zip(X.reshape(rows, X.shape[-1]), out.reshape(rows, out.shape[-1]), strict=True):
        for gram, count in _count(list(row), *lengths).items():
            if gram in table:
                at = table[gram]
                target[attributes.ngram_indexes[at]] += (1.0 if binary else count) * attributes.weight(at)
    return out


def ngrams_of(pool: Sequence[Any], starts: Sequence[int]) -> dict[tuple[Any, ...], int]:
    """n-gram -> its number; the n-grams of length n lie from starts[n - 1] on.

    Raises:
        DefinitionError: there is no whole number of one length, or one comes twice, as onnxruntime has it: numbers are those of
            `ngram_indexes`, without gaps.
    """
    table: dict[tuple[Any, ...], int] = {}
    for n, start in enumerate(starts, 1):
        end = starts[n] if n < len(starts) else len(pool)
        if not 0 <= start <= end <= len(pool):
            raise k.DefinitionError(f"ngram_counts is {list(starts)}; expected ascending starts in a pool of {len(pool)}")
        if (end - start) % n:
            raise k.DefinitionError(f"the pool has {end - start} elements of n-grams of length {n}; expected a multiple")
        for i in range(start, end, n):
            number = len(table)
            if table.setdefault(tuple(pool[i : i + n]), number) != number:
                raise k.DefinitionError(f"the n-gram {list(pool[i : i + n])} is twice in the pool; expected it once")
    return table


def _count(items: list[Any], shortest: int, longest: int, max_skip: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(max(shortest, 1), min(longest, len(items)) + 1):
        for skip in range(min(max_skip, len(items) // (n - 1)) + 1 if n > 1 else 1):
            span = (n - 1) * (skip + 1)
            found.update(tuple(items[i : i + span + 1 : skip + 1]) for i in range(len(items) - span))
    return found


def _image_type(encoded_stream: TensorType, *, pixel_format: str = "RGB") -> TensorType:
    channels = 1 if pixel_format == "Grayscale" else 3
    return TensorType(DType.UINT8, (fresh_symbol("height"), fresh_symbol("width"), channels))


@host_op("ImageDecoder", since=20, infer=_image_type, reason="image formats are decoded by Pillow on the host")
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """[height, width, channels]; an empty array where the stream cannot be decoded."""
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise k.DefinitionError(f"pixel_format is {pixel_format!r}; expected RGB, BGR or Grayscale")
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise k.DefinitionError("ImageDecoder needs Pillow: pip install pillow") from None
    try:
        image = Image.open(io.BytesIO(np.asarray(encoded_stream, np.uint8).tobytes()))
        pixels = np.asarray(image.convert("L" if pixel_format == "Grayscale" else "RGB"), np.uint8)
    except (UnidentifiedImageError, OSError):
        return np.zeros((0, 0, 1 if pixel_format == "Grayscale" else 3), np.uint8)
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels
