"""onnxruntime's module of overrides for single tensors."""

from __future__ import annotations

from intarsia.quantization.description.tensor_overrides import QuantTypeInfo, TensorQuantOverridesHelper

__all__ = ["QuantTypeInfo", "TensorQuantOverridesHelper"]
