"""Calls that a part's Compute makes without Python (`compute_text`): their words, and which are kept."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from intarsia.codegen.llvm.jit import get_engine
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.machine import fork_safety
from intarsia.ort_plugin import compute_text as word
from intarsia.plan import executor_abi
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.microbatch import BoundParts, PartsState
from intarsia.plan.state import State
from intarsia.providers.cpu.program.calls.fast_call import results_of
from intarsia.providers.cpu.program.cpu_program import CpuProgram
from intarsia.runtime.executor import Pool, run_function

MOST_CALLS = 8
"""For how many sizes, and runs at the same time, a part has calls: the one that was made first gives way."""


class Tensor(NamedTuple):
    """An input or output: its place in onnxruntime's context, and what it is for the sizes at hand."""

    place: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.numpy.itemsize


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
        self.address = int(self.words.ctypes.data)
        self.shapes: tuple[tuple[int, ...], ...] | None = None
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
        rows = words[word.ROWS :].reshape(-1, word.ROW_WORDS)
        for row, tensor, size, place in zip(rows, (*inputs, *(t for t, _ in outputs)), sizes, places, strict=True):
            row[:] = tensor.place, tensor.dtype, len(size), size.ctypes.data, place, tensor.nbytes
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
        state = self._state
        if state is not None and bound.takes(state):
            state = bound.readied(state)
        else:
            state = bound.new_state()
        if state.sized is not None:
            state.begin(bound)
        self._state = state
        return state


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
        self._seen: dict[tuple[tuple[int, ...], ...], int] = {}  # runs by Python that fill what is retained for sizes
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
            names = {name: i for i, name in enumerate(bound.segment.inputs)}
            call.prepare(program.pool, bound, given, made, [names.get(name, -1) for name in program.inputs])
            return True

    def close(self) -> None:
        """No run takes place any more."""
        self.info[word.FIRST_CALL] = 0
        self._calls.clear()

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
