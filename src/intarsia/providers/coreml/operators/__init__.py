"""ONNX's operators in MIL's operations, one handler each (`node_builder`)."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia.providers.coreml.node_builder import Handler
from intarsia.providers.coreml.operators import (
    convolution,
    elementwise,
    indexing,
    layout,
    normalization,
    quantization,
    recurrence,
    reductions,
    resizing,
)

HANDLERS: Mapping[str, Handler] = {
    **convolution.HANDLERS,
    **elementwise.HANDLERS,
    **indexing.HANDLERS,
    **layout.HANDLERS,
    **normalization.HANDLERS,
    **quantization.HANDLERS,
    **recurrence.HANDLERS,
    **reductions.HANDLERS,
    **resizing.HANDLERS,
}
"""Operators of ONNX's own domain -> their handlers. More are written in terms of these by legalisation rules."""
