"""Enumerations of the session API, with onnxruntime's names and numbers. None is an int: `int(member)` gives the number, which
it also equals."""

from __future__ import annotations

import enum

from intarsia.passes.level import GraphOptimizationLevel

__all__ = [
    "ArenaExtendStrategy",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "ModelPackageWriteMode",
    "NumberedEnum",
    "OrtAllocatorType",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
]


class NumberedEnum(enum.Enum):
    """An enumeration whose members convert to their numbers."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and bool(self.value == other))

    def __hash__(self) -> int:
        return hash(self.value)


class ExecutionMode(NumberedEnum):
    """Whether independent nodes run at the same time: branches of steps that are too small to share do, in either mode, where
    that spares ten microseconds, in the second where it spares one. They use the threads of the run, no others."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(NumberedEnum):
    """How the nodes of a graph are ordered where data dependencies leave a choice."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(NumberedEnum):
    """What kind of allocator a memory belongs to."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(NumberedEnum):
    """Which side of a device a memory is on. `CPU` is another name of `CPU_OUTPUT`."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(NumberedEnum):
    """A device's own memory, or memory that the host can read too."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(NumberedEnum):
    """Kinds of devices that memory belongs to."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(NumberedEnum):
    """Kinds of hardware devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(enum.IntEnum):
    """PCI vendor numbers."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(NumberedEnum):
    """Which devices a session picks by itself: see `SessionOptions.set_provider_selection_policy`."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtCompileApiFlags(enum.IntFlag):
    """What `ModelCompiler` refuses to do."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class ModelPackageWriteMode(NumberedEnum):
    """How `ModelPackage.commit` writes components that have files of their own: there, or into the manifest."""

    PRESERVE = 0
    DENSE = 1


class OrtCompiledModelCompatibility(NumberedEnum):
    """Whether a compiled model can be used on this machine."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(NumberedEnum):
    """Why a device does not work with a provider."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -0x80000000  # the top bit of 32, as a signed number


class OrtSparseFormat(NumberedEnum):
    """How a sparse tensor holds its indices."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class ArenaExtendStrategy(NumberedEnum):
    """How an arena grows."""

    kNextPowerOfTwo = 0  # noqa: N815 # onnxruntime's name
    kSameAsRequested = 1  # noqa: N815 # onnxruntime's name
