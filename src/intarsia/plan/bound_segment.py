"""A segment for given sizes, which all callers share; each that runs it takes a state."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.graph.dims import evaluate
from intarsia.plan import executor_abi
from intarsia.plan.parallel_branches import Window
from intarsia.plan.relocations import Words, words_of
from intarsia.plan.shape_constants import Values
from intarsia.plan.state import State
from intarsia.plan.step import Argument, Step

if TYPE_CHECKING:
    from intarsia.plan.binding_cache import Binding
    from intarsia.plan.segment import Segment
    from intarsia.plan.symbolic_binding import Rebinding


class BoundSegment:
    """A segment for given sizes."""

    parted = False  # whether it is bound in parts (`plan.microbatch`)
    segment: Segment
    checked: bool
    unset: bytes
    windows: tuple[Window, ...]  # where branches go side by side
    shapes: dict[str, tuple[int, ...]]  # of a frame's, or a restored one: found when they are requested, as of a frame's
    serial: Sequence[bool] | np.ndarray  # which steps one thread runs
    whole = False  # whether it was looked at, and is not worth parts
    is_first = False  # whether it may be cached for later processes
    count: int  # steps
    _env: dict[str, int]
    _threads: int
    _cached: Binding | None = None  # of a restored one
    _words: tuple[Words, np.ndarray] | None = None
    sized_nbytes: tuple[int, ...] = ()  # bytes of each value that depends on sizes alone
    values: Values | None = None  # these, once they are retained
    repeated = False  # whether there was a run with these sizes

    def __init__(
        self, segment: Segment, shapes: dict[str, tuple[int, ...]], offsets: dict[str, int], arena_nbytes: int,
        external: dict[str, int], arguments: list[Sequence[Argument]], serial: Sequence[bool],
        workspace_nbytes: int = 0, found: tuple[Window, ...] = (),
    ) -> None:  # fmt: skip
        self._found: Rebinding | None = None
        self.workspace_nbytes = workspace_nbytes
        self.shapes, self.offsets, self.arena_nbytes = shapes, offsets, arena_nbytes
        self.external, self.arguments = external, arguments
        self.outputs = tuple([(shapes[n], segment.buffers[n].dtype.numpy) for n in segment.outputs])
        self.serial = serial
        self._begin(segment)
        self.windows = found

    @classmethod
    def of(cls, segment: Segment, found: Rebinding, env: dict[str, int]) -> BoundSegment:
        """What a frame found. `env` stays as it is."""
        self, frame = cls.__new__(cls), found.frame
        shared = frame.shared(found)
        self.checked, self.unset, self.count = frame.common  # no dict is made of attributes that are set one by one
        self.segment = segment
        self._found, self._env, self._keep = found, env, segment.arena.keep
        self.outputs, self.arena_nbytes = found.outputs, found.arena_nbytes
        self.workspace_nbytes, self.long, self.sliced = found.workspace_nbytes, found.long, found.sliced
        self.sized_nbytes, self._threads = found.sized_nbytes, frame.threads
        self._free, self._states = shared.free, shared.states
        self.windows = frame.windows if found.side_by_side else ()
        return self

    @classmethod
    def restored(cls, segment: Segment, cached: Binding, env: Mapping[str, int], threads: int) -> BoundSegment:
        """What an earlier process found; the segment's steps are not needed for it."""
        self = cls.__new__(cls)
        self._start(segment)
        self._found, self._cached, self._env, self._threads = None, cached, dict(env), threads
        self.count, self.checked = len(cached.words.functions), cached.checked
        self.unset = bytes(8 * self.count)
        dtypes = [segment.buffers[name].dtype.numpy for name in segment.outputs]
        self.outputs = tuple(zip(cached.shapes, dtypes, strict=True))
        self.serial, self.windows, self.whole = cached.serial, cached.windows, cached.whole
        self.arena_nbytes, self.workspace_nbytes = cached.arena_nbytes, cached.workspace_nbytes
        self.sized_nbytes = cached.sized_nbytes
        self.long, self.sliced = cached.long, {i: (many, stride) for i, (many, stride, *_) in cached.sliced.items()}
        return self

    def _begin(self, segment: Segment) -> None:
        self.checked, self.unset, self.count = segment.common
        self._start(segment)

    def _start(self, segment: Segment) -> None:
        self.segment = segment
        self.windows = ()
        self.long = False  # a run may take more than a millisecond
        self.sliced: dict[int, tuple[int, int]] = {}  # step -> slices for each thread, bytes of scratch of each thread
        self._keep = segment.arena.keep
        self._free: list[State] = []
        self._states: weakref.WeakSet[State] = weakref.WeakSet()

    def words(self) -> tuple[Words, np.ndarray]:
        """Of one that no frame found: the words of its arguments, and these with addresses that are the same for all runs."""
        if self._words is None:
            cached, segment = self._cached, self.segment
            words = words_of(segment, self.arguments, self.offsets, self.external) if cached is None else cached.words
            self._words = words, words.located(segment)
        return self._words

    def sliced_as(self, step: int) -> tuple[int, int | None, int]:
        """How many arguments a step has that runs in slices, and which are its scratch memory and its number of pieces."""
        if self._cached is not None:
            _, _, count, scratch, pieces = self._cached.sliced[step]
            return count, scratch, pieces
        arguments, found = self.arguments[step], self.segment.steps[step]
        return len(arguments), executor_abi.scratch_argument(arguments), found.pieces if isinstance(found, Step) else -1

    def __getattr__(self, name: str) -> Any:
        if name in ("arguments", "offsets", "external") and self._cached is not None:
            exact = self.segment.bind_exactly(self._env, self._threads)
            self.arguments, self.offsets, self.external = exact.arguments, exact.offsets, exact.external
            return vars(self)[name]
        if name == "serial" and self._found is not None:
            self.serial = self._found.serial
            return self.serial
        if name != "shapes":
            raise AttributeError(name)
        buffers = self.segment.buffers
        self.shapes = {n: tuple(evaluate(d, self._env) for d in b.shape) for n, b in buffers.items()}
        return self.shapes

    @property
    def block_nbytes(self) -> int:
        """Bytes of one state's memory."""
        return self.arena_nbytes

    @property
    def blocks(self) -> int:
        """States that have memory, one for each run that went on at the same time."""
        with self.segment._lock:
            return sum(state.lease is not None for state in self._states)

    @property
    def idle(self) -> int:
        """Of these, states that no run uses."""
        return sum(state.lease is not None for state in tuple(self._free))

    @property
    def purpose(self) -> str:
        """Its inputs' shapes."""
        return (
            ", ".join(f"{n} {list(self.shapes[n])}" for n in self.segment.inputs if n in self.shapes) or "a part without inputs"
        )

    def step_nbytes(self, index: int) -> int:
        """Bytes of the tensors that a step reads and writes."""
        step, segment = self.segment.steps[index], self.segment
        names = {*step.reads, *step.writes}
        known = sum(segment.constants[n].nbytes for n in names if n in segment.constants)
        sized = (n for n in names if n in self.shapes and n not in segment.constants)
        return known + sum(math.prod(self.shapes[n]) * segment.buffers[n].dtype.numpy.itemsize for n in sized)

    def acquire(self, timed: bool = False) -> State:
        """A state that nobody else uses; `timed`: one that notes when each step ended.

        Raises:
            OutOfMemory: there is no memory for its tensors.
        """
        try:
            state = self._free.pop()
        except IndexError:
            state = self.new_state(timed)
        return self.readied(state, timed)

    def takes(self, state: State) -> bool:
        """Whether `readied` may be given a state that served a run of another binding of the segment."""
        found, before = self._found, state.found
        return found is not None and before is not None and found.frame is before.frame

    def readied(self, state: State, timed: bool = False) -> State:
        """A state that served a run of these sizes, or of others of the frame, made ready for the next; it may be another."""
        found = self._found
        if state.found is not found and not state.become(found, self.long):
            state = self.new_state(timed)
        if state.lease is None or state.lease.nbytes < self.arena_nbytes:
            state.lease = None
            state.settle(self.segment.arena.lease(self, self.arena_nbytes))
        if state.sized is not None:
            state.begin(self)
        elif state._alone is not None:
            state.choose()
        return state

    def new_state(self, timed: bool = False) -> State:
        """A state that nobody has, with memory of its own."""
        return State(self, timed)

    def release(self, state: State) -> None:
        state.values = None
        if not self._keep:
            state.lease = None
        self._free.append(state)

    def strip(self) -> int:
        """Give back the memory of idle states, which get other memory when they are used again; returns bytes."""
        freed, left = 0, []
        while True:
            try:
                state = self._free.pop()  # another thread may take the last one
            except IndexError:
                break
            freed += state.lease.nbytes if state.lease is not None else 0
            state.lease = None
            left.append(state)
        self._free += left
        return freed

    def trim(self) -> int:
        """Forget idle states; returns bytes of their memory."""
        freed = 0
        while True:
            try:
                lease = self._free.pop().lease
            except IndexError:
                return freed
            freed += lease.nbytes if lease is not None else 0
