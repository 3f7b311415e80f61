"""Tables that kernels read as they are, a few rows in a run: stored in a file of the process's own instead of its memory.

A model's file is read, not mapped, since others may write to it; so a session that compiles would have a table of words in
memory whole. It is written to a file in the cache's folder that has no name any more before its first byte is there, and mapped
from it: nobody else can write to it, or cut it short, and of its pages those that are read are in memory.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from intarsia.cache.disk_cache import get_cache
from intarsia.machine.resources import ACCOUNT

LEAST_NBYTES = 8 << 20
_PAGE_NBYTES = 1 << 16  # Linux keeps what is written at once in pages as large as that, and maps them as a whole
_FREE = 8  # of the disk's free space, at most one part in so many is taken for one table


def set_aside(array: np.ndarray) -> np.ndarray:
    """The array's elements in pages of such a file, read-only.

    The array itself where it is small, where nothing can be written, or where memory is counted.
    """
    cache = get_cache()
    if array.nbytes < LEAST_NBYTES or not cache.writable or not cache.place or ACCOUNT.get() is not None:
        return array
    if os.name == "nt" or array.nbytes > cache.free_nbytes() // _FREE:
        return array
    with suppress(OSError, ValueError):  # a full disk, or one that maps no files
        handle = _nameless(cache.place)
        try:
            rest = array.reshape(-1).view(np.uint8).data
            while rest:
                rest = rest[os.write(handle, rest[:_PAGE_NBYTES]) :]
            pages = mmap.mmap(handle, array.nbytes, access=mmap.ACCESS_READ)
        finally:
            os.close(handle)
        return np.frombuffer(pages, array.dtype).reshape(array.shape)
    return array


def _nameless(folder: str) -> int:
    """A descriptor for a new file without a name in a folder. Raises OSError."""
    path = Path(folder) / f".tmp-{os.getpid()}-{os.urandom(8).hex()}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        path.unlink()
    except OSError:
        os.close(handle)
        raise
    return handle
