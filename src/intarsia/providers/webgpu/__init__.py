"""WebGpuExecutionProvider and DmlExecutionProvider: kernels in WGSL, run by the package wgpu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from intarsia.device.gpu import Gpu, no_such_device
from intarsia.ep.device import Device
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.gpu.provider import GpuExecutionProvider
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.options import FIRST_DEVICE, NO_LIMIT, DeviceId, Nbytes


@dataclass(frozen=True)
class WebGpuOptions:
    device_id: DeviceId = FIRST_DEVICE  # number of the adapter: hardware first (see `WebGpuExecutionProvider.devices`)
    backend: Literal["", "Vulkan", "Metal", "D3D12"] = ""  # what wgpu works through; "": any
    gpu_mem_limit: Nbytes = NO_LIMIT  # bytes that all sessions with these options may use together; 0: no limit


class WebGpuExecutionProvider(GpuExecutionProvider):
    """Every operator that has a definition in primitives, on any device with Vulkan, Metal or Direct3D 12."""

    name: ClassVar[str] = "WebGpuExecutionProvider"
    Options: ClassVar[type[Any]] = WebGpuOptions
    package: ClassVar[str] = "wgpu"
    copy_latency_us = 100.0
    flushes_denormals = True  # WGSL lets devices do so
    not_exact: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("Softmax", "LogSoftmax"), "drivers may take x - max(x) of a row of one for 0, of NaN too: WGSL lets them assume none"
    )

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.webgpu import open_device

        return open_device(self.options.device_id, self._backend(self.options), self.options.gpu_mem_limit)

    @classmethod
    def _backend(cls, options: Any) -> str:
        return str(options.backend)

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device.webgpu import missing

        why = missing()
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        from intarsia.device.webgpu import adapters, described, missing

        backend = cls._backend(options)
        found = [described(i, a) for i, a in enumerate(adapters(backend))]
        return missing(backend) or no_such_device(options.device_id, found)

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.webgpu import adapters, described

        return [described(i, a) for i, a in enumerate(adapters())]


@dataclass(frozen=True)
class DmlOptions:
    device_id: DeviceId = FIRST_DEVICE  # number of the adapter: hardware first


class DmlExecutionProvider(WebGpuExecutionProvider):
    """WebGPU held to Direct3D 12: what onnxruntime's DirectML provider is chosen for, on Windows."""

    name: ClassVar[str] = "DmlExecutionProvider"
    Options: ClassVar[type[Any]] = DmlOptions

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.webgpu import open_device

        return open_device(self.options.device_id, "D3D12")

    @classmethod
    def _backend(cls, options: Any) -> str:
        return "D3D12"

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device.webgpu import missing

        why = missing("D3D12")
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.webgpu import adapters, described

        return [described(i, a) for i, a in enumerate(adapters("D3D12"))]
