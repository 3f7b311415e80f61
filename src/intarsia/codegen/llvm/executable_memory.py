"""What this process's system gives to machine code: pages, their protection, and addresses of its libraries' functions.

Pages are had to be read and written, and become executable when they are filled; none is both at once. This is the one place
that says how, for each system: mmap(2), mprotect(2) and what the process has loaded; on Windows VirtualAlloc, VirtualProtect,
and the libraries of `_LIBRARIES`.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

if sys.platform == "win32":
    # memoryapi.h and winnt.h
    _COMMIT_RESERVE, _RELEASE = 0x3000, 0x8000
    _READ_WRITE, _READ_EXECUTE = 0x04, 0x20
    # The C runtime and its mathematics; ntdll's __chkstk, which code for Windows calls where it takes pages of stack; the rest.
    _LIBRARIES = ("ucrtbase", "ntdll", "kernel32")

    @cache
    def _kernel() -> Any:
        kernel, pointer, size, word = ctypes.WinDLL("kernel32"), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        kernel.VirtualAlloc.argtypes, kernel.VirtualAlloc.restype = [pointer, size, word, word], pointer
        kernel.VirtualFree.argtypes = [pointer, size, word]
        kernel.VirtualProtect.argtypes = [pointer, size, word, ctypes.POINTER(word)]
        return kernel

    def allocate(nbytes: int) -> int:
        return _kernel().VirtualAlloc(None, nbytes, _COMMIT_RESERVE, _READ_WRITE) or 0

    def free(address: int, nbytes: int) -> None:
        _kernel().VirtualFree(address, 0, _RELEASE)

    def protect(address: int, nbytes: int, executable: bool) -> bool:
        access = _READ_EXECUTE if executable else _READ_WRITE
        return bool(_kernel().VirtualProtect(address, nbytes, access, ctypes.byref(ctypes.c_uint32())))

    @cache
    def _libraries() -> tuple[Any, ...]:
        return tuple(map(ctypes.CDLL, _LIBRARIES))

else:
    import mmap

    @cache
    def _libc() -> Any:
        libc, pointer, size, number = ctypes.CDLL(None), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        libc.mmap.argtypes, libc.mmap.restype = [pointer, size, number, number, number, ctypes.c_long], pointer
        libc.munmap.argtypes = [pointer, size]
        libc.mprotect.argtypes = [pointer, size, number]
        return libc

    def allocate(nbytes: int) -> int:
        """The address of zeroed pages that can be read and written; 0 where there are none."""
        access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        found: int = _libc().mmap(None, nbytes, access, kind, -1, 0)
        return 0 if found == _MAP_FAILED else found

    _MAP_FAILED = ctypes.c_void_p(-1).value

    def free(address: int, nbytes: int) -> None:
        """Give back all pages of one `allocate`."""
        _libc().munmap(address, nbytes)

    def protect(address: int, nbytes: int, executable: bool) -> bool:
        """Let pages be read and executed, or read and written; False where the system does not allow it."""
        access = mmap.PROT_READ | (mmap.PROT_EXEC if executable else mmap.PROT_WRITE)
        return not _libc().mprotect(address, nbytes, access)

    def _libraries() -> tuple[Any, ...]:
        return (_libc(),)


def has_function(name: str) -> bool:
    """Whether a library of the process has a function of this name."""
    return bool(function(name))


def function(name: str) -> int:
    """The address of a function of the process's libraries; 0 where none has it."""
    for library in _libraries():
        found = getattr(library, name, None)
        if found is not None:
            return ctypes.cast(found, ctypes.c_void_p).value or 0
    return 0
