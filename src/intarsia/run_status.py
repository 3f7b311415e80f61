"""What ends a run: what is wrong with its data (how compiled kernels report it, what people are told), or its caller's wish."""

from __future__ import annotations

from array import array
from contextvars import ContextVar
from typing import Protocol


class Stoppable(Protocol):
    """A run that its caller may stop."""

    def check(self) -> None:
        """Raise where that has happened."""

    def count_trips(self, count: int = 1) -> None:
        """So many trips of loops more are about to be run. Raise where that are too many for a run."""


CURRENT_RUN: ContextVar[Stoppable | None] = ContextVar("CURRENT_RUN", default=None)
"""The run that this thread works for, for what takes long: `if run := CURRENT_RUN.get(): run.check()`."""


UNLIMITED_TRIPS = 1 << 62


def new_flag(trips: int = UNLIMITED_TRIPS) -> array[int]:
    """What a run's native code looks at: a word that is not 0 once the run is to stop, and how many trips are left to its
    loops. Native code counts them down, and stops the run where there are none."""
    return array("q", [0, trips])


def next_trip() -> None:
    """A loop that Python runs begins a trip. Raises where the run of this thread is to stop, or has had too many."""
    run = CURRENT_RUN.get()
    if run is not None:
        run.check()
        run.count_trips()


# what a kernel writes to its status word
INDEX_OUT_OF_RANGE, DIVISION_BY_ZERO, SINGULAR_MATRIX, TOO_MANY_SAMPLES, LENGTH_OUT_OF_RANGE = range(1, 6)

INDEX_IS_OUT_OF_RANGE = "an index is out of range; expected indices from -size to size - 1 along the indexed axis"
DIVISOR_IS_ZERO = (
    "an element of the integer divisor is 0; expected none: change it before the division (Where, Max), or divide floats"
)
MATRIX_IS_SINGULAR = "a matrix of X cannot be inverted: it is singular"
SAMPLES_ARE_TOO_MANY = (
    "a region is so large that its bins need more than 16384 samples along an axis: check rois and their scale"
)
LENGTH_IS_OUT_OF_RANGE = "an element of sequence_lens is out of range; expected lengths from 0 to the number of steps of X"

MESSAGES = {
    INDEX_OUT_OF_RANGE: INDEX_IS_OUT_OF_RANGE, DIVISION_BY_ZERO: DIVISOR_IS_ZERO, SINGULAR_MATRIX: MATRIX_IS_SINGULAR,
    TOO_MANY_SAMPLES: SAMPLES_ARE_TOO_MANY, LENGTH_OUT_OF_RANGE: LENGTH_IS_OUT_OF_RANGE,
}  # fmt: skip
