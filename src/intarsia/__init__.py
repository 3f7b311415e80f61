"""Intarsia runs ONNX models on whatever hardware is there, with onnxruntime's Python API.

    import intarsia as ort
    session = ort.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

Importing this package loads what a session needs that begins from the cache; every other name, the compiler and onnx are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.session import InferenceSession as InferenceSession

__version__ = "0.1.0"

if TYPE_CHECKING:
    from intarsia.binding import IOBinding as IOBinding
    from intarsia.check import ModelCheck as ModelCheck
    from intarsia.check import check_model as check_model
    from intarsia.context_data import OrtEpContextData as OrtEpContextData
    from intarsia.context_data import OrtEpContextDataBuffer as OrtEpContextDataBuffer
    from intarsia.device_info import get_device as get_device
    from intarsia.diagnosis import Diagnosis as Diagnosis
    from intarsia.diagnosis import doctor as doctor
    from intarsia.enums import ArenaExtendStrategy as ArenaExtendStrategy
    from intarsia.enums import ExecutionMode as ExecutionMode
    from intarsia.enums import ExecutionOrder as ExecutionOrder
    from intarsia.enums import GraphOptimizationLevel as GraphOptimizationLevel
    from intarsia.enums import ModelPackageWriteMode as ModelPackageWriteMode
    from intarsia.enums import OrtAllocatorType as OrtAllocatorType
    from intarsia.enums import OrtCompileApiFlags as OrtCompileApiFlags
    from intarsia.enums import OrtCompiledModelCompatibility as OrtCompiledModelCompatibility
    from intarsia.enums import OrtDeviceEpIncompatibilityReason as OrtDeviceEpIncompatibilityReason
    from intarsia.enums import OrtDeviceMemoryType as OrtDeviceMemoryType
    from intarsia.enums import OrtDeviceVendorId as OrtDeviceVendorId
    from intarsia.enums import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from intarsia.enums import OrtHardwareDeviceType as OrtHardwareDeviceType
    from intarsia.enums import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
    from intarsia.enums import OrtMemType as OrtMemType
    from intarsia.enums import OrtSparseFormat as OrtSparseFormat
    from intarsia.ep_devices import OrtEpDevice as OrtEpDevice
    from intarsia.ep_devices import OrtHardwareDevice as OrtHardwareDevice
    from intarsia.ep_devices import get_ep_devices as get_ep_devices
    from intarsia.ep_devices import get_hardware_devices as get_hardware_devices
    from intarsia.ep_devices import register_execution_provider_library as register_execution_provider_library
    from intarsia.ep_devices import unregister_execution_provider_library as unregister_execution_provider_library
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
    from intarsia.explain import Explanation as Explanation
    from intarsia.install import install_as as install_as
    from intarsia.install import uninstall as uninstall
    from intarsia.log import set_default_logger_callback as set_default_logger_callback
    from intarsia.log import set_default_logger_severity as set_default_logger_severity
    from intarsia.log import set_default_logger_verbosity as set_default_logger_verbosity
    from intarsia.lora import AdapterFormat as AdapterFormat
    from intarsia.lora import LoraAdapter as LoraAdapter
    from intarsia.model_compiler import ModelCompiler as ModelCompiler
    from intarsia.model_compiler import OrtExternalInitializerInfo as OrtExternalInitializerInfo
    from intarsia.model_package.authoring import ModelPackage as ModelPackage
    from intarsia.model_package.selection import ModelPackageComponentContext as ModelPackageComponentContext
    from intarsia.model_package.selection import ModelPackageContext as ModelPackageContext
    from intarsia.model_package.selection import ModelPackageOptions as ModelPackageOptions
    from intarsia.operators.library import OperatorLibrary as OperatorLibrary
    from intarsia.operators.library import host_op as host_op
    from intarsia.operators.library import op as op
    from intarsia.operators.library import unregister_operator as unregister_operator
    from intarsia.options import RunOptions as RunOptions
    from intarsia.options import SessionOptions as SessionOptions
    from intarsia.ort_device import OrtArenaCfg as OrtArenaCfg
    from intarsia.ort_device import OrtDevice as OrtDevice
    from intarsia.ort_device import OrtMemoryInfo as OrtMemoryInfo
    from intarsia.ort_device import OrtSyncStream as OrtSyncStream
    from intarsia.ort_device import create_and_register_allocator as create_and_register_allocator
    from intarsia.ort_device import create_and_register_allocator_v2 as create_and_register_allocator_v2
    from intarsia.partition.interfaces import GraphViewer as GraphViewer
    from intarsia.partition.interfaces import IAllocator as IAllocator
    from intarsia.partition.interfaces import IDataTransfer as IDataTransfer
    from intarsia.partition.interfaces import IExecutionProvider as IExecutionProvider
    from intarsia.partition.interfaces import IKernelLookup as IKernelLookup
    from intarsia.partition.interfaces import NodeComputeInfo as NodeComputeInfo
    from intarsia.partition.provider import Allocator as Allocator
    from intarsia.partition.provider import CompileContext as CompileContext
    from intarsia.partition.provider import ComputeCapability as ComputeCapability
    from intarsia.partition.provider import DataTransfer as DataTransfer
    from intarsia.partition.provider import Device as Device
    from intarsia.partition.provider import DeviceTensor as DeviceTensor
    from intarsia.partition.provider import ExecutionProvider as ExecutionProvider
    from intarsia.partition.provider import KernelLookup as KernelLookup
    from intarsia.partition.provider import KernelRegistry as KernelRegistry
    from intarsia.partition.provider import Program as Program
    from intarsia.partition.provider import Support as Support
    from intarsia.process import cuda_version as cuda_version
    from intarsia.process import disable_telemetry_events as disable_telemetry_events
    from intarsia.process import enable_telemetry_events as enable_telemetry_events
    from intarsia.process import get_build_info as get_build_info
    from intarsia.process import has_collective_ops as has_collective_ops
    from intarsia.process import package_name as package_name
    from intarsia.process import preload_dlls as preload_dlls
    from intarsia.process import print_debug_info as print_debug_info
    from intarsia.process import set_global_thread_pool_sizes as set_global_thread_pool_sizes
    from intarsia.process import set_seed as set_seed
    from intarsia.process import version as version
    from intarsia.providers.fallback import ProviderWarning as ProviderWarning
    from intarsia.providers.fallback import set_provider_fallback as set_provider_fallback
    from intarsia.providers.registry import get_all_providers as get_all_providers
    from intarsia.providers.registry import get_available_providers as get_available_providers
    from intarsia.providers.registry import register_execution_provider as register_execution_provider
    from intarsia.providers.registry import unregister_execution_provider as unregister_execution_provider
    from intarsia.session_api import OrtEpAssignedNode as OrtEpAssignedNode
    from intarsia.session_api import OrtEpAssignedSubgraph as OrtEpAssignedSubgraph
    from intarsia.signature import ModelMetadata as ModelMetadata
    from intarsia.signature import NodeArg as NodeArg
    from intarsia.sparse import SparseTensor as SparseTensor
    from intarsia.values import OrtValue as OrtValue
    from intarsia.values import OrtValueVector as OrtValueVector
    from intarsia.values import copy_tensors as copy_tensors

_NAMES: dict[str, str] = {
    "binding": "IOBinding",
    "check": "ModelCheck check_model",
    "device_info": "get_device",
    "diagnosis": "Diagnosis doctor",
    "enums": (
        "ArenaExtendStrategy ExecutionMode ExecutionOrder GraphOptimizationLevel ModelPackageWriteMode OrtAllocatorType "
        "OrtCompileApiFlags OrtCompiledModelCompatibility OrtDeviceEpIncompatibilityReason "
        "OrtDeviceMemoryType OrtDeviceVendorId OrtExecutionProviderDevicePolicy OrtHardwareDeviceType "
        "OrtMemType OrtMemoryInfoDeviceType OrtSparseFormat"
    ),
    "ep_devices": (
        "OrtEpDevice OrtHardwareDevice get_ep_devices get_hardware_devices "
        "register_execution_provider_library unregister_execution_provider_library"
    ),
    "errors": (
        "DeviceLost DeviceReset EPFail EngineError ExternalDataError Fail IntarsiaError InvalidArgument "
        "InvalidGraph InvalidModelError InvalidProtobuf InvalidSignature ModelLoadCanceled ModelLoaded "
        "ModelRequiresCompilation NoModel NoSuchFile NodeFailed NotFound NotImplemented NotWritten OutOfMemory RunTimeout "
        "UnknownOperator UnknownOption WrongType"
    ),
    "explain": "Explanation",
    "install": "install_as uninstall",
    "log": "set_default_logger_callback set_default_logger_severity set_default_logger_verbosity",
    "lora": "AdapterFormat LoraAdapter",
    "context_data": "OrtEpContextData OrtEpContextDataBuffer",
    "model_compiler": "ModelCompiler OrtExternalInitializerInfo",
    "model_package.authoring": "ModelPackage",
    "model_package.selection": "ModelPackageComponentContext ModelPackageContext ModelPackageOptions",
    "operators.library": "OperatorLibrary host_op op unregister_operator",
    "options": "RunOptions SessionOptions",
    "ort_device": (
        "OrtArenaCfg OrtDevice OrtMemoryInfo OrtSyncStream create_and_register_allocator create_and_register_allocator_v2"
    ),
    "partition.interfaces": "GraphViewer IAllocator IDataTransfer IExecutionProvider IKernelLookup NodeComputeInfo",
    "partition.provider": (
        "Allocator CompileContext ComputeCapability DataTransfer Device DeviceTensor ExecutionProvider KernelLookup "
        "KernelRegistry Program Support"
    ),
    "process": (
        "cuda_version disable_telemetry_events enable_telemetry_events get_build_info has_collective_ops "
        "package_name preload_dlls print_debug_info set_global_thread_pool_sizes set_seed version"
    ),
    "providers.fallback": "ProviderWarning set_provider_fallback",
    "providers.registry": "get_all_providers get_available_providers register_execution_provider unregister_execution_provider",
    "session_api": "OrtEpAssignedNode OrtEpAssignedSubgraph",
    "signature": "ModelMetadata NodeArg",
    "sparse": "SparseTensor",
    "values": "OrtValue OrtValueVector copy_tensors",
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
    from intarsia.left_out import reason_for

    why = reason_for(name)
    return f"module 'intarsia' has no attribute {name!r}{f': {why}' if why else ''}"


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_IMPORTABLE, "SessionIOBinding"})


def get_version_string() -> str:
    """The version of this package."""
    return __version__
