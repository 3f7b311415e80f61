"""A frame that is made of a segment's steps, and learns from them what other sizes take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import numpy as np

from intarsia.codegen.binder import OK
from intarsia.errors import InvalidArgument
from intarsia.graph.guards import MOST_WAYS
from intarsia.plan.frame import NWINDOWS, STATUS, Frame, KeptFrame, Layout, native
from intarsia.plan.notes import Notes, sizes_of
from intarsia.plan.outline import LEAST_ROOM
from intarsia.plan.segment import Segment
from intarsia.records import dataclass

_MOST_TAUGHT = 64


@dataclass(frozen=True)
class Repeated:
    """What a frame found for many sizes at once, all of which share one layout of the arena.

    Attributes:
        words: int64 [sizes, words], before the addresses that `Outline.leased` says are added.
        serial: [sizes, steps], whether one thread runs a step; jumps are said to be.
        outputs: int64 [sizes, outputs], bytes of each output.
        kept: tables that words are addresses of.
    """

    frame: Frame
    words: np.ndarray
    serial: np.ndarray
    arena_nbytes: int
    outputs: np.ndarray
    kept: Sequence[np.ndarray] = ()


class NotedFrame(Frame):
    """See the module's text. `env` are sizes that the segment is bound to now; `taught`: others, whose ways it is to know.

    Raises:
        ValueError, ZeroDivisionError, OverflowError: there is no frame for such sizes.
    """

    def __init__(
        self, segment: Segment, threads: int, env: Mapping[str, int], taught: Sequence[Mapping[str, int]] = ()
    ) -> None:
        native()
        self._notes = Notes(segment, threads, env)
        super().__init__(segment, threads, self._notes.outline)
        self.loops, self.taught, self._learned = bool(segment.loops()), [dict(env)], True
        self._asked = [a for a in self._notes.asked.values() if not a.section.noted]
        count = len(self.outline.slots)
        self._everything = Layout(np.full(count, 1 << 62, np.int64), np.zeros(count, np.int64), 0)
        self._anywhere = np.array([[0, *self._everything.row[1:]]], np.int64)
        self._find_windows(env)
        for sizes in taught:
            self._learn(sizes)

    def kept(self) -> KeptFrame | None:
        self.outline.arrays = arrays = self._notes.arrays()
        plain = all(type(array) is np.ndarray and array.flags.c_contiguous for _, array in arrays)
        return super().kept() if plain and not self._asked else None

    def _find_windows(self, env: Mapping[str, int]) -> None:
        with self._without_layout():
            found = self.bind(env)
        if found is not None:
            work = [self._work_of(i) for i in range(self.steps)]
            self.windows = self.segment.windows(found.serial.tolist(), work, self.threads)
            self.outline.fill("windows", [(w.first, w.end) for w in self.windows])
            self.outline.set(windows=self.outline.lists["windows"].ctypes.data, nwindows=len(self.windows))

    def _learn(self, sizes: Mapping[str, int]) -> None:
        """Know the way of sizes that an earlier frame had."""
        with self._lock, self._without_layout(), suppress(InvalidArgument, KeyError):
            self._run(sizes, np.empty(self._words, np.int64))

    @contextmanager
    def _without_layout(self) -> Iterator[None]:
        """Runs find every slot at the beginning of the arena, and no branches go side by side."""
        windows = self._io[NWINDOWS]
        self._use("layouts", self._anywhere)
        self._io[NWINDOWS] = 0
        try:
            yield
        finally:
            self._use("layouts", self._rows["layouts"])
            self._io[NWINDOWS] = windows

    def _ask(self, env: Mapping[str, int], kept: list[np.ndarray]) -> bool:
        """Ask Python for what the tape cannot compute; False where other addresses are wanted."""
        size = sizes_of(env)
        for asked in self._asked:
            fixed, numbers = asked.ask(size, kept, None)
            if fixed != asked.section.fixed or len(numbers) != len(asked.section.places):
                self.other_addresses = True
                return False
            for register, number in zip(asked.section.places, numbers, strict=True):
                self.outline.put(register, number)
        return True

    def _extended(self, number: int, env: Mapping[str, int], kept: list[np.ndarray]) -> bool:
        """Whether there is a way through a section for these sizes now."""
        tape, asked = self._notes.tape, self._notes.asked[number]
        if asked.section.ways >= MOST_WAYS and asked.may_be_left:
            tape.leave(asked.section)
            self._asked.append(asked)
            found = self._ask(env, kept)
        else:
            try:
                found = tape.extend(number, env)
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                found = False
            self.other_addresses = tape.elsewhere
        self._learned = True
        if (found or tape.elsewhere) and env != self.taught[-1] and len(self.taught) < _MOST_TAUGHT:
            self.taught.append(dict(env))
        self._point()
        return found

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
        blocks, rooms, outputs, kept = found
        layout = self._layout_for(rooms.max(0))
        words, outline = blocks[:, self.steps :], self.outline
        words[:, outline.arena] += layout.offsets[outline.arena_slots]
        serial = blocks[:, : self.steps].astype(bool)
        serial[:, outline.functions == 0] = True
        return Repeated(self, words, serial, layout.row[1], outputs, kept)

    def _many(
        self, columns: Mapping[str, Sequence[int]], count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]] | None:
        """Rows of which steps one thread runs and of words; bytes of the arena and of outputs; arrays that words refer to."""
        outline, kept = self.outline, list[np.ndarray]()
        names = list(columns if self._asked else outline.symbols)  # on which the rows depend
        keys: list[tuple[int, ...]] = list(zip(*(columns[n] for n in names), strict=True)) if names else [()] * count
        first = {key: i for i, key in reversed([*enumerate(keys)])}
        blocks = np.empty((len(first), self.steps + self._capacity), np.int64)
        rooms = np.empty((len(first), len(outline.slots)), np.int64)
        outputs = np.empty((len(first), len(outline.output_nbytes)), np.int64)
        for row, i in enumerate(first.values()):
            found = self._run({name: column[i] for name, column in columns.items()}, blocks[row], words=True)
            if found is None:
                return None
            if self._io[STATUS] != OK or len(outline.symbols) > len(names):
                return self._many(columns, count)
            registers = np.frombuffer(outline.registers, np.int64)
            rooms[row], outputs[row] = registers[outline.slots], registers[outline.output_nbytes]
            del registers  # the tape may grow
            kept += found
        number = {key: row for row, key in enumerate(first)}
        rows = [number[key] for key in keys]
        return blocks[rows], rooms, outputs[rows], kept

    def _layout_for(self, room: np.ndarray) -> Layout:
        """A layout that is kept and has so much room, or a new one."""
        most = room.sum() * 3 // 2 + 2 * LEAST_ROOM * len(room)
        for layout in self._layouts["layouts"]:
            if layout.row[0] <= most and (room <= layout.kept).all():
                return layout
        found = self._laid_out(room, self.outline.lifetimes)
        with self._lock:
            self._keep("layouts", found)
        return found
