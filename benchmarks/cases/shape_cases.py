"""One-node models for `operators.py` whose shapes decide: each set of axes, each order of axes, images that shrink much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from cases.operator_case import Case, booleans, integers, ints, normal

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


def many_axes() -> Iterator[Case]:
    """Axes that cannot be merged, so that each row has a place of its own."""
    six, wide = (2, 3, 4, 5, 6, 7), (4, 6, 8, 10, 12, 14)
    yield Case("Tile", "float32 4x5x6x7x8", (normal(4, 5, 6, 7, 8), ints(1, 2, 1, 2, 2)))
    yield Case("Tile", "float32 rank 6", (normal(*six), ints(2, 1, 2, 1, 2, 1)))
    yield Case("Tile", "uint8 rank 6", (integers(0, 9, *six, dtype=np.uint8), ints(2, 1, 2, 1, 2, 1)))
    yield Case("Expand", "float32 rank 6", (normal(1, 3, 1, 5, 1, 7), ints(*six)))
    yield Case("Add", "float32 rank 6, every second axis", (normal(*wide), normal(6, 1, 10, 1, 14)))
    both = (normal(8, 1, 16, 1, 16), normal(1, 9, 1, 15, 16))
    yield Case("Mul", "float32 rank 5, both repeated", both)
    yield Case("Where", "float32 rank 5, all repeated", (booleans(8, 1, 16, 1, 16), both[1], normal(1, 9, 16, 1, 1)))
    yield Case("Transpose", "float32 windows of 7x7", (normal(1, 8, 7, 8, 7, 96),), {"perm": (0, 1, 3, 2, 4, 5)})
    yield Case("Transpose", "float32 rank 6", (normal(2, 7, 7, 3, 8, 32),), {"perm": (0, 3, 1, 4, 2, 5)})
    yield Case("Transpose", "float16 rank 5", (normal(3, 8, 16, 12, 20, dtype=np.float16),), {"perm": (1, 3, 0, 2, 4)})
    yield Case("Slice", "float32 rank 6", (normal(*wide), ints(1, 1, 1, 1, 1), ints(3, 5, 7, 9, 11), ints(0, 1, 2, 3, 5)))
    for op, axes in (("ReduceSum", (1, 3, 5)), ("ReduceMax", (0, 2, 4))):
        yield Case(op, f"float32 rank 6 axes {' '.join(map(str, axes))}", (normal(*wide), ints(*axes)))
    yield Case("Softmax", "float32 17x31x17x31 axis 2", (normal(17, 31, 17, 31),), {"axis": 2})


def large_windows() -> Iterator[Case]:
    """Pools as spatial pyramids have them, and others with a border or gaps."""
    for size in (5, 9, 13):
        how = {"kernel_shape": (size, size), "pads": (size // 2,) * 4}
        yield Case("MaxPool", f"float32 1x64x20x20 {size}x{size}", (normal(1, 64, 20, 20),), how)
    gaps = {"kernel_shape": (3, 3), "dilations": (2, 2), "pads": (2, 2, 2, 2)}
    yield Case("MaxPool", "float32 1x32x56x56 3x3, dilations 2", (normal(1, 32, 56, 56),), gaps)
    halves = {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}
    yield Case("MaxPool", "float32 1x16x16x28x28 2x2x2/2", (normal(1, 16, 16, 28, 28),), halves)
    beside = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    yield Case("AveragePool", "float32 1x64x28x28 3x3/1", (normal(1, 64, 28, 28),), beside)
    yield Case("AveragePool", "float32 1x512x7x7 7x7", (normal(1, 512, 7, 7),), {"kernel_shape": (7, 7)})
