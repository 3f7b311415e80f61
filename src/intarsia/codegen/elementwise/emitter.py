"""Element-wise primitives as LLVM IR, for one element or for a vector of them.

Elements are held in *compute* types: float16 and bfloat16 as float32 (rounded when stored), booleans as one bit, all
others as themselves. float32 functions are polynomials that need no call (here, in `transcendental` and in
`inverse`), but atan2; that and float64 functions call libm.

Largest errors seen over all of float32's range (units in the last place): exp 1, log 1, tanh 5, erf 6.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

from intarsia.codegen.elementwise import (
    exponential,
    integer_ops,
    inverse_functions,
    quantize_rounding,
    subbyte_types,
    transcendental,
)
from intarsia.codegen.elementwise.element_types import (
    F32,
    F64,
    FEW_BIT_FLOATS,
    I1,
    I8,
    I16,
    I32,
    I64,
    NARROW,
    compute_type,
    storage_type,
)
from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType
from intarsia.primitives.interpreter import least
from intarsia.primitives.lang import Tensor, is_limited

_BITS = re.compile("0x([0-9a-f]{16})")  # how constants are written: as float64
_MAGNITUDE, _INFINITY = (1 << 63) - 1, 0x7FF << 52

SCALES = "intarsia_scales"  # the attribute of a module whose target has `Target.scales_floats`

EXTREMA = "intarsia_extrema"  # the attribute of a module whose target has `Target.has_extrema`


def _suffix(kind: ir_builder.Type) -> str:
    """A type in the name of an overloaded intrinsic."""
    if isinstance(kind, ir_builder.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(kind), str(kind))


def _is_float(dtype: DType) -> bool:
    return dtype.is_floating


class Emitter:
    """Emits primitives at the end of `builder`'s block; `lanes` > 1 makes every value a vector of so many elements.

    `finite`: no value is NaN.
    """

    def __init__(self, builder: ir_builder.IRBuilder, lanes: int = 1, finite: bool = False) -> None:
        self.builder, self.lanes, self.finite = builder, lanes, finite
        self._rounded: dict[int, tuple[ir_builder.Value, ir_builder.Value]] = {}  # float32 and the bfloat16 it was widened from

    # --- types and constants ---

    def shaped(self, element: ir_builder.Type) -> ir_builder.Type:
        return element if self.lanes == 1 else ir_builder.VectorType(element, self.lanes)

    def constant(self, value: float | int | bool, element: ir_builder.Type) -> ir_builder.Value:
        if isinstance(element, ir_builder.FloatType):
            value = _as_float32(value)
        one = ir_builder.Constant(element, value)
        return one if self.lanes == 1 else ir_builder.Constant(ir_builder.VectorType(element, self.lanes), [one] * self.lanes)

    def splat(self, value: ir_builder.Value) -> ir_builder.Value:
        """A scalar repeated in every lane."""
        if self.lanes == 1:
            return value
        vector = ir_builder.VectorType(value.type, self.lanes)
        first = self.builder.insert_element(ir_builder.Constant(vector, ir_builder.Undefined), value, I32(0))
        mask = ir_builder.Constant(ir_builder.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, ir_builder.Constant(vector, ir_builder.Undefined), mask)

    def intrinsic(self, name: str, args: Sequence[ir_builder.Value], result: ir_builder.Type | None = None) -> ir_builder.Value:
        """Call `llvm.NAME` overloaded on the type of its (first) argument."""
        kind = args[0].type
        out = result or kind
        return self.builder.call(self._declare(f"llvm.{name}.{_suffix(kind)}", out, [a.type for a in args]), args)

    def _declare(self, name: str, result: ir_builder.Type, args: Sequence[ir_builder.Type]) -> ir_builder.Function:
        module = self.builder.module
        found = module.globals.get(name)
        return found if found is not None else ir_builder.Function(module, ir_builder.FunctionType(result, list(args)), name)

    # --- memory ---

    def load(self, pointer: ir_builder.Value, dtype: DType, align: int | None = None) -> ir_builder.Value:
        """`lanes` consecutive elements of `dtype` in memory, as compute values."""
        stored = self.builder.load(pointer, typ=self.shaped(storage_type(dtype)), align=align or max(1, dtype.bits // 8))
        return self.from_storage(stored, dtype)

    def store(self, value: ir_builder.Value, pointer: ir_builder.Value, dtype: DType, align: int | None = None) -> None:
        self.builder.store(self.to_storage(value, dtype), pointer, align=align or max(1, dtype.bits // 8))

    def from_storage(self, stored: ir_builder.Value, dtype: DType) -> ir_builder.Value:
        b = self.builder
        if dtype is DType.FLOAT16:
            return b.fpext(stored, self.shaped(F32))
        if dtype is DType.BFLOAT16:
            wide = b.shl(b.zext(stored, self.shaped(I32)), self.constant(16, I32))
            found = b.bitcast(wide, self.shaped(F32))
            self._rounded[id(found)] = found, stored
            return found
        return b.icmp_unsigned("!=", stored, self.constant(0, I8)) if dtype is DType.BOOL else stored

    def to_storage(self, value: ir_builder.Value, dtype: DType) -> ir_builder.Value:
        b = self.builder
        if dtype is DType.FLOAT16:
            return b.fptrunc(value, self.shaped(ir_builder.HalfType()))
        if dtype is DType.BFLOAT16:
            known = self._rounded.get(id(value))
            return known[1] if known is not None else self._to_bfloat16(value)
        return b.zext(value, self.shaped(I8)) if dtype is DType.BOOL else value

    def _to_bfloat16(self, value: ir_builder.Value) -> ir_builder.Value:
        """Round to nearest even on the upper 16 bits; NaN stays NaN."""
        b = self.builder
        bits = b.bitcast(value, self.shaped(I32))
        odd = b.and_(b.lshr(bits, self.constant(16, I32)), self.constant(1, I32))
        rounded = b.add(b.add(bits, odd), self.constant(0x7FFF, I32))
        chosen = b.select(b.fcmp_unordered("uno", value, value), b.or_(bits, self.constant(0x400000, I32)), rounded)
        return b.trunc(b.lshr(chosen, self.constant(16, I32)), self.shaped(I16))

    # --- primitives ---

    def evaluate(self, root: Tensor, leaves: Mapping[int, ir_builder.Value]) -> ir_builder.Value:
        """Emit a graph of element-wise primitives; `leaves[i]` is the value of `input(i)` at this element.

        Broadcasts and reshapes are passed through: a leaf already is the value that belongs to this element.
        """
        return self.evaluate_all([root], leaves)[0]

    def evaluate_all(self, roots: Sequence[Tensor], leaves: Mapping[int, ir_builder.Value]) -> list[ir_builder.Value]:
        """`evaluate` of several roots, which share what they have in common."""
        values: dict[int, ir_builder.Value] = {}

        def value(t: Tensor) -> ir_builder.Value:
            found = values.get(id(t))
            if found is None:
                found = values[id(t)] = self._element(t, value, leaves)
            return found

        return [value(root) for root in roots]

    def _element(
        self, t: Tensor, value: Callable[[Tensor], ir_builder.Value], leaves: Mapping[int, ir_builder.Value]
    ) -> ir_builder.Value:
        if t.prim == "input":
            return leaves[t.attrs[0]]
        if t.prim == "scalar":
            return self.constant(t.attrs[0], compute_type(t.dtype))
        if t.prim in ("broadcast", "reshape"):
            return value(t.args[0])
        rounded = quantize_rounding.emit_rounded(self, t, value)
        if rounded is not None:
            return rounded
        exponent = exponential.sigmoid_exponent(t) if compute_type(t.dtype) is F32 else None
        if exponent is not None:
            return exponential.sigmoid(self, value(exponent))
        if t.prim == "cast":
            return self.converted(t, value(t.args[0]))
        dtype = t.args[-1].dtype if t.prim == "select" else t.args[0].dtype
        return self.node(t, [value(a) for a in t.args], dtype)

    def node(self, t: Tensor, args: Sequence[ir_builder.Value], dtype: DType) -> ir_builder.Value:
        """`primitive` of a node: what is less its own largest is rounded first, so that the largest less itself is 0.

        (As one instruction with the product that it is, it would be that product's rounding error, of which exp makes
        anything where scores are large.)
        """
        if t.prim == "sub" and _is_float(dtype) and _is_extremum(t.args[1]):
            return self.builder.fsub(*args, flags=("nsz",))
        return self.primitive(t.prim, args, dtype, t.dtype)

    def converted(self, t: Tensor, x: ir_builder.Value) -> ir_builder.Value:
        """A cast of the value `x`."""
        source = t.args[0].dtype
        if is_limited(t) and not self.finite:
            none = self.builder.fcmp_unordered("uno", x, x)
            x = self.builder.select(none, self.constant(float(least(t.dtype)), compute_type(source)), x)
        return self.cast(x, source, t.dtype, t.attrs[0])

    def primitive(self, op: str, args: Sequence[ir_builder.Value], dtype: DType, out: DType) -> ir_builder.Value:
        """One element-wise primitive on operands of `dtype`, giving a compute value of `out`."""
        b = self.builder
        if op == "cast":
            return self.cast(args[0], dtype, out)
        if op == "bitcast":
            stored = b.bitcast(self.to_storage(args[0], dtype), self.shaped(storage_type(out)))
            return self.from_storage(stored, out)
        if op == "select":
            return b.select(*args)
        if dtype is DType.BOOL:
            return self._boolean(op, args)
        if _is_float(dtype):
            return self._float(op, args, dtype)
        return self._integer(op, args, dtype)

    def cast(self, x: ir_builder.Value, source: DType, target: DType, saturate: bool = True) -> ir_builder.Value:
        if source in NARROW:
            return self.cast(subbyte_types.from_byte(self, x, source), subbyte_types.widened(source), target, saturate)
        if target in NARROW:
            return self._cast_narrow(x, source, target, saturate)
        b, to = self.builder, self.shaped(compute_type(target))
        if _is_float(source):
            if target is DType.BOOL:
                return b.fcmp_unordered("!=", x, self.constant(0.0, compute_type(source)))
            if _is_float(target):
                return self._cast_float(x, source, target)
            whole = self._whole(x, compute_type(source), I64 if target.bits == 64 else I32, target)
            return whole if whole.type == to else b.trunc(whole, to)
        if target is DType.BOOL:
            return x if source is DType.BOOL else b.icmp_unsigned("!=", x, self.constant(0, compute_type(source)))
        signed = source.is_signed_integer
        if _is_float(target):
            wide = b.sitofp(x, to) if signed else b.uitofp(x, to)
            return self._round_narrow(wide, target)
        have, want = compute_type(source).width, compute_type(target).width
        if have == want:
            return x
        if have > want:
            return b.trunc(x, to)
        return b.sext(x, to) if signed else b.zext(x, to)

    def _whole(
        self, x: ir_builder.Value, kind: ir_builder.Type, integer: ir_builder.IntType, target: DType
    ) -> ir_builder.Value:
        """x cut off to an integer, as `primitives.interpreter` has it: the lowest one where it is NaN or out of range."""
        b, half = self.builder, self.constant(2.0 ** (integer.width - 1), kind)
        lowest = self.constant(-(1 << (integer.width - 1)), integer)
        unsigned = target.is_unsigned_integer and target.bits == integer.width
        upper = b.fcmp_ordered(">=", x, half) if unsigned else None
        if upper is not None:
            x = b.select(upper, b.fsub(x, half), x)
        inside = b.fcmp_ordered("<", self.intrinsic("fabs", [x]), half)
        found = b.select(inside, b.fptosi(x, self.shaped(integer)), lowest)
        return found if upper is None else b.xor(found, b.select(upper, lowest, self.constant(0, integer)))

    def _cast_narrow(self, x: ir_builder.Value, source: DType, target: DType, saturate: bool) -> ir_builder.Value:
        """A byte. Floats of 8 bits that saturate are rounded from float32, as the interpreter does it."""
        if target in FEW_BIT_FLOATS:
            once = source is DType.DOUBLE and not saturate
            x = self._to_odd_float32(x) if once else self.cast(x, source, DType.FLOAT)
            return subbyte_types.to_byte(self, x, target, saturate)
        if source.is_floating:
            x, source = self.cast(x, source, DType.INT32), DType.INT32
        return subbyte_types.to_byte(self, x if source is not DType.BOOL else self.cast(x, source, DType.INT8), target)

    def _cast_float(self, x: ir_builder.Value, source: DType, target: DType) -> ir_builder.Value:
        have, want = compute_type(source), compute_type(target)
        if have is F64 and want is F32:
            x = self.builder.fptrunc(x, self.shaped(F32)) if target is DType.FLOAT else self._to_odd_float32(x)
        elif have is F32 and want is F64:
            return self.builder.fpext(x, self.shaped(F64))
        return self._round_narrow(x, target)

    def _to_odd_float32(self, x: ir_builder.Value) -> ir_builder.Value:
        """float64 cut to float32, its last bit set where that loses something: rounding it again then rounds correctly."""
        b = self.builder
        nearest = b.fptrunc(x, self.shaped(F32))
        back = b.fpext(nearest, self.shaped(F64))
        bits = b.bitcast(nearest, self.shaped(I32))
        above = b.fcmp_ordered(">", self.intrinsic("fabs", [back]), self.intrinsic("fabs", [x]))
        odd = b.or_(b.sub(bits, b.zext(above, self.shaped(I32))), self.constant(1, I32))
        return b.bitcast(b.select(b.fcmp_ordered("!=", back, x), odd, bits), self.shaped(F32))

    def _round_narrow(self, x: ir_builder.Value, dtype: DType) -> ir_builder.Value:
        """A cast to a 16-bit type rounds, even where the value goes on in float32."""
        return self.from_storage(self.to_storage(x, dtype), dtype) if dtype in (DType.FLOAT16, DType.BFLOAT16) else x

    def _boolean(self, op: str, args: Sequence[ir_builder.Value]) -> ir_builder.Value:
        b = self.builder
        if op == "not":
            return b.not_(args[0])
        if op in ("and", "mul", "min", "bitand"):
            return b.and_(*args)
        if op in ("or", "add", "max", "bitor"):
            return b.or_(*args)
        if op in ("xor", "ne", "bitxor"):
            return b.xor(*args)
        if op == "eq":
            return b.not_(b.xor(*args))
        if op == "lt":
            return b.and_(b.not_(args[0]), args[1])
        if op == "le":
            return b.or_(b.not_(args[0]), args[1])
        raise UnsupportedPrimitive(f"{op} of booleans")

    def _integer(self, op: str, args: Sequence[ir_builder.Value], dtype: DType) -> ir_builder.Value:
        b, signed, kind = self.builder, dtype.is_signed_integer, compute_type(dtype)
        plain: dict[str, Callable[..., ir_builder.Value]] = {
            "add": b.add, "sub": b.sub, "mul": b.mul, "bitand": b.and_, "bitor": b.or_, "bitxor": b.xor, "neg": b.neg,
            "bitnot": b.not_,
        }  # fmt: skip
        if op in plain:
            return plain[op](*args)
        compare = b.icmp_signed if signed else b.icmp_unsigned
        if op in _COMPARE:
            return compare(_COMPARE[op], *args)
        if op in ("min", "max"):
            return b.select(compare("<" if op == "min" else ">", *args), *args)
        if op == "abs":
            return b.select(compare("<", args[0], self.constant(0, kind)), b.neg(args[0]), args[0]) if signed else args[0]
        if op == "sign":
            zero, one = self.constant(0, kind), self.constant(1, kind)
            positive = b.select(compare(">", args[0], zero), one, zero)
            return b.select(compare("<", args[0], zero), self.constant(-1, kind), positive) if signed else positive
        if op in ("floor", "ceil", "round"):
            return args[0]
        if op in ("shl", "shr"):
            inside = b.icmp_unsigned("<", args[1], self.constant(kind.width, kind))
            amount = b.and_(args[1], self.constant(kind.width - 1, kind))
            shifted = (b.shl if op == "shl" else b.ashr if signed else b.lshr)(args[0], amount)
            return b.select(inside, shifted, self.constant(0, kind))
        if op in ("div", "mod", "fmod"):
            return integer_ops.division(self, op, args[0], args[1], dtype.is_signed_integer)
        if op in ("isnan", "isinf"):
            return self.constant(False, I1)
        if op == "pow":
            return integer_ops.power(self, args[0], args[1], dtype.is_signed_integer)
        raise UnsupportedPrimitive(f"{op} of {dtype.onnx_name}")

    def _float(self, op: str, args: Sequence[ir_builder.Value], dtype: DType) -> ir_builder.Value:
        b, kind = self.builder, compute_type(dtype)
        if op in _FLOAT_ARITHMETIC:
            arithmetic: Callable[..., ir_builder.Value] = getattr(b, _FLOAT_ARITHMETIC[op])
            return arithmetic(*args, flags=("contract", "nsz") if op != "div" else ("nsz",))
        if op in _COMPARE:
            return b.fcmp_unordered("!=", *args) if op == "ne" else b.fcmp_ordered(_COMPARE[op], *args)
        if op in ("min", "max"):
            return self.extremum(op, args[0], args[1])
        if op == "neg":
            return b.fneg(args[0])
        if op in _FLOAT_INTRINSICS:
            return self.intrinsic(_FLOAT_INTRINSICS[op], args)
        if op == "isnan":
            return b.fcmp_unordered("uno", args[0], args[0])
        if op == "isinf":
            return b.fcmp_ordered("==", self.intrinsic("fabs", args), self.constant(float("inf"), kind))
        if op == "sign":
            return self._sign(args[0], kind)
        if op == "mod":
            return self._float_modulus(args[0], args[1], dtype)
        if kind is F32 and op in ("exp", "log", "tanh", "erf"):
            single: Callable[[ir_builder.Value], ir_builder.Value] = getattr(self, "_" + op)
            return single(args[0])
        if kind is F64 and op in _DOUBLE:
            return _DOUBLE[op](self, args[0])
        if kind is F32 and op in _WITHOUT_CALLS:
            return _WITHOUT_CALLS[op](self, *args)
        if op in _LIBM:
            return self._library_call(_LIBM[op], args, kind)
        raise UnsupportedPrimitive(f"{op} of {dtype.onnx_name}")

    def extremum(self, op: str, x: ir_builder.Value, y: ir_builder.Value) -> ir_builder.Value:
        """min or max that gives NaN where either operand is NaN, as NumPy and ONNX have it.

        Beside a constant one comparison does that: where `x` is NaN, `x` is picked. (x86 has the whole as one instruction.)
        """
        b = self.builder
        x, y = (y, x) if _is_number(x) else (x, y)
        if _is_number(y):
            return b.select(b.fcmp_ordered("<" if op == "min" else ">", y, x), y, x)
        if getattr(b.module, EXTREMA, False) and not self.finite:
            function = self._declare(f"llvm.{op}imum.{_suffix(x.type)}", x.type, [x.type, x.type])
            return b.call(function, [y, x], flags="nsz")  # x, often a sum so far, waits for no comparison
        picked = b.select(b.fcmp_ordered("<" if op == "min" else ">", y, x), y, x)
        if self.finite:
            return picked
        return b.select(b.fcmp_unordered("uno", y, y), y, picked)  # again, x waits for one operation

    def _sign(self, x: ir_builder.Value, kind: ir_builder.Type) -> ir_builder.Value:
        b, zero = self.builder, self.constant(0.0, kind)
        neither = b.fsub(x, x)  # 0, whatever x's sign, or NaN
        positive = b.select(b.fcmp_ordered(">", x, zero), self.constant(1.0, kind), neither)
        return b.select(b.fcmp_ordered("<", x, zero), self.constant(-1.0, kind), positive)

    def _float_modulus(self, x: ir_builder.Value, y: ir_builder.Value, dtype: DType) -> ir_builder.Value:
        """The remainder with the divisor's sign."""
        b, kind = self.builder, compute_type(dtype)
        remainder = self._float("fmod", [x, y], dtype)
        zero = self.constant(0.0, kind)
        opposite = b.xor(b.fcmp_ordered("<", remainder, zero), b.fcmp_ordered("<", y, zero))
        wrong = b.and_(b.fcmp_unordered("!=", remainder, zero), opposite)
        return b.select(wrong, b.fadd(remainder, y), remainder)

    def _library_call(self, name: str, args: Sequence[ir_builder.Value], kind: ir_builder.Type) -> ir_builder.Value:
        function = self._declare(name + ("f" if kind is F32 else ""), kind, [kind] * len(args))
        if "readnone" not in function.attributes:
            function.attributes.add("nounwind")
        if self.lanes == 1:
            return self.builder.call(function, args)
        out: ir_builder.Value = ir_builder.Constant(args[0].type, ir_builder.Undefined)
        for lane in range(self.lanes):
            element = self.builder.call(function, [self.builder.extract_element(a, I32(lane)) for a in args])
            out = self.builder.insert_element(out, element, I32(lane))
        return out

    # --- float32 functions without calls ---

    def _fma(self, x: ir_builder.Value, y: ir_builder.Value, z: ir_builder.Value) -> ir_builder.Value:
        return self.intrinsic("fma", [x, y, z])

    def polynomial(self, x: ir_builder.Value, coefficients: Sequence[float]) -> ir_builder.Value:
        """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
        out = self.constant(coefficients[-1], F32)
        for c in reversed(coefficients[:-1]):
            out = self._fma(out, x, self.constant(c, F32))
        return out

    def clamp(self, x: ir_builder.Value, low: float, high: float) -> ir_builder.Value:
        """x of float32 within bounds; NaN stays NaN."""
        b, lo, hi = self.builder, self.constant(low, F32), self.constant(high, F32)
        x = b.select(b.fcmp_ordered("<", x, lo), lo, x)
        return b.select(b.fcmp_ordered(">", x, hi), hi, x)

    def _exp(self, x: ir_builder.Value) -> ir_builder.Value:
        if not getattr(self.builder.module, SCALES, False):
            return exponential.exp(self, x)
        p, n = exponential.exp_by_ldexp(self, x)
        name = f"llvm.ldexp.{_suffix(p.type)}.{_suffix(n.type)}"
        return self.builder.call(self._declare(name, p.type, [p.type, n.type]), [p, n])

    def exponential(self, x: ir_builder.Value) -> ir_builder.Value:
        """exp of float32."""
        return self._exp(x)

    def logarithm(self, x: ir_builder.Value) -> ir_builder.Value:
        """log of float32."""
        return self._log(x)

    def _log(self, x: ir_builder.Value) -> ir_builder.Value:
        """log(x) = n ln 2 + log(1 + f), x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)."""
        b = self.builder
        tiny = b.fcmp_ordered("<", x, self.constant(1.1754944e-38, F32))
        scaled = b.select(tiny, b.fmul(x, self.constant(8388608.0, F32)), x)
        bits = b.bitcast(scaled, self.shaped(I32))
        shifted = b.sub(bits, self.constant(0x3F3504F3, I32))
        exponent = b.ashr(shifted, self.constant(23, I32))
        mantissa = b.bitcast(b.sub(bits, b.shl(exponent, self.constant(23, I32))), self.shaped(F32))
        n = b.fsub(b.sitofp(exponent, self.shaped(F32)), b.select(tiny, self.constant(23.0, F32), self.constant(0.0, F32)))
        f = b.fsub(mantissa, self.constant(1.0, F32))
        square = b.fmul(f, f)
        tail = b.fmul(b.fmul(square, f), self.polynomial(f, _LOG))  # log(1+f) - f + f^2/2
        tail = self._fma(n, self.constant(-0.00021219444, F32), tail)
        tail = self._fma(square, self.constant(-0.5, F32), tail)
        out = self._fma(n, self.constant(0.693359375, F32), b.fadd(f, tail))
        out = b.select(b.fcmp_unordered("==", x, self.constant(float("inf"), F32)), x, out)
        out = b.select(b.fcmp_ordered("==", x, self.constant(0.0, F32)), self.constant(float("-inf"), F32), out)
        return b.select(b.fcmp_ordered("<", x, self.constant(0.0, F32)), self.constant(float("nan"), F32), out)

    def _tanh(self, x: ir_builder.Value) -> ir_builder.Value:
        return self._odd_rational(x, 9.8, _TANH)

    def _erf(self, x: ir_builder.Value) -> ir_builder.Value:
        return self._odd_rational(x, 4.2, ERF)

    def _odd_rational(
        self, x: ir_builder.Value, limit: float, table: tuple[tuple[float, ...], tuple[float, ...]]
    ) -> ir_builder.Value:
        """x P(x^2) / Q(x^2), whose rounded value reaches 1 at `limit`: +-1 from there on."""
        b = self.builder
        inside = self.clamp(x, -limit, limit)
        square = b.fmul(inside, inside)
        quotient = b.fdiv(b.fmul(inside, self.polynomial(square, table[0])), self.polynomial(square, table[1]))
        return self.clamp(quotient, -1.0, 1.0)


class UnsupportedPrimitive(NotImplementedError):
    """The CPU code generator has no code for a primitive on these types."""


def _is_number(value: ir_builder.Value) -> bool:
    """Whether it is a constant without NaN."""
    found = _BITS.findall(value.ref) if isinstance(value, ir_builder.Constant) else []
    return bool(found) and all(int(bits, 16) & _MAGNITUDE <= _INFINITY for bits in found)


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_WITHOUT_CALLS: dict[str, Callable[..., ir_builder.Value]] = {
    "sin": transcendental.sine, "cos": transcendental.cosine, "pow": transcendental.power, "fmod": transcendental.remainder,
    "tan": inverse_functions.tangent, "asin": inverse_functions.arcsine, "acos": inverse_functions.arccosine,
    "atan": inverse_functions.arctangent,
    "sinh": inverse_functions.hyperbolic_sine, "cosh": inverse_functions.hyperbolic_cosine,
    "asinh": inverse_functions.area_sine,
    "acosh": inverse_functions.area_cosine, "atanh": inverse_functions.area_tangent,
}  # fmt: skip
_DOUBLE: dict[str, Callable[..., ir_builder.Value]] = {"exp": transcendental.exp_double, "tanh": transcendental.tanh_double}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
_FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_INTRINSICS = {"abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "roundeven", "sqrt": "sqrt"}
_LIBM = {
    "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "pow": "pow", "fmod": "fmod", "atan2": "atan2",
}  # fmt: skip

# Minimax coefficients fitted for this file (weighted least squares, relative error).
_LOG = (
    0.3333331048488617, -0.24999986588954926, 0.20002225041389465, -0.16669246554374695, 0.14218692481517792,
    -0.1238444596529007, 0.11872801184654236, -0.1178915947675705, 0.06915001571178436,
)  # fmt: skip
_TANH = (
    (1.0, 0.1409921944141388, 0.0044259619899094105, 4.2274052248103544e-05, 1.1117769105339903e-07, 3.6745228387813356e-11),
    (1.0, 0.4743255376815796, 0.029201138764619827, 0.000500836584251374, 2.6038826490548672e-06, 2.9512325916414284e-09),
)
ERF = (
    (
        1.1283791065216064, 0.190770223736763, 0.05278827250003815, 0.0037789710331708193, 0.00028478537569753826,
        2.041957259280025e-06,
    ),
    (1.0, 0.5023984313011169, 0.11425170302391052, 0.014996160753071308, 0.0011650417000055313, 3.8002723158570006e-05),
)  # fmt: skip


_LOOKED_AT = 16  # tensors behind a difference: definitions need three or four, and chains of selections are of any length


def _is_extremum(t: Tensor) -> bool:
    """Whether it is the largest or least of an axis, perhaps another number where that is infinite."""
    waiting = [t]
    for _ in range(_LOOKED_AT):
        if not waiting:
            break
        t = waiting.pop(0)
        if t.prim in ("broadcast", "expand", "reshape"):
            waiting.append(t.args[0])
        elif t.prim == "select":
            waiting += t.args[1:]
        elif t.prim == "reduce" and t.attrs[0] in ("max", "min"):
            return True
    return False
