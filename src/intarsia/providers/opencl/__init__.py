"""OpenCLExecutionProvider: kernels in OpenCL C, run by the package pyopencl."""

from __future__ import annotations

from typing import Any, ClassVar

from intarsia.device.gpu import Gpu
from intarsia.ep.device import Device
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.gpu.provider import GpuExecutionProvider
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.options import FIRST_DEVICE, NO_LIMIT, DeviceId, Nbytes


@dataclass(frozen=True)
class OpenClOptions:
    device_id: DeviceId = FIRST_DEVICE  # number of the device: GPUs first (see `OpenCLExecutionProvider.devices`)
    gpu_mem_limit: Nbytes = NO_LIMIT  # bytes that all sessions with these options may use together; 0: no limit


class OpenCLExecutionProvider(GpuExecutionProvider):
    """Every operator that has a definition in primitives, on any device with a driver for OpenCL 1.2 or later."""

    name: ClassVar[str] = "OpenCLExecutionProvider"
    Options: ClassVar[type[Any]] = OpenClOptions
    package: ClassVar[str] = "pyopencl"
    flushes_denormals = True  # OpenCL C lets devices do so

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.opencl import open_device

        return open_device(self.options.device_id, self.options.gpu_mem_limit)

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device.opencl import missing

        why = missing()
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.opencl import described, known

        return [described(i, d) for i, d in enumerate(known())]
