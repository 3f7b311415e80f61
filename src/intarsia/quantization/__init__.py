"""Quantise models, and say what it costs: onnxruntime's functions over one description of what is quantised, and a verdict.

`quantize_static`, `quantize_dynamic`, `matmul_nbits_quantizer` and their like have onnxruntime's arguments and names;
`intarsia quantize` is the command. What happens to a model is described in docs/quantization.md.
"""

from __future__ import annotations

from intarsia.quantization.calibrate import (
    CalibraterBase,
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from intarsia.quantization.qdq_quantizer import QDQQuantizer
from intarsia.quantization.quant_utils import QuantFormat, QuantizationMode, QuantType, write_calibration_table
from intarsia.quantization.quantize import (
    DynamicQuantConfig,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_static,
)
from intarsia.quantization.shape_inference import quant_pre_process

__all__ = [
    "CalibraterBase", "CalibrationDataReader", "CalibrationMethod", "DynamicQuantConfig", "MinMaxCalibrater", "QDQQuantizer",
    "QuantFormat", "QuantType", "QuantizationMode", "StaticQuantConfig", "TensorData", "TensorsData", "create_calibrator",
    "get_qdq_config", "load_tensors_data", "quant_pre_process", "quantize", "quantize_dynamic", "quantize_static",
    "save_tensors_data", "write_calibration_table",
]  # fmt: skip
