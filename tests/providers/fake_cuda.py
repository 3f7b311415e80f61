"""CUDA's driver as a Python object over the host's memory: everything but that kernels compute.

Copies copy, launches check that all their arguments lie in living allocations, errors can be ordered. What kernels compute
is proved by OpenCL, whose text differs in a few words, and on GPUs.
"""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass, field
from typing import Any


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class CUstream_flags(enum.IntEnum):
    CU_STREAM_NON_BLOCKING = 1


class CUevent_flags(enum.IntEnum):
    CU_EVENT_DISABLE_TIMING = 2


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


OK = CUresult.CUDA_SUCCESS


@dataclass
class FakeDriver:
    """Functions of the driver, each with what cuda-bindings returns.

    Attributes:
        memory_nbytes: of the device.
        failures: function -> what its next call answers.
        log: names of the calls that started something, in order.
    """

    memory_nbytes: int = 1 << 30
    devices: int = 1
    failures: dict[str, CUresult] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    allocations: dict[int, Any] = field(default_factory=dict)
    contexts: list[Any] = field(default_factory=list)
    _handles: int = 1000
    _captured: list[Any] | None = None

    CUstream_flags = CUstream_flags
    CUevent_flags = CUevent_flags
    CUstreamCaptureMode = CUstreamCaptureMode
    CUdevice_attribute = CUdevice_attribute

    def _answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        error = self.failures.pop(name, OK)
        return (error, *(values if error is OK else (None,) * len(values)))

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    # --- devices ---

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuInit")

    def cuDeviceGetCount(self) -> tuple[Any, ...]:
        return self._answer("cuDeviceGetCount", self.devices)

    def cuDeviceGet(self, index: int) -> tuple[Any, ...]:
        return self._answer("cuDeviceGet", index)

    def cuDeviceGetName(self, size: int, device: int) -> tuple[Any, ...]:
        return self._answer("cuDeviceGetName", b"Imagined GPU".ljust(size, b"\0"))

    def cuDeviceGetAttribute(self, attribute: CUdevice_attribute, device: int) -> tuple[Any, ...]:
        values = {CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: 65535,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0}  # fmt: skip
        return self._answer("cuDeviceGetAttribute", values[attribute])

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return self._answer("cuDevicePrimaryCtxRetain", self._handle())

    def cuCtxPushCurrent(self, context: Any) -> tuple[Any, ...]:
        self.contexts.append(context)
        return self._answer("cuCtxPushCurrent")

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return self._answer("cuCtxPopCurrent", self.contexts.pop())

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuStreamCreate", self._handle())

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuEventCreate", self._handle())

    def cuEventRecord(self, event: Any, stream: Any) -> tuple[Any, ...]:
        self.log.append("record")
        return self._answer("cuEventRecord")

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[Any, ...]:
        self.log.append("wait")
        return self._answer("cuStreamWaitEvent")

    def cuStreamSynchronize(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cuStreamSynchronize")

    # --- memory ---

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        used = sum(len(b) for b in self.allocations.values())
        return self._answer("cuMemGetInfo", self.memory_nbytes - used, self.memory_nbytes)

    def cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        assert self.contexts, "no context is current"
        if sum(len(b) for b in self.allocations.values()) + nbytes > self.memory_nbytes:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        block = (ctypes.c_char * nbytes)()
        self.allocations[ctypes.addressof(block)] = block
        return self._answer("cuMemAlloc", ctypes.addressof(block))

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        del self.allocations[address]
        return self._answer("cuMemFree")

    def _inside(self, address: int, nbytes: int) -> bool:
        return any(start <= address and address + nbytes <= start + len(b) for start, b in self.allocations.items())

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        assert self._inside(target, nbytes)
        ctypes.memmove(target, source, nbytes)
        self.log.append("in")
        return self._answer("cuMemcpyHtoDAsync")

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        assert self._inside(source, nbytes)
        ctypes.memmove(target, source, nbytes)
        self.log.append("out")
        return self._answer("cuMemcpyDtoHAsync")

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        assert self._inside(source, nbytes)
        assert self._inside(target, nbytes)
        ctypes.memmove(target, source, nbytes)
        self.log.append("within")
        return self._answer("cuMemcpyDtoDAsync")

    # --- kernels ---

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, ...]:
        assert code[:4] == b"\x7fELF"
        return self._answer("cuModuleLoadData", code)

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, ...]:
        assert name in module
        return self._answer("cuModuleGetFunction", self._handle())

    def cuLaunchKernel(self, function: Any, gx: int, gy: int, gz: int, tx: int, ty: int, tz: int, shared: int, stream: Any,
                       arguments: int, extra: int) -> tuple[Any, ...]:  # fmt: skip
        assert 0 < gx < 1 << 31
        assert 0 < gy < 65536
        assert 0 < gz < 65536
        assert 0 < tx * ty * tz <= 1024
        first = ctypes.cast(ctypes.c_void_p(arguments), ctypes.POINTER(ctypes.c_void_p))[0]
        assert first is not None
        address = ctypes.c_uint64.from_address(first).value
        assert self._inside(address, 1), hex(address)
        if self._captured is not None:
            self._captured.append(function)
        else:
            self.log.append("launch")
        return self._answer("cuLaunchKernel")

    # --- graphs ---

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]:
        self._captured = []
        return self._answer("cuStreamBeginCapture")

    def cuStreamEndCapture(self, stream: Any) -> tuple[Any, ...]:
        found, self._captured = self._captured, None
        return self._answer("cuStreamEndCapture", found)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
        return self._answer("cuGraphInstantiate", tuple(graph))

    def cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphDestroy")

    def cuGraphExecDestroy(self, graph: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphExecDestroy")

    def cuGraphLaunch(self, graph: Any, stream: Any) -> tuple[Any, ...]:
        self.log.append(f"graph of {len(graph)}")
        return self._answer("cuGraphLaunch")
