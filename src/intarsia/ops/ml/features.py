"""Feature preparation that is regular arithmetic: Binarizer, Scaler, Normalizer, Imputer, and the arranging of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.registry import op
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.scores import real, rows
from intarsia.primitives import lang as k

Tensor = k.Tensor


@op("Binarizer", 1, domain=DOMAIN)
def binarizer(X: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 where X > threshold, else 0. Integers are compared with the threshold rounded down, which is the same."""
    limit = math.floor(threshold) if X.dtype.is_integer else threshold
    return k.cast(limit < X, X.dtype)


def _per_feature(values: Sequence[float], X: Tensor, dtype: DType, what: str) -> Tensor:
    """An attribute of one value, or one per feature (the last axis), for broadcasting with X."""
    features = X.shape[-1] if X.rank else 1
    if len(values) == 1:
        return k.scalar(values[0], dtype)
    if isinstance(features, int) and len(values) != features:
        raise k.DefinitionError(f"{what} has {len(values)} values; expected 1, or one for each of {features} features")
    return k.constant(np.array(values, dtype.numpy))


@op("Scaler", 1, domain=DOMAIN)
def scaler(X: Tensor, *, scale: Sequence[float] | None = None, offset: Sequence[float] | None = None) -> Tensor:
    """(X - offset) * scale, as float32."""
    out = real(X)
    if offset:
        out = out - _per_feature(offset, X, out.dtype, "offset")
    if scale:
        out = out * _per_feature(scale, X, out.dtype, "scale")
    return k.cast(out, DType.FLOAT)


@op("Normalizer", 1, domain=DOMAIN)
def normalizer(X: Tensor, *, norm: str = "MAX") -> Tensor:
    """Each row divided by its highest value, sum of magnitudes or Euclidean length; rows whose divisor is 0 stay."""
    if X.rank not in (1, 2):
        raise k.DefinitionError(f"X has rank {X.rank}; expected [N, C] or [C]")
    wide = real(X)
    if norm == "MAX":
        divisor = k.reduce_max(wide, [-1], keepdims=True)
    elif norm == "L1":
        divisor = k.reduce_sum(k.absolute(wide), [-1], keepdims=True)
    elif norm == "L2":
        divisor = k.sqrt(k.reduce_sum(wide * wide, [-1], keepdims=True))
    else:
        raise k.DefinitionError(f"norm is {norm!r}; expected MAX, L1 or L2")
    return k.cast(wide / k.select(k.equal(divisor, 0.0), 1.0, divisor), DType.FLOAT)


@op("Imputer", 1, domain=DOMAIN)
def imputer(
    X: Tensor, *, imputed_value_floats: Sequence[float] | None = None, imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    """X with one value (which may be NaN) replaced, by the same value everywhere or by one per feature."""
    integer = X.dtype.is_integer
    values: Sequence[float] | None = imputed_value_int64s if integer else imputed_value_floats
    if not values:
        name = "imputed_value_int64s" if integer else "imputed_value_floats"
        raise k.DefinitionError(f"{name} is missing; it is needed for X of type {X.dtype.onnx_name}")
    if not integer and math.isnan(replaced_value_float):
        missing = k.unary("isnan", X)
    else:
        missing = k.equal(X, replaced_value_int64 if integer else replaced_value_float)
    return k.select(missing, _per_feature(values, X, X.dtype, "the imputed values"), X)


@op("ArrayFeatureExtractor", 1, domain=DOMAIN)
def array_feature_extractor(X: Tensor, Y: Tensor) -> Tensor:
    """The columns Y of X along its last axis; a vector counts as one row."""
    if not X.rank:
        raise k.DefinitionError("X is a scalar; expected a tensor with a last axis to select from")
    data = rows(X) if X.rank == 1 else X
    return k.take(data, k.reshape(Y, (product(Y.shape),)), -1)


@op("FeatureVectorizer", 1, domain=DOMAIN)
def feature_vectorizer(*X: Tensor, inputdimensions: Sequence[int] | None = None) -> Tensor:
    """Columns of all inputs side by side, as float32; each input cut or padded with zeros to its entry in the attribute."""
    if not X:
        raise k.DefinitionError("FeatureVectorizer has no inputs; expected at least one")
    if inputdimensions and len(inputdimensions) != len(X):
        raise k.DefinitionError(f"inputdimensions has {len(inputdimensions)} entries for {len(X)} inputs")
    parts = [k.cast(rows(x), DType.FLOAT) for x in X]
    return k.concat([_of_width(p, w) for p, w in zip(parts, inputdimensions, strict=True)] if inputdimensions else parts, 1)


def _of_width(x: Tensor, width: int) -> Tensor:
    have = x.shape[1]
    if not isinstance(have, int):
        raise k.SymbolicValueError("an input's number of columns is known only at run time")
    if have >= width:
        return k.strided_slice(x, [0, 0], [1, 1], [x.shape[0], width])
    return k.pad(x, [0, 0], [0, width - have], 0.0)
