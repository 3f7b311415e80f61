"""Sizes in floating point: ceil((n - 5) / 2.0 + 1.0) is a size again. Numbers are followed as quotients of sizes by integers,
elements of vectors as quotients of sizes by sizes (how old exporters write what Resize brings an image to).

What a float rounds is left out of account, as it is where a size is cast: sizes are exact up to 2^24 in float32, and a
quotient of such is an integer only where the exact one is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from intarsia.graph.dims import Dim, Expr, floordiv, truncdiv
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass

FOLLOWED = frozenset(("Add", "Cast", "Ceil", "Div", "Floor", "Identity", "Mul", "Neg", "Round", "Sub"))
_MOST = 1 << 20  # a constant's numerator and denominator


class Ratio(NamedTuple):
    """numerator / denominator; the denominator is 1 or more."""

    numerator: Dim
    denominator: int = 1


Scalar = Dim | Ratio


@dataclass(frozen=True)
class Quotient:
    """One size by another, an element of a vector in floating point."""

    numerator: Dim
    denominator: Dim


def follow(node: Node, whole: bool, values: Mapping[str, np.ndarray], ratios: Mapping[str, Ratio]) -> Scalar | None:
    """What a node on scalars gives (`whole`: integers), where a size is among its operands; None: that is not known."""
    given = [_operand(name, values, ratios) for name in node.inputs]
    if any(x is None for x in given) or not any(_is_size(name, values, ratios) for name in node.inputs):
        return None
    if len(given) == 1 and given[0] is not None:
        return _of_one(node.op_type, given[0], whole)
    if len(given) != 2 or given[0] is None or given[1] is None or whole:
        return None
    return _of_two(node.op_type, given[0], given[1])


def _operand(name: str, values: Mapping[str, np.ndarray], ratios: Mapping[str, Ratio]) -> Ratio | None:
    if name in ratios:
        return ratios[name]
    known = values.get(name)
    if known is None or known.size != 1:
        return None
    x = known.reshape(-1)[0]
    if isinstance(x, Expr) or (isinstance(x, int) and not isinstance(x, bool)):
        return Ratio(x)
    if not isinstance(x, float) or not math.isfinite(x):
        return None
    from fractions import Fraction  # with decimals, a millisecond

    exact = Fraction(x)
    return Ratio(exact.numerator, exact.denominator) if max(abs(exact.numerator), exact.denominator) <= _MOST else None


def _is_size(name: str, values: Mapping[str, np.ndarray], ratios: Mapping[str, Ratio]) -> bool:
    """Whether a number is computed from sizes, and not a constant of the model in floating point."""
    return name in ratios or not isinstance(values[name].reshape(-1)[0], float)


def _of_one(op_type: str, x: Ratio, whole: bool) -> Scalar | None:
    n, d = x
    if op_type == "Floor":
        return floordiv(n, d)
    if op_type == "Ceil":
        return -floordiv(-n, d)
    if op_type == "Neg":
        return _lowest(-n, d)
    if op_type == "Round":
        return n if d == 1 else None
    if op_type == "Cast" and whole:
        return truncdiv(n, d) if d > 1 else n
    return x


def _of_two(op_type: str, a: Ratio, b: Ratio) -> Scalar | None:
    if op_type in ("Add", "Sub"):
        sign = 1 if op_type == "Add" else -1
        return _lowest(a.numerator * b.denominator + b.numerator * a.denominator * sign, a.denominator * b.denominator)
    if op_type == "Mul":
        return _lowest(a.numerator * b.numerator, a.denominator * b.denominator)
    if op_type == "Div" and isinstance(b.numerator, int) and b.numerator > 0:
        return _lowest(a.numerator * b.denominator, a.denominator * b.numerator)
    return None


def _lowest(numerator: Dim, denominator: int) -> Ratio | None:
    """The quotient with a denominator as small as a look at the coefficients makes it."""
    coefficients = numerator.terms.values() if isinstance(numerator, Expr) else (numerator,)
    common = math.gcd(denominator, *coefficients)
    if common > 1:
        scaled = (
            Expr({m: c // common for m, c in numerator.terms.items()}) if isinstance(numerator, Expr) else numerator // common
        )
        return _lowest(scaled, denominator // common)
    return Ratio(numerator, denominator) if denominator <= _MOST * _MOST else None


def divided(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Vectors in floating point, element by element; None where one is not a number, a size, or a size by a size."""
    pairs = [_quotient(x, y) for x, y in zip(*(v.flat for v in np.broadcast_arrays(a, b)), strict=True)]
    if any(q is None for q in pairs):
        return None
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), object)
    for i, q in enumerate(pairs):
        out.flat[i] = q
    return out


def _quotient(a: object, b: object) -> Dim | float | Quotient | None:
    if a == b and isinstance(a, Expr):
        return 1.0
    if not isinstance(a, (int, float, Expr)) or not isinstance(b, (int, float, Expr)):
        return None
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return a / b if b else None
    if isinstance(a, float) or isinstance(b, float):
        return a if b == 1 else None
    return Quotient(a, b)
