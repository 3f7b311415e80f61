"""Running loops whose sizes change: many trips are bound at once and run in one call (see `dynamic_loop`,
`plan.trip_table`)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.provider import RunContext
from intarsia.errors import NodeFailed, OutOfMemory
from intarsia.graph.dims import evaluate, symbols_of
from intarsia.graph.model import TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.plan.array_address import address_of
from intarsia.plan.memory_layout import align
from intarsia.plan.result_pool import memory
from intarsia.plan.segment import FRAME_LIMIT
from intarsia.plan.size_constraints import check_known
from intarsia.plan.symbolic_binding import Frame, Repeated
from intarsia.plan.trip_table import Batch, Lessee
from intarsia.providers.cpu.executable import Executable, LoopStep
from intarsia.providers.cpu.program.loops.stacked_outputs import Rows
from intarsia.providers.cpu.program.loops.trip_buffers import Form, Layout, Slot, laid_out
from intarsia.providers.cpu.program.loops.trip_sizes import TripSizes, all_sizes, required_sizes
from intarsia.runtime.executor import TERMINATED

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_FIRST_TRIPS = 16  # of a loop that a condition ends; then twice as many each time
_MOST_FIRST_TRIPS = 1 << 10
_BATCH_NBYTES = 4 << 20  # of the words of a batch
_STEP_NBYTES = 200  # of a trip, for each step, roughly
_RETAINED_NBYTES = 32 << 20  # of all batches that a loop retains
_TRUES = (np.array([True]),)
_SMALL_NBYTES = 1 << 12  # a result this small may lie in a larger buffer

_MOST_ALONE = 64

_Key = tuple[Any, ...]


@dataclass
class _Bound:
    """A batch of trips for given sizes, and where to find what it leaves."""

    batch: Batch
    layout: Layout
    shapes: list[list[np.ndarray]]  # of each carried value, its sizes after each trip
    rows: list[tuple[int, ...]]  # shapes of rows
    key: _Key
    final: list[_Place]  # of the carried values, where the number of trips is known

    @property
    def lease_nbytes(self) -> int:
        return align(self.batch.arena_nbytes) + self.layout.leased_nbytes


@dataclass(frozen=True)
class _Place:
    """Where a carried value lies after a batch: what lies there and which of these, first byte, shape, bytes."""

    kind: str
    number: int
    offset: int
    shape: tuple[int, ...]
    nbytes: int
    own: bool  # whether nothing else uses that memory, and it is little more than what the value needs


@dataclass
class _State:
    """A run in progress."""

    carried: list[np.ndarray]
    sources: list[np.ndarray]
    captured: list[np.ndarray]
    rows: list[Rows]
    trip: int = 0
    going: bool = True
    own: frozenset[int] = frozenset()  # carried values that lie in memory that nothing else uses


class LoopProgram:
    """A `LoopStep` made ready: its body as a program, and batches of trips by sizes. Any number of threads may run it."""

    def __init__(self, owner: CpuProgram, step: LoopStep) -> None:
        self.step, self.node = step, step.node
        self.body = owner.inner_program(step.body)
        (self.segment,) = step.body.segments()
        self.is_loop = step.node.op_type == "Loop"
        self.states = len(step.carried)
        self.kernels = dict(zip(("move", "count"), (owner._addresses[k.symbol] for k in step.kernels), strict=True))
        self.lessee = Lessee(owner.context.memory, f"node {step.node.name!r} ({step.node.qualified_op})")
        sources = 0 if self.is_loop else len(step.node.inputs) - self.states
        slots: list[Slot] = [("trip", 0), ("true", 0)] if self.is_loop else []
        slots += [("carried", j) for j in range(self.states)] + [("source", r) for r in range(sources)]
        slots += [("captured", c) for c in range(len(step.captured))]
        self.conditional = self.is_loop and len(step.node.inputs) > 1 and bool(step.node.inputs[1])
        looked_at = self.is_loop and not _holds_on(step.body)
        self.form = Form(tuple(slots), looked_at, int(self.is_loop), self.states)
        self._required = required_sizes(step.body)
        self._sized = [i for i, v in enumerate(step.body.inputs) if any(a < 0 for _, a in step.body.learned.get(v.name, ()))]
        self._dtypes = [_dtype(v) for v in step.body.inputs[2 * self.form.first :]][: self.states]
        self._constants = list(step.body.constants.values())
        self._usual = _FIRST_TRIPS  # trips that one run made, where only a run knows how many: a power of two
        self._sizes = TripSizes(step, len(slots) - len(step.captured) - sources - self.states)
        self._frames: list[Frame] = []
        self._batches: OrderedDict[_Key, list[_Bound]] = OrderedDict()
        self._retained_nbytes = 0
        self._alone: set[_Key] = set()  # for which no trip can be bound
        self._lock = fork_safety.lock()

    def run(self, inputs: Sequence[Any], captured: Sequence[Any], run: RunContext | None) -> list[np.ndarray]:
        """The node's outputs."""
        limit = self._limit(inputs)
        state = self._begin(inputs, captured, limit)
        counted = limit is not None and not self.form.condition
        size = self._usual if limit is None or self.form.condition else limit
        while state.going and (limit is None or state.trip < limit):
            left = size if limit is None else min(size, limit - state.trip)
            if run is not None:
                run.check()
                left = max(1, min(left, run.trips_left))
            before = state.trip
            if not self._batch(state, left, run):
                self._one_trip(state, run)
            if run is not None:
                run.count_trips(state.trip - before)
            size = 2 * size
        if not counted:
            self._usual = min(max(_FIRST_TRIPS, 1 << (state.trip - 1).bit_length()), _MOST_FIRST_TRIPS)
        final = [x if j in state.own else _copied(x) for j, x in enumerate(state.carried)]
        if not state.rows:
            return final
        empty = [()] * len(state.rows) if all(r.done for r in state.rows) else self._rows_of_none(state)
        stacked = [rows.stacked(shape) for rows, shape in zip(state.rows, empty, strict=True)]
        return [*final, *(self._turned(made, i) for i, made in enumerate(stacked))]

    def _rows_of_none(self, state: _State) -> list[tuple[int, ...]]:
        """Shapes of the rows that a first trip would give. Raises NodeFailed where the body does not fit its operands."""
        values = self._before(state)
        env = self._learned(values)
        if env is None:
            told = ", ".join(f"{v.name} {list(np.shape(x))}" for v, x in zip(self.step.body.inputs, values, strict=True))
            raise NodeFailed(f"{self._where}: its body does not take values of these shapes: {told}")
        check_known((*self.step.body.constraints, *self.segment.constraints), env)
        try:
            return [tuple(evaluate(d, env) for d in shape) for shape, _ in self.step.rows]
        except (ValueError, ZeroDivisionError) as error:
            raise NodeFailed(f"{self._where}: {error}") from None

    # --- beginning and end ---

    def _begin(self, inputs: Sequence[Any], captured: Sequence[Any], limit: int | None) -> _State:
        given = [_dense(x) for x in inputs[2 if self.is_loop else 0 :]]
        captured = [_dense(x) for x in captured]
        going = not self.conditional or bool(_number(inputs[1]))
        if not self.is_loop:
            return self._begin_scan(given, captured)
        rows: list[Rows] = []
        if self.step.rows:
            total = None if limit is None or self.form.condition else max(0, limit) * going
            names = self.node.outputs[self.states :]
            rows = [Rows(n, dtype, total, False) for n, (_, dtype) in zip(names, self.step.rows, strict=True)]
        return _State(given, [], captured, rows, going=going)

    def _begin_scan(self, given: list[np.ndarray], captured: list[np.ndarray]) -> _State:
        attributes, sources = self.node.attributes, given[self.states :]
        axes = attributes.get("scan_input_axes") or [0] * len(sources)
        sources = [_dense(np.moveaxis(x, a, 0)) for x, a in zip(sources, axes, strict=True)]
        lengths = {len(x) for x in sources}
        if len(lengths) != 1:
            raise NodeFailed(f"{self._where}: scan inputs have lengths {sorted(lengths)}; expected one length")
        total = lengths.pop()
        backward = attributes.get("scan_output_directions") or [0] * len(self.step.rows)
        names, kinds = self.node.outputs[self.states :], (dtype for _, dtype in self.step.rows)
        rows = [Rows(n, dtype, total, bool(b)) for n, dtype, b in zip(names, kinds, backward, strict=True)]
        return _State(given[: self.states], sources, captured, rows)

    def _limit(self, inputs: Sequence[Any]) -> int | None:
        """The most trips."""
        if not self.is_loop:
            x, axes = inputs[self.states], self.node.attributes.get("scan_input_axes") or [0]
            return int(x.shape[axes[0]])
        return None if not inputs or inputs[0] is None else int(_number(inputs[0]))

    def _turned(self, made: np.ndarray, number: int) -> np.ndarray:
        axes = self.node.attributes.get("scan_output_axes") if not self.is_loop else None
        return _dense(np.moveaxis(made, 0, axes[number])) if axes and axes[number] else made

    @property
    def _where(self) -> str:
        return f"node {self.node.name!r} ({self.node.qualified_op})"

    # --- trips ---

    def _values(self, state: _State, trip: int) -> list[np.ndarray]:
        """What the body takes in a trip."""
        head = [np.array(trip, np.int64), np.array(True)] if self.is_loop else []
        return [*head, *state.carried, *self._source_rows(state, trip), *state.captured]

    def _source_rows(self, state: _State, trip: int) -> list[np.ndarray]:
        backward = self.node.attributes.get("scan_input_directions") or [0] * len(state.sources)
        places = [len(x) - 1 - trip if b else trip for x, b in zip(state.sources, backward, strict=False)]
        return [x[at : at + 1].reshape(x.shape[1:]) for x, at in zip(state.sources, places, strict=True)]

    def _one_trip(self, state: _State, run: RunContext | None) -> None:
        """A trip by the body's program, which also says what is wrong with its sizes."""
        out = self.body.run([np.asarray(x) for x in self._values(state, state.trip)], run)
        if self.form.condition:
            state.going = bool(np.asarray(out[0]).reshape(-1)[0])
        first = self.form.first
        state.carried, state.own = [_dense(x) for x in out[first : first + self.states]], frozenset()
        for rows, row in zip(state.rows, out[first + self.states :], strict=True):
            rows.put(row)
        state.trip += 1

    def _learned(self, values: Sequence[np.ndarray]) -> dict[str, int] | None:
        """Sizes of what the body takes; None where they are not as it wants them."""
        env = dict(self.step.body.sizes)
        for value, x in zip(self.step.body.inputs, values, strict=True):
            kind = value.type
            assert isinstance(kind, TensorType)
            if x.ndim != len(kind.shape or ()):
                return None
            self.step.body.learn(value.name, x, env)
        return env if all(map(partial(_fits, env), self.step.body.inputs, values)) else None

    def _before(self, state: _State) -> list[np.ndarray]:
        """As `_values`, where there was no trip; zeros for rows that a Scan does not have."""
        if not state.sources or len(state.sources[0]):
            return self._values(state, 0)
        return [*state.carried, *(np.zeros(x.shape[1:], x.dtype) for x in state.sources), *state.captured]

    def _batch(self, state: _State, count: int, run: RunContext | None) -> bool:
        """Run up to `count` trips natively; False where the next one cannot be."""
        if self.segment.arena.limit:
            return False
        found = self._taken(self._key(state, count), state)
        if found is None:
            return False
        try:
            self._execute(found, state, run)
        except BaseException:
            found.batch.cut_short()
            raise
        finally:
            self._give_back(found)
        return True

    def _key(self, state: _State, count: int) -> _Key:
        """Equal where a batch may be the same: all that sizes follow from."""
        key = (count, *[x.shape for x in state.carried], *[x.shape for x in state.captured])
        if state.sources:
            key += tuple([x.shape[1:] for x in state.sources])
        if self._sized:
            values = self._values(state, state.trip)
            key += tuple([values[i].tobytes() for i in self._sized])
        return key

    def _execute(self, found: _Bound, state: _State, run: RunContext | None) -> None:
        batch, layout = found.batch, found.layout
        buffers = [self._buffer(nbytes) for nbytes in layout.buffers]
        rows = [r.room(shape, batch.count) for r, shape in zip(state.rows, found.rows, strict=True)]
        arrays: dict[str, Sequence[np.ndarray]] = {
            "carried": state.carried, "captured": state.captured, "buffer": buffers, "true": _TRUES,
            "constant": self._constants,
        }  # fmt: skip
        if ("trip", 0) in layout.slots:
            arrays["trip"] = [np.arange(state.trip, state.trip + batch.count, dtype=np.int64)]
        if state.sources:
            arrays["source"] = self._source_rows(state, state.trip)
        lease = self.lessee.lease(found.lease_nbytes)
        leased = lease.address + align(batch.arena_nbytes)
        slots = [
            leased + number if kind == "leased" else rows[number] if kind == "rows" else address_of(arrays[kind][number])
            for kind, number in layout.slots
        ]
        block = batch.prepare(lease, slots, run.flag_address if run is not None else 0)
        status = self.body.pool.run_block(block)
        if status == TERMINATED:
            assert run is not None
            raise run.stopped()
        self.lessee.give_back(lease)
        if batch.status.tobytes() != batch.unset:
            self.body.report_status(self.segment, batch.status)
        done = batch.done()
        state.going = batch.goes_on()
        state.trip += done
        for r in state.rows:
            r.written(done)
        places = found.final or self._places(layout, found.shapes, done)
        state.carried = [self._view(arrays, state, place, dtype) for place, dtype in zip(places, self._dtypes, strict=True)]
        state.own = frozenset([j for j, place in enumerate(places) if place.own])

    def _buffer(self, nbytes: int) -> np.ndarray:
        try:
            return memory.empty((nbytes,), np.dtype(np.uint8))
        except (MemoryError, ValueError):
            raise OutOfMemory(
                f"{self._where}: a carried value needs {nbytes / 2**20:,.0f} MiB, which the system does not give: "
                "use a smaller batch or a shorter input, or free memory"
            ) from None

    def _places(self, layout: Layout, shapes: Sequence[Sequence[np.ndarray]], done: int) -> list[_Place]:
        """Where the carried values lie after so many trips of a batch."""
        found = []
        rows = layout.carried[done].tolist()
        for (slot, offset), sizes, dtype in zip(rows, shapes, self._dtypes, strict=True):
            kind, number = layout.slots[slot]
            shape = tuple([int(d[done - 1]) for d in sizes])
            nbytes = math.prod(shape) * dtype.itemsize
            own = kind == "buffer" and sum(other == slot for other, _ in rows) == 1
            own = own and (layout.buffers[number] <= max(2 * nbytes, _SMALL_NBYTES))
            found.append(_Place(kind, number, offset, shape, nbytes, own))
        return found

    def _view(
        self, arrays: Mapping[str, Sequence[np.ndarray]], state: _State, place: _Place, dtype: np.dtype[Any]
    ) -> np.ndarray:
        """A carried value after a batch."""
        if not place.nbytes:
            return np.empty(place.shape, dtype)
        array, start = arrays[place.kind][place.number], place.offset
        if place.kind == "buffer":
            return np.ndarray(place.shape, dtype, array, start)
        if place.kind == "source":  # a row, of which the offset counts
            source = state.sources[place.number]
            array, start = source, address_of(array) - address_of(source) + start
        return array.reshape(-1).view(np.uint8)[start : start + place.nbytes].view(dtype).reshape(place.shape)

    # --- batches ---

    def _taken(self, key: _Key, state: _State) -> _Bound | None:
        """A batch for what `key` says, of at most as many trips; nobody else uses it. None: the next trip cannot be bound."""
        with self._lock:
            free = self._batches.get(key)
            if free:
                self._batches.move_to_end(key)
                found = free.pop()
                self._retained_nbytes -= found.batch.nbytes
                return found
        if key[1:] in self._alone:
            return None
        values = self._values(state, state.trip)
        env = self._learned(values)
        if env is None:
            return None
        if any(values[i].shape[axis] != (d if isinstance(d, int) else d.evaluate(env)) for i, axis, d in self._required):
            return None
        width = _STEP_NBYTES * max(1, self.segment.count)
        trips = max(1, min(key[0], _BATCH_NBYTES // width))
        while trips:
            bound = self._bound(key, env, trips, state)
            if bound is not None:
                return bound
            trips //= 2
        if len(self._alone) < _MOST_ALONE:
            self._alone.add(key[1:])
        return None

    def _give_back(self, found: _Bound) -> None:
        key = found.key
        with self._lock:
            self._batches.setdefault(key, []).append(found)
            self._retained_nbytes += found.batch.nbytes
            while self._retained_nbytes > _RETAINED_NBYTES and self._batches:
                _, dropped = self._batches.popitem(last=False)
                self._retained_nbytes -= sum(b.batch.nbytes for b in dropped)

    def _bound(self, key: _Key, env: dict[str, int], count: int, state: _State) -> _Bound | None:
        columns = self._sizes.columns(env, count)
        if columns is None:
            return None
        try:
            shapes = [all_sizes(c.shape, columns, count) for c in self.step.carried]
            rows = [all_sizes(shape, columns, count) for shape, _ in self.step.rows]
            if not self._sizes.agree(columns, shapes, count):
                return None
        except (ValueError, ZeroDivisionError):
            return None
        if any((d != d[0]).any() for row in rows for d in row):
            return None
        bound = self._words(env, columns, count)
        if bound is None:
            return None
        one_row = [tuple(int(d[0]) for d in row) for row in rows]
        nbytes = [math.prod(s) * dtype.itemsize for s, (_, dtype) in zip(one_row, self.step.rows, strict=True)]
        steps = [r.step(s) for r, s in zip(state.rows, one_row, strict=True)]
        backward = self.node.attributes.get("scan_input_directions") or [0] * len(state.sources)
        source_steps = [x[:1].nbytes * (-1 if b else 1) for x, b in zip(state.sources, backward, strict=False)]
        layout = laid_out(self.step.body, self.form, count, bound.outputs, nbytes, steps, source_steps)
        final = [] if self.form.condition else self._places(layout, shapes, count)
        return _Bound(Batch(bound, layout.places, self.kernels), layout, shapes, one_row, key, final)

    def _words(self, env: dict[str, int], columns: Mapping[str, np.ndarray], count: int) -> Repeated | None:
        threads = self.body.pool.num_threads
        with self._lock:
            for number in range(FRAME_LIMIT):
                known = number < len(self._frames)
                frame, found = self.segment.by_frame(
                    self._frames, number, env, threads, lambda frame: frame.bind_many(columns, count)
                )  # fmt: skip
                if frame is None or found is not None or not (known or frame.other_addresses):
                    return found
        return None

    def trim(self) -> int:
        """Forget the batches; returns their bytes."""
        with self._lock:
            freed, self._retained_nbytes = self._retained_nbytes, 0
            self._batches.clear()
            self.lessee.strip()
        return freed + self.body.trim()


def _holds_on(body: Executable) -> bool:
    """Whether a body hands the condition on that it is given, which holds, or gives one that always does."""
    name = body.results[0].buffer
    return name == body.inputs[1].name or (name in body.constants and bool(body.constants[name].all()))


def _dtype(value: Value) -> np.dtype[Any]:
    kind = value.type
    assert isinstance(kind, TensorType)
    return kind.dtype.numpy


def _number(x: Any) -> Any:
    """The element of an array of one, or the first."""
    return x.item() if isinstance(x, np.ndarray) and x.size == 1 else np.asarray(x).reshape(-1)[0]


def _fits(env: Mapping[str, int], value: Value, x: np.ndarray) -> bool:
    """Whether an array has the element type and the sizes that the body was compiled for, whatever it comes from."""
    kind = value.type
    assert isinstance(kind, TensorType) and kind.shape is not None
    sizes = [d if isinstance(d, int) else evaluate(d, env) if symbols_of(d) <= env.keys() else None for d in kind.shape]
    return x.dtype == kind.dtype.numpy and all(d in (n, None) for n, d in zip(x.shape, sizes, strict=True))


def _dense(x: Any) -> Any:
    """The array, row-major and without gaps."""
    return x if not isinstance(x, np.ndarray) or x.flags.c_contiguous else np.ascontiguousarray(x)


def _copied(x: np.ndarray) -> np.ndarray:
    """A result of its own, which shares memory with no input and no buffer."""
    made = memory.empty(x.shape, x.dtype)
    made[...] = x
    return made
