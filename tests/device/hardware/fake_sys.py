"""A folder like Linux's /sys, with the devices that a test wants."""

from __future__ import annotations

import os
from pathlib import Path


class FakeSys:
    """Writes devices below `root`, with links as the kernel has them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("class/drm", "class/accel", "bus/pci/devices"):
            (root / name).mkdir(parents=True)

    def pci(self, address: str, kind: int, vendor: int, device: int, driver: str = "") -> Path:
        """A device on the PCI bus: its class, its maker, its model."""
        folder = self.root / "devices/pci0000:00" / address
        folder.mkdir(parents=True)
        for name, value, width in (("class", kind, 6), ("vendor", vendor, 4), ("device", device, 4)):
            (folder / name).write_text(f"{value:#0{width + 2}x}\n")
        if driver:
            (folder / "uevent").write_text(f"DRIVER={driver}\nPCI_SLOT_NAME={address}\n")
        self._link(self.root / "bus/pci/devices" / address, folder)
        return folder

    def platform(self, name: str, compatible: str, driver: str) -> Path:
        """A device of the device tree, which is on no PCI bus."""
        folder = self.root / "devices/platform" / name
        (folder / "of_node").mkdir(parents=True)
        (folder / "of_node/compatible").write_bytes(compatible.encode() + b"\0other\0")
        (folder / "uevent").write_text(f"DRIVER={driver}\n")
        return folder

    def node(self, device: Path, kind: str, name: str) -> None:
        """A node of a driver: "drm" "card0", "drm" "renderD128", "accel" "accel0"."""
        folder = device / kind / name
        folder.mkdir(parents=True)
        self._link(folder / "device", device)
        self._link(self.root / "class" / kind / name, folder)

    @staticmethod
    def _link(path: Path, target: Path) -> None:
        path.symlink_to(os.path.relpath(target, path.parent))


def workstation(root: Path) -> None:
    """Two makers' GPUs with cards, one without, an NPU, an accelerator without a driver."""
    sys = FakeSys(root)
    nvidia = sys.pci("0000:01:00.0", 0x030000, 0x10DE, 0x2684, "nvidia")
    intel = sys.pci("0000:00:02.0", 0x030000, 0x8086, 0x7D55, "i915")
    amd = sys.pci("0000:03:00.0", 0x038000, 0x1002, 0x744C, "amdgpu")
    for device, names in ((nvidia, ("card1", "renderD128")), (intel, ("card0", "card0-DP-1", "renderD129")), (amd, ("card2",))):
        for name in names:
            sys.node(device, "drm", name)
    sys.node(sys.pci("0000:00:0b.0", 0x120000, 0x8086, 0x7D1D, "intel_vpu"), "accel", "accel0")
    sys.pci("0000:02:00.0", 0x030200, 0x10DE, 0x2330, "nvidia")
    sys.pci("0000:04:00.0", 0x120000, 0x1E60, 0x2864, "hailo")


def server(root: Path) -> None:
    """GPUs that are on the bus alone."""
    sys = FakeSys(root)
    sys.pci("0000:02:00.0", 0x030200, 0x10DE, 0x2330, "nvidia")
    sys.pci("0000:03:00.0", 0x030000, 0x1002, 0x744C)
    sys.pci("0000:05:00.0", 0x030000, 0x1234, 0x1111)
    sys.pci("0000:06:00.0", 0x020000, 0x8086, 0x1572)


def board(root: Path) -> None:
    """An ARM board: a Mali, a display controller, an NPU; and a Tegra's GPU."""
    sys = FakeSys(root)
    mali = sys.platform("fde60000.gpu", "arm,mali-bifrost", "panfrost")
    sys.node(mali, "drm", "card0")
    sys.node(mali, "drm", "renderD128")
    sys.node(sys.platform("display-subsystem", "rockchip,display-subsystem", "rockchip-drm"), "drm", "card1")
    tegra = sys.platform("17000000.gpu", "nvidia,ga10b", "nvidia")
    sys.node(tegra, "drm", "card2")
    sys.node(tegra, "drm", "renderD129")
    sys.node(sys.platform("fdab0000.npu", "rockchip,rk3588-rknn-core", "rocket"), "accel", "accel0")
