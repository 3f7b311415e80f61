"""Float64 as two words of integers, where a device has no such type: bit for bit what NumPy computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from device_graphs import planned, values_of

from intarsia.codegen.clike import Limits, Wgsl, unsupported
from intarsia.codegen.clike.dialects.float64_expressions import Unreadable, without_doubles
from intarsia.codegen.clike.products.matmul import tile_for
from intarsia.codegen.clike.storage_types import Kind
from intarsia.device.webgpu import missing, open_device
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

needs_device = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1 / 3, 1e308, -1e308, 1.7976931348623157e308, 5e-324, -5e-324, 1e-310,
    2.2250738585072014e-308, 2.225073858507201e-308, np.inf, -np.inf, np.nan, 2.0**52, 2.0**52 + 1, 2.0**53, 2.0**31,
    2.0**31 - 0.5, -(2.0**31), 2.0**62, 4503599627370495.5, 0.49999999999999994, 1 + 2.0**-52, 1 - 2.0**-53,
    3.4028235677973366e38, 1.401298464324817e-45, 7e-46,
]  # fmt: skip


def drawn(seed: int) -> np.ndarray:
    """Special numbers in all pairs with each other, numbers of all bits, and numbers of near exponents."""
    draw = np.random.default_rng(seed)
    pairs = np.array(SPECIAL)[draw.integers(0, len(SPECIAL), 600)]
    bits = draw.integers(0, 2**64, 700, np.uint64, endpoint=False).view(np.float64)
    near = draw.standard_normal(700) * 2.0 ** draw.integers(-60, 60, 700)
    return np.concatenate([pairs, bits, near])


def computed(roots: Sequence[k.Tensor], operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    dialect = Wgsl(features=(), limits=Limits(32))
    return values_of(planned(open_device(), roots, operands, dialect), operands)


def same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """The same bits; any NaN is one."""
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted), err_msg=what)
        integers = np.dtype(f"i{wanted.itemsize}")
        keep = ~np.isnan(wanted)
        found, wanted = found[keep].view(integers), wanted[keep].view(integers)
    np.testing.assert_array_equal(found, wanted, err_msg=what)


@needs_device
def test_arithmetic_is_that_of_the_standard() -> None:
    a, b = drawn(1), drawn(2)
    x, y = (k.input(i, DType.DOUBLE, a.shape) for i in range(2))
    with np.errstate(all="ignore"):
        wanted = {
            "add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "sqrt": np.sqrt(a), "floor": np.floor(a),
            "ceil": np.ceil(a), "round": np.rint(a), "neg": -a, "abs": np.abs(a), "lt": a < b, "le": a <= b, "eq": a == b,
            "ne": a != b, "min": np.minimum(a, b), "max": np.maximum(a, b), "sign": np.sign(a), "isnan": np.isnan(a),
            "isinf": np.isinf(a),
        }  # fmt: skip
    roots = [k.binary(op, x, y) if op in k.BINARY else k.unary(op, x) for op in wanted]
    for found, (op, values) in zip(computed(roots, [a, b]), wanted.items(), strict=True):
        if op in ("min", "max", "round", "sign"):  # zeros of either sign
            found, values = found + 0.0, values + 0.0
        same(found, values, op)


@needs_device
def test_conversions() -> None:
    a = drawn(3)
    draw = np.random.default_rng(4)
    with np.errstate(all="ignore"):
        f = np.concatenate([a.astype(np.float32), draw.integers(0, 2**32, 500, np.uint32).view(np.float32)])
    i, u = draw.integers(-(2**63), 2**63 - 1, 300), draw.integers(0, 2**64, 300, np.uint64, endpoint=False)
    j, w = i.astype(np.int32), u.astype(np.uint32)
    operands = [a, f, i, u, j, w]
    given = [k.input(n, DType.of(v.dtype), v.shape) for n, v in enumerate(operands)]
    roots = [k.cast(given[0], to) for to in (DType.FLOAT, DType.INT64, DType.INT32, DType.UINT8, DType.BOOL)]
    roots += [k.cast(v, DType.DOUBLE) for v in given[1:]]
    roots += [k.bitcast(given[0], DType.INT64), k.bitcast(given[2], DType.DOUBLE)]
    with np.errstate(all="ignore"):
        wanted = interpret(roots, operands)
    for found, values, root in zip(computed(roots, operands), wanted, roots, strict=True):
        same(found, values, repr(root))


@needs_device
def test_sums_products_and_order() -> None:
    draw = np.random.default_rng(5)
    a, b = draw.standard_normal((6, 40)), draw.standard_normal((40, 7))
    x, y = k.input(0, DType.DOUBLE, a.shape), k.input(1, DType.DOUBLE, b.shape)
    roots = {
        "sum": (k.reduce_sum(x, [1]), a.sum(1)), "max": (k.reduce_max(x, [0]), a.max(0)), "dot": (k.dot(x, y), a @ b),
        "scan": (k.scan(x, "sum", 1), np.cumsum(a, 1)), "sort": (k.sort(x, 1)[0], np.sort(a, 1)),
        "mod": (k.binary("mod", x, k.full(a.shape, 0.7, DType.DOUBLE)), np.mod(a, 0.7)),
        "argmax": (k.arg_reduce(x, "max", 1), a.argmax(1)),
    }  # fmt: skip
    for found, (name, (_, wanted)) in zip(computed([r for r, _ in roots.values()], [a, b]), roots.items(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13, err_msg=name)


@needs_device
def test_exponentials_and_logarithms_are_within_few_units() -> None:
    """Of the last place; numbers near 1, denormal ones, and those whose exponential over- or underflows among them."""
    draw = np.random.default_rng(6)
    near_one = 1 + draw.standard_normal(1000) * 2.0 ** draw.integers(-55, -1, 1000)
    small = draw.standard_normal(1000) * 2.0 ** draw.integers(-70, 11, 1000)
    a = np.concatenate([drawn(6), small, near_one, draw.uniform(-750, 712, 1000), draw.uniform(0.5, 2, 1000)])
    x = k.input(0, DType.DOUBLE, a.shape)
    found = computed([k.unary(op, x) for op in ("exp", "log", "tanh")], [a])
    with np.errstate(all="ignore"):
        wanted = [np.exp(a), np.log(a), np.tanh(a)]
    for result, exact, units in zip(found, wanted, (2, 2, 4), strict=True):
        finite = np.isfinite(exact)
        same(result[~finite], exact[~finite], "what is no number")
        assert (np.abs(result[finite] - exact[finite]) <= units * np.spacing(np.abs(exact[finite]))).all()


@needs_device
def test_what_is_made_of_exponentials() -> None:
    draw = np.random.default_rng(7)
    special = [0.0, -0.0, np.inf, -np.inf, 1.0, np.nan]
    a = np.concatenate([draw.standard_normal(500) * 2.0 ** draw.integers(-4, 5, 500), special])
    b = np.concatenate([draw.integers(-5, 6, 250).astype(np.float64), draw.standard_normal(250) * 3, [-1, -3, 2, 3, np.nan, 0]])
    x, y = (k.input(i, DType.DOUBLE, a.shape) for i in range(2))
    with np.errstate(all="ignore"):
        wanted = [np.power(a, b), np.cosh(a)]
    for found, exact in zip(computed([k.binary("pow", x, y), k.unary("cosh", x)], [a, b]), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-14)


@needs_device
def test_products_have_one_element_a_thread() -> None:
    """A compiler of shaders repeats a product of doubles for each: tiles of many took it minutes."""
    draw = np.random.default_rng(8)
    a, b = draw.standard_normal((3, 70, 33)), draw.standard_normal((3, 33, 65))
    x, y = k.input(0, DType.DOUBLE, a.shape), k.input(1, DType.DOUBLE, b.shape)
    np.testing.assert_allclose(computed([k.dot(x, y) + 1.0], [a, b])[0], a @ b + 1, rtol=1e-13, atol=1e-13)
    assert tile_for(Wgsl(features=()), 70, 65, Kind.F64).each == (1, 1)
    assert tile_for(Wgsl(features=()), 70, 65).each != (1, 1) != tile_for(Wgsl(), 70, 65, Kind.F64).each


def test_functions_of_many_operations_are_refused() -> None:
    """A kernel of them takes a driver long to compile: the next provider has them."""
    x = k.input("x", DType.DOUBLE, (3,))
    for op in ("atan", "erf", "sin"):
        assert unsupported([k.unary(op, x)], Wgsl(features=())).startswith(f"{op} of double would be thousands of instructions")
        assert not unsupported([k.unary(op, x)], Wgsl())
    for root in (k.sqrt(x) / (x + 1.0), k.exp(x), k.log(x), k.binary("pow", x, x)):
        assert not unsupported([root], Wgsl(features=()))


def test_expressions_are_written_anew() -> None:
    """Names are followed, and the precedence of operators is kept; what is no double stays as it is."""
    text = "\n".join([
        "@group(0) @binding(0) var<storage, read_write> X0: array<f64>;", "var<workgroup> shared0: array<f64, 32>;",
        "let i: i32 = (2 + 3 * 4);", "let v0: f64 = X0[i + 1];", "let v1: f64 = (v0 + 2.0lf * -v0);",
        "if (v0 < v1 && !(v1 == v1)) { shared0[i] = v1; }", "var v2: f64 = select(v0, v1, (v0 >= v1));", "v2 += abs(v0);",
        "let v3: bool = (v0 != v1);",
    ])  # fmt: skip
    assert without_doubles(text).split("\n") == [
        "@group(0) @binding(0) var<storage, read_write> X0: array<vec2<u32>>;",
        "var<workgroup> shared0: array<vec2<u32>, 32>;",
        "let i: i32 = (2 + 3 * 4);", "let v0: vec2<u32> = X0[i + 1];",
        "let v1: vec2<u32> = (add_f64(v0, mul_f64(vec2<u32>(0x0u, 0x40000000u), neg_f64(v0))));",
        "if (lt_f64(v0, v1) && !(eq_f64(v1, v1))) { shared0[i] = v1; }",
        "var v2: vec2<u32> = select(v0, v1, (le_f64(v1, v0)));", "v2 = add_f64(v2, abs_f64(v0));",
        "let v3: bool = (!eq_f64(v0, v1));",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["let v1: f64 = (v0 + 1.0f);", "let v1: f64 = sin(v0);", "let v1: f64 = v0 ? v0;"])
def test_what_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises(Unreadable):
        without_doubles(f"let v0: f64 = 1.0lf;\n{text}")
