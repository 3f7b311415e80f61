"""How many threads a run may use, and how those of a pool wait and compute."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from intarsia.errors import InvalidArgument
from intarsia.machine.resources import available_cores, cpu_quota

__all__ = ["PoolSettings", "available_cores", "cpu_quota"]

SPIN_MICROSECONDS = 1000.0
SPINNING, SPIN_DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
AFFINITIES, DENORMALS = "session.intra_op_thread_affinities", "session.set_denormal_as_zero"


class PoolSettings(NamedTuple):
    """What sessions that share a pool's threads agree on, besides their number.

    Attributes:
        spin_microseconds: how long waiting threads spin before they sleep.
        affinities: for each worker (all threads but the caller's) the cores it may run on, by the system's numbers; (): any.
        flush_denormals: numbers below the smallest normal one count as zero, read and written, while a run computes.
    """

    spin_microseconds: float = SPIN_MICROSECONDS
    affinities: tuple[tuple[int, ...], ...] = ()
    flush_denormals: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str], num_threads: int) -> PoolSettings:
        """From a session's configuration entries, for a pool of `num_threads` threads.

        Raises:
            InvalidArgument: cores that do not exist or this process may not use, or lists of another number than workers.
        """
        duration = int(config.get(SPIN_DURATION, "-1"))
        spin = SPIN_MICROSECONDS if duration < 0 else float(duration)
        affinities = _affinities(config.get(AFFINITIES, ""), num_threads)
        return cls(spin if config.get(SPINNING, "1") == "1" else 0.0, affinities, config.get(DENORMALS, "0") == "1")


def _affinities(text: str, num_threads: int) -> tuple[tuple[int, ...], ...]:
    """From "1,2;4-6": lists of cores, counted from 1 as onnxruntime does, one for each worker."""
    if not text.strip():
        return ()
    if not hasattr(os, "sched_setaffinity"):
        raise InvalidArgument(f"{AFFINITIES!r}: this system does not let a program choose its threads' cores; leave it out")
    groups = text.split(";")
    if len(groups) != num_threads - 1:
        raise InvalidArgument(
            f"{AFFINITIES!r}: expected {num_threads - 1} lists of cores, one for each of {num_threads} threads but the "
            f"caller's, got {len(groups)}: {text!r}"
        )
    allowed = os.sched_getaffinity(0)
    found = []
    for group in groups:
        cores: list[int] = []
        for part in group.split(","):
            match = re.fullmatch(r"\s*([1-9]\d{0,5})\s*(?:-\s*([1-9]\d{0,5})\s*)?", part)
            if match is None:
                raise InvalidArgument(f"{AFFINITIES!r}: expected cores from 1 as in '1,2;4-6', got {part!r} in {text!r}")
            cores += range(int(match[1]) - 1, int(match[2] or match[1]))
        if not cores or not set(cores) <= allowed:
            numbers = ", ".join(str(core + 1) for core in sorted(allowed))
            raise InvalidArgument(f"{AFFINITIES!r}: expected cores that this process may use ({numbers}), got {group!r}")
        found.append(tuple(sorted(set(cores))))
    return tuple(found)
