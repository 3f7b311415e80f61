"""Memory spaces and the tensors in them.

Tensors in host memory are plain `numpy.ndarray`s. Tensors in any other memory are `DeviceTensor`s, which NumPy refuses
to read: a copy that is missing between two memory spaces is an error and never a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Device:
    """One memory space that programs read and write.

    Attributes:
        kind: lower-case kind of hardware: "cpu", "cuda", "webgpu", "npu", ...
        index: number of the device among those of its kind.
        host: whether the memory is the host's own, so that tensors are NumPy arrays and need no copies.
        vendor: maker of the hardware, where known.
        description: the device's full name, for people.
        software: whether the host's processor does the work of a device that has memory of its own: for tests, not for speed.
        vendor_id: the maker's PCI number, where a driver tells it; else 0.
        device_id: the maker's PCI number of this model, where a driver tells it; else 0.
        pci_bus_id: where it is on the PCI bus, as "0000:01:00.0", where a driver tells it.
    """

    kind: str
    index: int = 0
    host: bool = False
    vendor: str = ""
    description: str = ""
    software: bool = False
    vendor_id: int = 0
    device_id: int = 0
    pci_bus_id: str = ""

    def shares_memory_with(self, other: Device) -> bool:
        """Whether a program of `other` can read this device's tensors as they are."""
        return (self.host and other.host) or (self.host, self.kind, self.index) == (other.host, other.kind, other.index)

    def __str__(self) -> str:
        return "host" if self.host else f"{self.kind}:{self.index}"


HOST = Device("cpu", host=True)


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor outside host memory: `handle` is whatever its provider knows the buffer by."""

    dtype: DType
    shape: tuple[int, ...]
    device: Device
    handle: Any

    @property
    def nbytes(self) -> int:
        """Bytes of all elements as NumPy holds them (4-bit types take a byte each)."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size * self.dtype.numpy.itemsize

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise EPFail(
            f"a {self.dtype.onnx_name} tensor of shape {list(self.shape)} is in the memory of {self.device} and was read as a "
            "NumPy array; expected a copy to the host before (DataTransfer.copy_out)"
        )


class Allocator(Protocol):
    """Memory of one device. `divisible`: whether one allocation may be cut into several tensors at byte offsets."""

    device: Device
    divisible: bool

    def allocate(self, nbytes: int) -> Any:
        """A buffer of at least `nbytes` bytes. Raises OutOfMemory."""

    def free(self, buffer: Any) -> None:
        """Give back what `allocate` returned."""


class HostAllocator:
    """Host memory as NumPy byte arrays, aligned to 64 bytes."""

    device = HOST
    divisible = True

    def allocate(self, nbytes: int) -> np.ndarray:
        raw = np.empty(nbytes + 64, np.uint8)
        return raw[-raw.ctypes.data % 64 :][:nbytes]  # in two steps: NumPy lets an empty slice begin where the whole does

    def free(self, buffer: np.ndarray) -> None:
        """Nothing to do: the array is freed with its last reference."""


class DataTransfer:
    """Copies between the host and one provider's memory, and between two devices of that provider.

    A provider in host memory needs none. Any other overrides `copy_in` and `copy_out`; `copy_across` goes through the host
    unless overridden.
    """

    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        """The C-contiguous host `array` as a tensor on `device`."""
        raise NotImplementedError

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        """A tensor of this provider as a new host array of dtype `tensor.dtype.numpy`."""
        raise NotImplementedError

    def copy_across(self, tensor: DeviceTensor, device: Device) -> DeviceTensor:
        """A tensor of this provider on another `device` of this provider."""
        return self.copy_in(self.copy_out(tensor), device)


def detached(value: Any, others: Sequence[Any]) -> Any:
    """`value` (a list element by element) as the caller's own: copied where it may share memory with one of `others`."""
    if isinstance(value, list):
        return [detached(element, others) for element in value]
    if not isinstance(value, np.ndarray):
        return value
    if value.base is None and value.flags.c_contiguous and not any(value is other for other in _arrays(others)):
        return value
    return value.copy(order="C")


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _arrays(value)
        else:
            yield value
