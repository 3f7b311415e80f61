"""Conversions of float16 for x86 CPUs without F16C, under the names by which LLVM calls a compiler's run-time library.

A float16 is a float32 whose exponent is 112 less, so widening is a multiplication by 2^112. Narrowing rounds half to even on
the 13 bits that go away; what becomes subnormal is rounded by adding 0.5, whose last place is 2^-24.
"""

from __future__ import annotations

import re

from intarsia.codegen.llvm.target import Target

VERSION = "half1"

_WIDEN = """
define weak_odr hidden float @__extendhfsf2(half %x) nounwind {
  %h = bitcast half %x to i16
  %w = zext i16 %h to i32
  %magnitude = and i32 %w, 32767
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %bits = bitcast float %scaled to i32
  %special = icmp uge i32 %magnitude, 31744
  %infinite = or i32 %moved, 2139095040
  %chosen = select i1 %special, i32 %infinite, i32 %bits
  %sign = and i32 %w, 32768
  %high = shl i32 %sign, 16
  %out = or i32 %chosen, %high
  %y = bitcast i32 %out to float
  ret float %y
}
"""

_NARROW = """
define weak_odr hidden half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %rebased = add i32 %magnitude, -939520001
  %rounded = add i32 %rebased, %odd
  %normal = lshr i32 %rounded, 13
  %absolute = bitcast i32 %magnitude to float
  %raised = fadd float %absolute, 5.000000e-01
  %raised_bits = bitcast float %raised to i32
  %subnormal = add i32 %raised_bits, -1056964608
  %tiny = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %tiny, i32 %subnormal, i32 %normal
  %nan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %nan, i32 32256, i32 31744
  %huge = icmp uge i32 %magnitude, 1199570944
  %chosen = select i1 %huge, i32 %special, i32 %finite
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %out = or i32 %chosen, %sign
  %narrow = trunc i32 %out to i16
  %y = bitcast i16 %narrow to half
  ret half %y
}
"""


def with_conversions(text: str, target: Target) -> str:
    """The text of a kernel, with what it needs to convert float16 where the target has no instructions for it."""
    if not needs_conversions(target) or not re.search(r"\bhalf\b", text):
        return text
    return f"{text}\n{_WIDEN}{_NARROW}"


def needs_conversions(target: Target) -> bool:
    """Whether LLVM calls functions for conversions of float16."""
    return target.arch == "x86_64" and not (target.has("f16c") or target.has("avx512f"))
