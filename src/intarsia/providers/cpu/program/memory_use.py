"""What a CPU program holds in memory, and what a run on given shapes would need."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.program import PlanMemory, ProgramMemory
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.segment import Segment
from intarsia.providers.cpu.executable import Unit

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

MAPPED, SHARED, OWN = "mapped", "shared", "own"


def memory_of(program: CpuProgram) -> ProgramMemory:
    """What `program` and the programs of its subgraphs hold."""
    bodies = [*(body for _, body in program._bodies.values()), *(loop.body for loop in program.loops.values())]
    inner = [memory_of(body) for body in bodies]
    executable = program.executable
    arrays = {a.ctypes.data: a for found in (executable.constants, *(s.constants for s in executable.segments()))
              for a in found.values() if isinstance(a, np.ndarray) and a.nbytes}  # fmt: skip
    sums = {MAPPED: 0, SHARED: 0, OWN: 0}
    for array in arrays.values():
        sums[owner(array)] += array.nbytes
    plans = [_plan(_shapes(program, key), plan.units) for key, plan in tuple(program._plans.items())]
    for body in inner:
        sums = {MAPPED: sums[MAPPED] + body.mapped_nbytes, SHARED: sums[SHARED] + body.shared_nbytes,
                OWN: sums[OWN] + body.packed_nbytes}  # fmt: skip
        plans += body.plans
    values = sum(found.nbytes for s in executable.segments() for found in s.values_of_sizes())
    return ProgramMemory(sums[MAPPED], sums[SHARED], sums[OWN], plans, values + sum(body.values_nbytes for body in inner))


def predicted(program: CpuProgram, shapes: Sequence[Sequence[int] | None]) -> PlanMemory:
    """What a run on inputs of these shapes (None: not known) would need; nothing is run or retained."""
    env = dict(program.executable.sizes)
    for value, shape in zip(program.executable.inputs, shapes, strict=True):
        for symbol, axis in program.executable.learned.get(value.name, ()):
            if shape is not None and 0 <= axis < len(shape):
                env.setdefault(symbol, shape[axis])
    units: list[BoundSegment | Unit] = []
    for unit in program.executable.units:
        if isinstance(unit, Segment):
            try:
                units.append(program.in_parts(unit.bind_exactly(env, program.pool.num_threads), env))
            except KeyError:
                units.append(unit)
    text = ", ".join(f"{v.name} {list(s)}" for v, s in zip(program.executable.inputs, shapes, strict=True) if s is not None)
    return _plan(text, units)


def owner(array: np.ndarray) -> str:
    """Whose memory an array lies in: a mapped file's, the caller's, or its own."""
    base: Any = array
    while True:
        if isinstance(base, mmap.mmap):
            return MAPPED
        if isinstance(base, bytes):
            return SHARED
        inner = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
        if inner is None:
            return OWN
        base = inner


def _shapes(program: CpuProgram, key: Sequence[object]) -> str:
    return ", ".join(f"{n} {list(s)}" for n, s in zip(program.inputs, key, strict=False) if isinstance(s, tuple))


def _plan(shapes: str, units: Iterable[BoundSegment | Unit]) -> PlanMemory:
    bound: list[BoundSegment] = []
    unknown = 0
    for unit in units:
        if isinstance(unit, BoundSegment):
            bound.append(unit)
        elif isinstance(unit, Segment):
            bound += unit._bound.values()
            unknown += not unit._bound
    outputs = sum(math.prod(shape) * dtype.itemsize for b in bound for shape, dtype in b.outputs)
    outputs += sum(sum(b.sized_nbytes) for b in bound)
    return PlanMemory(
        shapes, sum(b.arena_nbytes for b in bound), max((b.workspace_nbytes for b in bound), default=0), outputs,
        max((b.blocks for b in bound), default=0), min((b.idle for b in bound), default=0), unknown,
    )  # fmt: skip
