"""A run of native steps: compiled once, bound to sizes many times.

Binding lays out the arena, evaluates sizes and fills the argument blocks. A `BoundSegment` is shared; each caller that
runs it takes a `State` (memory of its own), of which finished callers leave theirs for the next.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument, NodeFailed, OutOfMemory
from intarsia.faults import DIVISOR_IS_ZERO
from intarsia.graph.dims import Atom, Dim, Expr, product, symbols_of
from intarsia.graph.dtypes import MOST_BYTES, DType
from intarsia.partition.arena import Arena, Lease
from intarsia.plan import call
from intarsia.plan.address import address_of
from intarsia.plan.arena import place
from intarsia.plan.branches import WHOLE, SideBySide, Window, extended, rearranged, scratch_life, windows
from intarsia.plan.rows import Rows, is_large
from intarsia.plan.step import SCRATCH, Argument, Jump, Step
from intarsia.plan.words import Words, words_of
from intarsia.records import dataclass

if TYPE_CHECKING:
    from intarsia.plan.frame import Frame, Rebinding
    from intarsia.plan.kept import Binding, Kept

_ROW = 4  # int64 per row of the executor's step table
_SERIAL = 1
_SHOWN = 60  # characters of a size that a message writes out
_MOMENT = 1_000_000  # nanoseconds that workers spin for
_OF_A_PROCESS = frozenset(("steps", "allowed", "addresses", "arena", "parts", "_bound", "_frames", "_lock", "common", "kept"))
FRAME_LIMIT = 3  # where kernels are chosen by size, each choice has a frame
BOUND_LIMIT = 32  # bindings of a segment whose sizes depend on data that are kept


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory: dense, row-major."""

    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Constraint:
    """What sizes must satisfy for the kernels to be right.

    `kind` is "equal", "broadcast" (the first may be 1), "least" (the first is at least as large as the second) or "divisor"
    (the first, by which a node divides, is not 0; the second is how many quotients there are).
    """

    kind: str
    left: Dim
    right: Dim
    where: str

    def check(self, env: Mapping[str, int]) -> None:
        try:
            left, right = _size(self.left, env), _size(self.right, env)
        except (ValueError, ZeroDivisionError) as error:
            raise NodeFailed(f"{self.where}: {error}") from None
        if holds(self.kind, left, right):
            return
        if self.kind == "divisor":
            raise NodeFailed(f"{self.where}: the size {self.left} is 0: {DIVISOR_IS_ZERO}")
        if self.kind == "least":
            raise NodeFailed(f"{self.where}: a dimension of size {left} ({self.left}) must be at least {right}")
        verb = "broadcast to" if self.kind == "broadcast" else "equal"
        if max(len(str(self.left)), len(str(self.right))) <= _SHOWN:
            raise NodeFailed(
                f"{self.where}: a dimension of size {left} ({self.left}) must {verb} one of size {right} ({self.right})"
            )
        sizes = ", ".join(f"{n} = {env[n]}" for n in sorted(symbols_of(self.left) | symbols_of(self.right)))
        raise NodeFailed(
            f"{self.where}: the shapes of its inputs do not fit together, with {sizes}: {left} must {verb} {right}"
        )


def holds(kind: str, left: int, right: int) -> bool:
    """Whether two sizes are as a constraint of this kind has them."""
    if kind == "divisor":
        return left != 0 or right == 0
    return left == right or (kind == "broadcast" and left == 1) or (kind == "least" and left > right)


@dataclass
class Segment:
    """Steps that run without returning to Python.

    Attributes:
        inputs, outputs: buffers given by the caller for each run, by name.
        buffers: all tensors that steps touch (arena, inputs, outputs), by name.
        constants: arrays that steps read; kept alive here.
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
    kept: Kept | None = field(default=None, repr=False)  # bindings of earlier processes
    _bound: dict[object, BoundSegment] = field(default_factory=dict, repr=False)
    _frames: dict[int, list[Frame]] = field(default_factory=dict, repr=False)  # by threads; none yet: bound once
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What is kept of it: all but addresses and arrays, of which the names are. Steps are made when they are needed."""
        kept = {name: value for name, value in vars(self).items() if name not in _OF_A_PROCESS}
        return {**kept, "constants": dict.fromkeys(self.constants), "_pickled_steps": pickle.dumps(self.steps, 5)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(
            state, addresses={}, allowed=SideBySide(), arena=Arena(), parts={}, _bound={}, _frames={},
            _lock=threading.Lock(), kept=None,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name != "steps" or "_pickled_steps" not in vars(self):
            raise AttributeError(name)
        self.steps = pickle.loads(self.__dict__["_pickled_steps"])  # noqa: S301 # as the machine code beside it
        return self.steps

    def fresh(self) -> Segment:
        """Another segment of the same steps and constants, bound to nothing yet."""
        made = object.__new__(Segment)
        vars(made).update({**vars(self), "arena": Arena(), "parts": {}, "_bound": {}, "_lock": threading.Lock()})
        return made

    def allow(self, allowed: SideBySide) -> None:
        """Say what the session allows; frames that others share with it are made for what they allow."""
        if allowed != self.allowed:
            self.allowed, self._frames, self.parts = allowed, {}, {}

    def bind(self, env: Mapping[str, int], threads: int) -> BoundSegment:
        """Lay the segment out for the sizes in `env`, as an earlier process did where that was kept; from the second time on
        that this process has to do it by a `Frame`.

        Raises:
            NodeFailed: sizes do not fit together.
        """
        if threads not in self._frames or self.arena.limit or not self.addresses:
            kept = None if self.kept is None or threads in self._frames else self.kept
            before = None if kept is None else kept.find(env, threads, self.allowed)
            if before is not None:
                return BoundSegment.restored(self, before, env, threads)
            bound = self.bind_exactly(env, threads)
            self._frames.setdefault(threads, [])
            bound.is_first = kept is not None
            if not is_large(bound, env, threads):
                self.keep(bound, env, threads)
            return bound
        frames = self._frames[threads]
        for frame in tuple(frames):
            found = frame.bind(env)
            if found is not None:
                return BoundSegment.of(self, found, env)
            if not frame.other_addresses:
                return self.bind_exactly(env, threads)
        if len(frames) < FRAME_LIMIT:
            from intarsia.plan.frame import Frame

            with suppress(ValueError, ZeroDivisionError, OverflowError):  # of which the exact binding says what is wrong
                frame = Frame(self, threads, env)
                found = frame.bind(env)
                if found is not None:
                    frames.append(frame)
                    return BoundSegment.of(self, found, env)
        return self.bind_exactly(env, threads)

    def keep(self, bound: BoundSegment, env: Mapping[str, int], threads: int) -> None:
        """Keep a binding for later processes, if it is the first that this one had to make."""
        if bound.is_first and self.kept is not None:
            self.kept.keep(bound, env, threads, self.allowed)

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
            _check_shape(name, shape, self.buffers[name].dtype)
        external = {name: i for i, name in enumerate((*self.inputs, *self.outputs))}
        scratch = [
            step.scratch_nbytes(size, threads) if isinstance(step, Step) and step.scratch_nbytes else 0 for step in self.steps
        ]
        serial = _serial(self.steps, size)
        nbytes = {name: math.prod(shape) * self.buffers[name].dtype.numpy.itemsize for name, shape in shapes.items()}
        nbytes.update((name, array.nbytes) for name, array in self.constants.items())
        touched = (sum(nbytes.get(name, 0) for name in (*step.reads, *step.writes)) for step in self.steps)
        work = [call.shares(step, size, total) for step, total in zip(self.steps, touched, strict=True)]
        found = self.windows(serial, work, threads)
        offsets, arena_nbytes = self._layout(shapes, scratch, found)
        arguments = [step.arguments(size, threads) for step in self.steps]
        bound = BoundSegment(self, shapes, offsets, arena_nbytes, external, arguments, serial, max(scratch, default=0), found)
        bound.long = call.is_long(sum(work)) or bool(self.loops())
        bound.sliced = {
            i: (many, scratch[i] // threads)
            for i, shared in enumerate(work)
            if (many := call.slices(shared, threads)) > 1 and not bound.serial[i]
        }
        return bound

    def bind_again(self, env: Mapping[str, int], threads: int, key: tuple[object, ...] | None = None) -> BoundSegment:
        """As `bind`, of which the last few results are kept: for sizes that are known in a run only.

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

    def bind_ahead(self, envs: Sequence[Mapping[str, int]], threads: int) -> list[BoundSegment]:
        """As `bind` for sizes that are likely to come one after the other, up to those that need more than a frame does."""
        bound: list[BoundSegment] = []
        frames = self._frames.get(threads)
        if self.arena.limit or not frames:
            return bound
        with suppress(InvalidArgument):  # of a size further on, which nobody may ever ask for
            for env in envs:
                found = frames[0].bind(env)
                if found is None or found.sliced:
                    break
                bound.append(BoundSegment.of(self, found, env))
        return bound

    @cached_property
    def common(self) -> dict[str, Any]:
        """What all that is bound to it has: whether a step reports indices that are out of range, divisions by 0, or singular
        matrices; and the status words of a state while none has."""
        count = len(self.steps)
        return {"checked": any(step.checked for step in self.steps), "unset": bytes(8 * count), "count": count}

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
        external = {*self.inputs, *self.outputs}
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
                    first[name] = start  # what an iteration wrote is kept while the next ones run (a scan's stacked output)
        return {name: (born, last[name]) for name, born in first.items()}

    def windows(self, serial: Sequence[bool], work: Sequence[float], threads: int) -> tuple[Window, ...]:
        """Where branches of small steps go side by side."""
        return windows(self.steps, self.constants, serial, work, threads, self.allowed) if WHOLE in self.addresses else ()

    def _layout(
        self, shapes: Mapping[str, tuple[int, ...]], scratch: Sequence[int], found: Sequence[Window]
    ) -> tuple[dict[str, int], int]:
        lives = extended(self.lifetimes(), found)
        names = list(lives)
        lifetimes = [(product(shapes[n]) * self.buffers[n].dtype.numpy.itemsize, *lives[n]) for n in names]
        lifetimes += [(nbytes, *scratch_life(i, found)) for i, nbytes in enumerate(scratch) if nbytes]
        names += [f"{SCRATCH}{i}" for i, nbytes in enumerate(scratch) if nbytes]
        offsets, total = place(lifetimes)  # type: ignore[arg-type]
        return dict(zip(names, offsets, strict=True)), total


class BoundSegment:
    """A segment for given sizes."""

    parted = False  # whether it is bound in parts (`plan.parts`)
    segment: Segment
    checked: bool
    unset: bytes
    windows: tuple[Window, ...]  # where branches go side by side
    shapes: dict[str, tuple[int, ...]]  # of a frame's, or a restored one: found when they are asked for
    whole = False  # whether it was looked at, and is not worth parts
    is_first = False  # whether it may be kept for later processes
    count: int  # steps
    _env: dict[str, int]
    _threads: int
    _kept: Binding | None = None  # of a restored one
    _words: tuple[Words, np.ndarray] | None = None

    def __init__(
        self, segment: Segment, shapes: dict[str, tuple[int, ...]], offsets: dict[str, int], arena_nbytes: int,
        external: dict[str, int], arguments: list[Sequence[Argument]], serial: Sequence[bool],
        workspace_nbytes: int = 0, found: tuple[Window, ...] = (),
    ) -> None:  # fmt: skip
        self._found: Rebinding | None = None
        self.workspace_nbytes = workspace_nbytes
        self.shapes, self.offsets, self.arena_nbytes = shapes, offsets, arena_nbytes
        self.external, self.arguments = external, arguments
        self.outputs = [(shapes[n], segment.buffers[n].dtype.numpy) for n in segment.outputs]
        self.serial: Sequence[bool] | np.ndarray = serial
        self._begin(segment)
        self.windows = found

    @classmethod
    def of(cls, segment: Segment, found: Rebinding, env: Mapping[str, int]) -> BoundSegment:
        """What a frame found."""
        self, frame = cls.__new__(cls), found.frame
        shared = frame.shared(found)
        vars(self).update(segment.common)
        self.segment = segment
        self._found, self._env, self._keep = found, dict(env), segment.arena.keep
        self.outputs, self.serial, self.arena_nbytes = found.outputs, found.serial, found.arena_nbytes
        self.workspace_nbytes, self.long, self.sliced = found.workspace_nbytes, found.long, found.sliced
        self._free, self._states = shared.free, shared.states
        self.windows = frame.windows if found.side_by_side else ()
        return self

    @classmethod
    def restored(cls, segment: Segment, kept: Binding, env: Mapping[str, int], threads: int) -> BoundSegment:
        """What an earlier process found; the segment's steps are not needed for it."""
        self = cls.__new__(cls)
        self._start(segment)
        self._found, self._kept, self._env, self._threads = None, kept, dict(env), threads
        self.count, self.checked, self.unset = len(kept.words.functions), kept.checked, bytes(8 * len(kept.words.functions))
        dtypes = [segment.buffers[name].dtype.numpy for name in segment.outputs]
        self.outputs = list(zip(kept.shapes, dtypes, strict=True))
        self.serial, self.windows, self.whole = kept.serial, kept.windows, kept.whole
        self.arena_nbytes, self.workspace_nbytes = kept.arena_nbytes, kept.workspace_nbytes
        self.long, self.sliced = kept.long, {i: (many, stride) for i, (many, stride, *_) in kept.sliced.items()}
        return self

    def _begin(self, segment: Segment) -> None:
        vars(self).update(segment.common)
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
            kept, segment = self._kept, self.segment
            words = words_of(segment, self.arguments, self.offsets, self.external) if kept is None else kept.words
            self._words = words, words.located(segment)
        return self._words

    def sliced_as(self, step: int) -> tuple[int, int | None, int]:
        """How many arguments a step has that runs in slices, and which are its scratch memory and its number of pieces."""
        if self._kept is not None:
            _, _, count, scratch, pieces = self._kept.sliced[step]
            return count, scratch, pieces
        arguments, found = self.arguments[step], self.segment.steps[step]
        return len(arguments), call.scratch_argument(arguments), found.pieces if isinstance(found, Step) else -1

    def __getattr__(self, name: str) -> Any:
        if name in ("arguments", "offsets", "external") and self._kept is not None:
            exact = self.segment.bind_exactly(self._env, self._threads)
            self.arguments, self.offsets, self.external = exact.arguments, exact.offsets, exact.external
            return vars(self)[name]
        if name != "shapes":
            raise AttributeError(name)
        buffers = self.segment.buffers
        self.shapes = {n: tuple(_size(d, self._env) for d in b.shape) for n, b in buffers.items()}
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
        found = self._found
        if state.found is not found and not state.become(found, self.long):
            state = self.new_state(timed)
        if state.lease is None or state.lease.nbytes < self.arena_nbytes:
            state.lease = None
            state.settle(self.segment.arena.lease(self, self.arena_nbytes))
        if state._alone is not None:
            state.choose()
        return state

    def new_state(self, timed: bool = False) -> State:
        """A state that nobody has, with memory of its own."""
        return State(self, timed)

    def release(self, state: State) -> None:
        if not self._keep:
            state.lease = None
        self._free.append(state)

    def strip(self) -> int:
        """Give back the memory of idle states, which get other memory when they are used again; returns bytes."""
        freed, kept = 0, []
        while True:
            try:
                state = self._free.pop()  # another thread may take the last one
            except IndexError:
                break
            freed += state.lease.nbytes if state.lease is not None else 0
            state.lease = None
            kept.append(state)
        self._free += kept
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


class State:
    """One caller's memory for a bound segment: a lease of the arena, argument blocks, step table.

    Attributes:
        timed: of a segment that goes in parts, the times of the last run's, in place of `times`.
    """

    timed: Sequence[tuple[BoundSegment, np.ndarray]] = ()
    found: Rebinding | None = None

    def run(self, call: Callable[[int], int]) -> int:
        """Run the segment by `call`, which takes the address of a call's words and returns its status."""
        return call(self.block_address)

    def __init__(
        self, bound: BoundSegment, timed: bool = False, lease: Lease | None = None, status: np.ndarray | None = None
    ) -> None:
        """`lease`, `status`: memory and words of status that it has in common with others; None: its own."""
        segment = bound.segment
        self.lease: Lease | None = segment.arena.lease(bound, bound.arena_nbytes) if lease is None else lease
        self._base = self.lease.address
        with segment._lock:
            bound._states.add(self)
        self.times = np.zeros(bound.count + 1, np.int64) if timed else None
        self._begun = 0
        self.status = np.zeros(bound.count, np.int64) if status is None else status
        self.claims = np.zeros(bound.count, np.int64)
        self.found = bound._found
        if self.found is None:
            self._fill(bound)
        else:
            self._fill_by(self.found)
        self.externals = (ctypes.c_int64 * max(1, len(segment.inputs) + len(segment.outputs)))()
        self.block = call.call_words(
            self.table.ctypes.data, len(self.table), self.patches.ctypes.data, len(self.patches),
            ctypes.addressof(self.externals), 0, 0 if self.times is None else self.times.ctypes.data, call.LONG * bound.long,
        )  # fmt: skip
        self.block_address = int(self.block.ctypes.data)
        self._slice(segment, bound.sliced, bound)
        self._alone: np.ndarray | None = None  # the table for a time when workers sleep
        if bound.windows and not timed:
            plain = self.table.copy() if np.all(bound.serial) and not segment.allowed.eager else None
            self._alone, self._whole = plain, rearranged(self.table, bound.windows, segment.addresses[WHOLE])

    def _fill(self, bound: BoundSegment) -> None:
        """Arguments, table and patches of a segment that was bound exactly, here or in an earlier process."""
        words, located = bound.words()
        addresses = bound.segment.addresses
        self.args = located.copy() if len(located) else np.zeros(1, np.int64)
        address = address_of(self.args)
        for rows, start in (
            (words.arena, self._base), (words.status, address_of(self.status)), (words.claims, address_of(self.claims)),
        ):  # fmt: skip
            self.args[rows[:, 0]] = rows[:, 1] + start
        self.table = np.zeros((bound.count, _ROW), np.int64)
        self.table[:, 0] = [addresses[symbol] if symbol else 0 for symbol in words.functions]
        self.table[:, 1] = address + 8 * words.starts
        self.table[:, 2] = bound.serial
        self.table[:, 3] = words.targets
        self._leased = words.arena[:, 0]
        self.patches = words.external * np.array([8, 1, 1]) + np.array([address, 0, 0])

    def _fill_by(self, found: Rebinding) -> None:
        """Arguments, table and patches as a frame has them."""
        outline = found.frame.outline
        self.args = np.zeros(found.used + (found.used - outline.count) // 4 or 1, np.int64)  # room for larger tables
        address = int(self.args.ctypes.data)
        self._bases = np.array([self._base, address, self.status.ctypes.data, self.claims.ctypes.data], np.int64)
        self._settling = found.frame.settling(address, int(self._bases.ctypes.data))
        self._leased = outline.arena
        self.table = np.empty((len(outline.starts), _ROW), np.int64)
        self.table[:, 0], self.table[:, 1] = outline.functions, address + outline.start_bytes
        self.table[:, 3] = outline.targets
        self.patches = outline.patches * np.array([8, 1, 1]) + np.array([address, 0, 0])
        self.table[:, 2] = found.serial
        found.frame.settle(self._settling, found)

    def _slice(self, segment: Segment, sliced: dict[int, tuple[int, int]], bound: BoundSegment | None) -> None:
        """Put the steps that take long into the table as calls in slices. `bound`: what no frame found."""
        self._sliced = list(sliced)
        if not sliced or call.SLICED not in segment.addresses:
            return
        self.slices = np.zeros((len(sliced), call.SLICE_WORDS), np.int64)
        for words, (i, (many, stride)) in zip(self.slices, sliced.items(), strict=True):
            if self.found is None and bound is not None:
                count, scratch, pieces = bound.sliced_as(i)
            elif self.found is not None:
                step, outline = segment.steps[i], self.found.frame.outline
                count, scratch = outline.counts[i], outline.scratch_arguments[i]
                pieces = step.pieces if isinstance(step, Step) else -1
            if scratch is None:
                continue
            function, args = (int(x) for x in self.table[i, :2])
            words[:] = call.sliced_words(function, args, many, self.block_address, count, scratch, stride, pieces)
            self.table[i, :2] = (segment.addresses[call.SLICED], words.ctypes.data)

    def choose(self) -> None:
        """Before a run: let branches go side by side if the last one was a moment ago, so that workers still wait. To wake
        them would take longer than small steps do."""
        if self._alone is not None:
            now = time.perf_counter_ns()
            table = self.table if now - self._begun < _MOMENT else self._alone
            self.block[call.TABLE], self._begun = table.ctypes.data, now

    def settle(self, lease: Lease) -> None:
        """Use other memory."""
        self.lease = lease
        if lease.address != self._base:
            self.args[self._leased] += lease.address - self._base
            self._base = lease.address
            if self.found is not None:
                self._bases[0] = lease.address

    def become(self, found: Rebinding | None, long: bool) -> bool:
        """Go on with other sizes of the frame; False where it has no room for their words."""
        if found is None or found.used > len(self.args):
            return False
        found.frame.settle(self._settling, found)
        if not found.side_by_side:  # else it is the same
            self.table[:, 2] = found.serial
        self.found, self.block[call.MODE] = found, call.LONG * long
        if found.sliced or self._sliced:
            outline, before = found.frame.outline, self._sliced
            self.table[before, 0] = outline.functions[before]
            self.table[before, 1] = int(self.args.ctypes.data) + outline.start_bytes[before]
            self._slice(found.frame.segment, found.sliced, None)
        return True

    def cut_short(self) -> None:
        """Make it fit for another run after one that left a step in the middle."""
        self.claims[:] = 0

    def watch(self, flag: int) -> None:
        """Let the executor look at the int64 at address `flag` between steps (0: at none)."""
        self.block[call.FLAG] = flag


def _serial(steps: Sequence[Step | Jump], size: Any) -> list[bool]:
    """Which steps one thread runs alone; jumps only where all other steps do."""
    found = [isinstance(step, Jump) or (step.serial is not None and step.serial(size)) for step in steps]
    return found if all(found) else [s and not isinstance(step, Jump) for s, step in zip(found, steps, strict=True)]


def _check_shape(name: str, shape: tuple[int, ...], dtype: DType) -> None:
    """Before anything is laid out: kernels compute offsets in 64 bits."""
    if shape and min(shape) < 0:
        raise NodeFailed(f"value {name!r} would have shape {list(shape)}: a size is negative; check sizes and pads")
    elements = math.prod(shape)
    if elements * dtype.numpy.itemsize > MOST_BYTES:
        raise too_large(name, shape, elements * dtype.numpy.itemsize)


def too_large(name: str, shape: tuple[int, ...], nbytes: int) -> OutOfMemory:
    """The error for a tensor that no memory can be had for."""
    return OutOfMemory(
        f"value {name!r} of shape {list(shape)} needs {nbytes / 2**20:,.0f} MiB, which the system does not give: "
        "use a smaller batch or a shorter input, or free memory"
    )


def _size(d: Dim, env: Mapping[str, int]) -> int:
    return d.evaluate(env) if isinstance(d, Expr) else d
