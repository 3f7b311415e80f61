"""What all bindings of a segment have in common, so that sizes it has not met before cost little.

A frame is made when a segment is bound a second time. What its steps compute from sizes is noted then (`plan.binding_tracer`),
and native code runs that for other sizes: it says which steps one thread runs, finds a layout of the arena that has room, and
writes the words of the argument blocks when a state turns to these sizes. Python is queried again only for a way through a
step's functions that no sizes took before. Where intermediate tensors lie is decided for sizes somewhat larger than those
requested, and retained as long as they suffice, so that a length that grows by one in every run needs a new layout rarely.

All of that is data (`CachedFrame`), and this file what works on it. It is cached, and later processes begin with it
(`plan.binding_cache`):
such a frame knows the ways of the sizes that earlier processes had. A frame that learns others is made of the steps
(`plan.traced_binding`).

A frame gives what `Segment.bind_exactly` gives or nothing: where sizes do not fit together, or are absurd, it leaves the word
to that.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.guards import ELSEWHERE, MISSED
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.plan import executor_abi
from intarsia.plan.array_address import address_of
from intarsia.plan.binding_program import LEAST_ROOM, Outline
from intarsia.plan.memory_layout import align, place
from intarsia.plan.native import load_binder
from intarsia.plan.native.abi import BINDING, FIELDS, NO_LAYOUT, NO_ROOM, OK, SERIAL, SETTLE_FIELDS, SETTLING
from intarsia.plan.parallel_branches import Window, spanned

if TYPE_CHECKING:
    from intarsia.plan.binding_tracer import Query
    from intarsia.plan.segment import Segment

_LAYOUTS = 24  # that a frame keeps, and as many for branches side by side: lengths at random need about so many
_CACHED_LAYOUTS = 8  # of each kind, for later processes
_NOTHING: list[np.ndarray] = []
_MOST_TRIES = 1 << 12  # runs of native code for one binding: then something is wrong
_WORDS, _BLOCK, _SERIAL, _CAPACITY, _STATUS, _USED, _SIDE_BY_SIDE = (
    FIELDS.index(name) for name in "words block serial capacity status used side_by_side".split()
)
_FOUND = slice(FIELDS.index("arena_nbytes"), FIELDS.index("slow") + 1)
_NWINDOWS, _KINDS = FIELDS.index("nwindows"), {kind: FIELDS.index(kind) for kind in ("layouts", "disjoint")}
_double = struct.Struct("<d").unpack
_bits = struct.Struct("<q").pack


class Rebinding:
    """What a frame found for given sizes: all that words follow from, and what `BoundSegment` has.

    Attributes:
        address: of what native code says of it (see `plan.native.abi`), which lies in `memory`.
        used: words, tables included.
        held: tables that words are addresses of.
        layouts: one of which it lies in.
    """

    __slots__ = (
        "address", "arena_nbytes", "frame", "held", "layouts", "long", "memory", "outputs", "side_by_side", "sized_nbytes",
        "sliced", "used", "workspace_nbytes",
    )  # fmt: skip

    def __init__(
        self, frame: Frame, memory: np.ndarray, address: int, used: int, outputs: tuple[tuple[tuple[int, ...], np.dtype], ...],
        arena_nbytes: int, workspace_nbytes: int, long: bool, side_by_side: bool, sliced: dict[int, tuple[int, int]],
        held: Sequence[np.ndarray], layouts: Sequence[Layout], sized_nbytes: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.frame, self.memory, self.address = frame, memory, address
        self.used, self.outputs = used, outputs
        self.arena_nbytes, self.workspace_nbytes, self.long = arena_nbytes, workspace_nbytes, long
        self.side_by_side, self.sliced = side_by_side, sliced
        self.held, self.layouts, self.sized_nbytes = held, layouts, sized_nbytes

    @property
    def serial(self) -> np.ndarray:
        """int64 for each step, whether one thread runs it."""
        start = (self.address - address_of(self.memory)) // 8 + SERIAL
        return self.memory[start : start + self.frame.steps]


@dataclass(frozen=True)
class Repeated:
    """What a frame found for many sizes at once, all of which share one layout of the arena.

    Attributes:
        words: int64 [sizes, words], before the addresses that `Outline.leased` says are added.
        serial: [sizes, steps], whether one thread runs a step; jumps are said to be.
        outputs: int64 [sizes, outputs], bytes of each output.
        held: tables that words are addresses of.
    """

    frame: Frame
    words: np.ndarray
    serial: np.ndarray
    arena_nbytes: int
    outputs: np.ndarray
    held: Sequence[np.ndarray] = ()


class Shared:
    """States that bindings of a frame have in common: those that nobody uses, and all."""

    def __init__(self) -> None:
        self.free: list[Any] = []
        self.states: weakref.WeakSet[Any] = weakref.WeakSet()


class Layout:
    """Where tensors lie: `row` as `FIELDS` have it, whose last is the address of `offsets`."""

    def __init__(self, rooms: np.ndarray, offsets: np.ndarray, nbytes: int) -> None:
        self.rooms, self.offsets, self.nbytes = rooms, offsets, nbytes
        self.row = [int(rooms.sum()), nbytes, int(rooms.ctypes.data), int(offsets.ctypes.data)]


@dataclass(frozen=True)
class CachedFrame:
    """A frame as data.

    Attributes:
        capacity: words of a binding that there was room for.
        layouts: by kind, bytes that slots have, where they lie, and bytes of the arena.
        taught: sizes whose ways it knows, as far as they were new when they came.
    """

    outline: Outline
    capacity: int
    windows: tuple[Window, ...]
    loops: bool
    layouts: dict[str, list[tuple[np.ndarray, np.ndarray, int]]]
    taught: list[dict[str, int]]


class Frame:
    """See the module's text.

    Attributes:
        other_addresses: whether a step wanted others than these for the sizes requested last.
        outgrown: whether the sizes requested last go a way that it would have to learn, and cannot.
        common: see `Segment.common`.
        loops: whether there are loops.
        taught: sizes whose ways it knows, as far as they were new when they came.
        keep: what keeps it for later processes.
    """

    def __init__(self, segment: Segment, threads: int, outline: Outline) -> None:
        self._native = native()
        self.segment, self.threads = segment, threads
        self.outline, self.steps = outline, len(outline.counts)
        self.common = outline.checked, bytes(8 * self.steps), self.steps
        self.other_addresses = self.outgrown = False
        self.windows: tuple[Window, ...] = ()  # where branches go side by side, if all their steps are small
        self.loops = False
        self.taught: list[dict[str, int]] = []
        self.keep: Callable[[Frame], None] | None = None
        self._learned, self._made, self._due = False, 0, 1
        self._lock = fork_safety.lock()
        self._plain = Shared()
        self._side_by_side: dict[bytes, Shared] = {}  # where branches go side by side: by which steps one thread runs
        self._queries: list[Query] = []  # of Python, for all sizes
        self._io, self._address = outline.io, ctypes.addressof(outline.io)
        self._all_work = ctypes.c_double.from_buffer(self._io, 8 * FIELDS.index("work"))
        self._capacity = outline.count
        self._head = SERIAL + self.steps + outline.nregisters  # of a block, before its tables
        self._slowest = np.zeros(max(1, self.steps), np.int64)
        outline.set(slowest=self._slowest.ctypes.data)
        self._layouts: dict[str, list[Layout]] = {"layouts": [], "disjoint": []}
        self._rows = {kind: np.zeros((0, 4), np.int64) for kind in self._layouts}
        count = len(outline.slots)
        self._everything = Layout(np.full(count, 1 << 62, np.int64), np.zeros(count, np.int64), 0)
        self._anywhere = np.array([[0, *self._everything.row[1:]]], np.int64)
        self._kinds = [(_picker(places), dtype) for places, dtype in outline.output_kinds]
        self._outputs, self._sized_nbytes = _picker(outline.outputs), _picker(outline.sized_nbytes)
        self._point()

    # --- between processes ---

    @classmethod
    def restored(cls, segment: Segment, threads: int, cached: CachedFrame) -> Frame:
        """The frame of an earlier process.

        Raises:
            ValueError: there is no native code that binds sizes.
        """
        cached.outline.locate(segment)
        self = cls(segment, threads, cached.outline)
        self._capacity, self.windows, self.loops, self.taught = cached.capacity, cached.windows, cached.loops, cached.taught
        for kind, layouts in cached.layouts.items():
            self._point_at(kind, [Layout(*layout) for layout in layouts])
        return self

    def cached(self) -> CachedFrame | None:
        """What later processes begin with; None where it is not data alone."""
        layouts = {k: [(x.rooms, x.offsets, x.nbytes) for x in found[:_CACHED_LAYOUTS]] for k, found in self._layouts.items()}
        return CachedFrame(self.outline, self._capacity, self.windows, self.loops, layouts, self.taught)

    def _count(self, bindings: int) -> None:
        """have it cached after 1, 2, 4, 7, 11 ... bindings, if it has learned something since it was last."""
        self._made += bindings
        if self._made >= self._due and self.keep is not None:
            self._due = self._made + self._made // 2 + 1
            if self._learned:
                self._learned = False
                self.keep(self)

    # --- one binding ---

    def bind(self, env: Mapping[str, int]) -> Rebinding | None:
        """The segment for the sizes in `env`; None where `bind_exactly` has to say what is wrong, or knows it better."""
        with self._lock:
            while True:
                block = np.empty(self._words, np.int64)
                held = self._run(env, block)
                if held is None:
                    return None
                if self._io[_STATUS] == OK:
                    self._count(1)
                    return self._found(block, address_of(block), held)

    @property
    def _words(self) -> int:
        """Of a block that a binding is written into."""
        return self._head + self._capacity - self.outline.count

    def bind_series(self, envs: Sequence[Mapping[str, int]]) -> list[Rebinding]:
        """As `bind` for sizes one after the other, up to the first that it cannot bind. Their words lie side by side."""
        found: list[Rebinding] = []
        with self._lock, suppress(InvalidArgument, OverflowError):  # of sizes further on, which nobody may ever ask for
            # The last first, so that one layout of the arena has room for all of them; it may also ask for more words.
            with suppress(InvalidArgument):
                self._run(envs[-1], np.empty(self._words, np.int64))
            io, registers, symbols = self._io, self.outline.registers, tuple(self.outline.symbols.items())
            words = self._words
            memory = np.empty(words * len(envs), np.int64)
            address = address_of(memory)
            for env in envs:
                status = NO_LAYOUT
                if not self._queries:
                    for name, register in symbols:
                        registers[register] = env[name]
                    io[_BLOCK], io[_SERIAL] = address, address + 8 * SERIAL
                    io[_WORDS], io[_CAPACITY] = address + 8 * (self._head - self.outline.count), self._capacity
                    self._native(self._address, BINDING, 1)
                    status = io[_STATUS]
                held: list[np.ndarray] | None = _NOTHING
                if status != OK:
                    start = words * len(found)
                    held = self._run(env, memory[start : start + words])
                if held is None or io[_STATUS] != OK:
                    break
                found.append(self._found(memory, address, held))
                address += 8 * words
            self._count(len(found))
        return found

    def _run(self, env: Mapping[str, int], block: np.ndarray, words: bool = False) -> list[np.ndarray] | None:
        """Run native code for these sizes, until it has written into `block` or has no room there; returns arrays that words
        are addresses of, None where these sizes are not the frame's. `words`: it has those behind what is said of steps."""
        io, registers, steps = self._io, self.outline.registers, self.steps
        held: list[np.ndarray] = []
        self.other_addresses = self.outgrown = False
        try:
            for name, register in self.outline.symbols.items():
                registers[register] = env[name]
        except OverflowError:
            return None
        if self._queries and not self._query(env, held):
            return None
        address, count = address_of(block), self.outline.count
        if words:
            io[_BLOCK], io[_SERIAL], io[_WORDS], io[_CAPACITY] = 0, address, address + 8 * steps, len(block) - steps
        else:
            io[_BLOCK], io[_SERIAL], io[_WORDS] = address, address + 8 * SERIAL, address + 8 * (self._head - count)
            io[_CAPACITY] = len(block) - self._head + count
        for _ in range(_MOST_TRIES):
            self._native(self._address, BINDING, 1)
            status = io[_STATUS]
            if status == OK:
                return held
            if status == NO_ROOM:
                self._capacity = max(self._capacity, io[_USED] + io[_USED] // 4)
                return held
            if status == NO_LAYOUT:
                self._add_layout("disjoint" if io[_SIDE_BY_SIDE] else "layouts")
            elif status > OK:
                return None
            elif status == ELSEWHERE:
                self.other_addresses = True
                return None
            elif not self._extended(MISSED - status, env, held):
                return None
        return None

    def _found(self, memory: np.ndarray, address: int, held: list[np.ndarray]) -> Rebinding:
        registers = self.outline.registers
        kinds = [(shape(registers), dtype) for shape, dtype in self._kinds]
        arena_nbytes, workspace_nbytes, used, side_by_side, _, slow = self._io[_FOUND]
        return Rebinding(
            self, memory, address, used, self._outputs(kinds), arena_nbytes, workspace_nbytes,
            executor_abi.is_long(self._all_work.value) or self.loops, bool(side_by_side), self._sliced(slow) if slow else {},
            held,
            self._layouts["disjoint" if side_by_side else "layouts"], self._sized_nbytes(registers),
        )  # fmt: skip

    def _query(self, env: Mapping[str, int], held: list[np.ndarray]) -> bool:
        """Ask Python for what the tape cannot compute; False where other addresses are wanted."""
        raise NotImplementedError

    def _extended(self, number: int, env: Mapping[str, int], held: list[np.ndarray]) -> bool:
        """Whether there is a way through a section for these sizes now."""
        self.outgrown = True
        return False

    def _point(self) -> None:
        """Say where the tape lies, which may have grown."""
        outline = self.outline
        outline.set(code=outline.code.buffer_info()[0], registers=outline.registers.buffer_info()[0])

    def _sliced(self, count: int) -> dict[int, tuple[int, int]]:
        """The `count` steps that take long: slices for each thread, and bytes of scratch of each."""
        scratch, registers = self.outline.scratch, self.outline.registers
        return {
            i: (
                executor_abi.slices(self._work_of(i), self.threads),
                registers[scratch[i]] // self.threads if i in scratch else 0,
            )
            for i in self._slowest[:count].tolist()
        }

    def _work_of(self, step: int) -> float:
        """`executor_abi.shares` of a step, for the sizes requested last."""
        registers = self.outline.registers
        found: float = max(_double(_bits(registers[p]))[0] for p in self.outline.works[step])
        return found

    # --- layouts ---

    def _add_layout(self, kind: str) -> None:
        lives = self.outline.lifetimes
        if kind == "disjoint":
            lives = [spanned(life, self.windows) for life in lives]
        self._keep(kind, self._laid_out(self._room(), lives))
        self._learned = True

    def _laid_out(self, room: np.ndarray, lives: Sequence[tuple[int, int]]) -> Layout:
        larger = room + np.maximum(room >> 3, LEAST_ROOM)
        placed, total = place([(align(int(n)), *life) for n, life in zip(larger, lives, strict=True)], self.threads)
        return Layout(larger, np.array(placed, np.int64), total)

    def _keep(self, kind: str, layout: Layout) -> None:
        self._point_at(kind, [layout, *self._layouts[kind][: _LAYOUTS - 1]])

    def _point_at(self, kind: str, layouts: list[Layout]) -> None:
        self._layouts[kind] = layouts
        rows = self._rows[kind] = np.array([x.row for x in layouts], np.int64).reshape(-1, 4)
        self._use(kind, rows)

    def _use(self, kind: str, rows: np.ndarray) -> None:
        at = _KINDS[kind]
        self._io[at], self._io[at + 1] = rows.ctypes.data, len(rows)

    def _room(self) -> np.ndarray:
        """Bytes that are required of the arena, for the sizes requested last."""
        found: np.ndarray = np.frombuffer(self.outline.registers, np.int64)[self.outline.slots]
        return found

    @contextmanager
    def _without_layout(self) -> Iterator[None]:
        """Runs find every slot at the beginning of the arena, and no branches go side by side."""
        windows = self._io[_NWINDOWS]
        self._use("layouts", self._anywhere)
        self._io[_NWINDOWS] = 0
        try:
            yield
        finally:
            self._use("layouts", self._rows["layouts"])
            self._io[_NWINDOWS] = windows

    # --- many bindings ---

    def bind_many(self, envs: Mapping[str, np.ndarray], count: int) -> Repeated | None:
        """The segment for `count` sizes at once; None where they do not all fit together, or want other addresses.

        `envs` has an array of Python's integers for each symbol.
        """
        columns = {name: column.tolist() for name, column in envs.items()}
        with self._lock, self._without_layout():
            found = self._many(columns, count)
        if found is None:
            return None
        blocks, rooms, outputs, held = found
        layout = self._layout_for(rooms.max(0))
        with self._lock:
            self._count(count)
        words, outline = blocks[:, self.steps :], self.outline
        words[:, outline.arena] += layout.offsets[outline.arena_slots]
        serial = blocks[:, : self.steps].astype(bool)
        serial[:, outline.functions == 0] = True
        return Repeated(self, words, serial, layout.row[1], outputs, held)

    def _many(
        self, columns: Mapping[str, Sequence[int]], count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]] | None:
        """Rows of which steps one thread runs and of words; bytes of the arena and of outputs; arrays that words refer to."""
        outline, held = self.outline, list[np.ndarray]()
        names = list(columns if self._queries else outline.symbols)  # on which the rows depend
        keys: list[tuple[int, ...]] = list(zip(*(columns[n] for n in names), strict=True)) if names else [()] * count
        first = {key: i for i, key in reversed([*enumerate(keys)])}
        blocks = np.empty((len(first), self.steps + self._capacity), np.int64)
        rooms = np.empty((len(first), len(outline.slots)), np.int64)
        outputs = np.empty((len(first), len(outline.output_nbytes)), np.int64)
        for row, i in enumerate(first.values()):
            found = self._run({name: column[i] for name, column in columns.items()}, blocks[row], words=True)
            if found is None:
                return None
            if self._io[_STATUS] != OK or len(outline.symbols) > len(names):
                return self._many(columns, count)
            registers = np.frombuffer(outline.registers, np.int64)
            rooms[row], outputs[row] = registers[outline.slots], registers[outline.output_nbytes]
            del registers  # the tape may grow
            held += found
        number = {key: row for row, key in enumerate(first)}
        rows = [number[key] for key in keys]
        return blocks[rows], rooms, outputs[rows], held

    def _layout_for(self, room: np.ndarray) -> Layout:
        """A layout that is retained and has so much room, or a new one."""
        most = room.sum() * 3 // 2 + 2 * LEAST_ROOM * len(room)
        for layout in self._layouts["layouts"]:
            if layout.row[0] <= most and (room <= layout.rooms).all():
                return layout
        found = self._laid_out(room, self.outline.lifetimes)
        with self._lock:
            self._keep("layouts", found)
        return found

    # --- states ---

    def shared(self, found: Rebinding) -> Shared:
        """The states that go from one binding to another like this."""
        if not found.side_by_side:
            return self._plain
        key = found.serial.tobytes()
        shared = self._side_by_side.get(key)
        return self._side_by_side.setdefault(key, Shared()) if shared is None else shared

    def settling(self, words: int, table: int, bases: int) -> ctypes.Array[ctypes.c_int64]:
        """What native code is told of a state to settle it: addresses of its words, which are the template's at first, of the
        executor's table, and of the addresses (of the arena, of its words, of words of status and of claims) that are added to
        some words."""
        outline, lists = self.outline, dict(zip(FIELDS, self._io, strict=True))
        lists |= {"words": words, "table": table, "bases": bases}
        lists |= {"restored": outline.restored.ctypes.data, "nrestored": len(outline.restored)}
        lists |= {"groups": outline.groups.ctypes.data, "ngroups": len(outline.groups)}
        lists |= {"grouped": outline.grouped.ctypes.data, "mixed": outline.mixed}
        lists |= {"leased": outline.leased.ctypes.data, "nleased": len(outline.leased)}
        return (ctypes.c_int64 * len(SETTLE_FIELDS))(*[lists.get(name, 0) for name in SETTLE_FIELDS])

    def settle(self, settling: int) -> None:
        """Write the words of a binding, and which steps one thread runs. `settling`: the address of what is told, the first of
        which is the binding's. The binding has to live until the next time, when it is looked at what is other then."""
        self._native(settling, SETTLING, 1)


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What makes a tuple of the elements at these places."""
    return itemgetter(*places) if len(places) > 1 else lambda sequence: tuple([sequence[p] for p in places])


@functools.cache
def native() -> Callable[[int, int, int], None]:
    """The native code. It is short, so that Python's lock is not released, where there is one.

    Raises:
        ValueError: there is none.
    """
    if not load_binder.address():
        raise ValueError("there is no native code that binds sizes")
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    kind = (ctypes.PYFUNCTYPE if locked else ctypes.CFUNCTYPE)(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return kind(load_binder.address())
