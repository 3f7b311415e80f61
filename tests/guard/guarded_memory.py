"""Memory whose first or last byte is beside a page without access, for all arrays that NumPy makes.

NumPy asks a handler for the memory of arrays (NEP 49, `PyDataMem_SetHandler`). The one here maps pages of its own for each:

    end:    number | no access | .......data | no access        the last byte is followed by a page without access
    start:  number | no access | data....... | no access        a page without access lies before the first byte

The first page holds the size, since `realloc` is not told. Pages go back to the system at once: whoever reads an array after
its end is caught too. New memory is filled with ones, which are NaN as floats and -1 as integers. So a read or write beside an
array ends the process (SIGSEGV), and what is read before it is written shows in the result.

The functions are machine code, made by LLVM once in a process: a function in Python would take ten times as long.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

AVAILABLE = sys.platform.startswith("linux") and mmap.PAGESIZE == 4096
"""Whether memory can be guarded here: the numbers below are Linux's."""

END, START = 0, 1

# mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); PROT_READ | PROT_WRITE is 3.
_TEXT = r"""
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @pages(i64 %size) {
  %least = call i64 @llvm.umax.i64(i64 %size, i64 1)
  %up = add i64 %least, 4095
  %n = lshr i64 %up, 12
  ret i64 %n
}
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @take(ptr %at_start, i64 %size, i8 %fill) {
  %n = call i64 @pages(i64 %size)
  %data = shl i64 %n, 12
  %whole = add i64 %data, 12288
  %base = call ptr @mmap(ptr null, i64 %whole, i32 0, i32 34, i32 -1, i64 0)
  %number = ptrtoint ptr %base to i64
  %failed = icmp eq i64 %number, -1
  br i1 %failed, label %nothing, label %mapped
nothing:
  ret ptr null
mapped:
  %a = call i32 @mprotect(ptr %base, i64 4096, i32 3)
  %first = getelementptr i8, ptr %base, i64 8192
  %b = call i32 @mprotect(ptr %first, i64 %data, i32 3)
  %c = or i32 %a, %b
  %refused = icmp ne i32 %c, 0
  br i1 %refused, label %back, label %ready
back:
  %d = call i32 @munmap(ptr %base, i64 %whole)
  ret ptr null
ready:
  store i64 %size, ptr %base
  call void @llvm.memset.p0.i64(ptr %first, i8 %fill, i64 %data, i1 false)
  %start = load i64, ptr %at_start
  %is_start = icmp ne i64 %start, 0
  %least = call i64 @llvm.umax.i64(i64 %size, i64 1)
  %before = sub i64 %data, %least
  %skipped = select i1 %is_start, i64 0, i64 %before
  %found = getelementptr i8, ptr %first, i64 %skipped
  ret ptr %found
}

define internal ptr @base(ptr %data) {
  %number = ptrtoint ptr %data to i64
  %page = and i64 %number, -4096
  %before = sub i64 %page, 8192
  %found = inttoptr i64 %before to ptr
  ret ptr %found
}

define ptr @guarded_malloc(ptr %at_start, i64 %size) {
  %found = call ptr @take(ptr %at_start, i64 %size, i8 -1)
  ret ptr %found
}

define ptr @guarded_calloc(ptr %at_start, i64 %count, i64 %each) {
  %size = mul i64 %count, %each
  %found = call ptr @take(ptr %at_start, i64 %size, i8 0)
  ret ptr %found
}

define void @guarded_free(ptr %at_start, ptr %data, i64 %told) {
  %none = icmp eq ptr %data, null
  br i1 %none, label %done, label %some
some:
  %base = call ptr @base(ptr %data)
  %size = load i64, ptr %base
  %n = call i64 @pages(i64 %size)
  %pages = shl i64 %n, 12
  %whole = add i64 %pages, 12288
  %a = call i32 @munmap(ptr %base, i64 %whole)
  br label %done
done:
  ret void
}

define ptr @guarded_realloc(ptr %at_start, ptr %data, i64 %size) {
  %found = call ptr @take(ptr %at_start, i64 %size, i8 -1)
  %bad = icmp eq ptr %found, null
  %new = icmp eq ptr %data, null
  %stop = or i1 %bad, %new
  br i1 %stop, label %done, label %copy
copy:
  %base = call ptr @base(ptr %data)
  %had = load i64, ptr %base
  %kept = call i64 @llvm.umin.i64(i64 %had, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %found, ptr %data, i64 %kept, i1 false)
  call void @guarded_free(ptr %at_start, ptr %data, i64 %had)
  br label %done
done:
  ret ptr %found
}
"""
_SET_HANDLER = 304  # in NumPy's table of functions (numpy/_core/code_generators/numpy_api.py)


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler`, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p), ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p), ("free", ctypes.c_void_p),
    )  # fmt: skip


class _Guard:
    """NumPy's handler, kept alive for ever: arrays refer to it."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        from intarsia.codegen.llvm import target

        target.llvm()  # initialised
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_TEXT), machine)
        self._engine.finalize_object()
        self.at_start = ctypes.c_int64(END)
        functions = (self._engine.get_function_address(f"guarded_{n}") for n in ("malloc", "calloc", "realloc", "free"))
        self._handler = _Handler(b"guard pages", 1, ctypes.addressof(self.at_start), *functions)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = b"mem_handler"
        self.capsule = new(ctypes.addressof(self._handler), self._name, None)

    def put(self, capsule: object) -> object:
        """Let NumPy ask this handler in this thread from now on; returns the one before."""
        return _set_handler()(capsule)


@functools.cache
def _set_handler() -> ctypes._CFuncPtr:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    core = getattr(np, "_core", None) or np.core
    table = ctypes.cast(get(core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])


@functools.cache
def _guard() -> _Guard:
    return _Guard()


@contextmanager
def guarded(at: int = END) -> Iterator[None]:
    """Arrays that this thread makes inside lie at pages without access: with their last byte (END), or their first."""
    guard = _guard()
    before = guard.put(guard.capsule)
    was, guard.at_start.value = guard.at_start.value, at
    try:
        yield
    finally:
        guard.at_start.value = was
        guard.put(before)


def guarded_copy(array: np.ndarray, at: int = END) -> np.ndarray:
    """An equal array at a page without access; of the same strides order, dense."""
    with guarded(at):
        made = np.empty(array.shape, array.dtype)
    made[...] = array
    return made
