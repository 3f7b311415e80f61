"""CUDAExecutionProvider: kernels in CUDA C, compiled by NVRTC to machine code and run through the driver's interface."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from intarsia.device.gpu import Gpu
from intarsia.partition.device import Device
from intarsia.providers.field import looked_for
from intarsia.providers.gpu.provider import GpuExecutionProvider

_logger = logging.getLogger("intarsia")
_NO_LIMIT = 2**64 - 1


@dataclass(frozen=True)
class CudaOptions:
    """onnxruntime's options. Those behind `has_user_compute_stream` choose among algorithms of cuDNN and cuBLAS; they are
    taken and have no effect, since no kernel of this provider is theirs."""

    device_id: int = 0
    gpu_mem_limit: int = _NO_LIMIT  # bytes of the device's memory that all sessions with these options may use
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = "kNextPowerOfTwo"  # sizes of blocks
    do_copy_in_default_stream: bool = True  # False: copies have a stream of their own, ordered with kernels by events
    enable_cuda_graph: bool = False  # launches that come again on the same memory are captured and replayed
    user_compute_stream: int = 0  # address of a cudaStream_t; 0: a stream of its own
    has_user_compute_stream: bool = False  # follows from user_compute_stream
    cudnn_conv_algo_search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = "EXHAUSTIVE"
    cudnn_conv_use_max_workspace: bool = True
    cudnn_conv1d_pad_to_nc1d: bool = False
    enable_cudnn: bool = True
    use_ep_level_unified_stream: bool = False
    enable_skip_layer_norm_strict_mode: bool = False
    use_tf32: bool = True
    prefer_nhwc: bool = False
    fuse_conv_bias: bool = False
    sdpa_kernel: int = 0
    tunable_op_enable: bool = False
    tunable_op_tuning_enable: bool = False
    tunable_op_max_tuning_duration_ms: int = 0


_EFFECTIVE = frozenset((
    "device_id", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream", "enable_cuda_graph",
    "user_compute_stream", "has_user_compute_stream",
))  # fmt: skip


class CUDAExecutionProvider(GpuExecutionProvider):
    """Every operator that has a definition in primitives, on NVIDIA GPUs of compute capability 7.5 or later."""

    name: ClassVar[str] = "CUDAExecutionProvider"
    Options: ClassVar[type[Any]] = CudaOptions
    copy_gbyte_per_s = 20.0

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        changed = {f.name for f in fields(CudaOptions) if getattr(self.options, f.name) != f.default} - _EFFECTIVE
        if changed:
            _logger.info("%s: no effect, since kernels are its own: %s", self.name, ", ".join(sorted(changed)))

    @property
    def gpu(self) -> Gpu:
        from intarsia.device.cuda import Setup, open_device

        o = self.options
        limit = 0 if o.gpu_mem_limit >= _NO_LIMIT >> 1 else o.gpu_mem_limit
        doubling = o.arena_extend_strategy == "kNextPowerOfTwo"
        return open_device(
            Setup(o.device_id, limit, doubling, o.user_compute_stream, not o.do_copy_in_default_stream, o.enable_cuda_graph)
        )

    @classmethod
    def unavailable(cls) -> str:
        from intarsia.device.cuda import missing

        why = missing()
        return f"{why}. {looked_for(cls.name)}".strip() if why else ""

    @classmethod
    def missing_for(cls, options: Any) -> str:
        if why := cls.unavailable():
            return why
        from intarsia.device.cuda import count

        return "" if 0 <= options.device_id < count() else f"device_id is {options.device_id}; there are {count()} devices"

    @classmethod
    def library_version(cls) -> str:
        from intarsia.device import nvrtc

        return "" if nvrtc.missing() else f"NVRTC {nvrtc.version()}"

    @classmethod
    def devices(cls) -> list[Device]:
        from intarsia.device.cuda import count, described, missing

        return [] if missing() else [described(i) for i in range(count())]
