"""Weights of warm starts in the cache: a block of bytes for each model, of which large arrays may lie in another model's file.

A block is a file that is named by its content. An array of a MiB and more that some model's file has already is not written
again: models that have weights in common (an encoder under two decoders, versions of one model) have them on the disk once,
and all processes in memory once, since the pages of a mapped file are those of the system's cache. Such a block is put together
by mapping its pieces side by side, and looks like one array to who restores a program from it.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from dataclasses import field
from functools import cache as once
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.cache.disk_cache import DiskCache, checksum_of, leading, start_in_file
from intarsia.ep.device import HostAllocator
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from io import FileIO

LEAST_NBYTES = 1 << 20  # smaller blocks are read, not mapped; smaller arrays are not shared
PAGE_NBYTES = mmap.ALLOCATIONGRANULARITY
_READ, _PRIVATE, _FIXED = 1, 2, 0x10  # of Linux, whatever the processor


@dataclass(frozen=True)
class Piece:
    """Bytes from `offset` of a block on: those from `start` on of the payload under `key`."""

    offset: int
    nbytes: int
    key: str
    start: int


@dataclass(frozen=True)
class Layout:
    """A block of `nbytes`; each of its pieces, but the only one, begins at a page here and there."""

    nbytes: int
    pieces: tuple[Piece, ...] = ()


@dataclass
class _Run:
    """Neighbouring parts of a block; `name`: that of one large array that may be shared."""

    offset: int
    parts: list[memoryview] = field(default_factory=list)
    name: str = ""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


def keep(cache: DiskCache, parts: Sequence[bytes | memoryview], scattered_nbytes: int = 0) -> Layout | None:
    """Store a block, given as its parts in order, of whose end a few pages are read; None where the cache cannot be written."""
    views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
    total = sum(view.nbytes for view in views)
    runs = _runs(views) if sys.platform == "linux" else [_Run(0, views)] if views else []
    known = {run.offset: piece for run in runs if run.name and (piece := _known(cache, run)) is not None}
    payload: list[bytes | memoryview] = [leading(PAGE_NBYTES)]
    starts: dict[int, int] = {}
    written = scattered = 0
    for run in runs:
        if run.offset not in known:
            starts[run.offset] = written
            padding = -run.nbytes % PAGE_NBYTES if run is not runs[-1] else 0
            payload += [*run.parts, bytes(padding)]
            written += run.nbytes + padding
            scattered += run.nbytes + padding if run.offset >= total - scattered_nbytes else 0
    key = ""
    if written:
        checksum = checksum_of(payload)
        key = f"weights-{checksum.hex()}"
        if not _exists(cache, key, written):
            if not cache.put(key, payload, checksum, scattered):
                return None
            cache.note_whole(key)
    for run in runs:
        if run.name and run.offset in starts:
            cache.put(run.name, f"{key} {starts[run.offset]}".encode())
    pieces = [known.get(run.offset) or Piece(run.offset, run.nbytes, key, starts[run.offset]) for run in runs]
    return Layout(total, tuple(_merged(pieces)))


def _known(cache: DiskCache, run: _Run) -> Piece | None:
    """Where a large array lies already."""
    found = cache.get(run.name)
    if found is None:
        return None
    key, _, start = found.decode().partition(" ")
    return Piece(run.offset, run.nbytes, key, int(start)) if _exists(cache, key, int(start) + run.nbytes) else None


def _exists(cache: DiskCache, key: str, nbytes: int) -> bool:
    """Whether at least so many bytes are stored under `key`; they count as used then."""
    opened = cache.open(key)
    if opened is None:
        return False
    with opened[0]:
        if opened[1] < len(leading(PAGE_NBYTES)) + nbytes or not cache.is_whole(key, opened):
            return False
    cache.used(key)
    cache.note_whole(key)
    return True


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes with as few pieces as can be."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        gap = piece.offset - (last.offset + last.nbytes) if last is not None else 0
        if last is not None and last.key == piece.key and piece.start - (last.start + last.nbytes) == gap < PAGE_NBYTES:
            merged[-1] = Piece(last.offset, last.nbytes + gap + piece.nbytes, last.key, last.start)
        else:
            merged.append(piece)
    return merged


def _runs(views: Sequence[memoryview]) -> list[_Run]:
    """A block in runs that begin at pages. What follows a large array in its last page must be zeros, as they are there when a
    file is mapped; where it is not, the array is not shared."""
    runs: list[_Run] = []
    at = 0
    for view in views:
        last = runs[-1] if runs else None
        if view.nbytes >= LEAST_NBYTES and at % PAGE_NBYTES == 0:
            runs.append(_Run(at, [view], f"array-{checksum_of((view,)).hex()}"))
        elif last is not None and not last.name:
            last.parts.append(view)
        elif last is None or at % PAGE_NBYTES == 0:
            runs.append(_Run(at, [view]))
        elif view.nbytes > -at % PAGE_NBYTES or bytes(view).strip(b"\0"):
            last.name = ""
            last.parts.append(view)
        at += view.nbytes
    return runs


def block(cache: DiskCache, layout: Layout) -> np.ndarray | None:
    """The block that `keep` stored, uint8 [nbytes]; None where something of it is missing or too short."""
    if not layout.nbytes:
        return np.empty(0, np.uint8)
    if len(layout.pieces) > 1 or layout.pieces[0].start or layout.pieces[0].nbytes != layout.nbytes:
        return _assembled(cache, layout)
    if layout.nbytes >= LEAST_NBYTES:
        mapped = cache.map(layout.pieces[0].key, PAGE_NBYTES)
        return np.frombuffer(mapped, np.uint8, layout.nbytes) if mapped is not None and len(mapped) >= layout.nbytes else None
    return _read(cache, layout.pieces[0].key, layout.nbytes)


def _read(cache: DiskCache, name: str, nbytes: int) -> np.ndarray | None:
    found = HostAllocator().allocate(nbytes)
    opened = cache.open(name)
    if opened is None:
        return None
    file, length = opened
    with file:
        if not cache.is_whole(name, opened):
            return None
        skipped = len(file.read(len(leading(PAGE_NBYTES))))
        view, done = found.data, 0
        while length == nbytes + skipped and done < nbytes:
            count = file.readinto(view[done:])
            if not count:
                return None
            done += count
    return found if length == nbytes + skipped else None


def _assembled(cache: DiskCache, layout: Layout) -> np.ndarray | None:
    """The pieces mapped side by side, over a room of that size."""
    if any(p.offset % PAGE_NBYTES or p.start % PAGE_NBYTES for p in layout.pieces):
        return None  # stored where pages were smaller
    room = mmap.mmap(-1, layout.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    found = np.frombuffer(room, np.uint8)
    begin = found.ctypes.data
    files = {key: cache.open(key) for key in {piece.key for piece in layout.pieces}}
    try:
        whole = {key: opened is not None and cache.is_whole(key, opened) for key, opened in files.items()}
        if not all(whole.values()) or not all(
            _map_over(begin + piece.offset, piece, files[piece.key]) for piece in layout.pieces
        ):
            return None
    finally:
        for opened in files.values():
            if opened is not None:
                opened[0].close()
    return found


def _map_over(address: int, piece: Piece, opened: tuple[FileIO, int] | None) -> bool:
    if opened is None or opened[1] < len(leading(PAGE_NBYTES)) + piece.start + piece.nbytes:
        return False
    start = start_in_file(PAGE_NBYTES) + piece.start
    where: int = _mmap()(address, piece.nbytes, _READ, _PRIVATE | _FIXED, opened[0].fileno(), start)
    return where == address


@once
def _mmap() -> Any:
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    return function
