"""HIP C as hiprtc takes it, without any header: CUDA C in all that kernels here are made of.

Nothing here depends on how many threads run in step (64 on CDNA, 32 or 64 on RDNA, 32 on NVIDIA's): threads exchange values
through memory that their group shares, behind barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from intarsia.codegen.clike.dialect import Dialect, Limits


class Hip(Dialect):
    """What `Dialect` writes is HIP C.

    Args:
        limits: of the device.
    """

    name: ClassVar[str] = "HIP C"
    vector_type: ClassVar[str] = "f4"
    vector_preamble: ClassVar[str] = "typedef float f4 __attribute__((ext_vector_type(4)));"

    def vector(self, parts: Sequence[str]) -> str:
        return f"(f4){{{', '.join(parts)}}}"

    def add_scaled(self, total: str, factor: str, vector: str) -> str:
        return f"{total} += {factor} * {vector};"

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(buffers=64, threads=256, shared_nbytes=65536, groups=65535)
