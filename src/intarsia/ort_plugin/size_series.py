"""Sizes that come one after the other, as those of a decoder whose cache grows: bound ahead, for native code to go through.

Where the sizes of three runs are equally spaced, those of the runs to come are bound together (`speculative_binding`), and laid
out in rows that the open call's native code compares with what it noted (`compute_text`). A run that meets its row needs no
Python. Other sizes are requested as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.graph.model import TensorType
from intarsia.plan.bound_segment import BoundSegment
from intarsia.providers.cpu.program.calls.dynamic_fast_call import is_like, size_column
from intarsia.providers.cpu.program.calls.speculative_binding import FIRST, MOST, fitting, moved, step_between

if TYPE_CHECKING:
    from intarsia.graph.dims import Dim
    from intarsia.plan.state import State
    from intarsia.plan.symbolic_binding import Rebinding
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

Shape = tuple[int, ...]


class Ahead(NamedTuple):
    """Bindings for sizes that are likely to come.

    Attributes:
        found: what a frame found for each, that of the run at hand first.
        inputs: int64 [sizes, numbers], the sizes of all inputs one after the other.
    """

    found: list[Rebinding]
    envs: list[dict[str, int]]
    inputs: np.ndarray

    def shapes(self, which: int) -> list[Shape]:
        """Of one of the segment's results, for each of the sizes."""
        return [one.outputs[which][0] for one in self.found]

    def bound(self, i: int) -> BoundSegment:
        """One of them as a binding."""
        return BoundSegment.of(self.found[i].frame.segment, self.found[i], self.envs[i])


class SizeSeries:
    """The sizes of a part's runs so far, and what is bound ahead of them."""

    def __init__(self, program: CpuProgram) -> None:
        kinds = [value.type for value in program.executable.inputs]
        self._shapes: list[tuple[Dim, ...]] = []
        for kind in kinds:
            assert isinstance(kind, TensorType)
            assert kind.shape is not None
            self._shapes.append(kind.shape)
        self._env: dict[str, int] = {}
        self._before = self._env
        self._count = FIRST

    def note(self, env: Mapping[str, int]) -> None:
        """The sizes of a run."""
        self._before, self._env = self._env, dict(env)

    def ahead(self, program: CpuProgram, bound: BoundSegment, sizes: np.ndarray) -> Ahead | None:
        """Bindings for the sizes at hand and those further on, where these are spaced as the last ones.

        Args:
            bound: that of the last run.
            sizes: int64, of all inputs, one after the other.
        """
        step, segment = step_between(self._before, self._env), bound.segment
        arena = segment.arena
        if step is None or segment.sized is not None or not arena.keep or arena.limit:
            return None
        first = moved(self._env, step, 1)
        if not np.array_equal(self._rows([first])[0], sizes):
            return None
        envs = fitting(program.executable, [moved(first, step, i) for i in range(self._count)])
        found = segment.found_ahead(envs, program.pool.num_threads)
        self._count = min(MOST, 2 * self._count) if len(found) == len(envs) else FIRST
        envs = envs[: len(found)]
        while found and program.may_be_parted(BoundSegment.of(segment, found[-1], envs[-1]), envs[-1]):
            found.pop()
            envs.pop()
        return Ahead(found, envs, self._rows(envs)) if found else None

    def _rows(self, envs: Sequence[Mapping[str, int]]) -> np.ndarray:
        known: dict[Dim, Sequence[int]] = {}
        for shape in self._shapes:
            for d in shape:
                if d not in known:
                    known[d] = size_column(d, envs)
        columns = [known[d] for shape in self._shapes for d in shape]
        return np.array(columns, np.int64).reshape(len(columns), len(envs)).T


def length(ahead: Ahead, state: State) -> int:
    """How many of them a state can go through by native code, the first included."""
    first, room, count = ahead.found[0], len(state.args), 1
    if state.found is not first or state.sized is not None or state.windows or state.tables[1] is not None:
        return 1
    while count < len(ahead.found) and is_like(ahead.found[count], first) and ahead.found[count].used <= room:
        count += 1
    return count
