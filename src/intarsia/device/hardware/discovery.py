"""Which hardware this machine has, and which piece of it a provider's device is."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from intarsia.device.hardware import linux, vulkan, windows
from intarsia.device.hardware.cpu import cpu
from intarsia.device.hardware.vendors import APPLE, vendor_name, vendor_number
from intarsia.ep.device import Device
from intarsia.ep.hardware import HardwareDevice, HardwareKind

_NPU_KINDS = ("npu", "cann")


@functools.cache
def hardware_devices() -> tuple[HardwareDevice, ...]:
    """The CPU, then GPUs, then NPUs; found once in a process, as onnxruntime does.

    Linux: /sys, and what a Vulkan loader knows beyond it. Windows: what Plug and Play lists as present. macOS: a Mac with
    Apple's chips has one GPU and one Neural Engine, and nothing is queried; what other Macs have is seen by a Vulkan loader
    alone. Elsewhere the CPU alone is known.
    """
    found, npus = _of_system()
    return (cpu(), *merged(found, [d for d in vulkan.devices() if not d.software]), *npus)


@functools.cache
def software_devices() -> tuple[HardwareDevice, ...]:
    """GPUs that the CPU imitates behind a Vulkan driver (SwiftShader, lavapipe): for tests."""
    return tuple(d for d in vulkan.devices() if d.software)


def _of_system() -> tuple[list[HardwareDevice], list[HardwareDevice]]:
    """(GPUs, NPUs)."""
    if sys.platform == "linux":
        return linux.gpus(), linux.npus()
    if sys.platform == "win32":
        found = windows.devices()
        return [d for d in found if d.kind == "gpu"], [d for d in found if d.kind == "npu"]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        gpu, npu = (HardwareDevice(kind, vendor_name(APPLE), APPLE) for kind in ("gpu", "npu"))
        return [gpu], [npu]
    return [], []


def merged(found: Sequence[HardwareDevice], more: Iterable[HardwareDevice]) -> list[HardwareDevice]:
    """Devices with what another source says of them (its metadata where they have none), then those that it alone has."""
    result = list(found)
    taken: set[int] = set()
    for device in more:
        same = next((i for i, d in enumerate(result[: len(found)]) if i not in taken and _same(d, device)), -1)
        if same < 0:
            result.append(device)
        else:
            taken.add(same)
            result[same] = replace(result[same], metadata={**device.metadata, **result[same].metadata})
    return result


def _same(device: HardwareDevice, other: HardwareDevice) -> bool:
    """Whether two sources speak of one device: at one address, or of one model where one has no address."""
    addresses = device.metadata.get("pci_bus_id"), other.metadata.get("pci_bus_id")
    if all(addresses):
        return addresses[0] == addresses[1]
    apple = device.vendor_id == other.vendor_id == APPLE and not device.device_id
    return apple or (device.vendor_id, device.device_id) == (other.vendor_id, other.device_id)


def hardware_of(device: Device) -> HardwareDevice:
    """The piece of hardware that a provider's device is: by its address, else its model, else as the only one of its maker;
    else made of what the device says of itself."""
    kind: HardwareKind = "cpu" if device.kind == "cpu" else "npu" if device.kind in _NPU_KINDS else "gpu"
    known = [d for d in (*hardware_devices(), *(software_devices() if device.software else ())) if d.kind == kind]
    if kind == "cpu":
        return known[0]
    vendor = device.vendor_id or vendor_number(device.vendor)
    by_address = [d for d in known if device.pci_bus_id and _address(d) == device.pci_bus_id.lower()]
    by_model = [d for d in known if device.device_id and (d.vendor_id, d.device_id) == (vendor, device.device_id)]
    by_maker = [d for d in known if vendor and d.vendor_id == vendor]
    for found in (by_address, by_model, by_maker):
        if len(found) == 1 or (found and found is by_model):
            return found[0]
    described = {"Description": device.description} if device.description else {}
    name = vendor_name(vendor) or device.vendor
    return HardwareDevice(kind, name, vendor, device.device_id, described, device.software)


def _address(device: HardwareDevice) -> str:
    return device.metadata.get("pci_bus_id", "").lower()
