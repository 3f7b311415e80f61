"""Tables of a Fourier transform: the factors of a length, and twiddle factors (roots of unity).

A length whose prime factors are at most `LARGEST_RADIX` is transformed in one stage per factor. Any other becomes a
convolution of a smooth length (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
1970): X[k] = c[k] sum_j x[j] c[j] conj(c[k - j]) with c[j] = exp(-i pi j^2 / n).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.lazy_dataclass import dataclass

LARGEST_RADIX = 61  # of a stage: its work grows with the radix, and Bluestein's way costs more than four such stages
STAGE_FIELDS = 5  # radix, groups, run, offset of its roots in bytes, offset of the radix's own roots in bytes
_UNROLLED = (2, 3, 4, 5)  # radices whose roots are part of the code


@dataclass(frozen=True)
class Tables:
    """A transform of length `length`, whose data pass through `smooth` places.

    Attributes:
        stages: int64 [stages, STAGE_FIELDS].
        roots: complex numbers that stages multiply by, as pairs of floats.
        chirp: c, or None for a smooth length.
        filter: the transform of conj(c), divided by `smooth`.
    """

    length: int
    smooth: int
    stages: np.ndarray
    roots: np.ndarray
    chirp: np.ndarray | None = None
    filter: np.ndarray | None = None


@functools.lru_cache(maxsize=64)
def tables(length: int, dtype: str) -> Tables:
    """Tables for numbers of `dtype` (float32 or float64)."""
    factors = radices(length)
    if factors is not None:
        return Tables(length, length, *_stages(length, factors, dtype))
    smooth = smooth_at_least(2 * length - 1)
    found = radices(smooth)
    assert found is not None
    places = np.arange(length)
    chirp = np.exp(-1j * np.pi * (places * places % (2 * length)) / length)
    around = np.zeros(smooth, np.complex128)
    around[:length] = chirp.conj()
    around[smooth - length + 1 :] = chirp[1:].conj()[::-1]
    spectrum = np.fft.fft(around) / smooth
    return Tables(length, smooth, *_stages(smooth, found, dtype), _pairs(chirp, dtype), _pairs(spectrum, dtype))


def radices(length: int) -> list[int] | None:
    """The factors of a smooth length in ascending order; None for other lengths."""
    left, found = length, []
    for radix in (4, 2, 3, 5):
        while left % radix == 0:
            found.append(radix)
            left //= radix
    radix = 7
    while left > 1 and radix <= LARGEST_RADIX:
        while left % radix == 0:
            found.append(radix)
            left //= radix
        radix += 2
    return sorted(found) if left == 1 else None


def smooth_at_least(least: int) -> int:
    """The least product of powers of 2, 3 and 5 that is not less."""
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            best = min(best, three << max(0, (-(-least // three) - 1).bit_length()))
            three *= 3
        five *= 5
    return best


def split_of(length: int, fewest: int) -> tuple[int, int] | None:
    """Two factors of a smooth length, near the root and at least `fewest`; the second is even if one can be."""
    if radices(length) is None:
        return None
    pairs = [(length // i, i) for i in range(fewest, math.isqrt(length) + 1) if length % i == 0]
    pairs += [(b, a) for a, b in pairs]
    return min(pairs, key=lambda pair: (pair[1] % 2, abs(pair[0] - pair[1])), default=None)


@functools.lru_cache(maxsize=16)
def twists(rows: int, columns: int, inverse: bool, dtype: str) -> np.ndarray:
    """exp(-2 pi i row column / (rows columns)), or its conjugate, as two planes [2, rows * columns + 64].

    The last 64 of each plane are zeros that a whole vector at the end reads.
    """
    count = rows * columns
    angle = (np.arange(rows)[:, None] * np.arange(columns)).reshape(-1) * (2 * np.pi / count * (1 if inverse else -1))
    found: np.ndarray = np.zeros((2, count + 64), dtype)
    found[0, :count], found[1, :count] = np.cos(angle), np.sin(angle)
    return found


def _stages(length: int, factors: list[int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A stage takes [radix, groups, run] to [groups, radix, run]; run is the product of the radices before it."""
    itemsize = np.dtype(dtype).itemsize
    rows: list[tuple[int, ...]] = []
    parts: list[np.ndarray] = []
    run, offset = 1, 0
    for radix in factors:
        groups = length // (run * radix)
        roots = _roots(np.arange(groups)[:, None] * np.arange(1, radix), radix * groups, dtype)
        own = _roots(np.arange(radix), radix, dtype) if radix not in _UNROLLED else np.zeros(0, dtype)
        rows.append((radix, groups, run, offset, offset + roots.size * itemsize))
        parts += [roots, own]
        offset += (roots.size + own.size) * itemsize
        run *= radix
    return np.array(rows, np.int64).reshape(-1, STAGE_FIELDS), np.concatenate(parts) if parts else np.zeros(2, dtype)


def _roots(powers: np.ndarray, order: int, dtype: str) -> np.ndarray:
    return _pairs(np.exp(-2j * np.pi * (powers.reshape(-1) % order) / order), dtype)


def _pairs(numbers: np.ndarray, dtype: str) -> np.ndarray:
    return np.stack([numbers.real, numbers.imag], -1).reshape(-1).astype(dtype)
