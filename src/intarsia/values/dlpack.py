"""DLPack for the element types that NumPy's own functions lack (bfloat16, float8, ...), and for bare capsules.

Layout of the structures: DLPack 1.1, `dlpack.h`. Memory of devices is `device.exchange`'s.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.errors import InvalidArgument, WrongType
from intarsia.graph.dtypes import DType

_CPU_DEVICES = (1, 3, 11)  # host memory, and memory pinned for CUDA or ROCm

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_PLAIN = {_INT: "i", _UINT: "u", _FLOAT: "f", _COMPLEX: "c"}
_EXOTIC: dict[tuple[int, int], DType] = {
    (_BFLOAT, 16): DType.BFLOAT16,
    (10, 8): DType.FLOAT8E4M3FN,
    (11, 8): DType.FLOAT8E4M3FNUZ,
    (12, 8): DType.FLOAT8E5M2,
    (13, 8): DType.FLOAT8E5M2FNUZ,
    (14, 8): DType.FLOAT8E8M0,
}
"""(type code, bits) of DLPack -> element types that NumPy has no dtype of its own for."""


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_NAME, _USED = b"dltensor", b"used_dltensor"
_NAME_VERSIONED, _USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
_READ_ONLY = 1

# A prototype per use: ctypes.pythonapi's functions are shared by the whole process, so their types are not set there.
_api = ctypes.PyDLL(None) if sys.platform != "win32" else ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


class _Owner:
    """Keeps a producer's tensor alive for the arrays made on it, and gives it back with the last of them."""

    def __init__(self, managed: Any, interface: dict[str, Any]) -> None:
        self._managed = managed
        self.__array_interface__ = interface

    def keep(self) -> None:
        """The capsule was not consumed: its tensor stays the producer's."""
        self._managed = None

    def __del__(self) -> None:
        address = self._managed.deleter if self._managed is not None else None
        if address:
            _Deleter(address)(ctypes.addressof(self._managed))


def is_capsule(value: object) -> bool:
    return type(value).__name__ == "PyCapsule"


def _opened(capsule: Any) -> tuple[Any, bytes]:
    """The managed tensor in a capsule, and the name that marks the capsule as consumed."""
    if _is_valid(capsule, _NAME):
        return _Managed.from_address(_pointer(capsule, _NAME)), _USED
    if _is_valid(capsule, _NAME_VERSIONED):
        managed = _ManagedVersioned.from_address(_pointer(capsule, _NAME_VERSIONED))
        if managed.major != 1:
            raise InvalidArgument(f"a DLPack capsule of version {managed.major}; expected version 1 or none")
        return managed, _USED_VERSIONED
    raise InvalidArgument("expected a DLPack capsule that has not been consumed yet: each capsule can be imported once")


def array_of_capsule(capsule: Any, where: str = "from_dlpack") -> np.ndarray:
    """The tensor in a DLPack capsule as an array on the same memory; the capsule is consumed.

    Raises:
        InvalidArgument: consumed before, on another device, or of a type that ONNX lacks.
    """
    managed, used = _opened(capsule)
    tensor = managed.tensor
    if tensor.device.kind not in _CPU_DEVICES:
        raise InvalidArgument(f"{where}: the tensor is on DLPack device {tensor.device.kind}; expected host memory (1)")
    dtype, raw = _dtypes(tensor.dtype, where)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * raw.itemsize for i in range(tensor.ndim)) if tensor.strides else None
    read_only = isinstance(managed, _ManagedVersioned) and bool(managed.flags & _READ_ONLY)
    if not tensor.data or not all(shape):
        interface: dict[str, Any] = {"data": None}
    else:
        interface = {"data": (tensor.data + tensor.byte_offset, read_only)}
    interface |= {"version": 3, "shape": shape, "typestr": raw.str, "strides": strides}
    _rename(capsule, used)
    owner = _Owner(managed, interface)
    if interface["data"] is None:
        return np.empty(shape, dtype)
    return np.asarray(owner).view(dtype)


def _dtypes(declared: _DataType, where: str) -> tuple[np.dtype, np.dtype]:
    """The element type of a DLPack tensor, and NumPy's own type of that size to make the array with."""
    code, bits, lanes = declared.code, declared.bits, declared.lanes
    if lanes == 1 and (code, bits) in _EXOTIC:
        return _EXOTIC[code, bits].numpy, np.dtype(f"u{bits // 8}")
    if lanes == 1 and code == _BOOL and bits == 8:
        return np.dtype(bool), np.dtype(bool)
    if lanes == 1 and code in _PLAIN and bits in (8, 16, 32, 64, 128):
        try:
            found = np.dtype(f"{_PLAIN[code]}{bits // 8}")
            DType.of(found)
        except TypeError:
            pass
        else:
            return found, found
    raise InvalidArgument(f"{where}: DLPack type code {code} with {bits} bits and {lanes} lanes has no ONNX element type")


def is_uint8_capsule(capsule: Any) -> bool:
    """Whether the capsule holds a uint8 tensor, which may stand for booleans. The capsule is not consumed."""
    managed, _ = _opened(capsule)
    return bool(managed.tensor.dtype.code == _UINT and managed.tensor.dtype.bits == 8)


_exported: dict[int, tuple[Any, ...]] = {}  # address of a managed tensor that a consumer holds -> what it needs alive


def _forget(address: int) -> None:
    _exported.pop(address, None)


def _destroyed(capsule: int) -> None:
    if _is_valid_raw(capsule, _NAME):
        _exported.pop(_pointer_raw(capsule, _NAME), None)


_delete, _destroy = _Deleter(_forget), _Destructor(_destroyed)


def capsule_of(array: np.ndarray) -> Any:
    """A DLPack capsule of an array whose dtype NumPy cannot export itself.

    Raises:
        InvalidArgument: DLPack has no such type.
    """
    dtype = DType.of(array.dtype)
    codes = {kind: code for code, kind in _EXOTIC.items()}
    if dtype not in codes:
        raise InvalidArgument(f"DLPack has no type for {dtype.onnx_name}; convert the array first")
    code, bits = codes[dtype]
    rank = array.ndim
    sizes = (ctypes.c_int64 * max(1, rank))(*array.shape)
    steps = (ctypes.c_int64 * max(1, rank))(*(s // array.itemsize for s in array.strides))
    pointer = ctypes.POINTER(ctypes.c_int64)
    tensor = _Tensor(
        array.ctypes.data, _Device(1, 0), rank, _DataType(code, bits, 1), ctypes.cast(sizes, pointer),
        ctypes.cast(steps, pointer), 0,
    )  # fmt: skip
    managed = _Managed(tensor, None, ctypes.cast(_delete, ctypes.c_void_p).value)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, sizes, steps, array)
    return _new(address, _NAME, ctypes.cast(_destroy, ctypes.c_void_p).value)


def device_capsule_of(tensor: DeviceTensor) -> Any:
    """A DLPack capsule on a device's memory, once what writes it is done.

    Raises:
        InvalidArgument: memory of that kind, or elements of that type, cannot be given by DLPack.
    """
    from intarsia.device import exchange

    kind, index = exchange.device_of(tensor)
    address, offset = exchange.address_of(tensor)
    codes = {dtype: code for code, dtype in _EXOTIC.items()} | {DType.BOOL: (_BOOL, 8)}
    raw = tensor.dtype.numpy
    plain = {letter: code for code, letter in _PLAIN.items()}
    code, bits = codes[tensor.dtype] if tensor.dtype in codes else (plain[raw.kind], 8 * raw.itemsize)
    sizes = (ctypes.c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
    managed = _Managed(
        _Tensor(
            address, _Device(kind, index), len(tensor.shape), _DataType(code, bits, 1),
            ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)), None, offset,
        ),
        None, ctypes.cast(_delete, ctypes.c_void_p).value,
    )  # fmt: skip
    _exported[ctypes.addressof(managed)] = (managed, sizes, tensor)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_destroy, ctypes.c_void_p).value)


def tensor_of(data: Any, where: str = "from_dlpack") -> np.ndarray | DeviceTensor:
    """As `array_of`; of a tensor in a device's memory that this package works in, a tensor on that memory.

    Raises:
        WrongType, InvalidArgument: as `array_of`, or memory that cannot be used.
    """
    if not is_capsule(data):
        if not hasattr(data, "__dlpack__") or not hasattr(data, "__dlpack_device__"):
            return array_of(data, where)
        kind, index = map(int, data.__dlpack_device__())
        if kind in _CPU_DEVICES:
            return array_of(data, where)
        from intarsia.device import exchange

        stream = exchange.gpu_at(kind, index).dlpack_stream  # before the producer gives it away
        if getattr(data, "requires_grad", False):
            data = data.detach()
        data = data.__dlpack__() if stream is None else data.__dlpack__(stream=stream)
    managed, used = _opened(data)
    tensor = managed.tensor
    if tensor.device.kind in _CPU_DEVICES:
        return array_of_capsule(data, where)
    from intarsia.device import exchange

    dtype = DType.of(_dtypes(tensor.dtype, where)[0])
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides and not _is_row_major(shape, tensor.strides):
        raise InvalidArgument(f"{where}: the tensor's elements are not in row-major order; give a copy, .contiguous()")
    owner = _Owner(managed, {})
    try:
        made = exchange.borrowed(
            tensor.device.kind, tensor.device.index, tensor.data or 0, tensor.byte_offset, dtype, shape, owner
        )
    except InvalidArgument:
        owner.keep()
        raise
    _rename(data, used)
    return made


def _is_row_major(shape: tuple[int, ...], strides: Any) -> bool:
    step = 1
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] != 1 and strides[i] != step:
            return False
        step *= shape[i]
    return True


def array_of(data: Any, where: str = "from_dlpack") -> np.ndarray:
    """The array on the memory of `data`: a DLPack capsule or an object with `__dlpack__`.

    Raises:
        WrongType: neither.
        InvalidArgument: not in host memory, or of a type that ONNX lacks.
    """
    if is_capsule(data):
        return array_of_capsule(data, where)
    if not hasattr(data, "__dlpack__"):
        raise WrongType(f"{where}: expected a DLPack capsule or an object with __dlpack__, got {type(data).__name__}")
    if hasattr(data, "__dlpack_device__"):
        kind, index = data.__dlpack_device__()
        if int(kind) not in _CPU_DEVICES:
            raise InvalidArgument(f"{where}: the tensor is on DLPack device {int(kind)}:{index}; expected host memory (1)")
    if getattr(data, "requires_grad", False):
        data = data.detach()  # PyTorch exports no tensor that takes part in differentiation
    if isinstance(data, np.ndarray):
        return data
    return array_of_capsule(data.__dlpack__(), where)
