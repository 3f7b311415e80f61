"""CUDAExecutionProvider: kernels in CUDA C, compiled by NVRTC to machine code and run through the driver's interface."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from intarsia.device.gpu import Gpu
from intarsia.partition.device import Device
from intarsia.providers.gpu.streams import EFFECTIVE, StreamExecutionProvider, StreamOptions


@dataclass(frozen=True)
class CudaOptions(StreamOptions):
    """onnxruntime's options. Those behind `enable_cuda_graph` choose among algorithms of cuDNN and cuBLAS; they are taken and
    have no effect, since no kernel of this provider is theirs."""

    enable_cuda_graph: bool = False  # launches that come again on the same memory are captured and replayed
    cudnn_conv_algo_search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = "EXHAUSTIVE"
    cudnn_conv_use_max_workspace: bool = True
    cudnn_conv1d_pad_to_nc1d: bool = False
    enable_cudnn: bool = True
    use_ep_level_unified_stream: bool = False
    enable_skip_layer_norm_strict_mode: bool = False
    use_tf32: bool = True  # float32 is rounded to TF32 where tensor cores multiply it
    prefer_nhwc: bool = False
    fuse_conv_bias: bool = False
    sdpa_kernel: int = 0


class CUDAExecutionProvider(StreamExecutionProvider):
    """Every operator that has a definition in primitives, on NVIDIA GPUs of compute capability 7.5 or later."""

    name: ClassVar[str] = "CUDAExecutionProvider"
    Options: ClassVar[type[Any]] = CudaOptions
    effective: ClassVar[frozenset[str]] = EFFECTIVE | {"enable_cuda_graph", "use_tf32"}

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.cuda import open_device

        return open_device(replace(self.setup(self.options.enable_cuda_graph), tf32=self.options.use_tf32))

    @classmethod
    def missing(cls) -> str:
        from intarsia.device.cuda import missing

        return missing()

    @classmethod
    def library_version(cls) -> str:
        from intarsia.device import nvrtc

        return "" if nvrtc.missing() else f"NVRTC {nvrtc.version()}"

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.cuda import devices

        return devices()
