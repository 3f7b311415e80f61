"""Gives back the memory that a compilation leaves behind in this process: LLVM's own code, and what is free in the C library's
heap.

LLVM's code, some 70 MB of pages of llvmlite's library that were read on the way, would stay resident beside a model that needs
it no more. Pages that nothing has written to are read from the file again where they are needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DONTNEED = 4  # madvise's MADV_DONTNEED on Linux
_LIBRARY = "libllvmlite"


def release() -> int:
    """Give back what is free; returns bytes of code that the system may forget. Does nothing where that is not Linux."""
    if sys.platform != "linux":
        return 0
    libc = _libc()
    if hasattr(libc, "malloc_trim"):  # the GNU C library's
        libc.malloc_trim(ctypes.c_size_t(0))
    released = 0
    for first, last in _code(Path("/proc/self/maps")):
        if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONTNEED) == 0:
            released += last - first
    return released


def _code(maps: Path) -> Iterator[tuple[int, int]]:
    """Addresses of the executable parts of the library: only those are as they are in the file, without relocations."""
    with contextlib.suppress(OSError):
        for line in maps.read_text(errors="replace").splitlines():
            addresses, access, *rest = line.split(maxsplit=5)
            if access == "r-xp" and _LIBRARY in (rest[-1].rsplit("/", 1)[-1] if len(rest) == 4 else ""):
                first, last = (int(x, 16) for x in addresses.split("-"))
                yield first, last


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)
