"""Operators at sizes, axes and types that `operator_cases` does not have, as models of other families use them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.operator_case import Case, Weight, between, booleans, integers, ints, normal, number

A, B, C = 16, 80, 80  # about 100,000 elements
X = (A, B, C)


def products_of_letters() -> Iterator[Case]:
    """Einsum's equations that are no plain matrix products."""
    x = normal(*X)
    for equation, other in (("bij,bkj->bik", X), ("bij,bij->b", X), ("bij,bi->bj", (A, B)), ("bij,bj->bi", (A, C))):
        yield Case("Einsum", f"{equation} 16x80x80", (x, normal(*other)), {"equation": equation})
    yield Case("Einsum", "bij->bi 16x80x80", (x,), {"equation": "bij->bi"})


def each_axis() -> Iterator[Case]:
    """Operators along each axis of three."""
    x = normal(*X)
    for axis, size in enumerate(X):
        label = f"float32 16x80x80 axis {axis}"
        three = normal(*(3 if n == axis else d for n, d in enumerate(X)))
        yield Case("TopK", f"{label}, 4", (x, ints(4)), {"axis": axis}, outputs=2)
        yield Case("CumSum", label, (x, Weight(np.array(axis))))
        yield Case("ArgMax", label, (x,), {"axis": axis})
        yield Case("LpNormalization", label, (x,), {"axis": axis})
        yield Case("Softmax", label, (x,), {"axis": axis})
        yield Case("ReduceMean", label, (x, ints(axis)))
        yield Case("Concat", f"{label}, with 3", (x, three), {"axis": axis})
        yield Case("Split", f"{label}, 3 apart", (x, ints(size - 3, 3)), {"axis": axis}, outputs=2)
        yield Case("Gather", f"{label}, half", (x, integers(0, size, size // 2)), {"axis": axis})
        yield Case("Tile", f"{label}, twice", (x, ints(*(1 + (n == axis) for n in range(3)))))


def scattered() -> Iterator[Case]:
    """Elements and pairs of places."""
    x, half = normal(*X), integers(0, C, A, B, C // 2)
    rows = np.stack([integers(0, A, 640), integers(0, B, 640)], -1)
    places = np.concatenate([np.tile(rows, (10, 1)), integers(0, C, 6400, 1)], -1)
    yield Case("GatherElements", "float32 16x80x80 half of the last axis", (x, half), {"axis": 2})
    for reduction in ("none", "add"):
        yield Case(
            "ScatterElements",
            f"float32 16x80x80 {reduction}",
            (x, half, normal(A, B, C // 2)),
            {"axis": 2, "reduction": reduction},
        )
        yield Case("ScatterND", f"float32 16x80x80 elements, {reduction}", (x, places, normal(6400)), {"reduction": reduction})
    yield Case("GatherND", "float32 16x80x80 pairs", (x, rows))
    yield Case("GatherND", "float32 16x80x80 elements", (x, places))
    yield Case("OneHot", "float32 16x80 of 80", (integers(0, C, A, B), Weight(np.array(C)), Weight(normal(2))))


def types_of_integers() -> Iterator[Case]:
    """Arithmetic and comparisons of integers and booleans."""
    for kind in (np.int32, np.uint8, np.int64):
        one, other = (integers(1, 99, *X, dtype=kind) for _ in range(2))
        for op in ("Add", "Mul", "Div", "Mod", "Max", "Equal", "Less", "BitwiseAnd"):
            yield Case(op, f"{np.dtype(kind).name} 16x80x80", (one, other))
    for op in ("And", "Or", "Xor"):
        yield Case(op, "bool 16x80x80", (booleans(*X), booleans(*X)))
    yield Case("Clip", "int64 16x80x80", (integers(0, 99, *X), Weight(np.array(5)), Weight(np.array(50))))
    yield Case("Pow", "int64 16x80x80 squared", (integers(0, 9, *X), Weight(np.array(2))))
    yield Case("Pow", "float32 16x80x80 cubed", (normal(*X), number(3.0)))


def repeated() -> Iterator[Case]:
    """Values that are repeated along an axis, steps and borders."""
    x = normal(*X)
    yield Case("Where", "float32 16x80x80 by column", (booleans(A, B, 1), x, number(0.0)))
    yield Case("Expand", "float32 16x80x1 to 16x80x80", (normal(A, B, 1), ints(*X)))
    yield Case("Expand", "float32 16x1x80 to 16x80x80", (normal(A, 1, C), ints(*X)))
    for start, end, step in ((0, C, 2), (C - 1, -C - 1, -1), (1, C - 1, 1)):
        yield Case("Slice", f"float32 16x80x80 last axis by {step}", (x, ints(start), ints(end), ints(2), ints(step)))
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Case("Pad", f"float32 16x80x80 {mode}", (x, ints(0, 1, 2, 0, 2, 1)), {"mode": mode})
    image = normal(1, *X)
    grid = between(-1, 1, 1, B, C, 2)
    for mode in ("linear", "nearest", "cubic"):
        yield Case("GridSample", f"float32 1x16x80x80 {mode}", (image, grid), {"mode": mode})
    yield Case("LRN", "float32 1x16x80x80", (image,), {"size": 5})
    yield Case("PRelu", "float32 1x16x80x80 by channel", (image, Weight(normal(A, 1, 1))))
