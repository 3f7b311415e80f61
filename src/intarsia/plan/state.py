"""One caller's memory for a bound segment: where its tensors lie in this run, and the words that the executor reads."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from intarsia.plan import executor_abi
from intarsia.plan.array_address import address_of
from intarsia.plan.parallel_branches import WHOLE, rearranged, rows_of
from intarsia.plan.shape_constants import SizedValues, room

if TYPE_CHECKING:
    from intarsia.plan.bound_segment import BoundSegment
    from intarsia.plan.segment import Segment
    from intarsia.plan.symbolic_binding import Rebinding

    class Memory(Protocol):
        """A lease, or a part of one."""

        address: int
        nbytes: int


_ROW = 4  # int64 per row of the executor's step table
_ALWAYS = np.zeros(2, np.int64)  # arguments of a jump without a condition


class State:
    """One caller's memory for a bound segment: a lease of the arena, argument blocks, step table.

    Attributes:
        values: memory of the retained values that this run reads; None: the run computes them.
        timed: of a segment that goes in parts, the times of the last run's, in place of `times`.
    """

    timed: Sequence[tuple[BoundSegment, np.ndarray]] = ()
    found: Rebinding | None = None
    sized: SizedValues | None = None
    values: np.ndarray | None = None
    _own: np.ndarray | None = None  # memory for values that depend on sizes alone, of a run that computes them
    _addresses: Sequence[int] = ()
    _short: tuple[np.ndarray, np.ndarray | None] | None = None  # the tables of runs that need not compute them

    def run(self, call: Callable[[int], int]) -> int:
        """Run the segment by `call`, which takes the address of a call's words and returns its status."""
        return call(self.block_address)

    def __init__(
        self, bound: BoundSegment, timed: bool = False, lease: Memory | None = None, status: np.ndarray | None = None
    ) -> None:
        """`lease`, `status`: memory and words of status that it has in common with others; None: its own."""
        segment = bound.segment
        self.lease: Memory | None = segment.arena.lease(bound, bound.arena_nbytes) if lease is None else lease
        self._base = self.lease.address
        with segment._lock:
            bound._states.add(self)
        self.times = np.zeros(bound.count + 1, np.int64) if timed else None
        self._begun = 0
        self.status = np.zeros(bound.count, np.int64) if status is None else status
        self.claims = np.zeros(bound.count, np.int64)
        self.found = bound._found
        if self.found is None:
            self._fill(bound)
        else:
            self._fill_by(self.found)
        self.sized, self.windows = segment.values, bound.windows
        self.externals = (ctypes.c_int64 * max(1, len(segment.externals)))()
        self._first_sized = len(segment.inputs) + len(segment.outputs)
        self.block = executor_abi.call_words(
            self.table.ctypes.data, len(self.table), self.patches.ctypes.data, len(self.patches),
            ctypes.addressof(self.externals), 0, 0 if self.times is None else self.times.ctypes.data,
            executor_abi.LONG * bound.long,
        )  # fmt: skip
        self.block_address = int(self.block.ctypes.data)
        self._slice(segment, bound.sliced, bound)
        self._alone: np.ndarray | None = None  # the table for a time when workers sleep
        if bound.windows and not timed:
            plain = self.table.copy() if np.all(bound.serial) and not segment.allowed.eager else None
            self._alone, self._whole = plain, rearranged(self.table, bound.windows, segment.addresses[WHOLE])

    def _fill(self, bound: BoundSegment) -> None:
        """Arguments, table and patches of a segment that was bound exactly, here or in an earlier process."""
        words, located = bound.words()
        addresses = bound.segment.addresses
        self.args = located.copy() if len(located) else np.zeros(1, np.int64)
        address = address_of(self.args)
        for rows, start in (
            (words.arena, self._base), (words.status, address_of(self.status)), (words.claims, address_of(self.claims)),
        ):  # fmt: skip
            self.args[rows[:, 0]] = rows[:, 1] + start
        self.table = np.zeros((bound.count, _ROW), np.int64)
        self.table[:, 0] = [addresses[symbol] if symbol else 0 for symbol in words.functions]
        self.table[:, 1] = address + 8 * words.starts
        self.table[:, 2] = bound.serial
        self.table[:, 3] = words.targets
        self._leased = words.arena[:, 0]
        self.patches = words.external * np.array([8, 1, 1]) + np.array([address, 0, 0])

    def _fill_by(self, found: Rebinding) -> None:
        """Arguments, table and patches as a frame has them."""
        outline = found.frame.outline
        self.args = np.zeros(found.used + (found.used - outline.count) // 4 or 1, np.int64)  # room for larger tables
        self.args[: outline.count] = outline.template
        address = int(self.args.ctypes.data)
        self._bases = np.array([self._base, address, self.status.ctypes.data, self.claims.ctypes.data], np.int64)
        self._leased = outline.arena
        self.table = np.empty((len(outline.counts), _ROW), np.int64)
        self.table[:, 0], self.table[:, 1] = outline.functions, address + outline.start_bytes
        self.table[:, 2], self.table[:, 3] = found.serial, outline.targets
        self.patches = outline.patches * np.array([8, 1, 1]) + np.array([address, 0, 0])
        self._settling = found.frame.settling(address, int(self.table.ctypes.data), int(self._bases.ctypes.data))
        self._settling_address = ctypes.addressof(self._settling)
        self._settle_by(found)

    def _settle_by(self, found: Rebinding) -> None:
        self._settling[0] = found.address
        found.frame.settle(self._settling_address)

    @property
    def settled_by(self) -> tuple[int, int]:
        """The addresses of the function that makes it ready for a binding of its frame, and of that function's arguments: the
        first is the binding's."""
        from intarsia.plan.native import load_binder

        return load_binder.address(), self._settling_address

    def _slice(self, segment: Segment, sliced: dict[int, tuple[int, int]], bound: BoundSegment | None) -> None:
        """Put the steps that take long into the table as calls in slices. `bound`: what no frame found."""
        self._sliced = list(sliced)
        if not sliced or executor_abi.SLICED not in segment.addresses:
            return
        self.slices = np.zeros((len(sliced), executor_abi.SLICE_WORDS), np.int64)
        for words, (i, (many, stride)) in zip(self.slices, sliced.items(), strict=True):
            if self.found is None and bound is not None:
                count, scratch, pieces = bound.sliced_as(i)
            elif self.found is not None:
                outline = self.found.frame.outline
                count, scratch, pieces = outline.counts[i], outline.scratch_arguments[i], outline.pieces[i]
            if scratch is None:
                continue
            function, args = (int(x) for x in self.table[i, :2])
            words[:] = executor_abi.sliced_words((function, args, count), many, self.block_address, scratch, stride, pieces)
            self.table[i, :2] = (segment.addresses[executor_abi.SLICED], words.ctypes.data)

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The table, and the one for a time when workers sleep where that is another."""
        return self.table, self._alone

    @property
    def short_tables(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The same of runs that need not compute values that depend on sizes alone; known once one began so."""
        assert self._short is not None
        return self._short

    def choose(self) -> None:
        """Before a run: let branches go side by side if the last one was a moment ago, so that workers still wait. To wake
        them would take longer than small steps do."""
        if self._alone is not None:
            self._choose(self.table, self._alone)

    def _choose(self, table: np.ndarray, alone: np.ndarray | None) -> None:
        if alone is not None:
            now = time.perf_counter_ns()
            if now - self._begun >= executor_abi.MOMENT:
                table = alone
            self._begun = now
        self.block[executor_abi.TABLE] = address_of(table)

    def begin(self, bound: BoundSegment) -> None:
        """Before a run: find values that depend on sizes alone, or room for them. It chooses, too."""
        assert self.sized is not None
        found = self.sized.find(bound)
        if found is None:
            self.values = None
            self._own, self._addresses = room(bound.sized_nbytes, self._own)
            self._choose(self.table, self._alone)
        else:
            self.values, self._addresses = found
            if self._short is None:
                self._short = self._shortened(self.sized.sized.steps)
            self._choose(*self._short)
        self.externals[self._first_sized :] = self._addresses  # type: ignore[assignment] # words are numbers

    def end(self, bound: BoundSegment) -> None:
        """After a run that went well: values that it computed may be retained for others."""
        if self.sized is not None and self.values is None and self._own is not None:
            if self.sized.keep(bound, self._own, list(self._addresses)):
                self._own = None

    def _shortened(self, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
        """The tables with jumps instead of these steps."""
        made: list[np.ndarray] = []
        for table, order in ((self.table, rows_of(self.windows, len(self.table))), (self._alone, range(len(self.table)))):
            if table is None:
                return made[0], None
            found, of_step = table.copy(), np.argsort(np.array(order, np.int64))
            rows = of_step[list(steps)]
            found[rows, 0], found[rows, 1], found[rows, 2], found[rows, 3] = 0, address_of(_ALWAYS), 1, rows + 1
            made.append(found)
        return made[0], made[1]

    def settle(self, lease: Memory) -> None:
        """Use other memory."""
        self.lease = lease
        if lease.address != self._base:
            self.args[self._leased] += lease.address - self._base
            self._base = lease.address
            if self.found is not None:
                self._bases[0] = lease.address

    def become(self, found: Rebinding | None, long: bool) -> bool:
        """Go on with other sizes of the frame; False where it has no room for their words."""
        if found is None or found.used > len(self.args):
            return False
        self._settle_by(found)
        self.found, self.block[executor_abi.MODE], self._short = found, executor_abi.LONG * long, None
        if found.sliced or self._sliced:
            outline, before = found.frame.outline, self._sliced
            self.table[before, 0] = outline.functions[before]
            self.table[before, 1] = int(self.args.ctypes.data) + outline.start_bytes[before]
            self._slice(found.frame.segment, found.sliced, None)
        return True

    def cut_short(self) -> None:
        """Make it fit for another run after one that left a step in the middle."""
        self.claims[:] = 0

    def watch(self, flag: int) -> None:
        """Let the executor look at the int64 at address `flag` between steps (0: at none)."""
        self.block[executor_abi.FLAG] = flag
