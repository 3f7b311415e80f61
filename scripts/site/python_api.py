"""The page of the public Python names, by subject, which Sphinx fills from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

# Subject -> the public names, in the order in which a reader needs them. Names that are missing here come last.
SUBJECTS: dict[str, str] = {
    "Sessions": "InferenceSession SessionOptions RunOptions IOBinding NodeArg ModelMetadata",
    "Values": "OrtValue OrtValueVector SparseTensor copy_tensors LoraAdapter AdapterFormat",
    "Reports": "Explanation doctor Diagnosis check_model ModelCheck OrtEpAssignedSubgraph OrtEpAssignedNode",
    "Providers and devices": (
        "get_available_providers get_all_providers get_device register_execution_provider unregister_execution_provider "
        "register_execution_provider_library unregister_execution_provider_library set_provider_fallback ProviderWarning "
        "get_ep_devices OrtEpDevice get_hardware_devices OrtHardwareDevice OrtDevice OrtMemoryInfo OrtArenaCfg OrtSyncStream "
        "create_and_register_allocator create_and_register_allocator_v2 plugin_library"
    ),
    "Operators of your own": "op host_op OperatorLibrary unregister_operator",
    "Providers of your own": (
        "ExecutionProvider CompileContext Program Support ComputeCapability KernelRegistry KernelLookup Device DeviceTensor "
        "Allocator DataTransfer IExecutionProvider GraphViewer IKernelLookup NodeComputeInfo IAllocator IDataTransfer"
    ),
    "Compiled models and packages": (
        "ModelCompiler OrtExternalInitializerInfo OrtEpContextData OrtEpContextDataBuffer ModelPackage ModelPackageOptions "
        "ModelPackageContext ModelPackageComponentContext"
    ),
    "The process": (
        "install_as uninstall set_default_logger_callback set_default_logger_severity set_default_logger_verbosity "
        "set_global_thread_pool_sizes set_seed get_build_info get_version_string version package_name cuda_version "
        "has_collective_ops preload_dlls print_debug_info enable_telemetry_events disable_telemetry_events"
    ),
    "Constants": (
        "GraphOptimizationLevel ExecutionMode ExecutionOrder ArenaExtendStrategy ModelPackageWriteMode OrtAllocatorType "
        "OrtCompileApiFlags OrtCompiledModelCompatibility OrtDeviceEpIncompatibilityReason OrtDeviceMemoryType "
        "OrtDeviceVendorId OrtExecutionProviderDevicePolicy OrtHardwareDeviceType OrtMemoryInfoDeviceType OrtMemType "
        "OrtSparseFormat"
    ),
    "Errors": (
        "IntarsiaError InvalidArgument WrongType NoSuchFile NoModel NotFound InvalidProtobuf InvalidGraph InvalidModelError "
        "ExternalDataError InvalidSignature NotImplemented UnknownOperator UnknownOption EPFail EngineError Fail NodeFailed "
        "NotWritten RunTimeout OutOfMemory DeviceLost DeviceReset ModelLoaded ModelLoadCanceled ModelRequiresCompilation"
    ),
}
_UNLISTED = {"__version__"}


def subjects(public: set[str]) -> dict[str, list[str]]:
    """All public names by subject. Raises ValueError where SUBJECTS has a name that is not public, or one twice."""
    listed = [name for names in SUBJECTS.values() for name in names.split()]
    if wrong := sorted({name for name in listed if name not in public or listed.count(name) > 1}):
        raise ValueError(f"SUBJECTS of {__file__} has names that are not public, or twice: {', '.join(wrong)}")
    rest = sorted(public - _UNLISTED - set(listed))
    return {subject: names.split() for subject, names in SUBJECTS.items()} | ({"More": rest} if rest else {})


def _directive(name: str, value: Any) -> Iterator[str]:
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    yield from ("```{eval-rst}", f".. auto{'exception' if _is_error(value) else kind}:: intarsia.{name}")
    if kind == "class":
        yield from ("   :members:", "   :undoc-members:") if issubclass(value, _enum()) else ("   :members:",)
    if kind == "class" and not _is_error(value):
        yield "   :inherited-members: object, Exception, int, Enum, IntEnum, Flag, Protocol, Mapping, Sequence, list, dict"
    yield from ("```", "")


def _enum() -> type:
    import enum

    return enum.Enum


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def text() -> str:
    import intarsia

    lines = [
        "# The Python API", "",
        ("`import intarsia as ort`: the public names of the package, from their docstrings. "
        "[Compatibility](../compatibility.md) lists the names of onnxruntime beside them."), "",
    ]  # fmt: skip
    for subject, names in subjects(set(intarsia.__all__) | {"get_version_string"}).items():
        lines += [f"## {subject}", ""]
        for name in names:
            lines += _directive(name, getattr(intarsia, name))
    return "\n".join(lines)
