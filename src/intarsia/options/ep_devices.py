"""Devices with the providers that run on them, by onnxruntime's classes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from intarsia.device.hardware.discovery import hardware_devices, hardware_of
from intarsia.ep.device import Device
from intarsia.ep.hardware import EpDevice, EpMemory, HardwareDevice, HardwareKind
from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, InvalidArgument, WrongType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.registry import available_providers, load_provider, why_unavailable
from intarsia.values.ort_device import OrtMemoryInfo, OrtSyncStream
from intarsia.values.ort_enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
)

POSITIONS = "intarsia.ep_devices"
"""The option by which a provider that says its own devices (`ExecutionProvider.ep_devices`) is told which of them, by their
positions: "0,2"."""


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A CPU, GPU or NPU of this machine.

    Attributes:
        type: CPU, GPU or NPU.
        vendor: the maker's name, "" where it is not known.
        vendor_id: the maker's PCI number.
        device_id: the maker's PCI number of this model; of a CPU, 0. Not a number among devices.
        metadata: as onnxruntime's: "Discrete", "pci_bus_id", "card_idx", "accel_idx", and "Description".
    """

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider on a device: `SessionOptions.add_provider_for_devices` takes lists of them.

    Attributes:
        ep_name: the name for `providers=[...]`.
        ep_vendor: who made the provider.
        ep_metadata: "version", "library_path", and what the provider says beside them.
        ep_options: the options that choose this device, as text.
        device: the piece of hardware.
    """

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str] = field(hash=False)
    ep_options: Mapping[str, str] = field(hash=False)
    device: OrtHardwareDevice
    _source: EpDevice | None = field(default=None, hash=False, compare=False, repr=False)
    _position: int = field(default=0, hash=False, compare=False, repr=False)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """The provider's memory on this device; None where it works in the host's."""
        if not isinstance(memory_type, OrtDeviceMemoryType):
            raise WrongType(f"memory_info: expected OrtDeviceMemoryType, got {memory_type!r}")
        if self._source is None:
            return None
        host = memory_type is OrtDeviceMemoryType.HOST_ACCESSIBLE
        memory = self._source.host_memory if host else self._source.memory
        return _memory_info(memory) if memory is not None else None

    def create_sync_stream(self) -> OrtSyncStream:
        """A new queue of work on this device.

        Raises:
            EPFail: the provider works in the host's memory, or gives out no streams.
        """
        if self._source is None or self._source.memory is None:
            raise EPFail("ep_device does not use DEFAULT memory of a non-CPU device: the host has no streams")
        return OrtSyncStream(self._source.create_stream)


def _memory_info(memory: EpMemory) -> OrtMemoryInfo:
    return OrtMemoryInfo.create_v2(
        memory.name, OrtMemoryInfoDeviceType[memory.kind.upper()], memory.vendor_id, memory.device_id,
        OrtDeviceMemoryType.HOST_ACCESSIBLE if memory.host_accessible else OrtDeviceMemoryType.DEFAULT, memory.alignment,
        OrtAllocatorType.ORT_ARENA_ALLOCATOR if memory.arena else OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip


def _ort_hardware(device: HardwareDevice) -> OrtHardwareDevice:
    kind = OrtHardwareDeviceType[device.kind.upper()]
    return OrtHardwareDevice(kind, device.vendor, device.vendor_id, device.device_id, dict(device.metadata))


def get_ep_devices() -> list[OrtEpDevice]:
    """Every provider that works here with each of its devices, in order of priority; but for devices that the processor
    only imitates. Libraries of plugins are loaded."""
    return [d for name in available_providers(anew=True) for d in devices_of(load_provider(name))]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The hardware of this machine, whether a provider can use it or not: the CPU, GPUs, NPUs."""
    return [_ort_hardware(d) for d in hardware_devices()]


def devices_of(provider: type[ExecutionProvider]) -> list[OrtEpDevice]:
    """A provider on each piece of hardware that it can use."""
    said = provider.ep_devices()
    found = said if said is not None else [_made(provider, d) for d in provider.devices() if not d.software]
    vendor = str(getattr(provider, "vendor", "Intarsia" if provider.__module__.startswith("intarsia.") else ""))
    common = _metadata(provider)
    return [
        OrtEpDevice(
            provider.name, vendor, {**common, **d.metadata}, {k: str(v) for k, v in d.options.items()},
            _ort_hardware(d.hardware), d, i,
        )
        for i, d in enumerate(found)
    ]  # fmt: skip


def _made(provider: type[ExecutionProvider], device: Device) -> EpDevice:
    """A provider on one of its memory spaces."""
    hardware = hardware_of(device)
    has_number = "device_id" in getattr(provider.Options, "__dataclass_fields__", {})
    options = {"device_id": str(device.index)} if device.index and has_number else {}
    kind: HardwareKind = hardware.kind
    memory = None if device.host else EpMemory(provider.name, kind, hardware.vendor_id, device.index)
    return EpDevice(hardware, {}, options, memory)


def _metadata(provider: type[ExecutionProvider]) -> dict[str, str]:
    from intarsia.machine.version import __version__

    path = getattr(provider, "library_path", None)
    if path is not None:  # a plugin library's
        return {"version": provider.library_version(), "library_path": str(path)}
    metadata = {"version": __version__ if provider.__module__.startswith("intarsia.") else _version_of(provider)}
    path = getattr(sys.modules.get(provider.__module__), "__file__", None)
    return {**metadata, "library_path": path} if path else metadata


def _version_of(provider: type[ExecutionProvider]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(provider.__module__.split(".")[0])
    except PackageNotFoundError:
        return str(getattr(sys.modules.get(provider.__module__), "__version__", ""))


def device_of(name: str) -> OrtEpDevice | None:
    """A provider's first device; None for a provider that is not registered."""
    try:
        found = devices_of(load_provider(name))
    except EPFail:
        return None
    return found[0] if found else None


def provider_of(ep_devices: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The provider of a list of devices, and the options that choose these devices.

    Raises:
        InvalidArgument: no devices, several providers, or several devices of one that works on one at a time.
        WrongType: not a list of OrtEpDevice.
    """
    if isinstance(ep_devices, OrtEpDevice) or not isinstance(ep_devices, Iterable):
        raise WrongType(f"expected a list of OrtEpDevice instances (see get_ep_devices), got {ep_devices!r}")
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
    if load_provider(first.ep_name).ep_devices() is not None:
        positions = ",".join(str(d._position) for d in dict.fromkeys(devices))
        return first.ep_name, {**first.ep_options, POSITIONS: positions}
    if len({tuple(d.ep_options.items()) for d in devices}) > 1:
        raise InvalidArgument(f"{first.ep_name} works on one device in a session, got {len(devices)} OrtEpDevice instances")
    return first.ep_name, dict(first.ep_options)


def _said_of(provider: type[ExecutionProvider], device: OrtHardwareDevice) -> tuple[int, int, str]:
    """What a plugin says of a device itself; zeros and "" where it says nothing, or is none."""
    ask = getattr(provider, "incompatibility", None)
    if ask is None:
        return 0, 0, ""
    kind: Any = device.type.name.lower()
    found: tuple[int, int, str] = ask(HardwareDevice(kind, device.vendor, device.vendor_id, device.device_id, device.metadata))
    return found


def get_hardware_device_ep_incompatibility_details(ep_name: str, hardware_device: OrtHardwareDevice) -> dict[str, Any]:
    """Why a provider does not work on a device: `reasons_bitmask`, `error_code` and `notes` ("" where it does)."""
    if not isinstance(hardware_device, OrtHardwareDevice):
        raise WrongType(f"expected an OrtHardwareDevice, got {hardware_device!r}")
    from intarsia.values.ort_enums import OrtDeviceEpIncompatibilityReason as Reason

    try:
        provider = load_provider(ep_name)
        reasons, code, notes = _said_of(provider, hardware_device)
        if reasons or notes:
            return {"reasons_bitmask": reasons, "error_code": code, "notes": notes}
        missing = why_unavailable(provider)
    except EPFail as error:
        return {"reasons_bitmask": int(Reason.MISSING_DEPENDENCY), "error_code": 0, "notes": str(error)}
    if missing:
        return {"reasons_bitmask": int(Reason.MISSING_DEPENDENCY), "error_code": 0, "notes": missing}
    has = [d.device for d in devices_of(provider)]
    if hardware_device in has:
        return {"reasons_bitmask": 0, "error_code": 0, "notes": ""}
    wanted = " ".join(filter(None, (hardware_device.vendor, hardware_device.type.name)))
    works_on = ", ".join(sorted({" ".join(filter(None, (d.vendor, d.type.name))) for d in has})) or "no device here"
    notes = f"{ep_name} has no device on this {wanted} (PCI {hardware_device.vendor_id:04x}:{hardware_device.device_id:04x})"
    return {"reasons_bitmask": int(Reason.DEVICE_INCOMPATIBLE), "error_code": 0, "notes": f"{notes}; it works on: {works_on}"}
