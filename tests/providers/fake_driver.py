"""GPUs that are driven through streams, imitated over the host's memory: everything but that kernels compute.

`Machine` is what the hardware does; `fake_cuda` and `fake_hip` are drivers over it. Work in a stream is done when somebody
waits for it and not before, in the order that events demand: who reuses memory too early reads wrong numbers. Launches check
that their arguments lie in living allocations. Errors can be ordered.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ALIGNMENT = 256  # of all memory
KERNEL_NS = 1500  # what a launch takes


@dataclass
class Event:
    timed: bool
    recorded: int = 0  # how many times it was given to a stream
    passed: int = 0  # how many of those are past
    at_ns: int = 0


@dataclass
class Machine:
    """One or more GPUs.

    Attributes:
        memory_nbytes: of all.
        failures: function -> the error that its next call answers.
        log: what was started, in order.
        pinnable: how many bytes of host memory can be pinned.
    """

    memory_nbytes: int = 1 << 30
    devices: int = 1
    failures: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    allocations: dict[int, Any] = field(default_factory=dict)
    pinned: dict[int, Any] = field(default_factory=dict)
    pinnable: int = 1 << 30
    current: list[Any] = field(default_factory=list)
    clock_ns: int = 0
    captured: list[Any] | None = None
    streams: dict[int, deque[tuple[Any, ...]]] = field(default_factory=lambda: {0: deque()})
    objects: dict[int, Any] = field(default_factory=dict)
    _handles: int = 1000

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """What a driver needs besides."""

    def handle(self, thing: Any = None) -> int:
        self._handles += 1
        self.objects[self._handles] = thing
        return self._handles

    # --- streams ---

    def stream(self) -> int:
        made = self.handle()
        self.streams[made] = deque()
        return made

    def push(self, stream: int, *work: Any) -> None:
        assert self.current, "no device is the thread's"
        self.streams[stream].append(work)

    def drain(self, stream: int, until: tuple[Event, int] | None = None) -> None:
        """Do what was started in the stream; `until`: no more than to this state of an event."""
        waiting = self.streams[stream]
        while waiting and not (until and until[0].passed >= until[1]):
            kind, *rest = waiting.popleft()
            if kind == "do":
                rest[0]()
            elif kind == "record":
                rest[0].passed, rest[0].at_ns = rest[1], self.clock_ns
            else:
                self.wait(rest[0], rest[1])

    def wait(self, event: Event, count: int) -> None:
        for stream in list(self.streams):
            if event.passed < count and any(w[0] == "record" and w[1] is event for w in self.streams[stream]):
                self.drain(stream, (event, count))
        assert event.passed >= count, "an event that nobody will record"

    def drain_all(self) -> None:
        for stream in list(self.streams):
            self.drain(stream)

    def record(self, event: int, stream: int) -> None:
        thing = self.objects[event]
        thing.recorded += 1
        self.push(stream, "record", thing, thing.recorded)

    def hold(self, stream: int, event: int) -> None:
        thing = self.objects[event]
        self.push(stream, "wait", thing, thing.recorded)

    def event_wait(self, event: int) -> None:
        self.wait(self.objects[event], self.objects[event].recorded)

    def milliseconds(self, start: int, end: int) -> float:
        a, b = self.objects[start], self.objects[end]
        assert a.timed and b.timed and a.passed and b.passed
        return (b.at_ns - a.at_ns) / 1e6

    # --- memory ---

    @property
    def used_nbytes(self) -> int:
        return sum(len(b) for b in self.allocations.values())

    def allocate(self, nbytes: int) -> int:
        """An address; 0 where there is no memory left."""
        assert self.current, "no device is the thread's"
        if self.used_nbytes + nbytes > self.memory_nbytes:
            return 0
        room = (ctypes.c_char * (nbytes + ALIGNMENT))()
        block = (ctypes.c_char * nbytes).from_buffer(room, -ctypes.addressof(room) % ALIGNMENT)
        self.allocations[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address: int) -> None:
        self.drain_all()
        del self.allocations[address]

    def pin(self, nbytes: int) -> int:
        if sum(len(b) for b in self.pinned.values()) + nbytes > self.pinnable:
            return 0
        block = (ctypes.c_char * nbytes)()
        self.pinned[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def inside(self, address: int, nbytes: int, blocks: dict[int, Any] | None = None) -> bool:
        blocks = self.allocations if blocks is None else blocks
        return any(start <= address and address + nbytes <= start + len(b) for start, b in blocks.items())

    def copy(self, kind: str, target: int, source: int, nbytes: int, stream: int) -> None:
        """ "in", "out" or "within". Pageable memory is read at once, and written before the call returns."""
        assert self.inside(target, nbytes) or kind == "out"
        assert self.inside(source, nbytes) or kind == "in"
        self.log.append(kind)
        if kind == "in" and not self.inside(source, nbytes, self.pinned):
            data = ctypes.string_at(source, nbytes)
            self.push(stream, "do", lambda: ctypes.memmove(target, data, nbytes))
            return
        self.push(stream, "do", lambda: ctypes.memmove(target, source, nbytes))
        if kind == "out" and not self.inside(target, nbytes, self.pinned):
            self.drain(stream)

    # --- kernels ---

    def launch(
        self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int], stream: int, arguments: int
    ) -> None:
        assert 0 < grid[0] < 1 << 31
        assert 0 < grid[1] < 65536 and 0 < grid[2] < 65536
        assert 0 < block[0] * block[1] * block[2] <= 1024
        first = ctypes.cast(ctypes.c_void_p(arguments), ctypes.POINTER(ctypes.c_void_p))[0]
        assert first is not None
        address = ctypes.c_uint64.from_address(first).value
        assert self.inside(address, 1), hex(address)
        if self.captured is not None:
            self.captured.append(function)
            return
        self.log.append("launch")
        self.push(stream, "do", self._tick(1))

    def _tick(self, count: int) -> Callable[[], None]:
        def run() -> None:
            self.clock_ns += KERNEL_NS * count

        return run

    def start_graph(self, graph: int, stream: int) -> None:
        count = len(self.objects[graph])
        self.log.append(f"graph of {count}")
        for work in self.objects[graph]:
            self.push(stream, "do", work if callable(work) else self._tick(1))

    def load(self, code: bytes) -> int:
        assert code[:4] == b"\x7fELF"
        assert b"main_kernel" in code
        return self.handle(code)
