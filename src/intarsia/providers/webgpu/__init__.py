"""WebGpuExecutionProvider and DmlExecutionProvider: kernels in WGSL, run by the package wgpu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from intarsia.device.gpu import Gpu, no_such_device
from intarsia.ep.device import Device
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.gpu.provider import GpuExecutionProvider
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.options import FIRST_DEVICE, NO_LIMIT, DeviceId, Nbytes

_logger = get_logger("intarsia")


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
    """onnxruntime's options."""

    device_id: DeviceId | None = None  # number of the adapter as Windows has it (DXGI); None: by performance_preference
    performance_preference: Literal["default", "high_performance", "minimum_power"] = "default"  # discrete, or integrated
    device_filter: Literal["gpu", "npu", "any"] = "gpu"  # what kinds of adapters are looked at
    disable_metacommands: bool = False  # taken, and without effect: no kernel is a vendor's


class DmlExecutionProvider(WebGpuExecutionProvider):
    """WebGPU held to Direct3D 12: what onnxruntime's DirectML provider is chosen for, on Windows."""

    name: ClassVar[str] = "DmlExecutionProvider"
    Options: ClassVar[type[Any]] = DmlOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        o = self.options
        if o.disable_metacommands:
            _logger.info("%s: disable_metacommands has no effect, since kernels are its own", self.name)
        if o.device_id is not None and (o.performance_preference, o.device_filter) != ("default", "gpu"):
            _logger.info("%s: device_id is given, so that performance_preference and device_filter have no effect", self.name)
        self.options = replace(o, device_id=DeviceId(_adapter(o)))

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.webgpu import DIRECTML, open_device

        return open_device(_adapter(self.options), DIRECTML)

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device.webgpu import DIRECTML, missing

        why = missing(DIRECTML)
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        if why := cls.unavailable():
            return why
        if options.device_id is None and options.device_filter == "npu":
            return (
                "device_filter is 'npu'; wgpu offers the graphics adapters of Direct3D 12 and no others: give 'gpu' or 'any', "
                "or name the provider of the NPU's vendor (OpenVINOExecutionProvider for Intel's)"
            )
        return no_such_device(_adapter(options), cls.devices())

    @classmethod
    def devices(cls) -> list[Device]:
        """In the order in which Windows numbers them, as onnxruntime's `device_id` does."""
        from intarsia.device.webgpu import DIRECTML, adapters, described

        return [described(i, a) for i, a in enumerate(adapters(DIRECTML))]


def _adapter(options: DmlOptions) -> int:
    """The number of the adapter that options mean."""
    from intarsia.device.webgpu import DIRECTML, preferred

    if options.device_id is not None:
        return options.device_id
    return preferred(DIRECTML, options.performance_preference == "minimum_power")
