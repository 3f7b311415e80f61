"""float32 sin, cos and pow against extended precision: distance in units of the last place, and IEEE 754's special values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loop_kernels import run_loops

from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

FUNCTIONS = {"sin": np.sin, "cos": np.cos}


def unary(op: str, x: np.ndarray) -> np.ndarray:
    return run_loops([k.unary(op, k.input(0, DType.of(x.dtype), x.shape))], x)[0]


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return run_loops([k.binary("pow", k.input(0, DType.FLOAT, x.shape), k.input(1, DType.FLOAT, x.shape))], x, y)[0]


def ulp_distance(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Between float32 numbers and the float32 numbers nearest to `exact`; NaN must be NaN."""
    with np.errstate(all="ignore"):
        expected = exact.astype(np.float32)
    both = [v.view(np.int32).astype(np.int64) for v in (found, expected)]
    ordered = [np.where(v < 0, -(v & 0x7FFFFFFF), v) for v in both]
    nan = np.isnan(expected)
    return np.where(nan, ~np.isnan(found) * 99, np.abs(ordered[0] - ordered[1]))


def every_float32(step: int) -> np.ndarray:
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    return bits.view(np.float32)


@pytest.mark.parametrize("op", ["sin", "cos"])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # signalling NaN among the bit patterns
def test_sine_and_cosine(op: str) -> None:
    near_multiples = (np.arange(-4000, 4000) * (math.pi / 2)).astype(np.float32)
    x = np.concatenate([every_float32(8009), near_multiples, np.linspace(-20, 20, 50_001).astype(np.float32)])
    exact = FUNCTIONS[op](x.astype(np.float64))
    found = unary(op, x)
    small = ~(np.abs(x) >= 2.0**46)
    assert ulp_distance(found[small], exact[small]).max() <= 2
    np.testing.assert_allclose(found[~small], exact[~small], atol=2.0**-24 + 2.0**-36)


def test_sine_where_its_arguments_are_hardest_to_reduce() -> None:
    """Numbers very near to multiples of pi / 2, and the largest ones; libm reduces float64 with all bits of pi."""
    x = np.array([float.fromhex("0x1.2cf9a8p+50"), 16367173, 1e22, 2.0**127, np.finfo(np.float32).max], np.float32)
    np.testing.assert_allclose(unary("sin", x), np.sin(x.astype(np.float64)), rtol=2e-7, atol=2.0**-36)


def test_zeros_and_infinities() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45], np.float32)
    sine = unary("sin", x)
    np.testing.assert_array_equal(np.signbit(sine[:2]), [False, True])
    np.testing.assert_array_equal(sine, np.array([0, 0, np.nan, np.nan, np.nan, 1e-45, -1e-45], np.float32))
    np.testing.assert_array_equal(unary("cos", x), [1, 1, np.nan, np.nan, np.nan, 1, 1])


def test_powers_of_all_magnitudes() -> None:
    rng = np.random.default_rng(0)
    count = 200_000
    anything = np.exp2(rng.uniform(-149, 128, count))
    reaching = rng.uniform(-152, 129, count) / np.log2(anything)  # results from below the denormal numbers to infinity
    plain, exponent = np.abs(rng.standard_normal(count)), rng.uniform(-8, 8, count)
    near_one, large = 1 + rng.standard_normal(count) * 1e-4, rng.uniform(-1e5, 1e5, count)
    for x, y in ((anything, reaching), (plain, exponent), (near_one, large)):
        x, y = x.astype(np.float32), y.astype(np.float32)
        with np.errstate(all="ignore"):
            exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        assert ulp_distance(power(x, y), exact).max() <= 1


def test_whole_powers_are_exact_where_float32_holds_them() -> None:
    x, y = (v.reshape(-1).astype(np.float32) for v in np.meshgrid(np.arange(-12, 13), np.arange(0, 7)))
    np.testing.assert_array_equal(power(x, y), x.astype(np.float64) ** y)
    two = np.arange(-149, 128).astype(np.float32)
    np.testing.assert_array_equal(power(np.full_like(two, 2), two), np.exp2(two.astype(np.float64)))


def test_special_values_of_powers() -> None:
    """IEEE 754-2019, 9.2.1, as C's pow has it; odd, even, huge (even) and fractional exponents."""
    values = [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38]
    values += [16777215, 16777216, 8388609, -8388609, 4194304.5]
    x, y = (v.reshape(-1) for v in np.meshgrid(np.array(values, np.float32), np.array(values, np.float32)))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    found = power(np.ascontiguousarray(x), np.ascontiguousarray(y))
    assert ulp_distance(found, exact).max() <= 1
    number = ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(exact[number]))


@pytest.mark.parametrize("lanes", [1, 4])
def test_vectors_look_the_table_up_lane_by_lane(lanes: int) -> None:
    from template_kernels import run

    from intarsia.codegen.elementwise.emitter import Emitter
    from intarsia.codegen.llvm import ir_builder
    from intarsia.codegen.llvm.jit import kernel_text

    module = ir_builder.Module()
    kind = ir_builder.FunctionType(
        ir_builder.VoidType(), [ir_builder.PointerType(), ir_builder.IntType(64), ir_builder.IntType(64)]
    )
    function = ir_builder.Function(module, kind, "__SYMBOL__")
    b = ir_builder.IRBuilder(function.append_basic_block())
    word = ir_builder.IntType(64)
    places = [b.load(b.gep(function.args[0], [word(i)], source_etype=word), typ=ir_builder.PointerType()) for i in range(2)]
    e = Emitter(b, lanes)
    e.store(e.primitive("sin", [e.load(places[0], DType.FLOAT)], DType.FLOAT, DType.FLOAT), places[1], DType.FLOAT)
    b.ret_void()
    x, out = np.array([1e20, 1.0, -3e30, 0.5], np.float32)[:lanes], np.zeros(lanes, np.float32)
    run(kernel_text("vector", str(module)), [x.ctypes.data, out.ctypes.data])
    np.testing.assert_allclose(out, np.sin(x.astype(np.float64)), rtol=2e-7)


def test_exp_of_doubles() -> None:
    """Within one unit in the last place, from the least subnormal number to overflow (the reference may be half a one off)."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-745, 710, 4000), rng.uniform(-1, 1, 1000), [709.78, -745.1, -708.5, 1e-300, 0.0, -0.0]])
    with np.errstate(over="ignore", under="ignore"):
        exact = np.exp(x.astype(np.longdouble))
        step = np.spacing(exact.astype(np.float64))
    found = unary("exp", x)
    finite = np.isfinite(step)
    assert (np.abs((found - exact) / step)[finite] <= 1.5).all()
    assert np.isinf(found[~finite]).all()
    edges = unary("exp", np.array([np.nan, np.inf, -np.inf, 709.79, -745.2, 1e300, -1e300]))
    np.testing.assert_array_equal(edges, [np.nan, np.inf, 0, np.inf, 0, np.inf, 0])


def test_tanh_of_doubles() -> None:
    """Within three units in the last place, also where it is nearly its argument, and beside where it rounds to 1."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-700, 4, 4000))
    x = np.concatenate([rng.standard_normal(4000), sizes, -sizes, [19.0, 19.06, 0.17328, 0.1733, 5e-324]])
    exact = np.tanh(x.astype(np.longdouble))
    assert (np.abs(unary("tanh", x) - exact) <= 3 * np.spacing(np.abs(exact).astype(np.float64))).all()
    edges = unary("tanh", np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -25.0]))
    np.testing.assert_array_equal(edges, [np.nan, 1, -1, 0, 0, 1, -1])
    np.testing.assert_array_equal(np.signbit(edges[3:5]), [False, True])


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # signalling NaN among the bit patterns
def test_remainders_are_exact() -> None:
    rng = np.random.default_rng(3)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-126, 1.0, -1.0, 3.0, 7.0, 3.4e38], np.float32)
    x, y = (v.reshape(-1) for v in np.meshgrid(special, special))
    any_bits, normal = every_float32(65_537), rng.normal(size=(2, 20_000)).astype(np.float32)
    whole, small = rng.integers(1, 1 << 24, 20_000).astype(np.float32), rng.integers(1, 1 << 12, 20_000).astype(np.float32)
    tenths = np.full(20_000, 0.1, np.float32)
    x = np.concatenate([x, rng.permutation(any_bits), normal[0] * 100, whole * tenths, whole])
    y = np.concatenate([y, rng.permutation(any_bits), normal[1], tenths, small])
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    divided, divisor = (k.input(i, DType.FLOAT, x.shape) for i in range(2))
    (found,) = run_loops([k.binary("fmod", divided, divisor)], x, y)
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(x[number]))
