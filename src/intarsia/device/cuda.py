"""CUDA by its driver's interface (the package cuda-bindings). Imported when a provider requests a device.

The device's primary context is used, which PyTorch, CuPy and all others that use the runtime's interface share.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from intarsia.codegen.clike import Cuda, Limits
from intarsia.codegen.clike.dialects.cuda import TENSOR_CORES
from intarsia.device import forking, nvrtc
from intarsia.device.cuda_libraries import CudaLibraries, LibraryOptions
from intarsia.device.driver import Answer, Driver
from intarsia.device.gpu import no_such_device
from intarsia.device.hardware.vendors import NVIDIA
from intarsia.device.opened import OpenDevices
from intarsia.device.streams import Setup, StreamDevice
from intarsia.ep.device import Device
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType

__all__ = ["CudaDevice", "CudaDriver", "LibraryOptions", "Setup", "count", "described", "missing", "open_device"]

_KERNEL_DRIVER = Path("/proc/driver/nvidia/version")


def driver() -> Any:
    """The module of the driver's functions: each returns a tuple of an error code and its results."""
    from cuda.bindings import driver

    return driver


_ADDRESS_NBYTES = 32
# Of machine code, be it that it is too new.
_REFUSED = ("CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")


@functools.cache
def missing() -> str:
    """What is missing for a device; "" where nothing is."""
    if why := nvrtc.missing():
        return why
    forking.use("cuda")
    try:
        _checked(driver().cuInit(0), "the driver does not start")
        count = _checked(driver().cuDeviceGetCount(), "devices could not be counted")
    except EPFail as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the package raises errors of its own where the library is not found
        return f"NVIDIA's driver is not found: {error}".rstrip(".")
    return "" if count else "NVIDIA's driver finds no GPU"


def count() -> int:
    found: int = _checked(driver().cuDeviceGetCount(), "devices could not be counted")
    return found


def described(index: int) -> Device:
    handle = _checked(driver().cuDeviceGet(index), f"device {index} could not be opened")
    name = _checked(driver().cuDeviceGetName(128, handle), "a device's name could not be read")
    return Device(
        "cuda", index, vendor="NVIDIA", description=name.split(b"\0")[0].decode(), vendor_id=NVIDIA, pci_bus_id=_address(handle)
    )


def _address(handle: Any) -> str:
    """Where a device is on the PCI bus ("0000:01:00.0"); "" where the driver does not say."""
    error, text = driver().cuDeviceGetPCIBusId(_ADDRESS_NBYTES, handle)
    return "" if int(error) else str(text.split(b"\0")[0].decode()).lower()


def devices() -> list[Device]:
    return [] if missing() else [described(i) for i in range(count())]


_opened: OpenDevices[Setup, CudaDevice] = OpenDevices("cuda", "CUDA")


def open_device(setup: Setup | int = 0) -> CudaDevice:
    """The device: one for all sessions that ask for the same, opened again where it was lost.

    Raises:
        EPFail: there is no such device, or it gives no context.
    """
    setup = Setup(setup) if isinstance(setup, int) else setup
    return _opened.get(setup, lambda: missing() or no_such_device(setup.index, devices()), lambda: CudaDevice(setup))


class _Functions(Protocol):
    """Those of the bindings: each gives an error, and what it has made."""

    def __getattr__(self, name: str) -> Callable[..., Answer]: ...


class CudaDriver(Driver):
    """The functions of `driver()`."""

    kind: ClassVar[str] = "cuda"
    title: ClassVar[str] = "CUDA"
    out_of_memory: ClassVar[str] = "CUDA_ERROR_OUT_OF_MEMORY"
    final: ClassVar[frozenset[str]] = frozenset((
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT", "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_FAILED",
    ))  # fmt: skip
    lost: ClassVar[frozenset[str]] = final | {
        "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_ERROR_UNKNOWN",
    }  # fmt: skip

    def __init__(self) -> None:
        self._cu = driver()
        self._call: _Functions = self._cu

    def name_of(self, error: Any) -> str:
        return str(getattr(error, "name", error))

    def context(self, index: int) -> Answer:
        error, handle = self._cu.cuDeviceGet(index)
        return (error, None) if int(error) else self._cu.cuDevicePrimaryCtxRetain(handle)

    def enter(self, context: Any) -> Answer:
        (error,) = self._cu.cuCtxPushCurrent(context)
        return error, None

    def leave(self, before: Any) -> Answer:
        return self._call.cuCtxPopCurrent()

    def memory_info(self) -> Answer:
        return self._call.cuMemGetInfo()

    def allocate(self, nbytes: int) -> Answer:
        return self._call.cuMemAlloc(nbytes)

    def free(self, address: int) -> Answer:
        return self._call.cuMemFree(address)

    def allocate_pinned(self, nbytes: int) -> Answer:
        return self._call.cuMemHostAlloc(nbytes, 0)

    def copy_in(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return self._call.cuMemcpyHtoDAsync(target, source, nbytes, stream)

    def copy_out(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return self._call.cuMemcpyDtoHAsync(target, source, nbytes, stream)

    def copy_within(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        return self._call.cuMemcpyDtoDAsync(target, source, nbytes, stream)

    def stream(self) -> Answer:
        return self._call.cuStreamCreate(self._cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)

    def synchronize(self, stream: Any) -> Answer:
        return self._call.cuStreamSynchronize(stream)

    def event(self, timed: bool) -> Answer:
        kinds = self._cu.CUevent_flags
        flags = kinds.CU_EVENT_DEFAULT if timed else kinds.CU_EVENT_DISABLE_TIMING
        return self._call.cuEventCreate(flags.value)

    def record(self, event: Any, stream: Any) -> Answer:
        return self._call.cuEventRecord(event, stream)

    def hold(self, stream: Any, event: Any) -> Answer:
        return self._call.cuStreamWaitEvent(stream, event, 0)

    def wait(self, event: Any) -> Answer:
        return self._call.cuEventSynchronize(event)

    def milliseconds(self, start: Any, end: Any) -> Answer:
        return self._call.cuEventElapsedTime(start, end)

    def drop_event(self, event: Any) -> Answer:
        return self._call.cuEventDestroy(event)

    def function(self, code: bytes) -> Answer:
        error, module = self._cu.cuModuleLoadData(code)
        return (error, None) if int(error) else self._cu.cuModuleGetFunction(module, b"main_kernel")

    def advice(self, name: str) -> str:
        if name not in _REFUSED:
            return ""
        version = _checked(self._cu.cuDriverGetVersion(), "the driver does not tell its version")
        most, made = f"{version // 1000}.{version % 1000 // 10}", nvrtc.version()
        return (
            f": the driver is one of CUDA {most}, and the kernel was compiled by NVRTC {made}; "
            f"install a driver of CUDA {made} or later, or an NVRTC of CUDA {most} or earlier"
        )

    def allow_shared(self, function: Any, nbytes: int) -> Answer:
        most = self._cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        return self._call.cuFuncSetAttribute(function, most, nbytes)

    def launch(
        self, function: Any, groups: tuple[int, int, int], threads: int, stream: Any, pointers: int, shared_nbytes: int = 0
    ) -> Answer:
        return self._call.cuLaunchKernel(function, *groups, threads, 1, 1, shared_nbytes, stream, pointers, 0)

    def graph(self) -> Answer:
        return self._call.cuGraphCreate(0)

    def add_kernel(
        self, graph: Any, after: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        before = [] if after is None else [after]
        given = self._parameters(function, groups, threads, pointers, shared_nbytes)
        return self._call.cuGraphAddKernelNode(graph, before, len(before), given)

    def add_graph(self, graph: Any, after: Any, inner: Any) -> Answer:
        before = [] if after is None else [after]
        return self._call.cuGraphAddChildGraphNode(graph, before, len(before), inner)

    def _parameters(self, function: Any, groups: tuple[int, int, int], threads: int, pointers: int, shared_nbytes: int) -> Any:
        made = self._cu.CUDA_KERNEL_NODE_PARAMS()
        made.func = function
        made.gridDimX, made.gridDimY, made.gridDimZ = groups
        made.blockDimX, made.blockDimY, made.blockDimZ = threads, 1, 1
        made.sharedMemBytes, made.kernelParams, made.extra = shared_nbytes, pointers, 0
        return made

    def begin_capture(self, stream: Any) -> Answer:
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        return self._call.cuStreamBeginCapture(stream, mode)

    def end_capture(self, stream: Any) -> Answer:
        return self._call.cuStreamEndCapture(stream)

    def instantiate(self, graph: Any) -> Answer:
        return self._call.cuGraphInstantiate(graph, 0)

    def change_kernel(
        self, executable: Any, node: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        given = self._parameters(function, groups, threads, pointers, shared_nbytes)
        return self._call.cuGraphExecKernelNodeSetParams(executable, node, given)

    def change_graph(self, executable: Any, node: Any, inner: Any) -> Answer:
        return self._call.cuGraphExecChildGraphNodeSetParams(executable, node, inner)

    def upload(self, executable: Any, stream: Any) -> Answer:
        return self._call.cuGraphUpload(executable, stream)

    def start_graph(self, executable: Any, stream: Any) -> Answer:
        return self._call.cuGraphLaunch(executable, stream)

    def drop_graph(self, graph: Any) -> Answer:
        return self._call.cuGraphDestroy(graph)

    def drop_executable(self, executable: Any) -> Answer:
        return self._call.cuGraphExecDestroy(executable)


class CudaDevice(StreamDevice):
    """An NVIDIA GPU."""

    compilers = min(os.cpu_count() or 1, 16)

    def __init__(self, setup: Setup) -> None:
        cu = driver()
        handle = _checked(cu.cuDeviceGet(setup.index), f"cuda:{setup.index} could not be opened")

        def attribute(name: str) -> int:
            kind = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            found: int = _checked(cu.cuDeviceGetAttribute(kind, handle), f"cuda:{setup.index} could not be queried")
            return found

        capability = 10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR")
        known = nvrtc.architectures()
        if capability not in known:
            raise EPFail(
                f"CUDA: device {setup.index} has compute capability {capability / 10}; NVRTC {nvrtc.version()} compiles for "
                f"{', '.join(str(a / 10) for a in known)}: install a version of nvidia-cuda-nvrtc that knows it"
            )
        self.architecture = capability
        shared = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
        limits = Limits(64, 256, 49152, attribute("MAX_GRID_DIM_Y"), group_nbytes=shared[0], unit_nbytes=shared[1])
        units = (DType.INT8, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT) if capability >= TENSOR_CORES else ()
        self.exact = Cuda(limits, units[:3], capability)
        """What kernels are printed in where float32 may not be rounded to TF32."""
        super().__init__(CudaDriver(), setup, described(setup.index), Cuda(limits, units, capability))
        self._libraries: dict[LibraryOptions, CudaLibraries] = {}
        self._started: dict[str, Any] = {}

    def identity(self) -> tuple[str, ...]:
        """With the version of the kernel's part of the driver where the system tells it: CUDA's own changes more rarely."""
        version = _checked(driver().cuDriverGetVersion(), "the driver does not tell its version")
        with contextlib.suppress(OSError):
            version = f"{version} {_KERNEL_DRIVER.read_text(encoding='utf-8', errors='replace')}"
        return "cuda", self.device.description, str(self.architecture), str(version), nvrtc.version()

    def machine_code(self, source: str) -> bytes:
        return nvrtc.compiled(source, self.architecture)

    def libraries(self, options: LibraryOptions) -> CudaLibraries:
        """What NVIDIA's libraries compute here for sessions with these options, which share the libraries themselves."""
        with self.lock:
            if options not in self._libraries:
                version = _checked(driver().cuDriverGetVersion(), "the driver does not tell its version")
                self._libraries[options] = CudaLibraries(self, options, version // 1000, self._started)
            return self._libraries[options]


def _checked(result: tuple[Any, ...], what: str) -> Any:
    error, *values = result
    if int(error):
        raise EPFail(f"{what}: {getattr(error, 'name', error)}")
    return values[0] if len(values) == 1 else tuple(values)
