# Written by scripts/public_names.py from intarsia/__init__.py.
# ruff: noqa: I001

from intarsia import backend as backend
from intarsia import capi as capi
from intarsia import datasets as datasets
from intarsia import quantization as quantization
from intarsia import tools as tools
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
from intarsia.errors import EPFail as EPFail
from intarsia.errors import EngineError as EngineError
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
from intarsia.errors import NoModel as NoModel
from intarsia.errors import NoSuchFile as NoSuchFile
from intarsia.errors import NodeFailed as NodeFailed
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
from intarsia.machine.version import __version__ as __version__
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
from intarsia.providers.provider_libraries import register_execution_provider_library as register_execution_provider_library
from intarsia.providers.provider_libraries import unregister_execution_provider_library as unregister_execution_provider_library
from intarsia.providers.registry import get_all_providers as get_all_providers
from intarsia.providers.registry import get_available_providers as get_available_providers
from intarsia.providers.registry import register_execution_provider as register_execution_provider
from intarsia.providers.registry import unregister_execution_provider as unregister_execution_provider
from intarsia.reports.doctor import Diagnosis as Diagnosis
from intarsia.reports.doctor import doctor as doctor
from intarsia.reports.explain import Explanation as Explanation
from intarsia.reports.model_check import ModelCheck as ModelCheck
from intarsia.reports.model_check import check_model as check_model
from intarsia.session.inference_session import InferenceSession as InferenceSession
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
from intarsia.values.ort_enums import OrtMemType as OrtMemType
from intarsia.values.ort_enums import OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType
from intarsia.values.ort_enums import OrtSparseFormat as OrtSparseFormat
from intarsia.values.ort_value import OrtValue as OrtValue
from intarsia.values.ort_value import OrtValueVector as OrtValueVector
from intarsia.values.ort_value import copy_tensors as copy_tensors
from intarsia.values.sparse_tensor import SparseTensor as SparseTensor

__all__ = [
    "AdapterFormat",
    "Allocator",
    "ArenaExtendStrategy",
    "CompileContext",
    "ComputeCapability",
    "DataTransfer",
    "Device",
    "DeviceLost",
    "DeviceReset",
    "DeviceTensor",
    "Diagnosis",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "ExecutionProvider",
    "Explanation",
    "ExternalDataError",
    "Fail",
    "GraphOptimizationLevel",
    "GraphViewer",
    "IAllocator",
    "IDataTransfer",
    "IExecutionProvider",
    "IKernelLookup",
    "IOBinding",
    "InferenceSession",
    "IntarsiaError",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidModelError",
    "InvalidProtobuf",
    "InvalidSignature",
    "KernelLookup",
    "KernelRegistry",
    "LoraAdapter",
    "ModelCheck",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NodeComputeInfo",
    "NodeFailed",
    "NotFound",
    "NotImplemented",
    "NotWritten",
    "OperatorLibrary",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDevice",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "OrtValueVector",
    "OutOfMemory",
    "Program",
    "ProviderWarning",
    "RunOptions",
    "RunTimeout",
    "SessionOptions",
    "SparseTensor",
    "StateWarning",
    "StatefulSession",
    "Support",
    "UnknownOperator",
    "UnknownOption",
    "WrongType",
    "__version__",
    "check_model",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "doctor",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_hardware_devices",
    "has_collective_ops",
    "host_op",
    "install_as",
    "op",
    "package_name",
    "plugin_library",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider",
    "register_execution_provider_library",
    "run_together",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_provider_fallback",
    "set_seed",
    "uninstall",
    "unregister_execution_provider",
    "unregister_execution_provider_library",
    "unregister_operator",
    "version",
]

SessionIOBinding = IOBinding

def get_version_string() -> str: ...
