"""The CPU as a piece of hardware: its maker by what the processor says of itself, not by a search for words."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path

from intarsia.device.hardware.vendors import APPLE, ARM_IMPLEMENTERS, CPUID, vendor_name
from intarsia.ep.hardware import HardwareDevice

_NBYTES = 16384  # of /proc/cpuinfo: the first processor's lines
_WINDOWS_ARM = re.compile(r"ARM.*, *(?P<vendor>\S+)")


def cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> HardwareDevice:
    """The CPU. Its maker is "unknown", as in onnxruntime, where the system does not tell."""
    number, description = _of_linux(cpuinfo) if sys.platform == "linux" else _of_others()
    return HardwareDevice(
        "cpu", vendor_name(number) or "unknown", number, 0, {"Description": description} if description else {}
    )


def _of_linux(cpuinfo: Path) -> tuple[int, str]:
    text = ""
    with suppress(OSError), cpuinfo.open(errors="replace") as file:
        text = file.read(_NBYTES)
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip().lower(), value.strip())
    return _number(fields), fields.get("model name", "")


def _number(fields: dict[str, str]) -> int:
    if "vendor_id" in fields:
        return CPUID.get(fields["vendor_id"], 0)
    with suppress(ValueError):
        return ARM_IMPLEMENTERS.get(int(fields.get("cpu implementer", ""), 16), 0)
    return 0


def _of_others() -> tuple[int, str]:
    described = os.environ.get("PROCESSOR_IDENTIFIER", "") if sys.platform == "win32" else ""
    if sys.platform == "darwin":
        brand = _sysctl("machdep.cpu.brand_string")
        return (APPLE if platform.machine() == "arm64" else CPUID.get(_sysctl("machdep.cpu.vendor"), 0)), brand
    return windows_cpu(described), described


def windows_cpu(identifier: str) -> int:
    """The maker's number by Windows' PROCESSOR_IDENTIFIER: "Intel64 Family 6 Model 158 Stepping 10, GenuineIntel"."""
    name = identifier.rpartition(",")[2].strip()
    if name in CPUID:
        return CPUID[name]
    arm = _WINDOWS_ARM.match(identifier)
    makers = {"qualcomm": ARM_IMPLEMENTERS[0x51], "nvidia": ARM_IMPLEMENTERS[0x4E], "arm": ARM_IMPLEMENTERS[0x41]}
    return makers.get(arm["vendor"].lower(), 0) if arm else 0


def _sysctl(name: str) -> str:
    """A text of macOS' system control; "" where there is none."""
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None).sysctlbyname
        room = ctypes.create_string_buffer(256)
        nbytes = ctypes.c_size_t(len(room))
        if not call(name.encode(), room, ctypes.byref(nbytes), None, ctypes.c_size_t(0)):
            return room.value.decode(errors="replace")
    return ""
