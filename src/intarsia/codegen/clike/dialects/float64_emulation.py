"""Float64 in WGSL where the device has none: its bits as a vector of two words, the lower one first, as they lie in memory.

Every operation is IEEE 754's, rounded to nearest and ties to even, denormal numbers, infinities and NaN included: it works on
integers alone. The algorithms are those of textbooks (Berkeley SoftFloat's formats are named where they are used): numbers are
decomposed, aligned or multiplied as integers of 64 bits with a sticky last bit, and rounded once.

A kernel's text has the functions that it calls (`float64_expressions` writes the calls), and those that these call, among them
those of `int64_emulation`. Compilers of shaders put every call's text in place, so what is computed in a loop is small where a
series written out would be thousands of instructions: `exp_f64`, `log_f64` and `tanh_f64` sum theirs in fixed point, one
product a term.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction

from intarsia.codegen.clike.int64_emulation import TYPE
from intarsia.codegen.clike.int64_emulation import literal as int64_literal

_BOTH = f"a: {TYPE}, b: {TYPE}"


def literal(value: float) -> str:
    """The bits of a number."""
    low, high = struct.unpack("<II", struct.pack("<d", value))
    return f"{TYPE}(0x{low:x}u, 0x{high:x}u)"


def _word(value: Fraction | float, bits: int) -> str:
    """A number with so many bits behind the point, as 64 bits."""
    return int64_literal(round(Fraction(value) * 2**bits))


def _series(name: str, factors: Sequence[Fraction]) -> str:
    """A function that sums factors[i] z^i, by Horner's rule: z has 64 bits behind the point, factors and the sum 62."""
    words = ", ".join(_word(f, 62) for f in factors)
    return f"""fn {name}(z: {TYPE}) -> {TYPE} {{
  var factors = array<{TYPE}, {len(factors)}>({words});
  var sum = {TYPE}(0u, 0u);
  for (var i: i32 = {len(factors) - 1}; i >= 0; i -= 1) {{ sum = add64(factors[i], mul_high64(z, sum)); }}
  return sum;
}}"""


_LN2 = Fraction(0xB17217F7D1CF79ABC9E3B39803F2F6AF, 2**128)
_EXPONENTIAL = [Fraction(1, math.factorial(i)) for i in range(20)]  # of 0.71: the next term is below 2^-70
_LESS_ONE = [Fraction(1, math.factorial(i + 1)) for i in range(15)]  # of 0.5: the next term is below 2^-59
_ARTANGENT = [Fraction(1, 2 * i + 1) for i in range(12)]  # of (3 - sqrt 8)^2: the next term is below 2^-65

FUNCTIONS: Mapping[str, str] = {
    "bits_of_f64": f"fn bits_of_f64(a: {TYPE}) -> {TYPE} {{ return a; }}",
    "f64_of_bits": f"fn f64_of_bits(a: {TYPE}) -> {TYPE} {{ return a; }}",
    "neg_f64": f"fn neg_f64(a: {TYPE}) -> {TYPE} {{ return {TYPE}(a.x, a.y ^ 0x80000000u); }}",
    "abs_f64": f"fn abs_f64(a: {TYPE}) -> {TYPE} {{ return {TYPE}(a.x, a.y & 0x7fffffffu); }}",
    "field_f64": f"fn field_f64(a: {TYPE}) -> i32 {{ return i32((a.y >> 20u) & 0x7ffu); }}",
    "is_nan_f64": f"fn is_nan_f64(a: {TYPE}) -> bool {{\n"
    "  let high = a.y & 0x7fffffffu;\n  return high > 0x7ff00000u || (high == 0x7ff00000u && a.x != 0u);\n}",
    # `a` shifted to the right; its last bit is set where any bit is lost
    "shr_sticky": f"""fn shr_sticky(a: {TYPE}, n: i32) -> {TYPE} {{
  if (n <= 0) {{ return a; }}
  if (n > 63) {{ return {TYPE}(select(0u, 1u, (a.x | a.y) != 0u), 0u); }}
  let lost = shl64(a, u32(64 - n));
  let kept = shr_u64(a, u32(n));
  return {TYPE}(kept.x | select(0u, 1u, (lost.x | lost.y) != 0u), kept.y);
}}""",
    "zeros64": f"""fn zeros64(a: {TYPE}) -> i32 {{
  if (a.y != 0u) {{ return i32(countLeadingZeros(a.y)); }}
  return 32 + i32(countLeadingZeros(a.x));
}}""",
    # the number whose highest bit is worth 2^(e + 1 - 1023) at bit 62 (softfloat_roundPackToF64)
    "rounded_f64": f"""fn rounded_f64(sign: u32, e: i32, a: {TYPE}) -> {TYPE} {{
  var whole = a;
  var field = e;
  if (field < 0) {{
    whole = shr_sticky(whole, -field);
    field = 0;
  }}
  let spare = whole.x & 0x3ffu;
  whole = add64(whole, {TYPE}(0x200u, 0u));
  if (field > 0x7fd || (field == 0x7fd && (whole.y >> 31u) == 1u)) {{ return {TYPE}(0u, sign | 0x7ff00000u); }}
  whole = shr_u64(whole, 10u);
  if (spare == 0x200u) {{ whole.x = whole.x & 0xfffffffeu; }}
  if ((whole.x | whole.y) == 0u) {{ field = 0; }}
  return {TYPE}(whole.x, sign | ((u32(field) << 20u) + whole.y));
}}""",
    "normal_f64": f"""fn normal_f64(sign: u32, e: i32, a: {TYPE}) -> {TYPE} {{
  if ((a.x | a.y) == 0u) {{ return {TYPE}(0u, sign); }}
  let n = zeros64(a) - 1;
  var whole = a;
  if (n < 0) {{ whole = shr_sticky(a, 1); }} else {{ whole = shl64(a, u32(n)); }}
  return rounded_f64(sign, e - n, whole);
}}""",
    # the 53 bits of a number that is finite
    "whole_f64": f"""fn whole_f64(a: {TYPE}) -> {TYPE} {{
  return {TYPE}(a.x, (a.y & 0xfffffu) | select(0u, 0x100000u, (a.y & 0x7ff00000u) != 0u));
}}""",
    "nan_f64": f"fn nan_f64() -> {TYPE} {{ return {TYPE}(0u, 0x7ff80000u); }}",
    "add_f64": f"""fn add_f64({_BOTH}) -> {TYPE} {{
  let swapped = lt_u64(abs_f64(a), abs_f64(b));
  let large = select(a, b, swapped);
  let small = select(b, a, swapped);
  let sign = large.y & 0x80000000u;
  let apart = (large.y ^ small.y) >> 31u;
  let field = field_f64(large);
  if (field == 0x7ff) {{
    if (is_nan_f64(large)) {{ return {TYPE}(large.x, large.y | 0x80000u); }}
    if (field_f64(small) == 0x7ff && apart == 1u) {{ return nan_f64(); }}
    return large;
  }}
  let first = max(field, 1);
  let upper = shl64(whole_f64(large), 9u);
  let lower = shr_sticky(shl64(whole_f64(small), 9u), first - max(field_f64(small), 1));
  if (apart == 0u) {{ return normal_f64(sign, first, add64(upper, lower)); }}
  let rest = sub64(upper, lower);
  return normal_f64(select(sign, 0u, (rest.x | rest.y) == 0u), first, rest);
}}""",
    "sub_f64": f"fn sub_f64({_BOTH}) -> {TYPE} {{ return add_f64(a, {TYPE}(b.x, b.y ^ 0x80000000u)); }}",
    # the upper 64 bits of a product, with a sticky last bit
    "mul_high64": f"""fn mul_high64({_BOTH}) -> {TYPE} {{
  let first = mul64({TYPE}(a.x, 0u), {TYPE}(b.x, 0u));
  let second = add64(mul64({TYPE}(a.y, 0u), {TYPE}(b.x, 0u)), {TYPE}(first.y, 0u));
  let third = add64(mul64({TYPE}(a.x, 0u), {TYPE}(b.y, 0u)), {TYPE}(second.x, 0u));
  let high = add64(mul64({TYPE}(a.y, 0u), {TYPE}(b.y, 0u)), add64({TYPE}(second.y, 0u), {TYPE}(third.y, 0u)));
  return {TYPE}(high.x | select(0u, 1u, (third.x | first.x) != 0u), high.y);
}}""",
    "mul_f64": f"""fn mul_f64({_BOTH}) -> {TYPE} {{
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  if (is_nan_f64(b)) {{ return {TYPE}(b.x, b.y | 0x80000u); }}
  let one = abs_f64(a);
  let two = abs_f64(b);
  let none = (one.x | one.y) == 0u || (two.x | two.y) == 0u;
  if (field_f64(a) == 0x7ff || field_f64(b) == 0x7ff) {{
    if (none) {{ return nan_f64(); }}
    return {TYPE}(0u, sign | 0x7ff00000u);
  }}
  if (none) {{ return {TYPE}(0u, sign); }}
  let m = whole_f64(a);
  let n = whole_f64(b);
  let moved_m = zeros64(m) - 11;
  let moved_n = zeros64(n) - 11;
  let e = max(field_f64(a), 1) - moved_m + max(field_f64(b), 1) - moved_n - 0x3ff;
  return normal_f64(sign, e, mul_high64(shl64(m, u32(moved_m + 10)), shl64(n, u32(moved_n + 11))));
}}""",
    # of two numbers whose highest bits are at one place and the first of which is not less: 2^62 times as much, rounded down,
    # its last bit set where anything is left
    "quotient64": f"""fn quotient64({_BOTH}) -> {TYPE} {{
  var rest = a;
  var quotient = {TYPE}(0u, 0u);
  for (var i: i32 = 0; i < 63; i += 1) {{
    quotient = shl64(quotient, 1u);
    if (!lt_u64(rest, b)) {{
      rest = sub64(rest, b);
      quotient.x = quotient.x | 1u;
    }}
    rest = shl64(rest, 1u);
  }}
  return {TYPE}(quotient.x | select(0u, 1u, (rest.x | rest.y) != 0u), quotient.y);
}}""",
    "div_f64": f"""fn div_f64({_BOTH}) -> {TYPE} {{
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  if (is_nan_f64(b)) {{ return {TYPE}(b.x, b.y | 0x80000u); }}
  let one = abs_f64(a);
  let two = abs_f64(b);
  let above = (one.x | one.y) == 0u;
  let below = (two.x | two.y) == 0u;
  if (field_f64(a) == 0x7ff) {{
    if (field_f64(b) == 0x7ff) {{ return nan_f64(); }}
    return {TYPE}(0u, sign | 0x7ff00000u);
  }}
  if (above && below) {{ return nan_f64(); }}
  if (below) {{ return {TYPE}(0u, sign | 0x7ff00000u); }}
  if (above || field_f64(b) == 0x7ff) {{ return {TYPE}(0u, sign); }}
  var rest = whole_f64(a);
  var divisor = whole_f64(b);
  let moved_a = zeros64(rest) - 11;
  let moved_b = zeros64(divisor) - 11;
  rest = shl64(rest, u32(moved_a));
  divisor = shl64(divisor, u32(moved_b));
  var e = max(field_f64(a), 1) - moved_a - max(field_f64(b), 1) + moved_b + 0x3fe;
  if (lt_u64(rest, divisor)) {{
    rest = shl64(rest, 1u);
    e = e - 1;
  }}
  return rounded_f64(sign, e, quotient64(rest, divisor));
}}""",
    # two bits of the radicand give one of the root
    "sqrt_f64": f"""fn sqrt_f64(a: {TYPE}) -> {TYPE} {{
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  if ((a.x | (a.y & 0x7fffffffu)) == 0u) {{ return a; }}
  if ((a.y >> 31u) == 1u) {{ return nan_f64(); }}
  if (field_f64(a) == 0x7ff) {{ return a; }}
  let moved = zeros64(whole_f64(a)) - 11;
  var whole = shl64(whole_f64(a), u32(moved));
  var e = max(field_f64(a), 1) - moved - 0x3ff;
  if ((e & 1) != 0) {{
    whole = shl64(whole, 1u);
    e = e - 1;
  }}
  whole = shl64(whole, 10u);
  var root = {TYPE}(0u, 0u);
  var rest = {TYPE}(0u, 0u);
  for (var i: i32 = 0; i < 55; i += 1) {{
    rest = shl64(rest, 2u);
    rest.x = rest.x | (whole.y >> 30u);
    whole = shl64(whole, 2u);
    let trial = add64(shl64(root, 2u), {TYPE}(1u, 0u));
    root = shl64(root, 1u);
    if (!lt_u64(rest, trial)) {{
      rest = sub64(rest, trial);
      root.x = root.x | 1u;
    }}
  }}
  root = shl64(root, 8u);
  return rounded_f64(0u, (e >> 1u) + 0x3fe, {TYPE}(root.x | select(0u, 1u, (rest.x | rest.y) != 0u), root.y));
}}""",
    # what stands behind the point of 53 bits, the first worth 2^e
    "fraction64": f"""fn fraction64(whole: {TYPE}, e: i32) -> {TYPE} {{
  if (e < -12) {{ return shr_u64(whole, u32(-12 - e)); }}
  return shl64(whole, u32(e + 12));
}}""",
    "exponential64": _series("exponential64", _EXPONENTIAL),
    # 2^k e^r, 0 <= r < 0.71, with r = x - k log 2 modulo 1, of which 64 bits behind the point are exact
    "exp_f64": f"""fn exp_f64(a: {TYPE}) -> {TYPE} {{
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  let below = (a.y >> 31u) == 1u;
  let e = field_f64(a) - 0x3ff;
  if (e > 9) {{ return {TYPE}(0u, select(0x7ff00000u, 0u, below)); }}
  if (e < -60) {{ return {literal(1.0)}; }}
  let whole = whole_f64(a);
  let part = fraction64(whole, e);
  var size = f32(part.y) * 2.3283064e-10;
  if (e >= 0) {{ size = size + f32(shr_u64(whole, u32(52 - e)).x); }}
  let k = i32(floor(select(size, -size, below) * 1.442695 - 0.01));
  let rest = sub64(select(part, neg64(part), below), mul64(from_i32(k), {_word(_LN2, 64)}));
  return normal_f64(0u, 0x3fe + k, exponential64(rest));
}}""",
    "less_one64": _series("less_one64", _LESS_ONE),
    # c / (c + 2), c = e^2x - 1, for the size of x: of small ones c is 2x times a series
    "tanh_f64": f"""fn tanh_f64(a: {TYPE}) -> {TYPE} {{
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  let sign = a.y & 0x80000000u;
  let e = field_f64(a) - 0x3fe;
  if (e > 5) {{ return {TYPE}(0u, sign | 0x3ff00000u); }}
  if (e < -30) {{ return a; }}
  let twice = {TYPE}(a.x, (a.y & 0x7fffffffu) + 0x100000u);
  var above = {TYPE}(0u, 0u);
  if (e < -1) {{
    above = mul_f64(twice, normal_f64(0u, 0x3fe, less_one64(fraction64(whole_f64(twice), e))));
  }} else {{
    above = sub_f64(exp_f64(twice), {literal(1.0)});
  }}
  let result = div_f64(above, add_f64(above, {literal(2.0)}));
  return {TYPE}(result.x, result.y | sign);
}}""",
    "artangent64": _series("artangent64", _ARTANGENT),
    # n log 2 + 2 artanh f, f = (m - 1) / (m + 1), where x = 2^n m and 1/sqrt 2 < m <= sqrt 2
    "log_f64": f"""fn log_f64(a: {TYPE}) -> {TYPE} {{
  if (is_nan_f64(a)) {{ return {TYPE}(a.x, a.y | 0x80000u); }}
  if ((a.x | (a.y & 0x7fffffffu)) == 0u) {{ return {TYPE}(0u, 0xfff00000u); }}
  if ((a.y >> 31u) == 1u) {{ return nan_f64(); }}
  if (field_f64(a) == 0x7ff) {{ return a; }}
  let moved = zeros64(whole_f64(a)) - 11;
  var m = shl64(whole_f64(a), u32(moved));
  var n = max(field_f64(a), 1) - moved - 0x3ff;
  if (lt_u64({_word(Fraction(math.sqrt(2)), 52)}, m)) {{ n = n + 1; }} else {{ m = shl64(m, 1u); }}
  let one = {_word(1, 53)};
  let below = lt_u64(m, one);
  var above = sub64(select(m, one, below), select(one, m, below));
  let divisor = add64(m, one);
  var twice = {TYPE}(0u, 0u);
  var s = 0;
  if ((above.x | above.y) != 0u) {{
    s = zeros64(above) - zeros64(divisor);
    above = shl64(above, u32(s));
    if (lt_u64(above, divisor)) {{
      above = shl64(above, 1u);
      s = s + 1;
    }}
    let f = quotient64(above, divisor);
    let z = shr_u64(f, u32(s - 2));
    twice = mul_high64(f, artangent64(mul_high64(z, z)));
  }}
  if (n == 0) {{ return normal_f64(select(0u, 0x80000000u, below), 0x401 - s, twice); }}
  let powers = mul64({TYPE}(u32(abs(n)), 0u), {_word(_LN2, 54)});
  let rest = shr_u64(twice, u32(s + 5));
  let size = select(sub64(powers, rest), add64(powers, rest), (n < 0) == below);
  return normal_f64(select(0u, 0x80000000u, n < 0), 0x406, size);
}}""",
    "eq_f64": f"""fn eq_f64({_BOTH}) -> bool {{
  if (is_nan_f64(a) || is_nan_f64(b)) {{ return false; }}
  return all(a == b) || (a.x | b.x | ((a.y | b.y) & 0x7fffffffu)) == 0u;
}}""",
    "lt_f64": f"""fn lt_f64({_BOTH}) -> bool {{
  if (is_nan_f64(a) || is_nan_f64(b)) {{ return false; }}
  if (((a.y ^ b.y) >> 31u) == 1u) {{ return (a.y >> 31u) == 1u && (a.x | b.x | ((a.y | b.y) & 0x7fffffffu)) != 0u; }}
  if ((a.y >> 31u) == 1u) {{ return lt_u64(b, a); }}
  return lt_u64(a, b);
}}""",
    "le_f64": f"fn le_f64({_BOTH}) -> bool {{ return lt_f64(a, b) || eq_f64(a, b); }}",
    "trunc_f64": f"""fn trunc_f64(a: {TYPE}) -> {TYPE} {{
  let e = field_f64(a) - 0x3ff;
  if (e < 0) {{ return {TYPE}(0u, a.y & 0x80000000u); }}
  if (e > 51) {{ return a; }}
  let mask = shl64({TYPE}(0xffffffffu, 0xffffffffu), u32(52 - e));
  return {TYPE}(a.x & mask.x, a.y & mask.y);
}}""",
    "floor_f64": f"""fn floor_f64(a: {TYPE}) -> {TYPE} {{
  let whole = trunc_f64(a);
  if ((a.y >> 31u) == 1u && !is_nan_f64(a) && !eq_f64(whole, a)) {{ return add_f64(whole, {literal(-1.0)}); }}
  return whole;
}}""",
    "ceil_f64": f"""fn ceil_f64(a: {TYPE}) -> {TYPE} {{
  let whole = trunc_f64(a);
  if ((a.y >> 31u) == 0u && !is_nan_f64(a) && !eq_f64(whole, a)) {{ return add_f64(whole, {literal(1.0)}); }}
  return whole;
}}""",
    "f64_from_u64": f"fn f64_from_u64(a: {TYPE}) -> {TYPE} {{ return normal_f64(0u, 0x43c, a); }}",
    "f64_from_i64": f"fn f64_from_i64(a: {TYPE}) -> {TYPE} {{ return normal_f64(a.y & 0x80000000u, 0x43c, abs64(a)); }}",
    "f64_from_i32": f"fn f64_from_i32(a: i32) -> {TYPE} {{ return f64_from_i64(from_i32(a)); }}",
    "f64_from_u32": f"fn f64_from_u32(a: u32) -> {TYPE} {{ return normal_f64(0u, 0x43c, {TYPE}(a, 0u)); }}",
    "f64_from_f32": f"""fn f64_from_f32(a: f32) -> {TYPE} {{
  let bits = bitcast<u32>(a);
  let sign = bits & 0x80000000u;
  let field = (bits >> 23u) & 0xffu;
  let low = bits & 0x7fffffu;
  if (field == 255u) {{ return {TYPE}(low << 29u, sign | 0x7ff00000u | (low >> 3u) | select(0u, 0x80000u, low != 0u)); }}
  if (field == 0u) {{ return normal_f64(sign, 0x3a7, {TYPE}(low, 0u)); }}
  return {TYPE}(low << 29u, sign | ((field + 0x380u) << 20u) | (low >> 3u));
}}""",
    # softfloat_roundPackToF32 of 30 bits behind the point
    "f32_from_f64": f"""fn f32_from_f64(a: {TYPE}) -> f32 {{
  let sign = a.y & 0x80000000u;
  if (is_nan_f64(a)) {{ return bitcast<f32>(sign | 0x7fc00000u | ((a.y & 0x7ffffu) << 3u) | (a.x >> 29u)); }}
  if ((a.x | (a.y & 0x7fffffffu)) == 0u) {{ return bitcast<f32>(sign); }}
  var whole = shr_sticky({TYPE}(a.x, a.y & 0xfffffu), 22).x | 0x40000000u;
  var field = field_f64(a) - 0x381;
  if (field < 0) {{
    whole = shr_sticky({TYPE}(whole, 0u), -field).x;
    field = 0;
  }}
  if (field > 0xfd || (field == 0xfd && whole > 0x7fffffbfu)) {{ return bitcast<f32>(sign | 0x7f800000u); }}
  let spare = whole & 0x7fu;
  whole = (whole + 0x40u) >> 7u;
  if (spare == 0x40u) {{ whole = whole & 0xfffffffeu; }}
  if (whole == 0u) {{ field = 0; }}
  return bitcast<f32>(sign | ((u32(field) << 23u) + whole));
}}""",
    "i64_from_f64": f"""fn i64_from_f64(a: {TYPE}) -> {TYPE} {{
  let e = field_f64(a) - 0x3ff;
  if (e < 0) {{ return {TYPE}(0u, 0u); }}
  var whole = whole_f64(a);
  if (e > 52) {{ whole = shl64(whole, u32(min(e - 52, 63))); }} else {{ whole = shr_u64(whole, u32(52 - e)); }}
  return select(whole, neg64(whole), (a.y >> 31u) == 1u);
}}""",
    "u64_from_f64": f"fn u64_from_f64(a: {TYPE}) -> {TYPE} {{ return i64_from_f64(a); }}",
    "i32_from_f64": f"fn i32_from_f64(a: {TYPE}) -> i32 {{ return bitcast<i32>(i64_from_f64(a).x); }}",
    "u32_from_f64": f"fn u32_from_f64(a: {TYPE}) -> u32 {{ return i64_from_f64(a).x; }}",
}  # fmt: skip
"""By name, those that others call first but for `normal_f64` and its like, whose order WGSL does not ask for."""
