"""The threads of asynchronous runs, which do not keep a program from ending."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

from intarsia.machine import fork_safety

_T = TypeVar("_T")

GRACE_SECONDS = 3.0  # how long the end of a program waits for runs that have begun


class AsyncThreads(Executor):
    """Up to `count` daemon threads, started as they are needed. At the program's end what has begun has `GRACE_SECONDS`."""

    def __init__(self, count: int) -> None:
        self._count, self._pid = count, os.getpid()
        self._lock = fork_safety.lock()
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._open: set[Future[Any]] = set()
        self._threads: list[threading.Thread] = []
        atexit.register(self._finish)

    def submit(self, function: Callable[..., _T], /, *args: Any, **keywords: Any) -> Future[_T]:
        """Call a function on one of the threads."""
        future = Future[_T]()
        with self._lock:
            self._open.add(future)
            self._waiting.put((future, lambda: function(*args, **keywords)))
            if len(self._threads) < min(self._count, len(self._open)):
                thread = threading.Thread(target=self._serve, name=f"intarsia-async-{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
        return future

    def _serve(self) -> None:
        while True:
            future, work = self._waiting.get()
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(work())
            except BaseException as error:  # noqa: BLE001 # for who waits for it
                future.set_exception(error)
            with self._lock:
                self._open.discard(future)
            del future, work

    def _finish(self) -> None:
        """The program ends: wait a while for what has begun. What is left in native code the executor stops."""
        if self._pid != os.getpid():
            return
        with self._lock:
            left = list(self._open)
        wait([future for future in left if not future.cancel()], GRACE_SECONDS)
