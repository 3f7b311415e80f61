"""CUDAExecutionProvider: kernels in CUDA C, compiled by NVRTC to machine code and run through the driver's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from intarsia.codegen.clike import Dialect
from intarsia.codegen.clike.vendor_libraries.calls import Libraries
from intarsia.device.gpu import Gpu
from intarsia.ep.device import Device
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.gpu.streams import EFFECTIVE, StreamExecutionProvider, StreamOptions

if TYPE_CHECKING:
    from intarsia.device.cuda import CudaDevice


@dataclass(frozen=True)
class CudaOptions(StreamOptions):
    """onnxruntime's options, and `use_libraries`. Those behind it are taken and have no effect."""

    enable_cuda_graph: bool | None = None  # launches that come again become a graph; None: where that pays
    cudnn_conv_algo_search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = "EXHAUSTIVE"  # of cuDNN's engines, which is taken
    cudnn_conv_use_max_workspace: bool = True  # False: a convolution has 32 MiB of scratch at most
    enable_cudnn: bool = True  # convolutions and attention through cuDNN, where it is found
    use_tf32: bool = True  # float32 is rounded to TF32 where tensor cores multiply it
    prefer_nhwc: bool = False  # cuDNN's convolutions work on channels as neighbours in memory
    use_libraries: bool = True  # False: kernels of this package alone
    cudnn_conv1d_pad_to_nc1d: bool = False
    use_ep_level_unified_stream: bool = False
    enable_skip_layer_norm_strict_mode: bool = False
    fuse_conv_bias: bool = False
    sdpa_kernel: int = 0


class CUDAExecutionProvider(StreamExecutionProvider):
    """Every operator that has a definition in primitives, on NVIDIA GPUs of compute capability 7.5 or later."""

    name: ClassVar[str] = "CUDAExecutionProvider"
    Options: ClassVar[type[Any]] = CudaOptions
    effective: ClassVar[frozenset[str]] = EFFECTIVE | {
        "enable_cuda_graph", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "enable_cudnn", "use_tf32",
        "prefer_nhwc", "use_libraries",
    }  # fmt: skip

    @property
    def gpu(self) -> Gpu:
        return self._device

    @property
    def _device(self) -> CudaDevice:
        from intarsia.device.cuda import open_device

        return open_device(self.setup())

    @property
    def wants_graphs(self) -> bool | None:
        wanted: bool | None = self.options.enable_cuda_graph
        return wanted

    @property
    def dialect(self) -> Dialect:
        return self._device.dialect if self.options.use_tf32 else self._device.exact

    @property
    def libraries(self) -> Libraries | None:
        from intarsia.device.cuda import LibraryOptions

        o = self.options
        return self._device.libraries(LibraryOptions(
            o.use_libraries, o.use_libraries and o.enable_cudnn, o.use_tf32, o.cudnn_conv_algo_search,
            o.cudnn_conv_use_max_workspace, o.prefer_nhwc,
        ))  # fmt: skip

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
