"""Processes that make a session a second time, kernels and all, and leave it in the cache, from where the session that started
them takes it.

One at a time, from a queue, so that a program that makes many sessions at once is not left without cores and memory; sessions
of the same model and options share one. What was begun is ended even when its session is gone: the next session of the model
begins from the cache then. So it is for some seconds after the program's own end (`session.compile_worker`). What was not, and
whose sessions are closed, is not begun: sessions that are still there come first.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from intarsia.cache.disk_cache import content_key
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

logger = get_logger("intarsia")

VARIABLE = "INTARSIA_COMPILER_PROCESSES"  # as kernels are compiled: 0 means that no process is to be started
MOST_BYTES = 32 << 20  # of a model that is given as bytes: the process has a copy


@dataclass(frozen=True)
class Waiter:
    """Who waits for a process.

    Attributes:
        done: told whether it ended well, on the queue's thread.
        wanted: whether anybody still waits.
    """

    done: Callable[[bool], None]
    wanted: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Request:
    """What a session is made of: the arguments of `InferenceSession`, whose providers are classes with their options.

    Attributes:
        source: an absolute path, or the model's bytes.
        options: a `SessionOptions`, without functions of the program.
    """

    source: str | bytes
    options: Any
    providers: tuple[tuple[type[Any], dict[str, Any]], ...]
    disabled: tuple[str, ...]


def can_be_started() -> bool:
    """Whether this system and program have processes of their own for compiling."""
    python = os.path.basename(sys.executable or "")  # noqa: PTH119
    wanted = os.environ.get(VARIABLE, "").strip() != "0"
    return sys.platform == "linux" and wanted and python.startswith("python") and not getattr(sys, "frozen", False)


def packed(request: Request) -> bytes | None:
    """The request as bytes; None where another process cannot have it."""
    if isinstance(request.source, bytes) and len(request.source) > MOST_BYTES:
        return None
    try:
        return pickle.dumps(request, 5)
    except (pickle.PicklingError, TypeError, AttributeError):  # it has functions of the program
        return None


class _Job:
    """A request that waits or is worked on, and who is to be told."""

    def __init__(self, request: bytes, before: Callable[[], object]) -> None:
        self.request, self.before = request, before
        self.waiting: list[Waiter] = []

    def wanted(self) -> bool:
        """Whether anybody still waits for it."""
        return any(waiter.wanted() for waiter in self.waiting)

    def run(self) -> bool:
        """Whether a process did it."""
        self.before()
        import subprocess  # 2 ms, which no first run waits for

        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100
        start = f"import sys; sys.path[:] = {path!r}; from intarsia.session.compile_worker import main; main({os.getpid()})"
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", start]
        try:
            # The request is in memory that the process has from its beginning on: this one may end at any time.
            with os.fdopen(os.memfd_create("intarsia-request"), "w+b") as file:
                file.write(self.request)
                file.seek(0)
                # A session of its own, so that Ctrl-C of a terminal reaches this process alone. What it has to say is raised
                # again by the session, which compiles in a thread of its own then.
                process = subprocess.Popen(
                    command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
            logger.info("process %d compiles kernels; runs are the first tier's meanwhile", process.pid)
            return process.wait() == 0
        except OSError as error:
            logger.info("a process for kernels cannot be had (%s)", error)
            return False


class CompileQueue:
    """The requests of this process, in order. Thread-safe."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with none: in a forked child, whose they are not."""
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._working = False

    def ask(self, request: bytes, before: Callable[[], object], waiter: Waiter) -> None:
        """Have a process do it, where none has it yet, after `before`, and tell the waiter."""
        key = content_key(request)
        with self._lock:
            job = self._jobs.setdefault(key, _Job(request, before))
            job.waiting.append(waiter)
            begins, self._working = not self._working, True
        if begins:
            # Nothing has to wait for it at the interpreter's end: it does no more than wait for the process.
            thread = threading.Thread(target=self._work, name="intarsia-compile-queue", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has none left: the next request tries again
                with self._lock:
                    self._jobs.clear()
                    self._working = False
                raise

    def _work(self) -> None:
        while True:
            with self._lock:
                self._jobs = {key: job for key, job in self._jobs.items() if job.wanted()}
                key, job = next(iter(self._jobs.items()), ("", None))
                if job is None:
                    self._working = False
                    return
            try:
                made = job.run()
            except Exception as error:  # noqa: BLE001 # whatever it is, somebody waits to be told
                logger.warning("a process for kernels failed, a thread compiles: %s: %s", type(error).__name__, error)
                made = False
            with self._lock:
                del self._jobs[key]
            for waiter in job.waiting:
                with suppress(RuntimeError):  # the interpreter is ending, and begins no threads any more
                    waiter.done(made)


_queue = CompileQueue()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_queue.forget)


def queue() -> CompileQueue:
    """The process's own."""
    return _queue
