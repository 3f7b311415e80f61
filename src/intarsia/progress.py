"""How far the making of a session has come, and the wish to stop it.

Long stages call `step`; who makes the session listens by `reported`. Where nobody listens, a call costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from intarsia.errors import ModelLoadCanceled
from intarsia.lazy_dataclass import dataclass
from intarsia.run_status import CURRENT_RUN

# Stages in order, and what part of the time they take, roughly, where kernels have to be compiled.
STAGES: dict[str, float] = {"load": 0.05, "optimize": 0.1, "lower": 0.15, "compile": 0.7}
READY = "ready"


@dataclass(frozen=True)
class LoadProgress:
    """A point on the way to a session.

    Attributes:
        stage: "load", "optimize", "lower" (kernels are written and weights packed), "compile" (machine code), "ready".
        done, total: within the stage: phases, groups of nodes, kernels; total 0: not known.
        fraction: of all stages, from 0 to 1; it never falls while one session is made.
        part: number of the part of the model, where providers share it.
    """

    stage: str
    done: int
    total: int
    fraction: float
    part: int = 0


Callback = Callable[[LoadProgress], object]


class Listener:
    """Tells `callback` of each step; raises ModelLoadCanceled where it returns False, or where `check` does."""

    def __init__(self, callback: Callback | None, check: Callable[[], None]) -> None:
        self.callback, self.check = callback, check
        self.fraction, self.part = 0.0, 0
        self.failure: BaseException | None = None

    def step(self, stage: str, done: int, total: int) -> None:
        try:
            self.check()
            if self.callback is not None:
                self._tell(self.callback, stage, done, total)
        except BaseException as failure:
            self.failure = failure
            raise

    def _tell(self, callback: Callback, stage: str, done: int, total: int) -> None:
        names = list(STAGES)
        if stage == READY:
            self.fraction = 1.0
        else:
            before = sum(STAGES[name] for name in names[: names.index(stage)])
            self.fraction = max(self.fraction, before + STAGES[stage] * (done / total if total else 0.0))
        if callback(LoadProgress(stage, done, total, min(self.fraction, 1.0), self.part)) is False:
            raise ModelLoadCanceled("making the session was stopped: the progress callback returned False")


_listener: ContextVar[Listener | None] = ContextVar("intarsia progress", default=None)


@contextmanager
def reported(callback: Callback | None, check: Callable[[], None]) -> Iterator[None]:
    """Steps within the block go to a `Listener` with these, unless there is one already."""
    if _listener.get() is not None:
        yield
        return
    token = _listener.set(Listener(callback, check))
    try:
        yield
    finally:
        _listener.reset(token)


def step(stage: str, done: int = 0, total: int = 0) -> None:
    """Say how far a stage has come.

    Raises:
        ModelLoadCanceled: the session is not wanted any more.
        What the listener's callback raises.
    """
    listener = _listener.get()
    if listener is not None:
        listener.step(stage, done, total)


def check() -> None:
    """Stop here where the session is not wanted any more, within a step; or the run that this thread works for.

    Raises:
        As `step`, or `CURRENT_RUN`'s `check`.
    """
    listener = _listener.get()
    if listener is not None:
        try:
            listener.check()
        except BaseException as failure:
            listener.failure = failure
            raise
    elif run := CURRENT_RUN.get():
        run.check()


def begin_part(number: int) -> None:
    """The steps that follow are of another part of the model."""
    listener = _listener.get()
    if listener is not None:
        listener.part = number


def stopped_by(error: BaseException) -> bool:
    """Whether `error` comes from who listens, and is no failure of what was being done."""
    listener = _listener.get()
    return listener is not None and listener.failure is error
