"""libneuralnetworks' C interface by ctypes: functions with the level that has each, error codes, objects that free themselves.

From the documentation of NeuralNetworks.h and NeuralNetworksTypes.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from intarsia.errors import EPFail
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.providers.nnapi.operands import OperandType

FILE = "libneuralnetworks.so"
_P, _I, _U, _Z, _B = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_bool

_FUNCTIONS: dict[str, tuple[int, Any, tuple[Any, ...]]] = {
    "_getRuntimeFeatureLevel": (31, ctypes.c_int64, ()),
    "_getDeviceCount": (29, _I, (_P,)),
    "_getDevice": (29, _I, (_U, _P)),
    "Device_getName": (29, _I, (_P, _P)),
    "Device_getType": (29, _I, (_P, _P)),
    "Device_getVersion": (29, _I, (_P, _P)),
    "Device_getFeatureLevel": (29, _I, (_P, _P)),
    "Model_create": (27, _I, (_P,)),
    "Model_free": (27, None, (_P,)),
    "Model_finish": (27, _I, (_P,)),
    "Model_addOperand": (27, _I, (_P, _P)),
    "Model_setOperandValue": (27, _I, (_P, _I, _P, _Z)),
    "Model_setOperandSymmPerChannelQuantParams": (29, _I, (_P, _I, _P)),
    "Model_addOperation": (27, _I, (_P, _I, _U, _P, _U, _P)),
    "Model_identifyInputsAndOutputs": (27, _I, (_P, _U, _P, _U, _P)),
    "Model_relaxComputationFloat32toFloat16": (28, _I, (_P, _B)),
    "Model_getSupportedOperationsForDevices": (29, _I, (_P, _P, _U, _P)),
    "Compilation_create": (27, _I, (_P, _P)),
    "Compilation_createForDevices": (29, _I, (_P, _P, _U, _P)),
    "Compilation_setPreference": (27, _I, (_P, _I)),
    "Compilation_setPriority": (30, _I, (_P, _I)),
    "Compilation_setCaching": (29, _I, (_P, _P, _P)),
    "Compilation_finish": (27, _I, (_P,)),
    "Compilation_free": (27, None, (_P,)),
    "Execution_create": (27, _I, (_P, _P)),
    "Execution_free": (27, None, (_P,)),
    "Execution_setInput": (27, _I, (_P, _I, _P, _P, _Z)),
    "Execution_setOutput": (27, _I, (_P, _I, _P, _P, _Z)),
    "Execution_setInputFromMemory": (27, _I, (_P, _I, _P, _P, _Z, _Z)),
    "Execution_setOutputFromMemory": (27, _I, (_P, _I, _P, _P, _Z, _Z)),
    "Execution_setReusable": (31, _I, (_P, _B)),
    "Execution_compute": (29, _I, (_P,)),
    "Execution_startCompute": (27, _I, (_P, _P)),
    "Execution_burstCompute": (29, _I, (_P, _P)),
    "Event_wait": (27, _I, (_P,)),
    "Event_free": (27, None, (_P,)),
    "Burst_create": (29, _I, (_P, _P)),
    "Burst_free": (29, None, (_P,)),
    "Memory_createFromFd": (27, _I, (_Z, _I, _I, _Z, _P)),
    "Memory_createFromDesc": (30, _I, (_P, _P)),
    "Memory_copy": (30, _I, (_P, _P)),
    "Memory_free": (27, None, (_P,)),
    "MemoryDesc_create": (30, _I, (_P,)),
    "MemoryDesc_addInputRole": (30, _I, (_P, _P, _U, ctypes.c_float)),
    "MemoryDesc_addOutputRole": (30, _I, (_P, _P, _U, ctypes.c_float)),
    "MemoryDesc_finish": (30, _I, (_P,)),
    "MemoryDesc_free": (30, None, (_P,)),
}
"""Name without "ANeuralNetworks" -> the API level that has it, its result and its arguments."""

ERRORS = {
    1: "OUT_OF_MEMORY", 2: "INCOMPLETE", 3: "UNEXPECTED_NULL", 4: "BAD_DATA", 5: "OP_FAILED", 6: "BAD_STATE",
    7: "UNMAPPABLE", 8: "OUTPUT_INSUFFICIENT_SIZE", 9: "UNAVAILABLE_DEVICE", 10: "MISSED_DEADLINE_TRANSIENT",
    11: "MISSED_DEADLINE_PERSISTENT", 12: "RESOURCE_EXHAUSTED_TRANSIENT", 13: "RESOURCE_EXHAUSTED_PERSISTENT",
    14: "DEAD_OBJECT",
}  # fmt: skip
OUT_OF_MEMORY, DEAD_OBJECT = 1, 14
DEVICE_TYPES = {0: "unknown", 1: "other", 2: "CPU", 3: "GPU", 4: "accelerator"}
_CPU = 2


class NnapiError(RuntimeError):
    """A function of the library gave an error code."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} gave {ERRORS.get(code, 'an unknown error')} ({code})")
        self.code = code


class _Operand(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32), ("count", ctypes.c_uint32), ("dims", ctypes.POINTER(ctypes.c_uint32)),
        ("scale", ctypes.c_float), ("zero_point", ctypes.c_int32),
    )  # fmt: skip


class _ChannelScales(ctypes.Structure):
    _fields_ = (("dim", ctypes.c_uint32), ("count", ctypes.c_uint32), ("scales", ctypes.POINTER(ctypes.c_float)))


@dataclass(frozen=True)
class NnapiDevice:
    """One of the devices that the library lists.

    Attributes:
        handle: the library's pointer.
        kind: "CPU", "GPU", "accelerator", "other" or "unknown".
        level: the feature level of its driver.
    """

    handle: int
    name: str
    kind: str
    version: str
    level: int

    @property
    def cpu(self) -> bool:
        return self.kind == "CPU"


class Handle:
    """An object of the library, freed when nothing holds it any more, before what it was made from.

    Args:
        needs: what has to outlive it.
    """

    def __init__(self, library: Library, kind: str, pointer: int, needs: Sequence[Any] = ()) -> None:
        self._library, self._kind, self._needs = library, kind, tuple(needs)
        self.pointer = pointer

    def close(self) -> None:
        """Free it now."""
        pointer, self.pointer = self.pointer, 0
        if pointer:
            self._library.function(f"{self._kind}_free")(pointer)
        self._needs = ()

    def __del__(self) -> None:
        self.close()


class Library:
    """The functions of one libneuralnetworks.

    Args:
        functions: has the functions as attributes, as `ctypes.CDLL` does.

    Attributes:
        level: the feature level: 27 to 31, then 1000006 to 1000008.
    """

    def __init__(self, functions: Any) -> None:
        self._source = functions
        self._functions: dict[str, Callable[..., Any]] = {}
        self.level = self._found_level()

    def _found_level(self) -> int:
        if self.has("_getRuntimeFeatureLevel"):
            return int(self.function("_getRuntimeFeatureLevel")())
        for name, level in (("MemoryDesc_create", 30), ("_getDeviceCount", 29), ("Model_relaxComputationFloat32toFloat16", 28)):
            if self.has(name):
                return level
        return 27

    def has(self, name: str) -> bool:
        return hasattr(self._source, f"ANeuralNetworks{name}")

    def function(self, name: str) -> Callable[..., Any]:
        """The function ANeuralNetworks`name`.

        Raises:
            EPFail: the library is of a level that does not have it.
        """
        found = self._functions.get(name)
        if found is None:
            found = getattr(self._source, f"ANeuralNetworks{name}", None)
            level, result, arguments = _FUNCTIONS[name]
            if found is None:
                raise EPFail(f"this {FILE} has no ANeuralNetworks{name}, which Android's API level {level} has")
            found.restype, found.argtypes = result, arguments
            self._functions[name] = found
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """Raises NnapiError where the function gives an error code."""
        code = self.function(name)(*arguments)
        if code:
            raise NnapiError(f"ANeuralNetworks{name}", code)

    def made(self, kind: str, *arguments: Any, needs: Sequence[Any] = (), function: str = "create") -> Handle:
        """A new object of the library.

        Raises:
            NnapiError: the function gives an error code.
            EPFail: it gives neither an object nor an error.
        """
        pointer = ctypes.c_void_p()
        self.call(f"{kind}_{function}", *arguments, ctypes.addressof(pointer))
        if not pointer.value:
            raise EPFail(f"ANeuralNetworks{kind}_{function} gave no {kind} and no error; the library or a driver is broken")
        return Handle(self, kind, pointer.value, needs)

    def devices(self) -> list[NnapiDevice]:
        """The devices, from feature level 29 on; before that the library does not say."""
        if not self.has("_getDeviceCount"):
            return []
        count = ctypes.c_uint32()
        self.call("_getDeviceCount", ctypes.addressof(count))
        return [self._device(i) for i in range(count.value)]

    def _device(self, index: int) -> NnapiDevice:
        handle, kind, level = ctypes.c_void_p(), ctypes.c_int32(), ctypes.c_int64()
        self.call("_getDevice", index, ctypes.addressof(handle))
        self.call("Device_getType", handle, ctypes.addressof(kind))
        self.call("Device_getFeatureLevel", handle, ctypes.addressof(level))
        texts = [ctypes.c_char_p(), ctypes.c_char_p()]
        for name, text in zip(("getName", "getVersion"), texts, strict=True):
            self.call(f"Device_{name}", handle, ctypes.addressof(text))
        name, version = ((t.value or b"").decode(errors="replace") for t in texts)
        return NnapiDevice(handle.value or 0, name, DEVICE_TYPES.get(kind.value, "unknown"), version, level.value)


def operand_structure(kind: OperandType) -> tuple[Any, Any]:
    """`ANeuralNetworksOperandType` of a type, and what has to live as long."""
    dims = (ctypes.c_uint32 * len(kind.dims))(*kind.dims)
    return _Operand(int(kind.kind), len(kind.dims), dims, kind.scale, kind.zero_point), dims


def channel_structure(kind: OperandType) -> tuple[Any, Any]:
    """`ANeuralNetworksSymmPerChannelQuantParams` of a type, and what has to live as long."""
    scales = (ctypes.c_float * len(kind.channel_scales))(*kind.channel_scales)
    return _ChannelScales(kind.channel_dim, len(kind.channel_scales), scales), scales


def numbers(values: Sequence[int]) -> Any:
    """An array of uint32."""
    return (ctypes.c_uint32 * len(values))(*values)


_lock = fork_safety.lock()
_opened: list[Library] = []


def open_functions() -> Any:
    """Raises OSError where the loader does not find the library."""
    return ctypes.CDLL(FILE)


def library() -> Library:
    """The library of this machine, opened once.

    Raises:
        OSError: the loader does not find it.
    """
    with _lock:
        if not _opened:
            _opened.append(Library(open_functions()))
        return _opened[0]


def missing() -> str:
    """Why the library cannot be used; "" where it can."""
    try:
        library()
    except OSError as error:
        return f"the loader does not find {FILE} ({error})"
    return ""
