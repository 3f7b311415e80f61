"""What a plugin is told of hardware and memory, and what it says of itself on it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from intarsia.ep.hardware import EpDevice, EpMemory, HardwareDevice, HardwareKind
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.interface.handles import HostObject, address_of
from intarsia.providers.plugin.interface.native_structs import MEMORY_MARK, MarkedMemoryInfo, MemoryInfoFields

KINDS: tuple[HardwareKind, ...] = ("cpu", "gpu", "npu")
"""By the numbers of OrtHardwareDeviceType."""
MEMORY_OF_CPU, HOST_ACCESSIBLE = 0, 5
_MEMORY_KINDS: tuple[HardwareKind, ...] = ("cpu", "gpu", "gpu", "npu")
"""By the numbers of OrtMemoryInfoDeviceType, the third of which are FPGAs."""
CPU_OUTPUT = -1  # of OrtMemType
_ARENA, READ_ONLY = 1, 2  # of OrtAllocatorType


class KeyValues(HostObject):
    """OrtKeyValuePairs."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__()
        self.values = dict(values)
        self._arrays: dict[tuple[int, ...], Any] = {}

    def addresses(self, texts: Iterable[str]) -> int:
        """The address of an array of texts, which lives as long as the pairs."""
        found = tuple(self.text(text) for text in texts)
        array = self._arrays.setdefault(found, (ctypes.c_void_p * max(1, len(found)))(*found))
        return ctypes.addressof(array)


class OrtHardware(HostObject):
    """OrtHardwareDevice: a processor of this machine, as plugins see it.

    Args:
        kind: the number of CPU, GPU or NPU (`KINDS`).
        vendor_id, device_id: PCI numbers.
        metadata: what else is known of it, by name.
    """

    def __init__(self, kind: int, vendor_id: int, device_id: int, vendor: str, metadata: Mapping[str, str]) -> None:
        super().__init__()
        self.type, self.vendor_id, self.device_id, self.vendor = kind, vendor_id, device_id, vendor
        self.metadata = KeyValues(metadata)

    @property
    def fields(self) -> tuple[Any, ...]:
        """All of it."""
        return self.type, self.vendor_id, self.device_id, self.vendor, tuple(sorted(self.metadata.values.items()))

    @classmethod
    def of(cls, device: HardwareDevice) -> OrtHardware:
        """A device of this machine as plugins see it."""
        return cls(KINDS.index(device.kind), device.vendor_id, device.device_id, device.vendor, device.metadata)

    @property
    def device(self) -> HardwareDevice:
        """It as the rest of Intarsia knows it."""
        return HardwareDevice(KINDS[self.type], self.vendor, self.vendor_id, self.device_id, dict(self.metadata.values))

    def __repr__(self) -> str:
        return f"{KINDS[self.type].upper()} {self.vendor_id:#06x}:{self.device_id:#06x}"


class OrtEpDevice(HostObject):
    """OrtEpDevice: a factory of providers on a hardware device, with what it says of both."""

    def __init__(self, factory: int, hardware: OrtHardware, metadata: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__()
        self.factory, self.hardware = factory, hardware
        self.metadata, self.options = KeyValues(metadata), KeyValues(options)
        self.memories: list[MemoryInfo] = []

    def add_memory(self, info: MemoryInfo) -> None:
        """Note a memory that the factory has an allocator for, instead of one of the same kind."""
        kind = (info.place.memory, info.allocator)
        others = [m for m in self.memories if (m.place.memory, m.allocator) != kind]
        self.memories = [*others, info]

    @property
    def device(self) -> EpDevice:
        """It as the rest of Intarsia knows it."""
        memories = [memory.memory for memory in self.memories if memory.allocator != READ_ONLY]
        return EpDevice(
            self.hardware.device, dict(self.metadata.values), dict(self.options.values),
            memory=next((m for m in memories if not m.host_accessible), None),
            host_memory=next((m for m in memories if m.host_accessible), None),
        )  # fmt: skip

    def memory_of(self, kind: int) -> MemoryInfo | None:
        """Its memory of a kind (OrtDeviceMemoryType)."""
        return next((m for m in self.memories if m.place.memory == kind), None)


@dataclass(frozen=True)
class Place:
    """OrtMemoryDevice: what tells one memory from another. `kind`: OrtMemoryInfoDeviceType; `memory`: OrtDeviceMemoryType."""

    kind: int = MEMORY_OF_CPU
    vendor_id: int = 0
    device_id: int = 0
    memory: int = 0


class MemoryInfo(HostObject):
    """OrtMemoryInfo, and OrtMemoryDevice, which is its `place`.

    Args:
        allocator: OrtAllocatorType.
        mem_type: OrtMemType.
    """

    def __init__(
        self, name: str, place: Place | None = None, alignment: int = 0, allocator: int = 0, mem_type: int = 0
    ) -> None:
        self.name, self.place = name, place or Place()
        self.alignment, self.allocator, self.mem_type = alignment, allocator, mem_type
        self._name = name.encode("utf-8", "replace")
        where = self.place
        fields = MemoryInfoFields(
            address_of(self._name), len(self._name), (0, 0), mem_type, allocator, where.kind, where.memory, where.device_id,
            where.vendor_id, alignment,
        )  # fmt: skip
        self._marked = MarkedMemoryInfo(MEMORY_MARK, fields)
        super().__init__()

    def _make_handle(self) -> int:
        return ctypes.addressof(self._marked) + MarkedMemoryInfo.fields.offset

    @classmethod
    def like(cls, other: MemoryInfo) -> MemoryInfo:
        """One with the same fields, which does not depend on how long a plugin keeps the other."""
        return other if other is HOST_MEMORY else cls(*other.fields)

    @property
    def fields(self) -> tuple[Any, ...]:
        """All of it."""
        return self.name, self.place, self.alignment, self.allocator, self.mem_type

    @property
    def memory(self) -> EpMemory:
        """It as the rest of Intarsia knows it."""
        place = self.place
        kind = _MEMORY_KINDS[place.kind] if 0 <= place.kind < len(_MEMORY_KINDS) else "gpu"
        return EpMemory(
            self.name, kind, place.vendor_id, place.device_id, place.memory == HOST_ACCESSIBLE, self.alignment,
            self.allocator == _ARENA,
        )  # fmt: skip

    @property
    def on_host(self) -> bool:
        """Whether the processor reads this memory."""
        return self.place.kind == MEMORY_OF_CPU or self.place.memory == HOST_ACCESSIBLE


HOST_MEMORY = MemoryInfo("Cpu")
