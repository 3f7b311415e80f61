"""Memory that is counted: what NumPy takes for elements while an `Account` is in force, and what an arena has.

NumPy requests of a handler the memory of elements (NEP 49), which is a variable of the context: a thread's, or a task's. An
account's handler is native code that adds what is requested to the bytes that are held, and refuses what would be more than
the limit, before anything is taken from the system. An array remembers its handler, so what it held is subtracted when the
last reference is gone, whichever thread that is in. Where no account is in force nothing is counted, and nothing costs time.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from intarsia.codegen.llvm.jit import get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail, OutOfMemory
from intarsia.machine.resources import ACCOUNT, in_mib
from intarsia.runtime.executor import lasting_words
from intarsia.runtime.interpreter import array_function, lasting

# Words of an account: addresses of PyMem_RawMalloc, PyMem_RawCalloc, PyMem_RawRealloc and PyMem_RawFree; the limit; bytes that
# arrays hold; bytes that arenas have; what was refused last, 0 while nothing was.
_MALLOC, _CALLOC, _REALLOC, _FREE, _LIMIT, _HELD, _ARENA, _REFUSED, _WORDS = range(9)
_HEADER = 64  # bytes before the elements, the first eight of which are how many there are with it
_SET_HANDLER, _GET_HANDLER = 304, 305  # of NumPy's C functions, from 1.22 on (numpy/_core/code_generators/numpy_api.py)
_VERSION, _ALLOCATOR = 127, 128  # of PyDataMem_Handler: where its version is, after its name, and where its functions begin
_CAPSULE = b"mem_handler"

_TEXT = f"""
define internal ptr @word(ptr %words, i64 %which) alwaysinline nounwind {{
  %p = getelementptr i64, ptr %words, i64 %which
  ret ptr %p
}}

; whether so many bytes more may be held, which are counted then
define internal i1 @take(ptr %words, i64 %nbytes) nounwind {{
entry:
  %hp = call ptr @word(ptr %words, i64 {_HELD})
  %before = atomicrmw add ptr %hp, i64 %nbytes monotonic
  %ap = call ptr @word(ptr %words, i64 {_ARENA})
  %arena = load atomic i64, ptr %ap monotonic, align 8
  %lp = call ptr @word(ptr %words, i64 {_LIMIT})
  %limit = load i64, ptr %lp
  %held = add i64 %before, %arena
  %now = add i64 %held, %nbytes
  %large = icmp ugt i64 %nbytes, %limit
  %many = icmp sgt i64 %now, %limit
  %over = or i1 %large, %many
  br i1 %over, label %refuse, label %out
refuse:
  %less = atomicrmw sub ptr %hp, i64 %nbytes monotonic
  %rp = call ptr @word(ptr %words, i64 {_REFUSED})
  store atomic i64 %nbytes, ptr %rp monotonic, align 8
  ret i1 false
out:
  ret i1 true
}}

define internal void @give(ptr %words, i64 %nbytes) alwaysinline nounwind {{
  %hp = call ptr @word(ptr %words, i64 {_HELD})
  %before = atomicrmw sub ptr %hp, i64 %nbytes monotonic
  ret void
}}

define internal ptr @function(ptr %words, i64 %which) alwaysinline nounwind {{
  %p = call ptr @word(ptr %words, i64 %which)
  %f = load ptr, ptr %p
  ret ptr %f
}}

; bytes with the header; all bits where that is more than there are
define internal i64 @whole(i64 %size) alwaysinline nounwind {{
  %sum = add i64 %size, {_HEADER}
  %wraps = icmp ult i64 %sum, %size
  %total = select i1 %wraps, i64 -1, i64 %sum
  ret i64 %total
}}

; the elements of what a function of the system gave; null where it gave nothing, which is not counted then
define internal ptr @held(ptr %words, ptr %raw, i64 %total) nounwind {{
entry:
  %none = icmp eq ptr %raw, null
  br i1 %none, label %undo, label %made
undo:
  call void @give(ptr %words, i64 %total)
  ret ptr null
made:
  store i64 %total, ptr %raw
  %elements = getelementptr i8, ptr %raw, i64 {_HEADER}
  ret ptr %elements
}}

define internal ptr @counted_malloc(ptr %words, i64 %size) nounwind {{
entry:
  %total = call i64 @whole(i64 %size)
  %may = call i1 @take(ptr %words, i64 %total)
  br i1 %may, label %ask, label %no
ask:
  %malloc = call ptr @function(ptr %words, i64 {_MALLOC})
  %raw = call ptr %malloc(i64 %total)
  %elements = call ptr @held(ptr %words, ptr %raw, i64 %total)
  ret ptr %elements
no:
  ret ptr null
}}

define internal ptr @counted_calloc(ptr %words, i64 %count, i64 %each) nounwind {{
entry:
  %wide = zext i64 %count to i128
  %one = zext i64 %each to i128
  %product = mul i128 %wide, %one
  %fits = icmp ult i128 %product, {1 << 63}
  br i1 %fits, label %size, label %no
size:
  %size64 = trunc i128 %product to i64
  %total = call i64 @whole(i64 %size64)
  %may = call i1 @take(ptr %words, i64 %total)
  br i1 %may, label %ask, label %no
ask:
  %calloc = call ptr @function(ptr %words, i64 {_CALLOC})
  %raw = call ptr %calloc(i64 1, i64 %total)
  %elements = call ptr @held(ptr %words, ptr %raw, i64 %total)
  ret ptr %elements
no:
  ret ptr null
}}

define internal ptr @counted_realloc(ptr %words, ptr %elements, i64 %size) nounwind {{
entry:
  %new = icmp eq ptr %elements, null
  br i1 %new, label %first, label %again
first:
  %fresh = call ptr @counted_malloc(ptr %words, i64 %size)
  ret ptr %fresh
again:
  %raw = getelementptr i8, ptr %elements, i64 -{_HEADER}
  %before = load i64, ptr %raw
  %total = call i64 @whole(i64 %size)
  %may = call i1 @take(ptr %words, i64 %total)
  br i1 %may, label %ask, label %no
ask:
  %realloc = call ptr @function(ptr %words, i64 {_REALLOC})
  %moved = call ptr %realloc(ptr %raw, i64 %total)
  %there = call ptr @held(ptr %words, ptr %moved, i64 %total)
  %none = icmp eq ptr %there, null
  br i1 %none, label %no, label %made
made:
  call void @give(ptr %words, i64 %before)
  ret ptr %there
no:
  ret ptr null
}}

define internal void @counted_free(ptr %words, ptr %elements, i64 %size) nounwind {{
entry:
  %none = icmp eq ptr %elements, null
  br i1 %none, label %out, label %free
free:
  %raw = getelementptr i8, ptr %elements, i64 -{_HEADER}
  %total = load i64, ptr %raw
  %f = call ptr @function(ptr %words, i64 {_FREE})
  call void %f(ptr %raw)
  call void @give(ptr %words, i64 %total)
  br label %out
out:
  ret void
}}

; the functions' addresses
define void @__SYMBOL__(ptr %found, i64 %unused, i64 %unused1) {{
  store ptr @counted_malloc, ptr %found
  %p1 = getelementptr ptr, ptr %found, i64 1
  store ptr @counted_calloc, ptr %p1
  %p2 = getelementptr ptr, ptr %found, i64 2
  store ptr @counted_realloc, ptr %p2
  %p3 = getelementptr ptr, ptr %found, i64 3
  store ptr @counted_free, ptr %p3
  ret void
}}
"""


@functools.cache
def _functions() -> np.ndarray:
    """Addresses of the functions of a handler. Raises EPFail where there is no compiler for this machine."""
    target = Target.host()
    kernel = kernel_text("counted_memory", _TEXT)
    (address,) = get_engine(target).load([kernel]).values()
    found: np.ndarray = lasting(np.zeros(4, np.int64))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(found.ctypes.data, 0, 1)
    return found


def _handler(words: np.ndarray) -> object:
    """What NumPy is told; it is never freed, as arrays that were made by it may be anywhere."""
    memory = lasting(np.zeros(_ALLOCATOR + 5 * 8, np.uint8))
    name = b"intarsia_counted"
    memory[: len(name)] = list(name)
    memory[_VERSION] = 1
    memory[_ALLOCATOR:].view(np.int64)[:] = [words.ctypes.data, *_functions().tolist()]
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return make(memory.ctypes.data, lasting(_CAPSULE), None)


@functools.cache
def _set_handler() -> Callable[[object], object] | None:
    """PyDataMem_SetHandler, which gives the handler before; None where NumPy's functions are not known."""
    address = array_function(_SET_HANDLER) if sys.implementation.name == "cpython" else None
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address) if address else None


class Account:
    """Bytes that may be held at once by arrays that are made while it is in force, and by an arena.

    Args:
        limit: how many.
        setting: what the user set it with, for messages.
    """

    def __init__(self, limit: int, setting: str) -> None:
        self.limit, self.setting = limit, setting
        self._words = lasting_words(_WORDS)
        names = ("PyMem_RawMalloc", "PyMem_RawCalloc", "PyMem_RawRealloc", "PyMem_RawFree")
        for i, name in enumerate(names):
            self._words[i] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        self._words[_LIMIT] = limit
        self._handler = _handler(self._words)
        set_handler = _set_handler()
        assert set_handler is not None
        self._set = set_handler

    @property
    def held(self) -> int:
        """Bytes of arrays."""
        return int(self._words[_HELD])

    def set_arena(self, nbytes: int) -> None:
        """Say what the arena has."""
        self._words[_ARENA] = nbytes

    @contextmanager
    def counting(self) -> Iterator[None]:
        """While it lasts, this context's arrays are counted.

        Raises:
            OutOfMemory: what a MemoryError says within it, with the limit, where it was that.
        """
        if ACCOUNT.get() is self:
            yield
            return
        token, before = ACCOUNT.set(self), self._set(self._handler)
        try:  # what was refused last may be another thread's: the limit is named beside what the error says then, too
            yield
        except MemoryError as error:
            if not self._words[_REFUSED] or self.setting in str(error):
                raise
            raise OutOfMemory(f"{error}; {self.told(int(self._words[_REFUSED]))}") from error
        finally:
            self._set(before)
            ACCOUNT.reset(token)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """While it lasts, arrays are not counted: those that are counted as the arena's."""
        before = self._set(_default_handler())
        try:
            yield
        finally:
            self._set(before)

    def told(self, nbytes: int) -> str:
        """What a message says of a request that the limit does not allow."""
        arena = int(self._words[_ARENA])
        return (
            f"{nbytes / 2**20:,.2f} MiB were requested, and {self.setting} allows {in_mib(self.limit)} in all, of which "
            f"{self.held / 2**20:,.2f} MiB are held by values and {arena / 2**20:,.2f} MiB by intermediate tensors"
        )

    def check_texts(self, values: Sequence[Any]) -> None:
        """Raises MemoryError where the characters of a value, which Python counts, are more than may be held."""
        for value in values:
            if isinstance(value, np.ndarray) and value.dtype.hasobject:
                nbytes = sum(len(x) for x in value.reshape(-1).tolist() if isinstance(x, (str, bytes)))
                if nbytes + self.held > self.limit:
                    raise MemoryError(f"its strings have {nbytes:,} characters; {self.told(nbytes)}")


@functools.cache
def _default_handler() -> object:
    """The handler of contexts without an account."""
    address = array_function(_GET_HANDLER)
    assert address
    return contextvars.Context().run(ctypes.PYFUNCTYPE(ctypes.py_object)(address))


def account_of(limit: int, setting: str) -> Account | None:
    """An account, where this interpreter has what it takes."""
    if _set_handler() is None:
        return None
    try:
        return Account(limit, setting)
    except EPFail:
        return None
