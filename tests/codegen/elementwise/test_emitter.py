"""Element-wise primitives as machine code, compared with float64 functions, Python integers and the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the primitives are compiled with llvmlite")

from loop_kernels import compiled, run_kernel, run_loops

from intarsia.codegen.elementwise.element_types import I1, SUPPORTED_DTYPES
from intarsia.codegen.elementwise.emitter import Emitter, UnsupportedPrimitive
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import lower
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.divisors import DIVISIONS
from intarsia.primitives.interpreter import DivisionByZero, interpret
from intarsia.run_status import DIVISION_BY_ZERO

FLOATS = (DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16)
INTEGERS = tuple(sorted(d for d in SUPPORTED_DTYPES if d.is_integer))
SIGNED = tuple(d for d in INTEGERS if d.is_signed_integer)
BITS = ("bitand", "bitor", "bitxor", "shl", "shr")
FLOAT_UNARY = sorted(k.UNARY - {"not", "bitnot"})
FLOAT_BINARY = sorted(k.BINARY - {"and", "or", "xor", *BITS})
INTEGER_UNARY = ("abs", "bitnot", "ceil", "floor", "isinf", "isnan", "neg", "round", "sign")
INTEGER_BINARY = sorted(k.BINARY - {"and", "or", "xor", "atan2"} - DIVISIONS)
BOOLEAN_BINARY = ("add", "and", "bitand", "bitor", "bitxor", "eq", "le", "lt", "max", "min", "mul", "ne", "or", "xor")


def unary(ops: list[str] | tuple[str, ...], x: np.ndarray) -> dict[str, np.ndarray]:
    leaf = k.input(0, DType.of(x.dtype), x.shape)
    return dict(zip(ops, run_loops([k.unary(op, leaf) for op in ops], x), strict=True))


def binary(ops: list[str] | tuple[str, ...], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    a, b = (k.input(i, DType.of(v.dtype), v.shape) for i, v in enumerate((x, y)))
    return dict(zip(ops, run_loops([k.binary(op, a, b) for op in ops], x, y), strict=True))


def float_values(dtype: DType) -> np.ndarray:
    """Every float16 or bfloat16 number; for wider types numbers of all magnitudes and the special ones."""
    if dtype.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    rng = np.random.default_rng(0)
    limits = np.finfo(dtype.numpy)
    scaled = rng.standard_normal(4001) * 10.0 ** rng.uniform(-6, 3, 4001)
    special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        1,
        -1,
        np.inf,
        -np.inf,
        np.nan,
        limits.max,
        limits.min,
        limits.tiny,
        limits.smallest_subnormal,
    ]
    return np.concatenate([scaled, np.linspace(-1, 1, 200), special]).astype(dtype.numpy)


def integer_values(dtype: DType, count: int) -> np.ndarray:
    limits = np.iinfo(dtype.numpy)
    edges = [limits.min, limits.max, limits.min + 1, limits.max - 1, 0, 1, 2, 3, 7]
    return np.array([edges[i % len(edges)] for i in range(count)], dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of extremes and small numbers, and random ones."""
    limits = np.iinfo(dtype.numpy)
    edges = {
        limits.min,
        limits.min + 1,
        limits.max,
        limits.max - 1,
        *(v for v in range(-9, 10) if v >= limits.min),
        dtype.bits,
        dtype.bits - 1,
    }
    grid = np.array([(a, b) for a in sorted(edges) for b in sorted(edges)], dtype.numpy)
    random = np.random.default_rng(1).integers(limits.min, limits.max, (200, 2), dtype.numpy)
    both = np.concatenate([grid, random])
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.onnx_name)
def test_unary_on_floats(dtype: DType) -> None:
    x = float_values(dtype)
    leaf = k.input(0, dtype, x.shape)
    for op, found in unary(FLOAT_UNARY, x).items():
        (expected,) = interpret([k.unary(op, leaf)], [x])
        if found.dtype == bool or op in ("neg", "abs", "sign", "floor", "ceil", "round", "sqrt"):
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64), err_msg=op)
        else:
            close = {16: 1e-2 if dtype is DType.BFLOAT16 else 1e-3, 32: 1e-6, 64: 1e-14}[dtype.bits]
            tiny = float(np.finfo(dtype.numpy).smallest_subnormal) if dtype is not DType.BFLOAT16 else 1e-40
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=close, atol=2 * tiny, err_msg=op
            )


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.onnx_name)
def test_binary_on_floats(dtype: DType) -> None:
    special = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, 3.5, -3.5, np.inf, -np.inf, np.nan, 100.25], dtype.numpy)
    x, y = (np.ascontiguousarray(a.reshape(-1)) for a in np.meshgrid(special, special))
    leaves = [k.input(i, dtype, x.shape) for i in range(2)]
    for op, found in binary(FLOAT_BINARY, x, y).items():
        (expected,) = interpret([k.binary(op, *leaves)], [x, y])
        rtol = {16: 1e-2, 32: 1e-6, 64: 1e-14}[dtype.bits]
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, err_msg=op)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.onnx_name)
def test_unary_on_integers(dtype: DType) -> None:
    x = pairs(dtype)[0]
    for op, found in unary(INTEGER_UNARY, x).items():
        (expected,) = interpret([k.unary(op, k.input(0, dtype, x.shape))], [x])
        np.testing.assert_array_equal(found, expected, err_msg=op)


def wrapped(value: int, dtype: DType) -> int:
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.is_signed_integer and low >> (dtype.bits - 1) else low


def python_binary(op: str, a: int, b: int, dtype: DType) -> int | bool:
    """The definition of each primitive on unbounded integers, wrapped around."""
    truncated = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    inside = 0 <= b < dtype.bits
    rules = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: truncated,
        "mod": lambda: a % b if b else 0, "fmod": lambda: a - truncated * b if b else 0, "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "bitand": lambda: a & b, "bitor": lambda: a | b, "bitxor": lambda: a ^ b, "eq": lambda: a == b, "ne": lambda: a != b,
        "lt": lambda: a < b, "le": lambda: a <= b, "shl": lambda: a << b if inside else 0,
        "shr": lambda: a >> b if inside else 0,
        "pow": lambda: pow(a, b, 1 << dtype.bits) if b >= 0 else (a if b & 1 else 1) if a in (1, -1) else 0,
    }  # fmt: skip
    value = rules[op]()
    return value if isinstance(value, bool) else wrapped(value, dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.onnx_name)
def test_binary_on_integers(dtype: DType) -> None:
    """Division truncates, MIN / -1 wraps, shifts by too much give 0, powers wrap."""
    x, y = pairs(dtype)
    divided = binary(sorted(DIVISIONS), x[y != 0], y[y != 0])
    for op, found in divided.items():
        expected = [python_binary(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True) if b]
        np.testing.assert_array_equal(found, np.array(expected, found.dtype), err_msg=op)
    for op, found in binary(INTEGER_BINARY, x, y).items():
        expected = [python_binary(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True)]
        np.testing.assert_array_equal(found, np.array(expected, found.dtype), err_msg=op)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.onnx_name)
def test_interpreter_agrees_on_integers(dtype: DType) -> None:
    x, y = pairs(dtype)
    leaves = [k.input(i, dtype, x.shape) for i in range(2)]
    for op in DIVISIONS:
        with pytest.raises(DivisionByZero, match="an element of the integer divisor is 0"):
            interpret([k.binary(op, *leaves)], [x, y])
        (found,) = interpret([k.binary(op, *leaves)], [x[y != 0], y[y != 0]])
        expected = [python_binary(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True) if b]
        np.testing.assert_array_equal(found, np.array(expected, found.dtype), err_msg=op)
    for op in INTEGER_BINARY:
        (found,) = interpret([k.binary(op, *leaves)], [x, y])
        expected = [python_binary(op, int(a), int(b), dtype) for a, b in zip(x, y, strict=True)]
        np.testing.assert_array_equal(found, np.array(expected, found.dtype), err_msg=op)


@pytest.mark.parametrize("op", sorted(DIVISIONS))
def test_a_division_by_zero_is_reported(op: str) -> None:
    x, y = np.arange(40, dtype=np.int32), np.ones(40, np.int32)
    root = k.binary(op, *(k.input(i, DType.INT32, (40,)) for i in range(2)))
    kernel = compiled([root])
    assert kernel.checked and run_kernel(kernel, [root], [x, y], {})[1] == 0
    y[37] = 0
    (found,), status = run_kernel(kernel, [root], [x, y], {}, nthreads=3)
    assert status == DIVISION_BY_ZERO and found[37] == 0


def test_booleans() -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    leaves = [k.input(i, DType.BOOL, (4,)) for i in range(2)]
    for op, found in binary(BOOLEAN_BINARY, x, y).items():
        (expected,) = interpret([k.binary(op, *leaves)], [x, y])
        np.testing.assert_array_equal(found, expected, err_msg=op)
    np.testing.assert_array_equal(unary(["not"], x)["not"], ~x)


def test_any_byte_but_zero_is_true() -> None:
    x = np.arange(256, dtype=np.uint8)
    (found,) = run_loops([k.cast(k.input(0, DType.BOOL, (256,)), DType.INT32)], x.view(bool))
    np.testing.assert_array_equal(found, x != 0)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("op", "dtype"), [("exp", DType.INT32), ("bitand", DType.FLOAT), ("exp", DType.BOOL)])
def test_what_has_no_code(op: str, dtype: DType, lanes: int) -> None:
    function = ir_builder.Function(ir_builder.Module(), ir_builder.FunctionType(ir_builder.VoidType(), []), "f")
    emitter = Emitter(ir_builder.IRBuilder(function.append_basic_block()), lanes)
    value = emitter.constant(1, emitter_type(dtype))
    with pytest.raises(UnsupportedPrimitive, match=op):
        emitter.primitive(op, [value, value], dtype, dtype)


def emitter_type(dtype: DType) -> ir_builder.Type:
    return {DType.INT32: ir_builder.IntType(32), DType.FLOAT: ir_builder.FloatType(), DType.BOOL: I1}[dtype]


# --- float32 functions without calls: distance from the exact value in units of the last place -------------------------

EXACT = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[float])}
MAX_ULP = {"exp": 1, "log": 1, "tanh": 5, "erf": 6}


def every_float32(step: int) -> np.ndarray:
    """Every `step`-th bit pattern: all magnitudes, both signs, denormal numbers, infinities and NaN."""
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def ulp_distance(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    expected = exact.astype(np.float32)
    both = [v.view(np.int32).astype(np.int64) for v in (found, expected)]
    ordered = [np.where(v < 0, -(v & 0x7FFFFFFF), v) for v in both]
    return np.where(np.isnan(expected), ~np.isnan(found) * 99, np.abs(ordered[0] - ordered[1]))


@pytest.mark.parametrize("op", sorted(EXACT))
@pytest.mark.filterwarnings("ignore:.* encountered in cast:RuntimeWarning")  # signalling NaN, numbers out of range
def test_float32_functions_over_the_whole_range(op: str) -> None:
    x = every_float32(40_009 if op == "erf" else 4_003)
    edges = [
        0.0,
        -0.0,
        1,
        -1,
        np.inf,
        -np.inf,
        np.nan,
        88.72,
        88.73,
        89,
        -87.3,
        -87.4,
        -103.9,
        -104,
        3.92,
        3.93,
        9.01,
        9.02,
        1e-40,
    ]
    x = np.concatenate([x, np.linspace(-110, 110, 40_000), np.linspace(-4, 4, 40_000), edges]).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = EXACT[op](x.astype(np.float64))
    worst = ulp_distance(unary([op], x)[op], exact)
    assert worst.max() <= MAX_ULP[op], (op, int(worst.max()), float(x[worst.argmax()]))


def test_odd_functions_keep_the_sign_of_zero_and_their_bounds() -> None:
    x = np.array([-0.0, 1e30, -1e30, np.inf, -np.inf, 1e-45], np.float32)
    for found in unary(["tanh", "erf"], x).values():
        assert np.signbit(found[0])
        np.testing.assert_array_equal(found[1:5], [1, -1, 1, -1])


# --- conversions -------------------------------------------------------------------------------------------------------

ALL = sorted(SUPPORTED_DTYPES)


def cast_source(source: DType, target: DType) -> np.ndarray:
    """Values of `source` that `target` can hold, where that matters (ONNX leaves the others open)."""
    if source is DType.BOOL:
        return np.array([False, True])
    if source.is_integer:
        return pairs(source)[0]
    if target.is_integer:
        limits = np.iinfo(target.numpy)
        x = np.array([0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 2.5, 100.7, -100.7, 1e4, 3e9, 1e15], source.numpy)
        wide = x.astype(np.float64)
        return x[(np.trunc(wide) >= limits.min) & (wide <= limits.max)]
    return float_values(source)


@pytest.mark.parametrize("source", ALL, ids=lambda d: d.onnx_name)
@pytest.mark.filterwarnings("ignore:.* encountered in cast:RuntimeWarning")  # signalling NaN, numbers out of range
def test_casts(source: DType) -> None:
    for target in ALL:
        x = cast_source(source, target)
        root = k.cast(k.input(0, source, x.shape), target)
        (found,), (expected,) = run_loops([root], x), interpret([root], [x])
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(
            found.astype(np.float64), expected.astype(np.float64), err_msg=f"{source.name} to {target.name}"
        )


@pytest.mark.parametrize("target", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_rounding_to_16_bits_is_to_nearest_even(target: type) -> None:
    """Against the neighbours of each number: of all numbers of the target none is nearer, and ties are even."""
    bits = np.arange(0, 0x7B00, 7, dtype=np.uint16)
    low, high = (b.view(target).astype(np.float64) for b in (bits, bits + np.uint16(1)))
    for share, expected in ((0.5 - 1e-4, bits), (0.5, bits + (bits & 1)), (0.5 + 1e-4, bits + 1)):
        x = (low + (high - low) * share).astype(np.float32)
        exact = x.astype(np.float64) == low + (high - low) * share
        (found,) = run_loops([k.cast(k.input(0, DType.FLOAT, x.shape), DType.of(target))], x)
        keep = exact if share == 0.5 else np.ones_like(exact)
        np.testing.assert_array_equal(found.view(np.uint16)[keep], expected[keep])


def test_double_to_16_bits_rounds_once() -> None:
    """A little more than a tie between two numbers; float32 in between would make it a tie, and round it down."""
    x = np.array(
        [1 + 2**-11 + 2**-40, 1 + 2**-8 + 2**-40, -1 - 2**-11 - 2**-40, 65519.999999, 65520.0, 1e300, 1e-300, np.inf, np.nan]
    )
    half = [1 + 2**-10, 1 + 2**-8, -1 - 2**-10, 65504, np.inf, np.inf, 0, np.inf, np.nan]
    brain = [1, 1 + 2**-7, -1, 65536, 65536, np.inf, 0, np.inf, np.nan]
    for target, expected in ((DType.FLOAT16, half), (DType.BFLOAT16, brain)):
        (found,) = run_loops([k.cast(k.input(0, DType.DOUBLE, x.shape), target)], x)
        np.testing.assert_array_equal(found.astype(float), expected)


@pytest.mark.parametrize(
    ("source", "target"),
    [(DType.FLOAT, DType.INT32), (DType.DOUBLE, DType.UINT64), (DType.FLOAT16, DType.UINT16), (DType.INT16, DType.BFLOAT16)],
)
def test_bitcast(source: DType, target: DType) -> None:
    x = np.random.default_rng(2).integers(0, 256, 40 * source.bits // 8, np.uint8).view(source.numpy)
    (found,) = run_loops([k.bitcast(k.input(0, source, x.shape), target)], x)
    np.testing.assert_array_equal(found.view(f"u{source.bits // 8}"), x.view(f"u{source.bits // 8}"))


# --- vectors and graphs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 8])
def test_vectors_give_what_scalars_do(lanes: int) -> None:
    """Every way to compute: arithmetic, calls of libm, polynomials, booleans, casts to 16 bits, constants."""
    from template_kernels import at_page_end, run

    from intarsia.codegen.llvm.jit import kernel_text

    x, y = (k.input(i, DType.FLOAT, ()) for i in range(2))
    z = k.select(x < y, k.exp(x) * 2.0, k.unary("sin", y)) + k.binary("fmod", x, y) + k.binary("mod", x, k.absolute(y) + 0.5)
    root = k.cast(k.cast(z, DType.BFLOAT16), DType.FLOAT) + k.cast(k.cast(k.tanh(x), DType.FLOAT16), DType.FLOAT)
    root = k.reshape(k.broadcast(root, (1,)), (1, 1)) + k.maximum(x, y) * k.unary("sign", x)
    module = ir_builder.Module()
    function = ir_builder.Function(
        module,
        ir_builder.FunctionType(
            ir_builder.VoidType(), [ir_builder.PointerType(), ir_builder.IntType(64), ir_builder.IntType(64)]
        ),
        "__SYMBOL__",
    )
    builder = ir_builder.IRBuilder(function.append_basic_block())
    emitter = Emitter(builder, lanes)
    pointers = [
        builder.load(
            builder.gep(function.args[0], [ir_builder.IntType(64)(i)], source_etype=ir_builder.IntType(64)),
            typ=ir_builder.PointerType(),
        )
        for i in range(3)
    ]
    scalar = builder.load(pointers[1], typ=ir_builder.FloatType())
    value = emitter.evaluate(root, {0: emitter.load(pointers[0], DType.FLOAT), 1: emitter.splat(scalar)})
    emitter.store(value, pointers[2], DType.FLOAT)
    builder.ret_void()
    a = at_page_end(np.random.default_rng(3).standard_normal(lanes).astype(np.float32))
    b, out = np.array([0.75], np.float32), np.zeros(lanes, np.float32)
    run(kernel_text("vector", str(module)), [v.ctypes.data for v in (a, b, out)])
    for i in range(lanes):
        (expected,) = interpret([root], [a[i], b[0]])
        assert out[i] == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.filterwarnings("ignore:.* encountered in cast:RuntimeWarning")  # signalling NaN
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", [0.0, 6.0, -1.5, math.inf, -math.inf, math.nan])
def test_extrema_beside_a_constant(dtype: DType, number: float) -> None:
    """NaN on either side is the result, whichever side the constant is on."""
    x = float_values(dtype)
    leaf = k.input(0, dtype, x.shape)
    graphs = [k.maximum(leaf, number), k.minimum(leaf, number), k.maximum(number, leaf), k.minimum(number, leaf)]
    found = run_loops(graphs, x)
    for got, function in zip(found, (np.maximum, np.minimum) * 2, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), function(x.astype(np.float64), number))


AVX2 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma")
SIGMOIDS = (lambda x: 1.0 / (k.exp(-x) + 1.0), lambda x: 1.0 / (1.0 + k.exp(x * -1.0)))


@pytest.mark.parametrize("made", SIGMOIDS)
def test_sigmoids_as_far_as_exp_reaches(made: Callable[[k.Tensor], k.Tensor]) -> None:
    low = np.concatenate([np.linspace(-87.3, 120, 60_000), [np.inf, 3e38, -0.0, 1e-40]]).astype(np.float32)
    (found,) = run_loops([made(k.input(0, DType.FLOAT, low.shape))], low)
    with np.errstate(all="ignore"):
        exact = 1 / (1 + np.exp(-low.astype(np.float64)))
    worst = ulp_distance(found, exact)
    assert worst[low > -40].max() <= 3
    assert worst.max() <= 6
    denormal = np.array([-88.0, -88.72, -89.0, -90, -1e30, -np.inf], np.float32)
    nan = np.array([np.nan, -np.nan, *np.array([0x7FC00001, 0x7F800001], np.uint32).view(np.float32)], np.float32)
    x = np.concatenate([denormal, nan])
    (found,) = run_loops([made(k.input(0, DType.FLOAT, x.shape))], x)
    np.testing.assert_allclose(found[:6], [6.05e-39, 2.95e-39, 2.23e-39, 0, 0, 0], atol=3e-39)
    assert np.isnan(found[6:]).all()


def test_a_sigmoid_is_one_polynomial_and_one_power_of_two() -> None:
    root = SIGMOIDS[0](k.input(0, DType.FLOAT, (64,)))
    text = lower([root], AVX2).text.ir
    assert text.count("shl i32 ") == 1
    assert text.count("fdiv ") == 1
