"""Memory of devices given to other libraries, and taken from them, by DLPack and without a copy.

DLPack names memory by an address (CUDA, ROCm) or by an object of the driver (OpenCL's cl_mem). A buffer of WebGPU has neither:
it belongs to one device object of one library, which no other can read.
"""

from __future__ import annotations

import math
from typing import Any

from intarsia.codegen.clike.storage_types import SEVERAL_IN_A_BYTE
from intarsia.device.gpu import ALIGNMENT, Gpu, Memory, Slice
from intarsia.device.memory import gpu_of, gpu_that_has
from intarsia.ep.device import DeviceTensor
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType

KINDS = {"cuda": 2, "opencl": 4, "rocm": 10}
"""Kinds of devices -> DLDeviceType."""
_BY_NUMBER = {number: kind for kind, number in KINDS.items()}


class Borrowed(Memory):
    """Memory that somebody else gives and takes back."""

    __slots__ = ("owner",)

    def __init__(self, gpu: Gpu, buffer: Any, nbytes: int, owner: Any) -> None:
        super().__init__(gpu, buffer, nbytes, "borrowed")
        self.owner = owner

    def __del__(self) -> None:
        """It goes with its owner."""


def device_of(tensor: DeviceTensor) -> tuple[int, int]:
    """The device as DLPack names it.

    Raises:
        InvalidArgument: memory of its kind cannot be given to other libraries.
    """
    kind = tensor.device.kind
    if kind not in KINDS:
        raise InvalidArgument(
            f"a tensor on {tensor.device} cannot be given to other libraries by DLPack: its buffer belongs to this package's "
            "device object and has no address that they could read; take OrtValue.numpy(), which copies it to the host, or "
            "bind the output to 'cpu'"
        )
    if tensor.dtype in SEVERAL_IN_A_BYTE:
        raise InvalidArgument(
            f"a {tensor.dtype.onnx_name} tensor on {tensor.device} has several elements in a byte, which DLPack cannot say; "
            "take OrtValue.numpy(), which copies it to the host"
        )
    return KINDS[kind], tensor.device.index


def address_of(tensor: DeviceTensor) -> tuple[int, int]:
    """The address (or object) and the offset in bytes, once everything that writes the tensor is done."""
    device_of(tensor)
    gpu, place = gpu_that_has(tensor), tensor.handle
    gpu.finish()
    return gpu.address_of(place.memory.buffer), place.offset


def gpu_at(kind: int, index: int) -> Gpu:
    """The device that DLPack names so.

    Raises:
        InvalidArgument: it is not one of this package's, or there is none here.
    """
    if kind not in _BY_NUMBER:
        names = ", ".join(f"{n} ({number})" for n, number in KINDS.items())
        raise InvalidArgument(f"a tensor on DLPack device {kind}:{index}; expected host memory (1), {names}")
    return gpu_of(_BY_NUMBER[kind], index)


def borrowed(
    kind: int, index: int, address: int, offset: int, dtype: DType, shape: tuple[int, ...], owner: Any
) -> DeviceTensor:
    """A tensor on another library's memory, row-major. `owner` is held as long as the tensor is.

    Raises:
        InvalidArgument: as `gpu_at`, or memory that cannot be used there.
    """
    gpu = gpu_at(kind, index)
    if dtype in SEVERAL_IN_A_BYTE:
        raise InvalidArgument(f"a tensor of {dtype.onnx_name} cannot be taken from other libraries")
    nbytes = math.prod(shape) * dtype.numpy.itemsize
    whole = nbytes + offset
    if kind != KINDS["opencl"]:
        address, offset, whole = address + offset, 0, nbytes
    if (address if kind != KINDS["opencl"] else offset) % ALIGNMENT and nbytes:
        raise InvalidArgument(
            f"a tensor on {gpu.device} begins at byte {offset or address}; expected a multiple of {ALIGNMENT}: give a copy of "
            "it"
        )
    memory = Borrowed(gpu, gpu.buffer_at(address), whole, owner)
    return DeviceTensor(dtype, shape, gpu.device, Slice(memory, offset, nbytes))
