"""A model that is compiled on a thread of its own, while the first tier, slower and ready at once, serves runs."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia import progress
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import BoundCall, RunContext
from intarsia.errors import Fail, ModelLoadCanceled, OutOfMemory

if TYPE_CHECKING:
    import numpy as np

    from intarsia.ep.program import Program
    from intarsia.model.compiled_model import CompiledModel

KEY = "session.compile_in_background"
_SECONDS_TO_RUN = 0.2  # after the session is made in which a first run has the cores and Python's lock for itself
_SECONDS_OF_RUN = 5.0  # that it may take so


class _OvertakenError(Fail):
    """The compiled model was ready before the stand-in's run ended."""


class _Race(RunContext):
    """A caller's run, which is stopped as well once `over` is set."""

    __slots__ = ("over",)

    def __init__(self, run: RunContext | None, over: threading.Event) -> None:
        if run is None:
            super().__init__()
        else:
            super().__init__(run.options, run.config, run.flag, run.timeout, run.trips)
        self.over = over

    @property
    def terminated(self) -> bool:
        return self.over.is_set() or super().terminated

    def stopped(self) -> Fail:
        return super().stopped() if super().terminated else _OvertakenError("the model is compiled")


class Underway:
    """A `Runnable` whose runs are the stand-in's until the compiled model is there.

    A run that is going on then is begun again on the compiled model, which is sooner done than the rest of it.

    Args:
        standin: runs whatever the model runs.
        make: compiles, on the thread; the listener of `progress` is the thread's own.
        report: a callback of `LoadProgress`, called on the thread.
        wanted: whether anybody still waits; asked between the stages.
        ready: called on the thread with the compiled model.
    """

    partition = awaits = None
    programs: tuple[Program, ...] = ()
    fast_calls = ()

    def __init__(
        self,
        standin: CompiledModel,
        make: Callable[[], CompiledModel],
        report: progress.Callback | None,
        wanted: Callable[[Underway], bool],
        ready: Callable[[Underway, CompiledModel], None],
    ) -> None:
        self.inputs, self.outputs = standin.inputs, standin.outputs
        self._standin, self._make, self._report, self._wanted, self._ready = standin, make, report, wanted, ready
        self._over = threading.Event()
        self._running, self._undisturbed = threading.Event(), threading.Event()  # a first run is there; none is, or any more
        self._made: CompiledModel | None = None
        self._failure: BaseException | None = None
        self._pid = 0

    def start(self) -> None:
        """Begin to compile. At the interpreter's end the thread stops at its next stage."""
        self._pid = os.getpid()
        work = contextvars.Context().run
        threading.Thread(target=work, args=(self._work,), name="intarsia-compile", daemon=False).start()

    def _work(self) -> None:
        make = self._make
        del self._make  # with the graph that it is for
        if self._running.wait(_SECONDS_TO_RUN):
            self._undisturbed.wait(_SECONDS_OF_RUN)
        try:
            with progress.reported(self._report, self._check):
                made = make()
                progress.step(progress.READY)
            self._made = made
            self._ready(self, made)
        except BaseException as failure:  # noqa: BLE001 # raised by the next run
            self._failure = failure
        self._over.set()

    def _check(self) -> None:
        if not self._wanted(self) or not threading.main_thread().is_alive():
            raise ModelLoadCanceled("the session that was being compiled is not there any more")

    def finished(self, timeout: float | None = None) -> CompiledModel:
        """The compiled model.

        Raises:
            TimeoutError: it takes more than `timeout` seconds.
            Fail: the process was forked meanwhile; the thread is the parent's.
            What compiling raised.
        """
        if self._made is None and self._failure is None and self._pid != os.getpid():
            raise Fail(
                "the process was forked while the session was being compiled, and the thread that does it is the parent's: "
                "fork after wait_until_compiled(), or make a new session in the child"
            )
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

    def _sooner(self, work: Callable[[CompiledModel, RunContext | None], list[Any]], run: RunContext | None) -> list[Any]:
        if not self._over.is_set():
            self._running.set()
            left = run.trips_left if run is not None else 0
            try:
                return work(self._standin, _Race(run, self._over))
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
