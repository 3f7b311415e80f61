"""A run of native steps: compiled once, bound to sizes many times.

Binding lays out the arena, evaluates sizes and fills the argument blocks. A `BoundSegment` is shared; each caller that
runs it takes a `State` (memory of its own), of which finished callers leave theirs for the next.
"""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from intarsia.ep.arena import Arena
from intarsia.errors import NodeFailed
from intarsia.graph.dims import Atom, Dim, Expr, evaluate, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.plan import executor_abi
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.memory_layout import place
from intarsia.plan.microbatch_cost import Rows, is_large
from intarsia.plan.parallel_branches import WHOLE, SideBySide, Window, extended, scratch_life, windows
from intarsia.plan.shape_constants import MOST_MOVED, Sized, SizedValues, of_products, sized
from intarsia.plan.size_constraints import Constraint, check_shape
from intarsia.plan.step import SCRATCH, Jump, Step

if TYPE_CHECKING:
    from intarsia.plan.binding_cache import BindingCache
    from intarsia.plan.symbolic_binding import Frame, Rebinding

Found = TypeVar("Found")
_OF_A_PROCESS = frozenset("steps allowed addresses arena parts _bound _frames _lock _less common cached values".split())
FRAME_LIMIT = 3  # where kernels are chosen by size, each choice has a frame
BOUND_LIMIT = 32  # bindings of a segment whose sizes depend on data that are retained


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory: dense, row-major."""

    dtype: DType
    shape: tuple[Dim, ...]


@dataclass
class Segment:
    """Steps that run without returning to Python.

    Attributes:
        inputs, outputs: buffers given by the caller for each run, by name.
        buffers: all tensors that steps touch (arena, inputs, outputs), by name.
        constants: arrays that steps read; held here.
    """

    steps: list[Step | Jump]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: dict[str, Buffer]
    constants: dict[str, np.ndarray]
    constraints: list[Constraint] = field(default_factory=list)
    addresses: dict[str, int] = field(default_factory=dict)  # kernel symbol -> address, once loaded
    arena: Arena = field(default_factory=Arena, repr=False)  # the session's, once it is in one
    rows: Rows | None = None  # which steps may go a few rows of a batch at a time
    parts: dict[tuple[int, int], Segment] = field(default_factory=dict, repr=False)  # some of the steps, by the first and end
    allowed: SideBySide = field(default_factory=SideBySide, repr=False)  # the session's, once it is in one
    onto: dict[str, str] = field(default_factory=dict)  # by output, the input that may lie in its memory
    sized: Sized | None = None  # what depends on sizes alone
    products: Sized | None = None  # of it what comes of products
    values: SizedValues | None = field(default=None, repr=False)  # of it, those that runs with the same sizes find
    cached: BindingCache | None = field(default=None, repr=False)  # bindings of earlier processes
    _bound: dict[object, BoundSegment] = field(default_factory=dict, repr=False)
    _frames: dict[int, list[Frame]] = field(default_factory=dict, repr=False)  # by threads; none yet: bound once
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _less: Segment | None = field(default=None, repr=False)  # the same where less of that has memory of its own

    def __getstate__(self) -> dict[str, Any]:
        """What is cached of it: all but addresses and arrays, of which the names are. Steps are made when they are needed."""
        cached = {name: value for name, value in vars(self).items() if name not in _OF_A_PROCESS}
        steps = {"_pickled_steps": pickle.dumps(self.steps, 5), "_count": len(self.steps)}
        return {**cached, **steps, "constants": dict.fromkeys(self.constants)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(
            state, addresses={}, allowed=SideBySide(), arena=Arena(), parts={}, _bound={}, _frames={},
            _lock=fork_safety.lock(), cached=None, values=None, _less=None,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name != "steps" or "_pickled_steps" not in vars(self):
            raise AttributeError(name)
        self.steps = pickle.loads(self.__dict__["_pickled_steps"])  # noqa: S301 # as the machine code beside it
        return self.steps

    @property
    def count(self) -> int:
        """Steps, which are not made for that."""
        found: int = vars(self)["_count"] if "steps" not in vars(self) else len(self.steps)
        return found

    def fresh(self) -> Segment:
        """Another segment of the same steps and constants, bound to nothing yet."""
        made = object.__new__(Segment)
        vars(made).update(
            {
                **vars(self),
                "arena": Arena(),
                "parts": {},
                "_bound": {},
                "_lock": fork_safety.lock(),
                "values": None,
                "_less": None,
            }
        )
        return made

    def find_sized(self) -> None:
        """Let what depends on sizes alone lie in memory of its own."""
        self.sized = sized(self.steps, self.constants, self.inputs, self.outputs)
        self.products = None if self.sized is None else of_products(self.sized, self.steps)

    def keep_values(self, most_nbytes: int) -> None:
        """Say how many bytes of values that depend on sizes alone are retained between runs; frames that others share are made
        for these."""
        if most_nbytes and self.sized is not None:
            self.values = SizedValues(self.sized, most_nbytes)
        elif self.sized is not None:
            self.sized, self.values, self._frames, self.parts = None, None, {}, {}

    def without_sized(self) -> Segment:
        """The same where every run does all steps."""
        return self if self.sized is None else self._with_less().without_sized()

    def _with_less(self) -> Segment:
        """The same for sizes whose values are too large: with those of products, or with none."""
        with self._lock:
            if self._less is None:
                assert self.values is not None
                made = self.fresh()
                made.arena, made.cached, made._frames = self.arena, self.cached, {}
                made.sized = None if self.sized == self.products else self.products
                made.values = None if made.sized is None else SizedValues(made.sized, self.values.most_nbytes)
                self._less = made
        return self._less

    def values_of_sizes(self) -> list[SizedValues]:
        """All that are retained."""
        found = [] if self.values is None else [self.values]
        return found if self._less is None else found + self._less.values_of_sizes()

    def _too_large(self, nbytes: Sequence[int]) -> bool:
        """Whether values of so many bytes are not worth memory of their own."""
        if self.values is None:
            return False
        return sum(nbytes) > (self.values.most_nbytes if self.sized == self.products else MOST_MOVED)

    def _nbytes_of_sizes(self, env: Mapping[str, int]) -> list[int]:
        found = [self.buffers[n] for n in (self.sized.names if self.sized is not None else ())]
        try:
            return [evaluate(product(b.shape), env) * b.dtype.numpy.itemsize for b in found]
        except (ValueError, ZeroDivisionError):  # of which the exact binding says what is wrong
            return []

    @property
    def externals(self) -> tuple[str, ...]:
        """Buffers whose addresses are said for each run."""
        return (*self.inputs, *self.outputs, *(self.sized.names if self.sized is not None else ()))

    def fixed_nbytes(self) -> int:
        """Bytes of the arena's buffers that are as large for any sizes: scratch memory that steps share."""
        elsewhere = {*self.externals, *self.constants}
        fixed = [b for name, b in self.buffers.items() if name not in elsewhere and all(type(d) is int for d in b.shape)]
        return sum(math.prod(numbers_of(b.shape)) * b.dtype.numpy.itemsize for b in fixed)

    def allow(self, allowed: SideBySide) -> None:
        """Say what the session allows; frames that others share with it are made for what they allow."""
        if allowed != self.allowed:
            self.allowed, self._frames, self.parts = allowed, {}, {}

    def bind(self, env: Mapping[str, int], threads: int) -> BoundSegment:
        """Lay the segment out for the sizes in `env`: as an earlier process did where that was cached, or by a `Frame`, where
        one was cached and from the second time on that this process has to do it.

        Raises:
            NodeFailed: sizes do not fit together.
        """
        by_frames = bool(self.addresses) and not self.arena.limit
        if threads not in self._frames or not by_frames:
            if self._too_large(self._nbytes_of_sizes(env)):
                return self._with_less().bind(env, threads)
            cached = None if self.cached is None or threads in self._frames else self.cached
            before = None if cached is None else cached.find(env, threads, self._form)
            if before is not None:
                return BoundSegment.restored(self, before, env, threads)
            frame = self._cached_frame(0, threads) if by_frames and cached is not None else None
            if frame is not None:
                self._frames.setdefault(threads, [frame])
                bound = self._bound_by_frames(env, threads)
                if not is_large(bound, env, threads):  # else parts may be better, and the answer is retained
                    return bound
            bound = self.bind_exactly(env, threads)
            self._frames.setdefault(threads, [])
            bound.is_first = cached is not None
            if not is_large(bound, env, threads):
                self.keep(bound, env, threads)
            return bound
        return self._bound_by_frames(env, threads)

    def _bound_by_frames(self, env: Mapping[str, int], threads: int) -> BoundSegment:
        for number in range(FRAME_LIMIT):
            frame, found = self.by_frame(self._frames[threads], number, env, threads, lambda frame: frame.bind(env))
            if frame is not None and found is not None:
                if self._too_large(found.sized_nbytes):
                    return self._with_less().bind(env, threads)
                return BoundSegment.of(self, found, dict(env))
            if frame is None or not frame.other_addresses:
                break
        return self.bind_exactly(env, threads)

    def by_frame(
        self, frames: list[Frame], number: int, env: Mapping[str, int], threads: int, ask: Callable[[Frame], Found | None]
    ) -> tuple[Frame | None, Found | None]:
        """The frame of this number, and what it answers. It is an earlier process's, or made for the sizes in `env`, where
        there is none yet, or one that would need the steps."""
        frame = frames[number] if number < len(frames) else self._cached_frame(number, threads)
        found = None if frame is None else ask(frame)
        if frame is None or (found is None and frame.outgrown):
            frame = self._made_frame(number, env, threads, () if frame is None else frame.taught)
            found = None if frame is None else ask(frame)
        if frame is not None and (number >= len(frames) or frames[number] is not frame):
            with self._lock:
                frames[number : number + 1] = [frame]
        return frame, found

    def _cached_frame(self, number: int, threads: int) -> Frame | None:
        """The one that an earlier process cached."""
        cached = None if self.cached is None else self.cached.find_frame(number, threads, self._form)
        if cached is None:
            return None
        from intarsia.plan.symbolic_binding import Frame

        with suppress(ValueError):
            return self._keeping(Frame.restored(self, threads, cached), number, threads)
        return None

    def _made_frame(
        self, number: int, env: Mapping[str, int], threads: int, taught: Sequence[Mapping[str, int]]
    ) -> Frame | None:
        from intarsia.plan.traced_binding import NotedFrame

        with suppress(ValueError, ZeroDivisionError, OverflowError):  # of which the exact binding says what is wrong
            return self._keeping(NotedFrame(self, threads, env, taught), number, threads)
        return None

    def _keeping(self, frame: Frame, number: int, threads: int) -> Frame:
        if self.cached is not None:
            frame.keep = partial(self.cached.keep_frame, number, threads, self._form)
        return frame

    @property
    def _form(self) -> tuple[object, ...]:
        """What bindings depend on besides sizes and threads."""
        return (*self.allowed, self.sized is not None and (1 if self.sized == self.products else 2))

    def keep(self, bound: BoundSegment, env: Mapping[str, int], threads: int) -> None:
        """Keep a binding for later processes, if it is the first that this one had to make."""
        if bound.is_first and self.cached is not None:
            self.cached.keep(bound, env, threads, self._form)

    def bind_exactly(self, env: Mapping[str, int], threads: int) -> BoundSegment:
        """As `bind`, with no more memory than the sizes need."""
        known: dict[Dim, int] = {}
        atoms: dict[Atom, int] = {}

        def size(d: Dim) -> int:
            if not isinstance(d, Expr):
                return d
            found = known.get(d)
            if found is None:
                try:
                    found = known[d] = d.evaluate(env, atoms)
                except (ValueError, ZeroDivisionError) as error:
                    raise NodeFailed(f"the sizes of the inputs do not fit together: {error} (size {d})") from None
            return found

        for constraint in self.constraints:
            constraint.check(env)
        shapes = {name: tuple(size(d) for d in b.shape) for name, b in self.buffers.items()}
        for name, shape in shapes.items():
            check_shape(name, shape, self.buffers[name].dtype)
        external = {name: i for i, name in enumerate(self.externals)}
        scratch = [
            step.call.scratch_nbytes(size, threads) if isinstance(step, Step) and step.call.has_scratch else 0
            for step in self.steps
        ]
        serial = _serial(self.steps, size)
        nbytes = {name: math.prod(shape) * self.buffers[name].dtype.numpy.itemsize for name, shape in shapes.items()}
        nbytes.update((name, array.nbytes) for name, array in self.constants.items())
        touched = (sum(nbytes.get(name, 0) for name in (*step.reads, *step.writes)) for step in self.steps)
        work = [executor_abi.shares(step, size, total) for step, total in zip(self.steps, touched, strict=True)]
        found = self.windows(serial, work, threads)
        offsets, arena_nbytes = self._layout(shapes, scratch, found, threads)
        arguments = [step.arguments(size, threads) for step in self.steps]
        bound = BoundSegment(self, shapes, offsets, arena_nbytes, external, arguments, serial, max(scratch, default=0), found)
        bound._env, bound._threads = dict(env), threads
        if self.sized is not None:
            bound.sized_nbytes = tuple(nbytes[name] for name in self.sized.names)
        bound.long = executor_abi.is_long(sum(work)) or bool(self.loops())
        bound.sliced = {
            i: (many, scratch[i] // threads)
            for i, shared in enumerate(work)
            if (many := executor_abi.slices(shared, threads)) > 1 and not bound.serial[i]
        }
        return bound

    def bind_again(self, env: Mapping[str, int], threads: int, key: tuple[object, ...] | None = None) -> BoundSegment:
        """As `bind`, of which the last few results are retained: for sizes that are known in a run only.

        `key` is the same only where the sizes are; by default all of `env`.
        """
        key = (threads, tuple(sorted(env.items()))) if key is None else key
        found = self._bound.get(key)
        if found is None:
            found = self.bind(env, threads)
            with self._lock:
                self._bound[key] = found
                while len(self._bound) > BOUND_LIMIT:
                    del self._bound[next(iter(self._bound))]
        return found

    def bind_ahead(self, envs: Sequence[dict[str, int]], threads: int) -> list[BoundSegment]:
        """As `bind` for sizes that are likely to come one after the other, up to those that need more than a frame does; `envs`
        are not changed later."""
        return [BoundSegment.of(self, found, env) for found, env in zip(self.found_ahead(envs, threads), envs, strict=False)]

    def found_ahead(self, envs: Sequence[dict[str, int]], threads: int) -> list[Rebinding]:
        """What a frame finds for them, as `bind_ahead`."""
        frames = self._frames.get(threads)
        if self.arena.limit or not frames:
            return []
        series = frames[0].bind_series(envs)
        for i, found in enumerate(series):
            if found.sliced or (found.sized_nbytes and self._too_large(found.sized_nbytes)):
                return series[:i]
        return series

    @cached_property
    def common(self) -> tuple[bool, bytes, int]:
        """What all that is bound to it has: whether a step reports indices that are out of range, divisions by 0, or singular
        matrices; the status words of a state while none has; and how many steps there are."""
        count = len(self.steps)
        return any(step.checked for step in self.steps), bytes(8 * count), count

    def used(self) -> dict[str, bool]:
        """Constants that every run reads, in the order of the steps: whether all of each, or parts that data choose."""
        found: dict[str, bool] = {}
        for first, last in self.spans():
            step = self.steps[first]
            if first == last and isinstance(step, Step):
                for name in step.reads:
                    if name in self.constants:
                        found[name] = found.get(name, False) or name not in step.chosen
        return found

    def loops(self) -> list[tuple[int, int]]:
        """First and last step of each loop, inner ones first."""
        return [(i + step.offset, i) for i, step in enumerate(self.steps) if isinstance(step, Jump) and step.offset < 0]

    def spans(self) -> list[tuple[int, int]]:
        """First and last step of each unit of a profile: a step alone, or a loop or branch as a whole."""
        ends = list(range(len(self.steps)))  # of the span that begins at a step
        for i, step in enumerate(self.steps):
            if isinstance(step, Jump):
                first, last = sorted((i, i + step.offset - (step.offset > 0)))
                ends[first] = max(ends[first], last)
        found, at = [], 0
        while at < len(self.steps):
            last = at
            reach = ends[at]
            while last < reach:
                last += 1
                reach = max(reach, ends[last])
            found.append((at, last))
            at = last + 1
        return found

    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """The first and the last step that touch each intermediate tensor."""
        external = {*self.externals}
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for i, step in enumerate(self.steps):
            for name in (*step.reads, *step.writes):
                if name not in external and name not in self.constants:
                    first.setdefault(name, i)
                    last[name] = i
        for start, end in self.loops():
            for name, born in first.items():
                if born < start <= last[name] < end:
                    last[name] = end  # the next iteration reads it again
                elif start < born <= end < last[name]:
                    first[name] = start  # what an iteration wrote is needed while the next ones run (a scan's stacked output)
        return {name: (born, last[name]) for name, born in first.items()}

    def windows(self, serial: Sequence[bool], work: Sequence[float], threads: int) -> tuple[Window, ...]:
        """Where branches of small steps go side by side."""
        return windows(self.steps, self.constants, serial, work, threads, self.allowed) if WHOLE in self.addresses else ()

    def _layout(
        self, shapes: Mapping[str, tuple[int, ...]], scratch: Sequence[int], found: Sequence[Window], threads: int
    ) -> tuple[dict[str, int], int]:
        lives = extended(self.lifetimes(), found)
        names = list(lives)
        lifetimes = [(math.prod(shapes[n]) * self.buffers[n].dtype.numpy.itemsize, *lives[n]) for n in names]
        lifetimes += [(nbytes, *scratch_life(i, found)) for i, nbytes in enumerate(scratch) if nbytes]
        names += [f"{SCRATCH}{i}" for i, nbytes in enumerate(scratch) if nbytes]
        offsets, total = place(lifetimes, threads)
        return dict(zip(names, offsets, strict=True)), total


def _serial(steps: Sequence[Step | Jump], size: Any) -> list[bool]:
    """Which steps one thread runs alone; jumps only where all other steps do."""
    found = [isinstance(step, Jump) or (step.serial is not None and step.serial(size)) for step in steps]
    return found if all(found) else [s and not isinstance(step, Jump) for s, step in zip(found, steps, strict=True)]
