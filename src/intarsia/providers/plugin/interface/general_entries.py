"""Entries of the tables that deal with statuses, texts by key, hardware, memory infos, other tables, and releasing."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from intarsia.errors import InvalidArgument
from intarsia.providers.plugin.interface.handles import HostObject, find, give, put, take_back
from intarsia.providers.plugin.interface.hardware import (
    CPU_OUTPUT,
    HOST_ACCESSIBLE,
    KeyValues,
    MemoryInfo,
    OrtEpDevice,
    OrtHardware,
    Place,
)
from intarsia.providers.plugin.interface.host_tables import entry, served_address
from intarsia.providers.plugin.interface.status import Status

# statuses


@entry("OrtApi", "CreateStatus")
def _create_status(code: int, message: bytes | None) -> Status:
    return Status(code, _decoded(message))


@entry("OrtApi", "GetErrorCode")
def _get_error_code(handle: int) -> int:
    return find(handle, Status).code


@entry("OrtApi", "GetErrorMessage")
def _get_error_message(handle: int) -> int:
    status = find(handle, Status)
    return status.text(status.message)


@entry("OrtApi", "ReleaseStatus", "ReleaseKeyValuePairs", "ReleaseMemoryInfo", "ReleaseValue", "ReleaseTypeInfo")
@entry("OrtApi", "ReleaseTensorTypeAndShapeInfo", "ReleaseModelMetadata", "ReleaseOpAttr", "ReleaseExternalInitializerInfo")
@entry(
    "OrtApi", "ReleaseGraph", "ReleaseNode", "ReleaseValueInfo", "ReleaseModel", "ReleaseSessionOptions", "ReleaseKernelInfo"
)
@entry("OrtApi", "ReleaseRunOptions", "ReleaseMapTypeInfo", "ReleaseSequenceTypeInfo", "ReleaseSyncStream", "ReleaseEnv")
@entry("OrtApi", "ReleaseDeviceEpIncompatibilityDetails", "ReleaseAllocator", "ReleaseOp")
@entry("OrtEpApi", "ReleaseEpDevice", "ReleaseHardwareDevice", "ReleaseKernelRegistry", "ReleaseKernelDefBuilder")
@entry("OrtEpApi", "ReleaseKernelDef", "ReleaseOpSchema", "ReleaseProfilingEvent")
def _release(handle: int | None) -> None:
    take_back(handle)


# texts by key


@entry("OrtApi", "CreateKeyValuePairs")
def _create_key_values(out: int) -> None:
    put(out, give(KeyValues({})))


@entry("OrtApi", "AddKeyValuePair")
def _add_key_value(handle: int, key: bytes | None, value: bytes | None) -> None:
    if key:
        find(handle, KeyValues).values[_decoded(key)] = _decoded(value)


@entry("OrtApi", "GetKeyValue")
def _get_key_value(handle: int, key: bytes | None) -> int | None:
    pairs = find(handle, KeyValues)
    found = pairs.values.get(_decoded(key))
    return pairs.text(found) if found is not None else None


@entry("OrtApi", "GetKeyValuePairs")
def _get_key_values(handle: int, keys: int, values: int, count: int) -> None:
    pairs = find(handle, KeyValues)
    put(keys, pairs.addresses(pairs.values))
    put(values, pairs.addresses(pairs.values.values()))
    put(count, len(pairs.values), ctypes.c_size_t)


@entry("OrtApi", "RemoveKeyValuePair")
def _remove_key_value(handle: int, key: bytes | None) -> None:
    find(handle, KeyValues).values.pop(_decoded(key), None)


def _decoded(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def given_pairs(handle: int | None) -> Mapping[str, str]:
    """What an optional argument says."""
    return dict(find(handle, KeyValues).values) if handle else {}


# hardware, and providers on it


@entry("OrtApi", "HardwareDevice_Type")
def _device_type(handle: int) -> int:
    return find(handle, OrtHardware).type


@entry("OrtApi", "HardwareDevice_VendorId")
def _device_vendor_id(handle: int) -> int:
    return find(handle, OrtHardware).vendor_id


@entry("OrtApi", "HardwareDevice_Vendor")
def _device_vendor(handle: int) -> int:
    device = find(handle, OrtHardware)
    return device.text(device.vendor)


@entry("OrtApi", "HardwareDevice_DeviceId")
def _device_id(handle: int) -> int:
    return find(handle, OrtHardware).device_id


@entry("OrtApi", "HardwareDevice_Metadata")
def _device_metadata(handle: int) -> int:
    return find(handle, OrtHardware).metadata.handle


@entry("OrtEpApi", "CreateHardwareDevice")
def _create_hardware(kind: int, vendor: int, device: int, name: bytes | None, metadata: int | None, out: int) -> None:
    put(out, give(OrtHardware(kind, vendor, device, _decoded(name), given_pairs(metadata))))


@entry("OrtEpApi", "CreateEpDevice")
def _create_ep_device(factory: int, hardware: int, metadata: int | None, options: int | None, out: int) -> None:
    device = OrtEpDevice(factory, find(hardware, OrtHardware), given_pairs(metadata), given_pairs(options))
    put(out, give(device))


@entry("OrtEpApi", "EpDevice_AddAllocatorInfo")
def _add_allocator_info(handle: int, info: int) -> None:
    find(handle, OrtEpDevice).add_memory(find(info, MemoryInfo))


@entry("OrtApi", "EpDevice_EpMetadata")
def _ep_metadata(handle: int) -> int:
    return find(handle, OrtEpDevice).metadata.handle


@entry("OrtApi", "EpDevice_EpOptions")
def _ep_options(handle: int) -> int:
    return find(handle, OrtEpDevice).options.handle


@entry("OrtApi", "EpDevice_Device")
def _ep_hardware(handle: int) -> int:
    return find(handle, OrtEpDevice).hardware.handle


@entry("OrtApi", "EpDevice_MemoryInfo")
def _ep_memory_info(handle: int, kind: int) -> int | None:
    found = find(handle, OrtEpDevice).memory_of(kind)
    return found.handle if found is not None else None


class Incompatibility(HostObject):
    """OrtDeviceEpIncompatibilityDetails: why a plugin does not work on a device.

    Attributes:
        reasons: bits of OrtDeviceEpIncompatibilityReason.
        code: the plugin's own number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reasons, self.code, self.notes = 0, 0, ""


@entry("OrtEpApi", "DeviceEpIncompatibilityDetails_SetDetails")
def _set_incompatibility(handle: int, reasons: int, code: int, notes: bytes | None) -> None:
    found = find(handle, Incompatibility)
    found.reasons, found.code, found.notes = reasons, code, _decoded(notes)


# memory infos; a memory device is the part of one that says where


@entry("OrtApi", "CreateMemoryInfo_V2")
def _create_memory_info(name: bytes, *fields: int) -> None:
    kind, vendor, device, memory, alignment, allocator, out = fields
    mem_type = CPU_OUTPUT if memory == HOST_ACCESSIBLE else 0  # as onnxruntime
    put(out, give(MemoryInfo(_decoded(name), Place(kind, vendor, device, memory), alignment, allocator, mem_type)))


@entry("OrtApi", "CreateCpuMemoryInfo")
def _create_cpu_memory_info(allocator: int, mem_type: int, out: int) -> None:
    put(out, give(MemoryInfo("Cpu", allocator=allocator, mem_type=mem_type)))


@entry("OrtApi", "CreateMemoryInfo")
def _create_named_memory_info(name: bytes, allocator: int, device: int, mem_type: int, out: int) -> None:
    if name != b"Cpu":
        raise InvalidArgument(f"CreateMemoryInfo knows the memory 'Cpu', got {_decoded(name)!r}; use CreateMemoryInfo_V2")
    put(out, give(MemoryInfo("Cpu", Place(device_id=device), allocator=allocator, mem_type=mem_type)))


@entry("OrtApi", "CompareMemoryInfo")
def _compare_memory_info(first: int, second: int, out: int) -> None:
    put(out, int(find(first, MemoryInfo).fields != find(second, MemoryInfo).fields), ctypes.c_int32)


@entry("OrtApi", "MemoryInfoGetName")
def _memory_name(handle: int, out: int) -> None:
    info = find(handle, MemoryInfo)
    put(out, info.text(info.name))


@entry("OrtApi", "MemoryInfoGetId")
def _memory_id(handle: int, out: int) -> None:
    put(out, find(handle, MemoryInfo).place.device_id, ctypes.c_int32)


@entry("OrtApi", "MemoryInfoGetMemType")
def _memory_mem_type(handle: int, out: int) -> None:
    put(out, find(handle, MemoryInfo).mem_type, ctypes.c_int32)


@entry("OrtApi", "MemoryInfoGetType")
def _memory_allocator(handle: int, out: int) -> None:
    put(out, find(handle, MemoryInfo).allocator, ctypes.c_int32)


@entry("OrtApi", "MemoryInfoGetDeviceType")
def _memory_device_type(handle: int, out: int) -> None:
    put(out, find(handle, MemoryInfo).place.kind, ctypes.c_int32)


@entry("OrtApi", "MemoryInfoGetVendorId")
@entry("OrtEpApi", "MemoryDevice_GetVendorId")
def _memory_vendor(handle: int) -> int:
    return find(handle, MemoryInfo).place.vendor_id


@entry("OrtApi", "MemoryInfoGetDeviceMemType")
@entry("OrtEpApi", "MemoryDevice_GetMemoryType")
def _memory_kind(handle: int) -> int:
    return find(handle, MemoryInfo).place.memory


@entry("OrtEpApi", "MemoryDevice_GetDeviceType")
def _memory_device_kind(handle: int) -> int:
    return find(handle, MemoryInfo).place.kind


@entry("OrtEpApi", "MemoryDevice_GetDeviceId")
def _memory_device_id(handle: int) -> int:
    return find(handle, MemoryInfo).place.device_id


@entry("OrtEpApi", "MemoryInfo_GetMemoryDevice")
def _memory_device(handle: int) -> int:
    return find(handle, MemoryInfo).handle


@entry("OrtEpApi", "MemoryDevice_AreEqual")
def _memory_devices_equal(first: int, second: int) -> bool:
    return find(first, MemoryInfo).place == find(second, MemoryInfo).place


# the other tables, and what there is to say of this build


@entry("OrtApi", "GetEpApi")
def _get_ep_api() -> int:
    return served_address("OrtEpApi")


@entry("OrtApi", "GetModelEditorApi")
def _get_model_editor_api() -> int:
    return served_address("OrtModelEditorApi")


@entry("OrtApi", "GetCompileApi")
def _get_compile_api() -> int:
    return served_address("OrtCompileApi")


@entry("OrtApi", "GetInteropApi")
def _get_interop_api() -> int:
    return served_address("OrtInteropApi")


@entry("OrtApi", "GetTrainingApi")
def _get_training_api(version: int) -> None:
    """Null, as in builds of onnxruntime without training."""


class _Build(HostObject):
    """What keeps the text about this build."""


_build = _Build()


@entry("OrtApi", "GetBuildInfoString")
def _get_build_info() -> int:
    from intarsia.machine.version import __version__

    return _build.text(f"Intarsia {__version__}, a host for plugins")


@entry("OrtEpApi", "GetEnvConfigEntries")
def _get_env_config_entries(out: int) -> None:
    put(out, give(KeyValues({})))
