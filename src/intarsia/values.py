"""`OrtValue`: a tensor, sequence, map or empty optional, in host memory or a device's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.dtypes import DType
from intarsia.partition.device import DeviceTensor

DEVICE_TYPES = ("cpu", "cuda", "cann", "dml", "webgpu", "gpu", "npu")


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


def check_device(device_type: str, device_id: int) -> None:
    """Raise InvalidArgument unless values can be made there: at present in host memory only."""
    if device_type not in DEVICE_TYPES:
        raise InvalidArgument(f"Unsupported device type: {device_type!r}; {nearest(str(device_type), DEVICE_TYPES)}")
    if device_type != "cpu":
        raise InvalidArgument(f"device {device_type}:{device_id}: no provider keeps values there; expected 'cpu'")


class OrtValue:
    """One value that a session takes or gives.

    `numpy()` of a tensor in host memory is the memory itself, not a copy: what is written there is what the next run reads.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls,
        array: np.ndarray,
        /,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor that shares the memory of `array` (C-contiguous and native; other arrays are copied).

        Raises:
            InvalidArgument: not an array, an element type that ONNX lacks, or an unknown device.
        """
        check_device(device_type, device_id)
        if not isinstance(array, np.ndarray):
            raise InvalidArgument(f"expected a NumPy array, got {type(array).__name__}")
        element_dtype(array.dtype.newbyteorder("="))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return cls(np.asarray(array, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, array: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bytes of `array` as elements of an ONNX type of the same size (such as bfloat16 in a uint16 array)."""
        dtype = element_dtype(int(onnx_element_type)).numpy
        if dtype.itemsize != array.dtype.itemsize or dtype.hasobject or array.dtype.hasobject:
            raise InvalidArgument(f"expected elements of {dtype.itemsize} bytes for {dtype.name}, got {array.dtype.name}")
        return cls(np.asarray(array, order="C").view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """A tensor of this shape whose elements are not set (strings are empty)."""
        check_device(device_type, device_id)
        dtype = element_dtype(element_type)
        if dtype is DType.STRING:
            return cls(np.full(tuple(shape), "", dtype=object))
        return cls(np.empty(tuple(shape), dtype.numpy))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """A tensor that shares the memory of any host tensor with `__dlpack__` (torch, NumPy, ...)."""
        return cls(np.from_dlpack(data))

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array("__dlpack__").__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._array("__dlpack_device__").__dlpack_device__()
        return int(kind), int(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array("__array__")
        if dtype is not None and np.dtype(dtype) != array.dtype:
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
        return "a sequence" if isinstance(self._value, list) else "a map" if isinstance(self._value, dict) else "a tensor"

    def _host_value(self) -> Any:
        return self._value

    def numpy(self) -> Any:
        """The tensor as an array (a view in host memory); of a sequence or map, the list or dict."""
        return self._value

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._array("data_ptr").ctypes.data)

    def device_name(self) -> str:
        return str(self._value.device.kind) if isinstance(self._value, DeviceTensor) else "cpu"

    def shape(self) -> list[int]:
        if not isinstance(self._value, (np.ndarray, DeviceTensor)):
            raise InvalidArgument(f"OrtValue.shape: expected a tensor, this value is {self._kind()}")
        return list(self._value.shape)

    def element_type(self) -> int:
        """The `TensorProto.DataType` number."""
        return int(self._dtype())

    def _dtype(self) -> DType:
        if isinstance(self._value, DeviceTensor):
            return self._value.dtype
        array = self._array("element_type")
        return DType.STRING if array.dtype == object else DType.of(array.dtype)

    def data_type(self) -> str:
        """ONNX's name of the type, such as 'tensor(float)'."""
        if isinstance(self._value, list):
            return f"seq({OrtValue(self._value[0]).data_type()})" if self._value else "seq()"
        return f"tensor({self._dtype().onnx_name})"

    def tensor_size_in_bytes(self) -> int:
        return self._value.nbytes if isinstance(self._value, DeviceTensor) else self._array("tensor_size_in_bytes").nbytes

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, (np.ndarray, DeviceTensor))

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def update_inplace(self, source: Any) -> None:
        """Overwrite the elements with those of an array (or OrtValue) of the same dtype and shape."""
        target = self._array("update_inplace")
        given = source.numpy() if isinstance(source, OrtValue) else source
        if not isinstance(given, np.ndarray) or given.dtype.newbyteorder("=") != target.dtype or given.shape != target.shape:
            got = f"{given.dtype.name} {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
            raise InvalidArgument(f"update_inplace: expected an array {target.dtype.name} {list(target.shape)}, got {got}")
        np.copyto(target, given)

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, {self.shape()})" if self.is_tensor() else f"OrtValue({self._kind()})"


def array_at(pointer: int, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """The host memory at `pointer` as an array; the caller keeps it alive."""
    if dtype is DType.STRING:
        raise InvalidArgument("a buffer of strings cannot be bound by its address; bind an array or an OrtValue")
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
    if not nbytes:
        return np.empty(tuple(shape), dtype.numpy)
    buffer = (ctypes.c_uint8 * nbytes).from_address(pointer)
    return np.ctypeslib.as_array(buffer).view(dtype.numpy).reshape(tuple(shape))
