"""Physical devices by the system's Vulkan loader: names, makers, whether they have memory of their own, or are software."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from contextlib import suppress
from ctypes import POINTER, Structure, byref, c_char, c_uint8, c_uint32, c_void_p
from typing import Any

from intarsia.device.hardware.vendors import vendor_name
from intarsia.ep.hardware import HardwareDevice

_LOADERS = {"win32": ("vulkan-1.dll",), "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib")}
_API_1_1 = 1 << 22 | 1 << 12
_PCI_INFO, _PROPERTIES2, _INSTANCE = 1000212000, 1000059001, 1  # values of VkStructureType
_OTHER, _INTEGRATED, _DISCRETE, _VIRTUAL, _CPU = range(5)  # VkPhysicalDeviceType


class _InstanceInfo(Structure):
    _fields_ = (
        ("type", c_uint32), ("next", c_void_p), ("flags", c_uint32), ("application", c_void_p), ("layers", c_uint32),
        ("layer_names", c_void_p), ("extensions", c_uint32), ("extension_names", c_void_p),
    )  # fmt: skip


class _Application(Structure):
    _fields_ = (
        ("type", c_uint32), ("next", c_void_p), ("name", c_void_p), ("version", c_uint32), ("engine", c_void_p),
        ("engine_version", c_uint32), ("api", c_uint32),
    )  # fmt: skip


class _Properties(Structure):
    _fields_ = (
        ("api", c_uint32), ("driver", c_uint32), ("vendor", c_uint32), ("device", c_uint32), ("type", c_uint32),
        ("name", c_char * 256), ("uuid", c_uint8 * 16), ("limits_and_sparse", c_uint8 * 1024),
    )  # fmt: skip


class _PciInfo(Structure):
    _fields_ = (
        ("type", c_uint32), ("next", c_void_p), ("domain", c_uint32), ("bus", c_uint32), ("device", c_uint32),
        ("function", c_uint32),
    )  # fmt: skip


class _Properties2(Structure):
    _fields_ = (("type", c_uint32), ("next", c_void_p), ("properties", _Properties))


@functools.cache
def devices() -> tuple[HardwareDevice, ...]:
    """What Vulkan's drivers offer here, software among it; nothing without a loader.

    The loader opens every driver that is installed: some 50 ms, once in a process.
    """
    library = _loader()
    if library is None:
        return ()
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # noqa: S108 # some drivers look for displays there, and complain
    with suppress(OSError, AttributeError):
        return tuple(_enumerated(library))
    return ()


def _loader() -> Any:
    for name in _LOADERS.get(sys.platform, ("libvulkan.so.1",)):
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _enumerated(library: Any) -> list[HardwareDevice]:
    application = _Application(0, None, None, 0, None, 0, _API_1_1)
    info = _InstanceInfo(_INSTANCE, None, 0, ctypes.addressof(application), 0, None, 0, None)
    instance = c_void_p()
    if library.vkCreateInstance(byref(info), None, byref(instance)):
        return []
    try:
        count = c_uint32()
        library.vkEnumeratePhysicalDevices(instance, byref(count), None)
        handles = (c_void_p * count.value)()
        library.vkEnumeratePhysicalDevices(instance, byref(count), handles)
        return [_described(library, handle) for handle in handles[: count.value] if handle]
    finally:
        library.vkDestroyInstance(instance, None)


def _described(library: Any, handle: int) -> HardwareDevice:
    pci = _PciInfo(_PCI_INFO, None)
    found = _Properties2(_PROPERTIES2, ctypes.addressof(pci))
    library.vkGetPhysicalDeviceProperties.argtypes = [c_void_p, POINTER(_Properties)]
    library.vkGetPhysicalDeviceProperties(handle, byref(found.properties))
    if found.properties.api >= _API_1_1 and _tells_pci(library, handle):
        library.vkGetPhysicalDeviceProperties2.argtypes = [c_void_p, POINTER(_Properties2)]
        library.vkGetPhysicalDeviceProperties2(handle, byref(found))
    return hardware(found.properties, (pci.domain, pci.bus, pci.device, pci.function))


def _tells_pci(library: Any, handle: int) -> bool:
    """Whether the driver has VK_EXT_pci_bus_info."""

    class Extension(Structure):
        _fields_ = (("name", c_char * 256), ("version", c_uint32))

    call = library.vkEnumerateDeviceExtensionProperties
    call.argtypes = [c_void_p, c_void_p, POINTER(c_uint32), c_void_p]
    count = c_uint32()
    if call(handle, None, byref(count), None):
        return False
    found = (Extension * count.value)()
    call(handle, None, byref(count), found)
    return any(entry.name == b"VK_EXT_pci_bus_info" for entry in found[: count.value])


def hardware(properties: Any, address: tuple[int, int, int, int]) -> HardwareDevice:
    """A physical device by its VkPhysicalDeviceProperties; `address`: PCI domain, bus, device, function, zeros: unknown."""
    metadata = {"Description": properties.name.decode(errors="replace")}
    if properties.type in (_INTEGRATED, _DISCRETE):
        metadata["Discrete"] = str(int(properties.type == _DISCRETE))
    if any(address):
        metadata["pci_bus_id"] = "{:04x}:{:02x}:{:02x}.{:x}".format(*address)
    vendor = properties.vendor
    return HardwareDevice("gpu", vendor_name(vendor), vendor, properties.device, metadata, properties.type == _CPU)
