"""Branches of small steps side by side: each branch whole on one thread, all of them in one phase of the executor.

A step that is too small to share runs on one thread while the others wait. Where several chains of such steps do not depend on
each other (the members of an ensemble, two towers, heads), each is given to a thread, and the threads meet once, at their end.
Within a window the steps may change their order, so all that they touch stays in memory of its own for the whole window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from intarsia.plan.step import Jump, Step

WHOLE = "%whole"  # the name under which a segment has the address of the step that one thread runs whole
_ROW_WORDS = 3  # of such a step: the function, its arguments, the thread
_NO_BARRIER = 2
_STEP, _SHARE = 0.15, 2.0  # microseconds of a call, and of a share of work on one thread
_LEAST, _LEAST_ON_REQUEST = 10.0, 1.0  # microseconds that must be spared
_MOST_STEPS = 512  # of a window
_MOST_FORKS = 6  # in a row that are tried as the beginning of branches


class SideBySide(NamedTuple):
    """What a session allows.

    Attributes:
        most: branches side by side; 0: as many as there are threads, 1: none.
        eager: also where it spares a microsecond only.
    """

    most: int = 0
    eager: bool = False


class Window(NamedTuple):
    """Steps from `first` to before `end`, in phases: (step, thread) in order, thread -1 for a phase of one thread."""

    first: int
    end: int
    phases: tuple[tuple[tuple[int, int], ...], ...]


def windows(
    steps: Sequence[Step | Jump], constants: Mapping[str, object], serial: Sequence[bool], work: Sequence[float],
    threads: int, allowed: SideBySide,
) -> tuple[Window, ...]:  # fmt: skip
    """Where branches go side by side. `serial`: which steps one thread runs, `work`: `executor_abi.shares` of each."""
    most = min(threads, allowed.most or threads)
    if most < 2 or any(isinstance(step, Jump) for step in steps):
        return ()
    least = _LEAST_ON_REQUEST if allowed.eager else _LEAST
    cost = [_STEP + _SHARE * float(w) for w in work]
    found, first = [], 0
    while first < len(steps):
        end = first
        while end < len(steps) and serial[end] and end - first < _MOST_STEPS:
            end += 1
        if sum(cost[first:end]) > 2 * least:
            phases = _phases(range(first, end), _before(steps, constants, first, end), cost, most, least)
            if any(len(phase) > 1 for phase in phases):
                found.append(Window(first, end, phases))
        first = max(end, first + 1)
    return tuple(found)


def _before(steps: Sequence[Step | Jump], constants: Mapping[str, object], first: int, end: int) -> dict[int, set[int]]:
    """The steps that each step of the range must come after: that write what it reads or writes, or read what it writes."""
    writers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    before: dict[int, set[int]] = {}
    for i in range(first, end):
        step, needed = steps[i], set()
        for name in (*step.reads, *step.writes):
            if name in writers:
                needed.add(writers[name])
        for name in step.writes:
            needed.update(readers.pop(name, ()))
            writers[name] = i
        for name in step.reads:
            if name not in constants:
                readers.setdefault(name, []).append(i)
        before[i] = needed - {i}
    return before


def _phases(
    remaining: Sequence[int], before: Mapping[int, set[int]], cost: Sequence[float], most: int, least: float
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Phases of branches, and steps one by one between them. A step that two branches meet in waits for the next phase; a
    step that they part from comes before it."""
    found: list[tuple[tuple[int, int], ...]] = []
    left, tried = list(remaining), 0
    while left and tried < _MOST_FORKS:
        branches, later = _branches(left, before)
        threads = _dealt(branches, cost, most)
        spared = sum(cost[i] for b in branches for i in b) - max(sum(cost[i] for i in t) for t in threads)
        if len(branches) > 1 and spared >= least:
            owner = {i: n for n, t in enumerate(threads) for i in t}
            found.append(tuple((i, owner[i]) for i in left if i in owner))
            left, tried = later, 0
            continue
        fork = _fork(left, before)
        found += [((i, -1),) for i in left[: fork + 1]]
        left, tried = left[fork + 1 :], tried + 1
    return (*found, *(((i, -1),) for i in left))


def _branches(left: Sequence[int], before: Mapping[int, set[int]]) -> tuple[list[list[int]], list[int]]:
    """Steps by branch, as far as each depends on one branch only, and the others."""
    branches: list[list[int]] = []
    of: dict[int, int] = {}
    later: list[int] = []
    waiting: set[int] = set()
    for i in left:
        needed = before[i]
        met = {of[j] for j in needed if j in of}
        if len(met) > 1 or needed & waiting:
            later.append(i)
            waiting.add(i)
            continue
        if not met:
            branches.append([])
        of[i] = met.pop() if met else len(branches) - 1
        branches[of[i]].append(i)
    return branches, later


def _dealt(branches: Sequence[Sequence[int]], cost: Sequence[float], most: int) -> list[list[int]]:
    """Branches for each thread: the longest first, to the thread that has least; the most work to the calling thread."""
    threads: list[list[int]] = [[] for _ in range(most)]
    totals = [0.0] * most
    for branch in sorted(branches, key=lambda b: -sum(cost[i] for i in b)):
        n = totals.index(min(totals))
        threads[n] += branch
        totals[n] += sum(cost[i] for i in branch)
    return [t for _, t in sorted(zip(totals, threads, strict=True), key=lambda pair: -pair[0])]


def _fork(left: Sequence[int], before: Mapping[int, set[int]]) -> int:
    """The position of the first step that two others wait for; the last one where there is none."""
    followers = dict.fromkeys(left, 0)
    for i in left:
        for j in before[i]:
            if j in followers:
                followers[j] += 1
    return next((n for n, i in enumerate(left) if followers[i] > 1), len(left) - 1)


def extended(lives: Mapping[str, tuple[int, int]], found: Sequence[Window]) -> dict[str, tuple[int, int]]:
    """Lifetimes of buffers, so that what a window's steps touch is there for all of it."""
    return {name: spanned(life, found) for name, life in lives.items()}


def spanned(life: tuple[int, int], found: Sequence[Window]) -> tuple[int, int]:
    """A lifetime, so that it covers the windows in which it begins or ends."""
    first, last = life
    for w in found:
        if first < w.end and last >= w.first:
            first, last = min(first, w.first), max(last, w.end - 1)
    return first, last


def scratch_life(step: int, found: Sequence[Window]) -> tuple[int, int]:
    """When a step's scratch memory is in use."""
    return spanned((step, step), found)


def fit(found: Sequence[Window], serial: Sequence[bool] | np.ndarray) -> bool:
    """Whether all steps of the windows are such that one thread runs them."""
    return all(bool(np.all(serial[w.first : w.end])) for w in found)


def rows_of(found: Sequence[Window], count: int) -> list[int]:
    """Of each row of a table that was rearranged, the step that it had been."""
    rows = list(range(count))
    for w in found:
        rows[w.first : w.end] = [step for phase in w.phases for step, _ in phase]
    return rows


def rearranged(table: np.ndarray, found: Sequence[Window], whole: int) -> np.ndarray:
    """Put the windows' phases into a step table; returns the words that its rows point to."""
    words = np.zeros((sum(w.end - w.first for w in found), _ROW_WORDS), np.int64)
    at = 0
    for w in found:
        rows = table[w.first : w.end].copy()
        row = w.first
        for phase in w.phases:
            for step, thread in phase:
                table[row] = rows[step - w.first]
                if thread >= 0:
                    words[at] = (*table[row, :2], thread)
                    last = step == phase[-1][0]
                    table[row] = (whole, words.ctypes.data + 8 * _ROW_WORDS * at, 0 if last else _NO_BARRIER, 0)
                    at += 1
                row += 1
    return words
