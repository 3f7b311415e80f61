"""GPUs and NPUs as Windows' Plug and Play lists them: those that are there now, by their classes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from intarsia.device.hardware.vendors import QUALCOMM_CPU, vendor_name
from intarsia.ep.hardware import HardwareDevice, HardwareKind

CLASSES: dict[str, HardwareKind] = {
    "{4d36e968-e325-11ce-bfc1-08002be10318}": "gpu",
    "{f01a9d53-3ff6-48d2-9f97-c8a7004be10c}": "npu",
}
"""Setup classes "Display" and "ComputeAccelerator" (Microsoft's "System-Defined Device Setup Classes")."""

_BY_CLASS_AND_PRESENT = 0x200 | 0x100  # CM_GETIDLIST_FILTER_CLASS | CM_GETIDLIST_FILTER_PRESENT
_PCI = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", re.IGNORECASE)
_ACPI = re.compile(r"ACPI\\(?:VEN_)?(QCOM)(?:&DEV_)?([0-9A-F]{4})", re.IGNORECASE)

Instances = Callable[[str], list[str]]


def devices() -> list[HardwareDevice]:
    """GPUs and NPUs that are present; none where Windows cannot be queried."""
    with suppress(OSError, AttributeError):
        return listed(_instances, _description)
    return []


def listed(instances: Instances, description: Callable[[str], str]) -> list[HardwareDevice]:
    """Devices by the instances of each class ("PCI\\VEN_10DE&DEV_2684&SUBSYS_...\\4&..."), and what describes one."""
    found = []
    for guid, kind in CLASSES.items():
        for instance in instances(guid):
            vendor, device = numbers(instance)
            name = description(instance)
            if vendor:
                described = {"Description": name} if name else {}
                found.append(HardwareDevice(kind, vendor_name(vendor), vendor, device, described))
    return found


def numbers(instance: str) -> tuple[int, int]:
    """(maker, model) of an instance of a device; (0, 0) of one that has no hardware: remote and virtual displays."""
    if pci := _PCI.match(instance):
        return int(pci[1], 16), int(pci[2], 16)
    if acpi := _ACPI.match(instance):
        return QUALCOMM_CPU, int(acpi[2], 16)
    return 0, 0


def _instances(guid: str) -> list[str]:
    loader: Any = ctypes  # whose WinDLL is Windows' alone
    library = loader.WinDLL("cfgmgr32")
    length = ctypes.c_ulong()
    if library.CM_Get_Device_ID_List_SizeW(ctypes.byref(length), guid, _BY_CLASS_AND_PRESENT):
        return []
    room = ctypes.create_unicode_buffer(length.value)
    if library.CM_Get_Device_ID_ListW(guid, room, length, _BY_CLASS_AND_PRESENT):
        return []
    return [name for name in "".join(room).split("\0") if name]


def _description(instance: str) -> str:
    """What the device's driver calls it, by the registry; "" where it does not."""
    import winreg as registry

    api: Any = registry
    with suppress(OSError), api.OpenKey(api.HKEY_LOCAL_MACHINE, rf"SYSTEM\CurrentControlSet\Enum\{instance}") as key:
        text, _ = api.QueryValueEx(key, "DeviceDesc")
        return str(text).rpartition(";")[2]
    return ""
