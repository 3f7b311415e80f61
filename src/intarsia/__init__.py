"""Intarsia runs ONNX models on whatever hardware is there, with onnxruntime's Python API.

    import intarsia as ort
    session = ort.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

Importing this package loads what a session needs that begins from the cache; every other name, the compiler and onnx are
imported when they are first used.
"""

from __future__ import annotations

from typing import Any

from intarsia.machine.version import __version__
from intarsia.session.inference_session import InferenceSession as InferenceSession

_NAMES: dict[str, str] = {
    "session.io_binding": "IOBinding",
    "reports.model_check": "ModelCheck check_model",
    "compat.device_info": "get_device",
    "reports.doctor": "Diagnosis doctor",
    "values.ort_enums": (
        "ArenaExtendStrategy ExecutionMode ExecutionOrder GraphOptimizationLevel ModelPackageWriteMode OrtAllocatorType "
        "OrtCompileApiFlags OrtCompiledModelCompatibility OrtDeviceEpIncompatibilityReason "
        "OrtDeviceMemoryType OrtDeviceVendorId OrtExecutionProviderDevicePolicy OrtHardwareDeviceType "
        "OrtMemType OrtMemoryInfoDeviceType OrtSparseFormat"
    ),
    "options.ep_devices": "OrtEpDevice OrtHardwareDevice get_ep_devices get_hardware_devices",
    "errors": (
        "DeviceLost DeviceReset EPFail EngineError ExternalDataError Fail IntarsiaError InvalidArgument "
        "InvalidGraph InvalidModelError InvalidProtobuf InvalidSignature ModelLoadCanceled ModelLoaded "
        "ModelRequiresCompilation NoModel NoSuchFile NodeFailed NotFound NotImplemented NotWritten OutOfMemory RunTimeout "
        "UnknownOperator UnknownOption WrongType"
    ),
    "reports.explain": "Explanation",
    "compat.install_as": "install_as uninstall",
    "log": "set_default_logger_callback set_default_logger_severity set_default_logger_verbosity",
    "values.lora": "AdapterFormat LoraAdapter",
    "ep_context.external_data": "OrtEpContextData OrtEpContextDataBuffer",
    "session.model_compiler": "ModelCompiler OrtExternalInitializerInfo",
    "model_package.authoring": "ModelPackage",
    "model_package.selection": "ModelPackageComponentContext ModelPackageContext ModelPackageOptions",
    "custom_ops.library": "OperatorLibrary host_op op unregister_operator",
    "options.session_options": "RunOptions SessionOptions",
    "values.ort_device": (
        "OrtArenaCfg OrtDevice OrtMemoryInfo OrtSyncStream create_and_register_allocator create_and_register_allocator_v2"
    ),
    "ep.cpp_names": "GraphViewer IAllocator IDataTransfer IExecutionProvider IKernelLookup NodeComputeInfo",
    "ep.provider": (
        "Allocator CompileContext ComputeCapability DataTransfer Device DeviceTensor ExecutionProvider KernelLookup "
        "KernelRegistry Program Support"
    ),
    "session.process_settings": (
        "cuda_version disable_telemetry_events enable_telemetry_events get_build_info has_collective_ops "
        "package_name preload_dlls print_debug_info set_global_thread_pool_sizes set_seed version"
    ),
    "providers.provider_libraries": "register_execution_provider_library unregister_execution_provider_library",
    "providers.fallback": "ProviderWarning set_provider_fallback",
    "providers.registry": "get_all_providers get_available_providers register_execution_provider unregister_execution_provider",
    "session.session_reports": "OrtEpAssignedNode OrtEpAssignedSubgraph",
    "model.signature": "ModelMetadata NodeArg",
    "stateful.stateful_session": "StatefulSession run_together",
    "stateful.unfed_state": "StateWarning",
    "values.sparse_tensor": "SparseTensor",
    "values.ort_value": "OrtValue OrtValueVector copy_tensors",
    "ort_plugin.library": "plugin_library",
}
"""Module -> the public names it defines. `scripts/public_names.py` writes them into `__init__.pyi`, for type checkers."""

_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

_IMPORTABLE = ("backend", "capi", "datasets", "tools")
_SUBMODULES = (*_IMPORTABLE, "quantization", "transformers")  # the last two: whose import says what to do instead

__all__ = [*_WHERE, "InferenceSession", "__version__"]  # noqa: PLE0604 # names are listed once, in _NAMES


def __getattr__(name: str) -> Any:
    if name == "SessionIOBinding":
        name = "IOBinding"
    module = _WHERE.get(name)
    if module is None and name not in _SUBMODULES:
        raise AttributeError(_missing(name))
    import importlib

    if module is None:
        try:
            return importlib.import_module(f"intarsia.{name}")
        except ImportError as error:  # for hasattr; `from intarsia import NAME` then imports it by its full name
            raise AttributeError(str(error)) from error
    value = getattr(importlib.import_module(f"intarsia.{module}"), name)
    globals()[name] = value
    return value


def _missing(name: str) -> str:
    if name.startswith("__"):  # requested by the import system and by inspection
        return f"module 'intarsia' has no attribute {name!r}"
    from intarsia.compat.not_provided import reason_for

    why = reason_for(name)
    return f"module 'intarsia' has no attribute {name!r}{f': {why}' if why else ''}"


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_IMPORTABLE, "SessionIOBinding"})


def get_version_string() -> str:
    """The version of this package."""
    return __version__
