"""TfIdfVectorizer of integers: each n-gram of the pool is looked for at every place."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.ops.text.strings import NGramAttributes, checked_ngrams
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op


@device_op("TfIdfVectorizer")
def tf_idf_vectorizer(X: Tensor, *, attributes: NGramAttributes) -> Tensor:
    """Counts of the pool's n-grams in each row (TF), 0 or 1 by weight (IDF), or counts by weight (TFIDF)."""
    table, a = checked_ngrams(attributes), attributes
    length, rows = X.shape[-1], product(X.shape[:-1])
    if not isinstance(length, int):
        raise k.SymbolicValueError("the length of its rows is known only at run time")
    x, columns = k.cast(k.reshape(X, (rows, length)), DType.INT64), a.width
    out = k.full((rows, columns), 0.0, DType.FLOAT)
    for n in range(a.min_gram_length, min(a.max_gram_length, length) + 1):
        grams = {gram: at for gram, at in table.items() if len(gram) == n}
        if not grams:
            continue
        counts = _counts(x, np.array(list(grams), np.int64), length, a.max_skip_count)
        spread = np.zeros((len(grams), columns), np.float32)
        for i, at in enumerate(grams.values()):
            spread[i, a.ngram_indexes[at]] = a.weight(at)
        seen = k.cast(counts > 0 if a.mode == "IDF" else counts, DType.FLOAT)
        out = out + k.dot(seen, k.constant(spread))
    return k.reshape(out, (*X.shape[:-1], columns))


def _counts(x: Tensor, grams: np.ndarray, length: int, max_skip: int) -> Tensor:
    """How often each of the n-grams [count, n] is in each row of x, elements skipped or not: int32 [rows, count]."""
    rows, (count, n) = x.shape[0], grams.shape
    out = k.full((rows, count), 0, DType.INT32)
    for skip in range(min(max_skip, length // (n - 1)) + 1 if n > 1 else 1):
        places = length - (n - 1) * (skip + 1)
        if places <= 0:
            continue
        same: Tensor | None = None
        for i in range(n):
            element = k.strided_slice(x, [0, i * (skip + 1)], [1, 1], (rows, places))
            wanted = k.constant(np.ascontiguousarray(grams[:, i]))
            equal = k.equal(k.expand_dims(element, [1]), k.reshape(wanted, (1, count, 1)))
            same = equal if same is None else k.binary("and", same, equal)
        assert same is not None
        out = out + k.reduce_sum(k.cast(same, DType.INT32), [2])
    return out
