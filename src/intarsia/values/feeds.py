"""From what callers give to what programs take: names, element types, ranks and sizes checked; C-contiguous native arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.ep.program import Awaits, FeedCall
from intarsia.errors import IntarsiaError, InvalidArgument, OutOfMemory, WrongType, crashed, nearest
from intarsia.graph.dims import Expr, format_shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import MapType, OptionalType, SequenceType, TensorType, Value, ValueType
from intarsia.machine.resources import fits, in_mib, refused
from intarsia.providers.fallback import as_onnxruntime
from intarsia.values.interop import column_array, host_array, named_feed

_KNOWN_SHAPES = 1024  # combinations of input shapes that are remembered as valid

_NO = object()  # the answer of a taker to what is not its own

_Taker = Callable[[Any], Any]
_Slot = tuple[str, np.dtype | None, _Taker]
_Expected = tuple[int | str | None, ...]  # a tensor's sizes: numbers, names, and None for what may be any


def _is_ort_value(kind: type) -> bool:
    """By name, since values are imported after feeds, if at all."""
    return kind.__name__ == "OrtValue" and kind.__module__ == "intarsia.values.ort_value"


def _in_ort_value(value: Any) -> Any:
    """What an OrtValue holds; anything else as it is."""
    return value._value if _is_ort_value(type(value)) else value


def out_of_ort_values(feed: Any) -> dict[str, Any] | None:
    """A dict of OrtValues as one of what they hold; None for any other feed."""
    if type(feed) is not dict or not feed:
        return None
    kind = type(next(iter(feed.values())))
    if kind is np.ndarray or not _is_ort_value(kind):
        return None
    return {name: value._value if type(value) is kind else value for name, value in feed.items()}


def fast_calls(call: FeedCall | None) -> tuple[FeedCall, ...]:
    """The ways to call a native function of a feed, as `Runnable.fast_calls`: with the feed, and with what its OrtValues
    hold."""
    if call is None:
        return ()

    def with_ort_values(feed: dict[str, Any]) -> list[Any] | None:
        held = out_of_ort_values(feed)
        return None if held is None else call(held)

    return call, with_ort_values


def _are_awaited(shapes: tuple[tuple[int, ...] | None, ...], awaits: Awaits) -> bool:
    """What `Program.awaits` says of shapes.

    Raises:
        EPFail: it crashed.
    """
    try:
        return awaits(shapes)
    except IntarsiaError:
        raise
    except Exception as error:
        raise crashed("", f"when it was asked about inputs of shapes {shapes}", error) from error


class SizesDiffer(InvalidArgument):
    """Inputs give one symbol of the model's shapes two sizes."""


_TENSORS = (np.ndarray, DeviceTensor)
_OBJECT = np.dtype(object)


class FeedReader:
    """Reads the feed of a run into one value per model input, in the model's order."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = tuple(values)
        self._slots: list[_Slot] = [(v.name, _plain_dtype(v.type), _taker(v.type)) for v in values]
        shapes: dict[object, _Expected | None] = {}
        self._shapes = [shapes.setdefault(s, s) for s in (_plain_shape(v.type) for v in values)]  # equal ones are one object
        self._alike = _alike(self._shapes)
        self._count = len(self._slots)
        self._known: set[tuple[tuple[int, ...] | None, ...]] = set()

    def quick(self, feed: Mapping[str, Any], awaits: Awaits | None = None) -> list[Any] | None:
        """The inputs, where they need no conversion and have the sizes that are expected; else None. `awaits`: of the model."""
        if len(feed) != self._count:
            return None
        inputs = []
        shapes = []
        for name, dtype, take in self._slots:
            value = feed.get(name)
            if type(value) is np.ndarray and value.dtype is dtype and value.flags.carray:
                inputs.append(value)
                shapes.append(value.shape)
                continue
            value = take(value)
            if value is _NO or (value is None and name not in feed):
                return None
            inputs.append(value)
            shapes.append(value.shape if type(value) is np.ndarray else None)
        key = tuple(shapes)
        if key not in self._known and not (awaits is not None and _are_awaited(key, awaits)):
            if not self._fit(key):
                return None
            self._remember(key)
        return inputs

    def read(self, feed: Mapping[str, Any]) -> list[Any]:
        """The inputs, converted and checked.

        Raises:
            InvalidArgument: an input is missing, not known, or of another type, rank or size; the message names the input,
                what was expected and what was given.
        """
        if not isinstance(feed, Mapping):
            feed = named_feed(feed, self.values)
        names = [v.name for v in self.values]
        wrong = [name for name in feed if not isinstance(name, str)]
        if wrong:
            raise WrongType(f"input_feed: expected names of inputs as keys, got {wrong[0]!r} ({type(wrong[0]).__name__})")
        missing = [v.name for v in self.values if v.name not in feed and not isinstance(v.type, OptionalType)]
        if missing:
            raise InvalidArgument(missing_inputs(missing, feed, [(v.name, str(v.type)) for v in self.values]))
        for name in feed:
            if name not in names:
                raise InvalidArgument(f"Invalid input name: {name}; {nearest(name, names)}")
        given = [converted(column_array(feed.get(v.name), v), v.type, f"input {v.name!r}") for v in self.values]
        inputs = [_without_axes(x, v.type) for x, v in zip(given, self.values, strict=True)]
        shapes = tuple([x.shape if isinstance(x, _TENSORS) else None for x in inputs])
        if not self._fit(shapes):
            self._check_sizes(inputs)
        self._remember(shapes)
        return inputs

    def _remember(self, shapes: tuple[tuple[int, ...] | None, ...]) -> None:
        if len(self._known) >= _KNOWN_SHAPES:
            self._known.clear()
        self._known.add(shapes)

    def _check_sizes(self, inputs: Sequence[Any]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for value, array in zip(self.values, inputs, strict=True):
            kind = _tensor_type(value.type)
            if kind is not None and kind.shape is not None and isinstance(array, _TENSORS):
                check_shape(array.shape, kind, f"input {value.name!r}", sizes)

    def _fit(self, shapes: tuple[tuple[int, ...] | None, ...]) -> bool:
        """Whether all sizes are as expected (None: of what is no tensor); where not, `check_shape` says what is wrong."""
        sizes: dict[str, int] = {}
        for first, end, expected in self._alike:
            shape = shapes[first]
            if end - first == 1 or shapes[first:end].count(shape) == end - first:
                if shape is not None and not _fits(shape, expected, sizes):
                    return False
            elif not all(shape is None or _fits(shape, expected, sizes) for shape in shapes[first:end]):
                return False
        return True


def missing_inputs(missing: Sequence[str], feed: Mapping[str, Any], declared: Sequence[tuple[str, str]]) -> str:
    """The message for a feed without inputs of these names; it begins as onnxruntime's.

    Args:
        missing: required inputs that the feed lacks.
        feed: what was given.
        declared: the model's inputs and their types.
    """
    names = [name for name, _ in declared]
    unknown = ", ".join(repr(name) for name in feed if name not in names)
    inputs = ", ".join(f"{name} {kind}" for name, kind in declared[:_SHOWN])
    more = f" and {len(declared) - _SHOWN} more" if len(declared) > _SHOWN else ""
    wrong = f" The model has no input {unknown}." if unknown else ""
    return f"Required inputs ({list(missing)}) are missing from input feed ({list(feed)}).{wrong} Its inputs: {inputs}{more}"


_SHOWN = 8  # inputs in a message


def _fits(shape: tuple[int, ...], expected: _Expected, sizes: dict[str, int]) -> bool:
    """Whether a shape is as expected where symbols have these `sizes`, to which it adds."""
    if len(shape) != len(expected):
        return False
    for given, size in zip(shape, expected, strict=True):
        if size is not None and given != (sizes.setdefault(size, given) if isinstance(size, str) else size):
            return False
    return True


def _alike(shapes: Sequence[_Expected | None]) -> list[tuple[int, int, _Expected]]:
    """First and end of inputs beside each other of which the same shape is expected, as of the caches of a decoder."""
    found: list[tuple[int, int, _Expected]] = []
    for i, expected in enumerate(shapes):
        if expected is None:
            continue
        if found and found[-1][1:] == (i, expected):
            found[-1] = found[-1][0], i + 1, expected
        else:
            found.append((i, i + 1, expected))
    return found


def _plain_shape(kind: ValueType | None) -> _Expected | None:
    """What is expected of a tensor's shape, or an optional one's; None where that may be any, or it is no tensor."""
    kind = _tensor_type(kind)
    if kind is None or kind.shape is None:
        return None
    return tuple(d if isinstance(d, int) else str(d) if _is_name(d) else None for d in kind.shape)


def _tensor_type(kind: ValueType | None) -> TensorType | None:
    """The type of a tensor, or of one that may be left out."""
    kind = kind.element if isinstance(kind, OptionalType) else kind
    return kind if isinstance(kind, TensorType) else None


def _without_axes(value: Any, kind: ValueType | None) -> Any:
    """One element with axes as the scalar that the model declares: onnxruntime takes it, and programs give rates so."""
    scalar = isinstance(kind, TensorType) and kind.shape == () and isinstance(value, np.ndarray) and value.size == 1
    return value.reshape(()) if scalar else value


def check_shape(shape: tuple[int, ...], expected: TensorType, where: str, sizes: dict[str, tuple[int, str]]) -> None:
    """Raise InvalidArgument where `shape` is not of the expected type; `sizes` collects symbols (size, where first seen)."""
    assert expected.shape is not None
    if len(shape) != len(expected.shape):
        raise InvalidArgument(
            f"Invalid rank for input: {_bare(where)} Got: {len(shape)} Expected: {len(expected.shape)}: the shape is "
            f"{list(shape)}, the model's is {format_shape(expected.shape)}. Please fix either the inputs/outputs or the model."
        )
    wrong = [
        f" index: {axis} Got: {given} Expected: {dim}"
        for axis, (given, dim) in enumerate(zip(shape, expected.shape, strict=True))
        if isinstance(dim, int) and given != dim
    ]
    if wrong:
        raise InvalidArgument(
            f"Got invalid dimensions for input: {_bare(where)} for the following indices\n"
            + "\n".join(wrong)
            + f"\n Please fix either the inputs/outputs or the model: the shape is {list(shape)}, "
            + f"the model's is {format_shape(expected.shape)}."
        )
    for axis, (given, dim) in enumerate(zip(shape, expected.shape, strict=True)):
        if isinstance(dim, Expr) and _is_name(dim):
            here = f"dimension {axis} of {where}"
            first, place = sizes.setdefault(str(dim), (given, here))
            if first != given:
                raise SizesDiffer(f"the size {str(dim)!r} is {first} in {place} and {given} in {here}; expected one size")


def _bare(where: str) -> str:
    """The name in "input 'name'"."""
    return where.removeprefix("input ").strip("'\"")


def _is_name(dim: Expr) -> bool:
    return dim.symbols == {str(dim)}


def _plain_dtype(kind: ValueType | None) -> np.dtype | None:
    """The NumPy dtype of inputs that can be taken as they are; None where every value has to be looked at."""
    plain = isinstance(kind, TensorType) and kind.dtype not in (DType.STRING, DType.UNDEFINED)
    return kind.dtype.numpy if plain and isinstance(kind, TensorType) else None


def _taker(kind: ValueType | None) -> _Taker:
    """A function of one value of this type: the value as `converted` would give it, where nothing has to be converted, and
    `_NO` where that has to look at it."""
    if isinstance(kind, OptionalType):
        return partial(_take_optional, _taker(kind.element))
    if isinstance(kind, SequenceType):
        return partial(_take_sequence, _plain_dtype(kind.element), _taker(kind.element))
    if isinstance(kind, MapType):
        return partial(_take_map, kind)
    if not isinstance(kind, TensorType) or kind.dtype is DType.UNDEFINED:
        return lambda value: _NO
    return _take_strings if kind.dtype is DType.STRING else partial(_take_array, kind.dtype.numpy)


def _take_array(dtype: np.dtype, value: Any) -> Any:
    if type(value) is not np.ndarray:
        value = _in_ort_value(value)
    if type(value) is not np.ndarray or (value.dtype is not dtype and value.dtype != dtype):
        return _NO
    flags = value.flags
    return value if flags.c_contiguous and flags.aligned else _NO


def _take_strings(value: Any) -> Any:
    if type(value) is not np.ndarray:
        value = _in_ort_value(value)
    if type(value) is not np.ndarray or value.dtype is not _OBJECT or not value.flags.c_contiguous:
        return _NO
    if value.size == 1:
        return value if isinstance(value.item(), str) else _NO
    return value if _are_strings(value.ravel().tolist()) else _NO


def _take_sequence(dtype: np.dtype | None, take: _Taker, value: Any) -> Any:
    if type(value) is not list:
        value = _in_ort_value(value)
    if type(value) is not list:
        return _NO
    taken = []
    for element in value:
        if type(element) is not np.ndarray or element.dtype is not dtype or not element.flags.carray:
            element = take(element)
            if element is _NO:
                return _NO
        taken.append(element)
    return taken


def _take_map(kind: MapType, value: Any) -> Any:
    value = _in_ort_value(value)
    if type(value) is not dict:
        return _NO
    try:
        return converted(value, kind, "")
    except InvalidArgument:
        return _NO


def _take_optional(take: _Taker, value: Any) -> Any:
    value = _in_ort_value(value)
    return None if value is None else take(value)


def _are_strings(items: list[Any]) -> bool:
    """Whether all are `str`."""
    try:
        "".join(items)  # the quickest look at all types
    except TypeError:
        return False
    return True


def converted(value: Any, kind: ValueType | None, where: str) -> Any:
    """`value` as a program takes it: a C-contiguous native array, a list of values, a dict, or None for an optional.

    Arrays must have the expected element type already; Python numbers and lists are converted where nothing is lost.

    Raises:
        InvalidArgument: the value does not fit the type.
    """
    value = _unwrapped(value, where)
    if isinstance(kind, OptionalType):
        return None if value is None else converted(value, kind.element, where)
    if value is None:
        raise InvalidArgument(f"{where}: expected {_described(kind)}, got None")
    if isinstance(kind, SequenceType):
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
            raise InvalidArgument(f"{where}: expected a list for {_described(kind)}, got {type(value).__name__}")
        return [converted(element, kind.element, f"{where}[{i}]") for i, element in enumerate(value)]
    if isinstance(kind, MapType):
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{where}: expected a dict for {_described(kind)}, got {type(value).__name__}")
        return {_map_key(k, kind, where): _map_value(v, kind.value, f"{where}[{k!r}]") for k, v in value.items()}
    if isinstance(value, DeviceTensor):
        return _on_device(value, kind, where)
    if kind is None or kind.dtype is DType.UNDEFINED:
        return _contiguous(_any_array(value, where), where)
    return _tensor(value, kind, where)


def _on_device(value: DeviceTensor, kind: ValueType | None, where: str) -> DeviceTensor:
    """A tensor that is in a device's memory already, of the expected type."""
    if isinstance(kind, TensorType) and kind.dtype not in (DType.UNDEFINED, value.dtype):
        raise InvalidArgument(
            f"{where}: Unexpected input data type. Actual: (tensor({value.dtype.onnx_name})) , "
            f"expected: (tensor({kind.dtype.onnx_name})), and the tensor is on {value.device}"
        )
    return value


def _map_key(key: Any, kind: MapType, where: str) -> Any:
    """A map's key as the model has it: a `str` or an integer."""
    if kind.key is DType.STRING:
        fits = isinstance(key, (str, np.str_))
    else:
        fits = isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_))
    if not fits:
        raise InvalidArgument(
            f"{where}: Unexpected key type  {type(key)}, it cannot be linked to C type "
            f"{'std::string' if kind.key is DType.STRING else 'int64_t'}: key {key!r} of a {kind.onnx_name}"
        )
    return str(key) if kind.key is DType.STRING else int(key)


def _map_value(value: Any, kind: ValueType | None, where: str) -> Any:
    """A map's value as a scalar of its element type; strings stay."""
    if not isinstance(kind, TensorType) or kind.dtype is DType.STRING:
        return value
    if type(value) is float and kind.dtype in (DType.FLOAT, DType.DOUBLE):
        return kind.dtype.numpy.type(value)
    if isinstance(value, (str, bytes)):
        raise InvalidArgument(f"{where}: Unexpected value type  {type(value)}, expected {kind.onnx_name}, got {value!r}")
    found = converted(value, TensorType(kind.dtype), where)
    if found.size != 1:
        raise InvalidArgument(f"{where}: expected one number, got {found.size}")
    return found.reshape(-1)[0]


def _unwrapped(value: Any, where: str) -> Any:
    if isinstance(value, (np.ndarray, list, tuple, int, float, str, type(None), np.generic, DeviceTensor)):
        return value
    if hasattr(value, "_host_value"):
        host: Any = value._host_value()
        return host
    return host_array(value, where)


def _tensor(value: Any, kind: TensorType, where: str) -> np.ndarray:
    if kind.dtype is DType.STRING:
        return strings(value, where)
    expected = kind.dtype.numpy
    if not isinstance(value, np.ndarray):
        return _from_python(value, kind, where)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidArgument(
            f"{where}: the array has {int(np.ma.getmaskarray(value).sum())} masked values, which a tensor cannot hold; "
            "give them values by .filled(...)"
        )
    if value.dtype != expected:
        native = value.dtype.newbyteorder("=")
        if native != expected:
            raise InvalidArgument(
                f"{where}: Unexpected input data type. Actual: ({_onnx_name(value.dtype, value)}) , "
                f"expected: (tensor({kind.dtype.onnx_name})); convert it with .astype({expected.name!r})"
            )
        value = checked_copy(value, where).astype(native)
    value = _contiguous(value, where)
    same: np.ndarray = value if value.dtype is expected else value.view(expected)
    return same


def _any_array(value: Any, where: str) -> np.ndarray:
    """What is given to an input without a type."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{where}: the model says no type, and {type(value).__name__} is no array: {error}") from error


def _contiguous(value: np.ndarray, where: str) -> np.ndarray:
    """The elements C-contiguous and aligned: `value` itself where they are, or a copy.

    Raises:
        OutOfMemory: a copy needs more than there is.
    """
    plain = value if type(value) is np.ndarray else value.view(np.ndarray)
    if plain.flags.c_contiguous and plain.flags.aligned:
        return plain
    try:
        return np.array(checked_copy(plain, where), order="C", copy=True)
    except MemoryError as error:
        raise OutOfMemory(f"{where}: a view that does not lie in one piece has to be copied: {error}") from error


def checked_copy(value: np.ndarray, where: str) -> np.ndarray:
    """The array, which is to be copied: a view may repeat its elements as often as it says, and a system that promises more
    memory than it has ends the process that fills it.

    Raises:
        OutOfMemory: the machine does not have so much memory.
    """
    if not fits(value.nbytes):
        raise OutOfMemory(
            f"{where}: a view that does not lie in one piece has to be copied: {in_mib(value.nbytes)}, {refused(value.nbytes)}"
        )
    return value


def _from_python(value: Any, kind: TensorType, where: str) -> np.ndarray:
    """A Python number or nested list in the model's element type, where every number can be written in it."""
    expected = kind.dtype.numpy
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"{where}: expected an array for {_described(kind)}, got a list that is none: {error}") from error
    if kind.dtype.is_floating or kind.dtype.is_complex:
        fits = raw.dtype.kind in ("biufc" if kind.dtype.is_complex else "biuf") or raw.dtype == expected
    else:
        fits = raw.dtype.kind in "biu" or raw.dtype == expected
    if not fits and raw.size:
        raise InvalidArgument(
            f"{where}: expected values for {_described(kind)}, got {_named(raw.dtype)} values: {_short(value)}"
        )
    result = raw.astype(expected)
    wrapped = (raw < 0).any() and kind.dtype.is_unsigned_integer if raw.dtype.kind == "i" else False
    if wrapped or (kind.dtype.is_integer and raw.dtype.kind in "iu" and not np.array_equal(result.astype(raw.dtype), raw)):
        raise InvalidArgument(f"{where}: {_short(value)} does not fit {_described(kind)}")
    return result


def strings(value: Any, where: str) -> np.ndarray:
    """An object array of `str`; bytes are decoded as UTF-8, elements of NumPy's void type with the zeros at their end. Other
    objects become their `str` only where Intarsia stands in for onnxruntime, which does that.

    Raises:
        InvalidArgument: other elements, or bytes that are not UTF-8.
    """
    array = checked_copy(value, where) if isinstance(value, np.ndarray) else np.asarray(value, dtype=object)
    if array.dtype.kind in "UT":
        return np.array(array, dtype=object, order="C")
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize:
        whole = np.empty(array.shape, dtype=object)
        whole.reshape(-1)[:] = [element.tobytes() for element in array.reshape(-1)]  # tolist() drops zeros at their ends
        array = whole
    if array.dtype.kind not in "SO":
        raise InvalidArgument(f"{where}: expected strings for tensor(string), got {_named(array.dtype)}")
    items = array.reshape(-1).tolist()
    if _are_strings(items):
        return np.array(array, dtype=object, order="C")
    out = np.empty(array.shape, dtype=object)
    flat = out.reshape(-1)
    for i, element in enumerate(items):
        if isinstance(element, bytes):
            try:
                element = element.decode()
            except UnicodeDecodeError as error:
                raise InvalidArgument(f"{where}: element {i} is not UTF-8: {error}") from error
        if not isinstance(element, str):
            if not as_onnxruntime():
                raise InvalidArgument(
                    f"{where}: expected strings for tensor(string), got {type(element).__name__} at element {i}"
                )
            element = str(element)
        flat[i] = element
    return out


def _described(kind: ValueType | None) -> str:
    return f"{kind.onnx_name if kind is not None else 'a value'}"


def _named(dtype: np.dtype) -> str:
    try:
        return f"{dtype.name} (tensor({DType.of(dtype.newbyteorder('=')).onnx_name}))"
    except TypeError:
        return dtype.name


def _onnx_name(dtype: np.dtype, value: np.ndarray | None = None) -> str:
    if value is not None and dtype.hasobject and value.size and not isinstance(value.item(0), (str, bytes)):
        return f"Python objects such as {type(value.item(0)).__name__}"
    try:
        return f"tensor({DType.of(dtype.newbyteorder('=')).onnx_name})"
    except TypeError:
        return dtype.name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
