"""The memory of a plugin's device: allocators and copies that the plugin brings."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from intarsia.ep.device import DataTransfer, Device, DeviceTensor
from intarsia.errors import EPFail, OutOfMemory
from intarsia.graph.dtypes import DType
from intarsia.providers.plugin.interface.handles import find
from intarsia.providers.plugin.interface.hardware import HOST_MEMORY, READ_ONLY, MemoryInfo, OrtEpDevice
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.tensors import OrtValue, new_tensor
from intarsia.providers.plugin.owned import Allocated, FactoryAllocator, Released
from intarsia.providers.plugin.plugin_ep import PluginEp


class Buffer:
    """A block of a plugin's memory, freed with the last reference."""

    def __init__(self, memory: PluginMemory, nbytes: int) -> None:
        self._ep = memory.ep
        self.address: int = memory.allocator.call("Alloc", nbytes) or 0
        if not self.address and nbytes:
            raise OutOfMemory(f"{memory.ep.name} has no {nbytes:,} bytes of {memory.info.name!r}; use a smaller model or batch")
        self._made = Allocated(memory.allocator, self.address)
        self._ep.own(self._made)

    def __del__(self) -> None:
        if (made := getattr(self, "_made", None)) is not None:
            self._ep.release(made)


class PluginMemory:
    """Memory of a plugin's provider that the processor does not read.

    Args:
        info: which memory, as the plugin described it.
        device: the same as the rest of Intarsia knows it.

    Raises:
        EPFail: the plugin has no allocator for it, or no way to copy from and to the host's.
    """

    def __init__(self, ep: PluginEp, info: MemoryInfo, device: Device) -> None:
        self.ep, self.info, self.device = ep, info, device
        self.allocator = self._make_allocator()
        made = ctypes.c_void_p(None)
        ep.factory.members.call_if_there("CreateDataTransfer", ctypes.addressof(made))
        if not made.value:
            raise EPFail(f"{ep.name} works in memory of its own ({info.name!r}), and copies nothing from and to the host's")
        self.transfer = Members("OrtDataTransferImpl", made.value, ep.name)
        ep.own(Released(self.transfer))

    def _make_allocator(self) -> Members:
        made = ctypes.c_void_p(None)
        if self.ep.members.has("CreateAllocator"):
            self.ep.members.call("CreateAllocator", self.info.handle, ctypes.addressof(made))
        else:
            self.ep.factory.members.call("CreateAllocator", self.info.handle, None, ctypes.addressof(made))
        if not made.value:
            raise EPFail(f"{self.ep.name} has no allocator for its memory {self.info.name!r}")
        self.ep.own(FactoryAllocator(self.ep.factory.members, made.value))
        return Members("OrtAllocator", made.value, self.ep.name)

    def new_tensor(self, dtype: DType, shape: Sequence[int]) -> OrtValue:
        """A tensor there, with no elements yet.

        Raises:
            OutOfMemory: the plugin has no more.
        """
        value = OrtValue.at(dtype, shape, 0, None, self.info)
        buffer = Buffer(self, max(int(value.fields.nbytes), 1))
        value.content, value.fields.data = buffer, buffer.address
        return value

    def copy(self, source: OrtValue, target: OrtValue) -> None:
        """Copy a tensor's elements into another of its size, here or there; the copy is done when it returns."""
        if not source.fields.nbytes:
            return
        sources, targets = (ctypes.c_void_p * 1)(source.handle), (ctypes.c_void_p * 1)(target.handle)
        streams = (ctypes.c_void_p * 1)(self.ep.stream.handle if self.ep.stream is not None else None)
        self.transfer.call("CopyTensors", ctypes.addressof(sources), ctypes.addressof(targets), ctypes.addressof(streams), 1)
        if self.ep.stream is not None:
            self.ep.stream.flush()

    def from_host(self, array: np.ndarray) -> OrtValue:
        """An array's elements there."""
        source = OrtValue.of_array(np.ascontiguousarray(array).reshape(array.shape))
        target = self.new_tensor(source.dtype, source.shape)
        self.copy(source, target)
        return target

    def to_host(self, value: OrtValue) -> np.ndarray:
        """A tensor's elements as a new array."""
        target = new_tensor(value.dtype, value.shape)
        self.copy(value, target)
        return target.array()

    def tensor(self, value: OrtValue) -> DeviceTensor:
        """A tensor there as the rest of Intarsia knows it."""
        return DeviceTensor(value.dtype, value.shape, self.device, value)


class PluginTransfer(DataTransfer):
    """Copies between the host and a plugin's memory."""

    def __init__(self, memory: PluginMemory) -> None:
        self._memory = memory

    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        return self._memory.tensor(self._memory.from_host(array))

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        return self._memory.to_host(tensor.handle)


def default_memory(ep: PluginEp) -> MemoryInfo:
    """The memory that a provider's tensors are in: the one that it says, else that of its devices."""
    found = ctypes.c_void_p(None)
    ep.members.call_if_there("GetDefaultMemoryDevice", ctypes.addressof(found))
    if not found.value:
        return memory_of(ep.devices)
    place = find(found.value, MemoryInfo).place
    return next((info for device in ep.devices for info in device.memories if info.place == place), HOST_MEMORY)


def memory_of(devices: Sequence[OrtEpDevice]) -> MemoryInfo:
    """The first memory of devices that their allocators have; the host's where there is none."""
    infos = [info for device in devices for info in device.memories if info.allocator != READ_ONLY]
    return next((info for info in infos if not info.place.memory), HOST_MEMORY)
