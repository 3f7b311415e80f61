"""Enumerations of the session API, with onnxruntime's names and numbers. None is an int: `int(member)` gives the number, which
it also equals."""

from __future__ import annotations

import enum

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.values.session_enums import ExecutionMode, ExecutionOrder, NumberedEnum, OrtExecutionProviderDevicePolicy

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
