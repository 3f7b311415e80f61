"""Memory-mapped arrays (weights in the cache): giving back the pages of data that nobody will read."""

from __future__ import annotations

import mmap

import numpy as np


def file_under(array: np.ndarray) -> mmap.mmap | None:
    """The mapping of a file that an array is a view of; None where it lies elsewhere."""
    owner: object = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj if isinstance(owner, memoryview) else None
    return owner


def release_bytes(piece: memoryview) -> int:
    """`release_pages` of bytes."""
    return release_pages(np.frombuffer(piece, np.uint8))


def release_pages(array: np.ndarray) -> int:
    """Let the system forget the file pages under `array`, if it is a view of a file mapped to be read; returns bytes released.

    The data stays readable: pages are read from the file again when they are touched. Only whole pages are released. Of a
    mapping that can be written (a caller's, who may have changed its own copy) nothing is: changes would be lost.
    """
    owner = file_under(array) if hasattr(mmap, "MADV_DONTNEED") else None
    if owner is None or not memoryview(owner).readonly:
        return 0
    origin = np.frombuffer(owner, np.uint8).ctypes.data
    bounds = getattr(np, "byte_bounds", None) or np.lib.array_utils.byte_bounds  # NumPy 1, 2
    low, high = bounds(array)
    first = -(-(low - origin) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (high - origin) // mmap.PAGESIZE * mmap.PAGESIZE
    if last <= first:
        return 0
    owner.madvise(mmap.MADV_DONTNEED, first, last - first)
    return last - first
