"""Plans for sizes that are likely to come next.

A decoder's cache grows by one in every run. Where the sizes of three runs are equally spaced, those of the runs to come are
bound one after the other: while the code that binds is in the caches, that takes a third of the time that it takes between
runs, and a run that meets such a size finds its plan made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, Expr, evaluate
from intarsia.graph.model import TensorType
from intarsia.machine import fork_safety
from intarsia.plan.segment import Segment
from intarsia.plan.size_constraints import check_known
from intarsia.providers.cpu.executable import Executable

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.bound_plan import Plan
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

FIRST, MOST = 8, 64  # sizes that are bound together, twice as many each time
_PAUSE = 16  # sizes for which nothing is tried after it was in vain, twice as many each time
_MOST_NBYTES, _STEP_NBYTES = 2 << 20, 200  # of the words of sizes that are bound together, and of a step, roughly

Plans = dict[tuple[object, ...], "Plan"]


class Ahead:
    """What a program has bound ahead; any thread may use it.

    Attributes:
        plans: by the shapes of the inputs, those that were made last.
    """

    def __init__(self) -> None:
        self.plans: Plans = {}
        self._last: Plan | None = None
        self._step: dict[str, int] | None = None
        self._count, self._pause, self._waiting = FIRST, _PAUSE, 0
        self._given: _Given | None = None
        self._lock = fork_safety.lock()

    def note(self, plan: Plan) -> None:
        """Sizes for which no plan was made ahead have this one."""
        last, self._last = self._last, plan
        self._step = None if last is None else step_between(last.env, plan.env)

    def plan(self, program: CpuProgram, key: tuple[object, ...], env: dict[str, int]) -> Plan | None:
        """The plan for `env`, made with those of sizes further on; None where it has to be made alone."""
        last, step = self._last, self._step
        if last is None or step is None or step_between(last.env, env) != step:
            return None
        if last.single is None or program._sized_inputs or last.single.parted or not self._lock.acquire(blocking=False):
            return None
        try:
            return self._next(program, last, step, key, env)
        finally:
            self._lock.release()

    def _next(
        self, program: CpuProgram, last: Plan, step: Mapping[str, int], key: tuple[object, ...], env: dict[str, int]
    ) -> Plan | None:
        if self._waiting:
            self._waiting -= 1
            return None
        if self._given is None:
            self._given = _Given(program.executable)
        count = min(self._count, max(FIRST, _MOST_NBYTES // (_STEP_NBYTES * _segment(program).count + 1)))
        envs = fitting(program.executable, [moved(env, step, i) for i in range(count)])
        found = _bound(program, last, envs, self._given)
        if key not in found:
            if found:  # with shapes that no symbol tells
                self._waiting, self._pause, self._count = self._pause, 2 * self._pause, FIRST
            return None
        self._pause, self._count = _PAUSE, min(MOST, 2 * self._count)
        program._keep(self.plans)
        self.plans, self._last = found, list(found.values())[-1]
        return found[key]


def _segment(program: CpuProgram) -> Segment:
    (segment,) = program.executable.units
    assert isinstance(segment, Segment)
    return segment


def _bound(program: CpuProgram, last: Plan, envs: Sequence[dict[str, int]], given: _Given) -> Plans:
    executable = program.executable
    bound = _segment(program).bind_ahead(envs, program.pool.num_threads)
    while bound and program.may_be_parted(bound[-1], envs[len(bound) - 1]):
        bound.pop()  # it has to be looked at
    plans = Plans()
    for b, env in zip(bound, envs, strict=False):
        shapes = given.shapes(env)
        if shapes is None:
            break
        plans[shapes] = last.again([b], env, executable, shapes)
    return plans


def moved(env: Mapping[str, int], step: Mapping[str, int], times: int) -> dict[str, int]:
    """Sizes so many steps further on."""
    return {name: n + times * step[name] for name, n in env.items()}


def step_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int] | None:
    """How far sizes are from earlier ones; None where they are no others, or other symbols."""
    if before.keys() != after.keys():
        return None
    step = {name: n - before[name] for name, n in after.items()}
    return step if any(step.values()) else None


def fitting(executable: Executable, envs: list[dict[str, int]]) -> list[dict[str, int]]:
    """As many of them as may be sizes."""
    for i, env in enumerate(envs):
        try:
            if min(env.values()) < 0:
                return envs[:i]
            check_known(executable.constraints, env)
        except (InvalidArgument, KeyError):
            return envs[:i]
    return envs


class _Given:
    """The shapes of a program's inputs, of which those of layers are equal."""

    def __init__(self, executable: Executable) -> None:
        kinds = [value.type for value in executable.inputs]
        dims = [kind.shape if isinstance(kind, TensorType) else None for kind in kinds]
        different = list(dict.fromkeys(dims))
        self._which = [different.index(d) for d in dims]
        self._different = [None if shape is None else [_plain(d) for d in shape] for shape in different]

    def shapes(self, env: Mapping[str, int]) -> tuple[tuple[int, ...], ...] | None:
        """For these sizes; None where inputs have others that no symbol tells."""
        found = []
        for dims in self._different:
            if dims is None:
                return None
            try:
                found.append(
                    tuple([d if isinstance(d, int) else env[d] if isinstance(d, str) else evaluate(d, env) for d in dims])
                )
            except KeyError:
                return None
        return tuple([found[which] for which in self._which])


def _plain(d: Dim) -> Dim | str:
    """A symbol alone by its name."""
    return str(d) if isinstance(d, Expr) and d.symbols == {str(d)} else d
