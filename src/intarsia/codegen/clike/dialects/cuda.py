"""CUDA C as NVRTC takes it, without any header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from intarsia.codegen.clike.dialects.dialect import Dialect, KernelParts, Limits
from intarsia.graph.dtypes import DType

TENSOR_CORES = 80
SHARED_NBYTES = {
    75: (65536, 65536), 80: (166912, 167936), 87: (166912, 167936), 90: (232448, 233472), 100: (232448, 233472),
    103: (232448, 233472),
}  # fmt: skip
"""Shared memory that a group, and a multiprocessor, of a compute capability have, where no device is there to tell (CUDA C++
programming guide, "Technical Specifications per Compute Capability")."""
OTHER_SHARED_NBYTES = (101376, 102400)
"""The compute capability (10 * major + minor) from which on `TENSOR_FUNCTIONS` compile."""


def _multiply(name: str, shape: str, kind: str) -> str:
    """d += a b for a warp's fragments."""
    return f"""__device__ __forceinline__ void multiply_{name}(float* d, const unsigned int* a, const unsigned int* b) {{
  asm volatile("mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 "
    "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}"""


def _wait(n: int) -> str:
    head = f"__device__ __forceinline__ void copies_wait_but_{n}()"
    return f"""{head} {{ asm volatile("cp.async.wait_group {n};" ::: "memory"); }}"""


def _fragments(name: str, turned: str) -> str:
    """Four matrices of 8 x 8 elements of 16 bits; each thread gives the address of one line."""
    return f"""__device__ __forceinline__ void {name}(unsigned int* r, const void* line) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%0,%1,%2,%3}}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(line)) : "memory");
}}"""


TENSOR_FUNCTIONS = "\n".join((
    """__device__ __forceinline__ unsigned int shared_address(const void* p) {
  unsigned int a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}""",
    """__device__ __forceinline__ void copy_16(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}""",
    """__device__ __forceinline__ void copies_begin() { asm volatile("cp.async.commit_group;" ::: "memory"); }""",
    *map(_wait, range(3)),
    _fragments("fragments", ""), _fragments("fragments_turned", ".trans"),
    """__device__ __forceinline__ unsigned int to_tf32(float x) {
  unsigned int r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}""",
    _multiply("f16", "m16n8k16", "f16"), _multiply("bf16", "m16n8k16", "bf16"), _multiply("tf32", "m16n8k8", "tf32"),
))  # fmt: skip
"""What `tensor` calls: `copy_16` starts a copy of 16 bytes into shared memory (zeros where not inside), `copies_begin` ends a
set of copies, `copies_wait_but_N` waits for all sets but the latest N."""


def _multiply_bytes(left: str, right: str) -> str:
    return f"""__device__ __forceinline__ void multiply_{left}{right}(int* d, const unsigned int* a, const unsigned int* b) {{
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.{left}.{right}.s32 "
    "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}"""


BYTE_FUNCTIONS = "\n".join(_multiply_bytes(left, right) for left in ("s8", "u8") for right in ("s8", "u8"))
"""d += a b for a warp's fragments of bytes."""


def _dot4(left: str, right: str) -> str:
    """d plus four products of bytes."""
    return f"""__device__ __forceinline__ int dot4_{left}{right}(int d, unsigned int a, unsigned int b) {{
  int r;
  asm("dp4a.{left[0]}32.{right[0]}32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(d));
  return r;
}}"""


DOT4_FUNCTIONS = "\n".join(_dot4(left, right) for left in ("s8", "u8") for right in ("s8", "u8"))
"""Four products of bytes and a sum, from compute capability 6.1 on."""
HALF_VALUE = """__device__ __forceinline__ float half_value(unsigned int bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
  return x;
}"""
HALF_BITS = """__device__ __forceinline__ unsigned int half_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}"""
"""float16 from and to float32, to the nearest, by the processor's own instructions."""
EXTREMA = "\n".join(
    f"""__device__ __forceinline__ float {name}(float x, float y) {{
  float r;
  asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}}"""
    for name, op in (("minimum", "min"), ("maximum", "max"))
)
"""NaN where either is, from compute capability 8.0 on."""
FUNCTIONS = (TENSOR_FUNCTIONS, BYTE_FUNCTIONS, DOT4_FUNCTIONS, HALF_VALUE, HALF_BITS, EXTREMA)
"""Everything that stands before kernels, each as a whole and once."""


class Cuda(Dialect):
    """What `Dialect` writes is CUDA C.

    Args:
        limits: of the device.
        matrix_units: types of factors whose products are given to tensor cores; float32 is rounded to TF32 there.
        capability: 10 * major + minor of the compute capability.
    """

    name: ClassVar[str] = "CUDA C"
    sizes_are_arguments: ClassVar[bool] = True
    guards: ClassVar[bool] = True
    warp: ClassVar[int] = 32

    def __init__(
        self, limits: Limits | None = None, matrix_units: Iterable[DType] = (), capability: int = TENSOR_CORES
    ) -> None:
        self.capability = capability
        group_nbytes, unit_nbytes = SHARED_NBYTES.get(capability, OTHER_SHARED_NBYTES)
        self.limits = limits or Limits(64, 256, 49152, 65535, group_nbytes=group_nbytes, unit_nbytes=unit_nbytes)
        self.matrix_units = frozenset(matrix_units)

    def preamble(self, kernel: KernelParts) -> list[str]:
        text = "\n".join(kernel.body)
        used = {
            "half_bits(": HALF_BITS, "half_value(": HALF_VALUE, "copies_begin();": TENSOR_FUNCTIONS,
            "dot4_": DOT4_FUNCTIONS,
            **dict.fromkeys((f"multiply_{a}{b}(" for a in ("s8", "u8") for b in ("s8", "u8")), BYTE_FUNCTIONS),
        }  # fmt: skip
        found = list(dict.fromkeys(functions for name, functions in used.items() if name in text))
        return [*found, *([EXTREMA] if "maximum(" in text or "minimum(" in text else [])]

    def extremum(self, op: str, a: str, b: str) -> str | None:
        return f"{op}imum({a}, {b})" if self.capability >= TENSOR_CORES else None

    def exchanged(self, value: str, mask: str) -> str:
        return f"__shfl_xor_sync(0xffffffffu, {value}, {mask})"

    def decode_half(self, bits: str) -> str | None:
        return f"half_value({bits})"

    def encode_half(self, value: str) -> str | None:
        return f"half_bits({value})"
