"""Running loops whose sizes change: many trips are bound at once and run in one call (see `growing`, `plan.trips`)."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import Fail, InvalidGraph, OutOfMemory
from intarsia.graph.dims import Dim, Expr, evaluate, evaluate_many, symbol
from intarsia.graph.dtypes import MOST_BYTES
from intarsia.graph.model import TensorType
from intarsia.partition.provider import RunContext
from intarsia.plan.address import address_of
from intarsia.plan.frame import Frame, Repeated, holds
from intarsia.plan.results import memory
from intarsia.plan.segment import FRAME_LIMIT, too_large
from intarsia.plan.trips import Batch, Lessee
from intarsia.providers.cpu.executable import Executable, LoopStep
from intarsia.providers.cpu.trip_places import Form, Layout, Slot, laid_out
from intarsia.runtime.executor import TERMINATED

if TYPE_CHECKING:
    from intarsia.providers.cpu.program import CpuProgram

_FIRST_TRIPS = 16  # of a loop that a condition ends; then twice as many each time
_BATCH_NBYTES = 4 << 20  # of the words of a batch
_STEP_NBYTES = 200  # of a trip, for each step, roughly
_KEPT_NBYTES = 32 << 20  # of all batches that a loop keeps
_TRUE = np.array([True])


@dataclass
class _Bound:
    """A batch of trips for given sizes, and where to find what it leaves."""

    batch: Batch
    layout: Layout
    shapes: list[list[np.ndarray]]  # of each carried value, its sizes after each trip
    rows: list[tuple[int, ...]]  # shapes of rows
    key: tuple[int, ...] = ()


class _Rows:
    """A stacked output as it comes to be; `total`: how many rows there will be, where that is known."""

    def __init__(self, name: str, dtype: np.dtype[Any], total: int | None, backward: bool) -> None:
        self.name, self.dtype, self.total, self.backward = name, dtype, total, backward
        self.shape: tuple[int, ...] | None = None
        self.done = 0
        self._blocks: list[np.ndarray] = []

    def room(self, shape: tuple[int, ...], count: int) -> int:
        """The address of the next row, of `count` that are written from there on.

        Raises:
            Fail: the row has another shape than those before.
            OutOfMemory: there is no memory for the rows.
        """
        if self.shape is not None and self.shape != shape:
            raise Fail(
                f"rows of shapes {list(self.shape)} and {list(shape)} cannot be stacked into {self.name!r}: "
                "what a body gives in each iteration must have one shape"
            )
        if self.shape is None or self.total is None:
            self.shape = shape
            count = count if self.total is None else self.total
            nbytes = count * math.prod(shape) * self.dtype.itemsize
            try:
                if nbytes > MOST_BYTES:
                    raise MemoryError
                self._blocks.append(memory.empty((count, *shape), self.dtype))
            except (MemoryError, ValueError):
                raise too_large(self.name, (count, *shape), nbytes) from None
        start = 0 if self.total is None else self.total - 1 - self.done if self.backward else self.done
        return address_of(self._blocks[-1]) + start * math.prod(shape) * self.dtype.itemsize

    def step(self, shape: tuple[int, ...]) -> int:
        """Bytes from one row to the next one that is written."""
        return math.prod(shape) * self.dtype.itemsize * (-1 if self.backward else 1)

    def written(self, count: int) -> None:
        self.done += count
        if self.total is None:
            self._blocks[-1] = self._blocks[-1][:count]

    def put(self, row: np.ndarray) -> None:
        """A row that was computed elsewhere."""
        self.room(row.shape, 1)
        at = 0 if self.total is None else self.total - 1 - self.done if self.backward else self.done
        self._blocks[-1][at] = row
        self.written(1)

    def stacked(self, empty: tuple[int, ...]) -> np.ndarray:
        """All rows; `empty`: the shape of one where there is none."""
        if not self._blocks:
            return np.empty((0, *empty), self.dtype)
        return self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)


@dataclass
class _State:
    """A run in progress."""

    carried: list[np.ndarray]
    sources: list[np.ndarray]
    captured: list[np.ndarray]
    rows: list[_Rows]
    trip: int = 0
    going: bool = True


class LoopProgram:
    """A `LoopStep` made ready: its body as a program, and batches of trips by sizes. Any number of threads may run it."""

    def __init__(self, owner: CpuProgram, step: LoopStep) -> None:
        from intarsia.providers.cpu.program import CpuProgram

        self.step, self.node = step, step.node
        self.body = CpuProgram(step.body, owner._addresses, owner.context, owner.target)
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
        self._asked = _asked(step.body)
        self._sizes = _Sizes(step, len(slots) - len(step.captured) - sources - self.states)
        self._frames: list[Frame] = []
        self._batches: OrderedDict[tuple[int, ...], list[_Bound]] = OrderedDict()
        self._kept_nbytes = 0
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Any], captured: Sequence[Any], run: RunContext | None) -> list[np.ndarray]:
        """The node's outputs."""
        state = self._begin(inputs, captured)
        limit = self._limit(inputs, state)
        size = _FIRST_TRIPS if self.form.condition or limit is None else limit
        while state.going and (limit is None or state.trip < limit):
            left = size if limit is None else min(size, limit - state.trip)
            if run is not None:
                run.check()
            if not self._batch(state, left, run):
                self._one_trip(state, run)
            size = 2 * size
        empty = None if all(r.done for r in state.rows) else self._learned(self._before(state))
        final = [_copied(x) for x in state.carried]
        stacked: list[np.ndarray] = []
        for rows, (shape, _) in zip(state.rows, self.step.rows, strict=True):
            made = rows.stacked(() if empty is None else tuple(evaluate(d, empty) for d in shape))
            stacked.append(self._turned(made, len(stacked)))
        return [*final, *stacked]

    # --- beginning and end ---

    def _begin(self, inputs: Sequence[Any], captured: Sequence[Any]) -> _State:
        given = [_dense(x) for x in inputs[2 if self.is_loop else 0 :]]
        sources = given[self.states :]
        attributes = self.node.attributes
        total, backward = None, [0] * len(self.step.rows)
        if self.is_loop:
            limit = inputs[0] if inputs else None
            if limit is not None and not self.form.condition:
                begins = not self.conditional or bool(np.asarray(inputs[1]).reshape(-1)[0])
                total = max(0, int(np.asarray(limit).reshape(-1)[0])) * begins
        else:
            axes = attributes.get("scan_input_axes") or [0] * len(sources)
            sources = [_dense(np.moveaxis(x, a, 0)) for x, a in zip(sources, axes, strict=True)]
            lengths = {len(x) for x in sources}
            if len(lengths) != 1:
                raise InvalidGraph(f"{self._where}: scan inputs have lengths {sorted(lengths)}; expected one length")
            total = lengths.pop()
            backward = attributes.get("scan_output_directions") or backward
        names = self.node.outputs[self.states :]
        kinds = (dtype for _, dtype in self.step.rows)
        rows = [_Rows(n, dtype, total, bool(b)) for n, dtype, b in zip(names, kinds, backward, strict=True)]
        return _State(given[: self.states], sources, [_dense(x) for x in captured], rows)

    def _limit(self, inputs: Sequence[Any], state: _State) -> int | None:
        """The most trips; a Loop's first condition is looked at here."""
        if not self.is_loop:
            return len(state.sources[0])
        if self.conditional:
            state.going = bool(np.asarray(inputs[1]).reshape(-1)[0])
        limit = inputs[0] if inputs else None
        return None if limit is None else int(np.asarray(limit).reshape(-1)[0])

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
        state.carried = [_dense(x) for x in out[first : first + self.states]]
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
        return env

    def _before(self, state: _State) -> list[np.ndarray]:
        """As `_values`, where there was no trip; zeros for rows that a Scan does not have."""
        if not state.sources or len(state.sources[0]):
            return self._values(state, 0)
        return [*state.carried, *(np.zeros(x.shape[1:], x.dtype) for x in state.sources), *state.captured]

    def _batch(self, state: _State, count: int, run: RunContext | None) -> bool:
        """Run up to `count` trips natively; False where the next one cannot be."""
        values = self._values(state, state.trip)
        env = self._learned(values)
        if env is None or self.segment.arena.limit:
            return False
        if any(values[i].shape[axis] != (d if isinstance(d, int) else d.evaluate(env)) for i, axis, d in self._asked):
            return False
        found = self._taken(env, count, state)
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

    def _execute(self, found: _Bound, state: _State, run: RunContext | None) -> None:
        batch, layout = found.batch, found.layout
        numbered = ("trip", 0) in layout.slots
        trips = np.arange(state.trip, state.trip + batch.count, dtype=np.int64) if numbered else _TRUE
        buffers = [self._buffer(nbytes) for nbytes in layout.buffers]
        rows = [r.room(shape, batch.count) for r, shape in zip(state.rows, found.rows, strict=True)]
        constants = list(self.step.body.constants.values())
        arrays: Mapping[str, Sequence[np.ndarray]] = {
            "trip": [trips], "true": [_TRUE], "carried": state.carried, "captured": state.captured,
            "source": self._source_rows(state, state.trip), "constant": constants, "buffer": buffers,
        }  # fmt: skip
        slots = [rows[number] if kind == "rows" else address_of(arrays[kind][number]) for kind, number in layout.slots]
        lease = self.lessee.lease(batch.arena_nbytes)
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
        state.carried = [
            self._view(arrays, state, layout, j, done, tuple(int(d[done - 1]) for d in found.shapes[j]))
            for j in range(self.states)
        ]

    def _buffer(self, nbytes: int) -> np.ndarray:
        try:
            return memory.empty((nbytes,), np.dtype(np.uint8))
        except (MemoryError, ValueError):
            raise OutOfMemory(
                f"{self._where}: a carried value needs {nbytes / 2**20:,.0f} MiB, which the system does not give: "
                "use a smaller batch or a shorter input, or free memory"
            ) from None

    def _view(
        self, arrays: Mapping[str, Sequence[np.ndarray]], state: _State, layout: Layout, j: int, done: int,
        shape: tuple[int, ...],
    ) -> np.ndarray:  # fmt: skip
        """A carried value after so many trips of a batch."""
        kind = self.step.body.inputs[self.form.first * 2 + j].type
        assert isinstance(kind, TensorType)
        dtype = kind.dtype.numpy
        slot, offset = (int(n) for n in layout.carried[done, j])
        name, number = layout.slots[slot]
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return np.empty(shape, dtype)
        array, start = arrays[name][number], offset
        if name == "source":  # a row, of which the offset counts
            array, start = state.sources[number], address_of(array) - address_of(state.sources[number]) + offset
        return array.reshape(-1).view(np.uint8)[start : start + nbytes].view(dtype).reshape(shape)

    # --- batches ---

    def _taken(self, env: dict[str, int], count: int, state: _State) -> _Bound | None:
        """A batch of at most `count` trips that begin with these sizes; nobody else uses it."""
        key = (count, *env.values())
        with self._lock:
            free = self._batches.get(key)
            if free:
                self._batches.move_to_end(key)
                found = free.pop()
                self._kept_nbytes -= found.batch.nbytes
                return found
        width = _STEP_NBYTES * max(1, len(self.segment.steps))
        trips = max(1, min(count, _BATCH_NBYTES // width))
        while trips:
            bound = self._bound(env, trips, state)
            if bound is not None:
                bound.key = key
                return bound
            trips //= 2
        return None

    def _give_back(self, found: _Bound) -> None:
        key = found.key
        with self._lock:
            self._batches.setdefault(key, []).append(found)
            self._kept_nbytes += found.batch.nbytes
            while self._kept_nbytes > _KEPT_NBYTES and self._batches:
                _, dropped = self._batches.popitem(last=False)
                self._kept_nbytes -= sum(b.batch.nbytes for b in dropped)

    def _bound(self, env: dict[str, int], count: int, state: _State) -> _Bound | None:
        columns = self._sizes.columns(env, count)
        if columns is None:
            return None
        try:
            shapes = [_all_sizes(c.shape, columns, count) for c in self.step.carried]
            rows = [_all_sizes(shape, columns, count) for shape, _ in self.step.rows]
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
        return _Bound(Batch(bound, layout.places, self.kernels), layout, shapes, one_row)

    def _words(self, env: dict[str, int], columns: Mapping[str, np.ndarray], count: int) -> Repeated | None:
        with self._lock:
            for frame in self._frames:
                found = frame.bind_many(columns, count)
                if found is not None:
                    return found
            if len(self._frames) >= FRAME_LIMIT:
                return None
            try:
                frame = Frame(self.segment, self.body.pool.num_threads, env)
            except (ValueError, ZeroDivisionError):
                return None
            found = frame.bind_many(columns, count)
            if found is not None:
                self._frames.append(frame)
            return found

    def trim(self) -> int:
        """Forget the batches; returns their bytes."""
        with self._lock:
            freed, self._kept_nbytes = self._kept_nbytes, 0
            self._batches.clear()
            self.lessee.strip()
        return freed + self.body.trim()


def _holds_on(body: Executable) -> bool:
    """Whether a body hands the condition on that it is given, which holds, or gives one that always does."""
    name = body.results[0].buffer
    return name == body.inputs[1].name or (name in body.constants and bool(body.constants[name].all()))


class _Sizes:
    """How the symbols of a loop's body go from one trip to the next."""

    def __init__(self, step: LoopStep, first: int) -> None:
        executable = step.body
        self.constraints = executable.constraints
        self.shapes: list[tuple[Dim, ...]] = []
        self.next: dict[str, Dim | None] = {}
        inputs = executable.inputs
        for number, value in enumerate(inputs):
            for name, axis in executable.learned.get(value.name, ()):
                if axis < 0:
                    same = None if _is_row(number, step, first) else symbol(name)
                    self.next[name] = symbol(name) + 1 if first and number == 0 else same
        for value, carried in zip(inputs[first:], step.carried, strict=False):
            kind = value.type
            assert isinstance(kind, TensorType)
            self.shapes.append(kind.shape or ())
            for before, after in zip(kind.shape or (), carried.shape, strict=True):
                if isinstance(before, Expr) and str(before) in before.symbols:
                    self.next.setdefault(str(before), after)
            self.next.update(carried.elements)
        self.unknown = any(d is None for d in self.next.values())

    def columns(self, env: Mapping[str, int], count: int) -> dict[str, np.ndarray] | None:
        """Each symbol's values before so many trips; None where not all are known."""
        if count > 1 and self.unknown:
            return None
        changed = {n: d for n, d in self.next.items() if d is not None and not (isinstance(d, Expr) and d == symbol(n))}
        steps = {n: d - symbol(n) for n, d in changed.items()}
        found = {n: np.full(count, v, object) for n, v in env.items()}
        if all(isinstance(s, int) for s in steps.values()):
            for name, step in steps.items():
                found[name] = np.array([env[name] + k * int(step) for k in range(count)], object)  # type: ignore[arg-type]
            return found
        now = dict(env)
        for k in range(count):
            for name in changed:
                found[name][k] = now[name]
            if k + 1 < count:
                try:
                    now.update({name: evaluate(d, now) for name, d in changed.items()})
                except (ValueError, ZeroDivisionError):
                    return None
        return found

    def agree(self, columns: Mapping[str, np.ndarray], after: Sequence[Sequence[np.ndarray]], count: int) -> bool:
        """Whether each trip begins with the sizes that the one before ended with, and constraints hold."""
        for dims, sizes in zip(self.shapes, after, strict=True):
            before = _all_sizes(dims, columns, count)
            if any((b[1:] != a[:-1]).any() for b, a in zip(before, sizes, strict=True)):
                return False
        for c in self.constraints:
            left, right = _all_sizes((c.left, c.right), columns, count)
            if not all(holds(c.kind, a, b) for a, b in zip(left, right, strict=True)):
                return False
        return True


def _is_row(number: int, step: LoopStep, first: int) -> bool:
    """Whether an input of the body is a row of a Scan's input, whose elements differ from trip to trip."""
    return not first and len(step.carried) <= number < len(step.node.inputs)


def _all_sizes(shape: Sequence[Dim], columns: Mapping[str, np.ndarray], count: int) -> list[np.ndarray]:
    return [d if isinstance(d, np.ndarray) else np.full(count, d, object) for d in evaluate_many(shape, columns)]


def _asked(body: Executable) -> list[tuple[int, int, Dim]]:
    """Sizes of what a body takes that are not symbols which are learned there: number of the input, axis, size."""
    found: list[tuple[int, int, Dim]] = []
    seen: set[str] = set()
    for number, value in enumerate(body.inputs):
        kind = value.type
        assert isinstance(kind, TensorType)
        own = {symbol for symbol, axis in body.learned.get(value.name, ()) if axis >= 0}
        for axis, d in enumerate(kind.shape or ()):
            if isinstance(d, Expr) and str(d) in own and str(d) not in seen:
                seen.add(str(d))
            else:
                found.append((number, axis, d))
    return found


def _dense(x: Any) -> Any:
    """The array, row-major and without gaps."""
    return x if not isinstance(x, np.ndarray) or x.flags.c_contiguous else np.ascontiguousarray(x)


def _copied(x: np.ndarray) -> np.ndarray:
    """A result of its own, which shares memory with no input and no buffer."""
    made = memory.empty(x.shape, x.dtype)
    made[...] = x
    return made
