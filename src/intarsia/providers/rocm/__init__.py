"""ROCMExecutionProvider: kernels in HIP C, compiled by hiprtc to machine code and run through ROCm's runtime."""

from __future__ import annotations

from typing import Any, ClassVar

from intarsia.device.gpu import Gpu
from intarsia.ep.device import Device
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.gpu.streams import EFFECTIVE, StreamExecutionProvider, StreamOptions


@dataclass(frozen=True)
class RocmOptions(StreamOptions):
    """onnxruntime's options. Those behind `enable_hip_graph` choose among algorithms of MIOpen; they are taken and have no
    effect, since no kernel of this provider is MIOpen's."""

    enable_hip_graph: bool = False  # launches that come again become a graph
    miopen_conv_exhaustive_search: bool = False
    miopen_conv_use_max_workspace: bool = True


class ROCMExecutionProvider(StreamExecutionProvider):
    """Every operator that has a definition in primitives, on AMD GPUs that ROCm drives."""

    name: ClassVar[str] = "ROCMExecutionProvider"
    Options: ClassVar[type[Any]] = RocmOptions
    effective: ClassVar[frozenset[str]] = EFFECTIVE | {"enable_hip_graph"}

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.hip import open_device

        return open_device(self.setup())

    @property
    def wants_graphs(self) -> bool | None:
        wanted: bool = self.options.enable_hip_graph
        return wanted

    @classmethod
    def missing(cls) -> str:
        from intarsia.device.hip import missing

        return missing()

    @classmethod
    def library_version(cls) -> str:
        from intarsia.device import hip, hiprtc

        return "" if hip.missing() else f"ROCm {hip.runtime_version()}, hiprtc {hiprtc.version()}"

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.hip import devices

        return devices()
