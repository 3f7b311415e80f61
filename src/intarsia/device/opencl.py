"""OpenCL by the package pyopencl. Imported when a provider requests a device."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.codegen.clike import GPU, PROCESSOR, Kernel, Limits, OpenCl
from intarsia.device import forking
from intarsia.device.gpu import ALIGNMENT, DeviceLimits, Gpu, Launch, Slice, no_such_device
from intarsia.device.opened import OpenDevices
from intarsia.ep.device import Device
from intarsia.errors import DeviceLost, EPFail, InvalidArgument, OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

INSTALL = "install the package pyopencl: pip install 'intarsia[opencl]'"
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_MOST_THREADS = 256
_BLOCKS, _BLOCK_NBYTES = 4, 1 << 20  # of pinned memory
_CONTEXT_LOST = -9999  # NVIDIA's driver, for a kernel that read or wrote what is not its own
_logger = get_logger("intarsia")


@functools.cache
def known() -> tuple[Any, ...]:
    """Devices (pyopencl.Device) that compile kernels: GPUs and accelerators come before CPUs."""
    if importlib.util.find_spec("pyopencl") is None:
        return ()
    _show_system_vendors()
    forking.use("opencl")  # drivers for processors start threads as soon as they list devices
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error:  # there is none
        return ()
    found = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except cl.Error:  # a platform without devices
            continue
    found = [d for d in found if d.available and d.compiler_available and d.endian_little]
    return tuple(sorted(found, key=lambda d: bool(d.type & cl.device_type.CPU)))


def _show_system_vendors() -> None:
    """The loader in pyopencl's wheels looks only where other wheels put their drivers, unless it is told of the system's."""
    found = importlib.util.find_spec("pyopencl")
    (package,) = (found and found.submodule_search_locations) or ("",)
    of_wheels = [*Path(package).glob(".libs/*.icd"), *Path(package).parent.glob("pyopencl.libs/*.icd")]
    if not of_wheels and _SYSTEM_VENDORS.is_dir():
        os.environ.setdefault("OCL_ICD_VENDORS", str(_SYSTEM_VENDORS))


def missing() -> str:
    """What is missing for a device; "" where nothing is."""
    if why := forking.unusable("opencl"):
        return why
    if importlib.util.find_spec("pyopencl") is None:
        return f"the package pyopencl is not installed: {INSTALL}"
    if not known():
        return "no OpenCL platform has a device: install the driver of its vendor (Debian, for the CPU: pocl-opencl-icd)"
    return ""


def described(index: int, device: Any) -> Device:
    import pyopencl as cl

    software = bool(device.type & cl.device_type.CPU)
    name = f"{device.name.strip()} ({device.platform.name.strip()})"
    return Device("opencl", index, vendor=device.vendor.strip(), description=name, software=software)


_opened: OpenDevices[tuple[int, int], OpenClDevice] = OpenDevices("opencl", "OpenCL")


def open_device(index: int = 0, memory_limit: int = 0) -> OpenClDevice:
    """A device by its number: one for all sessions of the process, opened again where it was lost.

    Raises:
        EPFail: there is no such device, or it gives no context.
    """
    return _opened.get(
        (index, memory_limit),
        lambda: missing() or no_such_device(index, [described(i, d) for i, d in enumerate(known())]),
        lambda: OpenClDevice(index, known()[index], memory_limit),
    )


class Bound(NamedTuple):
    """A launch: the grid in threads, and the buffers, which a kernel object does not keep alive by itself."""

    kernel: Any
    size: tuple[int, int, int]
    group: tuple[int, int, int]
    parts: tuple[Any, ...]


@dataclass
class _Block:
    """Pinned host memory, mapped as long as the device is open. `event`: of the copy that reads it; None: it was never read."""

    memory: Any
    array: np.ndarray
    event: Any = None


class OpenClDevice(Gpu):
    """One context with one queue, which runs in order. What is small goes in by a ring of pinned blocks, so that the caller
    does not wait until the kernels before are done."""

    def __init__(self, index: int, device: Any, memory_limit: int = 0) -> None:
        import pyopencl as cl

        self._cl, self._handle = cl, device
        self._clock: Any = None
        self._blocks: list[_Block] = []
        self._next_block = 0
        try:
            self._context = cl.Context([device])
            self._queue = cl.CommandQueue(self._context)
        except cl.Error as error:
            raise EPFail(f"OpenCL: {described(index, device).description} gives no context: {error}") from error
        assert ALIGNMENT % max(device.mem_base_addr_align // 8, 1) == 0, device.mem_base_addr_align
        exact = bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
        self._options = ["-cl-fp32-correctly-rounded-divide-sqrt"] if exact else []
        threads = min(device.max_work_group_size, device.max_work_item_sizes[0], _MOST_THREADS)
        limits = Limits(64, threads, min(device.local_mem_size, 65536), 1 << 20)
        on_processor = bool(device.type & cl.device_type.CPU)
        dialect = OpenCl(bool(device.double_fp_config), limits, PROCESSOR if on_processor else GPU)
        nbytes = device.max_mem_alloc_size // ALIGNMENT * ALIGNMENT
        super().__init__(described(index, device), dialect, DeviceLimits(nbytes, nbytes), memory_limit)

    def _create(self, nbytes: int) -> Any:
        try:
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, nbytes)
        except self._cl.Error as error:
            raise self._failure(f"could not make a buffer of {nbytes:,} bytes", error) from error

    def _destroy(self, buffer: Any) -> None:
        buffer.release()

    def _write(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Returns when the data may change, and mostly before the device has it; what the ring cannot hold is waited for."""
        source, copy = np.frombuffer(data, np.uint8), self._cl.enqueue_copy
        try:
            if source.nbytes > _BLOCKS * _BLOCK_NBYTES:
                copy(self._queue, buffer, source, dst_offset=offset)
                return
            for start in range(0, source.nbytes, _BLOCK_NBYTES):
                part = source[start : start + _BLOCK_NBYTES]
                block = self._block()
                block.array[: part.nbytes] = part
                held = block.array[: part.nbytes]
                block.event = copy(self._queue, buffer, held, dst_offset=offset + start, is_blocking=False)
                self.counters.staged_in_nbytes += part.nbytes
            self._queue.flush()
        except self._cl.Error as error:
            raise self._failure("could not write a buffer", error) from error

    def _block(self) -> _Block:
        """The next block of the ring, once the device has read it."""
        self._next_block += 1
        if len(self._blocks) < min(self._next_block, _BLOCKS):
            flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.ALLOC_HOST_PTR
            memory = self._cl.Buffer(self._context, flags, _BLOCK_NBYTES)
            queue = self._cl.CommandQueue(self._context)  # not behind kernels
            mapped = self._cl.enqueue_map_buffer(queue, memory, self._cl.map_flags.WRITE, 0, (_BLOCK_NBYTES,), np.uint8)
            self._blocks.append(_Block(memory, mapped[0]))
            return self._blocks[-1]
        block = self._blocks[(self._next_block - 1) % _BLOCKS]
        if block.event is not None:
            block.event.wait()
        return block

    def _read(self, buffer: Any, offset: int, nbytes: int) -> memoryview:
        found = np.empty(nbytes, np.uint8)
        try:
            self._cl.enqueue_copy(self._queue, found, buffer, src_offset=offset)
        except self._cl.Error as error:
            raise self._failure("could not read a buffer", error) from error
        return found.data

    def _copy(self, source: Slice, target: Slice, nbytes: int) -> None:
        first, second = source.memory.buffer, target.memory.buffer
        try:
            self._cl.enqueue_copy(
                self._queue, second, first, byte_count=nbytes, src_offset=source.offset, dst_offset=target.offset
            )
        except self._cl.Error as error:
            raise self._failure("could not copy a buffer", error) from error

    def finish(self) -> None:
        with self.lock:
            try:
                self._queue.finish()
            except self._cl.Error as error:
                raise self._failure("failed in a kernel or copy", error) from error

    def address_of(self, buffer: Any) -> int:
        return int(buffer.int_ptr)

    def buffer_at(self, address: int) -> Any:
        found = self._cl.Buffer.from_int_ptr(address, retain=True)
        if found.context != self._context:
            raise InvalidArgument(
                f"{self.device}: a buffer of another OpenCL context cannot be used here: give a copy of it, by way of the host"
            )
        return found

    def _compile(self, kernel: Kernel) -> Any:
        """From the cache where this driver has compiled the text before; it may refuse what it made then."""
        key = "opencl-" + content_key(kernel.source, *self._options, *self._compiler())
        known = get_cache().get(key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._cl.CompilerWarning)  # a compiler that says something else than errors
            if known is not None:
                try:
                    return self._cl.Program(self._context, [self._handle], [known]).build(self._options)
                except self._cl.Error as error:
                    _logger.info("%s: a kernel in the cache is compiled anew: %s", self.device, error)
            try:
                made = self._cl.Program(self._context, kernel.source).build(self._options, cache_dir=False)
            except self._cl.Error as error:
                raise EPFail(f"{self.device}: a kernel was not accepted: {error}\n{kernel.source}") from error
        (code,) = made.get_info(self._cl.program_info.BINARIES)
        if code:
            get_cache().put(key, bytes(code))
        return made

    def identity(self) -> tuple[str, ...]:
        return "opencl", *self._compiler()

    def _compiler(self) -> tuple[str, ...]:
        """What a program in machine code depends on besides its text."""
        device, platform = self._handle, self._handle.platform
        return device.name, device.vendor, device.version, device.driver_version, platform.name, platform.version

    def bind(self, launch: Launch) -> Bound:
        """A kernel object of its own: arguments belong to the object."""
        (gx, gy, gz), threads = launch.kernel.groups, launch.kernel.threads
        try:
            made = self._cl.Kernel(launch.program, "main_kernel")
            parts = tuple(self._part(s) for s in launch.bindings)
            made.set_args(*parts)
        except self._cl.Error as error:
            raise self._failure("could not bind buffers", error) from error
        return Bound(made, (gx * threads, gy, gz), (threads, 1, 1), parts)

    def bound_again(self, bound: Bound, launch: Launch) -> Bound:
        """By the same kernel object, which takes 0.1 ms to make: what was started has its arguments already."""
        try:
            parts = tuple(self._part(s) for s in launch.bindings)
            for i, part in enumerate(parts):
                bound.kernel.set_arg(i, part)
        except self._cl.Error as error:
            raise self._failure("could not bind buffers", error) from error
        return bound._replace(parts=parts)

    def _part(self, place: Slice) -> Any:
        buffer = place.memory.buffer
        return buffer if place.offset == 0 else buffer.get_sub_region(place.offset, max(place.nbytes, 4))

    def run(self, bound: Sequence[Bound]) -> None:
        with self.lock:
            try:
                for kernel, size, group, _ in bound:
                    self._cl.enqueue_nd_range_kernel(self._queue, kernel, size, group)
                self._queue.flush()
            except self._cl.Error as error:
                raise self._failure("could not start a kernel", error) from error
            self.counters.launches += len(bound)

    def timed(self, bound: Sequence[Bound]) -> list[float]:
        """In a queue that keeps times."""
        with self.lock:
            try:
                if self._clock is None:
                    wanted = self._cl.command_queue_properties.PROFILING_ENABLE
                    self._clock = self._cl.CommandQueue(self._context, properties=wanted)
                self._queue.finish()
                events = [self._cl.enqueue_nd_range_kernel(self._clock, *launch[:3]) for launch in bound]
                self._clock.finish()
                self.counters.launches += len(bound)
                return [float(event.profile.end - event.profile.start) for event in events]
            except self._cl.Error as error:
                raise self._failure("could not start a kernel", error) from error

    def _failure(self, what: str, error: Any) -> EPFail | OutOfMemory:
        """An error of pyopencl as one of ours."""
        known = self._cl.status_code
        if error.code in (known.DEVICE_NOT_AVAILABLE, known.INVALID_CONTEXT, known.INVALID_COMMAND_QUEUE, _CONTEXT_LOST):
            self.lost = str(error)
            return DeviceLost(f"{self.device} {what}: {error}; what was in its memory is gone: make the session again")
        text = f"{self.device} {what}: {error}"
        if error.code in (known.MEM_OBJECT_ALLOCATION_FAILURE, known.OUT_OF_RESOURCES, known.OUT_OF_HOST_MEMORY):
            return OutOfMemory(f"{text}: use a smaller batch or a shorter input")
        return EPFail(text)
