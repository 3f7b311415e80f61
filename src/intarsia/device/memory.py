"""Memory of devices by name and number, for values that callers make there."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.device import DeviceTensor
from intarsia.errors import EPFail, InvalidArgument
from intarsia.graph.dtypes import DType

if TYPE_CHECKING:
    from intarsia.device.gpu import Gpu

_OPENERS: dict[str, str] = {
    kind: f"intarsia.device.{module}:open_device"
    for kind, module in {"webgpu": "webgpu", "cuda": "cuda", "rocm": "hip", "opencl": "opencl"}.items()
}
"""Kind of device -> "module:function", which takes the device's number."""

KINDS = frozenset(_OPENERS)


def gpu_of(kind: str, index: int = 0) -> Gpu:
    """The device.

    Raises:
        InvalidArgument: no provider keeps values on devices of this kind, or there is no such device here.
    """
    if kind not in _OPENERS:
        names = ", ".join(repr(n) for n in ("cpu", *_OPENERS))
        raise InvalidArgument(f"device {kind}:{index}: no provider keeps values there; expected one of {names}")
    module, _, function = _OPENERS[kind].partition(":")
    try:
        found: Gpu = getattr(importlib.import_module(module), function)(index)
    except EPFail as error:
        raise InvalidArgument(f"device {kind}:{index} cannot be used: {error}") from error
    return found


def gpu_that_has(tensor: DeviceTensor) -> Gpu:
    """The device whose memory a tensor is in."""
    memory = getattr(tensor.handle, "memory", None)
    if memory is None:
        raise InvalidArgument(f"a tensor on {tensor.device}: its provider's memory cannot be reached from outside")
    gpu: Gpu = memory.gpu
    return gpu


def put_on_device(array: np.ndarray, kind: str, index: int) -> DeviceTensor:
    """A copy of the array on a device."""
    from intarsia.device.gpu import GpuTransfer

    gpu = gpu_of(kind, index)
    return GpuTransfer(gpu).copy_in(np.asarray(array, array.dtype.newbyteorder("="), order="C"), gpu.device)


def room_on_device(dtype: DType, shape: tuple[int, ...], kind: str, index: int) -> DeviceTensor:
    """A tensor on a device, its elements not set."""
    from intarsia.codegen.clike.storage_types import stored_nbytes
    from intarsia.device.gpu import Slice

    gpu = gpu_of(kind, index)
    nbytes = stored_nbytes(dtype, math.prod(shape))
    return DeviceTensor(dtype, shape, gpu.device, Slice(gpu.allocate(nbytes), 0, nbytes))


def brought(gpu: Gpu, tensor: DeviceTensor) -> DeviceTensor:
    """A tensor as `gpu` can read it: itself, or a copy where it lies in the memory of a device of the same kind that was opened
    with other options, by way of the host where the device itself cannot make it."""
    from intarsia.device.gpu import GpuTransfer, Slice

    theirs = tensor.handle
    if theirs.memory.gpu is gpu:
        return tensor
    if gpu.reaches(theirs.memory.gpu):
        ours = Slice(gpu.allocate(theirs.nbytes), 0, theirs.nbytes)
        if theirs.nbytes:
            gpu.copy_from(theirs, ours)
        return DeviceTensor(tensor.dtype, tensor.shape, gpu.device, ours)
    return GpuTransfer(gpu).copy_in(GpuTransfer(theirs.memory.gpu).copy_out(tensor), gpu.device)


def taken_from_device(tensor: DeviceTensor) -> np.ndarray:
    """A device tensor as a new array."""
    from intarsia.device.gpu import GpuTransfer

    return GpuTransfer(gpu_that_has(tensor)).copy_out(tensor)


def written_on_device(target: DeviceTensor, source: Any) -> None:
    """Overwrite a device tensor with an array, or with another tensor of its device, of the same type and shape.

    Raises:
        InvalidArgument: they differ in type or shape.
    """
    gpu = gpu_that_has(target)
    if isinstance(source, (np.ndarray, DeviceTensor)):
        dtype = source.dtype if isinstance(source, DeviceTensor) else DType.of(source.dtype.newbyteorder("="))
        given = f"{dtype.onnx_name} {list(source.shape)}"
    else:
        dtype, given = DType.UNDEFINED, type(source).__name__
    if dtype is not target.dtype or tuple(source.shape) != target.shape:
        raise InvalidArgument(f"a tensor on {target.device} is {target.dtype.onnx_name} {list(target.shape)}, got {given}")
    if isinstance(source, DeviceTensor) and gpu_that_has(source) is gpu:
        gpu.copy(source.handle, target.handle)
    elif isinstance(source, DeviceTensor) and gpu.reaches(gpu_that_has(source)):
        gpu.copy_from(source.handle, target.handle)
    else:
        array = taken_from_device(source) if isinstance(source, DeviceTensor) else source
        gpu.fill(target.handle, np.asarray(array, dtype.numpy, order="C"))
