"""A histogram that values stream into: its range doubles as it must, so that no value is retained and none is seen twice."""

from __future__ import annotations

import numpy as np

FINE_BINS = 8192
"""Bins that are counted, on both sides of 0; what is requested later is made of these."""


class StreamingHistogram:
    """Counts of values in equal bins over [-span, span], where `span` is a power of two.

    A value outside doubles the span: two bins become one, exactly. `least`, `most` and `largest` are of all finite values.
    """

    def __init__(self, magnitudes: bool = False) -> None:
        self.counts = np.zeros(FINE_BINS, np.int64)
        self.magnitudes = magnitudes
        self.span = 0.0
        self.least, self.most = np.float32(np.inf), np.float32(-np.inf)
        self.dtype: np.dtype = np.dtype(np.float32)

    @property
    def empty(self) -> bool:
        return bool(self.least > self.most)

    @property
    def largest(self) -> float:
        """The largest magnitude; 0 where nothing was added."""
        return 0.0 if self.empty else float(max(abs(self.least), abs(self.most)))

    def add(self, values: np.ndarray) -> None:
        """Count the finite elements of a float32 or float16 array."""
        self.dtype = values.dtype
        flat = values.reshape(-1)
        if flat.size and not np.isfinite(flat.min() + flat.max()):
            flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        low, high = np.float32(flat.min()), np.float32(flat.max())
        self.least, self.most = min(self.least, low), max(self.most, high)
        self._cover(float(max(abs(low), abs(high))))
        for start in range(0, flat.size, _AT_ONCE):
            self.counts += self._binned(flat[start : start + _AT_ONCE])

    def _binned(self, flat: np.ndarray) -> np.ndarray:
        wide = np.abs(flat).astype(np.float32) if self.magnitudes else flat.astype(np.float32)
        if self.span:
            wide *= np.float32(FINE_BINS / 2 / self.span)
        np.floor(wide, out=wide)  # before the offset, which would round: bins are the same whatever span was first
        wide += np.float32(FINE_BINS // 2)
        places = np.minimum(wide.astype(np.intp), FINE_BINS - 1)
        return np.bincount(places, minlength=FINE_BINS)

    def _cover(self, size: float) -> None:
        if size == 0.0:
            return
        if not self.span:
            self.span = _power_of_two(size)
        while self.span < size:
            half = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[FINE_BINS // 4 : FINE_BINS // 4 + FINE_BINS // 2] = half
            self.span *= 2.0

    def rebinned(self, bins: int, least: float, most: float) -> tuple[np.ndarray, np.ndarray]:
        """Counts (int64, [bins]) and edges (of the values' type, [bins + 1]) over [least, most].

        A fine bin that an edge divides is shared by where the edge is; counts are rounded so that their sum stays.
        """
        if most <= least:
            least, most = least - 0.5, most + 0.5
        edges = np.linspace(least, most, bins + 1)
        total = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.float64)
        places = np.clip((edges / (self.span or 1.0) + 1.0) * (FINE_BINS / 2), 0, FINE_BINS)
        below = np.interp(places, np.arange(FINE_BINS + 1), total)
        below[0], below[-1] = 0, total[-1]
        return np.diff(np.rint(below)).astype(np.int64), edges.astype(self.dtype)


_AT_ONCE = 1 << 17


def _power_of_two(size: float) -> float:
    mantissa, exponent = np.frexp(size)
    return float(np.ldexp(0.5 if mantissa == 0.5 else 1.0, exponent))
