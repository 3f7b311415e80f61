"""Threads of asynchronous runs at a program's end: what is asked for is waited for while it comes, and no longer."""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from intarsia.session import async_threads
from intarsia.session.async_threads import _LOOKS, GRACE_SECONDS, AsyncThreads


@pytest.fixture
def one() -> Iterator[AsyncThreads]:
    made = AsyncThreads(1)
    yield made
    atexit.unregister(made._finish)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], object]], list[float]]:
    """Lets `_finish` look at once, which calls a function with the number of the look before; their lengths are noted."""

    def prepared(before: Callable[[int], object]) -> list[float]:
        noted: list[float] = []

        def wait(futures: set[Any], seconds: float) -> object:
            noted.append(seconds)
            before(len(noted))
            return concurrent.futures.wait(futures, 0)

        monkeypatch.setattr(async_threads, "wait", wait)
        return noted

    return prepared


def test_runs_that_end_one_after_the_other_are_all_waited_for(one: AsyncThreads, looks: Any) -> None:
    """Each at the last look of its time: together they take several times as long as one may."""
    ends = [threading.Event() for _ in range(4)]
    futures = [one.submit(end.wait) for end in ends]

    def end_one(number: int) -> None:
        turn, rest = divmod(number, _LOOKS)
        if rest == 0:
            ends[turn - 1].set()
            futures[turn - 1].result(60)

    noted = looks(end_one)
    one._finish()
    assert [future.result(0) for future in futures] == [True] * 4
    assert noted == [GRACE_SECONDS / _LOOKS] * (4 * _LOOKS)


def test_a_run_that_does_not_end_is_given_up_with_what_waits_behind_it(one: AsyncThreads, looks: Any) -> None:
    begun, end = threading.Event(), threading.Event()
    endless, behind = one.submit(lambda: (begun.set(), end.wait())), one.submit(int)
    assert begun.wait(60)
    noted = looks(lambda number: None)
    one._finish()
    assert sum(noted) == pytest.approx(GRACE_SECONDS)
    assert behind.cancelled()
    assert not endless.done()
    end.set()
    endless.result(60)
