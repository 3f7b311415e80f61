"""The bytes of an open file, read where they are requested, as the file was when it was opened.

A mapping of a file that somebody else may write to changes under its reader, and ends the process (SIGBUS) where the file is
cut short. Here every read copies into memory of its own and looks at the file's size and times before its bytes are used, so
that a file that changed is an error. A file that was replaced or removed under its name stays readable: it is open.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, overload

import numpy as np

from intarsia.errors import Fail
from intarsia.machine import fork_safety

WHOLE_NBYTES = 1 << 20  # smaller files are read at once
_PAGE_BITS, _PAGES = 16, 16  # of pages of 64 KiB, so many are retained while a model is read
_ALIGNMENT = 64
_RECENT_NBYTES = 16 << 20  # of what was read last is retained: one pass over a graph requests an array more than once


class FileBytes:
    """A file's bytes as a sequence: `len`, one byte by its place, or `bytes` of a slice.

    Args:
        descriptor: of the file, open for reading; it is closed when nobody has this any more.
        label: what the file is called in messages.
        error: the kind of error that says that the file changed.
        path: where it was opened; once another file or none is there, it was renamed, which changes its last time, too.

    Attributes:
        same_content: tells, from a file's path and its status when it was opened, whether these are the bytes that it had
            then. Who keeps hashes of files sets it, so that `touch`, or the same bytes written again, are no change.
    """

    __slots__ = (
        "_descriptor", "_error", "_label", "_lock", "_nbytes", "_pages", "_path", "_rooms", "_state", "_status", "_window",
    )  # fmt: skip
    same_content: ClassVar[Callable[[str, os.stat_result, Iterable[bytes]], bool] | None] = None

    def __init__(self, descriptor: int, label: str, error: type[Fail] = Fail, path: str = "") -> None:
        self._descriptor, self._label, self._error, self._path = descriptor, label, error, path
        self._status = os.fstat(descriptor)
        self._state = _State(self._status)
        self._nbytes = self._state.nbytes
        self._window = (0, b"")
        self._pages: dict[int, bytes] = {}
        self._lock = fork_safety.lock()
        self._rooms: dict[tuple[int, int], weakref.ref[np.ndarray]] = {}  # views of a view refer to the array under both

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound here: at a program's end `os` may be gone
        close(self._descriptor)

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
            start, window = self._moved(place)
            return window[place - start]
        start, end, _ = place.indices(self._nbytes)  # steps are never requested
        begin, window = self._window
        if start < begin or end > begin + len(window):
            if start >> _PAGE_BITS != (end - 1) >> _PAGE_BITS:
                return self.read(start, end - start) if end > start else b""
            begin, window = self._moved(start)
        return window[start - begin : max(end - begin, start - begin)]

    def read(self, start: int, nbytes: int) -> bytes:
        """Bytes from `start` on, as many as that or as there are. Raises as `array`."""
        room = bytearray(max(min(nbytes, self._nbytes - start), 0))
        self._read(memoryview(room), start)
        return bytes(room)

    def read_into(self, start: int, room: memoryview) -> None:
        """Fill `room` with bytes from `start` on. Raises as `array`."""
        if start < 0 or start + len(room) > self._nbytes:
            raise IndexError(f"bytes {start} to {start + len(room)} of {self._nbytes}")
        self._read(room, start)

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

    def _moved(self, place: int) -> tuple[int, bytes]:
        """The page that a byte is in, and where it begins, from which bytes are taken next."""
        number = place >> _PAGE_BITS
        start = number << _PAGE_BITS
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = self.read(start, 1 << _PAGE_BITS)
            if len(self._pages) > _PAGES:
                self._pages.pop(next(iter(self._pages)), None)
        self._window = (start, page)
        return self._window

    def forget_pages(self) -> None:
        """Keep nothing in memory but arrays: what the file says has been read."""
        self._window = (0, b"")
        self._pages = {}

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
        changed = state != self._state and not self._was_renamed(state) and not self._holds_the_same(state)
        if done < len(room) or changed:
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

    def _holds_the_same(self, state: _State) -> bool:
        """Whether the bytes are those of before, whatever the state; it is known from now on."""
        known = FileBytes.same_content
        if known is None or state.nbytes != self._nbytes or not self._path:
            return False
        if not known(self._path, self._status, self._pieces()) or _State(os.fstat(self._descriptor)) != state:
            return False
        self._state = state
        return True

    def _pieces(self) -> Iterator[bytes]:
        """All bytes, as they are now."""
        piece, start = bytearray(1 << 20), 0
        while count := self._some(memoryview(piece), start):
            yield bytes(piece[:count])
            start += count

    def _some(self, room: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):  # which leaves alone the place that a forked process would share
            return os.preadv(self._descriptor, [room], start)
        with self._lock:
            os.lseek(self._descriptor, start, os.SEEK_SET)
            some = os.read(self._descriptor, len(room))
        room[: len(some)] = some
        return len(some)


class _Recent:
    """What was read last, of all files, retained."""

    def __init__(self) -> None:
        self.lock = fork_safety.lock()
        self.rooms: deque[np.ndarray] = deque()
        self.nbytes = 0

    def add(self, room: np.ndarray) -> None:
        with self.lock:
            self.rooms.append(room)
            self.nbytes += room.nbytes
            while self.nbytes > _RECENT_NBYTES:
                self.nbytes -= self.rooms.popleft().nbytes

    def clear(self) -> None:
        with self.lock:
            self.rooms, self.nbytes = deque(), 0


_recent = _Recent()


def forget_recent() -> None:
    """Keep nothing in memory that nobody else has, once a model is made."""
    _recent.clear()


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
