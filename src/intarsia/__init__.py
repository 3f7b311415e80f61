"""Intarsia runs ONNX models on whatever hardware is there, with onnxruntime's Python API.

    import intarsia as ort
    session = ort.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

Importing this package loads what a session needs that begins from the cache; every other name, the compiler and onnx are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.machine.version import __version__
from intarsia.session.inference_session import InferenceSession as InferenceSession

if TYPE_CHECKING:
    from intarsia.compat.device_info import get_device as get_device
    from intarsia.compat.install_as import install_as as install_as
    from intarsia.compat.install_as import uninstall as uninstall
    from intarsia.custom_ops.library import OperatorLibrary as OperatorLibrary
    from intarsia.custom_ops.library import host_op as host_op
    from intarsia.custom_ops.library import op as op
    from intarsia.custom_ops.library import unregister_operator as unregister_operator
    from intarsia.ep.cpp_names import GraphViewer as GraphViewer
    from intarsia.ep.cpp_names import IAllocator as IAllocator
    from intarsia.ep.cpp_names import IDataTransfer as IDataTransfer
    from intarsia.ep.cpp_names import IExecutionProvider as IExecutionProvider
    from intarsia.ep.cpp_names import IKernelLookup as IKernelLookup
    from intarsia.ep.cpp_names import NodeComputeInfo as NodeComputeInfo
    from intarsia.ep.provider import Allocator as Allocator
    from intarsia.ep.provider import CompileContext as CompileContext
    from intarsia.ep.provider import ComputeCapability as ComputeCapability
    from intarsia.ep.provider import DataTransfer as DataTransfer
    from intarsia.ep.provider import Device as Device
    from intarsia.ep.provider import DeviceTensor as DeviceTensor
    from intarsia.ep.provider import ExecutionProvider as ExecutionProvider
    from intarsia.ep.provider import KernelLookup as KernelLookup
    from intarsia.ep.provider import KernelRegistry as KernelRegistry
    from intarsia.ep.provider import Program as Program
    from intarsia.ep.provider import Support as Support
    from intarsia.ep_context.external_data import OrtEpContextData as OrtEpContextData
    from intarsia.ep_context.external_data import OrtEpContextDataBuffer as OrtEpContextDataBuffer
    from intarsia.errors import DeviceLost as DeviceLost
    from intarsia.errors import DeviceReset as DeviceReset
    from intarsia.errors import EngineError as EngineError
    from intarsia.errors import EPFail as EPFail
    from intarsia.errors import ExternalDataError as ExternalDataError
    from intarsia.errors import Fail as Fail
    from intarsia.errors import IntarsiaError as IntarsiaError
    from intarsia.errors import InvalidArgument as InvalidArgument
    from intarsia.errors import InvalidGraph as InvalidGraph
    from intarsia.errors import InvalidModelError as InvalidModelError
    from intarsia.errors import InvalidProtobuf as InvalidProtobuf
    from intarsia.errors import InvalidSignature as InvalidSignature
    from intarsia.errors import ModelLoadCanceled as ModelLoadCanceled
    from intarsia.errors import ModelLoaded as ModelLoaded
    from intarsia.errors import ModelRequiresCompilation as ModelRequiresCompilation
    from intarsia.errors import NodeFailed as NodeFailed
    from intarsia.errors import NoModel as NoModel
    from intarsia.errors import NoSuchFile as NoSuchFile
    from intarsia.errors import NotFound as NotFound
    from intarsia.errors import NotImplemented as NotImplemented
    from intarsia.errors import NotWritten as NotWritten
    from intarsia.errors import OutOfMemory as OutOfMemory
    from intarsia.errors import RunTimeout as RunTimeout
    from intarsia.errors import UnknownOperator as UnknownOperator
    from intarsia.errors import UnknownOption as UnknownOption
    from intarsia.errors import WrongType as WrongType
    from intarsia.log import set_default_logger_callback as set_default_logger_callback
    from intarsia.log import set_default_logger_severity as set_default_logger_severity
    from intarsia.log import set_default_logger_verbosity as set_default_logger_verbosity
    from intarsia.model.signature import ModelMetadata as ModelMetadata
    from intarsia.model.signature import NodeArg as NodeArg
    from intarsia.model_package.authoring import ModelPackage as ModelPackage
    from intarsia.model_package.selection import ModelPackageComponentContext as ModelPackageComponentContext
    from intarsia.model_package.selection import ModelPackageContext as ModelPackageContext
    from intarsia.model_package.selection import ModelPackageOptions as ModelPackageOptions
    from intarsia.options.ep_devices import OrtEpDevice as OrtEpDevice
    from intarsia.options.ep_devices import OrtHardwareDevice as OrtHardwareDevice
    from intarsia.options.ep_devices import get_ep_devices as get_ep_devices
    from intarsia.options.ep_devices import get_hardware_devices as get_hardware_devices
    from intarsia.options.session_options import RunOptions as RunOptions
    from intarsia.options.session_options import SessionOptions as SessionOptions
    from intarsia.ort_plugin.library import plugin_library as plugin_library
    from intarsia.providers.fallback import ProviderWarning as ProviderWarning
    from intarsia.providers.fallback import set_provider_fallback as set_provider_fallback
    from intarsia.providers.provider_libraries import (
        register_execution_provider_library as register_execution_provider_library,
    )
    from intarsia.providers.provider_libraries import (
        unregister_execution_provider_library as unregister_execution_provider_library,
    )
    from intarsia.providers.registry import get_all_providers as get_all_providers
    from intarsia.providers.registry import get_available_providers as get_available_providers
    from intarsia.providers.registry import register_execution_provider as register_execution_provider
    from intarsia.providers.registry import unregister_execution_provider as unregister_execution_provider
    from intarsia.reports.doctor import Diagnosis as Diagnosis
    from intarsia.reports.doctor import doctor as doctor
    from intarsia.reports.explain import Explanation as Explanation
    from intarsia.reports.model_check import ModelCheck as ModelCheck
    from intarsia.reports.model_check import check_model as check_model
    from intarsia.session.io_binding import IOBinding as IOBinding
    from intarsia.session.model_compiler import ModelCompiler as ModelCompiler
    from intarsia.session.model_compiler import OrtExternalInitializerInfo as OrtExternalInitializerInfo
    from intarsia.session.process_settings import cuda_version as cuda_version
    from intarsia.session.process_settings import disable_telemetry_events as disable_telemetry_events
    from intarsia.session.process_settings import enable_telemetry_events as enable_telemetry_events
    from intarsia.session.process_settings import get_build_info as get_build_info
    from intarsia.session.process_settings import has_collective_ops as has_collective_ops
    from intarsia.session.process_settings import package_name as package_name
    from intarsia.session.process_settings import preload_dlls as preload_dlls
    from intarsia.session.process_settings import print_debug_info as print_debug_info
    from intarsia.session.process_settings import set_global_thread_pool_sizes as set_global_thread_pool_sizes
    from intarsia.session.process_settings import set_seed as set_seed
    from intarsia.session.process_settings import version as version
    from intarsia.session.session_reports import OrtEpAssignedNode as OrtEpAssignedNode
    from intarsia.session.session_reports import OrtEpAssignedSubgraph as OrtEpAssignedSubgraph
    from intarsia.stateful.stateful_session import StatefulSession as StatefulSession
    from intarsia.stateful.stateful_session import run_together as run_together
    from intarsia.stateful.unfed_state import StateWarning as StateWarning
    from intarsia.values.lora import AdapterFormat as AdapterFormat
    from intarsia.values.lora import LoraAdapter as LoraAdapter
    from intarsia.values.ort_device import OrtArenaCfg as OrtArenaCfg
    from intarsia.values.ort_device import OrtDevice as OrtDevice
    from intarsia.values.ort_device import OrtMemoryInfo as OrtMemoryInfo
    from intarsia.values.ort_device import OrtSyncStream as OrtSyncStream
    from intarsia.values.ort_device import create_and_register_allocator as create_and_register_allocator
    from intarsia.values.ort_device import create_and_register_allocator_v2 as create_and_register_allocator_v2
    from intarsia.values.ort_enums import ArenaExtendStrategy as ArenaExtendStrategy
    from intarsia.values.ort_enums import ExecutionMode as ExecutionMode
    from intarsia.values.ort_enums import ExecutionOrder as ExecutionOrder
    from intarsia.values.ort_enums import GraphOptimizationLevel as GraphOptimizationLevel
    from intarsia.values.ort_enums import ModelPackageWriteMode as ModelPackageWriteMode
    from intarsia.values.ort_enums import OrtAllocatorType as OrtAllocatorType
    from intarsia.values.ort_enums import OrtCompileApiFlags as OrtCompileApiFlags
    from intarsia.values.ort_enums import OrtCompiledModelCompatibility as OrtCompiledModelCompatibility
    from intarsia.values.ort_enums import OrtDeviceEpIncompatibilityReason as OrtDeviceEpIncompatibilityReason
    from intarsia.values.ort_enums import OrtDeviceMemoryType as OrtDeviceMemoryType
    from intarsia.values.ort_enums import OrtDeviceVendorId as OrtDeviceVendorId
    from intarsia.values.ort_enums import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from intarsia.values.ort_enums import OrtHardwareDeviceType as OrtHardwareDeviceType
    from intarsia.values.ort_enums import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
    from intarsia.values.ort_enums import OrtMemType as OrtMemType
    from intarsia.values.ort_enums import OrtSparseFormat as OrtSparseFormat
    from intarsia.values.ort_value import OrtValue as OrtValue
    from intarsia.values.ort_value import OrtValueVector as OrtValueVector
    from intarsia.values.ort_value import copy_tensors as copy_tensors
    from intarsia.values.sparse_tensor import SparseTensor as SparseTensor

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
"""Module -> the public names it defines."""

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
    if name.startswith("__"):  # asked for by the import system and by inspection
        return f"module 'intarsia' has no attribute {name!r}"
    from intarsia.compat.not_provided import reason_for

    why = reason_for(name)
    return f"module 'intarsia' has no attribute {name!r}{f': {why}' if why else ''}"


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_IMPORTABLE, "SessionIOBinding"})


def get_version_string() -> str:
    """The version of this package."""
    return __version__
