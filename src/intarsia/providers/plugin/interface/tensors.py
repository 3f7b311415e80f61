"""OrtValue and what describes types: tensors whose fields native code reads, sequences, and the entries for both.

A value's handle is the address of a struct, so that a run needs no Python to answer where a tensor's elements are
(`native_entries`). The struct, the sizes and the elements live as long as the `OrtValue` does.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.tensor_proto import pack_bits, unpack_bits
from intarsia.graph.model import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from intarsia.plan.array_address import address_of
from intarsia.providers.plugin.interface.element_types import element_number, element_type
from intarsia.providers.plugin.interface.handles import HostObject, checked, find, give, numbers, put, put_array, texts
from intarsia.providers.plugin.interface.hardware import HOST_MEMORY, MemoryInfo
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.native_structs import INFO_MARK, VALUE_MARK, InfoFields, ValueFields

UNKNOWN, TENSOR, SEQUENCE, MAP, OPAQUE, SPARSE, OPTIONAL = range(7)
"""ONNXType."""
_KINDS = ((SparseTensorType, SPARSE), (TensorType, TENSOR), (SequenceType, SEQUENCE), (OptionalType, OPTIONAL), (MapType, MAP))
UNDEFINED, FLOAT6E2M3, FLOAT6E3M2 = DType.UNDEFINED, DType.FLOAT6E2M3, DType.FLOAT6E3M2


class OrtValue(HostObject):
    """A value that a plugin reads or writes.

    Attributes:
        content: the array, list of values, or whatever owns the elements.
        memory: where they are.
    """

    def __init__(self, kind: int, content: Any, memory: MemoryInfo = HOST_MEMORY) -> None:
        self.fields = ValueFields(mark=VALUE_MARK, kind=kind)
        self.content, self.memory = content, memory
        self.fields.memory = memory.handle
        super().__init__()

    def _make_handle(self) -> int:
        return ctypes.addressof(self.fields)

    @classmethod
    def of_array(cls, array: np.ndarray) -> OrtValue:
        """A tensor in host memory: these elements, not a copy, but of those below 8 bits, which share bytes."""
        dtype = DType.of(array.dtype)
        if dtype.bits < 8:
            packed = pack_bits(array, dtype)
            return cls.at(dtype, array.shape, packed.ctypes.data, packed)
        value = cls(TENSOR, array)
        value._describe(DType.of(array.dtype), array.shape, array.ctypes.data)
        return value

    @classmethod
    def at(cls, dtype: DType, shape: Sequence[int], address: int, owner: Any, memory: MemoryInfo = HOST_MEMORY) -> OrtValue:
        """A tensor whose elements are at an address, which `owner` keeps."""
        value = cls(TENSOR, owner, memory)
        value._describe(dtype, shape, address)
        return value

    @classmethod
    def of(cls, found: Any) -> OrtValue:
        """What a run has, as a plugin is given it: an array, or a list."""
        if isinstance(found, list):
            return cls(SEQUENCE, [cls.of(element) for element in found])
        return cls.of_array(found)

    def _describe(self, dtype: DType, shape: Sequence[int], address: int) -> None:
        self.dtype, self.shape = dtype, tuple(int(d) for d in shape)
        self._dims = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        count = math.prod(self.shape)
        fields = self.fields
        texts = dtype is DType.STRING  # which are no C++ strings: plugins read them by the entries for texts
        fields.dtype, fields.data = element_number(dtype), 0 if texts else address
        fields.rank, fields.count = len(self.shape), count
        fields.nbytes = 0 if texts else (count * dtype.bits + 7) // 8
        fields.dims = ctypes.addressof(self._dims)

    def takes(self, array: np.ndarray) -> bool:
        """Describe another array of the same type and sizes from now on; False, and nothing done, for others."""
        if array.shape != self.shape or array.dtype != self.dtype.numpy or self.dtype.bits < 8 or self.dtype is DType.STRING:
            return False
        self.replace(array)
        return True

    def replace(self, array: np.ndarray) -> None:
        """Hold another array of the same type and sizes."""
        self.content, self.fields.data = array, address_of(array)

    def let_go(self) -> None:
        """Hold no array until the next one."""
        self.content, self.fields.data = None, None

    def array(self) -> np.ndarray:
        """The elements of a tensor in host memory, which this value keeps."""
        if self.dtype.bits < 8:
            return unpack_bits(self.content, self.dtype, int(self.fields.count)).reshape(self.shape)
        if isinstance(self.content, np.ndarray):
            return self.content
        if not self.fields.nbytes:
            return np.empty(self.shape, self.dtype.numpy)
        buffer: Any = (ctypes.c_uint8 * int(self.fields.nbytes)).from_address(self.fields.data or 0)
        return np.frombuffer(buffer, self.dtype.numpy).reshape(self.shape)


class TensorInfo(HostObject):
    """OrtTensorTypeAndShapeInfo. `shape`: -1 for sizes that are not known; None for a rank that is not."""

    def __init__(self, dtype: DType, shape: tuple[int, ...] | None, symbols: Sequence[str] = ()) -> None:
        self.symbols = tuple(symbols)
        self.fields = InfoFields(mark=INFO_MARK)
        self.describe(dtype, shape)
        super().__init__()

    def _make_handle(self) -> int:
        return ctypes.addressof(self.fields)

    def describe(self, dtype: DType, shape: tuple[int, ...] | None) -> None:
        """Describe a tensor of this type and these sizes from now on."""
        self.dtype, self.shape = dtype, shape
        sizes = self.sizes
        self._dims = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        self.fields.dtype, self.fields.rank, self.fields.dims = element_number(dtype), len(sizes), ctypes.addressof(self._dims)
        self.fields.count = -1 if any(size < 0 for size in sizes) else math.prod(sizes)

    @classmethod
    def of(cls, kind: TensorType) -> TensorInfo:
        """What a graph says of a tensor."""
        if kind.shape is None:
            return cls(kind.dtype, None)
        shape = tuple(d if isinstance(d, int) else -1 for d in kind.shape)
        return cls(kind.dtype, shape, ["" if isinstance(d, int) else str(d) for d in kind.shape])

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape or ()


class TypeInfo(HostObject):
    """OrtTypeInfo, OrtSequenceTypeInfo, OrtMapTypeInfo and OrtOptionalTypeInfo: the type of a value."""

    def __init__(self, kind: ValueType | None) -> None:
        super().__init__()
        self.kind = kind
        self.tensor = TensorInfo.of(kind) if isinstance(kind, TensorType) else None
        inner = kind.element if isinstance(kind, (SequenceType, OptionalType)) else getattr(kind, "value", None)
        self.inner = TypeInfo(inner) if inner is not None else None

    @property
    def code(self) -> int:
        """Its ONNXType."""
        return next((code for kind, code in _KINDS if isinstance(self.kind, kind)), UNKNOWN)


# types


@entry("OrtApi", "CastTypeInfoToTensorInfo")
def _cast_to_tensor_info(handle: int, out: int) -> None:
    info = find(handle, TypeInfo)
    put(out, info.tensor.handle if info.tensor is not None else None)


@entry("OrtApi", "GetOnnxTypeFromTypeInfo")
def _get_onnx_type(handle: int, out: int) -> None:
    put(out, find(handle, TypeInfo).code, ctypes.c_int32)


def _cast(wanted: int) -> Callable[[int, int], None]:
    def cast(handle: int, out: int) -> None:
        put(out, handle if find(handle, TypeInfo).code == wanted else None)

    return cast


entry("OrtApi", "CastTypeInfoToSequenceTypeInfo")(_cast(SEQUENCE))
entry("OrtApi", "CastTypeInfoToMapTypeInfo")(_cast(MAP))
entry("OrtApi", "CastTypeInfoToOptionalTypeInfo")(_cast(OPTIONAL))


@entry("OrtApi", "GetSequenceElementType", "GetOptionalContainedTypeInfo", "GetMapValueType")
def _get_inner_type(handle: int, out: int) -> None:
    info = find(handle, TypeInfo)
    if info.inner is None:
        raise InvalidArgument(f"{info.kind} does not say what it holds")
    put(out, give(TypeInfo(info.inner.kind)))


@entry("OrtApi", "GetMapKeyType")
def _get_map_key(handle: int, out: int) -> None:
    kind = find(handle, TypeInfo).kind
    put(out, int(kind.key) if isinstance(kind, MapType) else 0, ctypes.c_int32)


@entry("OrtApi", "CreateTensorTypeAndShapeInfo")
def _create_tensor_info(out: int) -> None:
    put(out, give(TensorInfo(UNDEFINED, ())))


@entry("OrtApi", "SetTensorElementType")
def _set_element_type(handle: int, dtype: int) -> None:
    info = find(handle, TensorInfo)
    info.describe(element_type(dtype), info.shape)


@entry("OrtApi", "SetDimensions")
def _set_dimensions(handle: int, dims: int | None, count: int) -> None:
    info = find(handle, TensorInfo)
    info.describe(info.dtype, tuple(numbers(dims, count)))


@entry("OrtApi", "SetSymbolicDimensions")
def _set_symbolic_dimensions(handle: int, names: int, count: int) -> None:
    info = find(handle, TensorInfo)
    info.symbols = tuple(texts(names, count))


@entry("OrtApi", "GetTensorElementType")
def _get_element_type(handle: int, out: int) -> None:
    put(out, element_number(find(handle, TensorInfo).dtype), ctypes.c_int32)


@entry("OrtApi", "GetDimensionsCount")
def _get_dimensions_count(handle: int, out: int) -> None:
    put(out, len(find(handle, TensorInfo).sizes), ctypes.c_size_t)


@entry("OrtApi", "GetDimensions")
def _get_dimensions(handle: int, out: int, count: int) -> None:
    sizes = find(handle, TensorInfo).sizes[:count]
    put_array(out, list(sizes), count, "sizes", ctypes.c_int64)


@entry("OrtApi", "GetSymbolicDimensions")
def _get_symbolic_dimensions(handle: int, out: int, count: int) -> None:
    info = find(handle, TensorInfo)
    names = (info.symbols or ("",) * len(info.sizes))[:count]
    put_array(out, [info.text(name) for name in names], count, "sizes")


@entry("OrtApi", "GetTensorShapeElementCount")
def _get_element_count(handle: int, out: int) -> None:
    put(out, find(handle, TensorInfo).fields.count, ctypes.c_int64)


@entry("OrtApi", "TensorTypeAndShape_HasShape")
def _has_shape(handle: int) -> bool:
    return find(handle, TensorInfo).shape is not None


# values


@entry("OrtApi", "IsTensor")
def _is_tensor(handle: int, out: int) -> None:
    put(out, int(find(handle, OrtValue).fields.kind == TENSOR), ctypes.c_int32)


@entry("OrtApi", "HasValue")
def _has_value(handle: int, out: int) -> None:
    put(out, int(find(handle, OrtValue).fields.kind != UNKNOWN), ctypes.c_int32)


@entry("OrtApi", "GetValueType")
def _get_value_type(handle: int, out: int) -> None:
    put(out, int(find(handle, OrtValue).fields.kind), ctypes.c_int32)


def tensor(handle: int | None) -> OrtValue:
    """The tensor behind a handle. Raises InvalidArgument for other values."""
    value = find(handle, OrtValue)
    if value.fields.kind != TENSOR:
        raise InvalidArgument("expected a tensor, got another kind of value")
    return value


@entry("OrtApi", "GetTensorMutableData", "GetTensorData")
def _get_tensor_data(handle: int, out: int) -> None:
    put(out, tensor(handle).fields.data)


@entry("OrtApi", "GetTensorSizeInBytes")
def _get_tensor_nbytes(handle: int, out: int) -> None:
    put(out, int(tensor(handle).fields.nbytes), ctypes.c_size_t)


@entry("OrtApi", "GetTensorTypeAndShape")
def _get_tensor_info(handle: int, out: int) -> None:
    value = tensor(handle)
    put(out, give(TensorInfo(value.dtype, value.shape)))


@entry("OrtApi", "GetTypeInfo")
def _get_type_info(handle: int, out: int) -> None:
    put(out, give(TypeInfo(_type_of(find(handle, OrtValue)))))


def _type_of(value: OrtValue) -> ValueType | None:
    if value.fields.kind == TENSOR:
        return TensorType(value.dtype, value.shape)
    if value.fields.kind == SEQUENCE:
        return SequenceType(_type_of(value.content[0]) if value.content else None)
    return None


@entry("OrtApi", "GetTensorElementTypeAndShapeDataReference")
def _get_tensor_reference(handle: int, dtype: int, dims: int, count: int) -> None:
    fields = tensor(handle).fields
    put(dtype, int(fields.dtype), ctypes.c_int32)
    put(dims, fields.dims if fields.rank else None)
    put(count, int(fields.rank), ctypes.c_size_t)


@entry("OrtApi", "GetTensorMemoryInfo")
def _get_tensor_memory(handle: int, out: int) -> None:
    put(out, find(handle, OrtValue).memory.handle)


@entry("OrtEpApi", "Value_GetMemoryDevice")
def _get_value_device(handle: int) -> int:
    return find(handle, OrtValue).memory.handle


@entry("OrtApi", "GetValueCount")
def _get_value_count(handle: int, out: int) -> None:
    put(out, len(_elements(handle)), ctypes.c_size_t)


@entry("OrtApi", "GetValue")
def _get_value(handle: int, index: int, allocator: int, out: int) -> None:
    elements = _elements(handle)
    if not 0 <= index < len(elements):
        raise InvalidArgument(f"a sequence of {len(elements)} values has no number {index}")
    put(out, give(OrtValue.of(elements[index].content)))


def _elements(handle: int) -> list[OrtValue]:
    value = find(handle, OrtValue)
    if value.fields.kind != SEQUENCE:
        raise InvalidArgument("expected a sequence, got another kind of value")
    found: list[OrtValue] = value.content
    return found


@entry("OrtApi", "CreateTensorAsOrtValue")
def _create_tensor(allocator: int, dims: int | None, rank: int, dtype: int, out: int) -> None:
    kind, shape = element_type(dtype), numbers(dims, rank)
    put(out, give(new_tensor(kind, shape)))


def new_tensor(kind: DType, shape: Sequence[int]) -> OrtValue:
    """A tensor in new host memory; below 8 bits, with packed elements."""
    if kind.bits >= 8:
        return OrtValue.of_array(np.empty(tuple(shape), kind.numpy))
    packed = np.zeros((math.prod(shape) * kind.bits + 7) // 8, np.uint8)
    return OrtValue.at(kind, shape, packed.ctypes.data, packed)


def packed_tensor(array: np.ndarray, dtype: DType) -> OrtValue:
    """A tensor of an array's elements as the interface has them: those below 8 bits share bytes, which NumPy's do not."""
    if dtype.bits >= 8:
        return OrtValue.of_array(np.ascontiguousarray(array).reshape(array.shape))
    packed = pack_bits(array, dtype)
    return OrtValue.at(dtype, array.shape, packed.ctypes.data, packed)


@entry("OrtApi", "CreateTensorWithDataAsOrtValue")
def _create_tensor_with_data(info: int, data: int, nbytes: int, dims: int | None, rank: int, dtype: int, out: int) -> None:
    memory = find(info, MemoryInfo)
    value = OrtValue.at(element_type(dtype), numbers(dims, rank), data or 0, None, MemoryInfo.like(memory))
    if value.fields.nbytes > nbytes:
        raise InvalidArgument(f"a tensor of {value.fields.nbytes} bytes does not fit into {nbytes}")
    put(out, give(value))


# texts


@entry("OrtApi", "GetStringTensorDataLength")
def _get_strings_length(handle: int, out: int) -> None:
    put(out, sum(map(len, _strings(handle))), ctypes.c_size_t)


@entry("OrtApi", "GetStringTensorElementLength")
def _get_string_length(handle: int, index: int, out: int) -> None:
    put(out, len(_string(handle, index)), ctypes.c_size_t)


@entry("OrtApi", "GetStringTensorElement")
def _get_string(handle: int, room: int, index: int, out: int) -> None:
    found = _string(handle, index)
    if len(found) > room:
        raise InvalidArgument(f"a text of {len(found)} bytes does not fit into {room}")
    ctypes.memmove(checked(out), found, len(found))


@entry("OrtApi", "GetStringTensorContent")
def _get_strings(handle: int, out: int, room: int, offsets: int, count: int) -> None:
    found = _strings(handle)
    if sum(map(len, found)) > room:
        raise InvalidArgument(f"texts of {sum(map(len, found))} bytes do not fit into {room}")
    starts = [sum(map(len, found[:i])) for i in range(len(found))]
    put_array(offsets, starts, count, "texts", ctypes.c_size_t)
    ctypes.memmove(checked(out), b"".join(found), sum(map(len, found)))


@entry("OrtApi", "FillStringTensor")
def _fill_strings(handle: int, texts: int, count: int) -> None:
    array = _text_array(handle).reshape(-1)
    if count != array.size:
        raise InvalidArgument(f"{count} texts do not fill a tensor of {array.size}")
    for i, address in enumerate(numbers(texts, count, ctypes.c_size_t)):
        array[i] = ctypes.string_at(checked(address)).decode("utf-8", "replace")


@entry("OrtApi", "FillStringTensorElement")
def _fill_string(handle: int, text: bytes, index: int) -> None:
    _text_array(handle).reshape(-1)[index] = text.decode("utf-8", "replace")


def _text_array(handle: int) -> np.ndarray:
    value = tensor(handle)
    if value.dtype is not DType.STRING:
        raise InvalidArgument(f"expected a tensor of texts, got {value.dtype.onnx_name}")
    return value.array()


def _strings(handle: int) -> list[bytes]:
    found = _text_array(handle).reshape(-1).tolist()
    return [text if isinstance(text, bytes) else str(text).encode() for text in found]


def _string(handle: int, index: int) -> bytes:
    found = _strings(handle)
    if index >= len(found):
        raise InvalidArgument(f"a tensor of {len(found)} texts has no number {index}")
    return found[index]
