"""Asking a function of sizes for many sizes at once.

What templates compute from sizes (tiles, shares, scratch) are Python functions of numbers. They are called with `Numbers`: one
for each of the sizes. Arithmetic goes element by element, and a comparison answers where all elements agree. Where they do not,
the sizes are parted and the function is asked for each part; where it needs a number itself (an index, a key), for each size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, Expr, evaluate_many


class _Apart(Exception):
    """Sizes for which a comparison has different answers: `holds` says for which it is true."""

    def __init__(self, holds: np.ndarray) -> None:
        self.holds = holds


_EXACT = 1 << 53  # integers below it are floats too
_MOST = 1 << 62


class Numbers:
    """A number for each of some sizes, not all the same."""

    __slots__ = ("most", "values")
    __array_ufunc__ = None

    def __init__(self, values: np.ndarray, most: int = 0) -> None:
        self.values = values  # int64, or float64
        self.most = most  # integers: none is further from 0

    def __bool__(self) -> bool:
        return _agreed(self.values != 0)

    def __neg__(self) -> Numbers:
        return Numbers(-self.values, self.most)

    def __abs__(self) -> Any:
        return _numbers(np.abs(self.values), self.most)

    def __ceil__(self) -> Any:
        if np.abs(self.values).max() >= _EXACT:
            raise OverflowError("too large a number")
        return _numbers(np.ceil(self.values).astype(np.int64), _EXACT)

    def _refuse(self, *_: object) -> Any:
        raise TypeError("a number is needed where there is one for each of many sizes")

    __index__ = __int__ = __float__ = __hash__ = __iter__ = __array__ = __str__ = _refuse


def _numbers(values: np.ndarray, most: int) -> Any:
    return values[0].item() if (values == values[0]).all() else Numbers(values, most)


def _agreed(holds: np.ndarray) -> bool:
    if holds.all():
        return True
    if holds.any():
        raise _Apart(holds)
    return False


def _operand(x: Any) -> tuple[Any, int, bool]:
    """An operand, how far from 0 it is at most, and whether it is an integer."""
    if isinstance(x, Numbers):
        return x.values, x.most, x.values.dtype == np.int64
    if type(x) is int or type(x) is float:
        return x, abs(int(x)), type(x) is int
    raise TypeError(f"no arithmetic with {type(x).__name__}")


_INTEGERS: dict[str, Callable[[int, int], int]] = {  # how far from 0 a result is at most
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a + 1,
    "mod": lambda a, b: b,
    "lshift": lambda a, b: a << min(b, 64),
    "rshift": lambda a, b: a,
    "truediv": lambda a, b: 0,
}


def _computed(name: str, a: Any, b: Any) -> Any:
    (x, most_x, whole_x), (y, most_y, whole_y) = _operand(a), _operand(b)
    whole = whole_x and whole_y
    if name in ("floordiv", "mod", "truediv") and not np.all(y):
        raise ZeroDivisionError("division by zero")
    if name in ("lshift", "rshift") and (not whole or np.min(y) < 0 or most_y > 62):
        raise TypeError("no shift by these")
    most = _INTEGERS[name](most_x, most_y)
    if whole and most >= _MOST or (not whole or name == "truediv") and max(most_x * whole_x, most_y * whole_y) >= _EXACT:
        raise OverflowError("too large a number")
    return _numbers(getattr(operator, name)(x, y), most)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Numbers, Any], bool]:
    def method(self: Numbers, other: Any) -> bool:
        return _agreed(compare(self.values, _operand(other)[0]))

    return method


for _name in _INTEGERS:
    setattr(Numbers, f"__{_name}__", lambda self, other, name=_name: _computed(name, self, other))
    setattr(Numbers, f"__r{_name}__", lambda self, other, name=_name: _computed(name, other, self))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Numbers, f"__{_name}__", _comparison(getattr(operator, _name)))


class ManySizes:
    """The sizes of many environments: for each symbol an array of Python's integers, as `evaluate_many` takes them."""

    def __init__(self, envs: Mapping[str, np.ndarray], count: int) -> None:
        self.envs, self.count = envs, count
        self._known: dict[Dim, tuple[np.ndarray, int]] = {}

    def _column(self, d: Dim) -> tuple[np.ndarray, int]:
        """The values of a size, one for each environment, and how far from 0 they are at most."""
        found = self._known.get(d)
        if found is None:
            values = np.empty(self.count, np.int64)
            values[:] = evaluate_many((d,), self.envs)[0]
            found = self._known[d] = values, int(np.abs(values).max())
        return found

    def each(self, ask: Callable[..., Any], *further: Any) -> Iterator[tuple[np.ndarray, Any]]:
        """What a function of sizes answers, as (numbers of environments, answer for them); its numbers may be `Numbers`."""
        yield from self._each(np.arange(self.count), ask, further)

    def _each(self, which: np.ndarray, ask: Callable[..., Any], further: tuple[Any, ...]) -> Iterator[tuple[np.ndarray, Any]]:
        if len(which) == 1:
            yield which, ask(self._sizes(which), *further)
            return
        try:
            answer = ask(self._sizes(which), *further)
        except _Apart as apart:
            for part in (which[apart.holds], which[~apart.holds]):
                yield from self._each(part, ask, further)
            return
        except Exception:  # noqa: BLE001 - what a function makes of numbers that are none is its own affair
            for i in range(len(which)):
                yield from self._each(which[i : i + 1], ask, further)
            return
        yield which, answer

    def _sizes(self, which: np.ndarray) -> Callable[[Dim], Any]:
        known: dict[Dim, Any] = {}

        def size(d: Dim) -> Any:
            if not isinstance(d, Expr):
                return d
            value = known.get(d)
            if value is None:
                values, most = self._column(d)
                value = known[d] = _numbers(values[which], most)
            return value

        return size

    def values(self, ask: Callable[..., Any], *further: Any) -> np.ndarray:
        """What a function of sizes answers with one number, for each environment."""
        found = np.empty(self.count, object)
        for which, answer in self.each(ask, *further):
            found[which] = answer.values if isinstance(answer, Numbers) else answer
        return found
