"""A frame that is made of a segment's steps, and learns from them what other sizes take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.guards import MOST_WAYS
from intarsia.plan.binding_tracer import Notes, sizes_of
from intarsia.plan.symbolic_binding import CachedFrame, Frame, native

if TYPE_CHECKING:
    from intarsia.plan.segment import Segment

_MOST_TAUGHT = 64


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
        self._queries = [a for a in self._notes.queries.values() if not a.section.noted]
        self._find_windows(env)
        for sizes in taught:
            self._learn(sizes)

    def cached(self) -> CachedFrame | None:
        self.outline.arrays = arrays = self._notes.arrays()
        plain = all(type(array) is np.ndarray and array.flags.c_contiguous for _, array in arrays)
        return super().cached() if plain and not self._queries else None

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

    def _query(self, env: Mapping[str, int], held: list[np.ndarray]) -> bool:
        """Ask Python for what the tape cannot compute; False where other addresses are wanted."""
        size = sizes_of(env)
        for query in self._queries:
            fixed, numbers = query.ask(size, held, None)
            if fixed != query.section.fixed or len(numbers) != len(query.section.places):
                self.other_addresses = True
                return False
            for register, number in zip(query.section.places, numbers, strict=True):
                self.outline.put(register, number)
        return True

    def _extended(self, number: int, env: Mapping[str, int], held: list[np.ndarray]) -> bool:
        """Whether there is a way through a section for these sizes now."""
        tape, query = self._notes.tape, self._notes.queries[number]
        if query.section.ways >= MOST_WAYS and query.may_be_left:
            tape.leave(query.section)
            self._queries.append(query)
            found = self._query(env, held)
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
