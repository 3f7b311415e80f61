"""Maps (Python dicts): CastMap, DictVectorizer, ZipMap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import MapType, SequenceType, TensorType, ValueType
from intarsia.ops.framework.registry import host_op
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.prepared import prepared
from intarsia.ops.ml.scores import Classes
from intarsia.primitives import lang as k

_VECTOR_VALUES = (DType.INT64, DType.FLOAT, DType.DOUBLE, DType.STRING)
_REASON = "maps are dicts on the host"
_TYPES = {"TO_FLOAT": DType.FLOAT, "TO_STRING": DType.STRING, "TO_INT64": DType.INT64}


def _cast_type(X: ValueType, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> TensorType:
    width: Dim = max_map if map_form == "SPARSE" else fresh_symbol("entries")
    return TensorType(_target(cast_to), (1, width))


def _target(cast_to: str) -> DType:
    if cast_to not in _TYPES:
        raise k.DefinitionError(f"cast_to is {cast_to!r}; expected TO_FLOAT, TO_STRING or TO_INT64")
    return _TYPES[cast_to]


def _cast(value: Any, dtype: DType) -> Any:
    if dtype is DType.STRING:
        return value if isinstance(value, str) else f"{float(value):f}"
    number = float(value)
    if dtype is DType.FLOAT:
        return number
    return int(number) if -(2.0**63) <= number < 2.0**63 else -(2**63)  # as Cast has it


@host_op("CastMap", 1, domain=DOMAIN, infer=_cast_type, reason=_REASON)
def cast_map(X: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> np.ndarray:
    """Values in ascending order of their keys, [1, entries] (DENSE), or at their keys, [1, max_map] (SPARSE), where keys beyond
    have no place."""
    dtype = _target(cast_to)
    if map_form == "DENSE":
        return np.array([[_cast(X[key], dtype) for key in sorted(X)]], dtype.numpy).reshape(1, -1)
    if map_form != "SPARSE":
        raise k.DefinitionError(f"map_form is {map_form!r}; expected DENSE or SPARSE")
    out = np.full((1, max_map), "0" if dtype is DType.STRING else 0, dtype.numpy)
    for key, value in X.items():
        if key < 0:
            raise k.DefinitionError(f"the map has the key {key}; expected keys of 0 or more where map_form is SPARSE")
        if key < max_map:
            out[0, key] = _cast(value, dtype)
    return out


def _vector_type(
    X: ValueType, *, int64_vocabulary: Sequence[int] | None = None, string_vocabulary: Sequence[str] | None = None
) -> TensorType:
    rows: Dim = 1
    kind: ValueType | None = X
    if isinstance(kind, SequenceType):
        rows, kind = fresh_symbol("maps"), kind.element
    value = kind.value if isinstance(kind, MapType) else None
    dtype = value.dtype if isinstance(value, TensorType) else DType.FLOAT
    if isinstance(kind, MapType) and dtype not in _VECTOR_VALUES:
        raise k.DefinitionError(f"X is {kind.onnx_name}; expected a map to int64, float, double or string")
    return TensorType(dtype, (rows, len(int64_vocabulary or string_vocabulary or ())))


@prepared
def _columns(ints: Sequence[int] | None, strings: Sequence[str] | None) -> tuple[dict[Any, int], np.ndarray | None]:
    """Key -> the number of its column among different keys; and where keys come again, the numbers of all columns."""
    if bool(ints) == bool(strings):
        raise k.DefinitionError("expected exactly one of int64_vocabulary and string_vocabulary")
    keys = ints or strings or ()
    columns = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return columns, None if len(columns) == len(keys) else np.array([columns[key] for key in keys])


@host_op("DictVectorizer", 1, domain=DOMAIN, infer=_vector_type, reason=_REASON)
def dict_vectorizer(
    X: Mapping[Any, Any] | Sequence[Mapping[Any, Any]], *, int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> np.ndarray:  # fmt: skip
    """A row per map: each value in the column of its key, zeros (empty strings) elsewhere. Keys outside the vocabulary, which
    a vectoriser did not see when it was fitted, have no column."""
    columns, again = _columns(int64_vocabulary, string_vocabulary)
    maps = [X] if isinstance(X, Mapping) else list(X)
    dtype = _value_type(next((v for m in maps for v in m.values()), 0.0))
    out = np.full((len(maps), len(columns)), "" if dtype is object else 0, dtype)
    for row, entries in zip(out, maps, strict=True):
        for key, value in entries.items():
            column = columns.get(key)
            if column is not None:
                row[column] = value
    return out if again is None else out[:, again]


def _value_type(value: Any) -> Any:
    """Element type of a map's values; Python's own numbers stand for float32 and int64."""
    if isinstance(value, (np.generic, np.ndarray)):
        return object if value.dtype.kind in "OUS" else value.dtype
    return object if isinstance(value, str) else np.int64 if isinstance(value, int) else np.float32


def _zip_type(
    X: TensorType, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
) -> SequenceType:
    keys = Classes.of(classlabels_int64s, classlabels_strings)
    return SequenceType(MapType(keys.dtype, TensorType(DType.FLOAT, ())))


@host_op("ZipMap", 1, domain=DOMAIN, infer=_zip_type, reason=_REASON)
def zip_map(
    X: np.ndarray, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
) -> list[dict[Any, float]]:
    """A map per row: class label to the value in its column."""
    keys = Classes.of(classlabels_int64s, classlabels_strings).labels
    rows = np.atleast_2d(X)
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise k.DefinitionError(f"X has shape {list(X.shape)}; expected {len(keys)} columns, one for each key")
    return _maps(keys, rows)


def _maps(keys: tuple[Any, ...], rows: np.ndarray) -> list[dict[Any, float]]:
    """A dict per row. Dicts of two and three keys, which classifiers mostly give, are written out: that is thrice as fast."""
    columns = [rows[:, i].tolist() for i in range(len(keys))] if len(keys) in (2, 3) else []
    if len(keys) == 2:
        first, second = keys
        return [{first: a, second: b} for a, b in zip(*columns, strict=True)]
    if len(keys) == 3:
        first, second, third = keys
        return [{first: a, second: b, third: c} for a, b, c in zip(*columns, strict=True)]
    return list(map(dict, map(zip, itertools.repeat(keys), rows.tolist())))
