"""CUDA by its driver's interface (the package cuda-bindings). Imported when a provider asks for a device.

The device's primary context is used, which PyTorch, CuPy and all others that use the runtime's interface share.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.codegen.clike import Cuda, Kernel, Limits
from intarsia.device import nvrtc
from intarsia.device.gpu import ALIGNMENT, DeviceLimits, Gpu, Launch
from intarsia.errors import DeviceLost, EPFail, OutOfMemory
from intarsia.partition.device import Device

_KEPT_GRAPHS = 16
_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_LOST = frozenset((
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_UNKNOWN",
))  # fmt: skip
"""After these every call in the context fails."""


def driver() -> Any:
    """The module of the driver's functions: each returns a tuple of an error code and its results."""
    from cuda.bindings import driver

    return driver


@functools.cache
def missing() -> str:
    """What is missing for a device; "" where nothing is."""
    if why := nvrtc.missing():
        return why
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
    return Device("cuda", index, vendor="NVIDIA", description=name.split(b"\0")[0].decode())


@dataclass(frozen=True)
class Setup:
    """How a device is opened: sessions that ask for the same share it.

    Attributes:
        memory_limit: bytes; 0: none.
        doubling: sizes of blocks are powers of two, so that a freed one serves more requests.
        stream: address of the stream to work in; 0: one of its own.
        separate_copies: copies run in a stream of their own, ordered with kernels by events.
        graphs: launches that come again on the same memory are captured once and replayed.
    """

    index: int = 0
    memory_limit: int = 0
    doubling: bool = True
    stream: int = 0
    separate_copies: bool = False
    graphs: bool = False


_opened: dict[Setup, CudaDevice] = {}
_lock = threading.Lock()


def open_device(setup: Setup) -> CudaDevice:
    """The device: one for all sessions that ask for the same, opened again where it was lost.

    Raises:
        EPFail: there is no such device, or it gives no context.
    """
    with _lock:
        found = _opened.get(setup)
        if found is None or found.lost:
            if why := missing():
                raise EPFail(f"CUDA: no device: {why}")
            if not 0 <= setup.index < count():
                names = ", ".join(str(described(i).description) for i in range(count()))
                raise EPFail(f"CUDA: device_id {setup.index} was asked for; there are {count()}: {names}")
            found = _opened[setup] = CudaDevice(setup)
        return found


@dataclass(frozen=True)
class _Call:
    """A kernel with its arguments. `values` and `pointers` are what the driver reads; `key` is equal for equal calls."""

    function: Any
    groups: tuple[int, int, int]
    threads: int
    values: np.ndarray
    pointers: np.ndarray
    key: tuple[int, bytes, tuple[int, int, int]]


class CudaDevice(Gpu):
    """A device's primary context with one stream, which runs in order."""

    def __init__(self, setup: Setup) -> None:
        self._driver = cu = driver()
        self.lost = ""
        self.setup = setup
        handle = self._ask(cu.cuDeviceGet(setup.index), "could not be opened")
        self._context = self._ask(cu.cuDevicePrimaryCtxRetain(handle), "gives no context")
        kinds = cu.CUdevice_attribute

        def attribute(name: str) -> int:
            found: int = self._ask(
                cu.cuDeviceGetAttribute(getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), handle), "could not be asked"
            )
            return found

        capability = 10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR")
        known = nvrtc.architectures()
        if capability not in known:
            raise EPFail(
                f"CUDA: device {setup.index} has compute capability {capability / 10}; NVRTC {nvrtc.version()} compiles for "
                f"{', '.join(str(a / 10) for a in known)}: install a version of nvidia-cuda-nvrtc that knows it"
            )
        self.architecture = capability
        with self._current():
            total = self._ask(cu.cuMemGetInfo(), "does not tell its memory")[1]
            self._stream = setup.stream or self._ask(
                cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value), "gives no stream"
            )
            self._copies = self._stream
            if setup.separate_copies:
                self._copies = self._ask(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value), "gives no stream")
                self._event = self._ask(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value), "gives no event")
        self._graphs: OrderedDict[object, Any] = OrderedDict()  # calls -> their graph; None: seen once
        dialect = Cuda(Limits(64, 256, 49152, attribute("MAX_GRID_DIM_Y")))
        nbytes = total // ALIGNMENT * ALIGNMENT
        super().__init__(described(setup.index), dialect, DeviceLimits(nbytes, nbytes), setup.memory_limit)

    # --- the driver ---

    def _ask(self, result: tuple[Any, ...], what: str) -> Any:
        """The results of a call; its error as one of ours."""
        error, *values = result
        if int(error):
            raise self._failure(what, error)
        return values[0] if len(values) == 1 else tuple(values)

    def _failure(self, what: str, error: Any) -> EPFail | OutOfMemory:
        name = getattr(error, "name", str(error))
        text = f"cuda:{self.setup.index} {what}: {name}"
        if name == _OUT_OF_MEMORY:
            return OutOfMemory(f"{text}: use a smaller batch or a shorter input, or close other programs that use the GPU")
        if name in _LOST:
            self.lost = name
            return DeviceLost(f"{text}; what was in its memory is gone: make the session again")
        return EPFail(text)

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """The context is the calling thread's, which gets its own back."""
        self._ask(self._driver.cuCtxPushCurrent(self._context), "could not be used")
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent()

    # --- memory ---

    def _extent(self, nbytes: int) -> int:
        nbytes = super()._extent(nbytes)
        return min(1 << (nbytes - 1).bit_length(), max(nbytes, self.limits.buffer_nbytes)) if self.setup.doubling else nbytes

    def _create(self, nbytes: int) -> int:
        with self._current():
            return int(self._ask(self._driver.cuMemAlloc(nbytes), f"could not allocate {nbytes:,} bytes"))

    def _destroy(self, buffer: int) -> None:
        with self._current():
            self._driver.cuMemFree(buffer)

    def _write(self, buffer: int, offset: int, data: memoryview) -> None:
        """The driver has read pageable memory when the call returns, whenever the copy takes place."""
        array = np.frombuffer(data, np.uint8)
        with self._current(), self._copying():
            self._ask(
                self._driver.cuMemcpyHtoDAsync(buffer + offset, array.ctypes.data, array.nbytes, self._copies),
                "could not write memory",
            )

    def _read(self, buffer: int, offset: int, nbytes: int) -> memoryview:
        found = np.empty(nbytes, np.uint8)
        with self._current():
            with self._copying():
                self._ask(
                    self._driver.cuMemcpyDtoHAsync(found.ctypes.data, buffer + offset, nbytes, self._copies),
                    "could not read memory",
                )
            self._ask(self._driver.cuStreamSynchronize(self._copies), "failed in a kernel or copy")
        return found.data

    def _copy(self, source: Any, target: Any, nbytes: int) -> None:
        with self._current():
            self._ask(
                self._driver.cuMemcpyDtoDAsync(
                    target.memory.buffer + target.offset, source.memory.buffer + source.offset, nbytes, self._stream
                ),
                "could not copy memory",
            )

    @contextlib.contextmanager
    def _copying(self) -> Iterator[None]:
        """Kernels that were started before come before the copy, and later ones behind it."""
        if not self.setup.separate_copies:
            yield
            return
        self._order(self._stream, self._copies)
        yield
        self._order(self._copies, self._stream)

    def _order(self, first: Any, then: Any) -> None:
        self._ask(self._driver.cuEventRecord(self._event, first), "could not record an event")
        self._ask(self._driver.cuStreamWaitEvent(then, self._event, 0), "could not wait for an event")

    # --- kernels ---

    def _compile(self, kernel: Kernel) -> Any:
        code = nvrtc.compiled(kernel.source, self.architecture)
        with self._current():
            module = self._ask(self._driver.cuModuleLoadData(code), "could not load a kernel")
            return self._ask(self._driver.cuModuleGetFunction(module, b"main_kernel"), "could not find a kernel")

    def bind(self, launch: Launch) -> _Call:
        values = np.array([s.memory.buffer + s.offset for s in launch.bindings], np.uint64)
        pointers = (values.ctypes.data + 8 * np.arange(len(values))).astype(np.uint64)
        key = (id(launch.program), values.tobytes(), launch.kernel.groups)
        return _Call(launch.program, launch.kernel.groups, launch.kernel.threads, values, pointers, key)

    def run(self, bound: Sequence[_Call]) -> None:
        with self.lock, self._current():
            graph = self._graph(bound) if self.setup.graphs else None
            if graph is not None:
                self._ask(self._driver.cuGraphLaunch(graph, self._stream), "could not start a graph")
            else:
                self._launch(bound)
            self.counters.launches += len(bound)

    def _launch(self, bound: Sequence[_Call]) -> None:
        for call in bound:
            self._ask(
                self._driver.cuLaunchKernel(
                    call.function, *call.groups, call.threads, 1, 1, 0, self._stream, call.pointers.ctypes.data, 0
                ),
                "could not start a kernel",
            )

    def _graph(self, bound: Sequence[_Call]) -> Any:
        """The graph of calls that have come before on the same memory; None for calls that are new."""
        key = tuple(call.key for call in bound)
        if key not in self._graphs:
            self._graphs[key] = None
            if len(self._graphs) > _KEPT_GRAPHS:
                _, oldest = self._graphs.popitem(last=False)
                if oldest is not None:
                    self._driver.cuGraphExecDestroy(oldest)
            return None
        self._graphs.move_to_end(key)
        if self._graphs[key] is None:
            self._graphs[key] = self._captured(bound)
        return self._graphs[key]

    def _captured(self, bound: Sequence[_Call]) -> Any:
        cu = self._driver
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._ask(cu.cuStreamBeginCapture(self._stream, mode), "could not capture a graph (the legacy stream cannot)")
        try:
            self._launch(bound)
        finally:
            result = cu.cuStreamEndCapture(self._stream)
        graph = self._ask(result, "could not capture a graph")
        made = self._ask(cu.cuGraphInstantiate(graph, 0), "could not make a graph")
        cu.cuGraphDestroy(graph)
        return made


def _checked(result: tuple[Any, ...], what: str) -> Any:
    error, *values = result
    if int(error):
        raise EPFail(f"{what}: {getattr(error, 'name', error)}")
    return values[0] if len(values) == 1 else tuple(values)
