"""A separate process as its program sees it: started, called, waited for, and ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from intarsia import errors
from intarsia.cache.disk_cache import get_cache
from intarsia.errors import Fail, IntarsiaError, InvalidArgument
from intarsia.sandbox.messages import Channel, Ended, NotUnderstood

GRACE_SECONDS = 1.0  # after which what was told to stop is ended
_LOOK_SECONDS = 0.05  # how often whoever waits looks whether it is still wanted
_PIPE_NBYTES = 1 << 20
_ANSWER_NBYTES = 16 << 20  # of an answer beside results: signatures, explanations, errors
_SAID, _SAID_AT_ONCE = 2000, 1 << 16  # bytes of what a process said at its end, and of one reading of it
# What the process has of the program's environment: where libraries are, and what Python needs on Windows.
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SYSTEMDRIVE", "LANG", "LC_ALL", "INTARSIA_CPU_FEATURES")

Listener = Callable[[Any], None]


class ProcessEnded(Fail):
    """The process is not there any more."""


def _program() -> list[str]:
    """The command that starts the process: this interpreter, its path and nothing else of it.

    Raises:
        InvalidArgument: the program has no interpreter to start.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        raise InvalidArgument(
            "'untrusted.process' is '1', but this program is frozen: there is no Python interpreter to start a process with"
        )
    path = [str(Path(entry).absolute()) for entry in sys.path]
    start = f"import sys; sys.path[:] = {path!r}; from intarsia.sandbox.worker import main; main()"
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", start]


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    inherited["INTARSIA_COMPILER_PROCESSES"] = "0"  # it may start none
    cache = get_cache()
    if cache.place and not cache.refused:
        return {**inherited, "INTARSIA_CACHE_DIR": str(cache.place), "INTARSIA_CACHE_READ_ONLY": "1"}
    return {**inherited, "INTARSIA_CACHE": "0"}


class Process:
    """One process, which answers one question at a time.

    It ends when this object is closed or dropped, when the program ends, however that does, and when it does not keep
    to a time.
    """

    def __init__(self) -> None:
        posix = os.name != "nt"
        # For its last words. They come by a pipe, since it may write to no file; on Windows pipes cannot be polled.
        file = None if posix else tempfile.TemporaryFile()  # noqa: SIM115 # closed with the process
        try:
            self._popen = subprocess.Popen(  # our own interpreter
                _program(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file or subprocess.PIPE, bufsize=0,
                close_fds=True, env=_environment(), cwd=Path.cwd().anchor, start_new_session=posix,
                creationflags=0 if posix else getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )  # fmt: skip
        except OSError as error:
            if file is not None:
                file.close()
            raise Fail(f"no process could be started for the session: {error}") from error
        self._pid, self._calls, self._in_request, self._sends = os.getpid(), 0, threading.Lock(), False
        assert self._popen.stdin is not None and self._popen.stdout is not None
        reader, writer = os.dup(self._popen.stdout.fileno()), os.dup(self._popen.stdin.fileno())
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._said = _Said(file or self._popen.stderr)
        self._wait = _Wait(reader, writer, self._said)
        self._channel = Channel(reader, writer, self._wait.to_read, self._wait.to_write, None if posix else self._wait.before)
        self._end = weakref.finalize(self, _end, self._popen, self._channel, self._said, self._pid)
        _processes.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether it can be called: it lives, and this process has started it."""
        return self._end.alive and self._pid == os.getpid()

    def ask(
        self, question: dict[str, Any], arrays: Sequence[np.ndarray], seconds: float, check: Callable[[], None],
        *, doing: str, listen: Listener | None = None, most_nbytes: int = 0,
    ) -> tuple[dict[str, Any], list[np.ndarray]]:  # fmt: skip
        """The answer to a question.

        Args:
            seconds: the process is ended where it takes longer by `GRACE_SECONDS`.
            check: called now and then; what it raises is raised `GRACE_SECONDS` later, unless the process, which is told to
                stop, has answered by then.
            doing: what is done meanwhile, for messages.
            listen: gets what the process says before its answer.
            most_nbytes: of arrays and texts in the answer.

        Raises:
            IntarsiaError: what the process raised.
            ProcessEnded: it ended, by itself or by the system, or did not answer as it should.
            RunTimeout: it did not keep to the time.
            What `check` or `listen` raises.
        """
        self._take_turn(seconds, check, doing)
        try:
            self._calls += 1
            patience = self._wait.check = _Patience(self, seconds, check, doing)
            try:
                with _Alarm(self, seconds):
                    self._sends = True
                    self._channel.send({**question, "call": self._calls}, arrays)
                    self._sends = False
                    while True:
                        answer, buffers = self._channel.receive(most_nbytes + _ANSWER_NBYTES)
                        if "said" not in answer:
                            break
                        patience()  # it may say so much that nobody ever waits for it
                        if listen is not None:
                            listen(answer["said"])
            except Ended:
                raise self._ended(doing) from None
            except NotUnderstood as error:
                self.close()
                raise ProcessEnded(f"the session's process {doing} said what is no answer ({error}), and was ended") from error
            except BaseException:
                self.close()
                raise
        finally:
            self._wait.check = None
            self._in_request.release()
        if "error" in answer:
            if patience.unwanted is not None:
                raise patience.unwanted
            raise _error_of(answer["error"])
        return answer, buffers

    def _take_turn(self, seconds: float, check: Callable[[], None], doing: str) -> None:
        """Wait until nobody else's question is being answered."""
        end = time.monotonic() + seconds
        while not self._in_request.acquire(timeout=_LOOK_SECONDS):
            check()
            if time.monotonic() > end:
                raise errors.RunTimeout(f"the session's process was busy for other threads for {seconds:g} s, and not {doing}")

    def stop(self) -> None:
        """Ask it to stop what it does; nothing where it has not read all of the question."""
        if not self._sends:
            self._channel.send({"stop": self._calls})

    def _ended(self, doing: str) -> ProcessEnded:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(GRACE_SECONDS)
        code, said = self._popen.poll(), self._said.end()
        self.close()
        return ProcessEnded(f"the session's process {doing} {_how(code)}{f'. It said: {said}' if said else ''}")

    def close(self) -> None:
        """End it at once."""
        self._end()


class _Said:
    """What a process writes to its standard error, of which the end is held.

    Args:
        source: a pipe, which is read while answers are awaited, so that the process never waits for that; on Windows a file.
    """

    def __init__(self, source: Any) -> None:
        self.source, self.descriptor, self._tail = source, source.fileno(), b""
        if os.name != "nt":
            os.set_blocking(self.descriptor, False)

    def read(self) -> bytes | None:
        """Some of what there is; None where there is nothing now, nothing where there never will be."""
        try:
            found: bytes | None = self.source.read(_SAID_AT_ONCE)
        except (OSError, ValueError):  # ValueError: it is closed
            return b""
        self._tail = (self._tail + (found or b""))[-_SAID:]
        return found

    def end(self) -> str:
        """The last words of a process that has ended."""
        if os.name == "nt":
            with suppress(OSError, ValueError):
                self.source.seek(max(0, self.source.seek(0, os.SEEK_END) - _SAID))
        for _ in range(_PIPE_NBYTES // _SAID_AT_ONCE):
            if not self.read():
                break
        return self._tail.decode(errors="replace").strip()


class _Wait:
    """Waits for pipes, and looks meanwhile whether that is still wanted."""

    def __init__(self, reader: int, writer: int, said: _Said) -> None:
        self.reader, self.writer, self.said = reader, writer, said
        self.check: Callable[[], None] | None = None
        if os.name != "nt":
            for pipe in (reader, writer):
                os.set_blocking(pipe, False)
                _enlarge(pipe)

    def to_read(self) -> None:
        self._until(self.reader, select.POLLIN)

    def to_write(self) -> None:
        self._until(self.writer, select.POLLOUT)

    def _until(self, pipe: int, event: int) -> None:
        poll, said = select.poll(), self.said.descriptor
        poll.register(pipe, event)
        poll.register(said, select.POLLIN)
        while pipe not in (ready := dict(poll.poll(_LOOK_SECONDS * 1000))):
            if said in ready and self.said.read() == b"":
                poll.unregister(said)
            self._look()

    def _look(self) -> None:
        if self.check is not None:
            self.check()

    def before(self) -> None:
        """On Windows, where reading from a pipe cannot be made not to wait: wait until it will not."""
        if sys.platform == "win32":
            import _winapi
            import msvcrt

            handle, pause = msvcrt.get_osfhandle(self.reader), 1e-4
            while not _has_something(_winapi.PeekNamedPipe, handle):
                self._look()
                time.sleep(pause)
                pause = min(2 * pause, 2e-3)


def _has_something(peek: Callable[[int], tuple[int, ...]], handle: int) -> bool:
    try:
        return peek(handle)[0] > 0
    except OSError as error:
        raise Ended(str(error)) from error


_processes: weakref.WeakSet[Process] = weakref.WeakSet()


def _enlarge(pipe: int) -> None:
    """Let a pipe hold more, where the system has it."""
    fcntl: Any = None
    with suppress(ImportError):
        import fcntl
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_NBYTES)


def _end(popen: subprocess.Popen[bytes], channel: Channel, said: _Said, owner: int) -> None:
    channel.close()
    said.source.close()
    if owner == os.getpid():  # a forked child drops its copies, and leaves the process to its parent
        with suppress(OSError):
            popen.kill()
        with suppress(subprocess.TimeoutExpired):
            popen.wait(GRACE_SECONDS)
    else:
        popen.returncode = 0  # it is not this process's child: nothing to wait for


def _forget_in_child() -> None:
    for process in list(_processes):
        process.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class _Patience:
    """Called while an answer is awaited: ends the process that does not stop in time."""

    def __init__(self, process: Process, seconds: float, check: Callable[[], None], doing: str) -> None:
        self.process, self.check, self.doing, self.seconds = process, check, doing, seconds
        self.end = time.monotonic() + seconds + GRACE_SECONDS
        self.unwanted: BaseException | None = None

    def __call__(self) -> None:
        now = time.monotonic()
        if self.unwanted is None:
            try:
                self.check()
            except IntarsiaError as error:
                self.unwanted, self.end = error, min(self.end, now + GRACE_SECONDS)
                self.process.stop()
        if now > self.end:
            self.process.close()
            if self.unwanted is not None:
                raise self.unwanted
            raise errors.RunTimeout(f"the session's process {self.doing} took longer than {self.seconds:g} s, and was ended")


class _Alarm:
    """On Windows, where writing into a pipe cannot be given up, a timer ends the process."""

    def __init__(self, process: Process, seconds: float) -> None:
        needed = os.name == "nt"
        self.timer = threading.Timer(seconds + 2 * GRACE_SECONDS, process.close) if needed else None

    def __enter__(self) -> None:
        if self.timer is not None:
            self.timer.daemon = True
            self.timer.start()

    def __exit__(self, *_: object) -> None:
        if self.timer is not None:
            self.timer.cancel()


def _how(code: int | None) -> str:
    """How a process ended, and what that means."""
    if code is None:
        return "closed its pipes, and was ended"
    if code >= 0:
        shown = f"{code:#010x}" if code > 255 else str(code)
        return f"ended with exit code {shown}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hints = {
        "SIGKILL": "somebody ended it, the system perhaps, for want of memory",
        "SIGALRM": "it took longer than its time",
        "SIGABRT": "a library gave up, mostly for want of memory: see 'untrusted.memory_mib'",
        "SIGSEGV": "a fault of Intarsia or of a library that it uses: please report it",
        "SIGBUS": "a fault of Intarsia or of a library that it uses, or memory that the system could not give",
        "SIGXCPU": "it used more processor time than the system allows",
    }
    return f"was ended by {name}{f' ({hints[name]})' if name in hints else ''}"


def _error_of(found: Any) -> IntarsiaError:
    """The error that the process said it met: one of this package's, and nothing but its text."""
    try:
        name, text = map(str, found)
    except (TypeError, ValueError):
        name, text = "Fail", "the session's process met an error of which it does not say what"
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, IntarsiaError)):
        kind = Fail
    return kind(text)
