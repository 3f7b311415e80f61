"""GPUs whose driver works through streams, events and addresses: what CUDA and HIP have in common.

One stream runs kernels in order. Copies to and from the host go through a ring of pinned blocks, so that the caller does not
wait for a copy in, and run in the same stream or in one of their own, ordered with kernels by events. Launches that come again
are started as a graph (`graphs`).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

import numpy as np

from intarsia.codegen.clike import Dialect, Kernel
from intarsia.device.driver import Driver
from intarsia.device.gpu import ALIGNMENT, DeviceLimits, Gpu, Launch, Slice
from intarsia.device.graphs import USE, Graphs
from intarsia.device.libraries import LibraryProgram
from intarsia.ep.device import Device
from intarsia.errors import DeviceLost, EPFail, OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

_logger = get_logger("intarsia")
_BLOCKS, _BLOCK_NBYTES = 4, 1 << 20


@dataclass(frozen=True)
class Setup:
    """How a device is opened: sessions that ask for the same share it.

    Attributes:
        memory_limit: bytes; 0: none.
        doubling: sizes of blocks are powers of two, so that a freed one serves more requests.
        stream: address of the stream to work in (0: the default one); None: one of its own.
        separate_copies: copies run in a stream of their own, ordered with kernels by events.
        external: addresses of functions `void* (size_t)` and `void (void*)` to have memory from and to give it back; 0: the
            driver's.
    """

    index: int = 0
    memory_limit: int = 0
    doubling: bool = True
    stream: int | None = None
    separate_copies: bool = False
    external: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Call:
    """A kernel, or a library's program, with its arguments.

    `values` and `pointers` are what the driver reads; `key` is equal for equal calls. `shared_nbytes`: see `Kernel`.
    """

    function: Any
    groups: tuple[int, int, int]
    threads: int
    values: np.ndarray
    address: int
    key: tuple[int, bytes, tuple[int, int, int]]
    node: str
    pointers: np.ndarray
    shared_nbytes: int = 0


@dataclass
class _Block:
    """Pinned host memory. `event`: when the device is done with it; `used`: whether it has been given to the device at all."""

    address: int
    event: Any
    used: bool = False


class StreamDevice(Gpu):
    """A device's context with one stream, which runs in order. Subclasses say how a text becomes machine code.

    Attributes:
        compilers: texts that are compiled at a time.
    """

    compilers: int = 1

    def __init__(self, driver: Driver, setup: Setup, device: Device, dialect: Dialect) -> None:
        self._driver, self.setup = driver, setup
        self.device = device
        self._context = self._ask(driver.context(setup.index), "gives no context")
        with self._current():
            total = self._ask(driver.memory_info(), "does not tell its memory")[1]
            self._stream = self._ask(driver.stream(), "gives no stream") if setup.stream is None else setup.stream
            self._copies = self._stream
            if setup.separate_copies:
                self._copies = self._ask(driver.stream(), "gives no stream")
                self._event = self._ask(driver.event(False), "gives no event")
        self._blocks: list[_Block] | None = None
        self._next_block = 0
        alloc, free = setup.external
        self._alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(alloc) if alloc else None
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free) if free else None
        self._capture: Any = None
        self.graph_keepers: WeakSet[Graphs] = WeakSet()
        nbytes = total // ALIGNMENT * ALIGNMENT
        super().__init__(device, dialect, DeviceLimits(nbytes, nbytes), setup.memory_limit)

    def machine_code(self, source: str) -> bytes:
        """A kernel's text as code for this device, from the cache where it was compiled before."""
        raise NotImplementedError

    # --- the driver ---

    def _ask(self, result: tuple[Any, ...], what: str) -> Any:
        """The results of a call; its error as one of ours."""
        error, *values = result
        if int(error):
            raise self._failure(what, error)
        return values[0] if len(values) == 1 else tuple(values)

    def _failure(self, doing: str, error: Any) -> EPFail | OutOfMemory:
        name = self._driver.name_of(error)
        text = f"{self.device} {doing}: {name}"
        if name == self._driver.out_of_memory:
            return OutOfMemory(f"{text}: use a smaller batch or a shorter input, or close other programs that use the GPU")
        if name in self._driver.lost:
            self.lost = name
            final = name in self._driver.final
            what = "start the process again, since its driver runs nothing more" if final else "make the session again"
            return DeviceLost(f"{text}; what was in its memory is gone: {what}")
        return EPFail(text + self._driver.advice(name))

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """The context is the calling thread's, which gets its own back."""
        before = self._ask(self._driver.enter(self._context), "could not be used")
        try:
            yield
        finally:
            self._driver.leave(before)

    @contextlib.contextmanager
    def working(self) -> Iterator[int]:
        """For libraries that start work by themselves: the device is held, its context the thread's. The stream to use."""
        with self.lock, self._current():
            yield int(self._stream)

    # --- memory ---

    def _extent(self, nbytes: int) -> int:
        nbytes = super()._extent(nbytes)
        return min(1 << (nbytes - 1).bit_length(), max(nbytes, self.limits.buffer_nbytes)) if self.setup.doubling else nbytes

    def _create(self, nbytes: int) -> int:
        with self._current():
            if self._alloc is None:
                return int(self._ask(self._driver.allocate(nbytes), f"could not allocate {nbytes:,} bytes"))
            address = self._alloc(nbytes)
        if not address:
            raise OutOfMemory(f"{self.device}: gpu_external_alloc gave no memory for {nbytes:,} bytes")
        return int(address)

    def _destroy(self, buffer: int) -> None:
        with self._current():
            if self._free is None:
                self._driver.free(buffer)
            else:
                self._free(buffer)

    def _write(self, buffer: int, offset: int, data: memoryview) -> None:
        """In pieces through pinned memory; returns when all is there, and mostly before the device has it."""
        array = np.frombuffer(data, np.uint8)
        source, target, nbytes = array.ctypes.data, buffer + offset, array.nbytes
        with self._current(), self._copying():
            for start in range(0, nbytes, _BLOCK_NBYTES):
                count = min(_BLOCK_NBYTES, nbytes - start)
                block = self._block()
                if block is None:  # the driver has read pageable memory when the call returns, whenever the copy takes place
                    self._copy_in(target, source, nbytes)
                    return
                ctypes.memmove(block.address, source + start, count)
                self._copy_in(target + start, block.address, count)
                self._done_with(block)
                self.counters.staged_in_nbytes += count

    def _copy_in(self, target: int, source: int, nbytes: int) -> None:
        self._ask(self._driver.copy_in(target, source, nbytes, self._copies), "could not write memory")

    def _read(self, buffer: int, offset: int, nbytes: int) -> memoryview:
        found = np.empty(nbytes, np.uint8)
        target, source = found.ctypes.data, buffer + offset
        with self._current(), self._copying():
            waiting: list[tuple[_Block, int, int]] = []
            for start in range(0, nbytes, _BLOCK_NBYTES):
                if waiting and len(waiting) == len(self._blocks or ()):  # the next block is the oldest
                    self._fetched(target, *waiting.pop(0))
                count = min(_BLOCK_NBYTES, nbytes - start)
                block = self._block()
                if block is None:
                    self._copy_out(target, source, nbytes)
                    break
                self._copy_out(block.address, source + start, count)
                self._done_with(block)
                waiting.append((block, start, count))
            for piece in waiting:
                self._fetched(target, *piece)
            self._ask(self._driver.synchronize(self._copies), "failed in a kernel or copy")
        return found.data

    def _copy_out(self, target: int, source: int, nbytes: int) -> None:
        self._ask(self._driver.copy_out(target, source, nbytes, self._copies), "could not read memory")

    def _fetched(self, target: int, block: _Block, start: int, count: int) -> None:
        self._ask(self._driver.wait(block.event), "failed in a kernel or copy")
        ctypes.memmove(target + start, block.address, count)

    def _block(self) -> _Block | None:
        """The next block of the ring, once the device is done with it; None where no host memory could be pinned."""
        if self._blocks is None:
            self._blocks = []
            for _ in range(_BLOCKS):
                error, *found = self._driver.allocate_pinned(_BLOCK_NBYTES)
                if int(error):
                    _logger.info("%s: no pinned memory: %s", self.device, self._driver.name_of(error))
                    break
                self._blocks.append(_Block(int(found[0]), self._ask(self._driver.event(False), "gives no event")))
        if not self._blocks:
            return None
        block = self._blocks[self._next_block % len(self._blocks)]
        self._next_block += 1
        if block.used:
            self._ask(self._driver.wait(block.event), "failed in a kernel or copy")
        return block

    def _done_with(self, block: _Block) -> None:
        self._ask(self._driver.record(block.event, self._copies), "could not record an event")
        block.used = True

    def _copy(self, source: Any, target: Any, nbytes: int) -> None:
        with self._current():
            first, second = source.memory.buffer + source.offset, target.memory.buffer + target.offset
            self._ask(self._driver.copy_within(second, first, nbytes, self._stream), "could not copy memory")

    def finish(self) -> None:
        with self.lock, self._current():
            for stream in dict.fromkeys((self._stream, self._copies)):
                self._ask(self._driver.synchronize(stream), "failed in a kernel or copy")

    @property
    def dlpack_stream(self) -> int:
        return int(self._stream)

    def address_of(self, buffer: int) -> int:
        return int(buffer)

    def buffer_at(self, address: int) -> int:
        return address

    def reaches(self, other: Gpu) -> bool:
        """The same GPU opened in another way: its context is one, so are the addresses."""
        return isinstance(other, StreamDevice) and other.device == self.device and not other.lost

    def copy_from(self, source: Slice, target: Slice) -> None:
        other, driver = source.memory.gpu, self._driver
        assert isinstance(other, StreamDevice)
        first, second = sorted((self, other), key=id)  # whoever copies in the other direction takes the same one first
        with first.lock, second.lock, self._current():
            event = self._ask(driver.event(False), "gives no event")
            try:
                self._after(event, other._stream, self._stream)
                to, start = target.memory.buffer + target.offset, source.memory.buffer + source.offset
                nbytes = -(-min(source.nbytes, target.nbytes) // 4) * 4
                self._ask(driver.copy_within(to, start, nbytes, self._stream), "could not copy memory")
                self._after(event, self._stream, other._stream)
            finally:
                driver.drop_event(event)

    @contextlib.contextmanager
    def _copying(self) -> Iterator[None]:
        """Kernels that were started before come before the copy, and later ones behind it."""
        if not self.setup.separate_copies:
            yield
            return
        self._order(self._stream, self._copies)
        yield
        self._order(self._copies, self._stream)

    def _order(self, first: Any, then: Any) -> None:
        self._after(self._event, first, then)

    def _after(self, event: Any, first: Any, then: Any) -> None:
        self._ask(self._driver.record(event, first), "could not record an event")
        self._ask(self._driver.hold(then, event), "could not wait for an event")

    # --- kernels ---

    def _compile(self, kernel: Kernel) -> Any:
        code = self.machine_code(kernel.source)
        with self._current():
            function = self._ask(self._driver.function(code), "could not load a kernel")
            if kernel.shared_nbytes:
                self._ask(
                    self._driver.allow_shared(function, kernel.shared_nbytes), "has too little shared memory for a kernel"
                )
            return function

    def prepare(self, kernels: Sequence[Kernel]) -> None:
        """By as many threads as there are `compilers`: the compiler does not hold Python's lock."""
        with self.lock:
            new = list({k.source: k for k in kernels if k.source not in self._programs}.values())
        if self.compilers < 2 or len(new) < 2:
            return
        with ThreadPoolExecutor(min(self.compilers, len(new)), "intarsia-compile") as pool:
            made = list(pool.map(self._compile, new))
        with self.lock:
            for kernel, program in zip(new, made, strict=True):
                if kernel.source not in self._programs:
                    self._programs[kernel.source] = program
                    self.counters.compiled += 1

    def bind(self, launch: Launch) -> Call:
        kernel = launch.kernel
        addresses = [s.memory.buffer + s.offset for s in launch.bindings]
        before = sum(kernel.windows)  # operands and outputs; then sizes, each in a word of its own, then the status
        values = np.array([*addresses[:before], *(n & 0xFFFFFFFF for n in kernel.sizes), *addresses[before:]], np.uint64)
        pointers = (values.ctypes.data + 8 * np.arange(len(values))).astype(np.uint64)
        key = (id(launch.program), values.tobytes(), kernel.groups)
        address = pointers.ctypes.data
        threads, shared = kernel.threads, kernel.shared_nbytes
        return Call(launch.program, kernel.groups, threads, values, address, key, launch.node, pointers, shared)

    def run(self, bound: Sequence[Call]) -> None:
        with self.lock, self._current():
            self._launch(bound)
            self.counters.launches += len(bound)

    def _launch(self, bound: Sequence[Call]) -> None:
        launch, stream = self._driver.launch, self._stream
        for call in bound:
            if isinstance(call.function, LibraryProgram):
                if why := call.function.start(stream, call.values):
                    raise EPFail(f"{self.device} could not start {call.function.title} of {call.node}: {why}")
                continue
            (error,) = launch(call.function, call.groups, call.threads, stream, call.address, call.shared_nbytes)
            if int(error):
                raise self._failure(f"could not start a kernel of {call.node}", error)

    def timed(self, bound: Sequence[Call]) -> list[float]:
        driver = self._driver
        with self.lock, self._current():
            events = [self._ask(driver.event(True), "gives no event") for _ in range(len(bound) + 1)]
            try:
                self._ask(driver.record(events[0], self._stream), "could not record an event")
                for call, event in zip(bound, events[1:], strict=True):
                    self._launch((call,))
                    self._ask(driver.record(event, self._stream), "could not record an event")
                self._ask(driver.wait(events[-1]), "failed in a kernel")
                self.counters.launches += len(bound)
                pairs = itertools.pairwise(events)
                return [1e6 * self._ask(driver.milliseconds(a, b), "could not tell a time") for a, b in pairs]
            finally:
                for event in events:
                    driver.drop_event(event)

    # --- graphs ---

    @property
    def capture_stream(self) -> Any:
        """A stream in which nothing is started but what is captured: whoever uses `setup.stream` as well is not disturbed, and
        the default stream takes no capture."""
        if self._capture is None:
            self._capture = self._ask(self._driver.stream(), "gives no stream")
        return self._capture

    def release_graphs(self) -> bool:
        """Those of all sessions; launches that come again are captured anew."""
        with self.lock:
            self._reclaim()
            before = self._held.get(USE, 0)
            for keeper in tuple(self.graph_keepers):
                keeper.release()
            self._reclaim()
            return self._held.get(USE, 0) < before
