"""Trips of a loop whose sizes differ from one to the next, as one table: the steps of the body once for each trip, each with
arguments of its own, so that nothing is bound between trips.

    steps of trip 0, its copies, count, jump to `end` unless the condition holds
    steps of trip 1, ...
    end:

What the body's segment takes and gives lies in slots, addresses that a run gives; a trip reads and writes them at offsets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from intarsia.ep.arena import Arena, Lease
from intarsia.lazy_dataclass import dataclass
from intarsia.plan import executor_abi
from intarsia.plan.binding_program import OF_CLAIMS, OF_STATUS, OWN, Outline
from intarsia.plan.symbolic_binding import Repeated

_SERIAL = 1
_MOST = (1 << 63) - 1
_RETAINED_NBYTES = 1 << 20  # of memory that is retained for whoever needs less
COUNT_WORDS, MOVE_WORDS = 8, 5  # as `kernels.movement.loop_carry_kernels` has them


@dataclass(frozen=True)
class Places:
    """Where a batch of trips finds things: pairs (slot, offset in bytes).

    Attributes:
        externals: int64 [trips, inputs and outputs of the segment, 2].
        copies: int64 [trips, copies, 2 (target, source), 2], made at the end of each trip.
        copied: bytes of each copy.
        condition: int64 [trips, 2], the byte that says whether to go on; None: it is not looked at.
        slots: how many there are.
    """

    externals: np.ndarray
    copies: np.ndarray
    copied: Sequence[int]
    condition: np.ndarray | None
    slots: int


class Batch:
    """Trips that are bound; serves one run at a time.

    Args:
        bound: the words of each trip.
        places: where its segment's inputs and outputs are.
        kernels: addresses of `kernels.movement.loop_carry_kernels`'s kernels "move" and "count".
    """

    def __init__(self, bound: Repeated, places: Places, kernels: dict[str, int]) -> None:
        outline = bound.frame.outline
        self.count, self.arena_nbytes = len(bound.words), bound.arena_nbytes
        self._leased, self._held = outline.arena, bound.held
        steps, own = len(outline.counts), bound.words.shape[1]
        copies, looked = places.copies.shape[1], places.condition is not None
        copy_at = own
        count_at = copy_at + (2 + MOVE_WORDS * copies if copies else 0)
        self._width = count_at + (COUNT_WORDS + 2 if looked else 0)
        words = np.zeros((self.count, self._width), np.int64)
        words[:, :own] = bound.words
        self.status, self.claims = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
        self.unset = bytes(8 * steps)  # the status words while no step has set one
        self._cells = np.zeros(2, np.int64)  # trips done, and the byte that says whether to go on
        if copies:
            words[:, copy_at] = copies
            words[:, copy_at + 6 : count_at : MOVE_WORDS] = np.array(places.copied, np.int64)
        cells = self._cells.ctypes.data
        if looked:
            words[:, count_at : count_at + COUNT_WORDS] = [1, cells, cells + 8, 0, _MOST, 0, 0, 0]
            words[:, count_at + COUNT_WORDS :] = [cells + 8, 0]
        self._args = np.zeros(words.size + 2, np.int64)
        self._args[:-2] = words.reshape(-1)
        self._words = self._args[:-2].reshape(words.shape)
        self._place(outline)
        self._base = 0
        self.looked = looked
        self.table = self._table(bound, kernels, copies, copy_at, count_at)
        self.patches = self._patches(outline.patches, places, copy_at, count_at)
        self.externals = (ctypes.c_int64 * max(1, places.slots))()
        self.block = executor_abi.call_words(
            self.table.ctypes.data, len(self.table), self.patches.ctypes.data, len(self.patches),
            ctypes.addressof(self.externals), 0, 0, executor_abi.LONG,
        )  # fmt: skip
        self.block_address = int(self.block.ctypes.data)

    @property
    def nbytes(self) -> int:
        """Bytes of its table and words."""
        return self._args.nbytes + self.table.nbytes + self.patches.nbytes

    def _place(self, outline: Outline) -> None:
        """Add the addresses of words of status and of claims, and of tables among the words of a trip."""
        words, (at, whose) = self._words, outline.leased.T
        words[:, at[whose == OF_STATUS]] += self.status.ctypes.data
        words[:, at[whose == OF_CLAIMS]] += self.claims.ctypes.data
        words[:, at[whose == OWN]] += self._args.ctypes.data + 8 * self._width * np.arange(self.count)[:, None]

    def _table(self, bound: Repeated, kernels: dict[str, int], copies: int, copy_at: int, count_at: int) -> np.ndarray:
        """Rows of one trip for every trip, and a jump to the end of the table, which is where loops are left."""
        outline, address = bound.frame.outline, self._args.ctypes.data
        steps = len(outline.counts)
        rows = steps + bool(copies) + 2 * self.looked
        end = rows * self.count
        table = np.zeros((end + 1, 4), np.int64)
        trips = table[:end].reshape(self.count, rows, 4)
        trips[:, :steps, 0] = outline.functions
        trips[:, :steps, 1] = outline.start_bytes
        jumps = outline.functions == 0
        alone = bool(bound.serial.all())
        trips[:, :steps, 2] = np.where(jumps, alone, bound.serial) * _SERIAL
        trips[:, :steps, 3] = np.where(jumps, outline.targets + rows * np.arange(self.count)[:, None], 0)
        if copies:
            trips[:, steps] = [kernels["move"], 8 * copy_at, _SERIAL, 0]
        if self.looked:
            trips[:, -2] = [kernels["count"], 8 * count_at, _SERIAL, 0]
            trips[:, -1] = [0, 8 * (count_at + COUNT_WORDS), alone * _SERIAL, end]
        trips[:, :, 1] += address + 8 * self._width * np.arange(self.count)[:, None]
        table[end] = [0, address + 8 * self._width * self.count, alone * _SERIAL, end + 1]
        return table

    def _patches(self, own: np.ndarray, places: Places, copy_at: int, count_at: int) -> np.ndarray:
        """Rows (address of the word, slot, offset) for all that lies in slots. `own` are those of the segment."""
        starts = self._args.ctypes.data + 8 * self._width * np.arange(self.count)[:, None]
        found = [(starts + 8 * own[:, 0], places.externals[:, own[:, 1]] + np.stack([own[:, 2] * 0, own[:, 2]], 1))]
        for i in range(places.copies.shape[1]):
            words = copy_at + 2 + MOVE_WORDS * i + np.array([0, 2])
            found.append((starts + 8 * words, places.copies[:, i]))
        if places.condition is not None:
            found.append((starts + 8 * (count_at + 5), places.condition[:, None]))
        rows = [np.concatenate([slots[:, :, None], where], 2).reshape(-1, 3) for slots, where in found]
        return np.ascontiguousarray(np.concatenate(rows))

    def prepare(self, lease: Lease, slots: Sequence[int], flag: int) -> int:
        """Make it ready for a run on this memory and these addresses; returns the address of the call's words."""
        if lease.address != self._base:
            self._words[:, self._leased] += lease.address - self._base
            self._base = lease.address
        externals = self.externals
        for i, address in enumerate(slots):
            externals[i] = address
        if self.looked:
            self._cells[:] = 0
        self.block[executor_abi.FLAG] = flag
        return self.block_address

    def done(self) -> int:
        """How many trips the last run made."""
        return int(self._cells[0]) if self.looked else self.count

    def goes_on(self) -> bool:
        """Whether the condition held after the last trip."""
        return not self.looked or bool(self._cells[1:].view(np.uint8)[0])

    def cut_short(self) -> None:
        """Make it fit for another run after one that left a step in the middle, or found something wrong."""
        self.claims[:] = 0
        self.status[:] = 0


class Lessee:
    """Who leases the arena's memory for batches; it keeps what the last one had for the next one."""

    def __init__(self, arena: Arena, purpose: str) -> None:
        self._arena, self.purpose = arena, purpose
        self._idle: list[Lease] = []  # one at most
        self.block_nbytes = self.blocks = 0

    def lease(self, nbytes: int) -> Lease:
        """As `Arena.lease`.

        Raises:
            OutOfMemory: there is none.
        """
        try:
            idle = self._idle.pop()
        except IndexError:
            idle = None
        if idle is not None and nbytes <= idle.nbytes <= max(4 * nbytes, _RETAINED_NBYTES):
            return idle
        self.block_nbytes, self.blocks = nbytes, 1
        return self._arena.lease(self, nbytes)

    def give_back(self, lease: Lease) -> None:
        if self._arena.keep:
            self._idle[:] = [lease]

    def strip(self) -> int:
        """Give back what no run uses; returns bytes."""
        freed = sum(lease.nbytes for lease in self._idle)
        self._idle.clear()
        return freed
