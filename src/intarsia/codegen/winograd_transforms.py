"""The transforms of Winograd's minimal filtering F(2x2, 3x3) and F(4x4, 3x3), whatever the values are: vectors, or text.

With m x m outputs computed at once from an (m + 2) x (m + 2) input tile d and the filter g,

    Y = At [ (G g Gt) * (Bt d B) ] A        (* element by element, summed over input channels)

The transforms evaluate polynomials at 0, infinity and points of both signs: at 1 for m = 2, at `NEAR` and `FAR` for m = 4.
With 5/8 and 3/2 errors are a fourth to a half of those with the usual 1 and 2 (whose sums are five times as wrong as direct
ones), and what Bt and At multiply by is exact in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

NEAR, FAR = 5 / 8, 3 / 2
V = TypeVar("V")


class Arithmetic(Protocol[V]):
    """What values are computed with."""

    def add(self, a: V, b: V) -> V: ...

    def subtract(self, a: V, b: V) -> V: ...

    def scaled(self, factor: float, a: V, b: V | None = None) -> V:
        """factor * a + b."""
        ...


def _evaluated(point: float, other: float) -> list[tuple[float, float, float]]:
    """Rows of G at +-point: 1, x, x^2 over the derivative of x (x^2 - point^2) (x^2 - other^2) there."""
    slope = 2 * point**2 * (point**2 - other**2)
    return [(1 / slope, x / slope, x * x / slope) for x in (point, -point)]


# G: the filter's transform, [m + 2, 3].
_FILTER = {
    2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    4: ((1 / (NEAR * FAR) ** 2, 0, 0), *_evaluated(NEAR, FAR), *_evaluated(FAR, NEAR), (0, 0, 1)),
}
OUTPUTS = tuple(_FILTER)
"""What m may be."""


def filter_matrix(outputs: int) -> np.ndarray:
    """float64 [(m + 2)^2, 9]: G g Gt of a filter whose nine elements are a column."""
    g = np.array(_FILTER[outputs], np.float64)
    return np.kron(g, g)


def of_input(tile: Sequence[Sequence[V]], outputs: int, a: Arithmetic[V]) -> Iterator[V]:
    """Bt d B, row by row, of (m + 2) rows of as many values: a row is computed when it is requested."""
    return both_ways(tile, lambda line: _bt(line, outputs, a))


def of_sums(sums: Sequence[Sequence[V]], outputs: int, a: Arithmetic[V]) -> Iterator[V]:
    """At s A: m x m values, row by row, of (m + 2) rows of as many."""
    return both_ways(sums, lambda line: _at(line, outputs, a))


def both_ways(square: Sequence[Sequence[V]], transformed: Callable[[Sequence[V]], list[V]]) -> Iterator[V]:
    """Every column transformed, then every row of what that gives."""
    columns = [transformed(column) for column in zip(*square, strict=True)]
    for row in zip(*columns, strict=True):
        yield from transformed(row)


def _bt(d: Sequence[V], outputs: int, a: Arithmetic[V]) -> list[V]:
    if outputs == 2:
        return [a.subtract(d[0], d[2]), a.add(d[1], d[2]), a.subtract(d[2], d[1]), a.subtract(d[1], d[3])]
    both, total = (NEAR * FAR) ** 2, NEAR**2 + FAR**2
    p, q = a.scaled(-(FAR**2), d[2], d[4]), a.scaled(-(FAR**2), d[1], d[3])
    r, s = a.scaled(-(NEAR**2), d[2], d[4]), a.scaled(-(NEAR**2), d[1], d[3])
    return [
        a.scaled(both, d[0], a.scaled(-total, d[2], d[4])), a.scaled(NEAR, q, p), a.scaled(-NEAR, q, p),
        a.scaled(FAR, s, r), a.scaled(-FAR, s, r), a.scaled(both, d[1], a.scaled(-total, d[3], d[5])),
    ]  # fmt: skip


def _at(d: Sequence[V], outputs: int, a: Arithmetic[V]) -> list[V]:
    if outputs == 2:
        return [a.add(a.add(d[0], d[1]), d[2]), a.subtract(a.subtract(d[1], d[2]), d[3])]
    p, q, r, s = a.add(d[1], d[2]), a.subtract(d[1], d[2]), a.add(d[3], d[4]), a.subtract(d[3], d[4])
    first, second = (a.scaled(NEAR**i, x, a.scaled(FAR**i, y)) for i, x, y in ((1, q, s), (2, p, r)))
    return [a.add(d[0], a.add(p, r)), first, second, a.scaled(NEAR**3, q, a.scaled(FAR**3, s, d[5]))]
