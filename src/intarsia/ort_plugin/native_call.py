"""Calls that a part's Compute makes without Python (`compute_text`): their words, and which are retained."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from intarsia.codegen.llvm.jit import get_engine
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType, ValueType
from intarsia.machine import fork_safety
from intarsia.ort_plugin import compute_text as word
from intarsia.ort_plugin.size_series import Ahead, SizeSeries, length
from intarsia.plan import executor_abi
from intarsia.plan.array_address import address_of
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.microbatch import BoundParts, PartsState
from intarsia.plan.state import State
from intarsia.providers.cpu.program.calls.fast_call import results_of
from intarsia.providers.cpu.program.cpu_program import CpuProgram
from intarsia.providers.plugin.interface.element_types import element_number
from intarsia.runtime.executor import Pool, run_function

Shape = tuple[int, ...]

_MOST_MET = 4096  # sizes that are remembered
MOST_CALLS = 8
"""For how many sizes, and runs at the same time, a part has calls: the one that was made first gives way."""


class Tensor(NamedTuple):
    """An input or output: its place in onnxruntime's context, and what it is for the sizes at hand."""

    place: int
    dtype: DType
    shape: Shape

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.numpy.itemsize


class Functions(NamedTuple):
    """Addresses of the native functions."""

    compute: int
    claim: int
    census: int


@functools.cache
def functions() -> Functions:
    """The native functions, compiled or from the cache."""
    target = Target.host()
    texts = [word.compute_text(target), word.claim_text(), word.census_text(target)]
    found = get_engine(target).load(texts)
    return Functions(*[found[text.symbol] for text in texts])


class NativeCall:
    """One call: what it needs lives as long as it.

    Attributes:
        shapes: of the program's inputs.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.words = np.zeros(word.ROWS + word.ROW_WORDS * (inputs + outputs), np.int64)
        self.words[word.BUSY] = word.OUT_OF_USE
        self.rows = self.words[word.ROWS :].reshape(-1, word.ROW_WORDS)
        self.address = int(self.words.ctypes.data)
        self.shapes: tuple[Shape, ...] | None = None
        self._held: tuple[object, ...] = ()
        self._state: State | None = None

    def claim(self) -> bool:
        """Take it out of use; False where it is at work."""
        native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(functions().claim)
        return self.words[word.BUSY] == word.OUT_OF_USE or bool(native(self.address))

    def prepare(self, pool: Pool, bound: BoundSegment, inputs: Sequence[Tensor], outputs: Sequence[tuple[Tensor, int]],
                slots: Sequence[int]) -> None:  # fmt: skip
        """Let it be the call of `bound` on tensors like these, and let runs take it.

        Args:
            outputs: each with the number of the segment's result that it is.
            slots: for each input which of the segment's it is; -1: none.
        """
        state = self._ready(bound)
        externals, unread = ctypes.addressof(state.externals), np.zeros(1, np.int64)
        words, first = self.words, len(bound.segment.inputs)
        passes, *held = _passes(bound, state)
        sizes = [np.array(tensor.shape, np.int64) for tensor in (*inputs, *(tensor for tensor, _ in outputs))]
        places = [externals + 8 * slot if slot >= 0 else int(unread.ctypes.data) for slot in slots]
        places += [externals + 8 * (first + which) for _, which in outputs]
        for row, tensor, size, place in zip(self.rows, (*inputs, *(t for t, _ in outputs)), sizes, places, strict=True):
            row[:] = tensor.place, element_number(tensor.dtype), len(size), size.ctypes.data, place, tensor.nbytes, 0
        words[word.POOL], words[word.RUN] = pool.address, run_function()
        words[word.PASSES], words[word.PASS_COUNT] = passes.ctypes.data, len(passes)
        words[word.STATUS] = state.status.ctypes.data
        words[word.CHECKED] = len(state.status) if bound.checked else 0
        words[word.INPUTS], words[word.OUTPUTS] = len(inputs), len(outputs)
        self._held = (pool, bound, sizes, passes, held, unread)
        self.shapes = tuple(tensor.shape for tensor in inputs)
        words[word.BUSY] = word.FREE

    def _ready(self, bound: BoundSegment) -> State:
        """A state for a binding: the one that it has, made ready, or another."""
        self._state = state = state_for(bound, self._state)
        return state


def state_for(bound: BoundSegment, state: State | None) -> State:
    """A state for a run of a binding: the one that served another, made ready, where that can be."""
    found = bound.readied(state) if state is not None and bound.takes(state) else bound.new_state()
    if found.sized is not None and found is not state:
        found.begin(bound)
    return found


class OpenCall:
    """The call for sizes that are new: native code notes them, `settle` says what they are bound to.

    Attributes:
        sizes: int64, those of all inputs, one after the other.
    """

    def __init__(self, takes: Sequence[Tensor], gives: Sequence[Tensor]) -> None:
        """The tensors' sizes are those of any run: ranks and types stay."""
        self._given, self._made = takes, gives
        self.words = np.zeros(word.ROWS + word.ROW_WORDS * (len(takes) + len(gives)), np.int64)
        self.address = int(self.words.ctypes.data)
        self.rows = self.words[word.ROWS :].reshape(-1, word.ROW_WORDS)
        ranks = [len(tensor.shape) for tensor in (*takes, *gives)]
        ends = list(accumulate(ranks))
        self._sizes, self._addresses = np.zeros(ends[-1] if ends else 0, np.int64), np.zeros(len(ranks), np.int64)
        self._spans = [slice(end - rank, end) for rank, end in zip(ranks, ends, strict=True)]
        starts = [end - rank for rank, end in zip(ranks, ends, strict=True)]
        for i, (tensor, rank, start) in enumerate(zip((*takes, *gives), ranks, starts, strict=True)):
            place = int(self._addresses.ctypes.data) + 8 * i
            at = int(self._sizes.ctypes.data) + 8 * start
            self.rows[i] = tensor.place, element_number(tensor.dtype), rank, at, place, 0, i < len(takes)
        self._inner = sum(ranks[: len(takes)])
        self._each = np.array([tensor.dtype.numpy.itemsize for tensor in (*takes, *gives)], np.int64)
        self._pass = np.zeros((1, word.PASS_WORDS), np.int64)
        self.words[word.PASSES], self.words[word.RUN] = self._pass.ctypes.data, run_function()
        self.words[word.INPUTS], self.words[word.OUTPUTS] = len(takes), len(gives)
        self._state: State | None = None
        self._held: tuple[object, ...] = ()
        self.words[word.SIZES] = self._sizes.ctypes.data
        self.words[word.INPUT_SIZES], self.words[word.RESULT_SIZES] = self._inner, len(self._sizes) - self._inner
        self._series: tuple[Ahead, np.ndarray] | None = None

    @property
    def sizes(self) -> np.ndarray:
        """int64, those of the inputs that native code has noted, one after the other."""
        return self._sizes[: self._inner]

    def shapes(self) -> tuple[Shape, ...]:
        """Those of the inputs that native code has noted."""
        sizes = self._sizes.tolist()
        return tuple([tuple(sizes[span]) for span in self._spans[: len(self._given)]])

    def stand_ins(self, shapes: Sequence[Shape]) -> list[np.ndarray]:
        """Arrays of these shapes that have no data worth a look."""
        found = zip(shapes, self._given, strict=True)
        return [np.ndarray(shape, t.dtype.numpy, _NOTHING, 0, (0,) * len(shape)) for shape, t in found]

    def refuse(self) -> None:
        """The run goes another way."""
        self.words[word.PASS_COUNT] = 0

    def left(self) -> list[dict[str, int]]:
        """End the series that native code went through; the sizes of its runs, in order."""
        series, self._series = self._series, None
        at, self.words[word.SERIES_NEXT] = int(self.words[word.SERIES_NEXT]), 0
        if series is None:
            return []
        ahead, rows = series
        count = (at - int(rows.ctypes.data)) // rows.strides[0] if at else len(rows)
        if count and self._state is not None:
            self._state.found = ahead.found[count]
        return ahead.envs[1 : count + 1]

    def follow(self, pool: Pool, ahead: Ahead, made: Sequence[int], names: Sequence[str]) -> None:
        """Let the run be the first of those that are bound ahead, and let native code go through the others; `made`: which of
        the segment's results are outputs, `names`: of the inputs."""
        largest = max(range(len(ahead.found)), key=lambda i: ahead.found[i].arena_nbytes)
        if self._state is None or self._state.lease is None or self._state.lease.nbytes < ahead.found[largest].arena_nbytes:
            self._state_of(ahead.bound(largest), names, made)  # so that all find room
        shapes = [ahead.shapes(which) for which in made]
        first = self.shapes()
        self.prepare(pool, ahead.bound(0), first, [(which, s[0]) for which, s in zip(made, shapes, strict=True)], names)
        assert self._state is not None
        count = length(ahead, self._state)
        if count == 1:
            return
        inputs = ahead.inputs[1:count]
        results = np.array([[n for s in shapes for n in s[i]] for i in range(1, count)], np.int64).reshape(count - 1, -1)
        addresses = np.array([[one.address] for one in ahead.found[1:count]], np.int64)
        sizes = np.concatenate([inputs, results], 1)
        nbytes = [each * sizes[:, span].prod(1) for each, span in zip(self._each.tolist(), self._spans, strict=True)]
        rows = np.ascontiguousarray(np.concatenate([addresses, sizes, np.stack(nbytes, 1)], 1))
        self._series = (ahead, rows)
        self.words[word.SERIES_LAST] = rows.ctypes.data + (count - 2) * rows.strides[0]
        self.words[word.SERIES_SETTLE], self.words[word.SERIES_ARGUMENTS] = self._state.settled_by
        self.words[word.SERIES_NEXT] = rows.ctypes.data

    def prepare(
        self,
        pool: Pool,
        bound: BoundSegment,
        inputs: Sequence[Shape],
        results: Sequence[tuple[int, Shape]],
        names: Sequence[str],
    ) -> None:
        """Let the run be one of `bound` on inputs of these shapes and names; `results`: as `Plan.results` gives them."""
        state = self._state_of(bound, names, [which for which, _ in results])
        words, shapes = self.words, [*inputs, *(shape for _, shape in results)]
        self._sizes[self._inner :] = [n for _, shape in results for n in shape]
        self.rows[:, word.ROW_NBYTES] = self._each * [math.prod(shape) for shape in shapes]
        _set_pass(self._pass[0], state)
        words[word.POOL], words[word.PASS_COUNT] = pool.address, 1
        words[word.STATUS], words[word.CHECKED] = address_of(state.status), len(state.status) if bound.checked else 0
        self._held = (pool, bound)

    def _state_of(self, bound: BoundSegment, names: Sequence[str], made: Sequence[int]) -> State:
        """The call's state, ready for a binding."""
        before, self._state = self._state, state_for(bound, self._state)
        if self._state is not before:
            self._place(bound, self._state, names, made)
        return self._state

    def _place(self, bound: BoundSegment, state: State, names: Sequence[str], made: Sequence[int]) -> None:
        """Let addresses that native code notes go to where the state's steps read them."""
        slots = {name: i for i, name in enumerate(bound.segment.inputs)}
        outer, first = ctypes.addressof(state.externals), len(slots)
        wanted = [(i, slots[name]) for i, name in enumerate(names) if name in slots]
        wanted += [(len(names) + i, first + which) for i, which in enumerate(made)]
        base = int(self._addresses.ctypes.data)
        rows = [(outer + 8 * slot, base + 8 * i, 0) for i, slot in wanted]
        self._places = np.array(rows, np.int64).reshape(-1, word.PLACE_WORDS)
        row = self._pass[0]
        row[word.PASS_PLACES], row[word.PASS_PLACE_COUNT] = self._places.ctypes.data, len(self._places)


_NOTHING = bytes(64)


def _passes(bound: BoundSegment, state: State) -> tuple[np.ndarray, ...]:
    """The rows of passes, and what they point to."""
    if not isinstance(state, PartsState):
        rows = np.zeros((1, word.PASS_WORDS), np.int64)
        _set_pass(rows[0], state)
        return (rows,)
    assert isinstance(bound, BoundParts)
    whole, base = ctypes.addressof(state.externals), np.array([state._base], np.int64)
    made: list[np.ndarray] = []
    rows = np.zeros((sum(len(p.begins) for p in bound.passes), word.PASS_WORDS), np.int64)
    at = iter(rows)
    for p, own in zip(bound.passes, state.states, strict=True):
        to = ctypes.addressof(own.externals)
        for begin in p.begins:
            places = np.array(
                [
                    (to + 8 * i, whole + 8 * x.external if x.external >= 0 else base.ctypes.data,
                     (0 if x.external >= 0 else x.offset) + begin * x.row_nbytes)
                    for i, x in enumerate(p.places)
                ],
                np.int64,
            ).reshape(-1, word.PLACE_WORDS)  # fmt: skip
            row = next(at)
            _set_pass(row, own)
            row[word.PASS_PLACES], row[word.PASS_PLACE_COUNT] = places.ctypes.data, len(places)
            made.append(places)
    return (rows, base, *made)


def _set_pass(row: np.ndarray, state: State) -> None:
    table, alone = state.tables if state.sized is None or state.values is None else state.short_tables
    state.block[executor_abi.TABLE] = table.ctypes.data
    state.block[executor_abi.MODE] &= ~executor_abi.LONG  # signals are Python's, which is not there
    row[word.PASS_BLOCK], row[word.PASS_TABLE] = state.block_address, table.ctypes.data
    row[word.PASS_ALONE] = 0 if alone is None else alone.ctypes.data


class NativeCalls:
    """The calls of one part.

    Args:
        info: the words of the part's OrtNodeComputeInfo.
        takes, gives: for each input and output of the program its place in onnxruntime's context.
    """

    def __init__(self, info: ctypes.Array[ctypes.c_uint64], takes: Sequence[int], gives: Sequence[int]) -> None:
        self.info, self.takes, self.gives = info, takes, gives
        self._calls: list[NativeCall] = []
        self._next = 0
        self._seen: dict[tuple[Shape, ...], int] = {}  # runs by Python that fill what is retained for sizes
        self._open: OpenCall | None = None
        self._met: set[tuple[Shape, ...]] = set()  # sizes that the open call has served
        self._series: SizeSeries | None = None
        self._last: tuple[BoundSegment, list[int]] | None = None  # of the open call: a binding, and which of its results
        self._lock = fork_safety.lock()

    def add(self, program: CpuProgram, inputs: Sequence[np.ndarray]) -> bool:
        """Let runs on inputs like these need no Python; False where that cannot be, or not yet."""
        plan = program.known_plan(tuple([x.shape for x in inputs]))
        bound = None if plan is None or program.reads_sizes else plan.single
        if plan is None or bound is None or (results := results_of(plan, bound)) is None:
            return False
        with self._lock:
            call = self._free() if self._is_time(bound, inputs) else None
            if call is None:
                return False
            given = [Tensor(i, DType.of(x.dtype), x.shape) for i, x in zip(self.takes, inputs, strict=True)]
            made = [
                (Tensor(i, DType.of(bound.outputs[which][1]), shape), which)
                for i, (which, shape) in zip(self.gives, results, strict=True)
            ]
            if self._open is None and not bound.parted and any(not known(value.type) for value in program.executable.inputs):
                self._open = OpenCall(given, [tensor for tensor, _ in made])
                self.info[word.OPEN_CALL] = self._open.address
            names = {name: i for i, name in enumerate(bound.segment.inputs)}
            call.prepare(program.pool, bound, given, made, [names.get(name, -1) for name in program.inputs])
            return True

    def settle(self, program: CpuProgram) -> None:
        """Let the open call run on the sizes that native code has noted, or another way.

        Raises:
            IntarsiaError: the sizes do not fit together.
        """
        call = self._open
        assert call is not None
        shapes = call.shapes()
        if self._series is None:
            self._series = SizeSeries(program)
        for env in call.left():
            self._series.note(env)
        plan = program.known_plan(shapes)
        if plan is None and self._last is not None and shapes not in self._met:
            ahead = self._series.ahead(program, self._last[0], call.sizes)
            if ahead is not None:
                self._series.note(ahead.envs[0])
                call.follow(program.pool, ahead, self._last[1], program.inputs)
                return
        plan = plan or program.plan_of(call.stand_ins(shapes))
        self._series.note(plan.env)
        bound, results = plan.single, plan.results()
        again = shapes in self._met
        if again or bound is None or bound.parted or results is None:
            call.refuse()  # what comes again gets a call of its own
            return
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        self._met.add(shapes)
        self._last = (bound, [which for which, _ in results])
        call.prepare(program.pool, bound, shapes, results, program.inputs)

    def noted(self) -> list[np.ndarray]:
        """Arrays without data of the types and sizes that the open call has noted."""
        call = self._open
        assert call is not None
        return call.stand_ins(call.shapes())

    def close(self) -> None:
        """No run takes place any more."""
        self.info[word.FIRST_CALL] = self.info[word.OPEN_CALL] = 0
        self._calls.clear()
        self._open = self._series = self._last = None

    def _is_time(self, bound: BoundSegment, inputs: Sequence[np.ndarray]) -> bool:
        """Whether values that depend on sizes alone are retained, where there are such: runs by Python do that."""
        if bound.segment.values is None or bound.values is not None:
            return True
        key = tuple([x.shape for x in inputs])
        self._seen[key] = self._seen.get(key, 0) + 1
        return self._seen[key] > 2

    def _free(self) -> NativeCall | None:
        """A call that no run takes."""
        if len(self._calls) < MOST_CALLS:
            call = NativeCall(len(self.takes), len(self.gives))
            if self._calls:
                self._calls[-1].words[word.NEXT] = call.address
            else:
                self.info[word.FIRST_CALL] = call.address
            self._calls.append(call)
            return call
        for _ in range(MOST_CALLS):
            call = self._calls[self._next]
            self._next = (self._next + 1) % MOST_CALLS
            if call.claim():
                return call
        return None


def known(kind: ValueType | None) -> bool:
    """Whether all sizes of a type are numbers."""
    return isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(n, int) for n in kind.shape)
