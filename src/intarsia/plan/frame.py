"""What all bindings of a segment have in common, so that sizes it has not met before cost little.

A frame is made when a segment is bound a second time. It knows which words of the argument blocks are the same for all
sizes, which are a size, and which are addresses; only steps that compute with sizes are asked again for their arguments.
All that is evaluated for every buffer or step is an array operation. Where intermediate tensors lie is decided for sizes
somewhat larger than those asked for, and kept as long as they suffice, so that a length that grows by one in every run
needs a new layout rarely.

A frame gives what `Segment.bind` gives or nothing: where sizes do not fit together, or are absurd, it leaves the word to
that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, Expr, evaluate_all, evaluate_many
from intarsia.graph.dtypes import MOST_BYTES
from intarsia.plan import call
from intarsia.plan.arena import align, place
from intarsia.plan.branches import Window, fit, spanned
from intarsia.plan.step import CLAIMS, SCRATCH, STATUS, Argument, Below, Code, Jump, Ref, Step, form_of
from intarsia.plan.together import ManySizes, Numbers

if TYPE_CHECKING:
    from intarsia.plan.segment import Segment

_LAYOUTS = 4  # that a frame keeps
_ROOM = 512  # bytes, and an eighth, that a layout has for each tensor beyond what is asked for
_EXACT = 2.0**53  # below it float64 tells whether int64 would overflow


class _Later:
    """A size that is not known yet, to find the steps that only pass sizes on: any computation with it fails."""

    __slots__ = ("dim",)

    def __init__(self, dim: Expr) -> None:
        self.dim = dim

    def _refuse(self, *_: object) -> Any:
        raise TypeError("a size that is not known yet")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _refuse
    __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __lshift__ = __rlshift__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __rshift__ = __rrshift__ = _refuse
    __neg__ = __abs__ = __bool__ = __int__ = __index__ = __float__ = __hash__ = __str__ = __repr__ = __iter__ = _refuse


def _passed_on(step: Step | Jump, threads: int) -> Sequence[Any] | None:
    """The step's arguments, with `_Later` in the place of sizes, where it computes nothing with them."""
    try:
        given = step.arguments(lambda d: _Later(d) if isinstance(d, Expr) else d, threads)  # type: ignore[arg-type,return-value]
    except Exception:  # noqa: BLE001 - what a function makes of something that is no number is its own affair
        return None
    return given if all(isinstance(a, (Ref, Code, int, np.ndarray, _Later)) for a in given) else None


class _Sizes:
    """Sizes that are evaluated together; each has a place in the array of their values."""

    def __init__(self) -> None:
        self.places: dict[Dim, int] = {}

    def place(self, d: Dim) -> int:
        return self.places.setdefault(d, len(self.places))

    def values(self, env: Mapping[str, int]) -> list[int]:
        return evaluate_all(self.places, env)


@dataclass
class _Asked:
    """A step that computes with sizes, for all those that compute the same: which of its arguments are numbers, which are
    addresses, how many there are, and the words of the numbers of each such step."""

    step: Step | Jump
    numbers: list[int]
    refs: list[tuple[int, Argument]]
    count: int
    places: list[list[int]]


def _alike(asked: Sequence[tuple[int, Callable[..., Any]]]) -> list[tuple[Callable[..., Any], np.ndarray]]:
    """Functions of sizes, each once, with the places of its value."""
    found: dict[object, tuple[Callable[..., Any], list[int]]] = {}
    for i, ask in asked:
        form = form_of(ask)
        found.setdefault(("own", i) if form is None else form, (ask, []))[1].append(i)
    return [(ask, np.array(places, np.intp)) for ask, places in found.values()]


def _scratch_of(step: Step | Jump) -> Callable[..., Any]:
    assert isinstance(step, Step)
    assert step.scratch_nbytes is not None
    return step.scratch_nbytes


class Rebinding:
    """What a frame found for given sizes: the words of a state before addresses are known, and what `BoundSegment` has."""

    __slots__ = (
        "arena_nbytes", "course", "frame", "kept", "long", "outputs", "row", "serial", "sliced", "windows", "words",
        "workspace_nbytes",
    )  # fmt: skip

    def __init__(
        self, frame: Frame, words: np.ndarray, outputs: list[tuple[tuple[int, ...], np.dtype]], serial: np.ndarray,
        arena_nbytes: int, workspace_nbytes: int, long: bool, sliced: dict[int, tuple[int, int]],
        windows: tuple[Window, ...] = (), course: Course | None = None, row: int = 0, kept: Sequence[np.ndarray] = (),
    ) -> None:  # fmt: skip
        self.kept = kept  # tables that words are addresses of
        self.frame, self.words, self.outputs, self.serial = frame, words, outputs, serial
        self.arena_nbytes, self.workspace_nbytes, self.long, self.sliced = arena_nbytes, workspace_nbytes, long, sliced
        self.windows = windows
        self.course, self.row = course, row  # of which it is a part


@dataclass(frozen=True)
class Repeated:
    """What a frame found for many sizes at once, all of which share one layout of the arena.

    Attributes:
        words: int64 [sizes, words], each row as a `Rebinding` has them.
        serial: bool [sizes, steps], whether one thread runs a step; jumps are said to be.
        outputs: int64 [sizes, outputs], bytes of each output.
        kept: tables that words are addresses of.
    """

    frame: Frame
    words: np.ndarray
    serial: np.ndarray
    arena_nbytes: int
    outputs: np.ndarray
    kept: Sequence[np.ndarray] = ()


class _Words:
    """Words for many sizes: those of the first, and what the others have in the places where they differ."""

    def __init__(self, first: np.ndarray, places: np.ndarray, rows: np.ndarray, kept: Sequence[np.ndarray]) -> None:
        self.first, self.places, self.rows = first, places, rows  # rows: int64 [sizes, places]
        self.kept = kept  # tables that words are addresses of


class _Many:
    """What a frame works out for many sizes at once; the attributes are those of `Repeated`."""

    def __init__(
        self, words: _Words, serial: np.ndarray, arena_nbytes: int, values: np.ndarray, nbytes: np.ndarray,
        workspace_nbytes: int,
    ) -> None:  # fmt: skip
        self.words, self.serial, self.arena_nbytes = words, serial, arena_nbytes
        self.values, self.nbytes, self.workspace_nbytes = values, nbytes, workspace_nbytes


class Course:
    """Sizes that are bound ahead. A state goes from one to the next by other numbers among its call's externals, which are
    patched into the places where words differ.

    Attributes:
        words, places, rows: the first sizes' words, which of them differ, and int64 [sizes, places] what they are.
        steady: whether the same steps are serial for all sizes.
        free, states: those that nobody uses, and all, shared by the segments bound to these sizes.
    """

    def __init__(self, words: _Words, serial: np.ndarray) -> None:
        self.words, self.places, self.rows = words.first, words.places, np.ascontiguousarray(words.rows)
        self.kept = words.kept
        self.address, self.row_nbytes = int(self.rows.ctypes.data), 8 * len(self.places)
        self.steady = bool((serial == serial[0]).all())
        self.free: list[Any] = []
        self.states: weakref.WeakSet[Any] = weakref.WeakSet()

    def patches(self, frame: Frame) -> np.ndarray:
        """Those of the frame, and one for each word that differs, from the externals behind all others."""
        segment = frame.segment
        numbers = len(segment.inputs) + len(segment.outputs) + np.arange(len(self.places))
        return np.concatenate([frame.patches, np.stack([self.places, numbers, 0 * numbers], 1)])


class Frame:
    """See the module's text. `env` are sizes that the segment was bound to before."""

    def __init__(self, segment: Segment, threads: int, env: Mapping[str, int]) -> None:
        self.segment, self.threads = segment, threads
        self.sizes = _Sizes()
        self._collect_buffers()
        self._collect_work()
        self._collect_words(env)
        self._layouts: list[tuple[np.ndarray, np.ndarray, int]] = []  # room for each slot, offsets, bytes in all
        self._window_layouts: list[tuple[np.ndarray, np.ndarray, int]] = []  # likewise, where branches go side by side
        self.other_addresses = False  # whether a step wanted others than these for the sizes asked for last
        self._collect_windows(env)
        self.constraints = [(c.kind, self.sizes.place(c.left), self.sizes.place(c.right)) for c in segment.constraints]

    # --- what is the same for all sizes ---

    def _collect_buffers(self) -> None:
        segment = self.segment
        rank = max((len(b.shape) for b in segment.buffers.values()), default=0)
        one = self.sizes.place(1)
        rows = [[*map(self.sizes.place, b.shape), *[one] * (rank - len(b.shape))] for b in segment.buffers.values()]
        self.shape_places = np.array(rows, np.intp).reshape(len(rows), rank)
        self.itemsizes = np.array([b.dtype.numpy.itemsize for b in segment.buffers.values()], np.int64)
        index = {name: i for i, name in enumerate(segment.buffers)}
        self.output_places = [[self.sizes.place(d) for d in segment.buffers[n].shape] for n in segment.outputs]
        lives = segment.lifetimes()
        self.scratched = [i for i, s in enumerate(segment.steps) if isinstance(s, Step) and s.scratch_nbytes]
        self.slots = {name: i for i, name in enumerate((*lives, *(f"{SCRATCH}{i}" for i in self.scratched)))}
        self.slot_buffers = np.array([index[n] for n in lives], np.intp)
        self.lifetimes = [*lives.values(), *((i, i) for i in self.scratched)]
        self.windows: tuple[Window, ...] = ()  # where branches go side by side, if all their steps are small
        known = len(index)
        constants = {name: known + i for i, name in enumerate(segment.constants)}
        self.constant_nbytes = np.array([a.nbytes for a in segment.constants.values()], np.int64)
        touched = [[{**index, **constants}.get(n, -1) for n in (*s.reads, *s.writes)] for s in segment.steps]
        self.touched = np.array([i for row in touched for i in row if i >= 0], np.intp)
        counts = [sum(i >= 0 for i in row) for row in touched]
        self.touching = np.repeat(np.arange(len(touched)), counts)

    def _collect_work(self) -> None:
        steps = self.segment.steps
        self.jumps = np.array([isinstance(s, Jump) for s in steps], bool)
        below = [(i, s.serial) for i, s in enumerate(steps) if isinstance(s, Step) and isinstance(s.serial, Below)]
        self.below = np.array([i for i, _ in below], np.intp)
        self.below_work = np.array([self.sizes.place(b.work) for _, b in below], np.intp)
        self.below_least = np.array([b.least for _, b in below], np.int64)
        asked = [(i, s.serial) for i, s in enumerate(steps) if isinstance(s, Step) and s.serial is not None]
        self.asked_serial = _alike([(i, ask) for i, ask in asked if not isinstance(ask, Below)])
        self.asked_scratch = _alike([(n, _scratch_of(steps[i])) for n, i in enumerate(self.scratched)])
        self.asked_work = _alike([(i, s.work) for i, s in enumerate(steps) if isinstance(s, Step) and s.work is not None])
        self.loops = bool(self.segment.loops())

    def _collect_words(self, env: Mapping[str, int]) -> None:
        segment, threads = self.segment, self.threads
        words: list[int] = []
        self.starts, self.counts, self.scratch_arguments = [], [], []
        self.external: list[tuple[int, int, int]] = []  # word, number of the input or output, offset
        arena: list[tuple[int, int, int]] = []  # word, slot, offset
        status: list[tuple[int, int]] = []  # word, offset
        claims: list[tuple[int, int]] = []  # likewise
        sized: list[tuple[int, int]] = []  # word, place of the size
        self.asked: list[_Asked] = []
        known: dict[object, _Asked] = {}
        self.kept: list[np.ndarray] = []
        externals = {name: i for i, name in enumerate((*segment.inputs, *segment.outputs))}
        constants = {name: array.ctypes.data for name, array in segment.constants.items()}
        size = _sizes_of(env)
        for i, step in enumerate(segment.steps):
            self.starts.append(len(words))
            given = _passed_on(step, threads)
            arguments = step.arguments(size, threads) if given is None else given
            numbers: list[int] = []
            refs: list[tuple[int, Argument]] = []
            start = len(words)
            for j, a in enumerate(arguments):
                at = len(words)
                words.append(0)
                if isinstance(a, Ref):
                    refs.append((j, a))
                    if a.name in externals:
                        self.external.append((at, externals[a.name], a.offset_bytes))
                    elif a.name in constants:
                        words[at] = constants[a.name] + a.offset_bytes
                    elif a.name == STATUS:
                        status.append((at, 8 * i + a.offset_bytes))
                    elif a.name == CLAIMS:
                        claims.append((at, 8 * i))
                    else:
                        name = f"{SCRATCH}{i}" if a.name == SCRATCH else a.name
                        arena.append((at, self.slots[name], a.offset_bytes))
                elif isinstance(a, Code):
                    refs.append((j, a))
                    words[at] = segment.addresses[a.symbol]
                elif isinstance(a, _Later):
                    sized.append((at, self.sizes.place(a.dim)))
                elif given is None:
                    numbers.append(j)
                elif isinstance(a, np.ndarray):
                    self.kept.append(a)
                    words[at] = a.ctypes.data
                else:
                    words[at] = a
            if given is None:
                form = None if isinstance(step, Jump) else form_of(step.arguments)
                key = ("step", i) if form is None else (form, len(arguments), tuple(numbers))
                if key not in known:
                    known[key] = _Asked(step, numbers, refs, len(arguments), [])
                    self.asked.append(known[key])
                known[key].places.append([start + j for j in numbers])
            self.counts.append(len(arguments))
            self.scratch_arguments.append(call.scratch_argument(list(arguments)))
        self.words = np.array(words, np.int64)
        self.sized, self.sized_places = _columns(sized, 2)
        self.asked_places = [np.array(a.places, np.intp) for a in self.asked]
        self.arena, self.arena_slots, self.arena_offsets = _columns(arena, 3)
        self.status, self.status_offsets = _columns(status, 2)
        self.claims, self.claim_offsets = _columns(claims, 2)
        self.patches = np.array(self.external, np.int64).reshape(-1, 3)
        targets = [
            (0, i + s.offset) if isinstance(s, Jump) else (segment.addresses[s.kernel.symbol], 0)
            for i, s in enumerate(segment.steps)
        ]
        self.functions, self.targets = np.array(targets, np.int64).reshape(-1, 2).T
        self.start_bytes = 8 * np.array(self.starts, np.int64)

    def _collect_windows(self, env: Mapping[str, int]) -> None:
        try:
            values = np.array(self.sizes.values(env), np.int64)
        except (ValueError, ZeroDivisionError, OverflowError):
            return
        nbytes, size = self._nbytes(values), _sizes_of(env)
        if nbytes is not None:
            serial, work = self._serial(values, size), self._work(values, size, nbytes)
            self.windows = self.segment.windows(serial.tolist(), work.tolist(), self.threads)

    # --- sizes ---

    def bind(self, env: Mapping[str, int]) -> Rebinding | None:
        """The segment for the sizes in `env`; None where `Segment.bind` has to say what is wrong, or knows it better."""
        self.other_addresses = False
        try:
            found = self.sizes.values(env)
            values = np.array(found, np.int64)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        nbytes = self._nbytes(values)
        if nbytes is None or not self._fit(found):
            return None
        size = _sizes_of(env, dict(zip(self.sizes.places, found, strict=True)))
        scratch = np.zeros(len(self.scratched), np.int64)
        for ask, which in self.asked_scratch:
            scratch[which] = ask(size, self.threads)
        kept: list[np.ndarray] = []
        words = self._numbers(values, size, kept)
        if words is None:
            return None
        serial = self._serial(values, size)
        side_by_side = bool(self.windows) and fit(self.windows, serial)
        room = np.concatenate([nbytes[self.slot_buffers], scratch])
        offsets, arena_nbytes = self._offsets(room, side_by_side)
        words[self.arena] = offsets[self.arena_slots] + self.arena_offsets
        work = self._work(values, size, nbytes)
        of_scratch = dict(zip(self.scratched, scratch.tolist(), strict=True))
        sliced = {
            int(i): (many, of_scratch.get(int(i), 0) // self.threads)
            for i in np.flatnonzero((work > self.threads) & ~serial)
            if (many := call.slices(float(work[i]), self.threads)) > 1
        }
        outputs = [
            (tuple([found[p] for p in places]), self.segment.buffers[n].dtype.numpy)
            for n, places in zip(self.segment.outputs, self.output_places, strict=True)
        ]
        long = call.is_long(float(work.sum())) or self.loops
        found_windows = self.windows if side_by_side else ()
        most = int(scratch.max(initial=0))
        return Rebinding(self, words, outputs, serial, arena_nbytes, most, long, sliced, found_windows, kept=kept)

    def bind_many(self, envs: Mapping[str, np.ndarray], count: int) -> Repeated | None:
        """The segment for `count` sizes at once; None where they do not all fit together, or want other addresses.

        `envs` has an array of Python's integers for each symbol, as `evaluate_many` takes them.
        """
        found = self._many(envs, count)
        if found is None:
            return None
        words = np.repeat(found.words.first[None], count, axis=0)
        words[:, found.words.places] = found.words.rows
        numbers_of = [list(self.segment.buffers).index(n) for n in self.segment.outputs]
        return Repeated(self, words, found.serial, found.arena_nbytes, found.nbytes[:, numbers_of], found.words.kept)

    def bind_ahead(self, envs: Sequence[Mapping[str, int]]) -> list[Rebinding] | None:
        """The segment for each of these sizes, with one layout for all, so that states go from one to the next; None where
        they do not all fit together, want other addresses, or are so much work that binding them is nothing beside it."""
        columns = {name: np.array([env[name] for env in envs], object) for name in envs[0]}
        try:
            found = self._many(columns, len(envs))
        except InvalidArgument:  # a size further on, which nobody may ever ask for
            return None
        if found is None:
            return None
        ends = [self._work(found.values[i], _sizes_of(envs[i]), found.nbytes[i]) for i in (0, len(envs) - 1)]
        if any(call.slices(float(work.max(initial=0)), self.threads) > 1 for work in ends):
            return None
        serial = found.serial & ~(self.jumps & ~np.all(found.serial, axis=1, keepdims=True))
        course, long = Course(found.words, serial), any(call.is_long(float(work.sum())) for work in ends) or self.loops
        kinds = [self.segment.buffers[n].dtype.numpy for n in self.segment.outputs]
        known: dict[object, list[tuple[tuple[int, ...], np.dtype]]] = {}
        for p, kind in zip(self.output_places, kinds, strict=True):
            if (*p, kind) not in known:
                known[*p, kind] = [(tuple(shape), kind) for shape in found.values[:, p].tolist()]
        outputs = [known[*p, kind] for p, kind in zip(self.output_places, kinds, strict=True)]
        return [
            Rebinding(
                self, course.words, [of[i] for of in outputs], serial[i], found.arena_nbytes,
                found.workspace_nbytes, long, {}, (), course, i,
            )
            for i in range(len(envs))
        ]  # fmt: skip

    def _many(self, envs: Mapping[str, np.ndarray], count: int) -> _Many | None:
        dims, values = list(self.sizes.places), np.empty((count, len(self.sizes.places)), np.int64)
        try:
            evaluated = evaluate_many(dims, envs)
            for column, value in enumerate(evaluated):
                values[:, column] = value
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        nbytes = self._nbytes(values)
        if nbytes is None:
            return None
        columns = values.T.tolist()
        if not all(holds(kind, a, b) for kind, i, j in self.constraints for a, b in zip(columns[i], columns[j], strict=True)):
            return None
        sizes = ManySizes(envs, count)
        scratch = np.zeros((count, len(self.scratched)), np.int64)
        for ask, which in self.asked_scratch:
            scratch[:, which] = sizes.values(ask, self.threads).astype(np.int64)[:, None]
        offsets, arena_nbytes = self._offsets(np.concatenate([nbytes[:, self.slot_buffers], scratch], 1).max(0))
        words = self._many_words(sizes, values, offsets)
        if words is None:
            return None
        serial = np.repeat(self.jumps[None], count, axis=0)
        serial[:, self.below] = values[:, self.below_work] < self.below_least
        for ask, which in self.asked_serial:
            serial[:, which] = sizes.values(ask).astype(bool)[:, None]
        return _Many(words, serial, arena_nbytes, values, nbytes, int(scratch.max(initial=0)))

    def _many_words(self, sizes: ManySizes, values: np.ndarray, offsets: np.ndarray) -> _Words | None:
        first = self.words.copy()
        first[self.arena] = offsets[self.arena_slots] + self.arena_offsets
        found = [(self.sized[None], values[:, self.sized_places])]
        kept: list[np.ndarray] = []
        for asked, places in zip(self.asked, self.asked_places, strict=True):
            numbers = np.empty((sizes.count, len(asked.numbers)), np.int64)
            for which, given in sizes.each(asked.step.arguments, self.threads):
                if not self._take_numbers(asked, given, numbers, which, kept):
                    return None
            found.append((places, numbers))
        differing, rows = [], []
        for places, numbers in found:
            first[places] = numbers[0]
            varying = (numbers != numbers[0]).any(0)
            differing.append(places[:, varying].reshape(-1))
            rows.append(np.tile(numbers[:, varying], (1, len(places))))
        return _Words(first, np.concatenate(differing), np.concatenate(rows, 1), kept)

    @staticmethod
    def _take_numbers(
        asked: _Asked, given: Sequence[Any], numbers: np.ndarray, which: np.ndarray, kept: list[np.ndarray]
    ) -> bool:
        """Note the numbers, and the addresses of tables, among a step's arguments for some sizes; False where it wants other
        addresses."""
        if len(given) != asked.count or any(given[j] != a for j, a in asked.refs):
            return False
        for column, j in enumerate(asked.numbers):
            x = _word(given[j], kept)
            if type(x) is not int and not isinstance(x, Numbers):
                return False
            numbers[which, column] = x.values if isinstance(x, Numbers) else x
        return True

    def _nbytes(self, values: np.ndarray) -> np.ndarray | None:
        """Bytes of every buffer, for each row of `values`; None where a size is negative or a buffer absurdly large."""
        shapes = values[..., self.shape_places]
        if (shapes < 0).any() or (shapes.astype(np.float64).prod(-1) * self.itemsizes > min(_EXACT, MOST_BYTES)).any():
            return None
        nbytes: np.ndarray = shapes.prod(-1) * self.itemsizes
        return nbytes

    def _fit(self, found: list[int]) -> bool:
        """Whether the segment's constraints hold."""
        return all(holds(kind, found[i], found[j]) for kind, i, j in self.constraints)

    def _numbers(self, values: np.ndarray, size: Callable[[Dim], int], kept: list[np.ndarray]) -> np.ndarray | None:
        """All words but addresses of the arena; None where a step wants other addresses than those that the frame knows. Tables
        that words are addresses of are added to `kept`."""
        words = self.words.copy()
        words[self.sized] = values[self.sized_places]
        for asked, places in zip(self.asked, self.asked_places, strict=True):
            given = asked.step.arguments(size, self.threads)
            if len(given) != asked.count or any(given[j] != a for j, a in asked.refs):
                self.other_addresses = True
                return None
            numbers = [_word(given[j], kept) for j in asked.numbers]
            if not all(type(x) is int for x in numbers):
                return None
            words[places] = np.array(numbers, np.int64)
        return words

    def _offsets(self, room: np.ndarray, side_by_side: bool = False) -> tuple[np.ndarray, int]:
        """Where the tensors lie, and the bytes of all: as in an earlier layout, where that has room and is not too large."""
        layouts = self._window_layouts if side_by_side else self._layouts
        lifetimes = [spanned(life, self.windows) for life in self.lifetimes] if side_by_side else self.lifetimes
        most = room.sum() * 3 // 2 + 2 * _ROOM * len(room)
        for kept, offsets, total in layouts:
            if kept.sum() <= most and (room <= kept).all():
                return offsets, total
        larger = room + np.maximum(room >> 3, _ROOM)
        placed, total = place([(align(int(n)), *life) for n, life in zip(larger, lifetimes, strict=True)])
        found = (larger, np.array(placed, np.int64), total)
        layouts[:] = [found, *layouts[: _LAYOUTS - 1]]
        return found[1], total

    def _serial(self, values: np.ndarray, size: Callable[[Dim], int]) -> np.ndarray:
        serial = self.jumps.copy()
        serial[self.below] = values[self.below_work] < self.below_least
        for ask, which in self.asked_serial:
            serial[which] = ask(size)
        found: np.ndarray = serial if serial.all() else serial & ~self.jumps
        return found

    def _work(self, values: np.ndarray, size: Callable[[Dim], int], nbytes: np.ndarray) -> np.ndarray:
        """`call.shares` of every step."""
        known = np.concatenate([nbytes, self.constant_nbytes])
        touched = np.bincount(self.touching, known[self.touched], len(self.segment.steps))
        counted = np.zeros(len(touched))
        counted[self.below] = values[self.below_work] / np.maximum(self.below_least, 1) * (self.below_least > 0)
        for ask, which in self.asked_work:
            counted[which] = ask(size)
        work: np.ndarray = np.maximum(counted, touched / call.SHARE_NBYTES)
        work[self.jumps] = 0
        return work


def _sizes_of(env: Mapping[str, int], known: dict[Dim, int] | None = None) -> Callable[[Dim], int]:
    found: dict[Dim, int] = {} if known is None else known

    def size(d: Dim) -> int:
        if not isinstance(d, Expr):
            return d
        value = found.get(d)
        if value is None:
            value = found[d] = d.evaluate(env)
        return value

    return size


def _word(x: Any, kept: list[np.ndarray]) -> Any:
    """An argument as a word has it: of a table the address, for as long as `kept` has the table."""
    if isinstance(x, np.ndarray):
        kept.append(x)
        return int(x.ctypes.data)
    return x


def holds(kind: str, left: int, right: int) -> bool:
    """Whether two sizes are as a constraint of this kind has them."""
    if kind == "divisor":
        return left != 0 or right == 0
    return left == right or (kind == "broadcast" and left == 1) or (kind == "least" and left > right)


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array(rows, np.int64).reshape(-1, count).T)
