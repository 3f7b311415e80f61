"""Numbers that write down what is done with them, on a tape (`graph.tape`), and what templates call for that.

Templates compute with sizes as with any numbers. `least` and `most` are `min` and `max` without a guard, `cached` keeps the
results of functions that are called with usual numbers, too.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia.graph.tape import Tape


class Untraceable(TypeError):
    """A function does what a tape cannot note."""


class Traced:
    """A number on a tape: its register and its value for the sizes at hand."""

    __slots__ = ("place", "tape", "value")
    __array_ufunc__ = None

    def __init__(self, tape: Tape, place: int, value: Any) -> None:
        self.tape, self.place, self.value = tape, place, value

    def __bool__(self) -> bool:
        return _compared("ne", self, 0)

    def __neg__(self) -> Any:
        return computed("sub", 0, self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Any:
        return self.tape.noted("abs", self, self, abs(self.value)) if _is_whole(self) else most(self, -self)

    def __floor__(self) -> Any:
        return self._to_whole("floor", math.floor)

    def __ceil__(self) -> Any:
        return self._to_whole("ceil", math.ceil)

    def __round__(self, digits: None = None) -> Any:
        return self._to_whole("round", round)

    def _to_whole(self, name: str, function: Callable[[Any], int]) -> Any:
        return self if _is_whole(self) else self.tape.noted(name, self, self, function(self.value))

    def __pow__(self, power: int) -> Any:
        if type(power) is not int or not 0 <= power <= 8:
            raise Untraceable("no power but small ones")
        return functools.reduce(operator.mul, [self] * power, 1)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __int__(self) -> int:
        """The number itself: what follows is right for it alone."""
        if not _is_whole(self):
            raise Untraceable("a float as an integer: use math.floor")
        self.tape.pinned(self)
        return int(self.value)

    __index__ = __int__

    def _refuse(self, *_: object) -> Any:
        raise Untraceable("a number is needed where there is one for each of many sizes")

    __float__ = __hash__ = __iter__ = __array__ = __str__ = __rpow__ = _refuse


def _is_whole(x: Any) -> bool:
    return type(x.value if type(x) is Traced else x) is not float


def value_of(x: Any) -> Any:
    """The value of an operand: an integer or a float."""
    if type(x) is Traced:
        return x.value
    if type(x) is int or type(x) is float:
        return x
    if type(x) is bool:
        return int(x)
    raise Untraceable(f"no arithmetic with {type(x).__name__}")


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "lshift": operator.lshift, "rshift": operator.rshift, "truediv": operator.truediv, "min": min, "max": max,
}  # fmt: skip
_FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv", "min": "fmin", "max": "fmax"}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1, "lshift": 0, "rshift": 0}


def computed(name: str, a: Any, b: Any) -> Any:
    if type(a) is Traced:
        tape, x, y = a.tape, a.value, b.value if type(b) is Traced else value_of(b)
    else:
        tape, x, y = b.tape, value_of(a), b.value
    if type(x) is float or type(y) is float or name == "truediv":
        if name not in _FLOATING or name in ("min", "max") and type(x) is not type(y):
            raise Untraceable(f"no {name} of {type(x).__name__} and {type(y).__name__}")
        return tape.noted(_FLOATING[name], tape.floating(a), tape.floating(b), _FUNCTIONS[name](x, y))
    if type(b) is not Traced:
        if _NEUTRAL.get(name) == y:
            return a
        if y == 0 and name == "mul":
            return 0
        if y > 62 and name in ("lshift", "rshift"):
            raise Untraceable("shifts by large numbers")
    elif type(a) is not Traced:
        if name == "mul" and x in (0, 1):
            return b if x else 0
        if name == "add" and x == 0:
            return b
    if type(b) is Traced and name in ("lshift", "rshift"):
        raise Untraceable("shifts by numbers that are not constant")
    return tape.noted(name, a, b, _FUNCTIONS[name](x, y))


def _method(name: str, turned: bool) -> Callable[[Any, Any], Any]:
    if turned:
        return lambda self, other: computed(name, other, self)
    return lambda self, other: computed(name, self, other)


_ANSWERS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne}


def _compared(name: str, a: Any, b: Any) -> bool:
    """The answer, which what follows depends on."""
    x, y = value_of(a), value_of(b)
    answer = bool(_ANSWERS[name](x, y))
    tape = a.tape if type(a) is Traced else b.tape
    if type(x) is float or type(y) is float:
        a, b, name = tape.floating(a), tape.floating(b), f"f{name}"
    tape.guarded(name, a, b, answer)
    return answer


def _comparison(name: str, turned: bool) -> Callable[[Any, Any], bool]:
    def method(self: Traced, other: Any) -> Any:
        if type(other) not in (Traced, int, float, bool):
            return NotImplemented
        return _compared(name, other, self) if turned else _compared(name, self, other)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift", "truediv"):
    setattr(Traced, f"__{_name}__", _method(_name, turned=False))
    setattr(Traced, f"__r{_name}__", _method(_name, turned=True))
for _name, _base, _turned in (("lt", "lt", False), ("le", "le", False), ("gt", "lt", True), ("ge", "le", True),
                              ("eq", "eq", False), ("ne", "ne", False)):  # fmt: skip
    setattr(Traced, f"__{_name}__", _comparison(_base, _turned))


def least(first: Any, *others: Any) -> Any:
    """`min`, without a guard."""
    for x in others:
        first = computed("min", first, x) if type(first) is Traced or type(x) is Traced else min(first, x)
    return first


def most(first: Any, *others: Any) -> Any:
    """`max`, without a guard."""
    for x in others:
        first = computed("max", first, x) if type(first) is Traced or type(x) is Traced else max(first, x)
    return first


def cached(maxsize: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`functools.lru_cache` of functions that may be called with traced numbers, which are not memoized."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        known = functools.lru_cache(maxsize)(function)

        @functools.wraps(function)
        def call(*given: Any) -> Any:
            try:
                return known(*given)
            except Untraceable:
                return function(*given)

        return call

    return wrap
