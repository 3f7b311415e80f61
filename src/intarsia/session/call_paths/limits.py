"""Limits of runs: of time, of trips of loops, of results and of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from intarsia.ep.program import RunContext
from intarsia.machine.resources import ACCOUNT
from intarsia.model.run_timeout import checked_timeout, deadline
from intarsia.run_status import new_flag

if TYPE_CHECKING:
    from array import array

    from intarsia.options.session_options import RunOptions
    from intarsia.session.call_paths.model_calls import Limit, ModelCall
    from intarsia.session.local_engine import LocalEngine

    GoOn = Callable[[ModelCall], list[Any]]


def limits_of(engine: LocalEngine) -> tuple[Limit, ...]:
    """Those that every run of a session has, from the outermost inwards. Each makes a call what it may be, and goes on."""
    limits: list[Limit] = []
    if engine.options.untrusted:
        limits.append(_of_time)
    if engine.trips is not None:
        limits.append(_of_trips)
    if engine.options.untrusted:
        limits.append(_of_results)
    if engine.arena().account is not None:
        limits.append(_of_memory)
    return tuple(limits)


@contextmanager
def deadline_context(options: RunOptions | None, timeout: float, trips: tuple[int, str] | None = None) -> Iterator[RunContext]:
    """The context of a run that is stopped after `timeout` seconds, or as its options say.

    Raises:
        WrongType, InvalidArgument: the timeout.
    """
    seconds, flag = checked_timeout(timeout), _flag(trips)
    config = options.config_entries() if options is not None else None
    run = RunContext(options, config, flag, seconds, trips)
    if options is not None:
        options.follow(flag)
    try:
        with deadline(seconds, flag):
            yield run
    finally:
        if options is not None:
            options.unfollow(flag)


def _of_time(engine: LocalEngine, call: ModelCall, go_on: GoOn) -> list[Any]:
    """The seconds of an untrusted session, for a run that has no timeout of its own."""
    from intarsia.model.untrusted import SECONDS, limit

    if call.run is not None and call.run.timeout is not None:
        return go_on(call)
    options = call.run.options if call.run is not None else None
    with deadline_context(options, limit(engine.options, SECONDS), engine.trips) as run:
        return go_on(call._replace(run=run))


def _of_trips(engine: LocalEngine, call: ModelCall, go_on: GoOn) -> list[Any]:
    """Trips of loops, for a run without a timeout: its context counts them otherwise."""
    run = call.run
    if run is not None and run.trips is not None:
        return go_on(call)
    options, flag = run.options if run is not None else None, _flag(engine.trips)
    if options is not None:
        options.follow(flag)
    try:
        config = run.config if run is not None else None
        return go_on(call._replace(run=RunContext(options, config, flag, None, engine.trips)))
    finally:
        if options is not None:
            options.unfollow(flag)


def _of_results(engine: LocalEngine, call: ModelCall, go_on: GoOn) -> list[Any]:
    """The bytes of an untrusted session's results; looked at behind the limit of memory, under which a run may begin again."""
    from intarsia.model.untrusted import check_results

    results = go_on(call)
    if not _is_counted(engine):
        check_results(results, engine.options)
    return results


def _of_memory(engine: LocalEngine, call: ModelCall, go_on: GoOn) -> list[Any]:
    """Memory, which is counted. Where a run does not have enough, idle memory of intermediate tensors is freed, and it
    begins once more."""
    account = engine.arena().account
    if account is None or _is_counted(engine):
        return go_on(call)
    try:
        with account.counting():
            return go_on(call)
    except MemoryError:
        if not engine.arena().give_back():
            raise
    with account.counting():
        return go_on(call)


def _is_counted(engine: LocalEngine) -> bool:
    """Whether this is inside of a run of the same session whose memory is counted."""
    account = engine.arena().account
    return account is not None and ACCOUNT.get() is account


def _flag(trips: tuple[int, str] | None) -> array[int]:
    return new_flag() if trips is None else new_flag(trips[0])
