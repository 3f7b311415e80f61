"""Plans for sizes that are likely to come next.

A decoder's cache grows by one in every run. Where the sizes of three runs are equally far apart, those of the runs to come are
bound together, as array operations: one length costs a few microseconds then, and a run that meets it finds its plan made.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
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


class Ahead:
    """What a program has bound ahead; any thread may use it.

    Attributes:
        plans: by the shapes of the inputs, those that were made last.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple[object, ...], Plan] = {}
        self._last: Plan | None = None
        self._step: dict[str, int] | None = None
        self._count, self._pause, self._waiting = FIRST, _PAUSE, 0
        self._lock = threading.Lock()

    def note(self, plan: Plan) -> None:
        """Sizes for which no plan was made ahead have this one."""
        last, self._last = self._last, plan
        self._step = None if last is None else _step(last.env, plan.env)

    def plan(self, program: CpuProgram, key: tuple[object, ...], env: dict[str, int]) -> Plan | None:
        """The plan for `env`, made with those of sizes further on; None where these sizes go on from no others so."""
        last, step = self._last, self._step
        if last is None or step is None or last.single is None or program._sized_inputs or _step(last.env, env) != step:
            return None
        if last.single.parted:
            return None
        if self._waiting or not self._lock.acquire(blocking=False):
            self._waiting -= self._waiting > 0
            return None
        try:
            found = self._bound(program, last, env, step)
            if found is None or key not in found:
                self._waiting, self._pause, self._count = self._pause, 2 * self._pause, FIRST
                return None
            self._pause, self._count = _PAUSE, min(MOST, 2 * self._count)
            program._keep(self.plans)
            self.plans, self._last = found, list(found.values())[-1]
            return found[key]
        finally:
            self._lock.release()

    def _bound(
        self, program: CpuProgram, last: Plan, env: Mapping[str, int], step: Mapping[str, int]
    ) -> dict[tuple[object, ...], Plan] | None:
        executable = program.executable
        (segment,) = executable.units
        assert isinstance(segment, Segment)
        count = min(self._count, max(FIRST, _MOST_NBYTES // (_STEP_NBYTES * len(segment.steps) + 1)))
        envs = _fitting(executable, [{name: n + i * step[name] for name, n in env.items()} for i in range(count)])
        shapes = None if len(envs) < 2 else _shapes(executable, envs)
        bound = None if shapes is None else segment.bind_ahead(envs, program.pool.num_threads)
        if bound is None or shapes is None:
            return None
        rows = segment.rows
        if rows is not None and is_large(bound[-1], rows, envs[-1], program.pool.num_threads):
            return None  # they may be worth parts
        names = program.inputs
        return {
            given: last.again(b, e, executable, dict(zip(names, given, strict=True)))
            for given, b, e in zip(shapes, bound, envs, strict=True)
        }


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
