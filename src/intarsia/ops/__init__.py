"""Operators: one definition each, in tensor primitives or on the host, by family."""

from __future__ import annotations

import functools
import importlib

from intarsia.ops.layers import in_force
from intarsia.ops.registry import REGISTRY, Registry

FAMILIES = (
    "elementwise", "activation", "convert", "logical", "reduction", "softmax", "shape", "slicing", "selection", "gather",
    "matmul", "einsum", "normalization", "random", "nn", "pooling", "resize", "sampling", "detection", "recurrent", "quantize",
    "attention", "control", "sequence", "signal", "text", "loss", "contrib_attention", "contrib", "channels_last", "integers",
    "contrib_fused", "contrib_tensors", "contrib_text", "contrib_quantized", "contrib_quantized_lstm", "contrib_attn_lstm",
    "contrib_blocks", "contrib_experts", "contrib_routing", "expert_parts", "contrib_packed", "contrib_positions",
    "contrib_ragged", "contrib_generation", "contrib_beams", "linalg", "training", "gradient", "grouped_parts", "withdrawn",
    "ml.features", "ml.linear", "ml.categories", "ml.maps", "ml.trees", "ml.native",
)  # fmt: skip


def registry() -> Registry:
    """All operators: Intarsia's own, under those that a program registered (`intarsia.op`) for the process, or for the
    session that is being made or run here."""
    return in_force(builtin())


@functools.cache
def builtin() -> Registry:
    """Intarsia's own operators; the families are imported on the first call."""
    for family in FAMILIES:
        importlib.import_module(f"intarsia.ops.{family}")
    return REGISTRY
