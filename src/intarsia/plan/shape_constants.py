"""Values that depend on sizes alone, computed once for each combination of sizes.

Tables of relative positions, masks and what products make of them are the same in every run on inputs of the same sizes. What
other steps read of them lies in memory of its own, not in the arena. The second run with the same sizes leaves it there, and
the table of later runs jumps over the steps that computed it. A first run keeps nothing, since its sizes may never come again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.errors import OutOfMemory
from intarsia.graph.dims import Dim, evaluate, symbols_of
from intarsia.machine import fork_safety
from intarsia.plan.array_address import address_of
from intarsia.plan.memory_layout import ALIGNMENT, align
from intarsia.plan.result_pool import memory
from intarsia.plan.step import Jump, Step

if TYPE_CHECKING:
    from intarsia.plan.bound_segment import BoundSegment

MOST_NBYTES = 1 << 27  # that a program keeps
MOST_MOVED = 1 << 25  # bytes for some sizes, where not all of them come of products: larger ones spare little but take memory


class Sized(NamedTuple):
    """What of a segment depends on sizes alone: the steps, and the names of what others read of it."""

    steps: tuple[int, ...]
    names: tuple[str, ...]


def sized(
    steps: Sequence[Step | Jump], constants: Mapping[str, object], inputs: Sequence[str], outputs: Sequence[str]
) -> Sized | None:
    """What depends on sizes alone, of steps that run whatever data say; None where nothing does."""
    readers: dict[str, list[int]] = {}
    writers: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        for name in step.reads:
            readers.setdefault(name, []).append(i)
        for name in step.writes:
            writers.setdefault(name, []).append(i)
    outside, jumped = {*inputs, *outputs, *constants}, _jumped(steps)
    found = {i for i, s in enumerate(steps) if isinstance(s, Step) and s.writes and not s.varies and i not in jumped}
    every_run = _EveryRun()
    for i in range(len(steps)):
        if i not in found:
            every_run.add(i, steps[i])
    waiting = sorted(found)
    while waiting:
        i = waiting.pop()
        if i not in found or _alone(i, steps[i], every_run, writers, constants, outside):
            continue
        found.discard(i)
        broken, earlier = every_run.add(i, steps[i])
        for name in broken:
            waiting += readers.get(name, ())
            waiting += writers[name]
        for name in earlier:
            waiting += writers.get(name, ())
    return _read(found, steps, readers)


def of_products(whole: Sized, steps: Sequence[Step | Jump]) -> Sized | None:
    """Of it what comes of products: all else is computed in about the time that it takes to move it."""
    found = set(whole.steps)
    readers: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        for name in step.reads:
            readers.setdefault(name, []).append(i)
    after: set[str] = set()  # products, or made of one
    needed: set[str] = set()  # of the steps that are done in every run
    for i in whole.steps:
        step = steps[i]
        if (isinstance(step, Step) and step.calls) or not after.isdisjoint(step.reads):
            after.update(step.writes)
    for i in reversed(whole.steps):
        wanted = any(n in needed or any(j not in whole.steps for j in readers.get(n, ())) for n in steps[i].writes)
        if wanted and after.isdisjoint(steps[i].writes):
            found.discard(i)
            needed.update(steps[i].reads)
    return _read(found, steps, readers)


def _read(found: set[int], steps: Sequence[Step | Jump], readers: Mapping[str, list[int]]) -> Sized | None:
    names = {n for i in found for n in steps[i].writes if any(j not in found for j in readers.get(n, ()))}
    return Sized(tuple(sorted(found)), tuple(sorted(names))) if names else None


class _EveryRun:
    """Steps that are done in every run.

    Attributes:
        writes: what they write.
        first: of what they read, the first of them that does.
    """

    def __init__(self) -> None:
        self.writes: set[str] = set()
        self.first: dict[str, int] = {}

    def add(self, i: int, step: Step | Jump) -> tuple[list[str], list[str]]:
        """Names that none of them wrote before, and that none so early read."""
        broken = [name for name in step.writes if name not in self.writes]
        earlier = [name for name in step.reads if self.first.get(name, i + 1) > i]
        self.writes.update(broken)
        self.first.update(dict.fromkeys(earlier, i))
        return broken, earlier


def _alone(
    i: int, step: Step | Jump, every_run: _EveryRun, writers: Mapping[str, list[int]], constants: Mapping[str, object],
    outside: set[str],
) -> bool:  # fmt: skip
    """Whether a step reads and writes nothing that depends on more than sizes, and what it writes is written once for all."""
    for name in step.reads:
        if name not in constants and (name not in writers or name in every_run.writes or writers[name][0] >= i):
            return False
    for name in step.writes:
        last = writers[name][-1]
        if name in outside or name in every_run.writes or last > every_run.first.get(name, last):
            return False
    return True


def _jumped(steps: Sequence[Step | Jump]) -> set[int]:
    """Steps of loops and branches."""
    return {j for i, s in enumerate(steps) if isinstance(s, Jump) for j in range(min(i, i + s.offset), max(i, i + s.offset))}


class Values:
    """Values for some sizes.

    Attributes:
        array: their memory; None once they were given up for others.
        known: sizes that they are for, of all symbols that they depend on.
        addresses: of each name.
    """

    __slots__ = ("addresses", "array", "known", "used")

    def __init__(self, array: np.ndarray, addresses: list[int], known: dict[str, int]) -> None:
        self.array: np.ndarray | None = array
        self.addresses, self.known, self.used = addresses, known, 0


class SizedValues:
    """What a segment keeps of them; any number of threads may use it."""

    def __init__(self, found: Sized, most_nbytes: int = MOST_NBYTES) -> None:
        self.sized, self.most_nbytes = found, most_nbytes
        self._retained: list[Values] = []
        self._clock = 0
        self._lock = fork_safety.lock()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(_nbytes(v) for v in self._retained)

    def find(self, bound: BoundSegment) -> tuple[np.ndarray, list[int]] | None:
        """The values for a binding's sizes, if they are retained: their memory, which its reader must hold, and addresses."""
        values = bound.values
        array = None if values is None else values.array
        if values is None or array is None:
            values = bound.values = self._same(bound._env) if self._retained else None
            array = None if values is None else values.array  # another thread may give them up at any time
            if values is None or array is None:
                return None
        self._clock += 1
        values.used = self._clock
        return array, values.addresses

    def keep(self, bound: BoundSegment, array: np.ndarray, addresses: list[int]) -> bool:
        """After a run that computed them: whether they are retained, so that others must not write into `array`."""
        if not bound.repeated:
            bound.repeated = True
            return False
        if sum(bound.sized_nbytes) > self.most_nbytes or self._same(bound._env) is not None:
            return False
        values = bound.values = Values(array, addresses, self._known(bound))
        with self._lock:
            self._retained.append(values)
            self._clock += 1
            values.used = self._clock
            total = sum(map(_nbytes, self._retained))
            while total > self.most_nbytes:
                oldest = min(self._retained, key=lambda v: v.used)
                total -= _nbytes(oldest)
                self._retained.remove(oldest)
                oldest.array = None
        return True

    def trim(self) -> int:
        """Give all up; returns bytes."""
        with self._lock:
            freed = sum(map(_nbytes, self._retained))
            for values in self._retained:
                values.array = None
            self._retained.clear()
        return freed

    def _same(self, env: Mapping[str, int]) -> Values | None:
        for values in tuple(self._retained):
            if values.array is not None and all(env.get(name) == size for name, size in values.known.items()):
                return values
        return None

    def _known(self, bound: BoundSegment) -> dict[str, int]:
        """The sizes that the values depend on: those that the steps ask for; all, where the steps were not needed yet."""
        env, segment, symbols = bound._env, bound.segment, set[str]()
        if bound._cached is not None or "steps" not in vars(segment):
            return dict(env)

        def size(d: Dim) -> int:
            symbols.update(symbols_of(d))
            return evaluate(d, env)

        for name in self.sized.names:
            for d in segment.buffers[name].shape:
                size(d)
        for i in self.sized.steps:
            segment.steps[i].arguments(size, bound._threads)
        return {name: env[name] for name in symbols}


def room(nbytes: Sequence[int], before: np.ndarray | None) -> tuple[np.ndarray, list[int]]:
    """Memory for values of these sizes, that of `before` if it is large enough, and the address of each.

    Raises:
        OutOfMemory: there is none.
    """
    total = sum(map(align, nbytes)) + ALIGNMENT
    array = before
    if array is None or array.nbytes < total:
        try:
            array = memory.empty((total,), np.dtype(np.uint8))
        except MemoryError:
            raise OutOfMemory(
                f"values that depend on sizes alone need {total / 2**20:,.0f} MiB, which the system does not give"
            ) from None
    addresses, at = [], align(address_of(array))
    for n in nbytes:
        addresses.append(at)
        at += align(n)
    return array, addresses


def _nbytes(values: Values) -> int:
    array = values.array
    return 0 if array is None else array.nbytes
