"""Stopping runs at a deadline: one sleeping thread for the process sets the flags of runs whose time is over."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from intarsia.errors import InvalidArgument, RunTimeout, WrongType
from intarsia.machine import fork_safety


class _Watch:
    """Deadlines in order, and the thread that waits for the first of them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.changed = threading.Condition()
        self.waiting: list[tuple[float, int, array[int]]] = []
        self.numbers = itertools.count()
        self.thread: threading.Thread | None = None

    def add(self, deadline: float, flag: array[int]) -> tuple[float, int, array[int]]:
        entry = (deadline, next(self.numbers), flag)
        with self.changed:
            heapq.heappush(self.waiting, entry)
            if self.thread is None:
                self.thread = threading.Thread(target=self.watch, name="intarsia-deadlines", daemon=True)
                self.thread.start()
            elif self.waiting[0] is entry:
                self.changed.notify()
        return entry

    def remove(self, entry: tuple[float, int, array[int]]) -> None:
        with self.changed:
            if entry in self.waiting:
                self.waiting.remove(entry)
                heapq.heapify(self.waiting)

    def watch(self) -> None:
        with self.changed:
            while True:
                while self.waiting and self.waiting[0][0] <= time.monotonic():
                    heapq.heappop(self.waiting)[2][0] = 1
                wait = self.waiting[0][0] - time.monotonic() if self.waiting else None
                self.changed.wait(wait)


_lock = fork_safety.lock()
_watches: list[_Watch] = []


def _watch() -> _Watch:
    with _lock:
        if not _watches or _watches[-1].pid != os.getpid():  # a forked child has none of its parent's threads
            _watches[:] = [_Watch()]
        return _watches[-1]


def checked_timeout(timeout: object) -> float:
    """Seconds of a timeout.

    Raises:
        WrongType: not a number.
        InvalidArgument: not above 0.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise WrongType(f"timeout: expected seconds, got {timeout!r}")
    if not timeout > 0:
        raise InvalidArgument(f"timeout: expected seconds above 0, got {timeout!r}")
    return float(timeout)


def making(seconds: float, setting: str, check: Callable[[], None]) -> Callable[[], None]:
    """What is called now and then while a session is made: `check`, and RunTimeout once the time is over."""
    end = time.monotonic() + seconds

    def watch() -> None:
        check()
        if time.monotonic() > end:
            raise RunTimeout(f"making the session takes over {seconds:g} s ({setting!r})")

    return watch


@contextmanager
def deadline(seconds: float, flag: array[int]) -> Iterator[None]:
    """Sets `flag[0]` to 1 once `seconds` are over, unless the block has ended before."""
    watch = _watch()
    entry = watch.add(time.monotonic() + seconds, flag)
    try:
        yield
    finally:
        watch.remove(entry)
