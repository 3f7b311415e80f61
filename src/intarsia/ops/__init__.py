"""Operators: one definition each, in tensor primitives or on the host, by family."""

from __future__ import annotations

import functools
import importlib

from intarsia.ops.framework.registry import REGISTRY, Registry
from intarsia.ops.framework.registry_scopes import in_force

FAMILIES = (
    "arithmetic.elementwise", "nn.activation", "tensor.convert", "arithmetic.logical", "arithmetic.reduction", "nn.softmax",
    "tensor.shape", "tensor.slicing", "tensor.selection", "tensor.gather", "arithmetic.matmul", "arithmetic.einsum",
    "nn.normalization", "tensor.random_tensors", "nn.conv", "nn.pooling", "nn.resize", "nn.sampling", "nn.detection",
    "nn.recurrent", "tensor.quantize", "nn.attention", "control", "tensor.sequence", "arithmetic.signal", "text.strings",
    "nn.loss", "contrib.attention", "contrib.embedding_and_blocks", "internal.channels_last", "internal.integers",
    "contrib.fused", "contrib.tensors", "contrib.text", "contrib.qoperator", "contrib.dynamic_quantize_lstm",
    "contrib.attn_lstm", "contrib.packed_blocks", "contrib.moe", "contrib.moe_router", "internal.moe_steps",
    "contrib.packed_attention", "contrib.positions_and_states", "contrib.ragged_sequences", "contrib.greedy_search",
    "contrib.beam_search", "arithmetic.linalg", "nn.optimizers", "internal.gradient", "internal.gqa_steps", "withdrawn",
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
