"""WGSL, the language of WebGPU, as the naga compiler takes it (64-bit types where the device has them)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from intarsia.codegen.clike import int64_emulation
from intarsia.codegen.clike.dialects import float64_emulation
from intarsia.codegen.clike.dialects.dialect import GPU, Dialect, KernelParts, Limits, Tuning
from intarsia.codegen.clike.dialects.float64_expressions import without_doubles
from intarsia.codegen.clike.storage_types import Kind
from intarsia.graph.dtypes import DType

_FUNCTIONS = "abs floor ceil round trunc sqrt exp sin cos tan atan2"
_BASE = {Kind.BOOL: "bool", Kind.I32: "i32", Kind.U32: "u32", Kind.F32: "f32"}
_INT64 = {Kind.I64: "i64", Kind.U64: "u64"}
_TWO_WORDS = {Kind.I64: int64_emulation.TYPE, Kind.U64: int64_emulation.TYPE}
_STORED = {
    DType.FLOAT: "f32", DType.INT32: "i32", DType.UINT32: "u32", DType.INT64: "i64", DType.UINT64: "u64", DType.DOUBLE: "f64",
}  # fmt: skip


class Wgsl(Dialect):
    """WGSL. Types of 8 and 16 bits are packed into words; floats of 16 bits need no feature of the device.

    Args:
        features: of the device: "shader-int64" (without it, numbers of 64 bits are two words, see `int64_emulation` and
            `float64_emulation`) and "shader-f64" (which counts only beside the other).
        limits, tuning: of the device.
    """

    name: ClassVar[str] = "WGSL"
    storage: Mapping[DType, str] = _STORED
    functions: Mapping[tuple[str, Kind], str] = {
        **{(op, Kind.F32): op for op in _FUNCTIONS.split()},
        **{(op, Kind.F64): op for op in "abs floor ceil trunc sqrt".split()},
    }  # fmt: skip
    group: ClassVar[tuple[str, str, str]] = ("i32(group.x)", "i32(group.y)", "i32(group.z)")
    groups_across: ClassVar[str] = "i32(grid.x)"
    local: ClassVar[str] = "i32(thread)"
    barrier: ClassVar[str] = "workgroupBarrier();"
    _suffix: ClassVar[Mapping[Kind, str]] = {Kind.I32: "", Kind.U32: "u", Kind.I64: "li", Kind.U64: "lu"}

    def __init__(
        self, features: Collection[str] = ("shader-int64", "shader-f64"), limits: Limits | None = None,
        tuning: Tuning = GPU,
    ) -> None:  # fmt: skip
        self.emulated = self.emulates_doubles = "shader-int64" not in features
        self.kinds = {**_BASE, **(_TWO_WORDS if self.emulated else _INT64)}
        self.storage = {
            **_STORED,
            **({DType.INT64: int64_emulation.TYPE, DType.UINT64: int64_emulation.TYPE} if self.emulated else {}),
        }
        if "shader-f64" in features or self.emulated:
            self.kinds[Kind.F64] = "f64"
        if self.emulated:
            self.functions = {**self.functions, **{(op, Kind.F64): op for op in ("exp", "log", "tanh")}}
        self.tuning = tuning
        self.limits = limits or Limits(binding_nbytes=1 << 27)

    def _float(self, value: float, kind: Kind) -> str:
        text = super()._float(value, kind)
        text = text if kind is Kind.F32 or text.startswith(("bitcast", "f64_of_bits")) else text + "lf"
        return f"({text})" if text.startswith("-") else text

    def special(self, value: float, kind: Kind) -> str:
        if kind is Kind.F32:  # a constant expression must be finite: `zero` is none
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            return f"bitcast<f32>(0x{bits:08x}u | zero)"
        (low, high) = struct.unpack("<II", struct.pack("<d", value))
        if self.emulated:
            return f"f64_of_bits({int64_emulation.TYPE}({low}u, {high}u))"
        return f"bitcast<f64>((u64(0x{high:08x}u | zero) << 32u) | u64(0x{low:08x}u))"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def _is_two_words(self, kind: Kind) -> bool:
        return self.emulated and kind in _TWO_WORDS

    def _integer(self, value: int, kind: Kind) -> str:
        return int64_emulation.literal(value) if self._is_two_words(kind) else super()._integer(value, kind)

    def arithmetic(self, op: str, a: str, b: str, kind: Kind) -> str:
        return int64_emulation.arithmetic(op, a, b, kind) if self._is_two_words(kind) else super().arithmetic(op, a, b, kind)

    def comparison(self, op: str, a: str, b: str, kind: Kind) -> str:
        return int64_emulation.comparison(op, a, b, kind) if self._is_two_words(kind) else super().comparison(op, a, b, kind)

    def convert(self, value: str, source: Kind, target: Kind) -> str:
        if self.emulated and Kind.F64 in (source, target):
            return f"{target.value}_from_{source.value}({value})"
        if self._is_two_words(source) or self._is_two_words(target):
            return int64_emulation.convert(value, source, target)
        if (source, target) == (Kind.I32, Kind.I64):  # Mesa 22 compares what i64(i32) gives wrongly
            return f"(i64(u64(bitcast<u32>({value}) ^ 0x80000000u)) - 2147483648li)"
        return f"{self.kinds[target]}({value})"

    def bitcast(self, value: str, source: Kind, target: Kind) -> str:
        if self.emulated and Kind.F64 in (source, target):
            return f"{'bits_of_f64' if source is Kind.F64 else 'f64_of_bits'}({value})"
        return value if self._is_two_words(source) else f"bitcast<{self.kinds[target]}>({value})"

    def shift(self, amount: str, kind: Kind) -> str:
        if self._is_two_words(kind):
            return f"({amount}).x"
        return amount if kind is Kind.U32 else f"u32({amount})"

    def decode_half(self, bits: str) -> str | None:
        return f"unpack2x16float({bits}).x"

    mixes_signs: ClassVar[bool] = False

    def dot4(self, total: str, a: str, b: str, left_signed: bool, right_signed: bool) -> str:
        return f"{total} += dot4I8Packed({a}, {b});" if left_signed else f"{total} += i32(dot4U8Packed({a}, {b}));"

    def parameter(self, position: int) -> str:
        return f"P[{position // 4}].{'xyzw'[position % 4]}"

    def let(self, name: str, kind: Kind, value: str) -> str:
        return f"let {name}: {self.kinds[kind]} = {value};"

    def variable(self, name: str, kind: Kind, value: str) -> str:
        return f"var {name}: {self.kinds[kind]} = {value};"

    def loop(self, name: str, start: str, stop: str, step: str = "1") -> str:
        return f"for (var {name}: i32 = {start}; {name} < {stop}; {name} += {step}) {{"

    vector_type: ClassVar[str] = "vec4<f32>"
    typed_buffers: ClassVar[bool] = True

    vectors: ClassVar[Mapping[str, str]] = {kind: f"vec4<{kind}>" for kind in ("f32", "i32", "u32")}

    def vector(self, parts: Sequence[str], dtype: DType = DType.FLOAT) -> str:
        return f"{self.vector_of(dtype)}({', '.join(parts)})"

    def let_vector(self, name: str, value: str, kind: str = "") -> str:
        return f"let {name}: {kind or self.vector_type} = {value};"

    def variable_vector(self, name: str, value: str) -> str:
        return f"var {name}: vec4<f32> = {value};"

    def add_scaled(self, total: str, factor: str, vector: str) -> str:
        return f"{total} += {factor} * {vector};"

    def part(self, array: str, at: str) -> str:
        return f"{array}[({at}) >> 2u][({at}) & 3]"

    def source(self, kernel: KernelParts) -> str:
        """Every buffer is read_write: one buffer may then hold operands and results of the same kernel."""
        lines: list[str] = []
        access: list[str] = []
        for b in (*kernel.operands, *kernel.outputs):
            names = [b.name, *(f"{b.name}w{i}" for i in range(1, b.windows))]
            element = self.vector_of(b.dtype) if b.vectors else self.element(b.dtype)
            for n in names:
                lines.append(f"@group(0) @binding({len(lines)}) var<storage, read_write> {n}: array<{element}>;")
            access += self._access(names, element, self.window(b.dtype) // (4 if b.vectors else 1)) if b.windows > 1 else []
        position = len(lines)
        if kernel.parameters:
            count = -(-kernel.parameters // 4)
            lines.append(f"@group(0) @binding({position}) var<uniform> P: array<vec4<i32>, {count}>;")
            position += 1
        if kernel.checked:
            lines.append(f"@group(0) @binding({position}) var<storage, read_write> S: array<u32>;")
        lines += [f"var<workgroup> {n}: array<{self.held(k, w)}, {c}>;" for n, k, c, w in kernel.shared]
        lines += access
        body = ["let zero = thread >> 31u;"] if any("zero" in line for line in kernel.body) else []
        head = (
            f"@compute @workgroup_size({kernel.threads})\nfn main_kernel(@builtin(workgroup_id) group: vec3<u32>, "
            "@builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) thread: u32) {"
        )
        text = "\n".join([head, *("  " + line for line in (*body, *kernel.body)), "}"]) + "\n"
        before = "\n".join([*lines, ""])
        if not self.emulated:
            return before + text
        if "f64" in before + text:
            before, _, text = without_doubles(f"{before}@compute{text.removeprefix('@compute')}").partition("@compute")
            text = f"@compute{text}"
        library = int64_emulation.library([before, text], float64_emulation.FUNCTIONS)
        return "".join([before, *(f"{function}\n" for function in library), text])

    def _access(self, names: Sequence[str], kind: str, size: int) -> list[str]:
        """Functions that read and write the places of a value which is bound as several windows of so many of them."""
        spans = list(enumerate(names))[:-1]
        reads = [f"  if (i < {size * (w + 1)}) {{ return {n}[i - {size * w}]; }}" for w, n in spans]
        writes = [f"  if (i < {size * (w + 1)}) {{ {n}[i - {size * w}] = v; return; }}" for w, n in spans]
        last, before = names[-1], size * len(spans)
        return [
            f"fn {names[0]}_get(i: i32) -> {kind} {{", *reads, f"  return {last}[i - {before}];", "}",
            f"fn {names[0]}_put(i: i32, v: {kind}) {{", *writes, f"  {last}[i - {before}] = v;", "}",
        ]  # fmt: skip
