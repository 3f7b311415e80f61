"""Arithmetic and mathematical functions, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.operands import aligned, as_scalar, in_float32
from intarsia.ops.framework.registry import NodeContext, op
from intarsia.ops.tensor import philox
from intarsia.ops.tensor.random_tensors import reference_units, state_words, units
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands

Tensor = k.Tensor

_UNARY = {
    "Neg": ("neg", (1, 6, 13)),
    "Sign": ("sign", (9, 13)),
    "Floor": ("floor", (1, 6, 13)),
    "Ceil": ("ceil", (1, 6, 13)),
    "Round": ("round", (11, 22)),
    "Sqrt": ("sqrt", (1, 6, 13)),
    "Exp": ("exp", (1, 6, 13)),
    "Log": ("log", (1, 6, 13)),
    "Sin": ("sin", (7, 22)),
    "Cos": ("cos", (7, 22)),
    "Tan": ("tan", (7, 22)),
    "Asin": ("asin", (7, 22)),
    "Acos": ("acos", (7, 22)),
    "Atan": ("atan", (7, 22)),
    "Sinh": ("sinh", (9, 22)),
    "Cosh": ("cosh", (9, 22)),
    "Tanh": ("tanh", (1, 6, 13)),
    "Asinh": ("asinh", (9, 22)),
    "Acosh": ("acosh", (9, 22)),
    "Atanh": ("atanh", (9, 22)),
    "BitwiseNot": ("bitnot", (18,)),
}

_ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}

_BITWISE = {"BitwiseAnd": "bitand", "BitwiseOr": "bitor", "BitwiseXor": "bitxor"}


def _unary(primitive: str) -> Callable[[Tensor], Tensor]:
    def definition(X: Tensor) -> Tensor:
        return k.unary(primitive, X)

    return definition


def _binary(primitive: str) -> Callable[[Tensor, Tensor], Tensor]:
    def definition(A: Tensor, B: Tensor) -> Tensor:
        return k.binary(primitive, A, B)

    return definition


def _binary_at_axis(primitive: str) -> Callable[..., Tensor]:
    def definition(A: Tensor, B: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        return k.binary(primitive, A, aligned(B, A.rank, axis) if broadcast else B)

    return definition


@op("Erf", (9, 13))
def erf(input: Tensor) -> Tensor:
    """Of integers as well: as double, and its fraction cut off."""
    if input.dtype.is_integer:
        return k.cast(k.erf(k.cast(input, DType.DOUBLE)), input.dtype)
    return k.erf(input)


for _name, (_primitive, _since) in _UNARY.items():
    op(_name, _since)(_unary(_primitive))
for _name, _primitive in _ARITHMETIC.items():
    op(_name, (1, 6))(_binary_at_axis(_primitive))
    op(_name, (7, 13, 14))(_binary(_primitive))
for _name, _primitive in _BITWISE.items():
    op(_name, 18)(_binary(_primitive))


@op("Abs", (1, 6, 13))
def absolute(X: Tensor) -> Tensor:
    return k.absolute(X)


@op("Reciprocal", (1, 6, 13))
def reciprocal(X: Tensor) -> Tensor:
    return 1.0 / X


@op("Identity", (1, 13, 14, 16, 19, 21, 23, 24, 25))
def identity(input: Any = None) -> tuple[Any]:
    """A tensor, sequence or optional as it is (in a tuple: a sequence is a list); None is an empty optional."""
    return (input,)


@op("Mod", (10, 13, 28))
def mod(A: Tensor, B: Tensor, *, fmod: int = 0) -> Tensor:
    return k.binary("fmod" if fmod else "mod", A, B)


@op("Pow", 1)
def pow_at_axis(X: Tensor, Y: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    return k.power(X, aligned(Y, X.rank, axis) if broadcast else Y)


@op("Pow", (7, 12, 13, 15))
def power(X: Tensor, Y: Tensor) -> Tensor:
    """X ** Y in X's type; an integer base with a fractional exponent is computed in floating point and truncated."""
    if X.dtype == Y.dtype:
        return k.power(X, Y)
    if X.dtype.is_integer and Y.dtype.is_floating:
        wide = DType.DOUBLE if X.dtype.bits > 32 or Y.dtype is DType.DOUBLE else DType.FLOAT
        return k.cast(k.power(k.cast(X, wide), k.cast(Y, wide)), X.dtype)
    return k.power(X, k.cast(Y, X.dtype))


def _variadic(name: str, xs: tuple[Tensor | None, ...]) -> list[Tensor]:
    found = [x for x in xs if x is not None]
    if not found:
        raise k.DefinitionError(f"{name} needs at least one input, got none")
    return found


@op("Max", (1, 6, 8, 12, 13))
def maximum(*data_0: Tensor) -> Tensor:
    return functools.reduce(k.maximum, _variadic("Max", data_0))


@op("Min", (1, 6, 8, 12, 13))
def minimum(*data_0: Tensor) -> Tensor:
    return functools.reduce(k.minimum, _variadic("Min", data_0))


@op("Sum", (1, 6, 8, 13))
@in_float32
def sum_of(*data_0: Tensor) -> Tensor:
    return functools.reduce(Tensor.__add__, _variadic("Sum", data_0))


@op("Mean", (1, 6, 8, 13))
@in_float32
def mean_of(*data_0: Tensor) -> Tensor:
    xs = _variadic("Mean", data_0)
    total = functools.reduce(Tensor.__add__, xs)
    return total if len(xs) == 1 else total / float(len(xs))


@op("Clip", (1, 6))
def clip_to_attributes(input: Tensor, *, min: float | None = None, max: float | None = None) -> Tensor:
    largest = float(np.finfo(np.float32).max)
    out = input
    if min is not None and min > -largest:
        out = k.maximum(out, min)
    if max is not None and max < largest:
        out = k.minimum(out, max)
    return out


@op("Clip", (11, 12, 13))
def clip(input: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Where min > max, the result is max."""
    out = input
    if min is not None:
        out = k.maximum(out, as_scalar(min, "Clip's min"))
    if max is not None:
        out = k.minimum(out, as_scalar(max, "Clip's max"))
    return out


@op("BitShift", (11, 28))
def bit_shift(X: Tensor, Y: Tensor, *, direction: str) -> Tensor:
    """Bits shifted out are lost; a shift by a negative amount or by all bits leaves only the sign's extension."""
    if direction not in ("LEFT", "RIGHT"):
        raise k.DefinitionError(f"direction must be 'LEFT' or 'RIGHT', got {direction!r}")
    bits = X.dtype.bits
    beyond = bits <= Y
    if Y.dtype.is_signed_integer:
        beyond = beyond | (Y < 0)
    if direction == "LEFT":
        return k.select(beyond, 0, k.binary("shl", X, k.select(beyond, 0, Y)))
    if X.dtype.is_signed_integer:
        return k.binary("shr", X, k.select(beyond, bits - 1, Y))
    return k.select(beyond, 0, k.binary("shr", X, k.select(beyond, 0, Y)))


@op("Where", (9, 16))
def where(condition: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return k.select(condition, X, Y)


@op("IsNaN", (9, 13, 20))
def is_nan(X: Tensor) -> Tensor:
    return k.unary("isnan", X)


@op("IsInf", (10, 20))
def is_inf(X: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = k.unary("isinf", X)
    if not detect_negative:
        found = found & (X > 0)
    return found if detect_positive else found & (X < 0)


def _drop(
    data: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
    node: NodeContext,
) -> tuple[np.ndarray, np.ndarray]:
    probability = 0.5 if ratio is None else float(ratio)
    if not 0 <= probability <= 1:
        raise k.DefinitionError(f"ratio is {probability:g}; expected 0 to 1")
    given = Operands()
    if seed is None:
        unit = units(data.shape, DType.FLOAT, given.leaf(state_words(None)))
    else:
        unit = given.leaf(reference_units(data.shape, seed))
    scaled, mask = given.values(*philox.dropped(unit, given.leaf(data), given.leaf(np.array(probability, np.float32))))
    return scaled, mask


@op("Dropout", (12, 13, 22), values=("training_mode",), deterministic=False, fallback=_drop)
def dropout(
    data: Tensor,
    ratio: Tensor | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
    node: NodeContext,
) -> tuple[Tensor, Tensor | None]:
    """Inference: the input, and a mask that is all true. Training mode draws random numbers on the host."""
    if training_mode is not None and any(training_mode.reshape(-1)):
        raise k.SymbolicValueError("Dropout in training mode draws random numbers on the host")
    return data, k.full(data.shape, True, DType.BOOL) if node.outputs > 1 else None


@op("Dropout", (1, 6))
def dropout_is_test(data: Tensor, *, ratio: float = 0.5, is_test: int = 0, node: NodeContext) -> tuple[Tensor, Tensor | None]:
    return data, k.full(data.shape, 1.0, data.dtype) if node.outputs > 1 else None


@op("Dropout", 7)
def dropout_inference(data: Tensor, *, ratio: float = 0.5, node: NodeContext) -> tuple[Tensor, Tensor | None]:
    return data, k.full(data.shape, 1.0, data.dtype) if node.outputs > 1 else None


@op("Dropout", 10)
def dropout_with_mask(data: Tensor, *, ratio: float = 0.5, node: NodeContext) -> tuple[Tensor, Tensor | None]:
    return data, k.full(data.shape, True, DType.BOOL) if node.outputs > 1 else None
