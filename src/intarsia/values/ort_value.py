"""`OrtValue`: a tensor, sparse tensor, sequence, map or empty optional, in host memory or a device's."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.device.memory import gpu_of, put_on_device, room_on_device, taken_from_device, written_on_device
from intarsia.ep.device import DeviceTensor
from intarsia.errors import InvalidArgument, WrongType, nearest
from intarsia.graph.dtypes import DType
from intarsia.providers.options import device_id as checked_device_id
from intarsia.runtime import holders
from intarsia.values import dlpack
from intarsia.values.ort_device import DEVICE_TYPES, OrtDevice, OrtMemoryInfo, no_pinned_memory
from intarsia.values.ort_enums import OrtDeviceMemoryType
from intarsia.values.sparse_tensor import SparseTensor

_ADDRESSES = 1 << 63  # bytes that one buffer may have at most


def element_dtype(element_type: Any) -> DType:
    """The DType of a NumPy type, a `TensorProto.DataType` number or a DType.

    Raises:
        InvalidArgument: there is none.
    """
    try:
        return DType(element_type) if isinstance(element_type, int) else DType.of(element_type)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"element type: expected a NumPy type or a TensorProto.DataType number, got {element_type!r}"
        ) from error


def check_device(device: Any, device_id: int = 0) -> None:
    """Raise InvalidArgument unless `device` is the host: for memory that is given by its address."""
    kind, index = _named_device(device, device_id)
    if kind != "cpu":
        raise InvalidArgument(f"device {kind}:{index}: no provider keeps values there that have an address; expected 'cpu'")


def device_of(device: Any, device_id: int = 0) -> tuple[str, int]:
    """Kind and number of a device on which values can be made: "cpu", or one whose provider lets callers use its memory.

    Raises:
        InvalidArgument: there is no such kind, or no provider keeps values there.
    """
    kind, index = _named_device(device, device_id)
    if kind != "cpu":
        gpu_of(kind, index)
    return kind, index


def _named_device(device: Any, device_id: int) -> tuple[str, int]:
    """Kind and number of a device given by its name, an `OrtDevice` or an `OrtMemoryInfo`."""
    if isinstance(device, OrtMemoryInfo):
        if device.device_mem_type is OrtDeviceMemoryType.HOST_ACCESSIBLE:
            raise InvalidArgument(no_pinned_memory(device.name))
        device = device.device
    if isinstance(device, OrtDevice):
        device, device_id = device.kind, device.device_id()
    name = device.lower() if isinstance(device, str) else device
    if name not in DEVICE_TYPES:
        if isinstance(device, str) and device.lower().endswith("pinned"):
            raise InvalidArgument(no_pinned_memory(device))
        wrong = InvalidArgument if isinstance(device, str) else WrongType
        raise wrong(f"Unsupported device type: {device!r}; {nearest(str(device), DEVICE_TYPES)}")
    return str(name), checked_device_id(device_id, f"device {name!r}")


class OrtValue:
    """One value that a session takes or gives.

    `numpy()` of a tensor in host memory is the memory itself, not a copy: what is written there is what the next run reads.
    A device is given by name and number, or as an `OrtDevice` in place of the name.
    """

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: Any, numpy_obj: Any = None, session: Any = None) -> None:
        """Another OrtValue's value, or one of the kinds above; it holds its memory, which onnxruntime is given objects for."""
        self._value: Any = value._value if isinstance(value, OrtValue) else value

    @classmethod
    def ortvalue_from_numpy(
        cls,
        array: np.ndarray,
        /,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor that shares the memory of `array` (C-contiguous and native; other arrays are copied); on a device, a copy.

        Raises:
            InvalidArgument: not an array, an element type that ONNX lacks, or an unknown device.
            OutOfMemory: it has to be copied, and the machine does not have so much memory.
        """
        kind, index = device_of(device_type, device_id)
        if not isinstance(array, np.ndarray):
            raise WrongType(f"Creation of OrtValues is only supported from numpy arrays: got {type(array).__name__}")
        if not array.flags.c_contiguous or not array.dtype.isnative:
            from intarsia.values.feeds import checked_copy

            checked_copy(array, "ortvalue_from_numpy")
        if kind != "cpu":
            return cls(put_on_device(array, kind, index))
        dtype = element_dtype(array.dtype.newbyteorder("="))
        if dtype is DType.STRING:
            from intarsia.values.feeds import strings

            return cls(strings(array, "ortvalue_from_numpy"))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return cls(np.asarray(array, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bytes of `data` as elements of an ONNX type of the same size (such as bfloat16 in a uint16 array)."""
        dtype = element_dtype(int(onnx_element_type)).numpy
        if not isinstance(data, np.ndarray):
            raise WrongType(f"Creation of OrtValues is only supported from numpy arrays: got {type(data).__name__}")
        if dtype.itemsize != data.dtype.itemsize or dtype.hasobject or data.dtype.hasobject:
            raise InvalidArgument(f"expected elements of {dtype.itemsize} bytes for {dtype.name}, got {data.dtype.name}")
        if not data.flags.c_contiguous:
            from intarsia.values.feeds import checked_copy

            checked_copy(data, "ortvalue_from_numpy_with_onnx_type")
        return cls(np.asarray(data, order="C").view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor of this shape whose elements are not set (strings are empty)."""
        kind, index = device_of(memory_info if memory_info is not None else device_type, device_id)
        dtype = element_dtype(element_type)
        try:
            sizes = tuple(operator.index(d) for d in shape)
        except TypeError:
            raise WrongType(f"shape: expected a list of sizes, got {shape!r}") from None
        if any(d < 0 for d in sizes):
            raise InvalidArgument(f"shape: expected sizes from 0, got {list(sizes)}")
        if dtype is DType.STRING:
            return cls(np.full(sizes, "", dtype=object))
        if kind != "cpu":
            return cls(room_on_device(dtype, sizes, kind, index))
        return cls(np.empty(sizes, dtype.numpy))

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type
    ortvalue_from_shape_and_type_for_memory_info = ortvalue_from_shape_and_type
    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A value that is this sparse tensor."""
        if not isinstance(sparse_tensor, SparseTensor):
            raise WrongType(f"expected a SparseTensor, got {type(sparse_tensor).__name__}")
        return cls(sparse_tensor)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor that this value is. Raises InvalidArgument where it is something else."""
        if not isinstance(self._value, SparseTensor):
            raise InvalidArgument(f"OrtValue.as_sparse_tensor: expected a sparse tensor, this value is {self._kind()}")
        return self._value

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """A tensor that shares the memory of a tensor: any object with `__dlpack__`, or a DLPack capsule; on the host, or on a
        CUDA, ROCm or OpenCL device that a provider of this package works with.

        `is_bool_tensor`: the elements are booleans that the producer calls uint8.

        Raises:
            InvalidArgument: in another device's memory, of a type that ONNX lacks, or a capsule that was used before.
        """
        array = dlpack.tensor_of(data)
        if isinstance(array, DeviceTensor):
            as_bool = is_bool_tensor and array.dtype is DType.UINT8
            return cls(replace(array, dtype=DType.BOOL) if as_bool else array)
        if is_bool_tensor and array.dtype == np.uint8:
            array = array.view(bool)
        return cls.ortvalue_from_numpy(array)

    def __dlpack__(self, *, stream: Any = None, **arguments: Any) -> Any:
        """A DLPack capsule that shares the memory, on a device once what writes it is done.

        Raises:
            InvalidArgument: memory that other libraries cannot read (WebGPU's), or a type that DLPack lacks.
        """
        if isinstance(self._value, DeviceTensor):
            return dlpack.device_capsule_of(self._value)
        array = self._array("__dlpack__")
        if array.dtype.isbuiltin == 1:
            return array.__dlpack__(stream=stream, **arguments)
        return dlpack.capsule_of(array)

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the tensor, without a copy, for other libraries to take."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        if isinstance(self._value, DeviceTensor):
            from intarsia.device import exchange

            return exchange.device_of(self._value)
        self._array("__dlpack_device__")
        return 1, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array("__array__")
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise InvalidArgument(f"__array__: {array.dtype.name} cannot become {np.dtype(dtype).name} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def _array(self, what: str) -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise InvalidArgument(f"OrtValue.{what}: expected a tensor in host memory, this value is {self._kind()}")
        return self._value

    def _kind(self) -> str:
        if self._value is None:
            return "an empty optional"
        if isinstance(self._value, DeviceTensor):
            return f"a tensor on {self._value.device}"
        if isinstance(self._value, SparseTensor):
            return "a sparse tensor"
        return "a sequence" if isinstance(self._value, list) else "a map" if isinstance(self._value, dict) else "a tensor"

    def _host_value(self) -> Any:
        return self._value.to_dense() if isinstance(self._value, SparseTensor) else self._value

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def numpy(self) -> Any:
        """The tensor as an array (a view in host memory); of a sequence or map, the list or dict.

        Raises:
            InvalidArgument: a sparse tensor (see `as_sparse_tensor`).
        """
        if isinstance(self._value, SparseTensor):
            raise InvalidArgument("OrtValue.numpy: only dense tensors, sequences and maps; use as_sparse_tensor()")
        if isinstance(self._value, DeviceTensor):
            return taken_from_device(self._value)
        return self._value

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._array("data_ptr").ctypes.data)

    def device_name(self) -> str:
        """The kind of device whose memory holds the value: "cpu", "cuda", "webgpu", ..."""
        return str(self._value.device.kind) if isinstance(self._value, DeviceTensor) else "cpu"

    def shape(self) -> list[int]:
        """The sizes of the tensor. Raises InvalidArgument where the value is no tensor."""
        if isinstance(self._value, SparseTensor):
            return self._value.dense_shape()
        if not isinstance(self._value, (np.ndarray, DeviceTensor)):
            raise InvalidArgument(f"OrtValue.shape: expected a tensor, this value is {self._kind()}")
        return list(self._value.shape)

    def element_type(self) -> int:
        """The `TensorProto.DataType` number."""
        return int(self._dtype())

    def _dtype(self) -> DType:
        if isinstance(self._value, DeviceTensor):
            return self._value.dtype
        if isinstance(self._value, SparseTensor):
            return element_dtype(str if self._value._values.dtype == object else self._value._values.dtype)
        array = self._array("element_type")
        return DType.STRING if array.dtype == object else DType.of(array.dtype)

    def data_type(self) -> str:
        """ONNX's name of the type, such as 'tensor(float)'."""
        value = self._value
        if isinstance(value, SparseTensor):
            return value.data_type()
        if isinstance(value, dict):
            key = "string" if value and isinstance(next(iter(value)), str) else "int64"
            inner = np.asarray(next(iter(value.values()), 0.0))
            return f"map({key},tensor({element_dtype(inner.dtype).onnx_name}))"
        if isinstance(value, list):
            return f"seq({OrtValue(value[0]).data_type()})" if value else "seq()"
        return f"tensor({self._dtype().onnx_name})"

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the tensor's elements. Raises InvalidArgument where the value is no tensor."""
        return self._value.nbytes if isinstance(self._value, DeviceTensor) else self._array("tensor_size_in_bytes").nbytes

    def has_value(self) -> bool:
        """Whether there is a value: false for an optional without one."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether the value is a dense tensor."""
        return isinstance(self._value, (np.ndarray, DeviceTensor))

    def is_sparse_tensor(self) -> bool:
        """Whether the value is a sparse tensor."""
        return isinstance(self._value, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a sequence of tensors."""
        return isinstance(self._value, list)

    def update_inplace(self, source: Any) -> None:
        """Overwrite the elements with those of an array (or OrtValue) of the same dtype and shape."""
        if isinstance(self._value, DeviceTensor):
            held = source._value if isinstance(source, OrtValue) else source
            written_on_device(self._value, held)  # from the same device without a way through the host
            return
        given = source.numpy() if isinstance(source, OrtValue) else source
        target = self._array("update_inplace")
        if not isinstance(given, np.ndarray) or given.dtype.newbyteorder("=") != target.dtype or given.shape != target.shape:
            got = f"{given.dtype.name} {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
            raise (InvalidArgument if isinstance(given, np.ndarray) else WrongType)(
                f"update_inplace: expected an array {target.dtype.name} {list(target.shape)}, got {got}: "
                "The input size of numpy arrays does not match the size of the OrtValue."
            )
        np.copyto(target, given)

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self.shape()})" if self.is_tensor() else f"OrtValue({self._kind()})"


holders.note(OrtValue, "_value")


class OrtValueVector(Sequence[OrtValue]):
    """A list of OrtValues by onnxruntime's interface."""

    def __init__(self, values: Iterable[OrtValue] = ()) -> None:
        self._values = list(values)

    def push_back(self, value: Any, is_bool_tensor: bool = False) -> None:
        """Append an OrtValue, or a tensor given by DLPack."""
        self._values.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value, is_bool_tensor))

    def push_back_batch(
        self,
        tensors: Sequence[Any],
        data_ptrs: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
    ) -> None:
        """Append tensors by address; `tensors` stay alive as long as the values made here.

        Raises:
            InvalidArgument: lists of different lengths, or not host memory.
        """
        lists = (tensors, data_ptrs, element_types, shapes, devices)
        if len({len(given) for given in lists}) > 1:
            raise InvalidArgument(f"push_back_batch: expected lists of one length, got {[len(given) for given in lists]}")
        for tensor, pointer, kind, shape, device in zip(*lists, strict=True):
            check_device(device)
            self._values.append(OrtValue(array_at(pointer, element_dtype(kind), shape, tensor)))

    def reserve(self, count: int) -> None:
        """Accepted: a list grows by itself."""

    def shrink_to_fit(self) -> None:
        """Accepted: a list shrinks by itself."""

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule of the value at `index`, without a copy."""
        return self._values[index].to_dlpack()

    def element_type_at(self, index: int) -> int:
        """The number of the element type (onnx.TensorProto) of the value at `index`."""
        return self._values[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Where in the vector tensors of booleans are, which DLPack gives as uint8."""
        return [i for i, v in enumerate(self._values) if v.element_type() == DType.BOOL]

    def to_dlpacks(self, to_tensor: Any = None) -> list[Any]:
        """Each value as a DLPack capsule, or as what `to_tensor` makes of it."""
        return [v.to_dlpack() if to_tensor is None else to_tensor(v.to_dlpack()) for v in self._values]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"OrtValueVector({self._values!r})"


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the elements of each tensor of `src` into the one of `dst` at the same place.

    Raises:
        InvalidArgument: lists of different lengths, or tensors that differ in type or shape.
    """
    if len(src) != len(dst):
        raise InvalidArgument(f"copy_tensors: expected lists of one length, got {len(src)} and {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def _sizes(shape: Any) -> tuple[int, ...]:
    """The sizes of a buffer. Raises InvalidArgument where they are none."""
    try:
        sizes = tuple(operator.index(d) for d in shape)
    except TypeError:
        raise WrongType(f"shape of a buffer: expected a sequence of integers, got {shape!r}") from None
    if any(d < 0 for d in sizes):
        raise InvalidArgument(f"shape of a buffer: expected sizes from 0, got {list(sizes)}")
    return sizes


def array_at(pointer: int, dtype: DType, shape: Sequence[int], owner: Any = None) -> np.ndarray:
    """The host memory at `pointer` as an array. The caller keeps it alive, or gives its `owner`, which the array then does.

    Raises:
        InvalidArgument: strings, a negative size, more bytes than there are addresses, or no address.
    """
    sizes = _sizes(shape)
    if dtype is DType.STRING:
        raise InvalidArgument("a buffer of strings cannot be bound by its address; bind an array or an OrtValue")
    itemsize = dtype.numpy.itemsize
    if math.prod(d or 1 for d in sizes) * itemsize >= _ADDRESSES:
        raise InvalidArgument(f"shape of a buffer: expected less than 2^63 bytes, got {list(sizes)} of {itemsize} bytes each")
    nbytes = math.prod(sizes) * itemsize
    if not nbytes:
        return np.empty(sizes, dtype.numpy)
    if not isinstance(pointer, (int, np.integer)) or not 0 < pointer <= 2 * _ADDRESSES - nbytes:
        raise InvalidArgument(f"buffer_ptr: expected the address of {nbytes} bytes, got {pointer!r}")
    pointer = int(pointer)
    buffer: Any = (ctypes.c_uint8 * nbytes).from_address(pointer)
    buffer._owner = owner
    array: np.ndarray = np.frombuffer(buffer, np.uint8).view(dtype.numpy).reshape(sizes)
    return array
