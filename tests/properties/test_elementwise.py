"""Element-wise operators over drawn shapes, types and broadcasts."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from drawn_nodes import (
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    Drawn,
    array,
    broadcastable,
    check,
    drawn,
    seeds,
    shapes,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Any] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Erf": _erf,
    "Reciprocal": lambda x: 1 / x,
    "Sigmoid": _sigmoid,
    "Relu": lambda x: np.maximum(x, 0),
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "Gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Celu": lambda x: np.maximum(x, 0) + np.minimum(0, np.expm1(x)),
    "Selu": lambda x: 1.05070102214813232421875 * np.where(x > 0, x, 1.67326319217681884765625 * np.expm1(x)),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    "Swish": lambda x: x * _sigmoid(x),
    "Shrink": lambda x: np.where(x < -0.5, x, np.where(x > 0.5, x, 0)),
}


@drawn
@given(st.sampled_from(sorted(UNARY)), st.sampled_from(FLOATS), shapes(), seeds, st.booleans(), st.booleans())
def test_unary(op: str, dtype: Any, shape: tuple[int, ...], seed: int, special: bool, static: bool) -> None:
    x = array(seed, shape, dtype, special and op not in ("Sin", "Cos", "Tan"))
    with np.errstate(all="ignore"):
        expected = UNARY[op](wide(x))
    # ONNX defines these by sums with 1 or 1/2 whose result may be much smaller: exp(x) - 1, log(1 + exp(x)), x / 5 + 1/2.
    scale: Any = 1.0 if op in ("Elu", "Celu", "Selu", "HardSigmoid", "Softplus") else 0.0
    if op in ("Gelu", "HardSwish", "Mish"):  # x times such a sum
        scale = np.where(np.isfinite(wide(x)), np.abs(wide(x)), 0.0)
    check(Drawn(op, [x], static=static), expected, units=12 if op == "Mish" else 4, scale=scale)  # three functions in a row


@drawn
@given(st.sampled_from(["Neg", "Abs", "Sign", "Relu"]), st.sampled_from(SIGNED), shapes(), seeds)
def test_unary_integers(op: str, dtype: Any, shape: tuple[int, ...], seed: int) -> None:
    if op == "Relu" and np.dtype(dtype).itemsize == 8:
        dtype = np.int32
    x = array(seed, shape, dtype, special=True)
    check(Drawn(op, [x]), np.asarray(UNARY[op](x)).astype(dtype))


BINARY: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Max": np.maximum,
    "Min": np.minimum,
    "PRelu": lambda x, s: np.where(x < 0, s * x, x),
    "Mod": np.fmod,
}


@drawn
@given(st.sampled_from(sorted(BINARY)), st.sampled_from(FLOATS), broadcastable(2), seeds, st.booleans(), st.booleans())
def test_binary(op: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int, special: bool, static: bool) -> None:
    a, b = (array(seed + i, s, dtype, special) for i, s in enumerate(sizes))
    if op == "PRelu":  # the slope is broadcast to x only
        a = np.array(np.broadcast_to(a, np.broadcast_shapes(*sizes)))
    if op == "Pow" and not special:
        a = np.abs(a)
    with np.errstate(all="ignore"):
        expected = BINARY[op](wide(a), wide(b))
    units = 40 if op == "Pow" else 4
    check(Drawn(op, [a, b], {"fmod": 1} if op == "Mod" else {}, static=static), expected, units)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    q = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.where((a < 0) != (b < 0), -q, q)


@drawn
@given(
    st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "FMod", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]),
    st.sampled_from(INTEGERS),
    broadcastable(2),
    seeds,
    st.booleans(),
)
def test_binary_integers(op: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int, special: bool) -> None:
    a, b = (array(seed + i, s, dtype, special) for i, s in enumerate(sizes))
    if op in ("Div", "Mod", "FMod"):
        b = np.where(b == 0, b.dtype.type(3), b)
    functions = {
        **BINARY,
        "Div": _truncated,
        "Mod": np.mod,
        "FMod": np.fmod,
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
    }
    with np.errstate(all="ignore"):
        expected = np.asarray(functions[op](a, b))
        if op == "Div":
            bits = 8 * np.dtype(dtype).itemsize
            expected = (
                np.array([int(v) % 2**bits for v in expected.reshape(-1)], np.uint64).reshape(expected.shape).astype(dtype)
            )
    check(
        Drawn(op.removeprefix("F") if op == "FMod" else op, [a, b], {"fmod": 1} if op == "FMod" else {}), expected.astype(dtype)
    )


COMPARISONS: dict[str, Any] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}


@drawn
@given(
    st.sampled_from(sorted(COMPARISONS)),
    st.sampled_from((*FLOATS, *INTEGERS, bool)),
    broadcastable(2),
    seeds,
    st.booleans(),
)
def test_comparisons(op: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int, static: bool) -> None:
    if dtype is bool:
        op = "Equal"
    a, b = (array(seed + i, s, dtype, special=True) for i, s in enumerate(sizes))
    check(Drawn(op, [a, b], static=static), COMPARISONS[op](wide(a), wide(b)))


@drawn
@given(st.sampled_from(["And", "Or", "Xor", "Not", "IsNaN", "IsInf", "Where"]), broadcastable(3), seeds, st.booleans())
def test_logic(op: str, sizes: list[tuple[int, ...]], seed: int, static: bool) -> None:
    a, b = (array(seed + i, s, bool) for i, s in enumerate(sizes[:2]))
    x = array(seed, sizes[2], np.float32, special=True)
    if op == "Where":
        y = array(seed + 5, sizes[1], np.float32, special=True)
        check(Drawn(op, [a, x, y], static=static), np.where(a, x, y))
    elif op in ("IsNaN", "IsInf"):
        check(Drawn(op, [x], static=static), (np.isnan if op == "IsNaN" else np.isinf)(x))
    elif op == "Not":
        check(Drawn(op, [a], static=static), ~a)
    else:
        check(Drawn(op, [a, b], static=static), {"And": a & b, "Or": a | b, "Xor": a ^ b}[op])


@drawn
@given(st.sampled_from(["LEFT", "RIGHT"]), st.sampled_from(UNSIGNED), broadcastable(2), seeds)
def test_bit_shift(direction: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int) -> None:
    x = array(seed, sizes[0], dtype, special=True)
    bits = 8 * x.dtype.itemsize
    y = np.random.default_rng(seed).integers(0, bits + 3, sizes[1]).astype(dtype)
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    expected = np.where(y >= bits, 0, shift(x, np.minimum(y, bits - 1).astype(dtype))).astype(dtype)
    check(Drawn("BitShift", [x, y], {"direction": direction}), expected)


@drawn
@given(st.sampled_from(["Max", "Min", "Sum", "Mean"]), st.sampled_from(FLOATS), broadcastable(3), seeds, st.integers(1, 3))
def test_variadic(op: str, dtype: Any, sizes: list[tuple[int, ...]], seed: int, count: int) -> None:
    xs = [array(seed + i, s, dtype) for i, s in enumerate(sizes[:count])]
    values = np.broadcast_arrays(*map(wide, xs))
    expected = {"Max": np.max, "Min": np.min, "Sum": np.sum, "Mean": np.mean}[op](np.stack(values), axis=0)
    check(Drawn(op, xs), expected, scale=12)


@drawn
@given(st.sampled_from((*FLOATS, *INTEGERS)), shapes(), seeds, st.booleans(), st.booleans())
def test_clip(dtype: Any, shape: tuple[int, ...], seed: int, low: bool, high: bool) -> None:
    x = array(seed, shape, dtype, special=True)
    ends = [array(seed + i, (), dtype) for i in (1, 2)]
    expected = wide(x)
    if low:
        expected = np.maximum(expected, wide(ends[0]))
    if high:
        expected = np.minimum(expected, wide(ends[1]))
    check(Drawn("Clip", [x, ends[0] if low else None, ends[1] if high else None]), expected)


NARROW = tuple(getattr(ml_dtypes, n) for n in ("int4", "uint4", "int2", "uint2"))
FLOAT8 = tuple(
    getattr(ml_dtypes, n) for n in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
)


@drawn
@given(
    st.sampled_from((*FLOATS, *INTEGERS, bool, *NARROW)),
    st.sampled_from((*FLOATS, *INTEGERS, bool, *NARROW)),
    shapes(0, 3),
    seeds,
)
def test_casts(source: Any, target: Any, shape: tuple[int, ...], seed: int) -> None:
    """Of values that the target has (out of range, a float's conversion to integers is undefined)."""
    from intarsia.graph.dtypes import DType

    x = array(seed, shape, source)
    if DType.of(target).is_unsigned_integer:
        x = np.abs(wide(x) if source in FLOATS else x.astype(np.float64)).astype(source)
    if target in NARROW:
        top = float(ml_dtypes.iinfo(target).max)
        x = np.minimum(x.astype(np.float64), top).astype(source)
        x = np.maximum(x.astype(np.float64), float(ml_dtypes.iinfo(target).min)).astype(source)
    mid = x.astype(np.float64) if source not in INTEGERS else x
    expected = (
        (mid != 0) if target is bool else np.trunc(mid).astype(target) if DType.of(target).is_integer else mid.astype(target)
    )
    check(Drawn("Cast", [x], {"to": int(DType.of(target))}), np.asarray(expected))


@drawn
@given(st.sampled_from(FLOATS), st.sampled_from(FLOAT8), shapes(0, 3), seeds, st.booleans(), st.booleans())
def test_casts_to_float8(source: Any, target: Any, shape: tuple[int, ...], seed: int, back: bool, special: bool) -> None:
    from intarsia.graph.dtypes import DType

    x = array(seed, shape, source, special=special)
    if target is ml_dtypes.float4_e2m1fn:
        x = np.nan_to_num(x, nan=0.0).astype(source)
    if back:
        with np.errstate(over="ignore"):
            x = x.astype(target)
        check(Drawn("Cast", [x], {"to": int(DType.of(source))}), x.astype(np.float64))
    else:
        check(Drawn("Cast", [x], {"to": int(DType.of(target))}))
