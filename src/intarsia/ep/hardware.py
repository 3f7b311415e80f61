"""Hardware, and what a provider says of itself on a piece of it: what `get_ep_devices` lists.

A `Device` is a memory space that programs read and write; a `HardwareDevice` is a thing in the machine. Two providers have
two `Device`s on one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from intarsia.lazy_dataclass import dataclass

HardwareKind = Literal["cpu", "gpu", "npu"]


@dataclass(frozen=True)
class HardwareDevice:
    """A CPU, GPU or NPU of this machine.

    Attributes:
        kind: "cpu", "gpu" or "npu".
        vendor: the maker's short name ("Intel"); "" where it is not known.
        vendor_id: the maker's PCI number, as 0x8086; 0 where there is none.
        device_id: the maker's PCI number of this model, not a number among devices; 0 where there is none.
        metadata: text by name. Of onnxruntime's: "Discrete" ("1": has memory of its own; "0"), "pci_bus_id" ("0000:01:00.0"),
            "card_idx" and "accel_idx" (numbers below /sys/class/drm and /sys/class/accel), "Description".
        software: whether the CPU does this device's work, behind a driver for GPUs.
    """

    kind: HardwareKind
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    software: bool = False


@dataclass(frozen=True)
class EpMemory:
    """A memory of a provider's, by the name that its allocator has.

    Attributes:
        name: as "Cuda".
        kind: whose memory it is: "cpu", "gpu" or "npu".
        vendor_id: the PCI number of that device's maker.
        device_id: which of the provider's devices, from 0.
        host_accessible: whether the host can read it too.
        alignment: bytes to which allocations are aligned; 0: as the allocator likes.
        arena: whether its allocator keeps what is freed.
    """

    name: str
    kind: HardwareKind
    vendor_id: int = 0
    device_id: int = 0
    host_accessible: bool = False
    alignment: int = 0
    arena: bool = False


@dataclass(frozen=True)
class EpDevice:
    """A provider on a piece of hardware.

    Attributes:
        hardware: the piece of hardware.
        metadata: what the provider says of itself there, text by name.
        options: the options with which a session uses it there.
        memory: the provider's memory there; None where its tensors are in the host's.
        host_memory: memory there that the host can read too; None where it has none.
        create_stream: makes a queue of work on it; None where it gives out none.
    """

    hardware: HardwareDevice
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    memory: EpMemory | None = None
    host_memory: EpMemory | None = None
    create_stream: Callable[[], Any] | None = field(default=None, hash=False, compare=False)
