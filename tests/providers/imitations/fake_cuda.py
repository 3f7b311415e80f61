"""CUDA's driver, as the package cuda-bindings has it, over an imitated machine (fake_driver).

What kernels compute is proved by OpenCL, whose text differs in a few words, and on GPUs.
"""

from __future__ import annotations

import enum
from typing import Any

from fake_driver import Event, Executable, Graph, Machine


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_ECC_UNCORRECTABLE = 214
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_MISALIGNED_ADDRESS = 716
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class CUstream_flags(enum.IntEnum):
    CU_STREAM_NON_BLOCKING = 1


class CUevent_flags(enum.IntEnum):
    CU_EVENT_DEFAULT = 0
    CU_EVENT_DISABLE_TIMING = 2


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class CUfunction_attribute(enum.IntEnum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


OPTIN_NBYTES = 232448


class KernelNode:
    """CUDA_KERNEL_NODE_PARAMS. Names are those of the real one, see `test_cuda`."""

    def __init__(self) -> None:
        self.func: Any = None
        self.gridDimX = self.gridDimY = self.gridDimZ = 0
        self.blockDimX = self.blockDimY = self.blockDimZ = 0
        self.sharedMemBytes = self.kernelParams = self.extra = 0


OK = CUresult.CUDA_SUCCESS


class FakeCuda(Machine):
    """Functions of the driver, each with what cuda-bindings returns."""

    CUstream_flags = CUstream_flags
    CUevent_flags = CUevent_flags
    CUstreamCaptureMode = CUstreamCaptureMode
    CUdevice_attribute = CUdevice_attribute
    CUfunction_attribute = CUfunction_attribute
    version = 13000

    def _answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        error = self.failures.pop(name, OK)
        return (error, *(values if error is OK else (None,) * len(values)))

    # --- devices ---

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuInit")

    def cuDeviceGetCount(self) -> tuple[Any, ...]:
        return self._answer("cuDeviceGetCount", self.devices)

    def cuDeviceGet(self, index: int) -> tuple[Any, ...]:
        return self._answer("cuDeviceGet", index)

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        return self._answer("cuDriverGetVersion", self.version)

    def cuDeviceGetName(self, size: int, device: int) -> tuple[Any, ...]:
        return self._answer("cuDeviceGetName", b"Imagined GPU".ljust(size, b"\0"))

    def cuDeviceGetPCIBusId(self, size: int, device: int) -> tuple[Any, ...]:
        return self._answer("cuDeviceGetPCIBusId", f"0000:{device + 10:02X}:00.0".encode().ljust(size, b"\0"))

    def cuDeviceGetAttribute(self, attribute: CUdevice_attribute, device: int) -> tuple[Any, ...]:
        values = {CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: 65535,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: 233472,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: OPTIN_NBYTES,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
                  CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0}  # fmt: skip
        return self._answer("cuDeviceGetAttribute", values[attribute])

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return self._answer("cuDevicePrimaryCtxRetain", self.handle())

    def cuCtxPushCurrent(self, context: Any) -> tuple[Any, ...]:
        self.current.append(context)
        return self._answer("cuCtxPushCurrent")

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return self._answer("cuCtxPopCurrent", self.current.pop())

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuStreamCreate", self.stream())

    def cuStreamSynchronize(self, stream: Any) -> tuple[Any, ...]:
        self.drain(stream)
        return self._answer("cuStreamSynchronize")

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuEventCreate", self.handle(Event(flags == CUevent_flags.CU_EVENT_DEFAULT)))

    def cuEventDestroy(self, event: Any) -> tuple[Any, ...]:
        del self.objects[event]
        return self._answer("cuEventDestroy")

    def cuEventRecord(self, event: Any, stream: Any) -> tuple[Any, ...]:
        self.record(event, stream)
        return self._answer("cuEventRecord")

    def cuEventSynchronize(self, event: Any) -> tuple[Any, ...]:
        self.event_wait(event)
        return self._answer("cuEventSynchronize")

    def cuEventElapsedTime(self, start: Any, end: Any) -> tuple[Any, ...]:
        return self._answer("cuEventElapsedTime", self.milliseconds(start, end))

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[Any, ...]:
        self.hold(stream, event)
        self.log.append("hold")
        return self._answer("cuStreamWaitEvent")

    # --- memory ---

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        return self._answer("cuMemGetInfo", self.memory_nbytes - self.used_nbytes, self.memory_nbytes)

    def cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        address = self.allocate(nbytes)
        return self._answer("cuMemAlloc", address) if address else (CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        self.free(address)
        return self._answer("cuMemFree")

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        address = self.pin(nbytes)
        return self._answer("cuMemHostAlloc", address) if address else (CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        self.copy("in", target, source, nbytes, stream)
        return self._answer("cuMemcpyHtoDAsync")

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        self.copy("out", target, source, nbytes, stream)
        return self._answer("cuMemcpyDtoHAsync")

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> tuple[Any, ...]:
        self.copy("within", target, source, nbytes, stream)
        return self._answer("cuMemcpyDtoDAsync")

    # --- kernels ---

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, ...]:
        return self._answer("cuModuleLoadData", self.load(code))

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, ...]:
        assert name in self.objects[module]
        return self._answer("cuModuleGetFunction", self.function(module))

    def cuLaunchKernel(self, function: Any, gx: int, gy: int, gz: int, tx: int, ty: int, tz: int, shared: int, stream: Any,
                       arguments: int, extra: int) -> tuple[Any, ...]:  # fmt: skip
        assert shared <= self.allowed.get(function, 49152), f"{shared} bytes of shared memory are not allowed"
        self.launch(function, (gx, gy, gz), (tx, ty, tz), stream, arguments)
        return self._answer("cuLaunchKernel")

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[Any, ...]:
        assert attribute is CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if value > OPTIN_NBYTES:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.allowed[function] = value
        return self._answer("cuFuncSetAttribute")

    # --- graphs ---

    CUDA_KERNEL_NODE_PARAMS = KernelNode

    def cuGraphCreate(self, flags: int) -> tuple[Any, ...]:
        assert flags == 0
        return self._answer("cuGraphCreate", self.handle(Graph()))

    def _parameters(self, given: KernelNode) -> list[Any]:
        grid = given.gridDimX, given.gridDimY, given.gridDimZ
        block = given.blockDimX, given.blockDimY, given.blockDimZ
        assert given.sharedMemBytes <= self.allowed.get(given.func, 49152) and not given.extra
        return self.kernel_node(given.func, grid, block, given.kernelParams)

    def cuGraphAddKernelNode(self, graph: Any, before: list[Any], count: int, given: KernelNode) -> tuple[Any, ...]:
        assert count == len(before)
        return self._answer("cuGraphAddKernelNode", self.add_node(graph, before, self._parameters(given)))

    def cuGraphAddChildGraphNode(self, graph: Any, before: list[Any], count: int, inner: Any) -> tuple[Any, ...]:
        assert count == len(before)
        return self._answer("cuGraphAddChildGraphNode", self.add_node(graph, before, self.works_of(inner)))

    def cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, given: KernelNode) -> tuple[Any, ...]:
        self.change_node(executable, node, self._parameters(given))
        return self._answer("cuGraphExecKernelNodeSetParams")

    def cuGraphExecChildGraphNodeSetParams(self, executable: Any, node: Any, inner: Any) -> tuple[Any, ...]:
        self.change_node(executable, node, self.works_of(inner))
        return self._answer("cuGraphExecChildGraphNodeSetParams")

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]:
        if stream == 0:
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        if "cuStreamBeginCapture" not in self.failures:
            self.begin_capture(stream)
        return self._answer("cuStreamBeginCapture")

    def cuStreamEndCapture(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cuStreamEndCapture", self.captured_graph())

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
        if "cuGraphInstantiate" in self.failures:
            return self._answer("cuGraphInstantiate", None)
        made = self.instantiate(graph)
        return self._answer("cuGraphInstantiate", made) if made else (CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)

    def cuGraphUpload(self, executable: Any, stream: Any) -> tuple[Any, ...]:
        assert isinstance(self.objects[executable], Executable) and stream in self.streams
        return self._answer("cuGraphUpload")

    def cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
        self.drop_graph(graph)
        return self._answer("cuGraphDestroy")

    def cuGraphExecDestroy(self, executable: Any) -> tuple[Any, ...]:
        self.drop_executable(executable)
        return self._answer("cuGraphExecDestroy")

    def cuGraphLaunch(self, executable: Any, stream: Any) -> tuple[Any, ...]:
        if "cuGraphLaunch" not in self.failures:
            self.start_graph(executable, stream)
        return self._answer("cuGraphLaunch")
