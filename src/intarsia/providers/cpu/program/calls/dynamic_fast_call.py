"""Programs of one native segment as functions of a feed whose sizes change from run to run.

Sizes that plans are there for are looked up. Where the sizes of runs are equally spaced, as those of a decoder whose cache
grows, those that come next are bound one after the other, and native code goes from one to the next without asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.program import FeedCall
from intarsia.graph.dims import Dim, Expr, evaluate
from intarsia.graph.model import TensorType
from intarsia.plan.bound_segment import BoundSegment
from intarsia.providers.cpu.program.calls.fast_call import is_short, results_of
from intarsia.providers.cpu.program.calls.speculative_binding import FIRST, MOST, fitting, moved, step_between
from intarsia.runtime import interpreter
from intarsia.runtime.feed_call import DynamicFeedCall, DynamicPlace

if TYPE_CHECKING:
    from intarsia.plan.state import State
    from intarsia.plan.symbolic_binding import Rebinding
    from intarsia.providers.cpu.program.bound_plan import Plan
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_REPEATS = (2, 3)  # runs of the same sizes after which a session may find out that they stay

Results = Sequence[tuple[tuple[int, ...], np.dtype]]


def dynamic_call_of(program: CpuProgram, plan: Plan) -> FeedCall | None:
    """The function for inputs of sizes that plans are there for, of which `plan` is one; None where runs are more than a call
    of one segment, or ranks are not known."""
    bound, kinds = plan.single, [value.type for value in program.executable.inputs]
    if bound is None or bound.parted or plan.reshaped or program.context.on_step is not None:
        return None
    if interpreter.functions() is None:
        return None
    if not all(isinstance(kind, TensorType) and kind.shape is not None and not kind.dtype.numpy.hasobject for kind in kinds):
        return None
    found = results_of(plan, bound)
    if found is None or any(dtype.hasobject for _, dtype in bound.outputs):
        return None
    return DynamicFeed(program, plan, [i for i, _ in found]).call


class DynamicFeed(DynamicFeedCall):
    """Runs of a program whose plans are all one segment, with results in the same places. The session's reader, or symbols of
    the model, said of their sizes that they fit. The state of the last run is retained for the next one, where the session
    retains memory between runs."""

    def __init__(self, program: CpuProgram, plan: Plan, results: Sequence[int]) -> None:
        bound = plan.single
        assert bound is not None
        slots = {name: i for i, name in enumerate((*bound.segment.inputs, *bound.segment.outputs))}
        self._shapes: list[tuple[Dim, ...]] = []  # those that the model declares, each once
        inputs = []
        for value in program.executable.inputs:
            assert isinstance(value.type, TensorType)
            shape = value.type.shape
            assert shape is not None
            if shape not in self._shapes:
                self._shapes.append(shape)
            kind = self._shapes.index(shape)
            inputs.append(DynamicPlace(value.name, value.type.dtype.numpy, len(shape), slots.get(value.name, -1), kind))
        ranks = [len(shape) for shape in self._shapes]
        self._spans = [slice(end - rank, end) for rank, end in zip(ranks, accumulate(ranks), strict=True)]
        self._kinds = [place.kind for place in inputs]
        made = [(i, bound.outputs[i], slots[bound.segment.outputs[i]]) for i in results]
        outputs = [DynamicPlace("", dtype, len(shape), slot, i) for i, (shape, dtype), slot in made]
        super().__init__(program.pool, ranks, inputs, outputs)
        self._program, self._plan, self._bound, self._repeats = program, plan, bound, 0
        self._state: State | None = None
        arena = bound.segment.arena
        self._retains = arena.keep and not arena.limit
        self._env: dict[str, int] = {}  # of the last run, and of the one before: not known yet
        self._before = self._env
        self._found: list[Rebinding] = []  # of the series that native code follows, with their sizes
        self._envs: list[dict[str, int]] = []
        self._count = FIRST
        self._other: tuple[tuple[int, ...], ...] | None = None  # of a run that went another way

    def begin(self) -> Results | None:
        state = self._left()
        if self.same and not self._found:
            self._repeats += 1
            plan = self._plan
            may_stay = self._repeats in _REPEATS and (plan.feed is None or plan.feed[0] is not None)
            if may_stay and is_short(self._bound):
                self._refused(state)
                return None
            return self._started(state, self._bound)
        self._found, self._envs = [], []
        plan_found = self._program.known_plan(self._shapes_at_hand())
        if plan_found is not None:
            bound = plan_found.single
            if bound is None or bound.parted:
                self._refused(state)
                return None
            self._plan, self._repeats = plan_found, 0
            self._before, self._env = self._env, plan_found.env
            return self._started(state, bound)
        series = self._ahead()
        if not series:
            self._refused(state)
            return None
        self._repeats = 0
        return self._followed(state, series)

    def end(self) -> None:
        state, self._state = self._state, None
        assert state is not None
        self.check_signals()
        if self._stays(state):
            self._state = state
            return
        if state.sized is not None:
            state.end(self._bound)
        self._bound.release(state)

    def _left(self) -> State | None:
        """The state that the last run left, which is told what native code made of it; and sizes of that run."""
        state, self._state = self._state, None
        count = self.followed
        if count and state is not None:
            state.found = self._found[count - 1]
            self._before = self._envs[count - 2] if count > 1 else self._env
            self._env = self._envs[count - 1]
        self.set_series(None)
        plan = None if self._other is None else self._program.known_plan(self._other)
        if plan is not None:
            self._before, self._env = self._env, plan.env
        self._other = None
        return state

    def _refused(self, state: State | None) -> None:
        """The run goes another way, by the state that was retained for it."""
        if state is not None:
            self._bound.release(state)
        self._other = self._shapes_at_hand()

    def _stays(self, state: State) -> bool:
        """Whether the state may be retained, and used without a look at it."""
        return self._retains and state.sized is None and not state.windows

    def _started(self, state: State | None, bound: BoundSegment) -> Results:
        if state is not None and self._bound._free is not bound._free:
            self._bound.release(state)
            state = None
        self._bound = bound
        self._state = state = bound.acquire() if state is None else bound.readied(state)
        stays = self._stays(state) and (self._repeats > max(_REPEATS) or bound.long)
        self.set_call(state.block_address, state.status if bound.checked else None, bound.outputs if stays else None)
        return bound.outputs

    def _shapes_at_hand(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the feed at hand."""
        sizes = self.sizes.tolist()
        shapes = [tuple(sizes[span]) for span in self._spans]
        return tuple([shapes[kind] for kind in self._kinds])

    # --- sizes that come one after the other ---

    def _ahead(self) -> list[tuple[Rebinding, dict[str, int]]]:
        """Bindings for the sizes at hand and those further on, where these are spaced as the last ones."""
        program, step = self._program, step_between(self._before, self._env)
        segment, threads = self._bound.segment, program.pool.num_threads
        if step is None or not self._retains or segment.sized is not None:
            return []
        first = moved(self._env, step, 1)
        if not np.array_equal(self._rows([first])[0], self.sizes):
            return []
        envs = fitting(program.executable, [moved(first, step, i) for i in range(self._count)])
        found = segment.found_ahead(envs, threads)
        self._count = min(MOST, 2 * self._count) if len(found) == len(envs) else FIRST
        series = list(zip(found, envs, strict=False))
        while series and program.may_be_parted(BoundSegment.of(segment, *series[-1]), series[-1][1]):
            series.pop()
        return series

    def _followed(self, state: State | None, series: list[tuple[Rebinding, dict[str, int]]]) -> Results:
        """Begin with the first of a series, and let native code go on with those that its state has room for."""
        segment = self._bound.segment
        largest = max(series, key=lambda one: one[0].arena_nbytes)
        if largest[0].arena_nbytes > self._bound.arena_nbytes:
            self._started(state, BoundSegment.of(segment, *largest))
            state = self._state
        (first, self._env), self._before = series[0], self._env
        results = self._started(state, BoundSegment.of(segment, *series[0]))
        state = self._state
        assert state is not None
        count, least = 1, len(state.args)
        while count < len(series) and is_like(series[count][0], first) and series[count][0].used <= least:
            count += 1
        if count > 1 and self._stays(state) and state.found is first:
            self._found, self._envs = [one for one, _ in series[1:count]], [env for _, env in series[1:count]]
            rows = np.empty((count - 1, 2 + len(self.sizes)), np.int64)
            rows[:, 0] = [one.address for one in self._found]
            rows[:, 1] = [id(one.outputs) for one in self._found]
            rows[:, 2:] = self._rows(self._envs)
            self.set_series(rows, *state.settled_by)
        return results

    def _rows(self, envs: Sequence[Mapping[str, int]]) -> np.ndarray:
        """int64 [sizes, numbers]: what `sizes` would be."""
        columns = [size_column(d, envs) for shape in self._shapes for d in shape]
        return np.array(columns, np.int64).reshape(len(columns), len(envs)).T


def size_column(dim: Dim, envs: Sequence[Mapping[str, int]]) -> Sequence[int]:
    """A size for each of these environments; -1 where its symbols are not there."""
    if not isinstance(dim, Expr):
        return [dim] * len(envs)
    name = str(dim)
    try:
        return [env[name] for env in envs] if dim.symbols == {name} else [evaluate(dim, env) for env in envs]
    except KeyError:  # a size that no symbol tells
        return [-1] * len(envs)


def is_like(found: Rebinding, first: Rebinding) -> bool:
    """Whether a run of one may go by the words of a call that are set for the other."""
    same = found.long == first.long and found.side_by_side == first.side_by_side
    return same and not found.sliced and not first.sliced
