"""Names of dimensions that are sums and products of others, as exporters write them: `past_sequence_length + 1`."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"floor": lambda x: x // 1, "max": max, "min": min}
_LONGEST = 200  # characters of a name that is read as an expression


@functools.cache
def names_in(name: str) -> tuple[str, ...]:
    """The names of which this one is made: itself where it is no expression."""
    body = _parsed(name)
    if body is None:
        return (name,)
    called = {id(node.func) for node in ast.walk(body) if isinstance(node, ast.Call)}
    return tuple(dict.fromkeys(n.id for n in ast.walk(body) if isinstance(n, ast.Name) and id(n) not in called))


def is_expression(name: str) -> bool:
    """Whether the name is more than one name."""
    return names_in(name) != (name,)


def evaluate(name: str, sizes: Mapping[str, int]) -> int | None:
    """The expression's value; None where a name of it has no size, or it has no whole value of at least 0."""
    if name in sizes:
        return sizes[name]
    body = _parsed(name)
    if body is None or any(part not in sizes for part in names_in(name)):
        return None
    try:
        value = _value(body, sizes)
    except (ZeroDivisionError, OverflowError):
        return None
    return int(value) if value >= 0 and value == int(value) else None


def solve(name: str, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one name of an expression that has no size yet, and the size for which the expression has this value.

    None where there are several such names, or no such size. Sums and multiples are solved, not quotients.
    """
    unknown = [part for part in names_in(name) if part not in sizes]
    if len(unknown) != 1:
        return None
    at_zero, at_one = (evaluate_at(name, {**sizes, unknown[0]: x}) for x in (0, 1))
    if at_zero is None or at_one is None or at_one == at_zero:
        return None
    found = (value - at_zero) / (at_one - at_zero)
    if found < 0 or found != int(found) or evaluate(name, {**sizes, unknown[0]: int(found)}) != value:
        return None
    return unknown[0], int(found)


def evaluate_at(name: str, sizes: Mapping[str, int]) -> float | None:
    """As `evaluate`, with any value: on the way to a solution a size may be negative."""
    body = _parsed(name)
    if body is None:
        return sizes.get(name)
    try:
        return float(_value(body, sizes))
    except (ZeroDivisionError, OverflowError):
        return None


@functools.cache
def _parsed(name: str) -> ast.expr | None:
    """The expression; None where the text is a name, or anything else."""
    if len(name) > _LONGEST:
        return None
    try:
        body = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return body if not isinstance(body, ast.Name) and _is_arithmetic(body) and _has_names(body) else None


def _has_names(body: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) for node in ast.walk(body))


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_arithmetic(node.operand)
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        return known and all(map(_is_arithmetic, node.args))
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))


def _value(node: ast.expr, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id](*[_value(argument, sizes) for argument in node.args])
    if isinstance(node, ast.Name):
        return sizes[node.id]
    assert isinstance(node, ast.Constant)
    return node.value
