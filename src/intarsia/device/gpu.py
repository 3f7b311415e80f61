"""A device that runs printed kernels: memory, copies, launches, and counters that tell what crossed the border."""

from __future__ import annotations

import collections
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.schedules import Kernel
from intarsia.codegen.clike.storage_types import SEVERAL_IN_A_BYTE, stored_nbytes
from intarsia.device import forking
from intarsia.ep.device import DataTransfer, Device, DeviceTensor
from intarsia.errors import EPFail, OutOfMemory
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.tensor_proto import pack_bits, unpack_bits
from intarsia.lazy_dataclass import dataclass

ALIGNMENT = 256
"""Where values may begin in a buffer, on every device."""
_POOLED_NBYTES = 256 << 20  # of freed buffers that are retained for the next ones of their size


def no_such_device(index: int, devices: Sequence[Device]) -> str:
    """Why a device cannot be the one with this number; "" where there is one."""
    if 0 <= index < len(devices):
        return ""
    names = ", ".join(f"{i}: {d.description}" for i, d in enumerate(devices))
    count = f"there are {len(devices)} devices" if len(devices) != 1 else "there is 1 device"
    return f"device_id is {index}; {count} ({names})"


def aligned(nbytes: int) -> int:
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


@dataclass
class Counters:
    """What has happened on a device since it was opened: copies, in number and bytes, launches and compiled kernels; how often
    launches became a graph, and how often such a graph was started (its launches count as well).

    `staged_in_nbytes`: of what was copied in, so much by way of memory that the device reads when it comes to it, while the
    caller goes on.
    """

    copies_in: int = 0
    copied_in_nbytes: int = 0
    staged_in_nbytes: int = 0
    copies_out: int = 0
    copied_out_nbytes: int = 0
    launches: int = 0
    compiled: int = 0
    graphs: int = 0
    replays: int = 0
    allocated_nbytes: int = 0
    peak_nbytes: int = 0


class Memory:
    """One buffer of a device. It goes back to the device's pool with its last reference."""

    __slots__ = ("buffer", "gpu", "nbytes", "use")

    def __init__(self, gpu: Gpu, buffer: Any, nbytes: int, use: str) -> None:
        self.gpu, self.buffer, self.nbytes, self.use = gpu, buffer, nbytes, use

    def __del__(self) -> None:
        self.gpu.recycle(self)


@dataclass(frozen=True)
class Slice:
    """Some bytes of a buffer: what a `DeviceTensor` of these devices has as its handle."""

    memory: Memory
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Launch:
    """A kernel on memory: operands, outputs, sizes (unless they are arguments) and status in the order of its text's bindings.
    `node`: whose it is."""

    kernel: Kernel
    program: Any
    bindings: tuple[Slice, ...]
    node: str = ""


@dataclass(frozen=True)
class DeviceLimits:
    """What a device can hold and bind."""

    buffer_nbytes: int
    binding_nbytes: int


class DeviceLock:
    """A lock that one thread may take several times, and that does some work before it is let go.

    Args:
        work: is called with the lock held, when whoever holds it lets go of it for good.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._lock, self._work = threading.RLock(), work
        self._owner = self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self._work()
        finally:
            self._depth -= 1
            if not self._depth:
                self._owner = 0
            self._lock.release()

    def let_go(self) -> None:
        """Have the work done: now, where nobody holds the lock, else by the thread that does."""
        if self._owner != threading.get_ident() and self._lock.acquire(blocking=False):
            self._owner, self._depth = threading.get_ident(), 1
            self.__exit__()


class Gpu:
    """Base of all devices. Subclasses implement what raises NotImplementedError; all methods may be called by any thread."""

    lost: str = ""  # why nothing can be done with it any more

    def __init__(self, device: Device, dialect: Dialect, limits: DeviceLimits, memory_limit: int = 0) -> None:
        self.device, self.dialect, self.limits, self.memory_limit = device, dialect, limits, memory_limit
        self.counters = Counters()
        self.lock = DeviceLock(self._reclaim)
        self._programs: dict[str, Any] = {}
        self._pool: dict[int, list[Any]] = {}
        self._lent: dict[int, Any] = {}  # buffers of living `Memory`: a buffer may not die with it in one garbage collection
        self._pooled_nbytes = 0
        self._returned: collections.deque[tuple[Any, int, str]] = collections.deque()  # of memory that nobody uses
        self._held: dict[str, int] = {}  # bytes in use, by what for
        forking.opened(self)

    def release_graphs(self) -> bool:
        """Drop graphs of launches that were captured, on devices that do that. Returns whether there were any."""
        return False

    # --- what a device implements ---

    def identity(self) -> tuple[str, ...]:
        """Device, driver and compiler with their versions: what decides whether its results are right."""
        raise NotImplementedError

    def _create(self, nbytes: int) -> Any:
        """A buffer. Raises OutOfMemory."""
        raise NotImplementedError

    def _destroy(self, buffer: Any) -> None:
        raise NotImplementedError

    def _write(self, buffer: Any, offset: int, data: memoryview) -> None:
        """Write bytes (a multiple of 4), ordered with launches."""
        raise NotImplementedError

    def _read(self, buffer: Any, offset: int, nbytes: int) -> memoryview:
        """Wait for what was launched before, and read bytes (a multiple of 4)."""
        raise NotImplementedError

    def _copy(self, source: Slice, target: Slice, nbytes: int) -> None:
        """Copy bytes (a multiple of 4) within the device, ordered with launches."""
        raise NotImplementedError

    def _compile(self, kernel: Kernel) -> Any:
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until everything that was started is done."""
        raise NotImplementedError

    def address_of(self, buffer: Any) -> int:
        """What another library knows a buffer by; `exchange.KINDS` says which devices have that."""
        raise NotImplementedError

    def buffer_at(self, address: int) -> Any:
        """The buffer that another library knows by this. Raises InvalidArgument."""
        raise NotImplementedError

    @property
    def dlpack_stream(self) -> int | None:
        """What DLPack's producers are told to have their memory ready for; None: of this kind of device they take nothing."""
        return None

    def bind(self, launch: Launch) -> Any:
        """A launch tied to its memory, which `run` may be given many times."""
        return launch

    def bound_again(self, bound: Any, launch: Launch) -> Any:
        """What `bind` made of a launch, tied to other memory. `bound` is not used any more."""
        return self.bind(launch)

    def run(self, bound: Sequence[Any]) -> None:
        """Start launches, one after the other: each sees what those before it wrote."""
        raise NotImplementedError

    def timed(self, bound: Sequence[Any]) -> list[float]:
        """Run launches, wait for them, and say how long each took by the device's own clock, in nanoseconds.

        An empty list where the device has no clock: they have run all the same.
        """
        self.run(bound)
        return []

    # --- memory ---

    def allocate(self, nbytes: int, use: str = "values") -> Memory:
        """A buffer of at least `nbytes` bytes, its content undefined. `use`: what for, to be said where memory runs out.

        Raises:
            OutOfMemory: more than one buffer may have, than the limit of the options allows, or than the device has.
        """
        nbytes = self._extent(nbytes)
        if nbytes > self.limits.buffer_nbytes:
            raise OutOfMemory(
                f"{self.device}: a buffer of {nbytes:,} bytes for {use} was requested; this device allows "
                f"{self.limits.buffer_nbytes:,}: "
                "use a smaller batch or a shorter input"
            )
        with self.lock:
            self._reclaim()
            retained = self._pool.get(nbytes)
            if retained:
                self._pooled_nbytes -= nbytes
                buffer = retained.pop()
            else:
                self._require(nbytes, use)
                buffer = self._created(nbytes, use)
            self._lent[id(buffer)] = buffer
            self._held[use] = self._held.get(use, 0) + nbytes
            self.counters.allocated_nbytes += nbytes
            self.counters.peak_nbytes = max(self.counters.peak_nbytes, self.counters.allocated_nbytes)
        return Memory(self, buffer, nbytes, use)

    def holders(self) -> dict[str, int]:
        """Bytes in use by what they are for, the most first."""
        with self.lock:
            return dict(sorted(((u, n) for u, n in self._held.items() if n), key=lambda pair: -pair[1]))

    def account(self, use: str, nbytes: int) -> None:
        """Count memory that is not this object's to give, such as a driver's own, until `forget`."""
        with self.lock:
            self._held[use] = self._held.get(use, 0) + nbytes
            self.counters.allocated_nbytes += nbytes
            self.counters.peak_nbytes = max(self.counters.peak_nbytes, self.counters.allocated_nbytes)

    def forget(self, use: str, nbytes: int) -> None:
        """Memory that was counted by `account` is free again. The garbage collector may call this, as `recycle`."""
        self._returned.append((None, nbytes, use))
        self.lock.let_go()

    def holders_text(self) -> str:
        held = ", ".join(f"{use} {nbytes:,}" for use, nbytes in self.holders().items())
        return f"in use by all sessions on it: {held or 'nothing'}"

    def _extent(self, nbytes: int) -> int:
        """The size of the block for so many bytes."""
        return aligned(nbytes)

    def _created(self, nbytes: int, use: str) -> Any:
        try:
            return self._create(nbytes)
        except OutOfMemory:
            self.trim()
        try:
            return self._create(nbytes)
        except OutOfMemory as error:
            if not self.release_graphs():
                raise OutOfMemory(f"{error} (for {use}; {self.holders_text()})") from None
        return self._created(nbytes, use)

    def _require(self, nbytes: int, use: str) -> None:
        held = self.counters.allocated_nbytes + self._pooled_nbytes
        if self.memory_limit and held + nbytes > self.memory_limit:
            self.trim()
            if self.counters.allocated_nbytes + nbytes > self.memory_limit:
                self.release_graphs()
            if self.counters.allocated_nbytes + nbytes > self.memory_limit:
                used = self.counters.allocated_nbytes
                raise OutOfMemory(
                    f"{self.device}: {nbytes:,} more bytes were requested for {use}, {used:,} are in use and "
                    f"the limit is {self.memory_limit:,}: raise the limit, or use a smaller batch ({self.holders_text()})"
                )

    def recycle(self, memory: Memory) -> None:
        """Keep the buffer of memory that nobody uses for the next one of its size.

        The garbage collector calls this, so in any thread, the driver's too, and in the middle of anything: it waits for
        nobody. Where the lock is held, who holds it takes the buffer back when it lets go.
        """
        self._returned.append((memory.buffer, memory.nbytes, memory.use))
        self.lock.let_go()

    def _reclaim(self) -> None:
        """Take back what was returned, with the lock held."""
        while self._returned:
            buffer, nbytes, use = self._returned.popleft()
            self.counters.allocated_nbytes -= nbytes
            self._held[use] -= nbytes
            if buffer is None:
                continue
            self._lent.pop(id(buffer))
            if self._pooled_nbytes + nbytes > _POOLED_NBYTES:
                self._destroy(buffer)
                continue
            self._pooled_nbytes += nbytes
            self._pool.setdefault(nbytes, []).append(buffer)

    def trim(self) -> int:
        """Give back pooled buffers; returns bytes freed."""
        with self.lock:
            self._reclaim()
            freed, self._pooled_nbytes = self._pooled_nbytes, 0
            for buffers in self._pool.values():
                for buffer in buffers:
                    self._destroy(buffer)
            self._pool.clear()
            return freed

    # --- copies ---

    def write(self, array: np.ndarray, use: str = "values") -> Slice:
        """The elements of a C-contiguous array, on the device. `use`: as for `allocate`."""
        nbytes = stored_nbytes(DType.of(array.dtype), array.size)
        place = Slice(self.allocate(nbytes, use), 0, nbytes)
        self.fill(place, array)
        return place

    def fill(self, place: Slice, array: np.ndarray) -> None:
        dtype = DType.of(array.dtype)
        data = pack_bits(array, dtype) if dtype in SEVERAL_IN_A_BYTE else np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        nbytes = data.nbytes
        if nbytes % 4:
            data = np.concatenate([data, np.zeros(-data.nbytes % 4, np.uint8)])
        with self.lock:
            if data.nbytes:
                self._write(place.memory.buffer, place.offset, data.data)
            self.counters.copies_in += 1
            self.counters.copied_in_nbytes += nbytes

    def read(self, place: Slice, nbytes: int) -> bytes | memoryview:
        """Bytes from the device, once everything launched before is done."""
        with self.lock:
            self.counters.copies_out += 1
            self.counters.copied_out_nbytes += nbytes
            return self._read(place.memory.buffer, place.offset, -(-nbytes // 4) * 4)[:nbytes] if nbytes else b""

    def copy(self, source: Slice, target: Slice) -> None:
        """Copy between two places of this device."""
        with self.lock:
            if source.nbytes:
                self._copy(source, target, -(-min(source.nbytes, target.nbytes) // 4) * 4)

    def reaches(self, other: Gpu) -> bool:
        """Whether `copy_from` works with memory of that device, one of the same kind."""
        return False

    def copy_from(self, source: Slice, target: Slice) -> None:
        """Copy from memory of a device that this one reaches into memory of its own, behind what either has been given."""
        raise NotImplementedError

    # --- kernels ---

    def prepare(self, kernels: Sequence[Kernel]) -> None:
        """Compile what `program` will be requested for soon, where that is faster for several at once."""

    def program(self, kernel: Kernel) -> Any:
        """The compiled text of a kernel, compiled once."""
        with self.lock:
            found = self._programs.get(kernel.source)
            if found is None:
                found = self._programs[kernel.source] = self._compile(kernel)
                self.counters.compiled += 1
            return found


@dataclass(frozen=True)
class GpuTransfer(DataTransfer):
    """Copies between the host and a `Gpu`. Elements lie on the device as NumPy has them; those of four bits and fewer side by
    side (`storage_types.SEVERAL_IN_A_BYTE`)."""

    gpu: Gpu = field(repr=False)

    def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
        if array.dtype == object:
            raise EPFail(f"{device}: a tensor of strings cannot be copied to the device; its nodes run on the host")
        return DeviceTensor(DType.of(array.dtype), array.shape, device, self.gpu.write(array))

    def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
        count = math.prod(tensor.shape)
        data = tensor.handle.memory.gpu.read(tensor.handle, stored_nbytes(tensor.dtype, count))
        if tensor.dtype in SEVERAL_IN_A_BYTE:
            return unpack_bits(np.frombuffer(data, np.uint8), tensor.dtype, count).reshape(tensor.shape)
        return np.frombuffer(bytearray(data), tensor.dtype.numpy).reshape(tensor.shape)


class GpuAllocator:
    """Whole buffers of a `Gpu`."""

    divisible = True

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.device = gpu, gpu.device

    def allocate(self, nbytes: int) -> Slice:
        return Slice(self.gpu.allocate(nbytes), 0, nbytes)

    def free(self, buffer: Slice) -> None:
        """Nothing to do: the memory goes back with its last reference."""
