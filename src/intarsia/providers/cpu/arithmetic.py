"""What `session.arithmetic` asks for: in which type weights are stored, and in which products are computed.

Only products by constants change: MatMul, Gemm and pointwise convolutions. Everything else stays in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia.codegen.soft_half import needs_conversions
from intarsia.codegen.target import Target
from intarsia.graph.dtypes import DType

KEY = "session.arithmetic"
_STORED = {"float16": DType.FLOAT16, "float16_weights": DType.FLOAT16, "bfloat16": DType.BFLOAT16}


def stored_type(config: Mapping[str, str], target: Target, own: DType | None = None) -> DType | None:
    """The 16-bit type in which float32 weights are kept, or None.

    Args:
        own: the type that the model gives them, where they were widened: storing it loses nothing, so that needs no option.
    """
    found = _STORED.get(config.get(KEY, ""), own)
    return None if found is DType.FLOAT16 and needs_conversions(target) else found


def in_halves(config: Mapping[str, str], target: Target) -> bool:
    """Whether products are computed in float16: it is asked for, and the CPU has instructions for it (AVX512-FP16)."""
    return config.get(KEY) == "float16" and target.arch == "x86_64" and target.has("avx512fp16") and target.vector_bytes == 64


def described(stored: DType | None) -> str:
    """What of a step is not float32, for people."""
    return "" if stored is None else f"{stored.name.lower()} weights"
