"""What calls of native segments tell: the times of their steps, and which step found something wrong with its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia.errors import NodeFailed
from intarsia.plan.step import Step
from intarsia.providers.cpu.value_names import original_name
from intarsia.run_status import DIVISION_BY_ZERO, MESSAGES

if TYPE_CHECKING:
    from intarsia.ep.provider import StepObserver
    from intarsia.plan.bound_segment import BoundSegment
    from intarsia.plan.segment import Segment
    from intarsia.plan.state import State


def report_times(on_step: StepObserver, bound: BoundSegment, state: State) -> None:
    """Tell `on_step` of each step of a call that was timed."""
    if state.times is not None:
        _report(on_step, bound, state.times, state.values is not None)
    for part, times in state.timed:
        _report(on_step, part, times, False)


def _report(on_step: StepObserver, bound: BoundSegment, times: np.ndarray, short: bool) -> None:
    """`short`: values that depend on sizes alone were there."""
    segment = bound.segment
    left_out = frozenset(segment.sized.steps if short and segment.sized is not None else ())
    for first, last in segment.spans():
        if first in left_out:
            continue
        names = dict.fromkeys(original_name(n) for s in segment.steps[first : last + 1] for n in s.nodes)
        nbytes = sum(bound.step_nbytes(i) for i in range(first, last + 1))
        on_step(segment.steps[first].title, list(names), int(times[first]), int(times[last + 1]), nbytes)


def step_failed(segment: Segment, status: np.ndarray) -> NodeFailed:
    """The error of the first step whose status word says that something is wrong with its data."""
    first = int(np.flatnonzero(status)[0])
    step, fault = segment.steps[first], int(status[first])
    divides = step.divides if isinstance(step, Step) and fault == DIVISION_BY_ZERO else ""
    return NodeFailed(f"{divides or step.where}: {MESSAGES[fault]}")
