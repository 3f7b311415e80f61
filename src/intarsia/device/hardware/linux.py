"""GPUs and NPUs as Linux shows them below /sys, without a driver's library.

As onnxruntime 1.32 does, with the same metadata: cards of /sys/class/drm, accelerators of /sys/class/accel. Beyond it: GPUs
without a display (a data centre's) also beside one with a card, makers' names, "Discrete" for more makers than NVIDIA, and
GPUs and NPUs that are on no PCI bus (Mali, Adreno, Rockchip's), by the device tree.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from intarsia.device.hardware.vendors import DEVICE_TREE, INTEL, NVIDIA, vendor_name
from intarsia.ep.hardware import HardwareDevice, HardwareKind

_DISPLAY_CLASS = 0x03
_INTEGRATED_INTEL = "0000:00:02.0"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


def gpus(sys: Path = Path("/sys")) -> list[HardwareDevice]:
    """GPUs with a card of the kernel's, in its order, then those that are on the PCI bus alone."""
    cards = [(n, path) for n, path in _numbered(sys / "class/drm", "card") if _pci(path) or _renders(path)]
    found = [_described("gpu", path, {"card_idx": str(n)}) for n, path in cards]
    seen = {path.resolve() for _, path in cards}
    displays = [path for path in _entries(sys / "bus/pci/devices") if _number(path / "class") >> 16 == _DISPLAY_CLASS]
    return found + [_described("gpu", path, {}) for path in displays if path.resolve() not in seen and _pci(path)]


def npus(sys: Path = Path("/sys")) -> list[HardwareDevice]:
    """Accelerators that have a driver of the kernel's class for them."""
    return [_described("npu", path, {"accel_idx": str(n)}) for n, path in _numbered(sys / "class/accel", "accel")]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _numbered(folder: Path, prefix: str) -> Iterator[tuple[int, Path]]:
    """(number, the device) of entries named prefix and number, by number; connectors ("card0-DP-1") are no devices."""
    numbers = [e.name.removeprefix(prefix) for e in _entries(folder) if e.name.startswith(prefix)]
    for number in sorted(int(n) for n in numbers if n.isascii() and n.isdigit()):
        yield number, folder / f"{prefix}{number}" / "device"


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def _number(path: Path) -> int:
    with suppress(ValueError):
        return int(_text(path), 16)
    return 0


def _pci(path: Path) -> bool:
    return bool(_number(path / "vendor") and _text(path / "device"))


def _renders(path: Path) -> bool:
    """Whether a card that is on no PCI bus computes: what only shows pictures has no node to render."""
    return any(entry.name.startswith("renderD") for entry in _entries(path / "drm"))


def _described(kind: HardwareKind, path: Path, numbers: Mapping[str, str]) -> HardwareDevice:
    if not _pci(path):
        return _of_device_tree(kind, path, numbers)
    vendor, device, address = _number(path / "vendor"), _number(path / "device"), path.resolve().name
    metadata = {**numbers, **({"pci_bus_id": address} if _PCI_ADDRESS.fullmatch(address) else {})}
    if kind == "gpu" and (discrete := _discrete(vendor, address, path)):
        metadata["Discrete"] = discrete
    if name := _names().get((vendor, device), ""):
        metadata["Description"] = name
    return HardwareDevice(kind, vendor_name(vendor), vendor, device, metadata)


def _discrete(vendor: int, address: str, path: Path) -> str:
    """Whether a GPU has memory of its own: "1", "0", or "" where the kernel does not tell."""
    if vendor == NVIDIA:
        return "1"
    if vendor == INTEL:  # where every chip with a GPU inside has it
        return "0" if address == _INTEGRATED_INTEL else "1"
    return ""


def _of_device_tree(kind: HardwareKind, path: Path, numbers: Mapping[str, str]) -> HardwareDevice:
    compatible = _text(path / "of_node/compatible").split("\0")[0]
    vendor = DEVICE_TREE.get(compatible.partition(",")[0], 0)
    metadata = {**numbers, **({"Description": compatible} if compatible else {})}
    return HardwareDevice(kind, vendor_name(vendor), vendor, 0, {**metadata, **({"Discrete": "0"} if kind == "gpu" else {})})


@functools.cache
def _names() -> Mapping[tuple[int, int], str]:
    """Names of PCI devices by (vendor, device), where the system has the list of them."""
    for path in _PCI_IDS:
        if text := _text(Path(path)):
            return parse_pci_ids(text)
    return {}


def parse_pci_ids(text: str) -> dict[tuple[int, int], str]:
    """Names of devices of a pci.ids file: a line of a maker, and below it, indented by one tab, those of its devices."""
    found: dict[tuple[int, int], str] = {}
    vendor, maker = 0, ""
    for line in text.splitlines():
        device = re.match(r"(\t?)([0-9a-f]{4})  (.+)", line)
        if line.startswith("C "):
            break
        if device and not device[1]:
            vendor, maker = int(device[2], 16), device[3]
        elif device:
            found[vendor, int(device[2], 16)] = f"{maker} {device[3]}"
    return found
