"""Hardware of machines that are not this one: folders like /sys, Windows' instances, Vulkan's properties."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.device.hardware.fake_sys import board, server, workstation

import intarsia as ort
from intarsia.capi import _pybind_state as state
from intarsia.device.hardware import discovery, linux, vendors, vulkan, windows
from intarsia.device.hardware.cpu import cpu, windows_cpu
from intarsia.ep.device import Device
from intarsia.ep.hardware import HardwareDevice

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
Machine = Callable[[Path], None]


def short(devices: list[HardwareDevice]) -> list[tuple[str, int, int, dict[str, str]]]:
    return [(d.kind, d.vendor_id, d.device_id, dict(d.metadata)) for d in devices]


class TestLinux:
    def test_a_workstation(self, tmp_path: Path) -> None:
        workstation(tmp_path)
        assert short(linux.gpus(tmp_path)) == [
            ("gpu", INTEL, 0x7D55, {"card_idx": "0", "pci_bus_id": "0000:00:02.0", "Discrete": "0"}),
            ("gpu", NVIDIA, 0x2684, {"card_idx": "1", "pci_bus_id": "0000:01:00.0", "Discrete": "1"}),
            ("gpu", AMD, 0x744C, {"card_idx": "2", "pci_bus_id": "0000:03:00.0"}),
            ("gpu", NVIDIA, 0x2330, {"pci_bus_id": "0000:02:00.0", "Discrete": "1"}),
        ]
        assert [d.vendor for d in linux.gpus(tmp_path)] == ["Intel", "NVIDIA", "AMD", "NVIDIA"]
        assert short(linux.npus(tmp_path)) == [
            ("npu", INTEL, 0x7D1D, {"accel_idx": "0", "pci_bus_id": "0000:00:0b.0"}),
        ]

    def test_a_server(self, tmp_path: Path) -> None:
        server(tmp_path)
        assert [(d.vendor_id, d.device_id) for d in linux.gpus(tmp_path)] == [
            (NVIDIA, 0x2330), (AMD, 0x744C), (0x1234, 0x1111),
        ]  # fmt: skip
        assert linux.npus(tmp_path) == []

    def test_a_board(self, tmp_path: Path) -> None:
        board(tmp_path)
        assert short(linux.gpus(tmp_path)) == [
            ("gpu", vendors.ARM, 0, {"card_idx": "0", "Description": "arm,mali-bifrost", "Discrete": "0"}),
            ("gpu", NVIDIA, 0, {"card_idx": "2", "Description": "nvidia,ga10b", "Discrete": "0"}),
        ]
        assert short(linux.npus(tmp_path)) == [
            ("npu", 0x1D87, 0, {"accel_idx": "0", "Description": "rockchip,rk3588-rknn-core"}),
        ]

    def test_nothing_there_and_nothing_readable(self, tmp_path: Path) -> None:
        assert linux.gpus(tmp_path / "none") == linux.npus(tmp_path / "none") == []
        workstation(tmp_path)
        (tmp_path / "devices/pci0000:00/0000:01:00.0/vendor").write_text("what\n")
        (tmp_path / "devices/pci0000:00/0000:03:00.0/device").unlink()
        assert [d.metadata.get("card_idx") for d in linux.gpus(tmp_path)] == ["0", "1", None]  # by its node to render

    def test_names_of_a_list_of_pci_devices(self) -> None:
        text = "# made up\n10de  NVIDIA Corporation\n\t2684  AD102 [GeForce RTX 4090]\n\t\t1043 88e2  A board\nC 03  Display\n"
        assert linux.parse_pci_ids(text) == {(NVIDIA, 0x2684): "NVIDIA Corporation AD102 [GeForce RTX 4090]"}

    @pytest.mark.parametrize("machine", [workstation, server, board])
    def test_onnxruntime_finds_no_more(self, machine: Machine, tmp_path: Path) -> None:
        """On the same /sys: each device that onnxruntime has is found, with all that it says of it."""
        pytest.importorskip("onnxruntime")
        machine(tmp_path / "sys")
        script = """
import json
from onnxruntime.capi import _pybind_state as C
found = [(d.type.name.lower(), d.vendor_id, d.device_id, dict(d.metadata)) for d in C.get_hardware_devices()]
print(json.dumps(found))
"""
        inner = f'mount --make-rprivate / && mount -t tmpfs x /sys && cp -a {tmp_path}/sys/. /sys/ && "$PYTHON" -c "$SCRIPT"'
        environment = {**os.environ, "PYTHON": sys.executable, "SCRIPT": script}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", inner], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
            pytest.skip(f"a /sys of its own needs the right to mount: {done.stderr.strip()}")
        theirs = json.loads(done.stdout.splitlines()[-1])
        ours = [cpu(), *linux.gpus(tmp_path / "sys"), *linux.npus(tmp_path / "sys")]
        for kind, vendor, device, metadata in theirs:
            assert any(
                (d.kind, d.vendor_id, d.device_id) == (kind, vendor, device) and metadata.items() <= dict(d.metadata).items()
                for d in ours
            ), (kind, hex(vendor), hex(device), metadata)


class TestProcessors:
    @pytest.mark.parametrize(
        ("text", "vendor", "number"),
        [
            ("vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)\n", "Intel", INTEL),
            ("vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC with intel_ppin\n", "AMD", 0x1022),
            ("processor\t: 0\nCPU implementer\t: 0x41\n", "ARM", 0x13B5),
            ("processor\t: 0\nCPU implementer\t: 0x51\n", "Qualcomm", 0x4D4F4351),
            ("vendor_id\t: HygonGenuine\n", "unknown", 0),
            ("CPU implementer\t: what\n", "unknown", 0),
            ("", "unknown", 0),
        ],
    )
    def test_of_linux(self, text: str, vendor: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "linux")
        (tmp_path / "cpuinfo").write_text(text)
        found = cpu(tmp_path / "cpuinfo")
        assert (found.kind, found.vendor, found.vendor_id, found.device_id) == ("cpu", vendor, number, 0)

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("Intel64 Family 6 Model 158 Stepping 10, GenuineIntel", INTEL),
            ("AMD64 Family 25 Model 97 Stepping 2, AuthenticAMD", 0x1022),
            ("ARMv8 (64-bit) Family 8 Model 1 Revision 201, Qualcomm Technologies Inc", 0x4D4F4351),
            ("", 0),
        ],
    )
    def test_of_windows(self, text: str, number: int) -> None:
        assert windows_cpu(text) == number

    def test_this_one_is_as_onnxruntime_says(self) -> None:
        theirs = pytest.importorskip("onnxruntime.capi._pybind_state").get_hardware_devices()
        (known,) = [d for d in theirs if d.type.name == "CPU"]
        (found,) = [d for d in state.get_hardware_devices() if d.type is ort.OrtHardwareDeviceType.CPU]
        assert (found.vendor, found.vendor_id, found.device_id) == (known.vendor, known.vendor_id, known.device_id)


class TestWindows:
    def test_instances(self) -> None:
        instances = {
            "gpu": [
                "PCI\\VEN_10DE&DEV_2684&SUBSYS_88E21043&REV_A1\\4&1",
                "ROOT\\BasicDisplay\\0000",
                "pci\\ven_8086&dev_7d55\\3",
            ],
            "npu": ["PCI\\VEN_8086&DEV_7D1D&SUBSYS_0\\3&2", "ACPI\\QCOM0D0A\\2&d"],
        }
        found = windows.listed(
            lambda guid: instances[windows.CLASSES[guid]], lambda instance: "a card" if "2684" in instance else ""
        )
        assert short(found) == [
            ("gpu", NVIDIA, 0x2684, {"Description": "a card"}), ("gpu", INTEL, 0x7D55, {}), ("npu", INTEL, 0x7D1D, {}),
            ("npu", 0x4D4F4351, 0x0D0A, {}),
        ]  # fmt: skip

    @pytest.mark.skipif(sys.platform == "win32", reason="there the calls work")
    def test_elsewhere_nothing(self) -> None:
        assert windows.devices() == []


class TestVulkan:
    def test_properties(self) -> None:
        found = vulkan.hardware(vulkan._Properties(0, 0, NVIDIA, 0x2684, 2, b"a card"), (0, 1, 0, 0))
        metadata = {"Description": "a card", "Discrete": "1", "pci_bus_id": "0000:01:00.0"}
        assert found == HardwareDevice("gpu", "NVIDIA", NVIDIA, 0x2684, metadata)
        soft = vulkan.hardware(vulkan._Properties(0, 0, 0x1AE0, 0xC0DE, 4, b"SwiftShader"), (0, 0, 0, 0))
        assert soft == HardwareDevice("gpu", "Google", 0x1AE0, 0xC0DE, {"Description": "SwiftShader"}, software=True)

    def test_here(self) -> None:
        """Where a loader and a driver are installed (CI's machines have Mesa's), both lists are of GPUs and do not overlap."""
        assert all(d.kind == "gpu" for d in vulkan.devices())
        assert not set(discovery.hardware_devices()) & set(discovery.software_devices())
        assert discovery.hardware_devices()[0].kind == "cpu"


class TestMerging:
    def test_by_address_then_by_model(self) -> None:
        system = [
            HardwareDevice("gpu", "AMD", AMD, 0x744C, {"card_idx": "0", "pci_bus_id": "0000:03:00.0"}),
            HardwareDevice("gpu", "AMD", AMD, 0x744C, {"card_idx": "1", "pci_bus_id": "0000:04:00.0"}),
        ]
        more = [
            HardwareDevice("gpu", "AMD", AMD, 0x744C, {"Discrete": "1", "pci_bus_id": "0000:04:00.0"}),
            HardwareDevice("gpu", "AMD", AMD, 0x744C, {"Discrete": "0"}),
            HardwareDevice("gpu", "Intel", INTEL, 0x56A0, {"Discrete": "1"}),
        ]
        assert [d.metadata.get("Discrete") for d in discovery.merged(system, more)] == ["0", "1", "1"]

    def test_drivers_tell_addresses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from intarsia.device import cuda, hip

        class Driver:
            def cuDeviceGet(self, index: int) -> tuple[int, int]:
                return 0, index

            def cuDeviceGetName(self, size: int, handle: int) -> tuple[int, bytes]:
                return 0, b"a card\0"

            def cuDeviceGetPCIBusId(self, size: int, handle: int) -> tuple[int, bytes]:
                return 0, f"0000:{handle + 10:02X}:00.0".encode().ljust(size, b"\0")

            def hipDeviceGetName(self, name: Any, size: int, index: int) -> int:
                return 0

            def hipDeviceGetPCIBusId(self, text: Any, size: int, index: int) -> int:
                text.value = b"0000:C3:00.0"
                return index

        monkeypatch.setattr(cuda, "driver", Driver)
        monkeypatch.setattr(hip, "runtime", Driver)
        assert (cuda.described(1).pci_bus_id, cuda.described(1).vendor_id) == ("0000:0b:00.0", NVIDIA)
        assert (hip.described(0).pci_bus_id, hip.described(1).pci_bus_id) == ("0000:c3:00.0", "")

    def test_a_macs_gpu_is_one(self) -> None:
        apple = HardwareDevice("gpu", "Apple", vendors.APPLE)
        (found,) = discovery.merged([apple], [HardwareDevice("gpu", "Apple", vendors.APPLE, 0xA140, {"Description": "M4"})])
        assert found.metadata == {"Description": "M4"}

    def test_a_mac(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr("platform.machine", lambda: "arm64")
        assert [[(d.kind, d.vendor, d.vendor_id) for d in found] for found in discovery._of_system()] == [
            [("gpu", "Apple", 0x106B)], [("npu", "Apple", 0x106B)],
        ]  # fmt: skip
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        assert discovery._of_system() == ([], [])

    def test_which_a_providers_device_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        two = [
            HardwareDevice("gpu", "NVIDIA", NVIDIA, 0x2684, {"pci_bus_id": "0000:01:00.0"}),
            HardwareDevice("gpu", "NVIDIA", NVIDIA, 0x2330, {"pci_bus_id": "0000:02:00.0"}),
            HardwareDevice("gpu", "AMD", AMD, 0x744C, {"pci_bus_id": "0000:03:00.0"}),
        ]
        monkeypatch.setattr(discovery, "hardware_devices", lambda: (cpu(), *two))
        monkeypatch.setattr(discovery, "software_devices", tuple)
        assert discovery.hardware_of(Device("cuda", 0, vendor_id=NVIDIA, pci_bus_id="0000:02:00.0")) is two[1]
        assert discovery.hardware_of(Device("webgpu", 0, vendor_id=NVIDIA, device_id=0x2684)) is two[0]
        assert discovery.hardware_of(Device("rocm", 0, vendor="AMD")) is two[2]
        assert discovery.hardware_of(Device("cpu", host=True)).kind == "cpu"
        unclear = discovery.hardware_of(Device("cuda", 1, vendor="NVIDIA Corporation", description="one of two"))
        assert (unclear.vendor_id, unclear.device_id, unclear.metadata) == (NVIDIA, 0, {"Description": "one of two"})
        assert discovery.hardware_of(Device("cann", 0, vendor="huawei")).kind == "npu"
