"""Dimensions: an `int`, or an integer expression over named sizes that is evaluated when input shapes are known.

`Expr` is a polynomial with integer coefficients; what is not polynomial (floor division, maximum, ...) enters as an
opaque atom. Two expressions are equal exactly when their normal forms are, so `batch*seq == seq*batch`.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Union
from weakref import WeakValueDictionary

from intarsia.errors import SizeTooLarge

Dim = Union[int, "Expr"]
Shape = tuple[Dim, ...]

_fresh, _latest = itertools.count(), -1
_MOST_TERMS, _MOST_POWER = 1 << 17, 64  # of a product: a chain of nodes that square a size doubles them each time
_REJOINED_TERMS = 32  # of a sum in which the two parts of a cut are looked for: their pairs are its square
_TEXT_LIMIT = 240  # characters: operations on operations on ... would have texts that grow exponentially


class Atom:
    """A named size, or an opaque operation on dimensions. There is one object of each name and arguments."""

    __slots__ = ("__weakref__", "_hash", "_size", "_text", "args", "name")
    _known: ClassVar[WeakValueDictionary[tuple[str, tuple[Dim, ...]], Atom]] = WeakValueDictionary()
    name: str
    args: tuple[Dim, ...]
    _hash: int
    _text: str | None
    _size: bool | None

    def __new__(cls, name: str, args: tuple[Dim, ...] = ()) -> Atom:  # noqa: PYI034 (the one that there is)
        found = cls._known.get((name, args))
        if found is None:
            made = object.__new__(cls)
            made.name, made.args, made._hash, made._text, made._size = name, args, hash((name, args)), None, None
            found = cls._known.setdefault((name, args), made)
        return found

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Atom], tuple[str, tuple[Dim, ...]]]:
        return Atom, (self.name, self.args)

    @property
    def is_size(self) -> bool:
        """Whether the atom is known to be 0 or more."""
        if self._size is None:
            if not self.args:
                self._size = "[" not in self.name
            else:
                test = any if self.name == "max" else all
                self._size = self.name == "reshape_dim" or test(is_nonnegative(a) for a in self.args)
        return self._size

    def __repr__(self) -> str:
        """The operation, written out; where that is long, with a digest of its operands in their place."""
        if self._text is None:
            text = f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name
            if self.args and len(text) > _TEXT_LIMIT:
                import hashlib

                text = f"{self.name}(~{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()})"
            self._text = text
        return self._text

    def evaluate(self, env: Mapping[str, int], known: dict[Atom, int]) -> int:
        """The value; `known` holds those of operations met before, which large expressions share."""
        if not self.args:
            return env[self.name]
        value = known.get(self)
        if value is None:
            operands = (a._evaluate(env, known) if isinstance(a, Expr) else int(a) for a in self.args)
            value = known[self] = _OPAQUE[self.name](*operands)
        return value


def _float32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def broadcast_sizes(a: int, b: int) -> int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ValueError(f"dimensions {a} and {b} do not broadcast")


def _one_of(size: int, *expected: int) -> int:
    if size not in expected:
        raise ValueError(f"a size is {size}; expected one of {', '.join(map(str, dict.fromkeys(expected)))}")
    return size


def _reshape_dim(index: int, allowzero: int, rank: int, *sizes: int) -> int:
    shape, target = sizes[:rank], sizes[rank:]
    out = [shape[i] if t == 0 and not allowzero and i < rank else t for i, t in enumerate(target)]
    if out[index] != -1:
        return out[index]
    rest = math.prod(d for i, d in enumerate(out) if i != index)
    return math.prod(shape) // rest if rest else 0


_OPAQUE: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "quotient": lambda a, b: a // b if b else 0,
    "truncdiv": lambda a, b: abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b)),
    "wrap": lambda i, n: i + n if i < 0 else i,
    "reshape_dim": _reshape_dim,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "broadcast": lambda *sizes: functools.reduce(broadcast_sizes, sizes),
    "one_of": _one_of,
    "scaled": lambda n, numerator, denominator: math.floor(_float32(_float32(n) * (numerator / denominator))),
}


def operation(name: str) -> Callable[..., int]:
    """What an atom with arguments computes."""
    return _OPAQUE[name]


Monomial = tuple[tuple[Atom, int], ...]  # ((atom, power), ...), sorted by the atom's text


class Expr:
    """A polynomial over atoms. Use `symbol`, arithmetic operators and the functions below to build one."""

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = dict(terms)

    def __reduce__(self) -> tuple[type[Expr], tuple[dict[Monomial, int]]]:
        return Expr, (self.terms,)

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        return _rejoined(_sum(self, other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        return _rejoined(_sum(self, other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, (int, Expr)):
            return NotImplemented
        if not isinstance(other, Expr):
            return _normal({mono: coeff * int(other) for mono, coeff in self.terms.items()})
        if len(self.terms) * len(other.terms) > _MOST_TERMS:
            raise SizeTooLarge(f"a size is a product of sums of {len(self.terms)} and {len(other.terms)} sizes")
        terms: dict[Monomial, int] = {}
        for (m1, c1), (m2, c2) in itertools.product(self.terms.items(), other.terms.items()):
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

    def evaluate(self, env: Mapping[str, int], known: dict[Atom, int] | None = None) -> int:
        """The value when every symbol has the size that `env` gives (KeyError names a missing one).

        `known`: values of operations for this `env`, to which those that are met are added.
        """
        return self._evaluate(env, {} if known is None else known)

    def _evaluate(self, env: Mapping[str, int], known: dict[Atom, int]) -> int:
        total = 0
        for mono, coeff in self.terms.items():
            for atom, power in mono:
                coeff *= atom.evaluate(env, known) ** power
            total += coeff
        return total


def _terms(d: Dim) -> dict[Monomial, int]:
    return d.terms if isinstance(d, Expr) else {(): int(d)}


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = together = powers.get(atom, 0) + power
        if together > _MOST_POWER:
            raise SizeTooLarge(f"a size is {atom}^{together}, which no memory has unless {atom} is 0 or 1")
    return tuple(sorted(powers.items(), key=lambda t: str(t[0])))


def _normal(terms: Mapping[Monomial, int]) -> Dim:
    nonzero = {m: c for m, c in terms.items() if c}
    if not nonzero:
        return 0
    if len(nonzero) == 1 and () in nonzero:
        return nonzero[()]
    return Expr(nonzero)


def _sum(a: Dim, b: Dim, factor: int = 1) -> Dim:
    """a + factor * b, term by term."""
    terms = dict(_terms(a))
    for mono, coeff in _terms(b).items():
        terms[mono] = terms.get(mono, 0) + factor * coeff
    return _normal(terms)


def _rejoined(d: Dim) -> Dim:
    """`d` without what a cut of an axis at k leaves: max(a - k, 0) + min(a, k) is a, and a - max(a - k, 0) is min(a, k)."""
    if not isinstance(d, Expr) or not 2 <= len(d.terms) <= _REJOINED_TERMS:
        return d
    for mono, coeff in d.terms.items():
        if len(mono) != 1 or mono[0][1] != 1 or mono[0][0].name != "max" or mono[0][0].args[-1] != 0:
            continue
        longer = mono[0][0].args[0]
        if coeff == -1:
            rest = _normal({m: c for m, c in d.terms.items() if m != mono})
            k = _sum(rest, longer, -1)  # a plain sum: to rejoin it, too, would take time that is a factorial of the terms
            if isinstance(k, int):
                return dim_min(rest, k)
        for other, count in d.terms.items():
            if coeff == count and len(other) == 1 and other[0][1] == 1 and other[0][0].name == "min":
                a, k = other[0][0].args
                if longer in (_sum(a, k, -1), _sum(k, a, -1)):
                    rest = _normal({m: c for m, c in d.terms.items() if m not in (mono, other)})
                    return rest + (a if _sum(a, k, -1) == longer else k) * coeff
    return d


def symbol(name: str) -> Expr:
    """A size known by `name` until the model is bound to shapes."""
    return Expr({((Atom(name), 1),): 1})


PLACEHOLDERS = frozenset(("?", "*", "-1", "None", "none", "unknown", "Unknown", "Any"))
"""Names that exporters give to every dimension they know nothing of: two of them are not one size."""


def written_name(name: str) -> str | None:
    """How a symbol is written outside: its name, a placeholder without its number, None for one that has no name."""
    if "#" not in name:
        return name
    placeholder = name.partition("#")[0]
    return placeholder if placeholder in PLACEHOLDERS else None


def fresh_symbol(hint: str = "d") -> Expr:
    """A size with a name used nowhere else: of an unnamed dimension, or one that depends on data."""
    global _latest  # noqa: PLW0603
    _latest = next(_fresh)
    return symbol(f"{hint}#{_latest}")


def latest_fresh() -> int:
    """The number of the latest fresh symbol: the same as before where no thread has made one since."""
    return _latest


def opaque(name: str, *args: Dim) -> Expr:
    return Expr({((Atom(name, args), 1),): 1})


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b, exact where b divides a (ZeroDivisionError where b is 0).

    Multiples of a number b come out of the division: (h - 1) // 4 is (h + 3) // 4 - 1, so that equal sizes read the same
    and the operand is 0 or more where h is.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b > 0:
        whole = _normal({m: c // b for m, c in _terms(a).items() if c % b == 0 or not m})
        rest = a - whole * b
        return whole + (rest // b if isinstance(rest, int) else opaque("floordiv", rest, b))
    quotient = _divide_exactly(a, b)
    return quotient if quotient is not None else opaque("floordiv", a, b)


def truncdiv(a: Dim, b: Dim) -> Dim:
    """a / b towards 0, as ONNX divides integers, for operands of unknown signs (ZeroDivisionError where b is 0)."""
    if isinstance(a, int) and isinstance(b, int):
        return _OPAQUE["truncdiv"](a, b)
    exact = _divide_exactly(a, b) if b != 0 else None
    return exact if exact is not None else opaque("truncdiv", a, b)


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where that is a polynomial: long division by b's leading monomial."""
    divisor, rest, out = _terms(b), dict(_terms(a)), dict[Monomial, int]()
    if len(divisor) == 1:
        return _divide_monomial(a, divisor)
    if len(divisor) * len(rest) > 400 or not divisor:
        return None
    atoms = sorted({atom for m in (*rest, *divisor) for atom, _ in m}, key=str)

    def degrees(m: Monomial) -> list[int]:
        powers = dict(m)
        return [powers.get(atom, 0) for atom in atoms]

    lead = max(divisor, key=degrees)
    while rest:
        factor = _divide_monomial(Expr({(top := max(rest, key=degrees)): rest[top]}), {lead: divisor[lead]})
        if factor is None:
            return None
        ((mono, coeff),) = _terms(factor).items()
        out[mono] = coeff
        for m, c in divisor.items():
            product_mono = _times(mono, m)
            left = rest.get(product_mono, 0) - coeff * c
            if left:
                rest[product_mono] = left
            else:
                rest.pop(product_mono, None)
    return _normal(out)


def _divide_monomial(a: Dim, divisor: Mapping[Monomial, int]) -> Dim | None:
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
    return opaque("mod", a, b)


def scaled(a: Dim, factor: float) -> Dim:
    """floor(a * factor), the product rounded to float32 as Resize has it; `factor` is a float32 number."""
    numerator, denominator = factor.as_integer_ratio()
    if isinstance(a, int):
        return _OPAQUE["scaled"](a, numerator, denominator)
    if denominator == 1:
        return a * numerator
    if numerator == 1:
        return floordiv(a, denominator)
    return opaque("scaled", a, numerator, denominator)


def dim_max(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if is_nonnegative(a - b) else b if is_nonnegative(b - a) else opaque("max", *_in_order(a, b))


def dim_min(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return b if is_nonnegative(a - b) else a if is_nonnegative(b - a) else opaque("min", *_in_order(a, b))


def one_of(size: Dim, expected: Sequence[Dim]) -> Dim:
    """`size`, which is one of `expected` (ValueError where a run gives another)."""
    if size in expected:
        return size
    if isinstance(size, int) and all(isinstance(d, int) for d in expected):
        return _OPAQUE["one_of"](size, *expected)
    return opaque("one_of", size, *expected)


def _in_order(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Two operands of an operation that does not mind their order: numbers last."""
    if isinstance(a, int) or isinstance(b, int):
        return (b, a) if isinstance(a, int) else (a, b)
    return (b, a) if str(b) < str(a) else (a, b)


def lower_bound(d: Dim) -> int | None:
    """A number that `d` is not below whatever its sizes are (each at least 0); None where that cannot be told.

    Symbols that stand for elements of integer tensors ("name[0]") may have any sign.
    """
    if not isinstance(d, Expr):
        return int(d)
    for mono, coeff in d.terms.items():
        if mono and (coeff < 0 or not all(atom.is_size for atom, _ in mono)):
            return None
    return d.terms.get((), 0)


def is_nonnegative(d: Dim) -> bool:
    """Whether `d` is known to be 0 or more."""
    bound = lower_bound(d)
    return bound is not None and bound >= 0


def quotient(a: Dim, b: Dim) -> Dim:
    """a // b, and 0 where b is 0."""
    if isinstance(b, int):
        return floordiv(a, b) if b else 0
    exact = _divide_exactly(a, b)
    return exact if exact is not None else opaque("quotient", a, b)


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = d * total if isinstance(d, Expr) else total * d
    return total


def row_major_strides(shape: Sequence[Dim]) -> list[Dim]:
    """For each axis how many elements one step along it passes: the product of the sizes behind it."""
    strides: list[Dim] = [1]
    for d in reversed(shape[1:]):
        strides.append(d * strides[-1] if isinstance(d, Expr) else strides[-1] * d)
    return strides[: len(shape)][::-1]


def evaluate(d: Dim, env: Mapping[str, int]) -> int:
    return d.evaluate(env) if isinstance(d, Expr) else int(d)


def symbols_of(d: Dim) -> frozenset[str]:
    return d.symbols if isinstance(d, Expr) else frozenset()


def is_static(shape: Iterable[Dim]) -> bool:
    return all(not isinstance(d, Expr) for d in shape)


def number_of(d: Dim) -> int:
    """A size where sizes are known to be numbers.

    Raises:
        TypeError: it is not.
    """
    if isinstance(d, Expr):
        raise TypeError(f"expected a size that is a number, got {d}")
    return int(d)


def numbers_of(shape: Iterable[Dim]) -> tuple[int, ...]:
    """`number_of` each size."""
    return tuple([number_of(d) for d in shape])


def format_shape(shape: Iterable[Dim]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
