"""How near the results of a quantised model are to those of floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from intarsia.errors import InvalidArgument

Feed = Mapping[str, np.ndarray]
Results = Mapping[str, np.ndarray]
Metric = Callable[[Sequence[Results], Sequence[Feed]], float]
"""Results of runs by output, and the feeds that they are of -> how good they are: more is better."""

BEST_DB = 200.0
"""Decibels that stand for equal values."""
_DRAWS, _DRAWS_OF_FUNCTION, _CERTAINTY = 400, 20, 0.95


@dataclass
class Nearness:
    """Sums over values and what they should be; `add` takes arrays of one shape."""

    count: int = 0
    signal: float = 0.0
    noise: float = 0.0
    found: float = 0.0
    product: float = 0.0
    largest: float = 0.0

    def add(self, exact: np.ndarray, found: np.ndarray) -> None:
        """Count values; those that are not finite in both count as their type's largest."""
        left, right = (np.nan_to_num(np.asarray(a, np.float64), posinf=3e38, neginf=-3e38).reshape(-1) for a in (exact, found))
        if left.size != right.size:
            raise InvalidArgument(f"results of different sizes: {list(exact.shape)} and {list(found.shape)}")
        difference = left - right
        self.count += left.size
        self.signal += float(left @ left)
        self.noise += float(difference @ difference)
        self.found += float(right @ right)
        self.product += float(left @ right)
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))

    def join(self, other: Nearness) -> None:
        """Count what another counted."""
        self.count += other.count
        self.signal += other.signal
        self.noise += other.noise
        self.found += other.found
        self.product += other.product
        self.largest = max(self.largest, other.largest)

    @property
    def signal_to_noise(self) -> float:
        """In decibels, at most `BEST_DB`."""
        if self.noise == 0:
            return BEST_DB
        return min(BEST_DB, 10 * math.log10(max(self.signal, 1e-300) / self.noise))

    @property
    def relative_error(self) -> float:
        """The root of the noise's share in the signal."""
        return math.sqrt(self.noise / self.signal) if self.signal else float(self.noise > 0)

    @property
    def cosine(self) -> float:
        """Of the angle between all values and what they should be."""
        size = math.sqrt(self.signal * self.found)
        return self.product / size if size else 1.0

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return {
            "signal_to_noise_db": round(self.signal_to_noise, 3), "relative_error": self.relative_error,
            "cosine": self.cosine, "largest_difference": self.largest,
        }  # fmt: skip


@dataclass
class Agreement:
    """Results of all runs against those of floats.

    Attributes:
        outputs: by output.
        same_top, tops: how many largest elements of the first output's last axis are at the same place, and of how many.
    """

    outputs: dict[str, Nearness] = field(default_factory=dict)
    same_top: int = 0
    tops: int = 0

    def add(self, exact: Results, found: Results) -> None:
        """Count a run; outputs that are no numbers are passed over."""
        for i, (name, values) in enumerate(exact.items()):
            other = found.get(name)
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub" or not isinstance(other, np.ndarray):
                continue
            if other.shape != values.shape:  # sizes that follow from values, as of detected boxes
                self.outputs.setdefault(name, Nearness()).noise += float(np.square(np.asarray(values, np.float64)).sum()) + 1
                continue
            self.outputs.setdefault(name, Nearness()).add(values, other)
            if i == 0 and values.ndim and values.shape[-1] > 1:
                same = values.argmax(axis=-1) == other.argmax(axis=-1)
                self.same_top, self.tops = self.same_top + int(same.sum()), self.tops + same.size

    @property
    def top_1(self) -> float:
        """The share of equal places of the largest element; 1 where there are none to compare."""
        return self.same_top / self.tops if self.tops else 1.0

    @property
    def relative_error(self) -> float:
        """The largest of all outputs."""
        return max((n.relative_error for n in self.outputs.values()), default=0.0)

    @property
    def cosine(self) -> float:
        """The least of all outputs."""
        return min((n.cosine for n in self.outputs.values()), default=1.0)


def agreement_of(exact: Iterable[Results], found: Iterable[Results]) -> Agreement:
    """Results of runs against those of floats."""
    made = Agreement()
    for first, second in zip(exact, found, strict=True):
        made.add(first, second)
    return made


def joined(runs: Iterable[Agreement]) -> Agreement:
    """The agreement of all runs of several."""
    made = Agreement()
    for run in runs:
        made.same_top, made.tops = made.same_top + run.same_top, made.tops + run.tops
        for name, near in run.outputs.items():
            made.outputs.setdefault(name, Nearness()).join(near)
    return made


DROPS: dict[str, Callable[[Agreement], float]] = {
    "top1": lambda a: 1.0 - a.top_1,
    "cosine": lambda a: 1.0 - a.cosine,
    "error": lambda a: a.relative_error,
}
"""Metrics that need no labels -> what is lost: 0 for equal results."""


@dataclass(frozen=True)
class Loss:
    """What is held against a bound.

    Attributes:
        name: of a metric of `DROPS`, or of a function.
        function: a user's metric; None for those of `DROPS`.
    """

    name: str = "error"
    function: Metric | None = None

    def __post_init__(self) -> None:
        if self.function is None and self.name not in DROPS:
            raise InvalidArgument(f"metric: expected one of {', '.join(DROPS)}, or FILE.py:FUNCTION; got {self.name!r}")

    def drop_elsewhere(self, exact: Sequence[Results], found: Sequence[Results], feeds: Sequence[Feed]) -> float:
        """What other data of the same kind would lose at most, in 19 of 20 cases as far as these runs tell.

        Runs are drawn anew from them 400 times, as often as there are (a bootstrap); a function is called 20 times.
        """
        count, draws = len(found), _DRAWS if self.function is None else _DRAWS_OF_FUNCTION
        whole = self.drop(exact, found, feeds)
        if count < 2:
            return whole
        drawn = np.random.default_rng(0).integers(0, count, (draws, count))
        if self.function is None:
            runs = [agreement_of([one], [other]) for one, other in zip(exact, found, strict=True)]
            drops = [DROPS[self.name](joined([runs[i] for i in row])) for row in drawn]
        else:
            drops = [self.drop([exact[i] for i in row], [found[i] for i in row], [feeds[i] for i in row]) for row in drawn]
        return max(whole, float(np.quantile(drops, _CERTAINTY)))

    def drop(self, exact: Sequence[Results], found: Sequence[Results], feeds: Sequence[Feed]) -> float:
        """How much is lost: with a function, by how much it falls."""
        if self.function is None:
            return DROPS[self.name](agreement_of(exact, found))
        return float(self.function(exact, feeds)) - float(self.function(found, feeds))
