"""Plans for sizes that are likely to come next.

A decoder's cache grows by one in every run. Where the sizes of three runs are equally far apart, those of the runs to come are
bound together, as array operations: one length costs a few microseconds then, and a run that meets it finds its plan made.
Texts come with lengths at random. Once several were met that lie close together on one line, all that lie there are bound.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Expr, evaluate_many
from intarsia.graph.model import TensorType
from intarsia.plan.rows import is_large
from intarsia.plan.segment import Segment
from intarsia.providers.cpu.executable import Executable

if TYPE_CHECKING:
    from intarsia.providers.cpu.plans import Plan
    from intarsia.providers.cpu.program import CpuProgram

FIRST, MOST = 8, 128  # sizes that are bound together, twice as many each time
_PAUSE = 16  # sizes for which nothing is tried after it was in vain, twice as many each time
_MOST_NBYTES, _STEP_NBYTES = 2 << 20, 200  # of the words of sizes that are bound together, and of a step, roughly
MET = 6  # sizes of a block that were bound alone before the block is: together they cost about as much as all of it
_BLOCKS = 8  # that are kept
_ASIDE = 4  # sizes beside a line, one after the other, after which it is given up

Plans = dict[tuple[object, ...], "Plan"]


@dataclass
class _Line:
    """Sizes `origin` + k `step` for whole k, in blocks of neighbours.

    Attributes:
        met: how many of a block were bound alone; what is bound, or cannot be, is met no more.
        aside: sizes that were not on the line since the last one that was.
    """

    origin: Mapping[str, int]
    step: Mapping[str, int]
    met: Counter[int] = field(default_factory=Counter)
    aside: int = 0

    def place(self, env: Mapping[str, int]) -> int | None:
        """The k of these sizes."""
        if env.keys() != self.origin.keys():
            return None
        name, one = next((name, one) for name, one in self.step.items() if one)
        k, rest = divmod(env[name] - self.origin[name], one)
        return None if rest or any(env[n] - self.origin[n] != k * d for n, d in self.step.items()) else k

    def at(self, k: int) -> dict[str, int]:
        return _moved(self.origin, self.step, k)


class Ahead:
    """What a program has bound ahead; any thread may use it.

    Attributes:
        plans: by the shapes of the inputs, those that were made last.
    """

    def __init__(self) -> None:
        self.plans: Plans = {}
        self._further: Plans = {}  # of sizes that go on step by step
        self._blocks: list[Plans] = []  # of sizes at random
        self._line: _Line | None = None
        self._last: Plan | None = None
        self._step: dict[str, int] | None = None
        self._count, self._pause, self._waiting = FIRST, _PAUSE, 0
        self._lock = threading.Lock()

    def note(self, plan: Plan) -> None:
        """Sizes for which no plan was made ahead have this one."""
        last, self._last = self._last, plan
        self._step = None if last is None else _step(last.env, plan.env)
        line = self._line
        if line is not None and line.place(plan.env) is not None:
            line.aside = 0
        elif line is not None and line.aside < _ASIDE:
            line.aside += 1
        elif self._step is not None:
            common = math.gcd(*self._step.values())
            self._line = _Line(plan.env, {name: n // common for name, n in self._step.items()})

    def plan(self, program: CpuProgram, key: tuple[object, ...], env: dict[str, int]) -> Plan | None:
        """The plan for `env`, made with those of sizes near it or further on; None where it has to be made alone."""
        last = self._last
        if last is None or last.single is None or program._sized_inputs or last.single.parted:
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            found = self._next(program, last, key, env) or self._block(program, last, env)
            return None if found is None else found.get(key)
        finally:
            self._lock.release()

    def _next(self, program: CpuProgram, last: Plan, key: tuple[object, ...], env: dict[str, int]) -> Plans | None:
        """Where sizes go on step by step: plans for these and those further on."""
        step = self._step
        if step is None or _step(last.env, env) != step:
            return None
        if self._waiting:
            self._waiting -= 1
            return None
        count = _count(program, self._count)
        found = _bound(program, last, _fitting(program.executable, [_moved(env, step, i) for i in range(count)]))
        if found is None or key not in found:
            self._waiting, self._pause, self._count = self._pause, 2 * self._pause, FIRST
            return None
        self._pause, self._count = _PAUSE, min(MOST, 2 * self._count)
        program._keep(self._further)
        self._further, self._last = found, list(found.values())[-1]
        self._gather()
        return found

    def _block(self, program: CpuProgram, last: Plan, env: dict[str, int]) -> Plans | None:
        """Where sizes lie on a line, and several of their neighbours were met: plans for these and all neighbours."""
        line = self._line
        k = None if line is None else line.place(env)
        if line is None or k is None:
            return None
        size = _count(program, MOST)
        block = k // size
        line.met[block] += 1
        if line.met[block] != MET:
            return None
        executable = program.executable
        after = _fitting(executable, [line.at(i) for i in range(k, (block + 1) * size)])
        before = _fitting(executable, [line.at(i) for i in range(k - 1, block * size - 1, -1)])
        found = _bound(program, last, [*reversed(before), *after])
        if found is not None:
            self._blocks = [*self._blocks[1 - _BLOCKS :], found]
            self._gather()
        return found

    def _gather(self) -> None:
        self.plans = dict(chain.from_iterable(plans.items() for plans in (*self._blocks, self._further)))


def _count(program: CpuProgram, most: int) -> int:
    """How many sizes to bind together."""
    (segment,) = program.executable.units
    assert isinstance(segment, Segment)
    return min(most, max(FIRST, _MOST_NBYTES // (_STEP_NBYTES * len(segment.steps) + 1)))


def _bound(program: CpuProgram, last: Plan, envs: Sequence[dict[str, int]]) -> Plans | None:
    executable, threads = program.executable, program.pool.num_threads
    (segment,) = executable.units
    assert isinstance(segment, Segment)
    shapes = None if len(envs) < 2 else _shapes(executable, envs)
    bound = None if shapes is None else segment.bind_ahead(envs, threads)
    if bound is None or shapes is None:
        return None
    if is_large(bound[-1], envs[-1], threads):
        return None  # they may be worth parts
    names = program.inputs
    return {
        given: last.again(b, e, executable, dict(zip(names, given, strict=True)))
        for given, b, e in zip(shapes, bound, envs, strict=True)
    }


def _moved(env: Mapping[str, int], step: Mapping[str, int], times: int) -> dict[str, int]:
    return {name: n + times * step[name] for name, n in env.items()}


def _step(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int] | None:
    """How far sizes are from earlier ones; None where they are no others, or other symbols."""
    if before.keys() != after.keys():
        return None
    step = {name: n - before[name] for name, n in after.items()}
    return step if any(step.values()) else None


def _fitting(executable: Executable, envs: list[dict[str, int]]) -> list[dict[str, int]]:
    """As many of them as may be sizes."""
    for i, env in enumerate(envs):
        try:
            if min(env.values()) < 0:
                return envs[:i]
            for constraint in executable.constraints:
                constraint.check(env)
        except (InvalidArgument, KeyError):
            return envs[:i]
    return envs


def _shapes(executable: Executable, envs: Sequence[Mapping[str, int]]) -> list[tuple[tuple[int, ...], ...]] | None:
    """The shapes of the inputs for each of these sizes; None where they have others that no symbol tells."""
    columns = {name: np.array([env[name] for env in envs], object) for name in envs[0]}
    known: dict[object, list[tuple[int, ...]]] = {}
    rows = []
    for value in executable.inputs:
        kind = value.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        if kind.shape not in known:
            try:
                sizes = evaluate_many(kind.shape, columns)
            except KeyError:
                return None
            each = [list(n) if isinstance(d, Expr) else [n] * len(envs) for d, n in zip(kind.shape, sizes, strict=True)]  # type: ignore[arg-type]
            known[kind.shape] = list(zip(*each, strict=True)) if each else [()] * len(envs)
        rows.append(known[kind.shape])
    return list(zip(*rows, strict=True))
