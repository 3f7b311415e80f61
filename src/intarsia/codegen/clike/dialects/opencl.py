"""OpenCL C, from version 1.2 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from intarsia.codegen.clike.dialects.dialect import GPU, Dialect, KernelParts, Limits, Tuning
from intarsia.codegen.clike.storage_types import Kind
from intarsia.graph.dtypes import DType

_FUNCTIONS = {
    **{n: n for n in "floor ceil sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()},
    **{n: n for n in "erf trunc pow fmod atan2".split()},
    "abs": "fabs", "round": "rint",
}  # fmt: skip
_KINDS = {
    Kind.BOOL: "bool", Kind.I32: "int", Kind.U32: "uint", Kind.I64: "long", Kind.U64: "ulong", Kind.F32: "float",
    Kind.F64: "double",
}  # fmt: skip
_STORED = {
    "unsigned char": "uchar", "signed char": "char", "unsigned short": "ushort", "unsigned int": "uint", "long long": "long",
    "unsigned long long": "ulong",
}  # fmt: skip


def _dot4(left: str, right: str) -> str:
    """d plus four products of bytes."""
    signs, result = left[0] + right[0], "uint" if left == right == "u8" else "int"
    kinds = ["char4" if kind == "s8" else "uchar4" for kind in (left, right)]
    return f"""int dot4_{left}{right}(int d, uint a, uint b) {{
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
  return d + (int)dot_4x8packed_{signs}_{result}(a, b);
#else
  const int4 p = convert_int4(as_{kinds[0]}(a)) * convert_int4(as_{kinds[1]}(b));
  return d + (p.x + p.y + p.z + p.w);
#endif
}}"""


DOT4_FUNCTIONS = {f"dot4_{a}{b}(": _dot4(a, b) for a in ("s8", "u8") for b in ("s8", "u8")}


class OpenCl(Dialect):
    """OpenCL C; functions have one name for all floats.

    Args:
        doubles: the device has them.
        limits, tuning: of the device.
    """

    name: ClassVar[str] = "OpenCL C"
    storage: Mapping[DType, str] = {dtype: _STORED.get(text, text) for dtype, text in Dialect.storage.items()}
    group: ClassVar[tuple[str, str, str]] = ("(int)get_group_id(0)", "(int)get_group_id(1)", "(int)get_group_id(2)")
    groups_across: ClassVar[str] = "(int)get_num_groups(0)"
    local: ClassVar[str] = "(int)get_local_id(0)"
    barrier: ClassVar[str] = "barrier(CLK_LOCAL_MEM_FENCE);"
    _suffix: ClassVar[Mapping[Kind, str]] = {Kind.I32: "", Kind.U32: "u", Kind.I64: "L", Kind.U64: "UL"}

    def __init__(self, doubles: bool = True, limits: Limits | None = None, tuning: Tuning = GPU) -> None:
        self.kinds = {kind: text for kind, text in _KINDS.items() if doubles or kind is not Kind.F64}
        self.functions = {(op, kind): text for op, text in _FUNCTIONS.items() for kind in self.kinds if kind.is_float}
        self.tuning = tuning
        self.bytes_for_floats = (
            not tuning.direct
        )  # a processor's driver makes vectors of floats, and words of four bytes one by one
        self.limits = limits or Limits(buffers=64, threads=256, shared_nbytes=32768, groups=65535)

    def bitcast(self, value: str, source: Kind, target: Kind) -> str:
        return f"as_{self.kinds[target]}({value})"

    vectors: ClassVar[Mapping[str, str]] = {
        "float": "float4", "int": "int4", "uint": "uint4", "short": "short4", "ushort": "ushort4", "char": "char4",
        "uchar": "uchar4", "signed char": "char4", "unsigned char": "uchar4",
    }  # fmt: skip

    def vector(self, parts: Sequence[str], dtype: DType = DType.FLOAT) -> str:
        return f"({self.vector_of(dtype)})({', '.join(parts)})"

    def add_scaled(self, total: str, factor: str, vector: str) -> str:
        return f"{total} += {factor} * {vector};"

    def read_vector(self, buffer: str, at: str, dtype: DType = DType.FLOAT) -> str:
        return f"vload4({at} >> 2, {buffer})"

    def read_word(self, buffer: str, at: str) -> str:
        return f"((__global const uint*){buffer})[{at} >> 2]"

    def preamble(self, kernel: KernelParts) -> list[str]:
        text = "\n".join(kernel.body)
        return [function for name, function in DOT4_FUNCTIONS.items() if name in text]

    def write_vector(self, buffer: str, at: str, parts: Sequence[str], dtype: DType) -> str:
        return f"vstore4({self.vector(parts, dtype)}, {at}, {buffer});"

    def part(self, array: str, at: str) -> str:
        return f"((__local float*){array})[{at}]"

    def source(self, kernel: KernelParts) -> str:
        arguments = [f"__global const {self.element(b.dtype)}* restrict {b.name}" for b in kernel.operands]
        arguments += [f"__global {self.element(b.dtype)}* restrict {b.name}" for b in kernel.outputs]
        arguments += ["__global const int* restrict P"] if kernel.parameters else []
        arguments += ["__global uint* restrict S"] if kernel.checked else []
        head = f"__kernel __attribute__((reqd_work_group_size({kernel.threads}, 1, 1)))"
        lines = self.preamble(kernel)
        lines += [f"{head} void main_kernel({', '.join(arguments)}) {{"]
        lines += [f"  __local {self.held(k, w)} {n}[{c}];" for n, k, c, w in kernel.shared]
        return "\n".join([*lines, *("  " + line for line in kernel.body), "}"]) + "\n"
