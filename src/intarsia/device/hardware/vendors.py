"""Makers of hardware by their PCI numbers (pcisig.com's list), by the device tree's prefixes, and by what CPUs call them."""

from __future__ import annotations

AMD_CPU, AMD, APPLE, ARM, INTEL, NVIDIA = 0x1022, 0x1002, 0x106B, 0x13B5, 0x8086, 0x10DE
QUALCOMM = 0x5143
QUALCOMM_CPU = 0x4D4F4351
"""The letters QCOM, which ACPI has instead of a PCI number; so it is in onnxruntime."""

NAMES: dict[int, str] = {
    AMD: "AMD",
    AMD_CPU: "AMD",
    APPLE: "Apple",
    ARM: "ARM",
    INTEL: "Intel",
    NVIDIA: "NVIDIA",
    QUALCOMM: "Qualcomm",
    QUALCOMM_CPU: "Qualcomm",
    0x1010: "Imagination",
    0x1014: "IBM",
    0x1414: "Microsoft",
    0x14E4: "Broadcom",
    0x14C3: "MediaTek",
    0x19E5: "Huawei",
    0x1D87: "Rockchip",
    0x1DA3: "Habana",
    0x1E60: "Hailo",
    0x1ED5: "Moore Threads",
    0x1AC1: "Google",
    0x144D: "Samsung",
    0x1E36: "Enflame",
    0x1AE0: "Google",
    0x10005: "Mesa",
}
"""PCI number -> the maker's short name."""

DEVICE_TREE: dict[str, int] = {
    "apple": APPLE,
    "arm": ARM,
    "brcm": 0x14E4,
    "img": 0x1010,
    "intel": INTEL,
    "mediatek": 0x14C3,
    "nvidia": NVIDIA,
    "qcom": QUALCOMM,
    "rockchip": 0x1D87,
    "samsung": 0x144D,
}
"""Prefix of a device tree's "compatible" -> PCI number, for devices that are on no PCI bus."""

CPUID: dict[str, int] = {"GenuineIntel": INTEL, "AuthenticAMD": AMD_CPU}
"""What x86 processors call their maker -> PCI number."""

ARM_IMPLEMENTERS: dict[int, int] = {0x41: ARM, 0x4E: NVIDIA, 0x51: QUALCOMM_CPU, 0x61: APPLE}
"""Implementer in an ARM processor's MIDR register -> PCI number."""


def vendor_name(number: int) -> str:
    """The maker's short name; "" for one that is not known."""
    return NAMES.get(number, "")


def vendor_number(name: str) -> int:
    """The PCI number of a maker by what a driver calls it ("NVIDIA Corporation"); 0 for one that is not known.

    Of a maker with several numbers, the one of its GPUs.
    """
    words = name.lower().split()
    return next((number for number, known in NAMES.items() if words and known.lower() == words[0].rstrip(",")), 0)
