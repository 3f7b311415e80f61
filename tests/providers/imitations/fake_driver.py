"""GPUs that are driven through streams, imitated over the host's memory: everything but that kernels compute.

`Machine` is what the hardware does; `fake_cuda` and `fake_hip` are drivers over it. Work in a stream is done when somebody
waits for it and not before, in the order that events demand: who reuses memory too early reads wrong numbers. Launches check
that their arguments lie in living allocations. Errors can be ordered.
"""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ALIGNMENT = 256  # of all memory
KERNEL_NS = 1500  # what a launch takes
GRAPH_NBYTES = 1024  # of the device's memory for each node of a graph


@dataclass
class Event:
    timed: bool
    recorded: int = 0  # how many times it was given to a stream
    passed: int = 0  # how many of those are past
    at_ns: int = 0


@dataclass(frozen=True)
class Function:
    """A kernel: its text, where the imitated compiler has left it in the code, and what its arguments are."""

    text: str
    kinds: list[str]


@dataclass
class Graph:
    """Nodes in a row."""

    nodes: list[int] = field(default_factory=list)


@dataclass
class Executable:
    """A graph that can be started: what each node does."""

    graph: int
    works: dict[int, list[Any]]
    nbytes: int


@dataclass
class Machine:
    """One or more GPUs.

    Attributes:
        memory_nbytes: of all.
        failures: function -> the error that its next call answers.
        log: what was started, in order.
        pinnable: how many bytes of host memory can be pinned.
        compute: does what a kernel's text says, given its arguments, groups and threads; None: kernels compute nothing.
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
    executables: set[int] = field(default_factory=set)
    allowed: dict[Any, int] = field(default_factory=dict)
    compute: Callable[[str, list[Any], tuple[int, int, int], int], None] | None = None
    _handles: int = 1000
    _capturing: int = 0

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
        assert not self.captures(stream), "a stream that is captured takes nothing else"
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
            if event.passed < count and any(w[0] == "record" and w[1] is event and w[2] == count for w in self.streams[stream]):
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
        graphs = sum(self.objects[e].nbytes for e in self.executables)
        return sum(len(b) for b in self.allocations.values()) + graphs

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
        work = self._work(function, grid, block[0], self.arguments(function, arguments))
        if self.captures(stream):
            self.captured.append(work)  # type: ignore[union-attr]
            return
        self.log.append("launch")
        self.push(stream, "do", work)

    def arguments(self, function: int, address: int) -> list[Any]:
        """Copies of a kernel's arguments, as a driver makes them when the launch is asked for: addresses and sizes."""
        places = ctypes.cast(ctypes.c_void_p(address), ctypes.POINTER(ctypes.c_void_p))
        found: list[Any] = []
        for i, kind in enumerate(self.objects[function].kinds):
            place = places[i]
            assert place is not None, f"argument {i} has no place"
            if kind == "int":
                found.append(ctypes.c_int32(ctypes.c_int32.from_address(place).value))
                continue
            found.append(ctypes.c_uint64.from_address(place).value)
            assert self.inside(found[-1], 1), f"argument {i}: {found[-1]:#x} is in no allocation"
            assert found[-1] % 4 == 0, f"argument {i}: {found[-1]:#x} is not aligned"
        return found

    def _work(self, function: int, grid: tuple[int, int, int], threads: int, given: list[Any]) -> Callable[[], None]:
        text = self.objects[function].text

        def run() -> None:
            self.clock_ns += KERNEL_NS
            if self.compute is not None and text:
                self.compute(text, given, grid, threads)

        return run

    # --- graphs ---

    def add_node(self, graph: int, before: list[int], works: list[Any]) -> int:
        """Behind the nodes `before`, which are of this graph; a row of nodes is all that is asked for here."""
        found = self.objects[graph]
        assert isinstance(found, Graph)
        assert before == found.nodes[-1:], f"a node behind {before}; the last one is {found.nodes[-1:]}"
        found.nodes.append(self.handle(works))
        return found.nodes[-1]

    def kernel_node(self, function: int, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: int) -> list[Any]:
        assert block[1:] == (1, 1)
        return [self._work(function, grid, block[0], self.arguments(function, arguments))]

    def begin_capture(self, stream: int) -> None:
        assert self.captured is None, "a capture is under way"
        assert not self.streams[stream], "a stream that others use"
        self.captured, self._capturing = [], stream

    def captures(self, stream: int) -> bool:
        """Whether what is started in this stream is noted."""
        return self.captured is not None and stream == self._capturing

    def captured_graph(self) -> int:
        works, self.captured = self.captured, None
        assert works is not None, "nothing is captured"
        made = self.handle(Graph())
        for work in works:
            self.add_node(made, self.objects[made].nodes[-1:], [work])
        return made

    def works_of(self, graph: int) -> list[Any]:
        return [work for node in self.objects[graph].nodes for work in self.objects[node]]

    def instantiate(self, graph: int) -> int:
        """0 where there is no memory left."""
        found = self.objects[graph]
        assert isinstance(found, Graph)
        nbytes = GRAPH_NBYTES * len(found.nodes)
        if self.used_nbytes + nbytes > self.memory_nbytes:
            return 0
        made = self.handle(Executable(graph, {node: self.objects[node] for node in found.nodes}, nbytes))
        self.executables.add(made)
        return made

    def change_node(self, executable: int, node: int, works: list[Any]) -> None:
        found = self.objects[executable]
        assert node in self.objects[found.graph].nodes, "the node's graph is gone"
        assert len(works) == len(found.works[node]), "another graph than before"
        found.works[node] = works
        self.log.append("change")

    def start_graph(self, executable: int, stream: int) -> None:
        found = self.objects[executable]
        assert isinstance(found, Executable)
        self.log.append(f"graph of {len(found.works)}")
        for works in found.works.values():
            for work in works:
                self.push(stream, "do", work)

    def drop_executable(self, executable: int) -> None:
        assert isinstance(self.objects.pop(executable), Executable)
        self.executables.remove(executable)

    def drop_graph(self, graph: int) -> None:
        for node in self.objects.pop(graph).nodes:
            del self.objects[node]

    # --- code ---

    def load(self, code: bytes) -> int:
        assert code[:4] == b"\x7fELF"
        assert b"main_kernel" in code
        return self.handle(code)

    def function(self, module: int) -> int:
        """The module's kernel; one without a text has one argument that is an address."""
        text = self.objects[module].partition(b"main_kernel\0")[2].decode(errors="replace")
        arguments = re.search(r"main_kernel\((.*?)\) \{", text)
        kinds = ["address" if "*" in a else "int" for a in arguments[1].split(", ")] if arguments else ["address"]
        return self.handle(Function(text, kinds))
