"""Asynchronous runs, on threads that do not keep a program from ending."""

from __future__ import annotations

import atexit
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

from intarsia.errors import IntarsiaError, InvalidArgument, WrongType
from intarsia.machine import fork_safety
from intarsia.options.session_options import RunOptions
from intarsia.values.feeds import missing_inputs

_T = TypeVar("_T")
Callback = Callable[[list[Any], Any, str], None]

GRACE_SECONDS = 3.0  # how long the end of a program waits for a run to end, again after each that does
_LOOKS = 150  # in which these are counted, as a machine that stands still lets them pass at once by the clock


class AsyncThreads(Executor):
    """Up to `count` daemon threads, started as they are needed. The program's end waits as long as one ends within
    `GRACE_SECONDS`."""

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
        """The program ends: wait for what was requested while it comes. What is left in native code the executor stops."""
        if self._pid != os.getpid():
            return
        with self._lock:
            left = set(self._open)
        looks = 0
        while left and looks < _LOOKS:
            found = wait(left, GRACE_SECONDS / _LOOKS)
            looks = 0 if found.done else looks + 1
            left = found.not_done
        for future in left:
            future.cancel()


class _Threads:
    """The threads of asynchronous runs; new ones in a forked child."""

    lock = fork_safety.lock()
    pool: AsyncThreads | None = None
    pid = 0


_MOST = 8


def _pool() -> AsyncThreads:
    with _Threads.lock:
        if _Threads.pool is None or _Threads.pid != os.getpid():
            count = min(_MOST, os.cpu_count() or 1)
            _Threads.pool, _Threads.pid = AsyncThreads(max(2, count)), os.getpid()
        return _Threads.pool


class AsyncRuns:
    """`run` of a session on other threads."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self._run = run

    def call_back(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        options: RunOptions | None,
        inputs: Sequence[Any],
    ) -> None:
        """As `InferenceSession.run_async`, of a session with these inputs."""
        if not callable(callback):
            raise WrongType(f"run_async: expected a function for callback, got {callback!r}")
        if isinstance(feed, Mapping):
            _check_complete(inputs, feed)

        def work() -> None:
            try:
                results, error = self._run(output_names, feed, options), ""
            except IntarsiaError as failure:
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        _pool().submit(_reporting, contextvars.copy_context(), work)

    async def wait_for(
        self, output_names: Sequence[str] | None, feed: Any, options: RunOptions | None, arguments: dict[str, Any]
    ) -> list[Any]:
        """As `InferenceSession.arun`."""
        import asyncio  # which is large

        options = options if options is not None else RunOptions()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(_pool(), lambda: self._run(output_names, feed, options, **arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                options.terminate = True
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise


def _check_complete(inputs: Sequence[Any], feed: Mapping[str, Any]) -> None:
    needed = [a.name for a in inputs if not a.type.startswith("optional")]
    missing = [name for name in needed if name not in feed]
    if missing:
        raise InvalidArgument(missing_inputs(missing, feed, [(a.name, f"{a.type} {a.shape}") for a in inputs]))


def _reporting(context: contextvars.Context, work: Callable[[], None]) -> None:
    """Run `work`; an exception of the caller's function is reported as those of threads are."""
    try:
        context.run(work)
    except BaseException as error:  # noqa: BLE001 # there is no caller it could be raised to
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread())))
