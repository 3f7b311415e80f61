"""A segment whose batch goes through it in parts: each stretch of steps is bound to a few rows, and run once for each part.

A stretch is a segment of its own, whose inputs and outputs are those of the whole and what crosses from one stretch to another;
their addresses move from part to part. What lies between the steps of a stretch is as large as one part needs.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, evaluate
from intarsia.lazy_dataclass import dataclass
from intarsia.plan import executor_abi
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.memory_layout import align, place
from intarsia.plan.microbatch_cost import Rows, Stretch, chosen, traffic_of
from intarsia.plan.segment import Segment
from intarsia.plan.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia.plan.state import Memory


@dataclass(frozen=True)
class Place:
    """Where a tensor that a stretch takes or gives lies: among the whole segment's inputs and outputs (`external`), or at an
    offset in memory; and bytes from one row to the next."""

    external: int
    offset: int
    row_nbytes: int


@dataclass(frozen=True)
class Pass:
    """A stretch, bound to some rows, and the rows that its runs begin at."""

    first: int
    rows: int
    bound: BoundSegment
    places: tuple[Place, ...]
    begins: range


def part(segment: Segment, first: int, end: int) -> Segment:
    """Some steps of a segment as one of their own, which it retains."""
    found = segment.parts.get((first, end))
    if found is not None:
        return found
    steps = segment.steps[first:end]
    written = {n for s in steps for n in s.writes}
    read = {n for s in steps for n in s.reads if n}
    later = {n for s in segment.steps[end:] for n in s.reads} | set(segment.outputs)
    before = {n for s in segment.steps[:first] for n in s.writes}  # a concatenation's parts may be written in several stretches
    given = written & (later | before)
    made = Segment(
        list(steps), tuple(sorted(n for n in read - written if n not in segment.constants)), tuple(sorted(given)),
        {n: segment.buffers[n] for n in (*read, *written) if n in segment.buffers},
        {n: segment.constants[n] for n in read if n in segment.constants}, segment.constraints,
        addresses=segment.addresses, arena=segment.arena,
    )  # fmt: skip
    made.allow(segment.allowed)
    segment.parts[first, end] = made
    return made


class BoundParts(BoundSegment):
    """A segment for given sizes, in parts. `passes` are in order."""

    parted = True

    def __init__(
        self, segment: Segment, rows: Rows, stretches: Sequence[Stretch], env: Mapping[str, int], threads: int,
        nbytes: Mapping[str, int], outputs: tuple[tuple[tuple[int, ...], np.dtype], ...],
    ) -> None:  # fmt: skip
        """`env`: sizes of the whole; `nbytes`: of its buffers."""
        self._begin(segment)
        self._env, self._found, self.outputs = dict(env), None, outputs
        self.long, self.count = True, env[rows.symbol]
        between = self._laid_out(stretches, nbytes)
        places = {n: (i, 0) for i, n in enumerate((*segment.inputs, *segment.outputs))}
        places.update((n, (-1, offset)) for n, offset in between.items())
        self.passes: list[Pass] = []
        for first, end, size in stretches:
            found = part(segment, first, end)
            given = tuple(
                Place(*places[n], 0 if n in rows.alike else nbytes[n] // self.count) for n in (*found.inputs, *found.outputs)
            )
            even = self.count // size * size
            for number, begins in ((size, range(0, even, size)), (self.count - even, range(even, self.count, size))):
                if number:
                    bound = found.bind_again({**env, rows.symbol: number}, threads)
                    self.passes.append(Pass(first, number, bound, given, begins))
        self.within = max(p.bound.arena_nbytes for p in self.passes)
        self.arena_nbytes = self.between + self.within
        self.workspace_nbytes = max(p.bound.workspace_nbytes for p in self.passes)
        self.serial: list[bool] = [False] * len(segment.steps)
        for p in self.passes:
            self.serial[p.first : p.first + len(p.bound.segment.steps)] = [bool(s) for s in p.bound.serial]

    def _laid_out(self, stretches: Sequence[Stretch], nbytes: Mapping[str, int]) -> dict[str, int]:
        """Where what crosses between stretches lies; sets `between`, the bytes of all."""
        of_step = [i for i, s in enumerate(stretches) for _ in range(s.first, s.end)]
        lives = {n: (of_step[born], of_step[last]) for n, (born, last) in self.segment.lifetimes().items()}
        crossing = {n: life for n, life in lives.items() if life[0] != life[1]}
        offsets, total = place([(align(nbytes[n]), *life) for n, life in crossing.items()])
        self.between = align(total)
        return dict(zip(crossing, offsets, strict=True))

    def step_nbytes(self, index: int) -> int:
        return next(
            p.bound.step_nbytes(index - p.first) for p in self.passes if 0 <= index - p.first < len(p.bound.segment.steps)
        )

    def new_state(self, timed: bool = False) -> State:
        return PartsState(self, timed)


class _Span:
    """Memory that is a part of a lease."""

    def __init__(self, lease: Memory, offset: int) -> None:
        self.lease, self.address, self.nbytes = lease, lease.address + offset, lease.nbytes - offset


class PartsState(State):
    """One caller's memory for `BoundParts`: one lease for all, a state for each pass."""

    block_address = 0  # there are as many as there are passes

    def __init__(self, bound: BoundParts, timed: bool = False) -> None:
        segment = bound.segment
        lease = segment.arena.lease(bound, bound.arena_nbytes)
        self.lease = lease
        with segment._lock:
            bound._states.add(self)
        self.bound, self._base, self._alone = bound, lease.address, None
        self.status = np.zeros(len(segment.steps), np.int64)
        self.externals = (ctypes.c_int64 * max(1, len(segment.inputs) + len(segment.outputs)))()
        self.timed: list[tuple[BoundSegment, np.ndarray]] = []
        self.times = None
        span = _Span(lease, bound.between)
        self.states = [
            State(p.bound, timed, span, self.status[p.first : p.first + len(p.bound.segment.steps)]) for p in bound.passes
        ]

    def settle(self, lease: Memory) -> None:
        """Use other memory."""
        self.lease, self._base = lease, lease.address
        for state in self.states:
            state.settle(_Span(lease, self.bound.between))

    def choose(self) -> None:
        """States of the passes choose, before each of their runs."""

    def run(self, call: Callable[[int], int]) -> int:
        """Run all passes by `call`, which takes the address of a call's words; returns what the first gave that is not 0."""
        whole, base = self.externals, self._base
        self.timed.clear()
        for p, state in zip(self.bound.passes, self.states, strict=True):
            own = state.externals
            starts = [(i, whole[x.external] if x.external >= 0 else base + x.offset, x.row_nbytes)
                      for i, x in enumerate(p.places)]  # fmt: skip
            for begin in p.begins:
                for i, address, row_nbytes in starts:
                    own[i] = address + begin * row_nbytes
                state.choose()
                status = call(state.block_address)
                if status:
                    return status
                if state.times is not None:
                    self.timed.append((p.bound, state.times.copy()))
        return 0

    def cut_short(self) -> None:
        for state in self.states:
            state.cut_short()

    def watch(self, flag: int) -> None:
        for state in self.states:
            state.watch(flag)


def bound_parts(bound: BoundSegment, rows: Rows, env: Mapping[str, int], threads: int, chosen_for: int) -> BoundParts | None:
    """A bound segment again in parts; None where that would not spare time.

    `chosen_for`: the number of threads for which rows are chosen, of `threads` that run them.
    """
    segment, count = bound.segment, env[rows.symbol]
    if segment.sized is not None:  # parts of a batch compute all
        segment = segment.without_sized()
    nbytes = {n: math.prod(s) * segment.buffers[n].dtype.numpy.itemsize for n, s in bound.shapes.items()}
    constants = {n: a.nbytes for n, a in segment.constants.items()}
    known = {**nbytes, **constants}

    def size(d: Dim) -> int:
        return evaluate(d, env)

    work = [
        executor_abi.shares(step, size, sum(known.get(n, 0) for n in (*step.reads, *step.writes))) for step in segment.steps
    ]
    traffic = traffic_of(rows, segment.steps, nbytes, constants, segment.lifetimes(), work)
    stretches = chosen(rows, count, traffic, chosen_for)
    if stretches is None:
        return None
    try:
        return BoundParts(segment, rows, stretches, env, threads, nbytes, bound.outputs)
    except InvalidArgument:  # sizes that fit together for all rows only
        return None
