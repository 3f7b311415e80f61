"""Quantisation for Qualcomm's QNN: `get_qnn_qdq_config`, `qnn_preprocess_model`."""

from __future__ import annotations

from intarsia.quantization.execution_providers.qnn.preprocess import qnn_preprocess_model
from intarsia.quantization.execution_providers.qnn.quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]
