"""Calls of the executor as C functions of a feed: no Python code runs between the feed's dict and the list of results.

`feed_call` makes a built-in function of one argument out of `intarsia.runtime.spmd_feed`'s native code and the words of a
call. It answers None to whatever it does not know, so each caller has another way beside it, which is also the only one where
objects are not laid out as CPython's and NumPy's headers have them: other interpreters, builds for debugging or without a
GIL, 32 bits. `again_call` is the same for a call whose arrays are bound already.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from intarsia.partition.provider import AgainCall, FeedCall
from intarsia.runtime import holders
from intarsia.runtime import spmd_state as word
from intarsia.runtime.executor import Pool, again_function, feed_function

_TAKES_ONE_ARGUMENT = 8  # METH_O
_NEW_FROM_DESCR, _SET_BASE_OBJECT = 94, 282  # places in NumPy's table of functions, which its binary interface fixes
_ARRAYS = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_FUNCTIONS = (
    "PyDict_GetItemWithError", "PyDict_Size", "Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyList_New", "PyList_SetItem", "PyObject_CallObject",
)  # fmt: skip


class Place(NamedTuple):
    """An input or output: its name, element type and shape, and the address of the word that its memory's address goes to."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    slot: int


class _Words(np.ndarray):
    """The words of one call; `kept` are the objects whose addresses they hold."""

    kept: tuple[object, ...]


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def feed_call(
    pool: Pool, block: int, tables: tuple[np.ndarray, np.ndarray | None], inputs: Sequence[Place], outputs: Sequence[Place],
    status: np.ndarray | None, *kept: object,
) -> FeedCall | None:  # fmt: skip
    """A function that takes a dict with exactly these inputs, runs the call whose words are at the address `block` and returns
    a list of new arrays, or None where it did nothing: the feed is another one, the function is at work in another thread,
    workers are missing, or a word of `status` was set (they are 0 again).

    None where this interpreter's objects are not known. `tables`: the call's, and another for a time when workers sleep.
    `kept`: what has to live as long as the function.
    """
    if _functions() is None:
        return None
    places = [*inputs, *outputs]
    shapes = [np.array(place.shape, np.int64) for place in places]
    held = np.zeros(len(inputs) + 1, np.int64)
    words = _words(word.FEED_ROWS + word.ROW_WORDS * len(places), pool, block, tables, status, places, shapes, held, *kept)
    words[word.FEED_INPUTS], words[word.FEED_OUTPUTS], words[word.FEED_HELD] = len(inputs), len(outputs), held.ctypes.data
    words[word.FEED_ARRAY_TYPE], words[word.FEED_DICT_TYPE] = id(np.ndarray), id(dict)
    words[word.FEED_HOLDER] = holders.WORDS.ctypes.data
    rows = words[word.FEED_ROWS :].reshape(len(places), word.ROW_WORDS)
    for row, place, shape in zip(rows, places, shapes, strict=True):
        row[:] = id(place.name), id(place.dtype), len(shape), shape.ctypes.data, place.slot
    found: FeedCall = _function_of(words, _feed_method())
    return found


def again_call(
    pool: Pool, block: int, tables: tuple[np.ndarray, np.ndarray | None], status: np.ndarray | None, lock: threading.Lock,
    *kept: object,
) -> AgainCall | None:  # fmt: skip
    """A function that runs the call on the memory that its words are set to and returns True, holding `lock`, or None where it
    did nothing: another thread has the lock, workers are missing, or a word of `status` was set (they are 0 again). What it
    is given counts for nothing. Else as `feed_call`."""
    if _functions() is None:
        return None
    take, arguments, give_back = lock.acquire, (False,), lock.release
    words = _words(word.AGAIN_WORDS, pool, block, tables, status, take, arguments, give_back, *kept)
    words[word.AGAIN_TAKE], words[word.AGAIN_ARGUMENTS], words[word.AGAIN_GIVE_BACK] = id(take), id(arguments), id(give_back)
    words[word.AGAIN_TRUE] = id(True)
    found: AgainCall = _function_of(words, _again_method())
    return found


def _words(
    count: int, pool: Pool, block: int, tables: tuple[np.ndarray, np.ndarray | None], status: np.ndarray | None, *kept: object
) -> _Words:
    """`count` words, of which those are set that all calls have."""
    functions = _functions()
    assert functions is not None
    words = np.zeros(count, np.int64).view(_Words)
    words.kept = (status, pool, tables, *kept)
    words[word.FEED_POOL], words[word.FEED_CALL] = pool.address, block
    words[word.FEED_TABLE], words[word.FEED_ALONE] = (0 if table is None else table.ctypes.data for table in tables)
    if status is not None:
        words[word.FEED_STATUS], words[word.FEED_CHECKED] = status.ctypes.data, len(status)
    words[word.FEED_API], words[word.FEED_NONE] = functions.ctypes.data, id(None)
    words[word.FEED_TOOK] = word.BRIEF  # not known yet
    return words


@functools.cache
def _functions() -> np.ndarray | None:
    """Addresses of the functions that native code calls, in the order of `spmd_state.API_...`; None where it would not
    understand this interpreter's objects."""
    if sys.implementation.name != "cpython" or not _laid_out_as_known():
        return None
    module = next((sys.modules[name] for name in _ARRAYS if name in sys.modules), None)
    capsule = getattr(module, "_ARRAY_API", None)
    if capsule is None:
        return None
    python = ctypes.pythonapi
    pointer = python.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    arrays = (ctypes.c_void_p * (_SET_BASE_OBJECT + 1)).from_address(pointer(capsule, None))
    found = [ctypes.cast(getattr(python, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return np.array([*found, arrays[_NEW_FROM_DESCR], arrays[_SET_BASE_OBJECT]], np.int64)


def _laid_out_as_known() -> bool:
    """Whether objects' fields are where native code reads them: tried on arrays of several kinds."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or object.__basicsize__ != word.ARRAY_DATA:
        return False
    if "t" in getattr(sys, "abiflags", "") or hasattr(sys, "gettotalrefcount"):
        return False
    samples: list[np.ndarray] = [
        np.zeros(3),
        np.zeros((4, 5), np.float32)[1:, 2:],
        np.zeros((), np.int64),
        np.zeros((0, 2), np.uint8),
    ]
    samples.append(np.zeros((2, 3)).T)
    samples[0].flags.writeable = False
    return all(_as_known(array) for array in samples)


def _as_known(array: np.ndarray) -> bool:
    address = id(array)

    def at(offset: int) -> int:
        return ctypes.c_size_t.from_address(address + offset).value

    if (at(word.OBJECT_TYPE), at(word.ARRAY_DESCR)) != (id(type(array)), id(array.dtype)):
        return False
    rank = ctypes.c_int.from_address(address + word.ARRAY_ND).value
    if at(word.ARRAY_DATA) != array.ctypes.data or rank != array.ndim:
        return False
    sizes = (ctypes.c_ssize_t * rank).from_address(at(word.ARRAY_DIMS)) if rank else ()
    flags = ctypes.c_int.from_address(address + word.ARRAY_FLAGS).value
    return tuple(sizes) == array.shape and flags == array.flags.num


@functools.cache
def _feed_method() -> _Method:
    return _Method(b"run_feed", feed_function(), _TAKES_ONE_ARGUMENT, b"The outputs of a feed, or None.")


@functools.cache
def _again_method() -> _Method:
    return _Method(b"run_again", again_function(), _TAKES_ONE_ARGUMENT, b"True once the call has run again, or None.")


def _function_of(words: _Words, method: _Method) -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), words, None)
