"""A model that is compiled elsewhere, while the first tier, slower and ready at once, serves runs.

Elsewhere is a process (`compile_process`) that leaves the compiled model in the cache. Where none can be had, or what it made
is not there, it is a thread of this process, which shares Python's lock with runs.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import ref

from intarsia import progress
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import BoundCall, RunContext
from intarsia.errors import Fail, ModelLoadCanceled, OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety

if TYPE_CHECKING:
    import numpy as np

    from intarsia.ep.program import Program
    from intarsia.model.compile_process import Waiter
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.model.single_program_model import DirectModel

KEY = "session.compile_in_background"
FIRST_ONLY = "session.first_tier_only"
KEYS = (KEY, FIRST_ONLY)  # which change nothing of what is compiled
_SECONDS_TO_RUN = 0.2  # after the session is made in which a first run has the cores and Python's lock for itself
_SECONDS_OF_RUN = 5.0  # that it may take so
_PATIENCE_SECONDS = 1.0  # a run that has taken longer when the model is compiled is begun again

InProcess = Callable[[Callable[[], object], "Waiter"], None]
"""Has a process compile, after the first argument came back, and tells the second whether it did."""


class _OvertakenError(Fail):
    """The compiled model was ready before the stand-in's run ended."""


class _Race(RunContext):
    """A caller's run, which is stopped as well once `over` is set and it has gone on for long."""

    __slots__ = ("over", "patient_until")

    def __init__(self, run: RunContext | None, over: threading.Event) -> None:
        if run is None:
            super().__init__()
        else:
            super().__init__(run.options, run.config, run.flag, run.timeout, run.trips)
        self.over, self.patient_until = over, time.monotonic() + _PATIENCE_SECONDS

    @property
    def terminated(self) -> bool:
        overtaken = self.over.is_set() and time.monotonic() > self.patient_until
        return overtaken or super().terminated

    def stopped(self) -> Fail:
        return super().stopped() if super().terminated else _OvertakenError("the model is compiled")


@dataclass(frozen=True)
class Compilation:
    """How a model is compiled for sessions that are used meanwhile.

    Attributes:
        here: compiles in this process; the listener of `progress` is the thread's own.
        in_process: where a process is to do it instead; None: none can.
        found: what that left in the cache, or None.
    """

    here: Callable[[], CompiledModel]
    in_process: InProcess | None = None
    found: Callable[[], DirectModel | None] | None = None


class Underway:
    """A `Runnable` whose runs are the stand-in's until the compiled model is there.

    A run that has gone on for a second then is begun again on the compiled model, which is sooner done than the rest of it.

    Args:
        standin: runs whatever the model runs.
        compilation: how it is compiled.
        report: a callback of `LoadProgress`, called on the thread that compiles or takes over what a process has compiled.
        wanted: whether anybody still waits; called between the stages.
        ready: called on the same thread with the compiled model.

    Attributes:
        runs: how many the stand-in has begun.
    """

    partition = awaits = None
    programs: tuple[Program, ...] = ()
    fast_calls = ()

    def __init__(
        self,
        standin: CompiledModel,
        compilation: Compilation,
        report: progress.Callback | None,
        wanted: Callable[[Underway], bool],
        ready: Callable[[Underway, Runnable], None],
    ) -> None:
        self.inputs, self.outputs = standin.inputs, standin.outputs
        self._standin: CompiledModel | None = standin
        self._report, self._wanted, self._ready = report, wanted, ready
        self._compilation: Compilation | None = compilation
        self._lock = fork_safety.lock()
        self._pid = 0
        self.runs = 0

    def start(self) -> None:
        """Begin to compile. At the interpreter's end a thread stops at its next stage, and nobody waits for a process."""
        self._over = threading.Event()
        self._running, self._undisturbed = threading.Event(), threading.Event()  # a first run is there; none is, or any more
        self._made: CompiledModel | DirectModel | None = None
        self._failure: BaseException | None = None
        self._pid = os.getpid()
        compilation = self._compilation
        assert compilation is not None
        if compilation.in_process is None:
            self._in_thread(compilation)
            return
        from intarsia.model.compile_process import Waiter

        before, session = _first_run_of(self._running, self._undisturbed), ref(self)

        def done(cached: bool) -> None:
            underway = session()
            if underway is not None and underway._compilation is not None:
                compilation = underway._compilation
                underway._in_thread(compilation if cached else replace(compilation, found=None))

        def wanted() -> bool:
            underway = session()
            return underway is not None and underway._wanted(underway)

        compilation.in_process(before, Waiter(done, wanted))

    def _in_thread(self, compilation: Compilation) -> None:
        work = contextvars.Context().run
        threading.Thread(target=work, args=(self._work, compilation), name="intarsia-compile", daemon=False).start()

    def _work(self, compilation: Compilation) -> None:
        self._compilation = None  # with the graph that it is for
        if compilation.in_process is None:
            _first_run_of(self._running, self._undisturbed)()
        try:
            with progress.reported(self._report, self._check):
                made = self._result(compilation)
                progress.step(progress.READY)
            self._made, self._standin = made, None
            self._ready(self, made)
        except BaseException as failure:  # noqa: BLE001 # raised by the next run
            self._failure = failure
        self._over.set()

    def _result(self, compilation: Compilation) -> CompiledModel | DirectModel:
        if compilation.found is not None:
            self._check()
            made = compilation.found()
            if made is not None:
                return made
        return compilation.here()

    def _check(self) -> None:
        if not self._wanted(self) or not threading.main_thread().is_alive():
            raise ModelLoadCanceled("the session that was being compiled is not there any more")

    def _anew_where_forked(self) -> None:
        """Where this process was forked from the one that has it compiled: have it compiled for this one.

        Raises:
            Fail: a thread compiles, which is the parent's.
        """
        if self._pid == os.getpid() or self._made is not None or self._failure is not None:
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            if self._compilation is None or self._compilation.in_process is None:
                raise Fail(
                    "the process was forked while the session was being compiled, and the thread that does it is the parent's: "
                    "fork after wait_until_compiled(), or make a new session in the child"
                )
            self.start()

    def finished(self, timeout: float | None = None) -> CompiledModel | DirectModel:
        """The compiled model.

        Raises:
            TimeoutError: it takes more than `timeout` seconds.
            Fail: the process was forked meanwhile; the thread is the parent's.
            What compiling raised.
        """
        self._anew_where_forked()
        self._running.set()
        self._undisturbed.set()
        if not self._over.wait(timeout):
            raise TimeoutError(f"the session is not compiled after {timeout:g} s")
        if self._made is not None:
            return self._made
        assert self._failure is not None
        raise self._failure.with_traceback(None)

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        """As `CompiledModel.run`."""
        return self._sooner(lambda model, context: model.run(inputs, context), run)

    def run_some(
        self, wanted: tuple[str, ...], inputs: Sequence[Any], run: RunContext | None = None, stay: frozenset[str] = frozenset()
    ) -> list[Any]:
        """As `CompiledModel.run_some`; with results or inputs on a device only once the model is compiled."""
        if stay or any(isinstance(x, DeviceTensor) for x in inputs):
            return self.finished().run_some(wanted, inputs, run, stay)
        return self._sooner(lambda model, context: model.run_some(wanted, inputs, context), run)

    def _sooner(self, work: Callable[[Runnable, RunContext | None], list[Any]], run: RunContext | None) -> list[Any]:
        if self._pid != os.getpid():
            with suppress(Fail):  # runs stay on what is there
                self._anew_where_forked()
        standin = self._standin
        if standin is not None and not self._over.is_set():
            self._running.set()
            self.runs += 1
            left = run.trips_left if run is not None else 0
            try:
                return work(standin, _Race(run, self._over))
            except (_OvertakenError, OutOfMemory):  # the compiled model may need less
                if run is not None and run.trips is not None and run.flag is not None:
                    run.flag[1] = left
            finally:
                self._undisturbed.set()
        return work(self.finished(), run)

    def expect_feed(self, inputs: Sequence[Any]) -> None:
        """Nothing: there is no function before the model is compiled."""

    def expect_sizes(self) -> None:
        """Nothing, as for given inputs."""

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        """None: `run` says who computes them."""
        return None

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        """None: later runs through a binding ask again."""
        return None


def _first_run_of(running: threading.Event, undisturbed: threading.Event) -> Callable[[], None]:
    """Waits until a session's first run is over, where there is one soon."""

    def wait() -> None:
        if running.wait(_SECONDS_TO_RUN):
            undisturbed.wait(_SECONDS_OF_RUN)

    return wait
