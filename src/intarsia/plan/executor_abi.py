"""Words in memory that the executor reads: of a call, and of a step that calls another one in slices. And how long steps
take, roughly: which calls answer signals, and which steps are looked into while they compute.

Work is counted in shares: the work that is just worth another thread, some five microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.plan.step import SCRATCH, Argument, Below, Jump, Ref, Sizes, Step

TABLE, EXTERNALS, FLAG, MODE = 0, 4, 5, 7  # words of a call that are used by number
WORDS = 11
LONG = 4  # a call's mode: it may take long, so that signals are answered in it
SLICE_WORDS = 8
MOST_SLICED = 64  # arguments that a sliced step may have
SLICED = "%sliced"  # the name under which a segment has the address of the step that calls others in slices

MOMENT = 1_000_000  # nanoseconds that workers spin for

SHARE_NBYTES = 1 << 16
_LONG_SHARES = 200.0  # about a millisecond
SLICE_SHARES = 2000.0  # about ten milliseconds: what claims its last pieces loses that between slices
_MOST_SLICES = 4096


def call_words(*words: int) -> np.ndarray:
    """The words of a call: table, nsteps, patches, npatches, externals, flag, times, mode as far as given, then zeros, some
    of which native code uses."""
    found = np.zeros(WORDS, np.int64)
    found[: len(words)] = words
    return found


def sliced_words(
    step: tuple[int, int, int], slices: int, call: int, scratch: int = -1, stride: int = 0, pieces: int = -1
) -> list[int]:
    """Arguments of the step that calls a parallel step in `slices` slices for each thread.

    Args:
        step: its address, that of its arguments, and how many these are, at most `MOST_SLICED`.
        call: address of the words of the call that runs the table.
        scratch: which argument is the address of scratch memory, of which each thread has `stride` bytes; -1: none.
        pieces: which argument is the number of slices, for a step that does its share piece by piece in order; -1: none.
    """
    function, args, count = step
    return [function, args, slices, call, count, scratch, stride, pieces]


def shares(step: Step | Jump, size: Sizes, nbytes: int) -> float:
    """How many shares of work a step is, which reads and writes `nbytes`."""
    if isinstance(step, Jump):
        return 0.0
    counted = 0.0
    if step.work is not None:
        counted = step.work(size)
    elif isinstance(step.serial, Below) and step.serial.least:
        counted = size(step.serial.work) / step.serial.least
    return max(counted, nbytes / SHARE_NBYTES)


def is_long(work: float) -> bool:
    """Whether somebody may want to stop so many shares of work before they are done."""
    return work >= _LONG_SHARES


def slices(work: float, threads: int) -> int:
    """In how many slices each of `threads` threads does a step of so many shares; 1: in one go."""
    return min(_MOST_SLICES, math.ceil(work / (threads * SLICE_SHARES))) if work > threads * SLICE_SHARES else 1


def scratch_argument(arguments: Sequence[Argument]) -> int | None:
    """Which argument is the step's scratch memory; -1: it has none. None: it cannot be sliced."""
    return scratch_place([a.name if isinstance(a, Ref) else "" for a in arguments])


def scratch_place(names: Sequence[str]) -> int | None:
    """The same, of the names of the buffers that arguments are addresses of."""
    found = [i for i, name in enumerate(names) if name == SCRATCH]
    return None if len(found) > 1 or len(names) > MOST_SLICED else found[0] if found else -1
