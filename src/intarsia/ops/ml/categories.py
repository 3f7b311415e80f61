"""Categories looked up in tables: LabelEncoder, CategoryMapper, OneHotEncoder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.ml import DOMAIN
from intarsia.ops.ml.prepared import prepared
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import object_array

_REASON = "looks up each element in a table"

_INT64 = np.dtype(np.int64)
_NOWHERE = np.int64(-1).tobytes()
_OTHERS, _LONGEST = 1024, 64  # words that are no keys, of so many characters at most, that a table keeps


class _Words(dict[str, Any]):
    """By word its entry, for others a default; what is no `str` stands for the word that it is written as.

    Some of the other words are stored too, since to find one that is there takes a fraction of the time.
    """

    def __init__(self, entries: Iterable[tuple[str, Any]], default: Any) -> None:
        super().__init__(entries)
        self.default, self.most = default, len(self) + _OTHERS

    def __missing__(self, word: object) -> Any:
        if not isinstance(word, str):
            return self[str(word)]
        if len(self) < self.most and len(word) <= _LONGEST:
            self[str(word)] = self.default
        return self.default

    def of(self, words: list[Any], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """The entries of many words: objects, or the bytes of numbers of type `dtype`, which joined are an array."""
        if dtype.hasobject:
            return object_array(map(self.__getitem__, words), shape)
        found = np.frombuffer(bytearray().join(map(self.__getitem__, words)), dtype, len(words))
        return found if len(shape) == 1 else found.reshape(shape)


class _Known(_Words):
    """Words of which there are no others."""

    def __missing__(self, word: object) -> Any:
        if not isinstance(word, str):
            return self[str(word)]
        raise k.DefinitionError(f"{word!r} is none of the {self.most - _OTHERS} categories, and zeros is 0")


def word_places(words: Sequence[str], *, known: bool) -> dict[str, Any]:
    """By word the bytes of its place among `words`, the last of equal ones, an int64; of others -1, or an error if `known`."""
    places = ((word, np.int64(at).tobytes()) for at, word in enumerate(words))
    return (_Known if known else _Words)(places, _NOWHERE)


Elements = Sequence[Any] | np.ndarray


def _strings(items: Elements) -> np.ndarray:
    out = np.empty(len(items), object)
    out[:] = list(items)
    return out


@dataclass(frozen=True)
class Table:
    """Keys to positions; of a key that occurs twice the last one counts.

    Attributes:
        words: positions of string keys, or None.
        keys: numeric keys in ascending order (NaN last), or None.
        positions: those of `keys`.
    """

    words: dict[str, int] | None = None
    keys: np.ndarray | None = None
    positions: np.ndarray | None = None

    @classmethod
    def of(cls, keys: Elements) -> Table:
        array = np.asarray(keys)
        if array.dtype.kind in "OUS":
            return cls(words={str(key): i for i, key in enumerate(keys)})
        unique, last = np.unique(array[::-1], return_index=True)
        return cls(keys=unique, positions=len(array) - 1 - last)

    @functools.cached_property
    def _places(self) -> _Words:
        return _Words(((word, np.int64(at).tobytes()) for word, at in (self.words or {}).items()), _NOWHERE)

    def find(self, x: np.ndarray) -> np.ndarray:
        """Positions of the elements of `x`, in one dimension; -1 where there is none."""
        flat = x.reshape(-1)
        if self.words is not None:
            return self._places.of(flat.tolist(), _INT64, flat.shape)
        assert self.keys is not None and self.positions is not None
        if not len(self.keys):
            return np.full(flat.size, -1)
        at = np.minimum(np.searchsorted(self.keys, flat), len(self.keys) - 1)
        known = self.keys[at]
        same = known == flat
        if flat.dtype.kind == "f":
            same |= np.isnan(known) & np.isnan(flat)
        return np.where(same, self.positions[at], -1)


@dataclass(frozen=True)
class Mapping:
    """A table and the values of its keys; the last value is for elements that have none."""

    table: Table
    values: np.ndarray

    def apply(self, x: np.ndarray) -> np.ndarray:
        if self.table.words is not None:
            return self._entries.of(x.reshape(-1).tolist(), self.values.dtype, x.shape)
        found: np.ndarray = self.values[self.table.find(x)].reshape(x.shape)
        return found

    @functools.cached_property
    def _entries(self) -> _Words:
        """The values of words."""
        entries = [v if self.values.dtype == object else v.tobytes() for v in self.values]
        return _Words(((word, entries[at]) for word, at in (self.table.words or {}).items()), entries[-1])


def _with_default(values: Elements, default: Any, dtype: Any) -> np.ndarray:
    if dtype is object:
        return _strings([*(str(v) for v in values), str(default)])
    return np.array([*values, default], dtype)


# --- LabelEncoder --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attributes:
    """LabelEncoder's attributes from version 2 on; those that were given."""

    keys: dict[str, Elements]
    values: dict[str, Elements]
    defaults: dict[str, Any]

    def chosen(self) -> tuple[Elements, Elements, Any, Any]:
        """Keys, values, default value and NumPy type of the values."""
        (_, keys), (kind, values) = (
            self._one(f"{what}_*", given) for what, given in (("keys", self.keys), ("values", self.values))
        )
        if len(keys) != len(values):
            raise k.DefinitionError(f"keys_* has {len(keys)} elements and values_* {len(values)}; expected as many")
        default = self.defaults[kind]
        if kind == "tensor":
            dtype = np.asarray(values).dtype
            default = np.asarray(default).reshape(-1)[0] if default is not None else _DEFAULTS[dtype.kind]
            return np.asarray(keys).reshape(-1), np.asarray(values).reshape(-1), default, dtype
        return keys, values, default, {"strings": object, "int64s": np.int64, "floats": np.float32}[kind]

    @staticmethod
    def _one(what: str, given: dict[str, Elements]) -> tuple[str, Elements]:
        found = [(kind, v) for kind, v in given.items() if v is not None and len(v)]
        if len(found) != 1:
            names = ", ".join(kind for kind, _ in found) or "none"
            raise k.DefinitionError(f"expected exactly one of {what}, got {names}")
        return found[0]


_DEFAULTS: dict[str, Any] = {"i": -1, "u": -1, "f": -0.0, "O": "_Unused", "U": "_Unused"}


def _attributes(
    keys: tuple[Elements | None, ...], values: tuple[Elements | None, ...], defaults: tuple[Any, ...]
) -> _Attributes:
    kinds = ("strings", "int64s", "floats", "tensor")
    return _Attributes(
        {kind: v for kind, v in zip(kinds, keys, strict=True) if v is not None},
        {kind: v for kind, v in zip(kinds, values, strict=True) if v is not None},
        dict(zip(kinds, defaults, strict=True)),
    )


@prepared
def _mapping(*given: Any) -> Mapping:
    keys, values, default, dtype = _attributes(given[:4], given[4:8], given[8:]).chosen()
    kind = np.dtype(dtype).kind
    return Mapping(Table.of(keys), _with_default(values, default, object if kind in "OUS" else dtype))


@dataclass(frozen=True)
class EncoderAttributes(ParameterGroup):
    """Keys, values and the default value, of which a LabelEncoder has one kind each."""

    keys_strings: Sequence[str] | None = None
    keys_int64s: Sequence[int] | None = None
    keys_floats: Sequence[float] | None = None
    values_strings: Sequence[str] | None = None
    values_int64s: Sequence[int] | None = None
    values_floats: Sequence[float] | None = None
    default_string: str = "_Unused"
    default_int64: int = -1
    default_float: float = -0.0

    @property
    def tensors(self) -> tuple[np.ndarray | None, ...]:
        """Keys, values and the default value that are tensors."""
        return None, None, None


@dataclass(frozen=True)
class TensorEncoderAttributes(EncoderAttributes):
    """Those of version 4, which may be tensors."""

    keys_tensor: np.ndarray | None = None
    values_tensor: np.ndarray | None = None
    default_tensor: np.ndarray | None = None

    @property
    def tensors(self) -> tuple[np.ndarray | None, ...]:
        return self.keys_tensor, self.values_tensor, self.default_tensor


def mapping_of(attributes: EncoderAttributes) -> Mapping:
    """What a LabelEncoder (from version 2 on) of these attributes looks up.

    Raises:
        DefinitionError: keys or values are given twice or not at all, or differ in number.
    """
    a = attributes
    keys, values, default = a.tensors
    return _mapping(
        a.keys_strings, a.keys_int64s, a.keys_floats, keys, a.values_strings, a.values_int64s, a.values_floats, values,
        a.default_string, a.default_int64, a.default_float, default,
    )  # fmt: skip


def _encoder_type(X: TensorType, *, attributes: TensorEncoderAttributes) -> TensorType:
    keys_tensor, values_tensor = attributes.keys_tensor, attributes.values_tensor
    values_strings, values_int64s = attributes.values_strings, attributes.values_int64s
    numbers = bool(attributes.keys_int64s or attributes.keys_floats)
    numbers = numbers or (keys_tensor is not None and np.asarray(keys_tensor).dtype.kind not in "OUS")
    if X.dtype is DType.STRING and numbers:
        raise k.DefinitionError("X is string where the keys are numbers; expected keys_strings, or numbers to look up")
    if values_tensor is not None and len(values_tensor):
        kind = np.asarray(values_tensor).dtype
        return TensorType(DType.STRING if kind.kind in "OUS" else DType.of(kind), X.shape)
    return TensorType(DType.STRING if values_strings else DType.INT64 if values_int64s else DType.FLOAT, X.shape)


def _encoder(*, attributes: TensorEncoderAttributes) -> Callable[[np.ndarray], np.ndarray]:
    return mapping_of(attributes).apply


@host_op("LabelEncoder", 2, domain=DOMAIN, infer=_encoder_type, reason=_REASON, bind=_encoder)
def label_encoder_2(X: np.ndarray, *, attributes: EncoderAttributes) -> np.ndarray:
    """The value of each element's key, or the default; NaN is a key like any other."""
    return mapping_of(attributes).apply(X)


@host_op("LabelEncoder", 4, domain=DOMAIN, infer=_encoder_type, reason=_REASON, bind=_encoder)
def label_encoder(X: np.ndarray, *, attributes: TensorEncoderAttributes) -> np.ndarray:
    """The value of each element's key, or the default; keys and values may be tensors too."""
    return mapping_of(attributes).apply(X)


def _other_type(X: TensorType) -> TensorType:
    return TensorType(DType.INT64 if X.dtype is DType.STRING else DType.STRING, X.shape)


def _both_ways(
    strings: Sequence[str], numbers: Sequence[int], default_string: str, default_int64: int
) -> tuple[Mapping, Mapping]:
    """From strings to numbers, and back."""
    return (
        Mapping(Table.of(_strings(strings)), _with_default(numbers, default_int64, np.int64)),
        Mapping(Table.of(np.array(numbers, np.int64)), _with_default(strings, default_string, object)),
    )


@host_op("LabelEncoder", 1, domain=DOMAIN, infer=_other_type, reason=_REASON)
def label_encoder_1(
    X: np.ndarray, *, classes_strings: Sequence[str] | None = None, default_string: str = "_Unused", default_int64: int = -1
) -> np.ndarray:
    """From strings to their places in `classes_strings`, or back."""
    to_numbers, to_strings = _places(classes_strings, default_string, default_int64)
    return (to_numbers if X.dtype.kind in "OUS" else to_strings).apply(X)


_numbered = prepared(_both_ways)


@prepared
def _places(strings: Sequence[str] | None, default_string: str, default_int64: int) -> tuple[Mapping, Mapping]:
    return _both_ways(strings or [], range(len(strings or [])), default_string, default_int64)


@host_op("CategoryMapper", 1, domain=DOMAIN, infer=_other_type, reason="words are Python objects on the host")
def category_mapper(
    X: np.ndarray, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None,
    default_int64: int = -1, default_string: str = "_Unused",
) -> np.ndarray:  # fmt: skip
    """From strings to the integers at the same place, or back."""
    if len(cats_int64s or ()) != len(cats_strings or ()):
        raise k.DefinitionError(
            f"cats_int64s has {len(cats_int64s or ())} elements and cats_strings {len(cats_strings or ())}; expected as many"
        )
    to_numbers, to_strings = _numbered(cats_strings or [], cats_int64s or [], default_string, default_int64)
    return (to_numbers if X.dtype.kind in "OUS" else to_strings).apply(X)


# --- OneHotEncoder -------------------------------------------------------------------------------------------------


def _one_hot_type(
    X: TensorType, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None
) -> TensorType:
    return TensorType(DType.FLOAT, None if X.shape is None else (*X.shape, len(cats_int64s or cats_strings or ())))


@prepared
def _categories(ints: Sequence[int] | None, strings: Sequence[str] | None) -> Table:
    if bool(ints) == bool(strings):
        raise k.DefinitionError("expected exactly one of cats_int64s and cats_strings")
    return Table.of(np.array(ints, np.int64) if ints else _strings(strings or []))


@host_op(
    "OneHotEncoder", 1, domain=DOMAIN, infer=_one_hot_type, reason="looks up each element in a table; some may be errors"
)  # fmt: skip
def one_hot_encoder(
    X: np.ndarray, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None, zeros: int = 1
) -> np.ndarray:
    """1 at each element's category along a new last axis. Numbers are truncated to integers first."""
    table = _categories(cats_int64s, cats_strings)
    text = X.dtype.kind in "OUS"
    if text != (table.words is not None):
        raise k.DefinitionError(f"X holds {'strings' if text else 'numbers'}, the categories do not")
    with np.errstate(invalid="ignore"):
        at = table.find(X if text else X.astype(np.int64))
    known = at >= 0
    if not zeros and not known.all():
        item = X.reshape(-1)[int(np.argmin(known)) :].tolist()[0]
        raise k.DefinitionError(f"{item!r} is none of the {len(cats_int64s or cats_strings or ())} categories, and zeros is 0")
    out = np.zeros((X.size, len(cats_int64s or cats_strings or ())), np.float32)
    out[np.flatnonzero(known), at[known]] = 1.0
    return out.reshape(*X.shape, out.shape[1])
