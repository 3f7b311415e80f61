"""HIP C as hiprtc takes it, without any header: CUDA C in all that kernels here are made of.

Nothing here depends on how many threads run in step (64 on CDNA, 32 or 64 on RDNA, 32 on NVIDIA's): threads exchange values
through memory that their group shares, behind barriers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from intarsia.codegen.clike.dialects.dialect import Dialect, KernelParts, Limits
from intarsia.graph.dtypes import DType

DOT4_FUNCTIONS = (
    """__device__ inline int dot4_s8s8(int d, unsigned int a, unsigned int b) {
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) \\
  || defined(__gfx942__) || defined(__gfx950__)
  return __builtin_amdgcn_sdot4((int)a, (int)b, d, false);
#elif defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, d, false);
#else
  for (int i = 0; i < 32; i += 8) d += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
  return d;
#endif
}""",
    """__device__ inline int dot4_u8u8(int d, unsigned int a, unsigned int b) {
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) \\
  || defined(__gfx942__) || defined(__gfx950__) || defined(__GFX11__) || defined(__GFX12__)
  return (int)__builtin_amdgcn_udot4(a, b, (unsigned int)d, false);
#else
  for (int i = 0; i < 32; i += 8) d += (int)(unsigned char)(a >> i) * (int)(unsigned char)(b >> i);
  return d;
#endif
}""",
)
"""Four products of bytes, by the instruction where a device has it."""


class Hip(Dialect):
    """What `Dialect` writes is HIP C.

    Args:
        limits: of the device.
    """

    name: ClassVar[str] = "HIP C"
    mixes_signs: ClassVar[bool] = False
    sizes_are_arguments: ClassVar[bool] = True
    guards: ClassVar[bool] = True
    vector_type: ClassVar[str] = "f4"
    vectors: ClassVar[Mapping[str, str]] = {
        "float": "f4", "int": "i4", "unsigned int": "u4", "short": "s4", "unsigned short": "us4", "signed char": "c4",
        "unsigned char": "uc4",
    }  # fmt: skip

    def preamble(self, kernel: KernelParts) -> list[str]:
        text = "\n".join(kernel.body)
        used = [(element, name) for element, name in self.vectors.items() if re.search(rf"\b{name}\b", text)]
        dots = [function for function, name in zip(DOT4_FUNCTIONS, ("dot4_s8s8(", "dot4_u8u8("), strict=True) if name in text]
        return [*dots, *(f"typedef {element} {name} __attribute__((ext_vector_type(4)));" for element, name in used)]

    def vector(self, parts: Sequence[str], dtype: DType = DType.FLOAT) -> str:
        element = self.storage[dtype]
        plain = element in ("float", "int", "unsigned int")
        values = parts if plain else [f"({element})({p})" for p in parts]  # braces refuse what may become less
        return f"({self.vector_of(dtype)}){{{', '.join(values)}}}"

    def decode_half(self, bits: str) -> str | None:
        return f"(float)__builtin_bit_cast(_Float16, (unsigned short)({bits}))"

    def encode_half(self, value: str) -> str | None:
        return f"(unsigned int)__builtin_bit_cast(unsigned short, (_Float16)({value}))"

    def add_scaled(self, total: str, factor: str, vector: str) -> str:
        return f"{total} += {factor} * {vector};"

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(buffers=64, threads=256, shared_nbytes=65536, groups=65535)
