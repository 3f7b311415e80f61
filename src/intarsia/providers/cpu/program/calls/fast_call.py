"""Programs of one short native segment as functions of a feed: what a session calls from the third run of a shape on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.program import FeedCall
from intarsia.graph.dtypes import DType
from intarsia.runtime.feed_call import Place, feed_call

if TYPE_CHECKING:
    from intarsia.plan.bound_segment import BoundSegment
    from intarsia.providers.cpu.program.bound_plan import Plan
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_MOST_NBYTES = 16 << 20  # of memory between steps: each function retains the one of the runs before it


def feed_call_of(program: CpuProgram, plan: Plan, inputs: Sequence[np.ndarray]) -> FeedCall | None:
    """The function for inputs of these shapes, to which `plan` is bound; None where runs take so long that Python's part counts
    for nothing, or are more than a call of one segment."""
    bound = plan.single
    if bound is None or not all(type(x) is np.ndarray for x in inputs) or not is_short(bound):
        return None
    arena, found = bound.segment.arena, results_of(plan, bound)
    if found is None or arena.limit or not arena.keep or program.context.on_step is not None:
        return None
    state = bound.acquire()
    if state.sized is not None:
        bound.release(state)
        return None  # each run looks at more than its inputs
    unread = np.zeros(1, np.int64)
    externals = ctypes.addressof(state.externals)
    slots = {name: externals + 8 * i for i, name in enumerate((*bound.segment.inputs, *bound.segment.outputs))}
    given = [
        Place(name, DType.of(x.dtype).numpy, x.shape, slots.get(name, unread.ctypes.data))
        for name, x in zip(program.read, inputs, strict=True)
    ]
    made = [Place("", bound.outputs[i][1], shape, slots[bound.segment.outputs[i]]) for i, shape in found]
    status = state.status if bound.checked else None
    return feed_call(program.pool, state.block_address, state.tables, given, made, status, state, unread, program, bound)


def is_short(bound: BoundSegment) -> bool:
    """Whether runs are so short that Python's part counts."""
    whole = not any(dtype.hasobject for _, dtype in bound.outputs)
    return whole and not (bound.long or bound.parted or bound.sliced or bound.arena_nbytes > _MOST_NBYTES)


def results_of(plan: Plan, bound: BoundSegment) -> list[tuple[int, tuple[int, ...]]] | None:
    """For each output of the program the segment's result that it is, and its shape; None where one is something else."""
    found = plan.results()
    return None if found is None or sorted(i for i, _ in found) != list(range(len(bound.outputs))) else found
