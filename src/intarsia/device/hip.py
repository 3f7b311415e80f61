"""AMD's GPUs by ROCm's runtime (libamdhip64, through ctypes). Imported when a provider requests a device."""

from __future__ import annotations

import ctypes
import functools
import re
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any, ClassVar

from intarsia.codegen.clike import Hip, Limits
from intarsia.device import forking, hiprtc, rocm_libraries
from intarsia.device.driver import Answer, Driver
from intarsia.device.gpu import no_such_device
from intarsia.device.hardware.vendors import AMD
from intarsia.device.opened import OpenDevices
from intarsia.device.streams import Setup, StreamDevice
from intarsia.ep.device import Device
from intarsia.errors import EPFail

_NON_BLOCKING, _NO_TIMING = 1, 2
_NO_DEVICE = 100
_NAME_NBYTES, _PROPERTIES_NBYTES, _ADDRESS_NBYTES = 256, 8192, 32
_ARCHITECTURE = re.compile(rb"gfx[0-9a-f]{3,4}(?::[a-z]+[+-])*\0")


def runtime() -> Any:
    """The library with HIP's functions: each returns an error code and writes its results where pointers say."""
    return rocm_libraries.library("amdhip64")


@functools.cache
def missing() -> str:
    """What is missing for a device; "" where nothing is. Nothing is loaded where no GPU can be there."""
    if not rocm_libraries.KERNEL_DRIVER.exists():
        found = rocm_libraries.place("amdhip64")
        if found is None:
            return rocm_libraries.not_found("amdhip64")
        return f"{found} is there, and {rocm_libraries.KERNEL_DRIVER} is not: no AMD GPU, or amdgpu does not drive it"
    forking.use("rocm")
    try:
        error = runtime().hipInit(0)
        number = count() if not error else 0
    except EPFail as failure:
        return str(failure)
    if error and error != _NO_DEVICE and error != _NO_DEVICE + 1:
        return f"ROCm's runtime does not start: {_name(error)}"
    if not number:
        return "ROCm's runtime finds no GPU: check that amdgpu drives it, and that the user may read /dev/kfd (group render)"
    return hiprtc.missing()


def count() -> int:
    found = c_int()
    error = runtime().hipGetDeviceCount(byref(found))
    if error and error != _NO_DEVICE:
        raise EPFail(f"ROCm: devices could not be counted: {_name(error)}")
    return found.value


def described(index: int) -> Device:
    name = ctypes.create_string_buffer(_NAME_NBYTES)
    _checked(runtime().hipDeviceGetName(name, _NAME_NBYTES, index), "a device's name could not be read")
    title = name.value.decode(errors="replace")
    return Device("rocm", index, vendor="AMD", description=title, vendor_id=AMD, pci_bus_id=_address(index))


def _address(index: int) -> str:
    """Where a device is on the PCI bus ("0000:03:00.0"); "" where the runtime does not say."""
    text = ctypes.create_string_buffer(_ADDRESS_NBYTES)
    error = runtime().hipDeviceGetPCIBusId(text, _ADDRESS_NBYTES, index)
    return "" if error else text.value.decode(errors="replace").lower()


def devices() -> list[Device]:
    return [] if missing() else [described(i) for i in range(count())]


def architecture_of(index: int) -> str:
    """What a device's code is compiled for: "gfx90a:sramecc+:xnack-".

    It is found by its form: where it lies among a device's properties differs between versions of the runtime. They
    begin with the device's name in 256 bytes.
    """
    properties = ctypes.create_string_buffer(_PROPERTIES_NBYTES)
    lib = runtime()
    ask = lib.hipGetDevicePropertiesR0600 if hasattr(lib, "hipGetDevicePropertiesR0600") else lib.hipGetDeviceProperties
    _checked(ask(properties, index), f"rocm:{index} does not tell its properties")
    found = _ARCHITECTURE.search(properties.raw, _NAME_NBYTES)
    if found is None:
        raise EPFail(f"ROCm: the properties of rocm:{index} name no architecture: install ROCm 5 or later")
    return found.group()[:-1].decode()


def runtime_version() -> str:
    """Major and minor number of ROCm's HIP; "" where it does not say."""
    found = c_int()
    if runtime().hipRuntimeGetVersion(byref(found)):
        return ""
    return f"{found.value // 10_000_000}.{found.value // 100_000 % 100}"


_opened: OpenDevices[Setup, HipDevice] = OpenDevices("rocm", "ROCm")


def open_device(setup: Setup | int = 0) -> HipDevice:
    """The device: one for all sessions that ask for the same, opened again where it was lost.

    Raises:
        EPFail: there is no such device, or it cannot be used.
    """
    setup = Setup(setup) if isinstance(setup, int) else setup
    return _opened.get(setup, lambda: missing() or no_such_device(setup.index, devices()), lambda: HipDevice(setup))


class HipDriver(Driver):
    """The functions of `runtime()`. A context is a device's number: HIP has one context for each device."""

    kind: ClassVar[str] = "rocm"
    title: ClassVar[str] = "ROCm"
    out_of_memory: ClassVar[str] = "hipErrorOutOfMemory"
    lost: ClassVar[frozenset[str]] = frozenset((
        "hipErrorIllegalAddress", "hipErrorLaunchFailure", "hipErrorECCNotCorrectable", "hipErrorContextIsDestroyed",
        "hipErrorLaunchTimeOut", "hipErrorAssert", "hipErrorUnknown", "hipErrorDeinitialized",
    ))  # fmt: skip

    def __init__(self) -> None:
        self._hip = runtime()
        self._images: list[bytes] = []  # machine code, which the runtime may read as long as its kernels live

    def name_of(self, error: Any) -> str:
        return _name(error)

    def _made(self, error: int, handle: Any) -> Answer:
        return error, handle.value

    def context(self, index: int) -> Answer:
        return 0, index

    def enter(self, context: Any) -> Answer:
        before = c_int()
        if error := self._hip.hipGetDevice(byref(before)):
            return error, None
        if before.value == context:
            return 0, None
        return self._hip.hipSetDevice(context), before.value

    def leave(self, before: Any) -> Answer:
        return (0 if before is None else self._hip.hipSetDevice(before),)

    def memory_info(self) -> Answer:
        free, total = c_size_t(), c_size_t()
        return self._hip.hipMemGetInfo(byref(free), byref(total)), free.value, total.value

    def allocate(self, nbytes: int) -> Answer:
        found = c_void_p()
        return self._made(self._hip.hipMalloc(byref(found), c_size_t(nbytes)), found)

    def free(self, address: int) -> Answer:
        return (self._hip.hipFree(c_void_p(address)),)

    def allocate_pinned(self, nbytes: int) -> Answer:
        found = c_void_p()
        return self._made(self._hip.hipHostMalloc(byref(found), c_size_t(nbytes), c_uint(0)), found)

    def copy_in(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyHtoDAsync(c_void_p(target), c_void_p(source), c_size_t(nbytes), c_void_p(stream)),)

    def copy_out(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyDtoHAsync(c_void_p(target), c_void_p(source), c_size_t(nbytes), c_void_p(stream)),)

    def copy_within(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return (self._hip.hipMemcpyDtoDAsync(c_void_p(target), c_void_p(source), c_size_t(nbytes), c_void_p(stream)),)

    def stream(self) -> Answer:
        found = c_void_p()
        return self._made(self._hip.hipStreamCreateWithFlags(byref(found), c_uint(_NON_BLOCKING)), found)

    def synchronize(self, stream: Any) -> Answer:
        return (self._hip.hipStreamSynchronize(c_void_p(stream)),)

    def event(self, timed: bool) -> Answer:
        found = c_void_p()
        return self._made(self._hip.hipEventCreateWithFlags(byref(found), c_uint(0 if timed else _NO_TIMING)), found)

    def record(self, event: Any, stream: Any) -> Answer:
        return (self._hip.hipEventRecord(c_void_p(event), c_void_p(stream)),)

    def hold(self, stream: Any, event: Any) -> Answer:
        return (self._hip.hipStreamWaitEvent(c_void_p(stream), c_void_p(event), c_uint(0)),)

    def wait(self, event: Any) -> Answer:
        return (self._hip.hipEventSynchronize(c_void_p(event)),)

    def milliseconds(self, start: Any, end: Any) -> Answer:
        found = c_float()
        return self._made(self._hip.hipEventElapsedTime(byref(found), c_void_p(start), c_void_p(end)), found)

    def drop_event(self, event: Any) -> Answer:
        return (self._hip.hipEventDestroy(c_void_p(event)),)

    def function(self, code: bytes) -> Answer:
        module, found = c_void_p(), c_void_p()
        self._images.append(code)
        if error := self._hip.hipModuleLoadData(byref(module), c_char_p(code)):
            return error, None
        return self._made(self._hip.hipModuleGetFunction(byref(found), module, b"main_kernel"), found)

    def launch(
        self, function: Any, groups: tuple[int, int, int], threads: int, stream: Any, pointers: int, shared_nbytes: int = 0
    ) -> Answer:
        launch = self._hip.hipModuleLaunchKernel
        given = (c_void_p(stream), c_void_p(pointers), None)
        return (launch(c_void_p(function), *groups, threads, 1, 1, shared_nbytes, *given),)

    def graph(self) -> Answer:
        found = c_void_p()
        return self._made(self._hip.hipGraphCreate(byref(found), c_uint(0)), found)

    def add_kernel(
        self, graph: Any, after: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        made, before = c_void_p(), (c_void_p * 1)(after)
        given = KernelNode.of(function, groups, threads, pointers, shared_nbytes)
        count = c_size_t(0 if after is None else 1)
        return self._made(self._hip.hipGraphAddKernelNode(byref(made), c_void_p(graph), before, count, byref(given)), made)

    def instantiate(self, graph: Any) -> Answer:
        found = c_void_p()
        made = self._hip.hipGraphInstantiate(byref(found), c_void_p(graph), None, None, c_size_t(0))
        return self._made(made, found)

    def change_kernel(
        self, executable: Any, node: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        given = KernelNode.of(function, groups, threads, pointers, shared_nbytes)
        return (self._hip.hipGraphExecKernelNodeSetParams(c_void_p(executable), c_void_p(node), byref(given)),)

    def start_graph(self, executable: Any, stream: Any) -> Answer:
        return (self._hip.hipGraphLaunch(c_void_p(executable), c_void_p(stream)),)

    def drop_graph(self, graph: Any) -> Answer:
        return (self._hip.hipGraphDestroy(c_void_p(graph)),)

    def drop_executable(self, executable: Any) -> Answer:
        return (self._hip.hipGraphExecDestroy(c_void_p(executable)),)


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams."""

    _fields_: ClassVar = [
        ("block", c_uint * 3), ("extra", c_void_p), ("func", c_void_p), ("grid", c_uint * 3), ("arguments", c_void_p),
        ("shared_nbytes", c_uint),
    ]  # fmt: skip

    @classmethod
    def of(cls, function: Any, groups: tuple[int, int, int], threads: int, pointers: int, shared_nbytes: int) -> KernelNode:
        return cls((threads, 1, 1), None, function, groups, pointers, shared_nbytes)


class HipDevice(StreamDevice):
    """An AMD GPU."""

    def __init__(self, setup: Setup) -> None:
        self.architecture = architecture_of(setup.index)
        super().__init__(HipDriver(), setup, described(setup.index), Hip(Limits(64, 256, 65536, 65535)))

    def identity(self) -> tuple[str, ...]:
        return "rocm", self.device.description, self.architecture, runtime_version(), hiprtc.version()

    def machine_code(self, source: str) -> bytes:
        return hiprtc.compiled(source, self.architecture)


def _name(error: int) -> str:
    get = runtime().hipGetErrorName
    get.restype = c_char_p
    found: bytes = get(error)
    return found.decode()


def _checked(error: int, what: str) -> None:
    if error:
        raise EPFail(f"ROCm: {what}: {_name(error)}")
