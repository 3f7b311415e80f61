"""Numbers looked up in tables of numbers: LabelEncoder and OneHotEncoder without strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.ops.ml.categories import TensorEncoderAttributes, mapping_of
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.providers.gpu.decompositions.registry import device_op

_STORED_EVERY = 4  # steps of a search: what is computed again in between costs less than memory


@device_op("LabelEncoder")
def label_encoder(X: Tensor, *, attributes: TensorEncoderAttributes) -> Tensor:
    """The value of each element's key, or the default; NaN is a key like any other."""
    mapping = mapping_of(attributes)
    keys, positions = mapping.table.keys, mapping.table.positions
    assert keys is not None and positions is not None
    x = X if np.array_equal(keys.astype(X.dtype.numpy), keys, equal_nan=keys.dtype.kind == "f") else k.cast(X, DType.DOUBLE)
    table = k.constant(keys.astype(x.dtype.numpy))
    at = _first_not_below(x, table, len(keys))
    known = k.take(table, at, 0)
    same = k.equal(known, x)
    if keys.dtype.kind == "f":
        same = k.binary("or", same, k.binary("and", k.unary("isnan", known), k.unary("isnan", x)))
    place = k.select(same, k.take(k.constant(positions.astype(np.int32)), at, 0), len(mapping.values) - 1)
    return k.take(k.constant(mapping.values), place, 0)


def _first_not_below(x: Tensor, table: Tensor, count: int) -> Tensor:
    """int32: where in an ascending table (NaN last) the first number is that is not less than x; the last one if there is
    none, or if x is NaN."""
    at = k.full(x.shape, 0, DType.INT32)
    for step in range((count - 1).bit_length() - 1, -1, -1):
        further = k.minimum(at + (1 << step), count - 1)
        at = k.select(k.take(table, further - 1, 0) < x, further, at)
        at = k.stored(at) if step % _STORED_EVERY == 0 and step else at
    return k.select(k.unary("isnan", x), count - 1, at) if x.dtype.is_floating else at


@device_op("OneHotEncoder")
def one_hot_encoder(X: Tensor, *, cats_int64s: Sequence[int], zeros: int = 1) -> Tensor:
    """1 at each element's category along a new last axis. Numbers are truncated to integers first; of a category that occurs
    twice the last one counts."""
    x = k.expand_dims(k.cast(X, DType.INT64), [X.rank])
    last = {number: i for i, number in enumerate(cats_int64s)}
    counts = k.constant(np.array([last[number] == i for i, number in enumerate(cats_int64s)]))
    found = k.binary("and", k.equal(x, k.constant(np.array(cats_int64s, np.int64))), counts)
    return k.cast(found, DType.FLOAT)
