"""64-bit integers in WGSL where the device has none: a vector of two words, the lower one first, as they lie in memory.

A kernel's text has the functions that it calls, and those that these call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from intarsia.codegen.clike.storage_types import Kind

TYPE = "vec2<u32>"
_BOTH = f"a: {TYPE}, b: {TYPE}"
_ARITHMETIC = {"+": "add64", "-": "sub64", "*": "mul64", "<<": "shl64"}
_BY_SIGN = {"/": "div", "%": "mod", ">>": "shr"}


def _letter(kind: Kind) -> str:
    return "i" if kind.is_signed else "u"


def literal(value: int) -> str:
    value &= (1 << 64) - 1
    return f"{TYPE}({value & 0xFFFFFFFF}u, {value >> 32}u)"


def arithmetic(op: str, a: str, b: str, kind: Kind) -> str:
    """+ - * / % << >> of two words (the shifts' right operand is a u32), & | ^ by the language itself."""
    if op in _ARITHMETIC:
        return f"{_ARITHMETIC[op]}({a}, {b})"
    if op in _BY_SIGN:
        return f"{_BY_SIGN[op]}_{_letter(kind)}64({a}, {b})"
    return f"({a} {op} {b})"


def comparison(op: str, a: str, b: str, kind: Kind) -> str:
    if op == "==":
        return f"all({a} == {b})"
    if op == "!=":
        return f"any({a} != {b})"
    if op in (">", "<="):  # a > b is b < a, and a <= b the contrary
        a, b = b, a
    less = f"lt_{_letter(kind)}64({a}, {b})"
    return less if op in ("<", ">") else f"!{less}"


def convert(value: str, source: Kind, target: Kind) -> str:
    """Between integers modulo 2^bits; between floats towards zero."""
    if source in (Kind.I64, Kind.U64):
        if target in (Kind.I64, Kind.U64):
            return value
        if target is Kind.F32:
            return f"float_{_letter(source)}64({value})"
        return f"({value}).x" if target is Kind.U32 else f"bitcast<i32>(({value}).x)"
    if source is Kind.F32:
        return f"from_float64({value})"
    return f"{TYPE}(u32({value}), 0u)" if source is Kind.U32 else f"from_i32({value})"


FUNCTIONS: Mapping[str, str] = {
    "from_i32": f"fn from_i32(a: i32) -> {TYPE} {{ return {TYPE}(bitcast<u32>(a), bitcast<u32>(a >> 31u)); }}",
    "add64": f"fn add64({_BOTH}) -> {TYPE} {{\n  let low = a.x + b.x;\n"
    f"  return {TYPE}(low, a.y + b.y + select(0u, 1u, low < a.x));\n}}",
    "sub64": f"fn sub64({_BOTH}) -> {TYPE} {{ return {TYPE}(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x)); }}",
    "neg64": f"fn neg64(a: {TYPE}) -> {TYPE} {{ return sub64({TYPE}(0u, 0u), a); }}",
    "mul64": f"""fn mul64({_BOTH}) -> {TYPE} {{
  let a0 = a.x & 0xffffu; let a1 = a.x >> 16u; let b0 = b.x & 0xffffu; let b1 = b.x >> 16u;
  let first = a0 * b0; let second = a1 * b0; let third = a0 * b1;
  let middle = (first >> 16u) + (second & 0xffffu) + (third & 0xffffu);
  let high = a1 * b1 + (second >> 16u) + (third >> 16u) + (middle >> 16u);
  return {TYPE}(a.x * b.x, high + a.x * b.y + a.y * b.x);
}}""",
    "lt_u64": f"fn lt_u64({_BOTH}) -> bool {{ return a.y < b.y || (a.y == b.y && a.x < b.x); }}",
    "lt_i64": f"fn lt_i64({_BOTH}) -> bool {{\n"
    "  return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);\n}",
    "shl64": f"""fn shl64(a: {TYPE}, n: u32) -> {TYPE} {{
  if (n == 0u) {{ return a; }}
  if (n > 31u) {{ return {TYPE}(0u, a.x << (n - 32u)); }}
  return {TYPE}(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}}""",
    "shr_u64": f"""fn shr_u64(a: {TYPE}, n: u32) -> {TYPE} {{
  if (n == 0u) {{ return a; }}
  if (n > 31u) {{ return {TYPE}(a.y >> (n - 32u), 0u); }}
  return {TYPE}((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}}""",
    "shr_i64": f"""fn shr_i64(a: {TYPE}, n: u32) -> {TYPE} {{
  let high = bitcast<i32>(a.y);
  if (n == 0u) {{ return a; }}
  if (n > 31u) {{ return {TYPE}(bitcast<u32>(high >> (n - 32u)), bitcast<u32>(high >> 31u)); }}
  return {TYPE}((a.x >> n) | (a.y << (32u - n)), bitcast<u32>(high >> n));
}}""",
    "div_u64": f"""fn div_u64({_BOTH}) -> {TYPE} {{
  if (a.y == 0u && b.y == 0u) {{ return {TYPE}(a.x / b.x, 0u); }}
  var quotient = {TYPE}(0u, 0u);
  var rest = {TYPE}(0u, 0u);
  for (var i: u32 = 64u; i > 0u; i -= 1u) {{
    let carried = rest.y >> 31u;
    rest = shl64(rest, 1u);
    rest.x |= shr_u64(a, i - 1u).x & 1u;
    if (carried == 1u || !lt_u64(rest, b)) {{
      rest = sub64(rest, b);
      quotient |= shl64({TYPE}(1u, 0u), i - 1u);
    }}
  }}
  return quotient;
}}""",
    "abs64": f"fn abs64(a: {TYPE}) -> {TYPE} {{ return select(a, neg64(a), (a.y >> 31u) == 1u); }}",
    "div_i64": f"fn div_i64({_BOTH}) -> {TYPE} {{\n  let size = div_u64(abs64(a), abs64(b));\n"
    "  return select(size, neg64(size), ((a.y ^ b.y) >> 31u) == 1u);\n}",
    "mod_u64": f"fn mod_u64({_BOTH}) -> {TYPE} {{ return sub64(a, mul64(div_u64(a, b), b)); }}",
    "mod_i64": f"fn mod_i64({_BOTH}) -> {TYPE} {{ return sub64(a, mul64(div_i64(a, b), b)); }}",
    "float_u64": f"fn float_u64(a: {TYPE}) -> f32 {{ return f32(a.y) * 4294967296.0 + f32(a.x); }}",
    "float_i64": f"fn float_i64(a: {TYPE}) -> f32 {{\n  let size = float_u64(abs64(a));\n"
    "  return select(size, -size, (a.y >> 31u) == 1u);\n}",
    "from_float64": f"""fn from_float64(a: f32) -> {TYPE} {{
  let size = abs(a);
  let high = floor(size * 2.3283064365386963e-10);
  let whole = {TYPE}(u32(size - high * 4294967296.0), u32(high));
  return select(whole, neg64(whole), a < 0.0);
}}""",
}  # fmt: skip
"""By name. Above 2^24, floats of integers may be off by one unit of their last place."""


def library(lines: Iterable[str], more: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """The functions that a kernel needs, those that others call first. `more`: functions of others that may be called too."""
    text, known = "\n".join(lines), {**FUNCTIONS, **more}
    needed: set[str] = set()

    def need(inside: str) -> None:
        for name in set(re.findall(r"\b(\w+)\(", inside)) & known.keys() - needed:
            needed.add(name)
            need(known[name])

    need(text)
    return [known[name] for name in known if name in needed]
