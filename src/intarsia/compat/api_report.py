"""How far Intarsia's API is onnxruntime's: every public name of its Python package, and what becomes of it here.

`report()` is `docs/compatibility.md`: `python -m intarsia.compat.api_report > docs/compatibility.md`. The names are those of
onnxruntime 1.32; whether one works is found by looking for it here, how it differs is said in `DIFFERS`.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator
from typing import Any

from intarsia.compat.install_as import API_VERSION
from intarsia.compat.not_provided import LEFT_OUT, METHODS_LEFT_OUT, MODULES_LEFT_OUT
from intarsia.lazy_dataclass import dataclass
from intarsia.options.config_keys import PROPERTY_KEYS, RUN_KEYS, SESSION_KEYS
from intarsia.options.session_options import RunOptions, SessionOptions

MODULE = """
__version__ copy_tensors create_and_register_allocator create_and_register_allocator_v2 cuda_version disable_telemetry_events
enable_telemetry_events get_all_providers get_available_providers get_build_info get_device get_ep_devices get_version_string
has_collective_ops package_name preload_dlls print_debug_info register_execution_provider_library
set_default_logger_callback set_default_logger_severity set_default_logger_verbosity set_global_thread_pool_sizes set_seed
unregister_execution_provider_library version
""".split()

CLASSES: dict[str, str] = {
    "InferenceSession": (
        "create_ortvalue_from_shape_and_type disable_fallback enable_fallback end_profiling get_input_epdevices "
        "get_input_memory_infos get_inputs get_modelmeta get_output_memory_infos get_outputs get_overridable_initializers "
        "get_profiling_start_time_ns get_provider_graph_assignment_info get_provider_options get_providers "
        "get_session_options get_tuning_results io_binding release_captured_graph run run_async run_with_iobinding "
        "run_with_ort_values run_with_ortvaluevector set_ep_dynamic_options set_providers set_tuning_results"
    ),
    "SessionOptions": (
        "add_external_initializers add_external_initializers_from_files_in_memory add_free_dimension_override_by_denotation "
        "add_free_dimension_override_by_name add_initializer add_provider add_provider_for_devices add_session_config_entry "
        "clear_ep_context_data_read_func enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse enable_profiling "
        "execution_mode execution_order get_session_config_entry graph_optimization_level has_providers "
        "inter_op_num_threads intra_op_num_threads log_severity_level log_verbosity_level logid optimized_model_filepath "
        "profile_file_prefix register_custom_ops_library set_ep_context_data_read_func set_load_cancellation_flag "
        "set_provider_selection_policy set_provider_selection_policy_delegate use_deterministic_compute "
        "use_per_session_threads"
    ),
    "RunOptions": (
        "add_active_adapter add_run_config_entry get_run_config_entry log_severity_level log_verbosity_level logid "
        "only_execute_path_to_fetches terminate"
    ),
    "IOBinding": (
        "bind_cpu_input bind_input bind_ortvalue_input bind_ortvalue_output bind_output clear_binding_inputs "
        "clear_binding_outputs copy_outputs_to_cpu get_outputs get_outputs_as_ortvaluevector synchronize_inputs "
        "synchronize_outputs"
    ),
    "OrtValue": (
        "__array__ __dlpack__ __dlpack_device__ as_sparse_tensor data_ptr data_type device_name element_type from_dlpack "
        "has_value is_sparse_tensor is_tensor is_tensor_sequence numpy ort_value_from_sparse_tensor ortvalue_from_numpy "
        "ortvalue_from_numpy_with_onnx_type ortvalue_from_shape_and_type shape tensor_size_in_bytes update_inplace"
    ),
    "SparseTensor": (
        "as_blocksparse_view as_coo_view as_csrc_view data_type dense_shape device_name format sparse_coo_from_numpy "
        "sparse_csr_from_numpy to_cuda values"
    ),
    "OrtDevice": "device_id device_mem_type device_type device_vendor_id make",
    "OrtMemoryInfo": "allocator_type create_v2 device_id device_mem_type device_vendor_id mem_type name",
    "OrtArenaCfg": (
        "arena_extend_strategy initial_chunk_size_bytes initial_growth_chunk_size_bytes max_dead_bytes_per_chunk max_mem "
        "max_power_of_two_extend_bytes"
    ),
    "ModelMetadata": "custom_metadata_map description domain graph_description graph_name producer_name version",
    "NodeArg": "name shape type",
    "OrtEpDevice": "create_sync_stream device ep_metadata ep_name ep_options ep_vendor memory_info",
    "OrtHardwareDevice": "device_id metadata type vendor vendor_id",
    "OrtSyncStream": "get_handle",
    "OrtEpAssignedNode": "domain name op_type",
    "OrtEpAssignedSubgraph": "ep_name get_nodes",
    "ModelCompiler": (
        "clear_ep_context_data_write_func compile_to_bytes compile_to_file compile_to_stream "
        "set_ep_context_binary_information set_ep_context_data_write_func"
    ),
    "OrtExternalInitializerInfo": "byte_size file_offset filepath",
    "OrtEpContextData": "read size",
    "OrtEpContextDataBuffer": "allocate is_allocated max_size size write",
    "ModelPackage": (
        "add_shared_asset close commit compute_directory_hash get_component_json get_info get_variant_json open prune "
        "remove_component remove_shared_asset remove_variant remove_variant_executor_info resolve_asset_uri "
        "resolve_string_ref set_additional_metadata_json set_component_external set_component_inline set_layout set_metadata "
        "set_variant set_variant_executor_info_external set_variant_executor_info_inline"
    ),
    "ModelPackageContext": (
        "get_component_count get_component_names get_schema_version get_variant_count get_variant_ep_name get_variant_names "
        "resolve_string_ref select_component"
    ),
    "ModelPackageComponentContext": "create_session get_selected_variant_folder_path get_selected_variant_name",
    "ModelPackageOptions": "",
    "AdapterFormat": (
        "export_adapter get_adapter_version get_format_version get_model_version get_parameters read_adapter "
        "set_adapter_version set_model_version set_parameters"
    ),
    "LoraAdapter": "Load",
    "ExecutionMode": "ORT_PARALLEL ORT_SEQUENTIAL",
    "ExecutionOrder": "DEFAULT MEMORY_EFFICIENT PRIORITY_BASED",
    "GraphOptimizationLevel": "ORT_DISABLE_ALL ORT_ENABLE_ALL ORT_ENABLE_BASIC ORT_ENABLE_EXTENDED ORT_ENABLE_LAYOUT",
    "ModelPackageWriteMode": "DENSE PRESERVE",
    "OrtAllocatorType": "INVALID ORT_ARENA_ALLOCATOR ORT_DEVICE_ALLOCATOR",
    "OrtCompileApiFlags": "ERROR_IF_NO_NODES_COMPILED ERROR_IF_OUTPUT_FILE_EXISTS NONE",
    "OrtDeviceMemoryType": "DEFAULT HOST_ACCESSIBLE",
    "OrtDeviceVendorId": "AMD ARM HUAWEI INTEL MICROSOFT NONE NVIDIA QUALCOMM",
    "OrtExecutionProviderDevicePolicy": (
        "DEFAULT MAX_EFFICIENCY MAX_PERFORMANCE MIN_OVERALL_POWER PREFER_CPU PREFER_GPU PREFER_NPU"
    ),
    "OrtHardwareDeviceType": "CPU GPU NPU",
    "OrtMemType": "CPU CPU_INPUT CPU_OUTPUT DEFAULT",
    "OrtMemoryInfoDeviceType": "CPU FPGA GPU NPU",
    "OrtSparseFormat": "ORT_SPARSE_BLOCK_SPARSE ORT_SPARSE_COO ORT_SPARSE_CSRC ORT_SPARSE_UNDEFINED",
    "SessionIOBinding": "",
}

LOW_LEVEL = """
ArenaExtendStrategy DeviceReset EPFail EngineError Fail InferenceSession InvalidArgument InvalidGraph InvalidProtobuf
ModelCompiler ModelLoadCanceled ModelLoaded ModelRequiresCompilation NoModel NoSuchFile NotFound NotImplemented
OrtCompiledModelCompatibility OrtDeviceEpIncompatibilityReason OrtValueVector RuntimeException SessionObjectInitializer
SparseBlockSparseView SparseCooView SparseCsrView get_all_operator_schema get_all_opkernel_def
get_compatibility_info_from_model get_compatibility_info_from_model_bytes get_default_session_options
get_hardware_device_ep_incompatibility_details get_hardware_devices get_model_compatibility_for_ep_devices
get_registered_ep_kernel_defs get_session_initializer is_dlpack_uint8_tensor kNextPowerOfTwo kSameAsRequested opkernel
pack_fp4_weights_for_cuda_moe_gemm quantize_matmul_2bits quantize_matmul_4bits quantize_matmul_8bits quantize_matmul_bnb4
quantize_qdq_matmul_2bits quantize_qdq_matmul_4bits schemadef
""".split()

SUBMODULES = (
    "backend", "capi._pybind_state", "capi.build_and_package_info", "capi.onnxruntime_inference_collection",
    "capi.onnxruntime_pybind11_state", "capi.onnxruntime_validation", "datasets", "quantization", "tools", "transformers",
)  # fmt: skip

DIFFERS: dict[str, str] = {
    "__version__": f"Intarsia's own; under `install_as` it is {API_VERSION}, the version whose API this is",
    "get_version_string": "as `__version__`",
    "get_available_providers": "only providers that work on this machine (never Azure's); the reference provider is among them",
    "get_build_info": "Intarsia's and its libraries' versions",
    "create_and_register_allocator": "checked and stored; host memory is the process's own, so sessions share it anyway",
    "create_and_register_allocator_v2": "for host memory only; others raise `NotImplemented`",
    "register_execution_provider_library": "also a Python file with `ExecutionProvider` classes; relative paths begin here",
    "preload_dlls": "no effect: providers load their libraries when they are first used",
    "enable_telemetry_events": "no effect: there is no telemetry",
    "disable_telemetry_events": "no effect: there is no telemetry",
    "set_global_thread_pool_sizes": "counts for sessions that set no number of threads; may be called at any time",
    "set_default_logger_verbosity": "no effect: there is one level of verbose records",
    "InferenceSession.run": (
        "also takes feeds by position, tables and other libraries' tensors, `timeout` and `framework`; element types that "
        "onnxruntime cannot exchange with NumPy (bfloat16, float8, int4) are ml_dtypes arrays"
    ),
    "InferenceSession.get_tuning_results": "always []",
    "InferenceSession.set_tuning_results": "not used; an error where `error_on_invalid` is set",
    "InferenceSession.release_captured_graph": "drops all graphs: they are retained by the sizes of inputs, not by number",
    "InferenceSession.set_ep_dynamic_options": "workload type `Efficient`: one thread; other keys have no effect",
    "SessionOptions.add_session_config_entry": "a key that looks like a known one but is none raises `UnknownOption`",
    "SessionOptions.add_free_dimension_override_by_name": "a dimension that the model does not have is an error",
    "SessionOptions.add_free_dimension_override_by_denotation": "a denotation that the model does not have is an error",
    "SessionOptions.optimized_model_filepath": "after the rewrites here: its operators may be others than onnxruntime's",
    "SessionOptions.register_custom_ops_library": "Python operators; libraries for onnxruntime's C interface raise",
    "RunOptions.add_run_config_entry": "a key that looks like a known one but is none raises `UnknownOption`",
    "IOBinding.bind_output": "an output without a buffer is new memory in every run",
    "OrtValue.ortvalue_from_numpy": "also strings and ml_dtypes' types; big-endian arrays are converted",
    "OrtValue.update_inplace": "type and shape must be the same",
    "OrtValue.numpy": "also of sequences and maps",
    "OrtDevice.make": "names in any case",
    "OrtSyncStream.get_handle": "no provider gives out its streams",
    "ModelCompiler.compile_to_file": "the CPU provider compiles too: EPContext nodes, for CPUs with this one's features",
    "ModelCompiler.compile_to_bytes": "as `compile_to_file`",
    "ModelCompiler.compile_to_stream": "as `compile_to_file`",
    "ModelCompiler.set_ep_context_binary_information": "where `compile_to_bytes` and `compile_to_stream` put compiled parts",
    "ModelPackage": "also takes `os.PathLike`; a new package may name folders that `commit` then makes",
    "ModelPackage.commit": (
        "a new place appears whole, with the variants' folders; DENSE writes them as seen from the root; what could not be "
        "opened again is refused before anything is written"
    ),
    "ModelPackage.open": "`follow_symlinks=False` refuses links",
    "ModelPackage.prune": "what the manifest on the disk still names goes with the next `commit`",
    "ModelPackage.set_component_external": "a path that does not exist and does not end in `.json` becomes a folder",
    "ModelPackageContext.select_component": "the first provider that a variant fits, not only the first of all",
    "ModelPackageComponentContext.create_session": (
        "the session may take other providers; packages cannot set options that write files or trust machine code, nor paths, "
        "allocators and streams of providers"
    ),
    "OrtExecutionProviderDevicePolicy.DEFAULT": "the CPU provider, also where another provider uses the CPU",
    "OrtExecutionProviderDevicePolicy.PREFER_CPU": "the CPU provider, also where another provider uses the CPU",
    "RuntimeException": "the base of all errors, which is a RuntimeError; each error is also the Python error it is like",
    "backend": "`run_node` works too",
    "tools": "the modules that scripts import; the others are onnxruntime's own, under `install_as`",
}
"""Names that work otherwise than onnxruntime's -> how."""


@dataclass(frozen=True)
class Entry:
    """One name: "works", "differs" or "left out", and what is to be said about it."""

    name: str
    status: str
    note: str = ""


def _missing(path: str, found: Any) -> bool:
    """Whether an object lacks a method or property; instances of some classes have those only once they are made."""
    if hasattr(found, path):
        return False
    declared = {**getattr(found, "PROPERTIES", {}), **getattr(found, "__annotations__", {})}
    code = getattr(getattr(found, "__init__", None), "__code__", None)
    return path not in declared and path not in (code.co_names if code is not None else ())


def _entry(name: str, *, missing: bool) -> Entry:
    short = name.rpartition(".")[2] if name.startswith("capi.") else name
    reason = LEFT_OUT.get(name) or METHODS_LEFT_OUT.get(name) or MODULES_LEFT_OUT.get(name, "")
    if reason:
        return Entry(name, "left out", reason)
    if missing:
        return Entry(name, "missing")
    note = DIFFERS.get(short, "")
    return Entry(name, "differs" if note else "works", note)


def entries() -> dict[str, list[Entry]]:
    """Every name of the inventory, by section."""
    package = importlib.import_module("intarsia")
    low = importlib.import_module("intarsia.capi._pybind_state")
    return {
        "Module": [_entry(name, missing=not hasattr(package, name)) for name in MODULE],
        "Submodules": [_entry(name, missing=not _imports(name)) for name in SUBMODULES],
        **{name: list(_class_entries(package, name, members.split())) for name, members in CLASSES.items()},
        "capi._pybind_state": [_entry(name, missing=not hasattr(low, name)) for name in LOW_LEVEL],
    }


def _imports(name: str) -> bool:
    try:
        importlib.import_module(f"intarsia.{name}")
    except ImportError:
        return False
    return True


def _class_entries(package: Any, name: str, members: list[str]) -> Iterator[Entry]:
    found = getattr(package, name, None)
    yield _entry(name, missing=found is None)
    for member in members:
        yield _entry(f"{name}.{member}", missing=_missing(member, found))


def report() -> str:
    """The text of docs/compatibility.md."""
    intro = (
        f"Every public name of onnxruntime {API_VERSION}'s Python package, and what becomes of it here. This file is written "
        "by `python -m intarsia.compat.api_report` from the code, and a test compares it. A name that is left out raises a "
        "typed error that says why."
    )
    lines = ["# Compatibility with onnxruntime's Python API", "", intro, ""]
    found = entries()
    counts = {
        status: sum(e.status == status for es in found.values() for e in es) for status in ("works", "differs", "left out")
    }
    lines += [", ".join(f"{count} {status}" for status, count in counts.items()) + ".", ""]
    for section, listed in found.items():
        lines += [f"## {section}", ""]
        same = [e.name.rpartition(".")[2] if section in CLASSES else e.name for e in listed if e.status == "works"]
        if same:
            lines += [f"Works: {', '.join(f'`{name}`' for name in same)}.", ""]
        others = [e for e in listed if e.status != "works"]
        if others:
            lines += ["| name | | |", "|---|---|---|", *(f"| `{e.name}` | {e.status} | {e.note} |" for e in others), ""]
    return "\n".join(_wrapped(line) for line in [*lines, *_options(), *_keys()])


def _wrapped(line: str) -> str:
    """A paragraph, or an item of a list, in lines of 100 columns; a table's row as it is."""
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _options() -> Iterator[str]:
    yield from ("## Properties without effect", "", "Accepted with onnxruntime's defaults and checked:", "")
    for kind in (SessionOptions, RunOptions):
        for name, declared in kind.PROPERTIES.items():
            if declared.doc.startswith("no effect"):
                yield f"- `{kind.__name__}.{name}`{declared.doc.removeprefix('no effect')}"
    yield ""


def _keys() -> Iterator[str]:
    yield from ("## Configuration entries", "", "With effect:", "")
    for key, entry in (*SESSION_KEYS.items(), *RUN_KEYS.items()):
        if entry.effect:
            yield f"- `{key}`: {entry.doc}"
    yield from (f"- `{key}`: sets the property `{name}`" for key, name in PROPERTY_KEYS.items())
    yield from ("", "Known, checked, and without effect here:", "")
    names = [f"`{k}`" for k, entry in (*SESSION_KEYS.items(), *RUN_KEYS.items()) if not entry.effect]
    yield ", ".join(names) + "."
    yield ""


if __name__ == "__main__":
    print(report(), end="")  # printing is what it is for
