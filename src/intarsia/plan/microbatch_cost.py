"""Which steps of a segment go a few rows of a batch at a time, and how many.

Between steps that go all rows through, activations pass through memory once a batch is larger than the caches; a few rows
stay there. What that costs is that weights are read again for each part, and that every part has its barriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Jump, Step

if TYPE_CHECKING:
    from intarsia.plan.bound_segment import BoundSegment

CACHE_NBYTES = 4 << 20  # of each thread: its own, and what it can count on of the one that all share
_MEMORY, _WEIGHTS = 30e-6, 30e-6  # microseconds for a byte of activations beyond the caches, and of weights read once more
_STEP = 1.0  # microseconds for each thread that a further part costs a step: barriers, and shares of unequal length
_CROSSING = 30.0  # microseconds for going from one stretch to another
_SHARE = 2.0  # microseconds of a share of work (`executor_abi.shares`), at the least
_AHEAD = 2.5  # times that of products that fetch ahead
_LEAST = 0.025  # part of the time that must be spared


@dataclass(frozen=True)
class Rows:
    """What is known of a segment's rows.

    Attributes:
        symbol: the size that is their number.
        steps: whether what a step writes for some rows depends on the same rows of what it reads only.
        led: buffers that are rows, one behind the other.
        alike: buffers that do not depend on the rows, nor on how many there are.
    """

    symbol: str
    steps: tuple[bool, ...]
    led: frozenset[str]
    alike: frozenset[str]


class Stretch(NamedTuple):
    """Steps from `first` to before `end` that go `rows` rows at a time."""

    first: int
    end: int
    rows: int


class Traffic(NamedTuple):
    """What steps move, in bytes of the whole batch.

    Attributes:
        activations, weights: read and written by each step.
        crossing: alive in front of each step and written before; infinite where it is not rows, but used with them.
        work: `executor_abi.shares` of each step.
    """

    activations: np.ndarray
    weights: np.ndarray
    crossing: np.ndarray
    work: np.ndarray


def is_large(bound: BoundSegment, env: Mapping[str, int], threads: int) -> bool:
    """Whether a bound segment may be worth parts: its batch is more than a row, and more than the caches hold."""
    rows, most = bound.segment.rows, CACHE_NBYTES * threads
    if rows is None or env.get(rows.symbol, 0) <= 1 or bound.arena_nbytes <= most:
        return False
    return bound.arena_nbytes - bound.segment.fixed_nbytes() > most


def candidates(count: int) -> list[int]:
    """Numbers of rows worth looking at, for parts that are as even as can be; all of them last."""
    found = {-(-count // -(-count // (1 << i))) for i in range(count.bit_length()) if 1 << i < count}
    return [*sorted(found - {count}), count]


def chosen(rows: Rows, count: int, traffic: Traffic, threads: int) -> list[Stretch] | None:
    """The stretches of a segment whose batch has `count` rows; None where it goes as a whole."""
    sizes = candidates(count)
    costs = np.stack([_costs(traffic, count, size, threads) for size in sizes], 1)  # [steps, sizes], microseconds
    whole = costs[:, -1].sum()
    costs[~np.array(rows.steps, bool), :-1] = np.inf
    crossing = _beyond(traffic.crossing, threads) + _CROSSING
    at = np.zeros((len(costs), len(sizes)), np.intp)  # the size of the step before
    best = costs[0]
    for i in range(1, len(costs)):
        k = int(np.argmin(best))
        changed = best[k] + crossing[i] < best
        at[i] = np.where(changed, k, np.arange(len(sizes)))
        best = np.where(changed, best[k] + crossing[i], best) + costs[i]
    took = int(np.argmin(best))
    if whole - best[took] < _LEAST * _SHARE * traffic.work.sum() / threads:
        return None
    numbers = [took]
    for i in range(len(costs) - 1, 0, -1):
        numbers.append(int(at[i, numbers[-1]]))
    found = _stretches([sizes[n] for n in reversed(numbers)])
    return None if all(stretch.rows == count for stretch in found) else found


def _costs(traffic: Traffic, count: int, size: int, threads: int) -> np.ndarray:
    """Microseconds that each step takes longer than from the caches, with the weights there."""
    parts = -(-count // size)
    moved = parts * _beyond(traffic.activations * (size / count), threads)
    found: np.ndarray = moved + parts * (_WEIGHTS * traffic.weights + _STEP * threads)
    return found


def _beyond(nbytes: np.ndarray, threads: int) -> np.ndarray:
    """Microseconds for what does not fit into the caches."""
    found: np.ndarray = _MEMORY * np.maximum(nbytes - CACHE_NBYTES * threads, 0)
    return found


def _stretches(sizes: Sequence[int]) -> list[Stretch]:
    found: list[Stretch] = []
    for i, size in enumerate(sizes):
        if found and found[-1].rows == size:
            found[-1] = found[-1]._replace(end=i + 1)
        else:
            found.append(Stretch(i, i + 1, size))
    return found


def traffic_of(
    rows: Rows, steps: Sequence[Step | Jump], nbytes: Mapping[str, int], constants: Mapping[str, int],
    lives: Mapping[str, tuple[int, int]], work: Sequence[float],
) -> Traffic:  # fmt: skip
    """What steps move, given bytes of buffers and of constants, and when buffers are alive."""
    activations, weights, crossing = (np.zeros(len(steps)) for _ in range(3))
    parted: set[str] = set()  # what steps touch that may take a few rows
    before: set[str] = set()
    counted = np.array(work, float)
    for i, step in enumerate(steps):
        names = {*step.reads, *step.writes}
        parted.update(names if rows.steps[i] else ())
        if isinstance(step, Step) and step.ahead:
            counted[i] *= _AHEAD
        else:
            activations[i] = sum(nbytes[n] for n in names if n in nbytes and n not in rows.alike)
        weights[i] = sum(constants[n] for n in names - before if n in constants)  # products in parts share them
        before = names
    for name, (born, last) in lives.items():
        if name in rows.led or name not in parted:
            crossing[born + 1 : last + 1] += nbytes[name]
        elif name not in rows.alike:
            crossing[born + 1 : last + 1] = np.inf
    return Traffic(activations, weights, crossing, counted)
