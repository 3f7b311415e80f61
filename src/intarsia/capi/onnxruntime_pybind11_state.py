"""onnxruntime's compiled module by the name that programs import its classes and exceptions from."""

from __future__ import annotations

from typing import Any

_ELSEWHERE = {
    "SparseBlockSparseView": "values.sparse_tensor",
    "SparseCooView": "values.sparse_tensor",
    "SparseCsrView": "values.sparse_tensor",
    "get_hardware_device_ep_incompatibility_details": "options.ep_devices",
    "is_dlpack_uint8_tensor": "session.process_settings",
    "get_compatibility_info_from_model": "session.model_compiler",
    "get_compatibility_info_from_model_bytes": "session.model_compiler",
    "get_model_compatibility_for_ep_devices": "session.model_compiler",
    "SessionObjectInitializer": "session.low_level_session",
    "get_default_session_options": "session.low_level_session",
    "get_session_initializer": "session.low_level_session",
    "quantize_matmul_2bits": "compat.weight_packing",
    "quantize_matmul_4bits": "compat.weight_packing",
    "quantize_matmul_8bits": "compat.weight_packing",
    "quantize_matmul_bnb4": "compat.weight_packing",
    "quantize_qdq_matmul_2bits": "compat.weight_packing",
    "quantize_qdq_matmul_4bits": "compat.weight_packing",
}
"""Names that the package's root does not have -> the module that defines them."""

_NAMES = """
AdapterFormat ArenaExtendStrategy DeviceReset EPFail EngineError ExecutionMode ExecutionOrder Fail
GraphOptimizationLevel InvalidArgument InvalidGraph InvalidProtobuf LoraAdapter ModelLoadCanceled ModelLoaded
ModelMetadata ModelPackage ModelPackageComponentContext ModelPackageContext ModelPackageOptions ModelPackageWriteMode
ModelRequiresCompilation NoModel NoSuchFile NodeArg NotFound NotImplemented OrtAllocatorType OrtArenaCfg
OrtCompileApiFlags OrtCompiledModelCompatibility OrtDevice OrtDeviceEpIncompatibilityReason OrtDeviceMemoryType
OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData OrtEpContextDataBuffer OrtEpDevice
OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo OrtHardwareDevice OrtHardwareDeviceType OrtMemType
OrtMemoryInfo OrtMemoryInfoDeviceType OrtSparseFormat OrtSyncStream OrtValue OrtValueVector RunOptions
SessionIOBinding SessionOptions SparseTensor copy_tensors create_and_register_allocator
create_and_register_allocator_v2 disable_telemetry_events enable_telemetry_events get_all_providers
get_available_providers get_build_info get_device get_ep_devices get_hardware_devices get_version_string
has_collective_ops register_execution_provider_library set_default_logger_callback set_default_logger_severity
set_default_logger_verbosity set_global_thread_pool_sizes set_seed unregister_execution_provider_library
""".split()

_RENAMED = {
    "RuntimeException": ("errors", "IntarsiaError"),
    "InferenceSession": ("session.low_level_session", "LowLevelSession"),
    "ModelCompiler": ("session.model_compiler", "LowLevelModelCompiler"),
    "kNextPowerOfTwo": ("values.ort_enums", "ArenaExtendStrategy.kNextPowerOfTwo"),
    "kSameAsRequested": ("values.ort_enums", "ArenaExtendStrategy.kSameAsRequested"),
}

__all__ = [*_NAMES, *_ELSEWHERE, *_RENAMED]  # noqa: PLE0604 # names are listed once, above


def __getattr__(name: str) -> Any:
    import importlib
    from operator import attrgetter

    if name in _RENAMED:
        module, path = _RENAMED[name]
        return attrgetter(path)(importlib.import_module(f"intarsia.{module}"))
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"intarsia.{_ELSEWHERE[name]}"), name)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("intarsia"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
