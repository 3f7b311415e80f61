"""Calls of the executor as C functions of a feed: no Python code runs between the feed's dict and the list of results.

`feed_call` makes a built-in function of one argument out of `intarsia.runtime.spmd_feed`'s native code and the words of a
call. It answers None to whatever it does not know, so each caller has another way beside it, which is also the only one where
native code does not know the interpreter (`intarsia.runtime.interpreter`). `again_call` is the same for a call whose arrays are
bound already, `open_call` for one whose sizes are others from run to run (`intarsia.runtime.spmd_dynamic_shapes`).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from intarsia.ep.program import AgainCall, FeedCall
from intarsia.plan.array_address import address_of
from intarsia.plan.result_pool import Lend, ResultMemory, memory
from intarsia.runtime import holders, interpreter
from intarsia.runtime import spmd_state as word
from intarsia.runtime.executor import (
    Pool,
    again_function,
    dynamic_function,
    empty_function,
    feed_function,
    lasting_words,
    raise_signal_error,
)
from intarsia.runtime.interpreter import Method, Words, native_function


class Place(NamedTuple):
    """An input or output: its name, element type and shape, and the address of the word that its memory's address goes to."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    slot: int


def feed_call(
    pool: Pool, block: int, tables: tuple[np.ndarray, np.ndarray | None], inputs: Sequence[Place], outputs: Sequence[Place],
    status: np.ndarray | None, *held: object,
) -> FeedCall | None:  # fmt: skip
    """A function that takes a dict with exactly these inputs, runs the call whose words are at the address `block` and returns
    a list of new arrays, or None where it did nothing: the feed is another one, the function is at work in another thread,
    workers are missing, or a word of `status` was set (they are 0 again).

    None where this interpreter's objects are not known. `tables`: the call's, and another for a time when workers sleep.
    `held`: what has to live as long as the function.
    """
    if interpreter.functions() is None:
        return None
    places = [*inputs, *outputs]
    shapes = [np.array(place.shape, np.int64) for place in places]
    words = _words(word.FEED_ROWS + word.ROW_WORDS * len(places), pool, places, shapes, tables, status, *held)
    _set_call(words, block, tables, status)
    _set_feed(words, len(inputs), len(outputs))
    rows = words[word.FEED_ROWS :].reshape(len(places), word.ROW_WORDS)
    for row, place, shape in zip(rows, places, shapes, strict=True):
        nbytes = int(np.prod(shape)) * place.dtype.itemsize
        row[:] = id(place.name), id(place.dtype), len(shape), shape.ctypes.data, place.slot, nbytes
    found: FeedCall = native_function(words, _feed_method())
    return found


class DynamicPlace(NamedTuple):
    """An input or output whose sizes are dynamic.

    Attributes:
        external: which of the call's externals it is; -1: nothing reads it.
        kind: of an input which of the shapes it has, of an output which of the results it is.
    """

    name: str
    dtype: np.dtype
    rank: int
    external: int
    kind: int


class DynamicFeedCall:
    """A call whose sizes are dynamic. A derived class says what a run is.

    Args:
        ranks: of the shapes that inputs have.

    Attributes:
        sizes: int64, these shapes in the feed at hand, one after the other.
        call: the function, as that of `feed_call`.
    """

    def __init__(
        self, pool: Pool, ranks: Sequence[int], inputs: Sequence[DynamicPlace], outputs: Sequence[DynamicPlace]
    ) -> None:
        places = [*inputs, *outputs]
        self.sizes = np.zeros(sum(ranks), np.int64)
        addresses = np.zeros(len(inputs) + 1, np.int64)
        begin, end = self.begin, self.end
        count = word.OPEN_ROWS + word.ROW_WORDS * len(places)
        words = _words(count, pool, places, self.sizes, addresses, begin, end)
        self._fields = (ctypes.c_int64 * count).from_buffer(words.data)  # in a fifth of the time
        _set_feed(words, len(inputs), len(outputs))
        words[word.OPEN_BEGIN], words[word.OPEN_END], words[word.OPEN_ADDRESSES] = id(begin), id(end), addresses.ctypes.data
        rows = words[word.OPEN_ROWS :].reshape(len(places), word.ROW_WORDS)
        noted: set[int] = set()
        for row, place in zip(rows, inputs, strict=False):
            at = self.sizes.ctypes.data + 8 * sum(ranks[: place.kind])
            row[:] = id(place.name), id(place.dtype), place.rank, at, place.external, place.kind not in noted
            noted.add(place.kind)
        for row, place in zip(rows[len(inputs) :], outputs, strict=True):
            row[:] = place.kind, id(place.dtype), place.rank, 0, place.external, place.dtype.itemsize
        words[word.OPEN_SIZES], words[word.OPEN_COUNT] = self.sizes.ctypes.data, len(self.sizes)
        self._results: object = None
        self._series: np.ndarray | None = None
        self.call: FeedCall = native_function(words, _open_method())

    def begin(self) -> Sequence[tuple[tuple[int, ...], np.dtype]] | None:
        """Make the call ready for inputs of these sizes by `set_call`; the shapes and types of its results. None: `end` will
        not be called, and the feed goes another way."""
        raise NotImplementedError(f"{type(self).__name__}.begin")

    def end(self) -> None:
        """The run is over. Raises what ended it."""
        raise NotImplementedError(f"{type(self).__name__}.end")

    @property
    def same(self) -> bool:
        """Whether sizes are those of the last run."""
        return bool(self._fields[word.OPEN_SAME])

    def set_call(
        self, block: int, status: np.ndarray | None, results: Sequence[tuple[tuple[int, ...], np.dtype]] | None
    ) -> None:
        """Let the run be the call whose words are at the address `block`, whose steps say in `status` what was wrong; and all
        later ones for the same sizes, which neither begin nor end, where their `results` are given."""
        fields = self._fields
        fields[word.FEED_CALL], fields[word.OPEN_KINDS] = block, 0 if results is None else id(results)
        self._results = results
        if status is not None or fields[word.FEED_CHECKED]:
            fields[word.FEED_STATUS] = 0 if status is None else address_of(status)
            fields[word.FEED_CHECKED] = 0 if status is None else len(status)

    def set_series(self, rows: np.ndarray | None, settle: int = 0, settling: int = 0) -> None:
        """Say what runs follow for which neither `begin` nor `end` is called, if they come in this order: int64 rows, each the
        address of a binding, the address of what `begin` would return, and sizes. `settle`, `settling`: the function that makes
        the state ready for a binding, and its arguments, the first of which is that."""
        fields, count = self._fields, 0 if rows is None else len(rows)
        self._series = rows
        if rows is None or not count:
            fields[word.OPEN_NEXT] = 0
            return
        address = address_of(rows)
        fields[word.OPEN_NEXT], fields[word.OPEN_LAST] = address, address + (count - 1) * rows.strides[0]
        fields[word.OPEN_SETTLE], fields[word.OPEN_SETTLING] = settle, settling

    @property
    def followed(self) -> int:
        """How many runs of the series there were."""
        rows, at = self._series, self._fields[word.OPEN_NEXT]
        if rows is None:
            return 0
        return (at - address_of(rows)) // rows.strides[0] if at else len(rows)

    def check_signals(self) -> None:
        """Raise what a signal's handler raised in the run."""
        if self._fields[word.OPEN_STATUS] == word.INTERRUPTED:
            raise_signal_error()


def again_call(
    pool: Pool, block: int, tables: tuple[np.ndarray, np.ndarray | None], status: np.ndarray | None, lock: threading.Lock,
    *held: object,
) -> AgainCall | None:  # fmt: skip
    """A function that runs the call on the memory that its words are set to and returns True, holding `lock`, or None where it
    did nothing: another thread has the lock, workers are missing, or a word of `status` was set (they are 0 again). What it
    is given counts for nothing. Else as `feed_call`."""
    if interpreter.functions() is None:
        return None
    take, arguments, give_back = lock.acquire, (False,), lock.release
    words = _words(word.AGAIN_WORDS, pool, take, arguments, give_back, tables, status, *held)
    _set_call(words, block, tables, status)
    words[word.AGAIN_TAKE], words[word.AGAIN_ARGUMENTS], words[word.AGAIN_GIVE_BACK] = id(take), id(arguments), id(give_back)
    words[word.AGAIN_TRUE] = id(True)
    found: AgainCall = native_function(words, _again_method())
    return found


def lend(most_retained: int) -> tuple[Lend, np.ndarray] | None:
    """`ResultMemory.lender`."""
    if interpreter.functions() is None:
        return None
    leases = lasting_words(word.LEASE_WORDS)  # blocks that are still used refer to it
    leases[word.LEASE_MOST], leases[word.LEASE_API] = most_retained, _api()
    words = _words(word.FEED_ROWS, None)
    words[word.FEED_LEASES], words[word.FEED_ARRAY_TYPE] = leases.ctypes.data, id(np.ndarray)
    return native_function(words, _empty_method()), leases


ResultMemory.lender = staticmethod(lend)


def _api() -> int:
    found = interpreter.functions()
    assert found is not None
    return int(found.ctypes.data)


def _words(count: int, pool: Pool | None, *held: object) -> Words:
    """`count` words, of which those are set that all calls have."""
    words = np.zeros(count, np.int64).view(Words)
    words.held = (pool, *held)
    words[word.FEED_POOL] = 0 if pool is None else pool.address
    words[word.FEED_API], words[word.FEED_NONE] = _api(), id(None)
    words[word.FEED_TOOK] = word.BRIEF  # not known yet
    return words


def _set_call(words: Words, block: int, tables: tuple[np.ndarray, np.ndarray | None], status: np.ndarray | None) -> None:
    words[word.FEED_CALL] = block
    words[word.FEED_TABLE], words[word.FEED_ALONE] = (0 if table is None else table.ctypes.data for table in tables)
    _set_status(words, status)


def _set_status(words: Words, status: np.ndarray | None) -> None:
    words[word.FEED_CHECKED] = 0 if status is None else len(status)
    words[word.FEED_STATUS] = 0 if status is None else address_of(status)


def _set_feed(words: Words, inputs: int, outputs: int) -> None:
    """What a call needs that takes a feed."""
    held, leases = np.zeros(inputs + 1, np.int64), memory.words
    assert leases is not None
    words.held = (*words.held, held)
    words[word.FEED_INPUTS], words[word.FEED_OUTPUTS], words[word.FEED_HELD] = inputs, outputs, held.ctypes.data
    words[word.FEED_ARRAY_TYPE], words[word.FEED_DICT_TYPE] = id(np.ndarray), id(dict)
    words[word.FEED_HOLDER], words[word.FEED_LEASES] = holders.WORDS.ctypes.data, leases.ctypes.data


@functools.cache
def _feed_method() -> Method:
    return Method.of("run_feed", feed_function(), "The outputs of a feed, or None.")


@functools.cache
def _again_method() -> Method:
    return Method.of("run_again", again_function(), "True once the call has run again, or None.")


@functools.cache
def _open_method() -> Method:
    return Method.of("run_dynamic", dynamic_function(), "The outputs of a feed whose sizes are dynamic, or None.")


@functools.cache
def _empty_method() -> Method:
    return Method.of(
        "lend", empty_function(), "An array of a shape, type and bytes, or None; of None: the bytes that were freed."
    )
