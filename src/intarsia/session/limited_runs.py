"""Runs under limits: of time, of trips of loops, of memory, and those of untrusted sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from intarsia.ep.provider import RunContext
from intarsia.model.run_timeout import checked_timeout, deadline
from intarsia.run_status import new_flag

if TYPE_CHECKING:
    from array import array

    from intarsia.machine.resources import Account
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine


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


def timed(
    engine: LocalEngine, model: Any, inputs: list[Any], names: Any, options: RunOptions | None, timeout: float,
    stay: frozenset[str] = frozenset(),
) -> list[Any]:  # fmt: skip
    """A run with a timeout."""
    with deadline_context(options, timeout, engine.trips) as run:
        return engine.run_some(model, inputs, names, run, stay)


def untrusted(
    engine: LocalEngine, model: Any, inputs: list[Any], names: Any, run: RunContext | None, stay: frozenset[str]
) -> list[Any]:
    """A run of an untrusted session that has no timeout of its own."""
    from intarsia.model.untrusted import SECONDS, limit

    options = run.options if run is not None else None
    return timed(engine, model, inputs, names, options, limit(engine.options, SECONDS), stay)


def with_few_trips(
    engine: LocalEngine, model: Any, inputs: list[Any], names: Any, run: RunContext | None, stay: frozenset[str]
) -> list[Any]:
    """A run without a timeout whose trips are counted."""
    options, flag = run.options if run is not None else None, _flag(engine.trips)
    if options is not None:
        options.follow(flag)
    try:
        limited = RunContext(options, run.config if run is not None else None, flag, None, engine.trips)
        return engine.run_some(model, inputs, names, limited, stay)
    finally:
        if options is not None:
            options.unfollow(flag)


def counted(
    engine: LocalEngine, account: Account, model: Any, inputs: list[Any], names: Any, run: RunContext | None,
    stay: frozenset[str],
) -> list[Any]:  # fmt: skip
    """A run whose memory is counted. Where it does not have enough, idle memory of intermediate tensors is given back, and it
    begins once more."""
    results = _counted(engine, account, model, inputs, names, run, stay)
    if engine.options.untrusted:  # here, as what is refused within is tried again
        from intarsia.model.untrusted import check_results

        check_results(results, engine.options)
    return results


def _counted(
    engine: LocalEngine, account: Account, model: Any, inputs: list[Any], names: Any, run: RunContext | None,
    stay: frozenset[str],
) -> list[Any]:  # fmt: skip
    try:
        with account.counting():
            return engine.run_some(model, inputs, names, run, stay)
    except MemoryError:
        if not engine.arena().give_back():
            raise
    with account.counting():
        return engine.run_some(model, inputs, names, run, stay)


def _flag(trips: tuple[int, str] | None) -> array[int]:
    return new_flag() if trips is None else new_flag(trips[0])
