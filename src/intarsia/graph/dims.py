"""Dimensions: an `int`, or an integer expression over named sizes that is evaluated when input shapes are known.

`Expr` is a polynomial with integer coefficients; what is not polynomial (floor division, maximum, ...) enters as an
opaque atom. Two expressions are equal exactly when their normal forms are, so `batch*seq == seq*batch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Union

Dim = Union[int, "Expr"]
Shape = tuple[Dim, ...]

_fresh = itertools.count()


class Atom:
    """A named size, or an opaque operation on dimensions. Compared by name and arguments."""

    __slots__ = ("_hash", "args", "name")

    def __init__(self, name: str, args: tuple[Dim, ...] = ()) -> None:
        self.name, self.args = name, args
        self._hash = hash((name, args))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self._hash == other._hash and (self.name, self.args) == (other.name, other.args)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name

    def evaluate(self, env: Mapping[str, int]) -> int:
        if not self.args:
            return env[self.name]
        return _OPAQUE[self.name](*(evaluate(a, env) for a in self.args))


def _broadcast(a: int, b: int) -> int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ValueError(f"dimensions {a} and {b} do not broadcast")


_OPAQUE: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "broadcast": _broadcast,
}

Monomial = tuple[tuple[Atom, int], ...]  # ((atom, power), ...), sorted by the atom's text


class Expr:
    """A polynomial over atoms. Use `symbol`, arithmetic operators and the functions below to build one."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = dict(terms)

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        terms = dict(self.terms)
        for mono, coeff in _terms(other).items():
            terms[mono] = terms.get(mono, 0) + coeff
        return _normal(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for (m1, c1), (m2, c2) in itertools.product(self.terms.items(), _terms(other).items()):
            mono = _times(m1, m2)
            terms[mono] = terms.get(mono, 0) + c1 * c2
        return _normal(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    @cached_property
    def _key(self) -> frozenset[tuple[Monomial, int]]:
        return frozenset(self.terms.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __bool__(self) -> bool:
        return True  # a symbolic size counts as non-zero, so that `if dim` reads as for ints that are not 0

    def __repr__(self) -> str:
        parts = []
        for mono, coeff in sorted(self.terms.items(), key=lambda t: (-len(t[0]), str(t[0]))):
            factors = [str(a) if p == 1 else f"{a}^{p}" for a, p in mono]
            if coeff != 1 or not factors:
                factors.insert(0, str(coeff))
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all sizes that the expression depends on."""
        found: set[str] = set()
        for mono in self.terms:
            for atom, _ in mono:
                if atom.args:
                    for arg in atom.args:
                        found |= symbols_of(arg)
                else:
                    found.add(atom.name)
        return frozenset(found)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value when every symbol has the size that `env` gives (KeyError names a missing one)."""
        total = 0
        for mono, coeff in self.terms.items():
            for atom, power in mono:
                coeff *= atom.evaluate(env) ** power
            total += coeff
        return total


def _terms(d: Dim) -> dict[Monomial, int]:
    return d.terms if isinstance(d, Expr) else {(): int(d)}


def _times(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda t: str(t[0])))


def _normal(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Expr(kept)


def symbol(name: str) -> Expr:
    """A size known by `name` until the model is bound to shapes."""
    return Expr({((Atom(name), 1),): 1})


def fresh_symbol(hint: str = "d") -> Expr:
    """A size with a name used nowhere else: of an unnamed dimension, or one that depends on data."""
    return symbol(f"{hint}#{next(_fresh)}")


def _opaque(name: str, *args: Dim) -> Expr:
    return Expr({((Atom(name, args), 1),): 1})


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b, exact where b divides every coefficient (or is a common factor) of a."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b > 0 and all(c % b == 0 for c in _terms(a).values()):
        return _normal({m: c // b for m, c in _terms(a).items()})
    quotient = _divide_monomial(a, b)
    return quotient if quotient is not None else _opaque("floordiv", a, b)


def _divide_monomial(a: Dim, b: Dim) -> Dim | None:
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    ((mono, coeff),) = divisor.items()
    out: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        powers = dict(m)
        for atom, power in mono:
            powers[atom] = powers.get(atom, 0) - power
        if c % coeff or any(p < 0 for p in powers.values()):
            return None
        out[tuple((x, p) for x, p in sorted(powers.items(), key=lambda t: str(t[0])) if p)] = c // coeff
    return _normal(out)


def mod(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and all(c % b == 0 for c in _terms(a).values()):
        return 0
    return _opaque("mod", a, b)


def dim_max(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _opaque("max", a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _opaque("min", a, b)


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The size of one dimension of `a` and `b` after multidirectional broadcasting.

    A symbolic size facing a known one other than 1 must be 1 or that size, so the result is the known one.

    Raises:
        ValueError: two known sizes differ and neither is 1.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return _broadcast(a, b)
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return _opaque("broadcast", a, b)


def broadcast_shapes(*shapes: Iterable[Dim]) -> Shape:
    """NumPy-style broadcasting of shapes whose dimensions may be symbolic.

    Raises:
        ValueError: the shapes cannot be broadcast together.
    """
    lists = [tuple(s) for s in shapes]
    rank = max((len(s) for s in lists), default=0)
    out: list[Dim] = []
    for i in range(rank):
        d: Dim = 1
        for s in lists:
            j = i - (rank - len(s))
            if j >= 0:
                try:
                    d = broadcast_dim(d, s[j])
                except ValueError:
                    raise ValueError(f"shapes {', '.join(format_shape(s) for s in lists)} do not broadcast") from None
        out.append(d)
    return tuple(out)


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = d * total if isinstance(d, Expr) else total * d
    return total


def evaluate(d: Dim, env: Mapping[str, int]) -> int:
    return d.evaluate(env) if isinstance(d, Expr) else int(d)


def symbols_of(d: Dim) -> frozenset[str]:
    return d.symbols if isinstance(d, Expr) else frozenset()


def is_static(shape: Iterable[Dim]) -> bool:
    return all(not isinstance(d, Expr) for d in shape)


def format_shape(shape: Iterable[Dim]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
