"""SequenceMap's body for all elements of its sequences in one call: bound for each element's sizes, as trips of a loop are.

Sizes of a few elements that are met for the first time are left to the caller, who runs the body element by element: binding
pays where there are more, or where they come again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.provider import RunContext
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.plan.array_address import address_of
from intarsia.plan.result_pool import memory
from intarsia.plan.size_constraints import holds, too_large
from intarsia.plan.symbolic_binding import Frame
from intarsia.plan.trip_table import Batch, Lessee, Places
from intarsia.providers.cpu.program.loops.trip_sizes import all_sizes, required_sizes
from intarsia.runtime.executor import TERMINATED

if TYPE_CHECKING:
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

_MOST_NBYTES = 4 << 20  # of the words of one call
_STEP_NBYTES = 200  # of an element, for each step, roughly
_MOST_RETAINED = 16  # combinations of sizes
_AT_ONCE = 4  # elements, from which on sizes are bound when they are met for the first time

_Key = tuple[Any, ...]


@dataclass
class _Bound:
    """A call for given sizes; `outputs`: shapes of each element's results, in the order of the segment's outputs."""

    batch: Batch
    outputs: list[list[tuple[int, ...]]]


class MappedBody:
    """A body that is one native segment (`CpuProgram.plain`). Any number of threads may run it."""

    def __init__(self, program: CpuProgram) -> None:
        self.program = program
        (self.segment,) = program.executable.segments()
        self._dtypes = [self.segment.buffers[n].dtype.numpy for n in self.segment.outputs]
        self._required = required_sizes(program.executable)
        self._lessee = Lessee(program.context.memory, "a SequenceMap's body")
        self._frames: list[Frame] = []
        self._calls: OrderedDict[_Key, list[_Bound] | None] = OrderedDict()  # None: met once; a list: those that are free
        self._lock = fork_safety.lock()
        self.most = max(1, _MOST_NBYTES // (_STEP_NBYTES * max(1, self.segment.count)))

    def run(self, given: Sequence[Any], captured: Sequence[np.ndarray], run: RunContext | None) -> list[list[Any]] | None:
        """For each output of the body its values.

        Args:
            given: for each input of the body a list of arrays, or one array for all elements; row-major.
        """
        columns = [x for x in given if isinstance(x, list)]
        first = [x[0] for x in columns]
        for column, x in zip(columns, first, strict=True):
            if any(type(y) is not np.ndarray or y.dtype != x.dtype or y.ndim != x.ndim for y in column):
                return None
        count = len(columns[0])
        made: list[list[Any]] = [[] for _ in self._dtypes]
        for start in range(0, count, self.most):
            part = [x[start : start + self.most] if isinstance(x, list) else x for x in given]
            found = self._run(part, captured, min(self.most, count - start), run)
            if found is None:
                return None
            for values, more in zip(made, found, strict=True):
                values += more
        return made

    def trim(self) -> int:
        """Forget all calls; returns their bytes."""
        with self._lock:
            freed = sum(b.batch.nbytes for free in self._calls.values() for b in free or ())
            self._calls.clear()
        return freed + self._lessee.strip()

    def _run(
        self, given: Sequence[Any], captured: Sequence[np.ndarray], count: int, run: RunContext | None
    ) -> list[list[Any]] | None:
        if self.segment.arena.limit:
            return None
        key = tuple([tuple([y.shape for y in x]) if isinstance(x, list) else x.shape for x in (*given, *captured)])
        bound = self._taken(key, given, captured, count)
        if bound is None:
            return None
        try:
            return self._execute(bound, given, captured, run)
        except BaseException:
            bound.batch.cut_short()
            raise
        finally:
            with self._lock:
                free = self._calls.get(key)
                if free is not None:
                    free.append(bound)

    def _execute(
        self, bound: _Bound, given: Sequence[Any], captured: Sequence[np.ndarray], run: RunContext | None
    ) -> list[list[Any]]:
        batch = bound.batch
        made = [
            [self._result(name, shape, dtype) for shape in shapes]
            for name, shapes, dtype in zip(self.segment.outputs, bound.outputs, self._dtypes, strict=True)
        ]
        slots = []
        for x in (*given, *captured, *made):
            if isinstance(x, list):
                slots += [address_of(y) for y in x]
            else:
                slots.append(address_of(x))
        lease = self._lessee.lease(batch.arena_nbytes)
        block = batch.prepare(lease, slots, run.flag_address if run is not None else 0)
        if self.program.pool.run_block(block) == TERMINATED:
            assert run is not None
            raise run.stopped()
        self._lessee.give_back(lease)
        if batch.status.tobytes() != batch.unset:
            self.program.report_status(self.segment, batch.status)
        return made

    def _result(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        try:
            return memory.empty(shape, dtype)
        except (MemoryError, ValueError):
            raise too_large(name, shape, math.prod(shape) * dtype.itemsize) from None

    # --- binding ---

    def _taken(self, key: _Key, given: Sequence[Any], captured: Sequence[np.ndarray], count: int) -> _Bound | None:
        """A call that nobody else uses; None where the sizes are new, or do not fit."""
        with self._lock:
            known = key in self._calls
            free = self._calls.get(key)
            if free:
                self._calls.move_to_end(key)
                return free.pop()
            if not known:
                self._calls[key] = None
                while len(self._calls) > _MOST_RETAINED:
                    self._calls.popitem(last=False)
                if count < _AT_ONCE:
                    return None
        bound = self._bound(given, captured, count)
        if bound is not None:
            with self._lock:
                self._calls[key] = self._calls.get(key) or []
        return bound

    def _bound(self, given: Sequence[Any], captured: Sequence[np.ndarray], count: int) -> _Bound | None:
        columns = self._columns(given, captured, count)
        if columns is None:
            return None
        executable = self.program.executable
        try:
            for c in executable.constraints:
                left, right = all_sizes((c.left, c.right), columns, count)
                if not all(holds(c.kind, a, b) for a, b in zip(left, right, strict=True)):
                    return None
            sizes = [all_sizes(self.segment.buffers[n].shape, columns, count) for n in self.segment.outputs]
        except (KeyError, ValueError, ZeroDivisionError):
            return None
        with self._lock:
            env = {name: int(column[0]) for name, column in columns.items()}
            try:
                _, repeated = self.segment.by_frame(
                    self._frames, 0, env, self.program.pool.num_threads, lambda frame: frame.bind_many(columns, count)
                )  # fmt: skip
            except KeyError:
                return None
        if repeated is None:
            return None
        shapes = [[tuple([int(d[i]) for d in dims]) for i in range(count)] for dims in sizes]
        return _Bound(Batch(repeated, self._places(given, captured, count), {}), shapes)

    def _columns(self, given: Sequence[Any], captured: Sequence[np.ndarray], count: int) -> dict[str, np.ndarray] | None:
        """Each symbol's value for every element; None where sizes are not as the body wants them."""
        executable = self.program.executable
        rows: list[dict[str, int]] = []
        for i in range(count):
            env = dict(executable.sizes)
            values = [x[i] if isinstance(x, list) else x for x in (*given, *captured)]
            for value, x in zip(executable.inputs, values, strict=True):
                kind = value.type
                if not isinstance(kind, TensorType) or x.ndim != len(kind.shape or ()):
                    return None
                executable.learn(value.name, x, env)
            if any(values[k].shape[axis] != (d if isinstance(d, int) else d.evaluate(env)) for k, axis, d in self._required):
                return None
            rows.append(env)
        return {name: np.array([env[name] for env in rows], object) for name in rows[0]}

    def _places(self, given: Sequence[Any], captured: Sequence[np.ndarray], count: int) -> Places:
        """A slot for each element of what is a list, one for what is not: inputs, captured values, outputs."""
        each = [isinstance(x, list) for x in given] + [False] * len(captured) + [True] * len(self._dtypes)
        externals = np.zeros((count, len(each), 2), np.int64)
        slots = 0
        for i, many in enumerate(each):
            externals[:, i, 0] = slots + (np.arange(count) if many else 0)
            slots += count if many else 1
        return Places(externals, np.zeros((count, 0, 2, 2), np.int64), [], None, slots)
