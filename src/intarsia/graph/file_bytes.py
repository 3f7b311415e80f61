"""The bytes of an open file, read where they are asked for, as the file was when it was opened.

A mapping of a file that somebody else may write to changes under its reader, and ends the process (SIGBUS) where the file is
cut short. Here every read copies into memory of its own and looks at the file's size and times before its bytes are used, so
that a file that changed is an error. A file that was replaced or removed under its name stays readable: it is open.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from typing import overload

import numpy as np

from intarsia import forks
from intarsia.errors import Fail

WHOLE_NBYTES = 1 << 20  # smaller files are read at once
_WINDOW_NBYTES = 1 << 16
_ALIGNMENT = 64
_RECENT_NBYTES = 16 << 20  # of what was read last is kept in memory: one pass over a graph asks for an array more than once


class FileBytes:
    """A file's bytes as a sequence: `len`, one byte by its place, or `bytes` of a slice.

    Args:
        descriptor: of the file, open for reading; it is closed when nobody has this any more.
        label: what the file is called in messages.
        error: the kind of error that says that the file changed.
        path: where it was opened; once another file or none is there, it was renamed, which changes its last time, too.
    """

    __slots__ = ("_descriptor", "_error", "_label", "_lock", "_nbytes", "_path", "_rooms", "_state", "_window")

    def __init__(self, descriptor: int, label: str, error: type[Fail] = Fail, path: str = "") -> None:
        self._descriptor, self._label, self._error, self._path = descriptor, label, error, path
        self._state = _State(os.fstat(descriptor))
        self._nbytes = self._state.nbytes
        self._window = (0, b"")
        self._lock = forks.lock()
        self._rooms: dict[tuple[int, int], weakref.ref[np.ndarray]] = {}  # views of a view refer to the array under both

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        return self._nbytes

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> bytes: ...

    def __getitem__(self, place: int | slice) -> int | bytes:
        if isinstance(place, int):
            start, window = self._window
            if 0 <= place - start < len(window):
                return window[place - start]
            if not 0 <= place < self._nbytes:
                raise IndexError(f"byte {place} of {self._nbytes}")
            return self._moved(place)[0]
        start, end, _ = place.indices(self._nbytes)  # steps are not asked for
        begin, window = self._window
        at = start - begin
        if at < 0 or at + end - start > len(window):
            if end - start > _WINDOW_NBYTES:
                return self.array(start, end - start).tobytes()
            at, window = 0, self._moved(start)
        return window[at : at + max(end - start, 0)]

    def array(self, start: int, nbytes: int) -> np.ndarray:
        """Bytes from `start` on in memory of their own, uint8 [nbytes], read-only, beginning at a multiple of 64.

        The same memory for the same bytes as long as somebody has it.

        Raises:
            IndexError: there are not so many.
            Fail, or the kind given: the file has changed since it was opened, or cannot be read.
        """
        if start < 0 or start + nbytes > self._nbytes:
            raise IndexError(f"bytes {start} to {start + nbytes} of {self._nbytes}")
        known = self._rooms.get((start, nbytes))
        room = known() if known is not None else None
        if room is None:
            room = np.empty(nbytes + _ALIGNMENT, np.uint8)
            self._read(_aligned(room, nbytes).data, start)
            room.flags.writeable = False
            self._rooms[start, nbytes] = weakref.ref(room)
            _recent.add(room)
        return _aligned(room, nbytes)

    def _moved(self, start: int) -> bytes:
        """The window from `start` on."""
        window = bytearray(min(_WINDOW_NBYTES, self._nbytes - start))
        self._read(memoryview(window), start)
        found = bytes(window)
        self._window = (start, found)
        return found

    def _read(self, room: memoryview, start: int) -> None:
        try:
            done = 0
            while done < len(room):
                count = self._some(room[done:], start + done)
                if not count:
                    break
                done += count
            state = _State(os.fstat(self._descriptor))
        except OSError as error:
            raise self._error(f"{self._label}: the file cannot be read: {error.strerror or error}") from error
        if done < len(room) or (state != self._state and not self._was_renamed(state)):
            raise self._error(
                f"{self._label}: the file has changed since it was opened ({self._state} then, {state} now): make a new "
                "session. Write a new file beside it and rename that, so that who has the old one open can go on reading it"
            )

    def _was_renamed(self, state: _State) -> bool:
        """Whether a rename explains the state; it is known from now on."""
        if not self._path or (state.nbytes, state.written) != (self._state.nbytes, self._state.written):
            return False
        from pathlib import Path

        own = os.fstat(self._descriptor)
        try:
            there = Path(self._path).stat()
        except OSError:
            there = None
        if there is not None and (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
            return False
        self._state = state
        return True

    def _some(self, room: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):  # which leaves alone the place that a forked process would share
            return os.preadv(self._descriptor, [room], start)
        with self._lock:
            os.lseek(self._descriptor, start, os.SEEK_SET)
            some = os.read(self._descriptor, len(room))
        room[: len(some)] = some
        return len(some)


class _Recent:
    """What was read last, of all files, kept in memory."""

    def __init__(self) -> None:
        self.lock = forks.lock()
        self.rooms: list[np.ndarray] = []

    def add(self, room: np.ndarray) -> None:
        with self.lock:
            self.rooms.append(room)
            total = sum(one.nbytes for one in self.rooms)
            while total > _RECENT_NBYTES:
                total -= self.rooms.pop(0).nbytes


_recent = _Recent()


def forget_recent() -> None:
    """Keep nothing in memory that nobody else has, once a model is made."""
    with _recent.lock:
        _recent.rooms = []


def _aligned(room: np.ndarray, nbytes: int) -> np.ndarray:
    first = -room.ctypes.data % _ALIGNMENT
    return room[first : first + nbytes]


class _State:
    """What changes whenever a file's bytes do. Links that come and go, and permissions, change its last time too."""

    __slots__ = ("changed", "nbytes", "rest", "written")

    def __init__(self, status: os.stat_result) -> None:
        self.nbytes, self.written, self.changed = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        self.rest = (status.st_nlink, status.st_mode, status.st_uid, status.st_gid)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _State) or (self.nbytes, self.written) != (other.nbytes, other.written):
            return False
        return self.changed == other.changed or self.rest != other.rest

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.nbytes:,} bytes, written at {self.written / 1e9:.3f}"


def open_file(path: str | os.PathLike[str]) -> int:
    """A descriptor for `file_bytes`. Raises OSError."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))


def file_bytes(descriptor: int, label: str, error: type[Fail] = Fail, path: str = "") -> bytes | FileBytes:
    """The bytes of an open file, which this takes over: those of small ones, of pipes and devices are read at once.

    Raises:
        OSError: it is a folder, or cannot be read.
    """
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        with os.fdopen(descriptor, "rb") as file:
            return file.read()
    found = FileBytes(descriptor, label, error, path)
    return found if status.st_size >= WHOLE_NBYTES else found[:]
