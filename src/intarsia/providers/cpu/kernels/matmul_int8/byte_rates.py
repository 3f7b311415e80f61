"""Rates of products of bytes: how many are summed in the time of four multiply-adds of float32."""

from __future__ import annotations

from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot

BY_WORDS = 0.43  # `widened_int16`, measured on a Zen 3
IN_ORDER = 0.6  # `saturation_free_order`: it takes 0.64 to 0.8 of that time
_BY_INSTRUCTION = {"vpdpbusd": 1.0, "usdot": 1.0, "sdot": 0.8, "pmaddwd": 0.33, "": 0.2}


def rate_of(target: Target) -> float:
    """Of `microkernel_int8`."""
    return _BY_INSTRUCTION[ByteDot.kind_of(target, target.vector_bytes // 4)]
