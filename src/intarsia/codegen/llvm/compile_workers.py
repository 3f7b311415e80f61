"""Processes that compile kernels, so that LLVM and what it works on (100 MB and more) stay out of the process that runs models.

A process is started when a kernel is to be compiled and none is free. Those that are free end some seconds after the last
compilation, and all of them with this process. A crash of LLVM ends one of them and is an error here. Where processes cannot be
had (systems other than Linux, frozen programs, INTARSIA_COMPILER_PROCESSES=0) this process compiles itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from intarsia.codegen.llvm import compile_ir
from intarsia.codegen.llvm.executable_memory import has_function
from intarsia.errors import EPFail, InvalidArgument
from intarsia.machine.resources import available_cores
from intarsia.printable import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia.codegen.llvm.compile_ir import Request

logger = get_logger("intarsia")

_T = TypeVar("_T")

VARIABLE = "INTARSIA_COMPILER_PROCESSES"
LINGER_SECONDS = 5.0
_READ_NBYTES = 1 << 16  # at once: a pipe's


_shares_session = False


def share_session() -> None:
    """Let processes that are started from now on be of this one's session: it has none of a terminal, and cores are shared
    among sessions first."""
    global _shares_session  # noqa: PLW0603 # it concerns the whole process
    _shares_session = True


class CannotStart(Exception):
    """A process did not begin as one that compiles; the message says why."""


class _Died(Exception):
    """A process ended before it answered; the message says how."""


class _Process:
    """A process that runs `compile_ir.py`."""

    def __init__(self, folder: str) -> None:
        import subprocess

        command = [sys.executable, "-I", "-S", compile_ir.__file__, folder]
        try:
            # A session of its own: Ctrl-C of a terminal reaches this process, which ends the other.
            # Files without buffers, whose locks a forked child might find taken.
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=not _shares_session, bufsize=0
            )
        except OSError as error:
            raise CannotStart(f"{command[0]!r} cannot be started: {error}") from error
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        self._facts: tuple[str, str, str, str] | None = None
        self.stopped = False

    @property
    def facts(self) -> tuple[str, str, str, str]:
        """`compile_ir.facts` there.

        Raises:
            CannotStart: it ended, or is another program.
        """
        if self._facts is None:
            try:
                found = self._answer()
            except _Died as error:
                raise CannotStart(str(error)) from error
            if not isinstance(found, tuple):
                raise CannotStart("it is another program")
            self._facts = found
        return self._facts

    def compiled(self, request: Request) -> bytes | str:
        """An object file, or why there is none."""
        assert self.facts
        try:
            rest = memoryview(compile_ir.packed(tuple(request)))
            while rest:
                rest = rest[self._stdin.write(rest) :]
        except OSError as error:
            raise _Died(self._how()) from error
        answer: bytes | str = self._answer()
        return answer

    def _answer(self) -> Any:
        try:
            return compile_ir.received(self._read)
        except (EOFError, OSError) as error:
            raise _Died(self._how()) from error
        except (ValueError, TypeError) as error:
            raise _Died("what it wrote is no answer") from error

    def _read(self, nbytes: int) -> bytes:
        parts = []
        while nbytes:
            part = self._stdout.read(min(nbytes, _READ_NBYTES))
            if not part:
                raise EOFError
            parts.append(part)
            nbytes -= len(part)
        return b"".join(parts)

    def _how(self) -> str:
        code = self._popen.wait()
        if code >= 0:
            return f"it ended with code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"it was ended by {name}" + (", which is what a system out of memory does" if name == "SIGKILL" else "")

    def stop(self) -> None:
        """Kill it; the thread that waits for its answer gets an error."""
        self.stopped = True
        self._popen.kill()

    def end(self) -> None:
        """Kill it, and leave nothing of it."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # what was not yet written
                pipe.close()

    def forget(self) -> None:
        """Let go of it in a forked child, whose it is not."""
        self._popen.returncode = 0
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Compilers:
    """The processes of this one. Thread-safe."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Process] = []
        self._busy: dict[_Process, object] = {}  # and for whom
        self._timer: threading.Timer | None = None
        self._unusable = ""  # why no process can be had

    def compiled(self, request: Request, owner: object = None) -> bytes:
        """The object file of a kernel. `owner`: what `stop` knows it by.

        Raises:
            EPFail: LLVM is missing, rejects the text, or crashes.
        """
        answer = self._answered(lambda process: process.compiled(request), f"compiling kernel {request.symbol!r}", owner)
        if answer is None:
            try:
                return compile_ir.compiled(request, has=has_function)
            except compile_ir.CompileError as error:
                raise EPFail(str(error)) from error
        if isinstance(answer, str):
            raise EPFail(answer)
        return answer

    def facts(self) -> tuple[str, str, str, str]:
        """This machine as LLVM sees it: triple, CPU, features; and LLVM's version."""
        return self._answered(lambda process: process.facts, "looking at the CPU") or compile_ir.facts()

    def _answered(self, question: Callable[[_Process], _T], what: str, owner: object = None) -> _T | None:
        """A process's answer, or None where none can be had."""
        while True:
            process, fresh = self._borrowed(owner)
            if process is None:
                return None
            answered = False
            try:
                answer = question(process)
                answered = True
            except CannotStart as error:
                if process.stopped:
                    raise EPFail(f"{what}: it was stopped") from error
                self._unusable = str(error)
                logger.info("kernels are compiled in this process: a process for it cannot be had (%s)", error)
                return None
            except _Died as error:
                if fresh or process.stopped:
                    raise EPFail(
                        f"{what}: the compiler's process ended ({error}); {VARIABLE}=0 compiles in this process instead"
                    ) from error
                continue  # it may have ended long ago
            finally:
                self._returned(process, answered)
            return answer

    def _returned(self, process: _Process, answered: bool) -> None:
        """It is free, unless it did not answer, or `stop` killed it as it did: nobody else is to meet that."""
        with self._lock:
            del self._busy[process]
            if answered and not process.stopped:
                self._free.append(process)
                return
        process.end()

    def _borrowed(self, owner: object) -> tuple[_Process | None, bool]:
        """A process and whether it is new."""
        with self._lock:
            if self._unusable or not (folder := _folder()):
                return None, True
            if self._free:
                process, fresh = self._free.pop(), False
            else:
                try:
                    process, fresh = _Process(folder), True
                except CannotStart as error:
                    self._unusable = str(error)
                    return None, True
            self._busy[process] = owner
            return process, fresh

    def expect(self, most: int = 2) -> bool:
        """Start processes, up to `most`, that somebody is going to ask soon: they load LLVM meanwhile. False where none can be
        had."""
        with self._lock:
            while len(self._free) + len(self._busy) < min(most, _limit()) and not self._unusable and (folder := _folder()):
                try:
                    self._free.append(_Process(folder))
                except CannotStart as error:
                    self._unusable = str(error)
            found = bool(self._free or self._busy)
        self.done()
        return found

    def stop(self, owner: object) -> None:
        """End those that compile for `owner`, who waits for them no more."""
        with self._lock:
            for process, other in self._busy.items():
                if other is owner:
                    process.stop()

    def done(self) -> None:
        """End those that are free, unless somebody compiles again soon."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._free:
                self._timer = threading.Timer(LINGER_SECONDS, self.close)
                self._timer.daemon = True
                with contextlib.suppress(RuntimeError):  # the interpreter is ending: `close` will be called
                    self._timer.start()

    def close(self) -> None:
        """End those that are free."""
        with self._lock:
            while self._free:
                self._free.pop().end()

    def forked(self) -> None:
        """The processes are the parent's."""
        for process in (*self._free, *self._busy):
            process.forget()
        self._begin()


def at_once() -> int:
    """How many kernels are compiled at the same time."""
    return max(1, _limit())


def _limit() -> int:
    text = os.environ.get(VARIABLE, "").strip()
    if text and not text.isdecimal():
        raise InvalidArgument(f"{VARIABLE} is {text!r}; expected the most processes that compile at once, or 0 for none")
    return min(int(text), available_cores()) if text else available_cores()


def _folder() -> str:
    """Where a process finds llvmlite; "" where none is to be started."""
    if sys.platform != "linux" or getattr(sys, "frozen", False) or not _limit():
        return ""
    python = os.path.basename(sys.executable or "")  # noqa: PTH119
    spec = find_spec("llvmlite")
    if not python.startswith("python") or not os.path.isfile(compile_ir.__file__) or not spec or not spec.origin:  # noqa: PTH113
        return ""
    return os.path.dirname(os.path.dirname(spec.origin))  # noqa: PTH120


_compilers = Compilers()
atexit.register(_compilers.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compilers.forked)


def compilers() -> Compilers:
    """The process's own."""
    return _compilers
