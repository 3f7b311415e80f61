"""One-node models for `operators.py` whose shapes decide: each set of axes, each order of axes, images that shrink much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

from operator_case import Case, ints, normal

SHORT, ODD = (8, 64, 28, 28), (17, 31, 17, 31)


def axis_sets() -> Iterator[Case]:
    """Reductions over every set of axes, of sizes near those of vectors."""
    for shape in (SHORT, ODD):
        size = "x".join(map(str, shape))
        for op in ("Sum", "Max"):
            for axes in (found for n in (1, 2, 3) for found in combinations(range(4), n)):
                yield Case(f"Reduce{op}", f"float32 {size} axes {' '.join(map(str, axes))}", (normal(*shape), ints(*axes)))


def axis_orders() -> Iterator[Case]:
    """Transpose of rank 4, every order."""
    for perm in permutations(range(4)):
        yield Case("Transpose", f"float32 17x31x31x17 to {' '.join(map(str, perm))}", (normal(17, 31, 31, 17),), {"perm": perm})


def thumbnails() -> Iterator[Case]:
    """A photo as a classifier takes it: antialiased, as many neighbours as it shrinks by."""
    for mode in ("linear", "cubic"):
        photo = (normal(1, 3, 480, 640), None, None, ints(1, 3, 224, 224))
        yield Case("Resize", f"float32 1x3x480x640 {mode} antialias, to 224x224", photo, {"mode": mode, "antialias": 1})
