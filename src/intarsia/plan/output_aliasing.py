"""Memory of callers that results are written into: whether it may be, beside what a run reads."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.plan.array_address import address_of
from intarsia.plan.step import Jump, Step

Spec = tuple[tuple[int, ...], np.dtype]
Place = tuple[int, int]  # the first byte, and the one behind the last


def written_onto(steps: Sequence[Step | Jump], inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Which input may lie in an output's memory, by output: one that the step which writes it alone reads (`Step.onto`)."""
    read = Counter(name for step in steps for name in set(step.reads))
    written = Counter(name for step in steps for name in set(step.writes))
    pairs = {s.writes[0]: s.onto for s in steps if isinstance(s, Step) and s.onto and len(s.writes) == 1}
    alone = {out for out, name in pairs.items() if read[name] == written[out] == 1}
    return {out: pairs[out] for out in alone if out in outputs and pairs[out] in inputs}


def fits(target: np.ndarray, spec: Spec) -> bool:
    """Whether the array can be a result of this shape and type as it is."""
    flags = target.flags
    plain = flags.c_contiguous and flags.aligned and flags.writeable
    return plain and (target.shape, target.dtype) == spec


def place_of(array: np.ndarray) -> Place:
    start = address_of(array)
    return start, start + array.nbytes


class Targets:
    """Arrays that results are written into, by name. `onto`: as `written_onto` says."""

    def __init__(self, arrays: Mapping[str, np.ndarray | None], onto: Mapping[str, str]) -> None:
        held = sorted((*place_of(t), name) for name, t in arrays.items() if t is not None and t.nbytes)
        self._starts = [start for start, _, _ in held]
        self._held, self._onto = held, onto
        self.disjoint = all(one[1] <= other[0] for one, other in itertools.pairwise(held))

    def allow(self, name: str, array: np.ndarray) -> bool:
        """Whether the input `name` may be read from this array: no target lies there, or the only one that may. They lie
        `disjoint`."""
        if not self._starts:
            return True
        start, end = place_of(array)
        last = bisect.bisect_left(self._starts, end) - 1  # the last target that begins before its end
        if last < 0 or self._held[last][1] <= start:
            return True  # the others end before this one begins
        begun, stopped, target = self._held[last]
        return (begun, stopped) == (start, end) and self._onto.get(target) == name
