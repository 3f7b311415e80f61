"""Devices with the providers that run on them, and policies that choose among them, by onnxruntime's classes."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from intarsia.ep.device import Device
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, Fail, InvalidArgument, WrongType, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.providers.registry import (
    CPU,
    REFERENCE,
    get_available_providers,
    load_provider,
    register_execution_provider,
    unregister_execution_provider,
    why_unavailable,
)
from intarsia.values.ort_device import OrtMemoryInfo, OrtSyncStream
from intarsia.values.ort_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
)

_NPU_KINDS = ("npu", "cann")
_VENDORS = {v.name.lower(): int(v) for v in OrtDeviceVendorId}


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A CPU, GPU or NPU of this machine."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider on a device: `SessionOptions.add_provider_for_devices` takes lists of them."""

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str] = field(hash=False)
    ep_options: Mapping[str, str] = field(hash=False)
    device: OrtHardwareDevice

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """The provider's memory on this device; None where it works in the host's."""
        if not isinstance(memory_type, OrtDeviceMemoryType):
            raise WrongType(f"memory_info: expected OrtDeviceMemoryType, got {memory_type!r}")
        if self.device.type is OrtHardwareDeviceType.CPU or memory_type is OrtDeviceMemoryType.HOST_ACCESSIBLE:
            return None
        npu = self.device.type is OrtHardwareDeviceType.NPU
        kind = OrtMemoryInfoDeviceType.NPU if npu else OrtMemoryInfoDeviceType.GPU
        return OrtMemoryInfo.create_v2(
            self.ep_name, kind, self.device.vendor_id, self.device.device_id, memory_type, 0,
            OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
        )  # fmt: skip

    def create_sync_stream(self) -> OrtSyncStream:
        """Raises EPFail: no provider here gives out its streams."""
        if self.device.type is OrtHardwareDeviceType.CPU:
            raise EPFail("ep_device does not use DEFAULT memory of a non-CPU device: the host has no streams")
        return OrtSyncStream()


def _hardware(device: Device) -> OrtHardwareDevice:
    if device.kind == "cpu":
        name, number = _cpu_vendor()
        return OrtHardwareDevice(OrtHardwareDeviceType.CPU, name, number, device.index, {})
    kind = OrtHardwareDeviceType.NPU if device.kind in _NPU_KINDS else OrtHardwareDeviceType.GPU
    number = _VENDORS.get(device.vendor.lower(), 0)
    described = {"Description": device.description} if device.description else {}
    return OrtHardwareDevice(kind, device.vendor, number, device.index, described)


@functools.cache
def _cpu_vendor() -> tuple[str, int]:
    """Name and PCI number of the CPU's maker."""
    described = platform.processor()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            described += Path("/proc/cpuinfo").read_text(errors="replace")[:4096]
    lowered = described.lower()
    if "intel" in lowered:
        return "Intel", int(OrtDeviceVendorId.INTEL)
    if "amd" in lowered:
        return "AMD", int(OrtDeviceVendorId.AMD)
    return ("ARM", int(OrtDeviceVendorId.ARM)) if platform.machine().startswith(("arm", "aarch64")) else ("", 0)


def get_ep_devices() -> list[OrtEpDevice]:
    """Every provider that works here with each of its devices, in order of priority; but for devices that the processor
    only imitates."""
    return [d for name in get_available_providers() for d in _devices_of(load_provider(name))]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The devices that some provider here can use."""
    return list(dict.fromkeys(d.device for d in get_ep_devices()))


def _devices_of(provider: type[ExecutionProvider]) -> list[OrtEpDevice]:
    from intarsia.machine.version import __version__

    module = sys.modules.get(provider.__module__)
    metadata = {"version": __version__ if provider.__module__.startswith("intarsia.") else _version_of(provider)}
    path = getattr(module, "__file__", None)
    if path:
        metadata["library_path"] = path
    vendor = getattr(provider, "vendor", "Intarsia" if provider.__module__.startswith("intarsia.") else "")
    return [OrtEpDevice(provider.name, vendor, metadata, {}, _hardware(d)) for d in provider.devices() if not d.software]


def _version_of(provider: type[ExecutionProvider]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(provider.__module__.split(".")[0])
    except PackageNotFoundError:
        return str(getattr(sys.modules.get(provider.__module__), "__version__", ""))


def device_of(name: str) -> OrtEpDevice | None:
    """A provider's first device; None for a provider that is not registered."""
    try:
        found = _devices_of(load_provider(name))
    except EPFail:
        return None
    return found[0] if found else None


def provider_of(ep_devices: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The provider of a list of devices, and the options that choose these devices.

    Raises:
        InvalidArgument: no devices, or several providers.
        WrongType: not a list of OrtEpDevice.
    """
    devices = list(ep_devices)
    if not devices:
        raise InvalidArgument("Must provide one or more OrtEpDevice instances.")
    for device in devices:
        if not isinstance(device, OrtEpDevice):
            raise WrongType(f"expected OrtEpDevice instances (see get_ep_devices), got {device!r}")
    names = {d.ep_name for d in devices}
    if len(names) > 1:
        raise InvalidArgument(f"All OrtEpDevice values must have the same execution provider, got {sorted(names)}")
    first = devices[0]
    options: dict[str, Any] = dict(first.ep_options)
    fields = getattr(load_provider(first.ep_name).Options, "__dataclass_fields__", {})
    if first.device.device_id and "device_id" in fields:
        options["device_id"] = first.device.device_id
    return first.ep_name, options


_RANK = {OrtHardwareDeviceType.NPU: 0, OrtHardwareDeviceType.GPU: 1, OrtHardwareDeviceType.CPU: 2}
_PREFERRED = {
    OrtExecutionProviderDevicePolicy.DEFAULT: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_CPU: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_NPU: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.PREFER_GPU: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_EFFICIENCY: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: OrtHardwareDeviceType.NPU,
}
MAX_SELECTIONS = 8  # devices that a delegate may choose, as in onnxruntime


def selected(selection: Any, metadata: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The providers (with options) that a policy or a delegate picks for a model with this metadata.

    A policy picks the first device of the kind it prefers, by the providers' priority, and the CPU provider last; where CPUs
    are preferred, the CPU provider alone. The reference provider is never picked.

    Raises:
        Fail: the delegate raised, or returned something else than a list of the devices it was given.
    """
    devices = sorted(
        (d for d in get_ep_devices() if d.ep_name != REFERENCE), key=lambda d: (_RANK[d.device.type], d.ep_name == CPU)
    )
    if isinstance(selection, OrtExecutionProviderDevicePolicy):
        wanted = [d for d in devices if d.device.type is _PREFERRED[selection]]
        on_cpu = _PREFERRED[selection] is OrtHardwareDeviceType.CPU
        chosen = [_cpu_device(devices)] if on_cpu else wanted[:1]
    else:
        chosen = _delegated(selection, devices, metadata)
    named = dict.fromkeys([*(d.ep_name for d in chosen), CPU])
    return [(name, provider_of([d for d in chosen if d.ep_name == name] or [_cpu_device(devices)])[1]) for name in named]


def _cpu_device(devices: Sequence[OrtEpDevice]) -> OrtEpDevice:
    return next(d for d in devices if d.ep_name == CPU)


def _delegated(delegate: Callable[..., Any], devices: Sequence[OrtEpDevice], metadata: Mapping[str, str]) -> list[OrtEpDevice]:
    try:
        chosen = list(delegate(list(devices), dict(metadata), {}, MAX_SELECTIONS))
    except Exception as error:
        raise Fail(f"the provider selection delegate failed: {type(error).__name__}: {error}") from error
    if len(chosen) > MAX_SELECTIONS or not all(any(c is d for d in devices) for c in chosen):
        raise Fail(
            f"the provider selection delegate returned {chosen!r}; "
            f"expected at most {MAX_SELECTIONS} of the devices it was given"
        )
    return chosen


_libraries: dict[str, list[str]] = {}
_lock = fork_safety.lock()


def register_execution_provider_library(registration_name: str, library_path: str | os.PathLike[str]) -> None:
    """Register the providers of a Python file: every subclass of `ExecutionProvider` that it defines.

    Libraries compiled against onnxruntime's C interface cannot be loaded. `get_ep_devices` lists what was registered.

    Raises:
        Fail: the name is registered already, the file does not exist or cannot be imported, or it defines no provider.
    """
    path = Path(library_path)
    with _lock:
        if registration_name in _libraries:
            raise Fail(f"library {registration_name!r} is already registered: library is already registered under this name")
        if not path.is_file():
            raise Fail(
                f"Failed to load library {library_path} with error: cannot open shared object file: No such file or directory"
            )
        if path.suffix != ".py":
            raise Fail(
                f"Failed to load library {library_path}: expected a Python file that defines ExecutionProvider classes; "
                "libraries for onnxruntime's C interface cannot be loaded"
            )
        providers = _providers_in(registration_name, path)
        done: list[str] = []
        try:
            for provider in providers:
                register_execution_provider(provider)
                done.append(provider.name)
        except InvalidArgument as error:
            for name in done:
                unregister_execution_provider(name)
            raise Fail(f"Failed to load library {library_path}: {error}") from error
        _libraries[registration_name] = done


def _providers_in(name: str, path: Path) -> list[type[ExecutionProvider]]:
    import importlib.util

    module_name = f"intarsia_library_{name}".replace(".", "_")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise Fail(f"Failed to load library {path}: {type(error).__name__}: {error}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ExecutionProvider) and value.__module__ == module_name
    ]
    if not found:
        raise Fail(f"Failed to load library {path}: it defines no subclass of ExecutionProvider")
    return found


def unregister_execution_provider_library(registration_name: str) -> None:
    """Forget the providers of a library. Sessions that use them are not affected.

    Raises:
        Fail: no library was registered under this name.
    """
    with _lock:
        if registration_name not in _libraries:
            raise Fail(
                f"Execution provider library: {registration_name} was not registered. {nearest(registration_name, _libraries)}"
            )
        names = _libraries.pop(registration_name)
    for name in names:
        unregister_execution_provider(name)
    sys.modules.pop(f"intarsia_library_{registration_name}".replace(".", "_"), None)


def get_hardware_device_ep_incompatibility_details(ep_name: str, hardware_device: OrtHardwareDevice) -> dict[str, Any]:
    """Why a provider does not work on a device: `reasons_bitmask`, `error_code` and `notes` ("" where it does)."""
    if not isinstance(hardware_device, OrtHardwareDevice):
        raise WrongType(f"expected an OrtHardwareDevice, got {hardware_device!r}")
    from intarsia.values.ort_enums import OrtDeviceEpIncompatibilityReason as Reason

    try:
        provider = load_provider(ep_name)
        missing = why_unavailable(provider)
    except EPFail as error:
        return {"reasons_bitmask": int(Reason.MISSING_DEPENDENCY), "error_code": 0, "notes": str(error)}
    if missing:
        return {"reasons_bitmask": int(Reason.MISSING_DEPENDENCY), "error_code": 0, "notes": missing}
    fits = any(_hardware(d) == hardware_device for d in provider.devices())
    notes = "" if fits else f"{ep_name} has no device {hardware_device.type.name} number {hardware_device.device_id}"
    return {"reasons_bitmask": 0 if fits else int(Reason.DEVICE_INCOMPATIBLE), "error_code": 0, "notes": notes}
