"""ACLExecutionProvider: ARM64 CPUs through the Arm Compute Library, whose kernels the openvino package for ARM64 brings."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.missing_libraries import looked_for
from intarsia.providers.openvino import OpenVINOExecutionProvider
from intarsia.providers.openvino.options import OpenVINOOptions

if TYPE_CHECKING:
    from intarsia.providers.openvino.program import OpenVINOProgram

_logger = get_logger("intarsia.providers.acl")
_MACHINES = ("aarch64", "arm64")


@dataclass(frozen=True)
class ACLOptions:
    """onnxruntime's options of this provider, and those of OpenVINO's that concern it.

    Attributes:
        enable_fast_math: compute float32 operators in float16, whose largest number is 65504, where the CPU has its
            arithmetic. ACL's own fast mode takes bfloat16, which openvino does not ask it for.
        enable_arena: taken for onnxruntime's sake, without effect: openvino plans the memory of a whole part.
        num_of_threads: threads of one run; 0: the session's `intra_op_num_threads`. Not an option of onnxruntime's.
        cache_dir: folder of openvino's compiled models; "": none is cached. Not an option of onnxruntime's.
    """

    enable_fast_math: bool = False
    enable_arena: bool = True
    num_of_threads: int = 0
    cache_dir: str = ""


class ACLExecutionProvider(OpenVINOExecutionProvider):
    """Takes what `OpenVINOExecutionProvider` takes on an ARM64 CPU. The plugin for it gives products, convolutions, pools,
    reductions and others to ACL, and makes code of its own for the rest: `session.explain()` says which of the two runs a node.
    """

    name: ClassVar[str] = "ACLExecutionProvider"
    Options: ClassVar[type[Any]] = ACLOptions

    @classmethod
    def openvino_options(cls, options: Any) -> OpenVINOOptions:
        assert isinstance(options, ACLOptions)
        return OpenVINOOptions(
            device_type="CPU",
            precision="FP16" if options.enable_fast_math and _computes_in_float16() else "FP32",
            num_of_threads=options.num_of_threads,
            cache_dir=options.cache_dir,
        )

    @classmethod
    def unavailable(cls) -> str:
        if platform.machine().lower() not in _MACHINES:
            here = platform.machine() or "unknown"
            return f"the Arm Compute Library is for ARM64 CPUs, and this one is {here}. {looked_for(cls.name)}".rstrip(". ")
        return super().unavailable()

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if self.options.enable_fast_math and self.device_options.precision != "FP16":
            _logger.warning("option 'enable_fast_math' of %s has no effect: this CPU has no float16 arithmetic", self.name)

    @classmethod
    def _program_type(cls) -> type[OpenVINOProgram]:
        from intarsia.providers.acl.program import ACLProgram

        return ACLProgram


def _computes_in_float16() -> bool:
    """Whether openvino says so of this CPU; False where it cannot say."""
    from intarsia.providers.openvino import runtime

    if runtime.missing() or runtime.broken():
        return False
    return "FP16" in runtime.core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
