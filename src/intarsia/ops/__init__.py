"""Operators: one definition each, in tensor primitives or on the host, by family."""

from __future__ import annotations

import functools
import importlib

from intarsia.ops.registry import REGISTRY, Registry

FAMILIES = (
    "elementwise", "activation", "convert", "logical", "reduction", "softmax", "shape", "slicing", "selection", "gather",
    "matmul", "einsum", "normalization", "random", "nn", "pooling", "resize", "sampling", "detection", "recurrent",
    "quantize", "attention", "control", "sequence", "signal", "text", "loss", "contrib_attention", "contrib",
    "channels_last", "contrib_fused", "contrib_tensors", "contrib_text", "contrib_quantized", "linalg", "training",
    "gradient", "ml.features", "ml.linear", "ml.categories", "ml.maps", "ml.trees", "ml.native",
)  # fmt: skip


@functools.cache
def registry() -> Registry:
    """All operators; the families are imported on the first call."""
    for family in FAMILIES:
        importlib.import_module(f"intarsia.ops.{family}")
    return REGISTRY
