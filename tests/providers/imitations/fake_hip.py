"""libamdhip64 as ctypes sees it, over an imitated machine (fake_driver): results are written where pointers say.

Every function checks that it is given what the C function takes: pointers as `c_void_p` or by reference, no bare ints for them.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from fake_driver import Event, Graph, Machine

NAMES = {0: "hipSuccess", 1: "hipErrorInvalidValue", 2: "hipErrorOutOfMemory", 100: "hipErrorNoDevice",
         700: "hipErrorIllegalAddress", 900: "hipErrorStreamCaptureUnsupported"}  # fmt: skip
OUT_OF_MEMORY, NO_DEVICE, ILLEGAL_ADDRESS = 2, 100, 700


class _Named:
    """hipGetErrorName, whose `restype` callers set."""

    restype: Any = ctypes.c_int

    def __call__(self, error: int) -> Any:
        assert self.restype is ctypes.c_char_p, "a pointer would be cut to an int"
        return NAMES[error].encode()


class FakeHip(Machine):
    """Functions of the runtime."""

    architecture = b"gfx90a:sramecc+:xnack-"

    def begin(self) -> None:
        self.hipGetErrorName = _Named()
        self._device = 0
        self.current = [0]  # every thread begins with the first device

    def _error(self, name: str) -> int:
        return int(self.failures.pop(name, 0))

    def _give(self, name: str, reference: Any, value: Any) -> int:
        if error := self._error(name):
            return error
        reference._obj.value = value
        return 0

    @staticmethod
    def _pointer(value: Any) -> int:
        assert isinstance(value, ctypes.c_void_p), f"{value!r} would be passed as a C int"
        return value.value or 0

    # --- devices ---

    def hipInit(self, flags: int) -> int:
        return self._error("hipInit")

    def hipGetDeviceCount(self, count: Any) -> int:
        return self._give("hipGetDeviceCount", count, self.devices) or (0 if self.devices else NO_DEVICE)

    def hipRuntimeGetVersion(self, version: Any) -> int:
        return self._give("hipRuntimeGetVersion", version, 60342134)

    def hipDeviceGetName(self, name: Any, size: int, device: int) -> int:
        name.value = b"Imagined Instinct"
        return self._error("hipDeviceGetName")

    def hipDeviceGetPCIBusId(self, text: Any, size: int, device: int) -> int:
        text.value = f"0000:{device + 3:02X}:00.0".encode()
        return self._error("hipDeviceGetPCIBusId")

    def hipGetDevicePropertiesR0600(self, properties: Any, device: int) -> int:
        raw = b"gfx000 in a name".ljust(1160, b"\0") + self.architecture + b"\0"
        ctypes.memmove(properties, raw, len(raw))
        return self._error("hipGetDevicePropertiesR0600")

    def hipGetDevice(self, device: Any) -> int:
        return self._give("hipGetDevice", device, self._device)

    def hipSetDevice(self, device: int) -> int:
        self._device = device
        return self._error("hipSetDevice")

    def hipMemGetInfo(self, free: Any, total: Any) -> int:
        free._obj.value = self.memory_nbytes - self.used_nbytes
        return self._give("hipMemGetInfo", total, self.memory_nbytes)

    # --- streams and events ---

    def hipStreamCreateWithFlags(self, stream: Any, flags: Any) -> int:
        assert flags.value == 1
        return self._give("hipStreamCreateWithFlags", stream, self.stream())

    def hipStreamSynchronize(self, stream: Any) -> int:
        self.drain(self._pointer(stream))
        return self._error("hipStreamSynchronize")

    def hipEventCreateWithFlags(self, event: Any, flags: Any) -> int:
        return self._give("hipEventCreateWithFlags", event, self.handle(Event(flags.value == 0)))

    def hipEventDestroy(self, event: Any) -> int:
        del self.objects[self._pointer(event)]
        return self._error("hipEventDestroy")

    def hipEventRecord(self, event: Any, stream: Any) -> int:
        self.record(self._pointer(event), self._pointer(stream))
        return self._error("hipEventRecord")

    def hipEventSynchronize(self, event: Any) -> int:
        self.event_wait(self._pointer(event))
        return self._error("hipEventSynchronize")

    def hipEventElapsedTime(self, found: Any, start: Any, end: Any) -> int:
        return self._give("hipEventElapsedTime", found, self.milliseconds(self._pointer(start), self._pointer(end)))

    def hipStreamWaitEvent(self, stream: Any, event: Any, flags: Any) -> int:
        self.hold(self._pointer(stream), self._pointer(event))
        self.log.append("hold")
        return self._error("hipStreamWaitEvent")

    # --- memory ---

    def hipMalloc(self, address: Any, nbytes: Any) -> int:
        found = self.allocate(nbytes.value)
        return self._give("hipMalloc", address, found) if found else OUT_OF_MEMORY

    def hipFree(self, address: Any) -> int:
        self.free(self._pointer(address))
        return self._error("hipFree")

    def hipHostMalloc(self, address: Any, nbytes: Any, flags: Any) -> int:
        found = self.pin(nbytes.value)
        return self._give("hipHostMalloc", address, found) if found else OUT_OF_MEMORY

    def _copy(self, kind: str, name: str, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        self.copy(kind, self._pointer(target), self._pointer(source), nbytes.value, self._pointer(stream))
        return self._error(name)

    def hipMemcpyHtoDAsync(self, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        return self._copy("in", "hipMemcpyHtoDAsync", target, source, nbytes, stream)

    def hipMemcpyDtoHAsync(self, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        return self._copy("out", "hipMemcpyDtoHAsync", target, source, nbytes, stream)

    def hipMemcpyDtoDAsync(self, target: Any, source: Any, nbytes: Any, stream: Any) -> int:
        return self._copy("within", "hipMemcpyDtoDAsync", target, source, nbytes, stream)

    # --- kernels ---

    def hipModuleLoadData(self, module: Any, code: Any) -> int:
        start = ctypes.cast(code, ctypes.c_void_p).value or 0
        head = ctypes.string_at(start, 64)
        assert head[:4] == b"\x7fELF"
        return self._give("hipModuleLoadData", module, self.handle(head))

    def hipModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        assert name == b"main_kernel"
        assert self.objects[self._pointer(module)]
        return self._give("hipModuleGetFunction", function, self.function(self._pointer(module)))

    def hipModuleLaunchKernel(self, function: Any, gx: int, gy: int, gz: int, tx: int, ty: int, tz: int, shared: int,
                              stream: Any, arguments: Any, extra: None) -> int:  # fmt: skip
        self.launch(self._pointer(function), (gx, gy, gz), (tx, ty, tz), self._pointer(stream), self._pointer(arguments))
        return self._error("hipModuleLaunchKernel")

    # --- graphs ---

    def hipGraphCreate(self, graph: Any, flags: Any) -> int:
        assert flags.value == 0
        return self._give("hipGraphCreate", graph, self.handle(Graph()))

    def _parameters(self, given: Any) -> list[Any]:
        words = KernelNode.from_buffer_copy(bytes(given._obj))
        assert not words.extra and not words.shared
        return self.kernel_node(words.func, tuple(words.grid), tuple(words.block), words.arguments)

    def hipGraphAddKernelNode(self, node: Any, graph: Any, before: Any, count: Any, given: Any) -> int:
        made = self.add_node(self._pointer(graph), [before[i] for i in range(count.value)], self._parameters(given))
        return self._give("hipGraphAddKernelNode", node, made)

    def hipGraphExecKernelNodeSetParams(self, executable: Any, node: Any, given: Any) -> int:
        self.change_node(self._pointer(executable), self._pointer(node), self._parameters(given))
        return self._error("hipGraphExecKernelNodeSetParams")

    def hipGraphInstantiate(self, made: Any, graph: Any, node: None, text: None, size: Any) -> int:
        if "hipGraphInstantiate" in self.failures:
            return self._error("hipGraphInstantiate")
        found = self.instantiate(self._pointer(graph))
        return self._give("hipGraphInstantiate", made, found) if found else OUT_OF_MEMORY

    def hipGraphDestroy(self, graph: Any) -> int:
        self.drop_graph(self._pointer(graph))
        return self._error("hipGraphDestroy")

    def hipGraphExecDestroy(self, executable: Any) -> int:
        self.drop_executable(self._pointer(executable))
        return self._error("hipGraphExecDestroy")

    def hipGraphLaunch(self, executable: Any, stream: Any) -> int:
        if "hipGraphLaunch" not in self.failures:
            self.start_graph(self._pointer(executable), self._pointer(stream))
        return self._error("hipGraphLaunch")


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams as a C compiler lays it out: dim3, void**, void*, dim3, void**, unsigned int."""

    _pack_ = 1
    _fields_: ClassVar = [
        ("block", ctypes.c_uint * 3), ("_1", ctypes.c_uint), ("extra", ctypes.c_uint64), ("func", ctypes.c_uint64),
        ("grid", ctypes.c_uint * 3), ("_2", ctypes.c_uint), ("arguments", ctypes.c_uint64), ("shared", ctypes.c_uint),
        ("_3", ctypes.c_uint),
    ]  # fmt: skip
