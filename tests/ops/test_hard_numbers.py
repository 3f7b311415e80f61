"""NaN, infinities, zeros of both signs, denormals, extremes, halves, powers of two: the CPU and the reference provider agree.

Every element-wise operator in every type that ONNX allows, bit for bit where it is exact (NaN counts as NaN); each number
stands at places of whole vectors and of what is left behind them. What ONNX leaves open is what `expected_*` here says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType

T = TensorProto
OPSET = 25
FLOATS: dict[int, Any] = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.FLOAT16: np.float16, T.BFLOAT16: ml_dtypes.bfloat16}
INTEGERS: dict[int, Any] = {
    T.INT8: np.int8, T.INT16: np.int16, T.INT32: np.int32, T.INT64: np.int64,
    T.UINT8: np.uint8, T.UINT16: np.uint16, T.UINT32: np.uint32, T.UINT64: np.uint64,
}  # fmt: skip
FLOAT8: dict[int, Any] = {
    T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, T.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    T.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz, T.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
NARROW: dict[int, Any] = {T.INT4: ml_dtypes.int4, T.UINT4: ml_dtypes.uint4, T.FLOAT4E2M1: ml_dtypes.float4_e2m1fn}
NUMBERS = {**FLOATS, **INTEGERS, T.BOOL: np.bool_}
EVERY = {**NUMBERS, **FLOAT8, **NARROW, T.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu}
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")

EXACT_UNARY = (
    "Neg Sign Floor Ceil Round Sqrt Abs Reciprocal BitwiseNot Not IsNaN IsInf Relu LeakyRelu ThresholdedRelu Identity"
).split()
ROUNDED_UNARY = (
    "Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Sigmoid Softplus Softsign Elu HardSigmoid"
).split()
EXACT_BINARY = (
    "Add Sub Mul Div And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Equal Greater Less GreaterOrEqual LessOrEqual PRelu "
    "Max Min Sum Mod"
).split()
LOGICAL = {"Not", "IsNaN", "IsInf", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}], "Mod": [{}, {"fmod": 1}],
}  # fmt: skip


def name(kind: int) -> str:
    return str(T.DataType.Name(kind))


def hard(kind: int) -> np.ndarray:
    dtype = np.dtype(EVERY[kind])
    if kind == T.BOOL:
        return np.array([False, True])
    if kind in INTEGERS:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        values = {0, 1, 2, 3, 5, 7, 31, 32, 63, 64, high, high - 1, high // 2, high // 2 + 1, low, low + 1, -1, -2, -3}
        return np.array(sorted(v for v in values if low <= v <= high), object).astype(dtype)
    if dtype.itemsize == 1:
        codes = np.arange(256 if kind not in NARROW else 16, dtype=np.uint8)
        if kind in (T.INT4, T.UINT4):
            return (codes.astype(np.int8) - (8 if kind == T.INT4 else 0)).astype(dtype)
        return codes.view(dtype)
    limits = ml_dtypes.finfo(dtype)
    tiny = [float(limits.smallest_normal), float(limits.smallest_subnormal), -float(limits.smallest_subnormal)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, float(limits.max), -float(limits.max), *tiny]
    halves = [0.5, -0.5, 1, -1, 1.5, -1.5, 2.5, -2.5, 0.49999997, 127.5, 128.5, -128.5, 255.5, 256, 32767.5, -32768.5, 65535.5]
    powers = [s * (2.0**p + d) for p in (16, 24, 31, 32, 33, 53, 63, 64) for s in (1, -1) for d in (0, -1, -(2.0 ** (p - 24)))]
    with np.errstate(all="ignore"):
        return np.array([*special, *halves, *powers, 1e10, -1e10, 1e20, 1e38, 3, -3, 7, 100.25, -100.25]).astype(dtype)


def everywhere(x: np.ndarray) -> np.ndarray:
    """x twice and a part of it: lengths that no vector divides, each number at two places."""
    return np.concatenate([x, x, x[: 5 if len(x) > 5 else 1]])


def wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def assert_same(cpu: np.ndarray, reference: np.ndarray, what: str, units: float = 0) -> None:
    """The same numbers, zeros with their signs; NaN is NaN. `units` of the type's precision, where that is not 0."""
    assert cpu.dtype == reference.dtype, what
    assert cpu.shape == reference.shape, what
    c, r = wide(cpu), wide(reference)
    good = c == r
    if c.dtype.kind == "f":
        good = good & (np.signbit(c) == np.signbit(r)) | np.isnan(c) & np.isnan(r)
        if units:
            limits = ml_dtypes.finfo(cpu.dtype)
            with np.errstate(all="ignore"):
                near = np.abs(c - r) <= units * np.maximum(float(limits.eps) * np.abs(r), float(limits.smallest_normal))
            good |= near
    if not good.all():
        at = tuple(int(i) for i in np.argwhere(~good)[0])
        raise AssertionError(
            f"{what}: {(~good).sum()} of {good.size} differ; at {at}: CPU {cpu[at]!r}, reference {reference[at]!r}"
        )


def run(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], kinds: Sequence[int], provider: str,
    constants: dict[str, np.ndarray] | None = None,
) -> list[Any]:  # fmt: skip
    """Outputs y0, y1, ... of these types, of inputs whose sizes are open."""
    inputs = [
        helper.make_tensor_value_info(n, int(DType.of(x.dtype)), [f"{n}{i}" for i in range(x.ndim)]) for n, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)]
    tensors = [numpy_helper.from_array(x, n) for n, x in (constants or {}).items()]
    graph = helper.make_graph(nodes, "hard", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)
    return ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, feeds)


def takes(op: str, kind: int) -> bool:
    schema = onnx.defs.get_schema(op, OPSET)
    variable = schema.inputs[0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == variable), [variable])
    return f"tensor({DType(kind).onnx_name})" in allowed


def both(nodes: list[onnx.NodeProto], feeds: dict[str, np.ndarray], kinds: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    cpu, reference = (run(nodes, feeds, kinds, p) for p in PROVIDERS)
    return list(zip(cpu, reference, strict=True))


@pytest.mark.parametrize("kind", NUMBERS, ids=name)
def test_one_operand(kind: int) -> None:
    ops = [op for op in (*EXACT_UNARY, *ROUNDED_UNARY) if takes(op, kind)]
    nodes = [helper.make_node(op, ["x"], [f"y{i}"]) for i, op in enumerate(ops)]
    pairs = both(nodes, {"x": everywhere(hard(kind))}, [T.BOOL if op in LOGICAL else kind for op in ops])
    for op, (cpu, reference) in zip(ops, pairs, strict=True):
        assert_same(cpu, reference, f"{op} of {name(kind)}", 0 if op in EXACT_UNARY else 16)


@pytest.mark.parametrize("kind", NUMBERS, ids=name)
def test_two_operands(kind: int) -> None:
    """All pairs of numbers; integers are not divided by 0."""
    x = hard(kind)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    divisor = np.where(b == 0, np.ones_like(b), b) if kind in INTEGERS else b
    cases = [
        (op, attributes)
        for op in EXACT_BINARY
        if takes(op, kind)
        for attributes in ATTRIBUTES.get(op, [{}])
        if op != "Mod" or kind in INTEGERS or attributes  # floats have fmod alone
    ]
    nodes = [
        helper.make_node(op, ["a", "d" if op in ("Div", "Mod") else "b"], [f"y{i}"], **attributes)
        for i, (op, attributes) in enumerate(cases)
    ]
    pairs = both(nodes, {"a": a, "b": b, "d": divisor}, [T.BOOL if op in LOGICAL else kind for op, _ in cases])
    for (op, attributes), (cpu, reference) in zip(cases, pairs, strict=True):
        assert_same(cpu, reference, f"{op} {attributes} of {name(kind)}")


@pytest.mark.parametrize("base", [T.FLOAT, T.DOUBLE, T.INT32, T.INT64], ids=name)
def test_powers(base: int) -> None:
    for exponent in (T.FLOAT, T.DOUBLE, T.INT32, T.INT64, T.UINT8):
        x, y = hard(base), hard(exponent)
        feeds = {"x": np.repeat(x, len(y)), "y": np.tile(y, len(x))}
        ((cpu, reference),) = both([helper.make_node("Pow", ["x", "y"], ["y0"])], feeds, [base])
        assert_same(cpu, reference, f"Pow of {name(base)} and {name(exponent)}", 0 if base in INTEGERS else 32)


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS], ids=name)
def test_clip(kind: int) -> None:
    """Bounds that are NaN, infinite, zeros of either sign, or the wrong way round."""
    x = hard(kind)
    bounds = [*x[:6], x[len(x) // 2], x[-1]]
    nodes, feeds = [], {"x": everywhere(x)} | {f"b{i}": np.asarray(v) for i, v in enumerate(bounds)}
    for i in range(len(bounds)):
        j = len(bounds) - 1 - i
        for low, high in ((f"b{i}", ""), ("", f"b{i}"), (f"b{i}", f"b{j}")):
            nodes.append(helper.make_node("Clip", ["x", low, high], [f"y{len(nodes)}"]))
    for node, (cpu, reference) in zip(nodes, both(nodes, feeds, [kind] * len(nodes)), strict=True):
        assert_same(cpu, reference, f"Clip of {name(kind)} to {list(node.input[1:])} of {bounds}")


# --- casts ---------------------------------------------------------------------------------------------------------


def expected_integer(value: float, dtype: Any) -> int:
    """ONNX leaves numbers open that do not fit: as x86 has them, and onnxruntime there."""
    limits = np.iinfo(dtype)
    bits = max(limits.bits, 32)
    half = 1 << (bits - 1)
    upper = limits.min == 0 and limits.bits == bits and value >= half
    if math.isnan(value) or math.isinf(value):
        whole = -half
    else:
        whole = int(value) - half if upper else int(value)
        whole = whole if -half <= whole < half else -half
    if upper:
        whole += half
    whole &= (1 << limits.bits) - 1
    return whole - (1 << limits.bits) if whole > limits.max else whole


@pytest.mark.parametrize("source", FLOATS, ids=name)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_floats_as_integers(provider: str, source: int) -> None:
    x = everywhere(hard(source))
    nodes = [helper.make_node("Cast", ["x"], [f"y{i}"], to=kind) for i, kind in enumerate(INTEGERS)]
    for (kind, dtype), y in zip(INTEGERS.items(), run(nodes, {"x": x}, list(INTEGERS), provider), strict=True):
        want = [expected_integer(float(v), dtype) for v in x]
        assert y.tolist() == want, f"{name(source)} as {name(kind)}"


@pytest.mark.parametrize("source", EVERY, ids=name)
def test_casts(source: int) -> None:
    """From every type to every other, with and without saturation where that is a choice."""
    targets = [(kind, {}) for kind in EVERY] + [(kind, {"saturate": 0}) for kind in FLOAT8]
    nodes = [helper.make_node("Cast", ["x"], [f"y{i}"], to=kind, **more) for i, (kind, more) in enumerate(targets)]
    pairs = both(nodes, {"x": everywhere(hard(source))}, [kind for kind, _ in targets])
    for (kind, more), (cpu, reference) in zip(targets, pairs, strict=True):
        assert_same(cpu, reference, f"{name(source)} as {name(kind)} {more}")


def test_constants_are_cast_as_values_are() -> None:
    """A compiler that folds a cast of a constant, or of a choice between one and a value, must not make anything of it."""
    x = everywhere(hard(T.FLOAT8E4M3FNUZ))
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=T.FLOAT),
        helper.make_node("IsNaN", ["wide"], ["none"]),
        helper.make_node("Where", ["none", "huge", "wide"], ["chosen"]),
        *(helper.make_node("Cast", ["chosen"], [f"y{i}"], to=kind) for i, kind in enumerate(INTEGERS)),
    ]
    for huge in (3e9, -1e20, math.inf, math.nan):
        for provider in PROVIDERS:
            found = run(nodes, {"x": x}, list(INTEGERS), provider, {"huge": np.array(huge, np.float32)})
            for dtype, y in zip(INTEGERS.values(), found, strict=True):
                chosen = [huge if math.isnan(v) else float(v) for v in x.astype(np.float32)]
                assert y.tolist() == [expected_integer(float(np.float32(v)), dtype) for v in chosen]


# --- quantisation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [T.FLOAT, T.FLOAT16, T.BFLOAT16], ids=name)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_quantisation(provider: str, source: int) -> None:
    """NaN is the lowest number of the integer type, as onnxruntime has it; ties are rounded to even, in float32."""
    x = everywhere(hard(source))
    targets = {k: d for k, d in {**INTEGERS, **NARROW}.items() if k in (T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT4, T.UINT4)}
    for scale in (1.0, 0.5, 0.0, 1e-5, math.inf, math.nan, -1.0):
        s = np.array(scale).astype(EVERY[source])
        zeros = {f"z{i}": np.array(i % 3).astype(d) for i, d in enumerate(targets.values())}
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", f"z{i}"], [f"y{i}"]) for i in range(len(targets))]
        found = run(nodes, {"x": x, "s": s}, list(targets), provider, zeros)
        with np.errstate(all="ignore"):
            ratio = np.rint(x.astype(np.float32) / s.astype(np.float32))
        for zero, (kind, dtype), y in zip(zeros.values(), targets.items(), found, strict=True):
            limits = ml_dtypes.iinfo(dtype)
            shifted = np.where(np.isnan(ratio), -np.inf, ratio + int(zero))
            want = np.clip(shifted, limits.min, limits.max).astype(np.int64)
            assert y.astype(np.int64).tolist() == want.tolist(), f"{name(source)} by {scale} as {name(kind)}"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_dynamic_quantisation_leaves_nan_out(provider: str) -> None:
    """The range is that of the numbers; NaN becomes 0."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["y0", "y1", "y2"])]
    for count in (1, 3, 17, 100):
        for values in ([math.nan, 1.0], [-2.0, math.nan, 6.0], [math.nan], [1e-45, 0.0], [-0.0, 0.0], [3e38, -3e38]):
            x = np.tile(np.array(values, np.float32), count)
            y, scale, zero = run(nodes, {"x": x}, [T.UINT8, T.FLOAT, T.UINT8], provider)
            known = np.where(np.isnan(x), np.float32(0), x)
            with np.errstate(all="ignore"):
                low, high = min(np.float32(0), known.min()), max(np.float32(0), known.max())
                want = np.float32(high - low) / np.float32(255)
                safe = want or np.float32(1)
                point = np.rint(np.clip(np.nan_to_num(-low / safe), 0, 255))
                whole = np.clip(np.nan_to_num(np.rint(x / safe) + point, nan=0.0), 0, 255)
            assert (float(scale), int(zero)) == (float(want), int(point)), values
            assert y.tolist() == whole.astype(np.uint8).tolist(), values


# --- what reduces or chooses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS, ids=name)
@pytest.mark.parametrize("columns", [1, 3, 17, 33])
def test_extremes_and_orders(columns: int, kind: int) -> None:
    """NaN is the largest number wherever there is an order, and spreads through maxima and minima."""
    x = np.random.default_rng(columns).choice(hard(kind), (7, columns))
    ops: list[tuple[str, dict[str, Any], int, int]] = []  # operator, attributes, outputs, type of the last one
    ops += [(op, {"keepdims": 0}, 1, kind) for op in ("ReduceMax", "ReduceMin")]
    for op in ("ArgMax", "ArgMin"):
        ops += [(op, {"axis": axis, "select_last_index": last}, 1, T.INT64) for axis in (0, 1) for last in (0, 1)]
    ops += [("TopK", {"largest": largest}, 2, T.INT64) for largest in (0, 1)]
    nodes, kinds = [], []
    for op, attributes, outputs, last_kind in ops:
        inputs = ["x", *({"ReduceMax": ["axes"], "ReduceMin": ["axes"], "TopK": ["k"]}.get(op, []))]
        names = [f"y{len(kinds) + i}" for i in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, **attributes))
        kinds += [kind] * (outputs - 1) + [last_kind]
    constants = {"axes": np.array([1]), "k": np.array([min(columns, 3)])}
    cpu, reference = (run(nodes, {"x": x}, kinds, p, constants) for p in PROVIDERS)
    for i, (c, r) in enumerate(zip(cpu, reference, strict=True)):
        if kinds[i] == kind:  # which zero of two is not said
            c, r = c + np.zeros((), c.dtype), r + np.zeros((), r.dtype)
        assert_same(c, r, f"output {i} of {name(kind)}")
    wide_x = x.astype(np.float64)
    np.testing.assert_array_equal(cpu[0].astype(np.float64), wide_x.max(1))
    np.testing.assert_array_equal(cpu[1].astype(np.float64), wide_x.min(1))


@pytest.mark.parametrize("kind", INTEGERS, ids=name)
@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_integers_by_zero_are_an_error(provider: str, op: str, kind: int) -> None:
    x = everywhere(hard(kind))
    for at in (0, len(x) - 1):
        divisor = np.ones_like(x)
        divisor[at] = 0
        with pytest.raises(IntarsiaError, match=r"divi"):
            run([helper.make_node(op, ["x", "d"], ["y0"])], {"x": x, "d": divisor}, [kind], provider)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [0, 1, -1, 5, -5, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_diagonals_far_away(provider: str, diagonal: int, upper: int) -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    (y,) = run(
        [helper.make_node("Trilu", ["x", "k"], ["y0"], upper=upper)], {"x": x, "k": np.array(diagonal)}, [T.FLOAT], provider
    )
    near = max(-9, min(9, diagonal))
    np.testing.assert_array_equal(y, np.triu(x, near) if upper else np.tril(x, near))


@pytest.mark.parametrize(("start", "limit", "delta"), [(math.nan, 5, 1), (0, math.inf, 1), (0, 5, math.nan), (-math.inf, 0, 1)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_range_without_end(provider: str, start: float, limit: float, delta: float) -> None:
    feeds = {n: np.array(v, np.float32) for n, v in (("s", start), ("l", limit), ("d", delta))}
    with pytest.raises(IntarsiaError, match=r"start, limit and delta of Range are .*; expected finite numbers"):
        run([helper.make_node("Range", ["s", "l", "d"], ["y0"])], feeds, [T.FLOAT], provider)
