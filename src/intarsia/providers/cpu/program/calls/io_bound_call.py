"""Calls of a program on fixed memory: what `IOBinding` makes of a model that is one native segment.

The step table, its arguments and the addresses of inputs and outputs stay in place between runs, so that a run is one call
of the executor, from native code where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.provider import BoundCall
from intarsia.machine import fork_safety
from intarsia.plan.array_address import address_of
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.output_aliasing import Targets, fits
from intarsia.plan.result_pool import memory
from intarsia.runtime.feed_call import again_call

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram


class CpuBoundCall(BoundCall):
    """One segment with its own state, run on the same arrays again and again."""

    def __init__(
        self, program: CpuProgram, bound: BoundSegment, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]
    ) -> None:
        segment = bound.segment
        self._program, self._bound = program, bound
        self._state = bound.new_state()
        self._block, self._externals = self._state.block_address, self._state.externals
        self._call = partial(_run_parts, self._state, program.pool.run_block) if bound.parted else program.pool.run_block
        self._lock = fork_safety.lock()
        self._inputs = list(inputs)
        slots = {name: i for i, name in enumerate(segment.inputs)}
        self._input_slots = [slots.get(name, -1) for name in program.read]
        places = {name: len(segment.inputs) + i for i, name in enumerate(segment.outputs)}
        specs = dict(zip(segment.outputs, bound.outputs, strict=True))
        self._output_slots = [places[name] for name in targets]
        self._specs = [specs[name] for name in targets]
        self._names, self._targets = tuple(targets), list(targets.values())
        self._unwanted = [np.empty(*specs[name]) for name in segment.outputs if name not in targets]
        for array, name in zip(self._unwanted, (n for n in segment.outputs if n not in targets), strict=True):
            self._externals[places[name]] = address_of(array)
        for slot, array in zip(self._input_slots, self._inputs, strict=True):
            if slot >= 0:
                self._externals[slot] = address_of(array)
        self._settle()
        if not (bound.long or bound.parted or bound.sliced or self._state.sized is not None):
            state, status = self._state, self._state.status if bound.checked else None
            self.again = again_call(program.pool, self._block, state.tables, status, self._lock, state, program, bound)

    def _settle(self) -> None:
        """Write the targets' addresses; outputs without one get new memory in each run."""
        self._places = Targets(dict(zip(self._names, self._targets, strict=True)), self._bound.segment.onto)
        for slot, target in zip(self._output_slots, self._targets, strict=True):
            if target is not None:
                self._externals[slot] = address_of(target)
        self._fresh = [
            (i, slot, *spec)
            for i, (slot, spec, target) in enumerate(zip(self._output_slots, self._specs, self._targets, strict=True))
            if target is None
        ]
        self._results: list[Any] | None = None

    def __call__(self) -> list[Any] | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            results = self._results
            if results is None:
                results = self._targets.copy()
                for i, slot, shape, dtype in self._fresh:
                    results[i] = y = memory.empty(shape, dtype)
                    self._externals[slot] = address_of(y)
                self._results = results
            state = self._state
            if state.sized is None:
                state.choose()
            else:
                state.begin(self._bound)
            self._call(self._block)
            if self._bound.checked and self._state.status.tobytes() != self._bound.unset:
                status = self._state.status.copy()
                self._state.status[:] = 0
                self._program.report_status(self._bound.segment, status)
            if state.sized is not None:
                state.end(self._bound)
        except BaseException:  # a signal's handler raised one
            self._state.cut_short()
            self._results = None
            raise
        else:
            return results
        finally:
            self._lock.release()

    def renew(self) -> None:
        self._results = None

    def rebind(self, index: int, value: Any) -> bool:
        if type(value) is not np.ndarray or index < 0:
            return False
        old, flags = self._inputs[index], value.flags
        if value.shape != old.shape or value.dtype is not old.dtype:
            return False
        if not (flags.carray or (flags.c_contiguous and flags.aligned)):
            return False
        if not self._places.allow(self._program.read[index], value):
            return False
        if not self._lock.acquire(False):  # by keyword it takes twice the time
            return False
        try:
            self._inputs[index] = value
            slot = self._input_slots[index]
            if slot >= 0:
                self._externals[slot] = address_of(value)
        finally:
            self._lock.release()
        return True

    def retarget(self, index: int, target: np.ndarray | None) -> bool:
        if index < 0:
            return False
        targets = [target if i == index else t for i, t in enumerate(self._targets)]
        if target is not None:
            named = dict(zip(self._names, targets, strict=True))
            if not (fits(target, self._specs[index]) and may_be(named, self._program, self._inputs, self._bound)):
                return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._targets = targets
            self._settle()
        finally:
            self._lock.release()
        return True


def bound_call(
    program: CpuProgram, bound: BoundSegment, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]
) -> CpuBoundCall | None:
    """The call that reads `inputs` and writes `targets` (None: new memory in each run); None where these may not lie where
    they do, a target is of another type or shape, memory is limited, or an output is not written by the segment under its own
    name."""
    specs = dict(zip(bound.segment.outputs, bound.outputs, strict=True))
    if specs.keys() != set(program.outputs) or not targets.keys() <= specs.keys():
        return None
    if not all(target is None or fits(target, specs[name]) for name, target in targets.items()):
        return None
    if not may_be(targets, program, inputs, bound):
        return None
    arena = bound.segment.arena
    if arena.limit or not arena.keep:  # a binding's memory is its own as long as it lives: others would run short of it
        return None
    return CpuBoundCall(program, bound, inputs, targets)


def _run_parts(state: Any, call: Callable[[int], int], _: int) -> int:
    status: int = state.run(call)
    return status


def may_be(
    targets: Mapping[str, np.ndarray | None], program: CpuProgram, inputs: Sequence[np.ndarray], bound: BoundSegment
) -> bool:
    """Whether a run that reads `inputs` may write into the targets' memory."""
    places = Targets(targets, bound.segment.onto)
    return places.disjoint and all(map(places.allow, program.read, inputs))
