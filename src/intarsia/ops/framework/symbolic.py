"""Integer primitives evaluated on dimensions: how shape arithmetic is followed before sizes are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from intarsia.graph.dims import Expr, dim_max, dim_min, floordiv, is_nonnegative, lower_bound, mod, product, truncdiv
from intarsia.graph.dtypes import DType
from intarsia.ops.framework.size_quotients import Quotient
from intarsia.primitives.lang import Tensor, walk

_MOVES = frozenset(("broadcast", "reshape", "transpose", "concat", "slice", "take", "cast"))
_MAY_OVERFLOW = frozenset(("cast", "neg", "abs", "add", "sub", "mul", "div", "reduce"))
_MOST_ELEMENTS = 1 << 16  # of a value on the way to a small one
_SIZE_BITS = 32  # of integers that hold any size; smaller ones may wrap around at a run


class Unknown(Exception):
    """The value depends on data, or on a comparison of sizes that are not known."""


def evaluate_symbolic(root: Tensor, operands: Mapping[int, np.ndarray | None]) -> np.ndarray:
    """The elements of `root` as an object array of ints, bools or `Expr`s.

    Raises:
        Unknown: an operand is not known, or a primitive cannot be evaluated on symbolic sizes.
    """
    values: dict[int, np.ndarray] = {}
    for t in walk([root]):
        rule = _RULES.get(t.prim)
        if rule is None:
            raise Unknown(t.prim)
        if t.prim not in _MOVES and any(a.dtype.is_floating and _has_size(values[id(a)]) for a in t.args):
            raise Unknown("float")
        size = product(t.shape)
        if isinstance(size, int) and size > _MOST_ELEMENTS:
            raise Unknown("too many elements")
        try:
            found = rule(t, [values[id(a)] for a in t.args], operands)
        except OverflowError:
            raise Unknown("too large an expression") from None
        values[id(t)] = _wrapped(found, t.dtype) if t.prim in _MAY_OVERFLOW and t.dtype.is_integer else found
    return values[id(root)]


def _has_size(values: np.ndarray) -> bool:
    return any(isinstance(v, (Expr, Quotient)) for v in values.flat)


def _wrapped(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers that the type does not have, modulo 2 to the power of its bits.

    Raises:
        Unknown: a size may be such a number.
    """
    low = -(1 << dtype.bits - 1) if dtype.is_signed_integer else 0
    for i in np.ndindex(values.shape):
        v = values[i]
        if not isinstance(v, Expr):
            values[i] = (v - low) % (1 << dtype.bits) + low
        elif dtype.bits < _SIZE_BITS:
            raise Unknown("a size in few bits")
    return values


def _input(t: Tensor, args: list[np.ndarray], operands: Mapping[int, np.ndarray | None]) -> np.ndarray:
    value = operands.get(t.attrs[0])
    if value is None:
        raise Unknown("operand")
    return value


def _object(value: Any, shape: tuple[Any, ...]) -> np.ndarray:
    out = np.empty(shape, object)
    out[...] = value
    return out


def _static(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if any(isinstance(d, Expr) for d in shape):
        raise Unknown("shape")
    return shape


def _elementwise(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def rule(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
        out = np.empty(_static(t.shape), object)
        flat = [np.broadcast_to(a, out.shape) for a in args]
        for i in np.ndindex(out.shape):
            out[i] = function(*(a[i] for a in flat))
        return out

    return rule


def _compare(function: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def rule(a: Any, b: Any) -> bool:
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return function(a - b) if not isinstance(a, bool) else function(int(a) - int(b))
        difference = a - b
        if isinstance(difference, Expr):
            for sign, distance in ((1, lower_bound(difference)), (-1, lower_bound(-difference))):
                if distance is not None and distance >= 0 and (distance or function(0) == function(sign)):
                    return function(sign)
            raise Unknown("comparison")
        return function(difference)

    return rule


def _lower_bound(d: Any) -> int | None:
    """A bound of a polynomial with non-negative coefficients over sizes: those that the model names are taken as at least 1.

    Sizes that only a run knows (of what NonZero finds, of what a loop has collected) may be 0.
    """
    if not isinstance(d, Expr):
        return int(d)
    total = 0
    for mono, coeff in d.terms.items():
        if not mono:
            total += coeff
        elif coeff < 0 or any(atom.args or "[" in atom.name for atom, _ in mono):
            return None
        elif not any("#" in atom.name for atom, _ in mono):
            total += coeff
    return total


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    if not isinstance(b, Expr) and b == 0:
        raise Unknown("division by 0")
    if not _is_positive(b):
        return -_divide(a, -b) if _is_positive(-b) else truncdiv(a, b)
    if (low := _lower_bound(a)) is not None and low >= 0:
        return floordiv(a, b)
    if (low := _lower_bound(-a)) is not None and low >= 0:
        return -floordiv(-a, b)
    return truncdiv(a, b)


def _is_positive(d: Any) -> bool:
    low = _lower_bound(d)
    return low is not None and low >= 1


def _absolute(a: Any) -> Any:
    if not isinstance(a, Expr):
        return abs(a)
    return a if is_nonnegative(a) else -a if is_nonnegative(-a) else dim_max(a, -a)


def _modulus(a: Any, b: Any) -> Any:
    if not isinstance(b, Expr) and b == 0:
        raise Unknown("division by 0")
    return mod(a, b)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def _cast(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
    if any(isinstance(x, Quotient) for x in args[0].flat):
        raise Unknown("float")
    if t.dtype.is_integer:
        return _elementwise(lambda x: x if isinstance(x, Expr) else int(x))(t, args, operands)
    if t.dtype is DType.BOOL:
        return _elementwise(_compare(lambda d: d != 0))(t, [args[0], _object(0, args[0].shape)], operands)
    if any(isinstance(x, Expr) for x in args[0].flat):
        raise Unknown("float")
    return _elementwise(float)(t, args, operands)


def _reduce(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
    op, axes = t.attrs
    fold = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": dim_max, "min": dim_min}.get(op)
    if fold is None:
        raise Unknown(op)
    x = args[0]
    keep = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose(*keep, *axes).reshape([*(x.shape[i] for i in keep), -1])
    out = np.empty(rows.shape[:-1], object)
    for i in np.ndindex(out.shape):
        total = {"sum": 0, "prod": 1}.get(op)
        for value in rows[i]:
            total = value if total is None else fold(total, value)
        if total is None:
            raise Unknown("empty")
        out[i] = total
    return out


def _slice(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
    starts, steps = t.attrs
    _static(starts)
    grid = np.ix_(*[[s + i * p for i in range(n)] for s, p, n in zip(starts, steps, _static(t.shape), strict=True)])
    return np.asarray(args[0][grid], object)


def _take(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
    if any(isinstance(i, Expr) for i in args[1].flat):
        raise Unknown("index")
    return np.asarray(np.take(args[0], args[1].astype(np.int64), t.attrs[0]), object)


def _iota(t: Tensor, args: list[np.ndarray], operands: object) -> np.ndarray:
    return np.asarray(np.indices(_static(t.shape))[t.attrs[0]], object)


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "input": _input,
    "scalar": lambda t, args, operands: _object(t.attrs[0], ()),
    "size": lambda t, args, operands: _object(t.attrs[0], ()),
    "table": lambda t, args, operands: np.frombuffer(t.attrs[0], t.dtype.numpy).reshape(t.attrs[1]).astype(object),
    "iota": _iota,
    "broadcast": lambda t, args, operands: np.broadcast_to(args[0], _static(t.shape)),
    "reshape": lambda t, args, operands: args[0].reshape(_static(t.shape)),
    "transpose": lambda t, args, operands: args[0].transpose(t.attrs),
    "concat": lambda t, args, operands: np.concatenate(args, t.attrs[0]),
    "slice": _slice,
    "take": _take,
    "reduce": _reduce,
    "cast": _cast,
    "neg": _elementwise(lambda a: -a),
    "abs": _elementwise(_absolute),
    "add": _elementwise(lambda a, b: a + b),
    "sub": _elementwise(lambda a, b: a - b),
    "mul": _elementwise(lambda a, b: a * b),
    "div": _elementwise(_divide),
    "mod": _elementwise(_modulus),
    "min": _elementwise(dim_min),
    "max": _elementwise(dim_max),
    "eq": _elementwise(_compare(lambda d: d == 0)),
    "ne": _elementwise(_compare(lambda d: d != 0)),
    "lt": _elementwise(_compare(lambda d: d < 0)),
    "le": _elementwise(_compare(lambda d: d <= 0)),
    "and": _elementwise(lambda a, b: a and b),
    "or": _elementwise(lambda a, b: a or b),
    "not": _elementwise(lambda a: not a),
    "select": _elementwise(_select),
}
